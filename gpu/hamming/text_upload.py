"""A chunk of text on its way to the card: as bit planes, or for the paper's methods as bytes."""

# mypy: no-check-untyped-defs

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.hamming.planes import PLANES
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range, usable_cores
from trie.cpu.vectors import marked

LEAST_PART = 1 << 18
"""Symbols for which a thread is worth while."""

MOST_PACKERS = 8
"""Threads that pack: 34 M symbols took 1.9 ms with one, 0.8 with eight, 1.1 with sixteen."""

PIECE = 1 << 24
"""Bytes that are copied before they are sent: the next are, while they travel."""


@njit(cache=True, nogil=True)
def pack(codes, first, stop, planes):
    """The words of ``planes`` for the symbols [first, stop), 64 | first.

    planes: uint64[3, words], word w for the 64 symbols from 64 w on (planes.py). Behind ``stop``
    symbols are A. Returns whether there is a gap code; the gap plane is written anyway.

    Three comparisons of 64 bytes a word; memory is the bound.
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
    """A chunk as bit planes on the card: 0.25 bytes a symbol travel, 0.375 with gap codes.

    text: uint32[3, words] once ``send`` was called. gaps: uint32, all ones if there is a gap code.
    What follows on ``stream`` finds the planes there.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.text: Any = None
        self.gaps = np.uint32(0)
        self._buffer: Any = None
        self._pinned: Any = None
        self.sent = cuda.event()
        """Recorded when the planes are there."""

    def send(self, codes: NDArray[np.uint8], words: int) -> None:
        """Pack the codes and queue them; words: of a plane, even; it may be more than they need."""
        if self._buffer is None or self._buffer.size < PLANES * words:
            self._buffer = self.text = None  # before the new one is taken
            self._buffer = cuda.device_array(PLANES * words, np.uint32)
            self._pinned = None
            self._pinned = cuda.pinned_array(PLANES * words // 2, np.uint64)
        self.sent.synchronize()
        self.text = self._buffer[: PLANES * words].reshape(PLANES, words)
        planes = self._pinned[: PLANES * words // 2].reshape(PLANES, words // 2)
        threads = max(1, min(usable_cores(), MOST_PACKERS, codes.size // LEAST_PART))
        ranges = split_range(0, codes.size, threads, align=64)
        found = run_all([partial(pack, codes, a, b, planes) for a, b in ranges], threads)
        self.gaps = np.uint32(0xFFFFFFFF if any(found) else 0)
        # in one piece, the unused ends of planes too: queuing a copy takes longer than they do
        used = (PLANES if any(found) else PLANES - 1) * words
        packed = self._pinned.view(np.uint32)[:used]
        self._buffer[:used].copy_to_device(packed, stream=self.stream)
        self.sent.record(self.stream)


class Codes:
    """A chunk's codes on the card, a byte each; buffers are kept for the next."""

    def __init__(self) -> None:
        self._buffer: Any = None
        self._pinned: list[Any] = []
        self._sent: list[Any] = []
        self._stream = cuda.stream()

    def put(self, codes: NDArray[np.uint8]) -> Any:
        """uint8[codes.size] on the card."""
        if self._buffer is None or self._buffer.size < codes.size:
            self._buffer = None  # before the new one is taken
            self._buffer = cuda.device_array(codes.size, np.uint8)
        cores = usable_cores()
        for number, first in enumerate(range(0, codes.size, PIECE)):
            stop = min(first + PIECE, codes.size)
            staged = self._staging(number % 2, stop - first)
            tasks = [
                partial(np.copyto, staged[a - first : b - first], codes[a:b])
                for a, b in split_range(first, stop, min(cores, (stop - first) // LEAST_PART))
            ]
            run_all(tasks, cores)
            self._buffer[first:stop].copy_to_device(staged, stream=self._stream)
            self._sent[number % 2].record(self._stream)
        self._stream.synchronize()
        return self._buffer[: codes.size]

    def _staging(self, number: int, size: int) -> Any:
        """One of two pinned buffers, when what it held has gone."""
        while len(self._pinned) <= number:
            self._pinned.append(cuda.pinned_array(min(PIECE, max(size, 1)), np.uint8))
            self._sent.append(cuda.event())
        if self._pinned[number].size < size:
            self._pinned[number] = cuda.pinned_array(PIECE, np.uint8)
        self._sent[number].synchronize()
        return self._pinned[number][:size]
