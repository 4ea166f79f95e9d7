"""Chunks of the stream in the form that the kernels read: 2 bits a base and a bit a window start.

    bases    uint32   16 bases a word, the first most significant; gap codes as A
    starts   uint32   bit s % 32 of word s / 32: a window may start at symbol s

The start mask holds all that the kernels need to know about reads, gap codes and the end of the
chunk: a window may start where k symbols of one read without a gap code follow. So 0.375 bytes
a base go to the card, and one bit a window comes back.

Operations: 32 symbols that lie in one read and hold no gap code take four 8-byte loads, about 40
integer operations and no branch a symbol; only other groups are looked at symbol by symbol.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trie.codes import check_k
from trie.parallel import run_all, split_range
from trie.windows import check_batch

MAX_SYMBOLS = 2**31 - 64
"""Event words (thesis Fig. 11) have 31 bits for the index in the chunk."""

SPARE_WORDS = 4
"""Words behind the packed bases that a kernel may read: a window reads three words."""

_PARALLEL_FROM = 1 << 18


class ChunkTooLargeError(ValueError):
    """A chunk with more symbols than 31 bits can index."""


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A chunk of the stream, packed for windows of k symbols.

    bases: uint32[ceil(symbols / 16) + SPARE_WORDS]. starts: uint32[ceil(symbols / 32)].
    """

    k: int
    symbols: int
    bases: NDArray[np.uint32]
    starts: NDArray[np.uint32]

    def windows(self) -> int:
        """How many windows the chunk has."""
        return int(np.bitwise_count(self.starts).sum())


def packed_sizes(symbols: int) -> tuple[int, int]:
    """Words of ``bases`` and of ``starts`` for a chunk of so many symbols."""
    return -(-symbols // 16) + SPARE_WORDS, -(-symbols // 32)


def pack_chunk(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    *,
    threads: int = 1,
    out_bases: NDArray[np.uint32] | None = None,
    out_starts: NDArray[np.uint32] | None = None,
) -> PackedChunk:
    """Pack a chunk: ``bases`` uint8[n] (codes, 4 = gap), ``offsets`` int64[reads + 1].

    ``out_bases`` and ``out_starts`` (uint32, at least as large as ``packed_sizes`` says; pinned
    memory, say) receive the result if given. Raises ValueError unless 1 <= k <= 31,
    BatchShapeError for offsets that do not describe the bases, ChunkTooLargeError above
    MAX_SYMBOLS symbols.
    """
    check_k(k)
    bases, offsets = check_batch(bases, offsets)
    if bases.size > MAX_SYMBOLS:
        message = f"a chunk of {bases.size} symbols, at most {MAX_SYMBOLS} fit"
        raise ChunkTooLargeError(message)
    base_words, start_words = packed_sizes(bases.size)
    packed = _out(out_bases, base_words)
    starts = _out(out_starts, start_words)
    packed[base_words - SPARE_WORDS :] = 0
    ends = split_range(0, bases.size, threads if bases.size >= _PARALLEL_FROM else 1, align=32)
    run_all(
        [partial(_pack, bases, offsets, k, first, stop, packed, starts) for first, stop in ends],
        threads,
    )
    return PackedChunk(k, bases.size, packed, starts)


def _out(given: NDArray[np.uint32] | None, size: int) -> NDArray[np.uint32]:
    if given is None:
        return np.empty(size, dtype=np.uint32)
    if given.dtype != np.uint32 or given.ndim != 1 or given.size < size:
        message = f"a result array needs {size} words of 32 bits"
        raise ValueError(message)
    return given[:size]


@njit(cache=True, nogil=True, inline="always")
def _eight(bases, at):  # type: ignore[no-untyped-def]
    """Eight symbols as the bytes of a word, the first lowest."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(bases[at + i]) << np.uint64(8 * i)
    return word


@njit(cache=True, nogil=True, inline="always")
def squeeze(word):  # type: ignore[no-untyped-def]
    """Eight codes, a byte each and the first lowest, as 16 bits with the first highest."""
    x = word & np.uint64(0x0303030303030303)
    x = ((x << np.uint64(2)) | (x >> np.uint64(8))) & np.uint64(0x000F000F000F000F)
    x = ((x << np.uint64(4)) | (x >> np.uint64(16))) & np.uint64(0x000000FF000000FF)
    return ((x << np.uint64(8)) | (x >> np.uint64(32))) & np.uint64(0xFFFF)


@njit(cache=True, nogil=True)
def _read_of(offsets, symbol):  # type: ignore[no-untyped-def]
    """The last read that begins at or before a symbol."""
    low = 0
    high = offsets.size - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if offsets[middle] <= symbol:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True, nogil=True)
def _pack(bases, offsets, k, first, stop, packed, starts):  # type: ignore[no-untyped-def]
    """Pack the symbols [first, stop), 32 | first; windows that start there may reach beyond.

    ``ended`` holds the windows' ends of the group before and of this one, a bit a symbol, so that
    a shift by k - 1 makes the starts of the group before.
    """
    gaps = np.uint64(0x0404040404040404)
    every = np.uint64(0xFFFFFFFF)
    total = bases.size
    read = _read_of(offsets, first)
    run = 0
    ended = np.uint64(0)
    at = first
    while at < stop + 32:
        word = np.uint64(0)
        if at < total:
            while read + 1 < offsets.size and offsets[read + 1] <= at:
                read += 1
                run = 0
            slow = True
            if at + 32 <= total:
                a = _eight(bases, at)
                b = _eight(bases, at + 8)
                c = _eight(bases, at + 16)
                d = _eight(bases, at + 24)
                if at < stop:
                    packed[at >> 4] = np.uint32((squeeze(a) << np.uint64(16)) | squeeze(b))
                    packed[(at >> 4) + 1] = np.uint32((squeeze(c) << np.uint64(16)) | squeeze(d))
                if ((a | b | c | d) & gaps) == 0 and offsets[read + 1] >= at + 32:
                    slow = False
                    word = every
                    if run < k - 1:
                        word = (every << np.uint64(k - 1 - run)) & every
                    run += 32
            elif at < stop:
                for half in range(2):
                    if at + 16 * half < total:
                        value = np.uint64(0)
                        for i in range(16):
                            value <<= np.uint64(2)
                            if at + 16 * half + i < total:
                                value |= np.uint64(bases[at + 16 * half + i]) & np.uint64(3)
                        packed[(at >> 4) + half] = np.uint32(value)
            if slow:
                for i in range(min(32, total - at)):
                    while read + 1 < offsets.size and offsets[read + 1] <= at + i:
                        read += 1
                        run = 0
                    if bases[at + i] > 3:
                        run = 0
                    else:
                        run += 1
                    if run >= k:
                        word |= np.uint64(1) << np.uint64(i)
        ended = (ended >> np.uint64(32)) | (word << np.uint64(32))
        if at > first:
            starts[(at >> 5) - 1] = np.uint32((ended >> np.uint64(k - 1)) & every)
        at += 32


def unpack_events(
    starts: NDArray[np.uint32], matches: NDArray[np.uint32], symbols: int
) -> NDArray[np.uint8]:
    """uint8[symbols]: 1 where a window that starts there matches, 2 where it does not, 0: none."""
    begins = np.unpackbits(starts.view(np.uint8), bitorder="little")[:symbols]
    found = np.unpackbits(matches.view(np.uint8), bitorder="little")[:symbols]
    return np.asarray(begins * np.uint8(2) - (found & begins), dtype=np.uint8)
