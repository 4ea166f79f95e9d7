"""Texts to the card and hits from it, through pinned memory, while the cores pack and unpack.

A text goes as 2 bits a symbol and a bit that tells gaps (``gpu.packing``), so 0.375 bytes a symbol;
hits come as 6 bytes and are widened by all cores.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.intrinsics import SIMULATED, cuda
from gpu.packing import pack_chunk, packed_sizes
from trie.parallel import run_all, split_range, usable_cores

PIECE = 1 << 25
"""Symbols sent at once; a multiple of 32."""

HITS = 1 << 21
"""Hits fetched at once."""

FEW_HITS = 1 << 16
"""Hits that one core widens sooner than several."""

_BYTES = 4 * (packed_sizes(PIECE)[0] + packed_sizes(PIECE)[1])
_BUFFERS = 2


class Staging:
    """Two pinned buffers: one is on its way while the cores work on the other."""

    def __init__(self) -> None:
        self.stream = cuda.stream()
        self.buffers = [cuda.pinned_array(_BYTES, np.uint8) for _ in range(_BUFFERS)]
        self.moved = [cuda.event() for _ in range(_BUFFERS)]


_idle: list[tuple[Any, Staging]] = []
"""Staging that nobody uses, with its device: pinning memory takes longer than many searches."""


def _device() -> int:
    return 0 if SIMULATED else int(cuda.get_current_device().id)


def _taken(device: int) -> Staging:
    for pair in list(_idle):
        if pair[0] == device:
            try:
                _idle.remove(pair)
            except ValueError:
                continue
            return pair[1]
    return Staging()


def send_packed(codes: NDArray[np.uint8], bases: Any, starts: Any) -> None:
    """Pack a text and send it: codes uint8[n] on the host, bases and starts uint32 on the card.

    They hold at least ``packed_sizes(n)`` words. All has arrived when this returns.
    """
    device = _device()
    staging = _taken(device)
    cores = usable_cores()
    for number, first in enumerate(range(0, codes.size, PIECE)):
        part = codes[first : first + PIECE]
        buffer = staging.buffers[number % _BUFFERS].view(np.uint32)
        moved = staging.moved[number % _BUFFERS]
        if number >= _BUFFERS:
            moved.synchronize()
        words, bits = packed_sizes(part.size)
        there = buffer[:words], buffer[words : words + bits]
        offsets = np.array([0, part.size])
        # for windows of one symbol a start is what is no gap
        pack_chunk(part, offsets, 1, threads=cores, out_bases=there[0], out_starts=there[1])
        for to, at, source in ((bases, first // 16, there[0]), (starts, first // 32, there[1])):
            to[at : at + source.size].copy_to_device(source, stream=staging.stream)
        moved.record(staging.stream)
    staging.stream.synchronize()
    _idle.append((device, staging))


def fetch_hits(
    ends: Any, distances: Any, total: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the card, widened on the host."""
    wide = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int32)
    device = _device()
    staging = _taken(device)
    cores = usable_cores() if total >= FEW_HITS else 1
    firsts = list(range(0, total, HITS))
    held: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def ask(number: int) -> None:
        first = firsts[number]
        size = min(HITS, total - first)
        buffer = staging.buffers[number % _BUFFERS]
        parts = buffer[: 4 * size].view(np.uint32), buffer[4 * size : 6 * size].view(np.uint16)
        for source, to in zip((ends, distances), parts, strict=True):
            source[first : first + size].copy_to_host(to, stream=staging.stream)
        staging.moved[number % _BUFFERS].record(staging.stream)
        held.append(parts)

    for number in range(min(_BUFFERS, len(firsts))):
        ask(number)
    for number, first in enumerate(firsts):
        staging.moved[number % _BUFFERS].synchronize()
        size = held[number][0].size
        run_all(
            [
                partial(np.copyto, wide[i][first + a : first + b], held[number][i][a:b])
                for a, b in split_range(0, size, cores)
                for i in range(2)
            ],
            cores,
        )
        if number + _BUFFERS < len(firsts):
            ask(number + _BUFFERS)
    _idle.append((device, staging))
    return wide
