"""Letters of reads to packed chunks in one pass.

Operations: as gpu/card/packing.py, plus three comparisons of eight letters at a time. A block with
letters other than bases is translated letter by letter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.card.packing import (
    BLOCK,
    PackedChunk,
    chunk_arrays,
    squeeze,
)
from trie.codes import INVALID, LETTER_TO_CODE, InvalidBaseError, as_letters, check_k, eight_codes
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit
from trie.window_starts import clear_bits, open_windows
from trie.windows import check_batch

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
    """As ``_squeeze_letters``, letter by letter; returns as ``pack_letters_into``."""
    found = _NO_GAPS
    for begin in range(first, stop, 16):
        end = min(begin + 16, stop)
        value = np.uint64(0)
        for at in range(begin, end):
            code = table[letters[at]]
            if code > 3:
                if code == INVALID:
                    return at
                found = GAPS
                clear_bits(starts, max(at - k + 1, 0), at + 1)
            value = (value << np.uint64(2)) | (np.uint64(code) & np.uint64(3))
        packed[begin >> 4] = np.uint32(value << np.uint64(2 * (16 - (end - begin))))
    return found


@njit(cache=True, nogil=True)
def pack_letters_into(letters, table, offsets, k, packed, starts):
    """Pack all letters (uint8) of reads; the first invalid position, else a negative: GAPS if any.

    table: LETTER_TO_CODE. packed, starts: uint32, of ``packed_sizes``; spare words are not written.
    """
    read = 0
    found = _NO_GAPS
    for begin in range(0, letters.size, BLOCK):
        end = min(begin + BLOCK, letters.size)
        read = open_windows(offsets, k, read, begin, end, starts)
        whole = end & ~15
        if _squeeze_letters(letters, begin, whole, packed):
            whole = begin
        bad = _translate_letters(letters, table, whole, end, k, packed, starts)
        if bad >= 0:
            return bad
        found = min(found, bad)
    return found
