"""Chunks of the stream as the kernels read them: 2 bits per base and a bit per window start.

    bases    uint32   16 bases a word, the first most significant; gap codes as A
    starts   uint32   bit s % 32 of word s / 32: a window may start at symbol s

A window may start wherever k symbols of one read follow without a gap code: the kernels need no
other information about reads, gap codes or the end of the chunk. So 0.375 bytes per base go to the
GPU, and one bit per window comes back.

Operations: 16 symbols take two 8-byte loads and about 25 integer operations, which the compiler
vectorizes. Bits of the mask are set a word at a time, read by read, then cleared before gap codes.

From letters in one pass: three more comparisons of eight letters at a time; a block with letters
other than bases is translated letter by letter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trie.codes import INVALID, LETTER_TO_CODE, InvalidBaseError, as_letters, check_k, eight_codes
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range
from trie.windows import check_batch, clear_bits, close_around_gaps, open_windows, read_at

MAX_SYMBOLS = 2**31 - 64
"""Event words (thesis Fig. 11) have 31 bits for the index in the chunk."""

SPARE_WORDS = 4  # words after the packed bases that a kernel may read: a window reads three words
_PARALLEL_FROM = 1 << 18
BLOCK = 4096
_GAPS = np.uint64(0x0404040404040404)


class ChunkTooLargeError(ValueError):
    """A chunk with more symbols than 31 bits can index."""


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A chunk of the stream, packed for windows of k symbols.

    bases: uint32[ceil(symbols / 16) + SPARE_WORDS]. starts: uint32[ceil(symbols / 32)]. gaps:
    whether some symbols may be gap codes.
    """

    k: int
    symbols: int
    bases: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    gaps: bool = True

    def windows(self) -> int:
        """The number of windows in the chunk."""
        return int(np.bitwise_count(self.starts).sum())


@dataclass(frozen=True, slots=True)
class Segment:
    """The words [first, stop) of ``chunk.starts``, and the bases of their windows."""

    chunk: PackedChunk
    first: int
    stop: int

    @property
    def words(self) -> int:
        """Words it takes in a chunk; a cut segment takes one more, for the ends of its windows."""
        return self.stop - self.first + (self.stop < self.chunk.starts.size)


@dataclass(frozen=True, slots=True)
class PackedParts:
    """Parts of packed chunks for one k, concatenated, each beginning at a whole word.

    No window starts between parts or after the last. ``symbols`` is rounded up to a multiple of
    ``step`` (32 | step), so that views are cached for few lengths.
    """

    parts: Sequence[Segment]
    step: int

    @property
    def symbols(self) -> int:
        """Symbols of the resulting chunk."""
        return -(-32 * sum(part.words for part in self.parts) // self.step) * self.step


def packed_sizes(symbols: int) -> tuple[int, int]:
    """Words of ``bases`` and of ``starts`` for a chunk of that length."""
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

    ``out_bases`` and ``out_starts`` (uint32, of ``packed_sizes`` or larger, such as pinned memory)
    receive the result. Raises ValueError unless 1 <= k <= 31, BatchShapeError for offsets that do
    not describe the bases, ChunkTooLargeError above MAX_SYMBOLS symbols.
    """
    check_k(k)
    bases, offsets = check_batch(bases, offsets)
    packed, starts = chunk_arrays(bases.size, out_bases, out_starts)
    ends = split_range(0, bases.size, threads if bases.size >= _PARALLEL_FROM else 1, align=32)
    run_all(
        [partial(_pack, bases, offsets, k, first, stop, packed, starts) for first, stop in ends],
        threads,
    )
    return PackedChunk(k, bases.size, packed, starts)


def chunk_arrays(
    symbols: int,
    out_bases: NDArray[np.uint32] | None = None,
    out_starts: NDArray[np.uint32] | None = None,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The bases (spare words cleared) and starts of a chunk, new or in the given arrays."""
    if symbols > MAX_SYMBOLS:
        raise ChunkTooLargeError(f"a chunk of {symbols} symbols, at most {MAX_SYMBOLS} fit")
    base_words, start_words = packed_sizes(symbols)
    bases = np.empty(base_words, np.uint32) if out_bases is None else out_bases[:base_words]
    starts = np.empty(start_words, np.uint32) if out_starts is None else out_starts[:start_words]
    assert (bases.size, starts.size) == (base_words, start_words)
    bases[base_words - SPARE_WORDS :] = 0
    return bases, starts


@njit(cache=True, nogil=True, inline="always")
def squeeze(word):
    """Pack eight codes, one per byte and the first lowest, into 16 bits, the first highest."""
    x = word & np.uint64(0x0303030303030303)
    x = ((x << np.uint64(2)) | (x >> np.uint64(8))) & np.uint64(0x000F000F000F000F)
    x = ((x << np.uint64(4)) | (x >> np.uint64(16))) & np.uint64(0x000000FF000000FF)
    return ((x << np.uint64(8)) | (x >> np.uint64(32))) & np.uint64(0xFFFF)


@njit(cache=True, nogil=True)
def _squeeze_all(bases, first, stop, packed):
    """Pack the symbols [first, stop), 16 | first; returns the OR of all, eight per word."""
    seen = np.uint64(0)
    out = packed[first // 16 :]
    for word in range(stop // 16 - first // 16):  # from 0, so no sign checks prevent vectorization
        high: np.uint64 = word_at(bases, first + 16 * word)
        low: np.uint64 = word_at(bases, first + 16 * word + 8)
        seen |= high | low
        out[word] = np.uint32((squeeze(high) << np.uint64(16)) | squeeze(low))
    rest = stop & 15
    if rest:
        value = np.uint64(0)
        for at in range(stop - rest, stop):
            seen |= np.uint64(bases[at])
            value = (value << np.uint64(2)) | (np.uint64(bases[at]) & np.uint64(3))
        packed[stop >> 4] = np.uint32(value << np.uint64(2 * (16 - rest)))
    return seen


@njit(cache=True, nogil=True)
def _pack(bases, offsets, k, first, stop, packed, starts):
    """Pack the symbols [first, stop), 32 | first; windows that start there may reach beyond."""
    read = read_at(offsets, first)
    for begin in range(first, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        read = open_windows(offsets, k, read, begin, end, starts)
        if _squeeze_all(bases, begin, end, packed) & _GAPS:
            close_around_gaps(bases, k, begin, end, first, stop, starts)
    close_around_gaps(bases, k, stop, min(stop + k - 1, bases.size), first, stop, starts)


_NO_GAPS, GAPS = -1, -2


def pack_letters(
    letters: bytes | memoryview | NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    *,
    out_bases: NDArray[np.uint32] | None = None,
    out_starts: NDArray[np.uint32] | None = None,
) -> PackedChunk:
    """Pack the concatenated letters of reads as ``pack_chunk`` packs codes, on one thread.

    Raises InvalidBaseError at the first byte that is neither a base nor an ambiguity code, and the
    errors of ``pack_chunk``.
    """
    check_k(k)
    symbols, offsets = check_batch(as_letters(letters), offsets)
    packed, starts = chunk_arrays(symbols.size, out_bases, out_starts)
    bad = pack_letters_into(symbols, LETTER_TO_CODE, offsets, k, packed, starts)
    if bad >= 0:
        raise InvalidBaseError(int(symbols[bad]), int(bad))
    return PackedChunk(k, symbols.size, packed, starts, bad == GAPS)


@njit(cache=True, nogil=True)
def _squeeze_letters(letters, first, stop, packed):
    """Pack the letters [first, stop), multiples of 16; nonzero if some are not bases."""
    other = np.uint64(0)
    out = packed[first // 16 :]
    for word in range(stop // 16 - first // 16):  # from 0, so no sign checks prevent vectorization
        high: np.uint64 = word_at(letters, first + 16 * word)
        low: np.uint64 = word_at(letters, first + 16 * word + 8)
        front, strange = eight_codes(high)
        back, stranger = eight_codes(low)
        other |= strange | stranger
        out[word] = np.uint32((squeeze(front) << np.uint64(16)) | squeeze(back))
    return other


@njit(cache=True, nogil=True)
def _translate_letters(letters, table, first, stop, k, packed, starts):
    """Do ``_squeeze_letters`` letter by letter; returns as ``pack_letters_into``."""
    kind = _NO_GAPS
    for begin in range(first, stop, 16):
        end = min(begin + 16, stop)
        value = np.uint64(0)
        for at in range(begin, end):
            code = table[letters[at]]
            if code > 3:
                if code == INVALID:
                    return at
                kind = GAPS
                clear_bits(starts, max(at - k + 1, 0), at + 1)
            value = (value << np.uint64(2)) | (np.uint64(code) & np.uint64(3))
        packed[begin >> 4] = np.uint32(value << np.uint64(2 * (16 - (end - begin))))
    return kind


@njit(cache=True, nogil=True)
def pack_letters_into(letters, table, offsets, k, packed, starts):
    """Pack all letters (uint8) of reads; the first invalid position, else a negative: GAPS if any.

    table: LETTER_TO_CODE. packed, starts: uint32, of ``packed_sizes``; spare words are not written.
    """
    read = 0
    first = _NO_GAPS
    for begin in range(0, letters.size, BLOCK):
        end = min(begin + BLOCK, letters.size)
        read = open_windows(offsets, k, read, begin, end, starts)
        whole = end & ~15
        if _squeeze_letters(letters, begin, whole, packed):
            whole = begin
        bad = _translate_letters(letters, table, whole, end, k, packed, starts)
        if bad >= 0:
            return bad
        first = min(first, bad)
    return first
