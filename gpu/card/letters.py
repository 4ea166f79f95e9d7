"""Letters of reads to packed chunks in one pass.

Operations: as gpu/card/packing.py, and three comparisons of eight letters at a time. Where a block
of letters holds anything but bases it is translated letter by letter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.card.packing import (
    BLOCK,
    MAX_SYMBOLS,
    SPARE_WORDS,
    ChunkTooLargeError,
    PackedChunk,
    array_for,
    clear_bits,
    packed_sizes,
    set_bits,
    squeeze,
)
from trie.codes import INVALID, LETTER_TO_CODE, InvalidBaseError, as_letters, check_k, eight_codes
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit
from trie.windows import check_batch


def pack_letters(
    letters: bytes | memoryview | NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    *,
    out_bases: NDArray[np.uint32] | None = None,
    out_starts: NDArray[np.uint32] | None = None,
) -> PackedChunk:
    """Pack the joined letters of reads as ``pack_chunk`` does their codes: in one pass, one thread.

    Raises InvalidBaseError at the first byte that is no base and no ambiguity letter, and the
    errors of ``pack_chunk``.
    """
    check_k(k)
    symbols, offsets = check_batch(as_letters(letters), offsets)
    if symbols.size > MAX_SYMBOLS:
        message = f"a chunk of {symbols.size} symbols, at most {MAX_SYMBOLS} fit"
        raise ChunkTooLargeError(message)
    base_words, start_words = packed_sizes(symbols.size)
    packed = array_for(out_bases, base_words)
    packed[base_words - SPARE_WORDS :] = 0
    starts = array_for(out_starts, start_words)
    bad = pack_letters_into(symbols, LETTER_TO_CODE, offsets, k, packed, starts)
    if bad >= 0:
        raise InvalidBaseError(int(symbols[bad]), int(bad))
    return PackedChunk(k, symbols.size, packed, starts)


@njit(cache=True, nogil=True)
def _squeeze_letters(letters, first, stop, packed):
    """Pack the letters [first, stop), multiples of 16, if all are bases; else not 0."""
    other = np.uint64(0)
    out = packed[first // 16 :]
    for word in range(stop // 16 - first // 16):  # from 0: no sign to check, hence vectors
        high: np.uint64 = word_at(letters, first + 16 * word)  # type: ignore[call-arg]
        low: np.uint64 = word_at(letters, first + 16 * word + 8)  # type: ignore[call-arg]
        front, strange = eight_codes(high)
        back, stranger = eight_codes(low)
        other |= strange | stranger
        out[word] = np.uint32((squeeze(front) << np.uint64(16)) | squeeze(back))
    return other


@njit(cache=True, nogil=True)
def _translate_letters(letters, table, first, stop, k, packed, starts):
    """As ``_squeeze_letters``, letter by letter, with gaps; the first bad position, or -1."""
    for begin in range(first, stop, 16):
        end = min(begin + 16, stop)
        value = np.uint64(0)
        for at in range(begin, end):
            code = table[letters[at]]
            if code > 3:
                if code == INVALID:
                    return at
                clear_bits(starts, max(at - k + 1, 0), at + 1)
            value = (value << np.uint64(2)) | (np.uint64(code) & np.uint64(3))
        packed[begin >> 4] = np.uint32(value << np.uint64(2 * (16 - (end - begin))))
    return -1


@njit(cache=True, nogil=True)
def pack_letters_into(letters, table, offsets, k, packed, starts):
    """Pack all letters (uint8) of reads; the first position that holds none, or -1.

    table: LETTER_TO_CODE. packed, starts: uint32, of ``packed_sizes``; the spare words stay.
    """
    read = 0
    for begin in range(0, letters.size, BLOCK):
        end = min(begin + BLOCK, letters.size)
        starts[begin >> 5 : (end + 31) >> 5] = np.uint32(0)
        while True:
            set_bits(starts, max(offsets[read], begin), min(offsets[read + 1] - k + 1, end))
            if offsets[read + 1] >= end:
                break
            read += 1
        whole = end & ~15
        if _squeeze_letters(letters, begin, whole, packed):
            whole = begin
        bad = _translate_letters(letters, table, whole, end, k, packed, starts)
        if bad >= 0:
            return bad
    return -1
