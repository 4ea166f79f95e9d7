"""Texts to the card and hits from it, through pinned memory, while all cores pack and widen.

A text goes as 2 bits a symbol and a bit that tells gaps (``gpu.card.packing``), so 0.375 bytes a
symbol; hits come as 6 bytes. Only the caller's thread talks to the card: in others that costs more.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import slicing
from gpu.card.intrinsics import SIMULATED, cuda
from gpu.card.letters import pack_letters
from gpu.card.packing import pack_chunk
from trie.codes import InvalidBaseError
from trie.cpu.threads import run_all, split_range, usable_cores

PIECES = 16
"""Pieces of packed text sent at once."""

HITS = 1 << 21
"""Hits fetched at once: about as many bytes."""

FEW_HITS = 1 << 16
"""Hits that one core widens sooner than several."""

_BUFFERS = 2


class TextStaging:
    """Two pinned buffers: one is on its way while the cores work on the other."""

    def __init__(self) -> None:
        size = max(PIECES * slicing.packed_words(slicing.PACKED), 6 * HITS // 4)
        self.stream = cuda.stream()
        self.buffers = [cuda.pinned_array(size, np.uint32) for _ in range(_BUFFERS)]
        self.moved = [cuda.event() for _ in range(_BUFFERS)]


_idle: deque[tuple[int, TextStaging]] = deque()
"""Staging that nobody uses, with its device: pinning memory takes longer than many searches."""


def _taken() -> tuple[int, TextStaging]:
    device = 0 if SIMULATED else int(cuda.get_current_device().id)
    for pair in list(_idle):
        if pair[0] == device:
            try:
                _idle.remove(pair)
            except ValueError:  # another thread has it
                continue
            return pair
    return device, TextStaging()


def _pack(symbols: NDArray[np.uint8], first: int, out: NDArray[np.uint32], letters: bool) -> None:
    """A piece of the text, from ``first`` on, to where it belongs."""
    part = symbols[first : first + slicing.PACKED]
    starts, bases = slicing.packed_places(part.size)
    pack = pack_letters if letters else pack_chunk
    try:
        # for windows of one symbol a start is what is no gap
        pack(part, np.array([0, part.size]), 1, out_bases=out[bases], out_starts=out[starts])
    except InvalidBaseError as error:
        raise InvalidBaseError(error.byte, first + error.position) from None


def send_packed(symbols: NDArray[np.uint8], packed: Any, *, letters: bool = False) -> None:
    """Pack a text and send it: codes or ``letters``, uint8[n] on the host.

    packed: uint32[slicing.packed_words(n)] or more on the card; all has arrived on return.
    InvalidBaseError for a letter that is not of DNA.
    """
    taken = _taken()
    staging = taken[1]
    cores = usable_cores()
    at = 0
    for number, begin in enumerate(range(0, symbols.size, PIECES * slicing.PACKED)):
        stop = min(symbols.size, begin + PIECES * slicing.PACKED)
        buffer = staging.buffers[number % _BUFFERS]
        if number >= _BUFFERS:
            staging.moved[number % _BUFFERS].synchronize()
        size = slicing.packed_words(slicing.PACKED)
        tasks = [
            partial(_pack, symbols, first, buffer[i * size : (i + 1) * size], letters)
            for i, first in enumerate(range(begin, stop, slicing.PACKED))
        ]
        run_all(tasks, cores)
        words = slicing.packed_words(stop - begin)
        packed[at : at + words].copy_to_device(buffer[:words], stream=staging.stream)
        staging.moved[number % _BUFFERS].record(staging.stream)
        at += words
    staging.stream.synchronize()
    _idle.append(taken)


def fetch_hits(
    ends: Any, distances: Any, total: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the card, widened on the host."""
    wide_ends = np.empty(total, dtype=np.int64)
    wide_distances = np.empty(total, dtype=np.int32)
    taken = _taken()
    staging = taken[1]
    cores = usable_cores() if total >= FEW_HITS else 1
    firsts = list(range(0, total, HITS))
    held: list[tuple[NDArray[np.uint32], NDArray[np.uint16]]] = []

    def ask(number: int) -> None:
        first = firsts[number]
        size = min(HITS, total - first)
        buffer = staging.buffers[number % _BUFFERS]
        here = buffer[:size], buffer.view(np.uint16)[2 * size : 3 * size]
        for source, to in zip((ends, distances), here, strict=True):
            source[first : first + size].copy_to_host(to, stream=staging.stream)
        staging.moved[number % _BUFFERS].record(staging.stream)
        held.append(here)

    for number in range(min(_BUFFERS, len(firsts))):
        ask(number)
    for number, first in enumerate(firsts):
        staging.moved[number % _BUFFERS].synchronize()
        some_ends, some_distances = held[number]
        ranges = split_range(0, some_ends.size, cores)
        tasks = [
            partial(np.copyto, wide_ends[first + a : first + b], some_ends[a:b]) for a, b in ranges
        ]
        tasks += [
            partial(np.copyto, wide_distances[first + a : first + b], some_distances[a:b])
            for a, b in ranges
        ]
        run_all(tasks, cores)
        if number + _BUFFERS < len(firsts):
            ask(number + _BUFFERS)
    _idle.append(taken)
    return wide_ends, wide_distances
