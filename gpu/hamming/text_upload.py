"""A chunk of text packed as bit planes and sent to the GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.workspace import Workspace
from gpu.hamming.bit_planes import PLANES
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range, usable_cores
from trie.cpu.vectors import marked

LEAST_PART = 1 << 18  # symbols worth a thread

MOST_PACKERS = 8
"""Threads that pack: 34 M symbols took 1.9 ms with one, 0.8 with eight, 1.1 with sixteen."""


@njit(cache=True, nogil=True)
def pack(codes, first, stop, planes):
    """The words of ``planes`` for the symbols [first, stop), 64 | first.

    planes: uint64[3, words], word w for the 64 symbols from 64 w on (bit_planes.py). Symbols after
    ``stop`` are A. Returns whether there is a gap code; the gap plane is written in any case.

    Three comparisons of 64 bytes per word; bound by memory.
    """
    some = np.uint64(0)
    for word in range(first >> 6, (stop + 63) >> 6):
        at = 64 * word
        if at + 64 <= stop:
            low = marked(codes, at, 1)
            high = marked(codes, at, 2)
            gap = marked(codes, at, 4)
        else:
            low = high = gap = np.uint64(0)
            for i in range(stop - at):
                code = np.uint64(codes[at + i])
                low |= (code & np.uint64(1)) << np.uint64(i)
                high |= ((code >> np.uint64(1)) & np.uint64(1)) << np.uint64(i)
                gap |= (code >> np.uint64(2)) << np.uint64(i)
        planes[0, word] = low
        planes[1, word] = high
        planes[2, word] = gap
        some |= gap
    return some != 0


class Planes:
    """A chunk as bit planes on the GPU: 0.25 bytes per symbol are sent, 0.375 with gap codes.

    text: uint32[3, words] once ``send`` was called. gaps: uint32, all ones if there is a gap code.
    ``sent`` is recorded on ``stream`` after the transfer.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.sent = cuda.event()
        self.text: Any = None
        self.gaps = np.uint32(0)
        self._space = Workspace()

    def send(self, codes: NDArray[np.uint8], words: int) -> None:
        """Pack the codes and queue the transfer; words: per plane, even, enough for the codes."""
        self.text = None  # its memory may have to grow
        there = self._space.array("planes", PLANES * words, np.uint32)
        here = self._space.on_host("packed", PLANES * words // 2, np.uint64)
        self.text = there[: PLANES * words].reshape(PLANES, words)
        self.sent.synchronize()
        planes = here[: PLANES * words // 2].reshape(PLANES, words // 2)
        threads = max(1, min(usable_cores(), MOST_PACKERS, codes.size // LEAST_PART))
        ranges = split_range(0, codes.size, threads, align=64)
        found = run_all([partial(pack, codes, a, b, planes) for a, b in ranges], threads)
        self.gaps = np.uint32(0xFFFFFFFF if any(found) else 0)
        # one copy, with the unused ends of planes: queuing another copy takes longer than these
        used = (PLANES if any(found) else PLANES - 1) * words
        there[:used].copy_to_device(here.view(np.uint32)[:used], stream=self.stream)
        self.sent.record(self.stream)
