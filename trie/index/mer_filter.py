"""A filter of m-mers: one it lacks is in no k-mer of a text; one it has nearly always is.

    word          floor(product / 2**32 * words / 2**32)      of the m-mer times an odd constant
    bits a, b     of that word, by 6 bits of the product each

A look-up reads one word. With 10 bits per m-mer the false-positive rate is 5 %. All m-mers of a
text are entered, so a window with any m-mer that the filter lacks is a mismatch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP
from trie.cpu.intrinsics import prefetch_to_write
from trie.cpu.jit import inner, njit
from trie.cpu.vectors import aligned_words
from trie.index.mers import BLOCK, Mers, block_arrays, fill_sixteens, mer_at

BITS: Final = 10
"""Filter bits per m-mer."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_AHEAD: Final = 64  # m-mers whose words are prefetched together


def mer_filter(codes: NDArray[np.uint8], mers: Mers, expected: int) -> NDArray[np.uint64]:
    """The filter of the m-mers without a gap code in ``codes`` (uint8[n], base codes).

    expected: about how many of them are distinct.
    """
    words = aligned_words(1 + expected * BITS // 64)
    _enter(codes, mers, words, *block_arrays())
    return words


@inner
def filter_place(mer, words):
    """The word of the filter ``words``, and its bits, that stand for an m-mer."""
    product = np.uint64(mer) * _ODD
    word = ((product >> np.uint64(32)) * np.uint64(words.size)) >> np.uint64(32)
    one = np.uint64(1)
    some = one << ((product >> np.uint64(26)) & np.uint64(63))
    return word, some | one << ((product >> np.uint64(20)) & np.uint64(63))


@inner
def lacks(words, sixteens, at, mers):
    """Whether the text lacks the m-mer that begins at symbol ``at`` of a block."""
    word, bits = filter_place(mer_at(sixteens[at], mers), words)
    return words[word] & bits != bits


@njit(cache=True, nogil=True)
def _enter(codes, mers, words, fours, sixteens):
    places = np.empty(_AHEAD, dtype=np.uint64)
    bits = np.empty(_AHEAD, dtype=np.uint64)
    gap = -1  # the last one
    for at in range(min(mers.length - 1, codes.size)):
        if codes[at] == GAP:
            gap = at
    last = codes.size - mers.length + 1
    for first in range(0, last, BLOCK):
        fill_sixteens(codes, first, fours, sixteens)
        for begin in range(first, min(first + BLOCK, last), _AHEAD):
            count = 0
            for at in range(begin, min(begin + _AHEAD, last)):
                if codes[at + mers.length - 1] == GAP:
                    gap = at + mers.length - 1
                if gap < at:
                    mer = mer_at(sixteens[at - first], mers)
                    places[count], bits[count] = filter_place(mer, words)
                    prefetch_to_write(words, places[count])
                    count += 1
            for i in range(count):
                words[places[i]] |= bits[i]
