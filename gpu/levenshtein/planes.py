"""A chunk as bit planes, half a byte per symbol, as the Levenshtein kernels read it.

Symbol s is bit s + MARGIN of each plane: low and high bits of the codes, gaps, first symbols of
reads (gpu/levenshtein/search.py draws them). The planes are adjacent: one copy uploads them all.

Operations: 64 symbols take a load, three vector tests and six stores; reads are marked one by one.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu.levenshtein.search import MARGIN
from trie.cpu.jit import njit
from trie.cpu.threads import run_all
from trie.cpu.vectors import marked
from trie.windows import check_batch

PLANES = 4
SPARE_WORDS = 4  # words that windows read after the last symbol's in every plane
PART = 1 << 22  # symbols that a thread packs at a time, at most 1 ms of work; 64 | PART
_MARGIN_WORDS = MARGIN // 32


@dataclass(frozen=True, slots=True)
class PlaneChunk:
    """A chunk as bit planes: low, high, gaps and firsts, uint32[4, plane_words(symbols)]."""

    symbols: int
    planes: NDArray[np.uint32]


def plane_words(symbols: int) -> int:
    """Words of each plane for that number of symbols."""
    return -(-(symbols + MARGIN + 1) // 32) + SPARE_WORDS


def pack_planes(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], *, threads: int = 1
) -> PlaneChunk:
    """Pack a chunk: bases uint8[n] (codes, 4 = gap), offsets int64[reads + 1].

    Raises BatchShapeError for offsets that do not describe the bases.
    """
    bases, offsets = check_batch(bases, offsets)
    words = plane_words(bases.size)
    planes = np.empty(PLANES * words, dtype=np.uint32)
    run_all(packing(bases, offsets, 0, bases.size, planes), threads)
    return PlaneChunk(bases.size, planes.reshape(PLANES, words))


def packing(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    origin: int,
    stop: int,
    out: NDArray[np.uint32],
) -> list[Callable[[], None]]:
    """The work of packing the symbols [origin, stop) of a batch, in parts for several threads.

    bases, offsets: of the batch, checked and contiguous. out: uint32[4 plane_words(stop - origin)
    or more], such as pinned memory, that receives the planes.
    """
    total = stop - origin
    words = plane_words(total)
    planes = out[: PLANES * words].reshape(PLANES, words)
    planes[:, :_MARGIN_WORDS] = 0
    planes[:, _MARGIN_WORDS + -(-total // 32) :] = 0
    chunk = bases[origin:stop]
    return [
        partial(_pack, chunk, offsets, origin, first, min(first + PART, total), planes)
        for first in range(0, total, PART)
    ]


@njit(cache=True, nogil=True, inline="always")
def _mark(firsts, symbol):
    firsts[(symbol + MARGIN) >> 5] |= np.uint32(np.uint32(1) << np.uint32((symbol + MARGIN) & 31))


@njit(cache=True, nogil=True)
def _pack(bases, offsets, origin, first, stop, planes):
    """The planes of the symbols [first, stop) of a chunk, 64 | first."""
    low, high, gaps, firsts = planes[0], planes[1], planes[2], planes[3]
    upper = np.uint64(32)
    for block in range((stop - first) // 64):
        at = np.uint64(first + 64 * block)
        word = (at + np.uint64(MARGIN)) >> np.uint64(5)
        later = word + np.uint64(1)
        value = marked(bases, at, np.uint8(1))
        low[word] = np.uint32(value)
        low[later] = np.uint32(value >> upper)
        value = marked(bases, at, np.uint8(2))
        high[word] = np.uint32(value)
        high[later] = np.uint32(value >> upper)
        value = marked(bases, at, np.uint8(4))
        gaps[word] = np.uint32(value)
        gaps[later] = np.uint32(value >> upper)
        firsts[word] = np.uint32(0)
        firsts[later] = np.uint32(0)
    at = first + (stop - first) // 64 * 64
    for begin in range(at, stop, 32):
        word = (begin + MARGIN) >> 5
        for plane in range(3):
            value = np.uint32(0)
            for i in range(min(32, stop - begin)):
                bit = (np.uint32(bases[begin + i]) >> np.uint32(plane)) & np.uint32(1)
                value |= np.uint32(bit << np.uint32(i))
            planes[plane, word] = value
        firsts[word] = np.uint32(0)
    if first == 0:
        _mark(firsts, 0)
    for read in range(np.searchsorted(offsets, origin + first), offsets.size):
        if offsets[read] - origin >= stop:
            break
        _mark(firsts, offsets[read] - origin)
    if stop == bases.size:
        _mark(firsts, stop)
