"""Send texts to the GPU and fetch hits, through pinned memory, while all cores pack and widen.

A text is sent as 2 bits per symbol and a bit that marks gaps (``gpu.card.packing``): 0.375 bytes
per symbol; a hit takes 6 bytes. Only the caller's thread calls the driver: calls from others cost
more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import slicing
from gpu.card.copies import fetch, send
from gpu.card.intrinsics import SIMULATED, cuda
from gpu.card.letters import pack_letters
from gpu.card.packing import pack_chunk
from trie.codes import InvalidBaseError
from trie.cpu.threads import run_all, split_range, usable_cores

PIECES = 4  # pieces of packed text sent at once
HITS = 1 << 21  # hits fetched at once: about as many bytes
FEW_HITS = 1 << 16  # hits that one core widens faster than several
_BUFFERS = 2


class PinnedPair:
    """Two pinned buffers: one is in transfer while the cores work on the other."""

    def __init__(self) -> None:
        size = max(PIECES * slicing.packed_words(slicing.PACKED), 6 * HITS // 4)
        self.buffers = [cuda.pinned_array(size, np.uint32) for _ in range(_BUFFERS)]
        self.moved = [cuda.event() for _ in range(_BUFFERS)]


_idle: defaultdict[int, deque[PinnedPair]] = defaultdict(deque)
"""Free buffers by device: pinning memory takes longer than many searches."""


@contextmanager
def _pinned_pair() -> Iterator[PinnedPair]:
    idle = _idle[0 if SIMULATED else int(cuda.get_current_device().id)]
    try:
        pair = idle.pop()
    except IndexError:
        pair = PinnedPair()
    yield pair
    idle.append(pair)


def _pack(symbols: NDArray[np.uint8], first: int, out: NDArray[np.uint32], letters: bool) -> None:
    """Pack the piece of the text that begins at ``first``."""
    part = symbols[first : first + slicing.PACKED]
    starts, bases = slicing.packed_places(part.size)
    pack = pack_letters if letters else pack_chunk
    try:
        # for k = 1 a window starts at every symbol that is not a gap
        pack(part, np.array([0, part.size]), 1, out_bases=out[bases], out_starts=out[starts])
    except InvalidBaseError as error:
        raise InvalidBaseError(error.byte, first + error.position) from None


def send_packed(
    symbols: NDArray[np.uint8], packed: Any, stream: Any, *, letters: bool = False
) -> None:
    """Pack a text and send it: codes or ``letters``, uint8[n] on the host.

    packed: uint32[slicing.packed_words(n)] or more on the GPU; the transfer is complete on return.
    Raises InvalidBaseError for a letter that is not DNA.
    """
    cores = usable_cores()
    size = slicing.packed_words(slicing.PACKED)
    at = 0
    with _pinned_pair() as pair:
        for number, begin in enumerate(range(0, symbols.size, PIECES * slicing.PACKED)):
            stop = min(symbols.size, begin + PIECES * slicing.PACKED)
            buffer, moved = pair.buffers[number % _BUFFERS], pair.moved[number % _BUFFERS]
            if number >= _BUFFERS:
                moved.synchronize()
            tasks = [
                partial(_pack, symbols, first, buffer[i * size : (i + 1) * size], letters)
                for i, first in enumerate(range(begin, stop, slicing.PACKED))
            ]
            run_all(tasks, cores)
            words = slicing.packed_words(stop - begin)
            send(buffer, packed[at : at + words], stream)
            moved.record(stream)
            at += words
        stream.synchronize()


def fetch_hits(
    ends: Any, distances: Any, total: int, stream: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the GPU, widened on the host."""
    wide: tuple[NDArray[Any], NDArray[Any]] = np.empty(total, np.int64), np.empty(total, np.int32)
    cores = usable_cores() if total >= FEW_HITS else 1
    firsts = range(0, total, HITS)

    def staged(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        buffer, size = pair.buffers[number % _BUFFERS], min(HITS, total - firsts[number])
        return buffer[:size], buffer.view(np.uint16)[2 * size : 3 * size]

    with _pinned_pair() as pair:
        for number in range(len(firsts) + _BUFFERS):
            moved = pair.moved[number % _BUFFERS]
            landed = number - _BUFFERS
            if 0 <= landed < len(firsts):
                moved.synchronize()
                first = firsts[landed]
                run_all(
                    [
                        partial(np.copyto, to[first + a : first + b], here[a:b])
                        for to, here in zip(wide, staged(landed), strict=True)
                        for a, b in split_range(0, here.size, cores)
                    ],
                    cores,
                )
            if number < len(firsts):
                for source, to in zip((ends, distances), staged(number), strict=True):
                    part = source[firsts[number] :] if number else source
                    fetch(part, to, stream, to.size)
                moved.record(stream)
    return wide
