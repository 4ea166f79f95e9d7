"""The text as bit planes in text order, and distances computed from them.

text       uint32[3, words]   bit i of word w is symbol 32 w + i: the code's low bit, its high
                              bit, and whether it is a gap code. The gap plane is not read,
                              and may be uninitialized, if there is no gap code.
patterns   uint64[2 r blocks] two for 32 symbols: low | high << 32, and gaps | inside << 32;
                              symbols after the pattern's end are not inside
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import bit_count, device_function, load_pair
from trie.codes import GAP

PLANES = 3


@device_function
def from_bit(plane, word, shift):
    """The 32 bits of a plane's row starting at bit ``shift`` (0..31) of a word."""
    both = np.uint64(np.uint64(plane[np.uint32(word + np.uint32(1))]) << np.uint64(32))
    both = np.uint64(both | np.uint64(plane[word]))
    return np.uint32(np.uint64(both >> np.uint64(shift)))


@device_function
def differing(codes, text, gaps, ahead, patterns, at, word, shift):
    """The differing symbols among 32 of a pattern, its block ``at``: about 15 operations.

    word, shift: where they begin in ``codes``, the first two planes, which may be those of ``text``
    or a part of them beginning at its word ``ahead``. gaps uint32: 0 for a text without gap codes.
    """
    here, others = load_pair(patterns, at)
    low = np.uint32(from_bit(codes[0], word, shift) ^ np.uint32(here))
    high = np.uint32(from_bit(codes[1], word, shift) ^ np.uint32(here >> np.uint64(32)))
    wrong = np.uint32(np.uint32(low | high) | np.uint32(others))
    if gaps != np.uint32(0):
        wrong = np.uint32(wrong | from_bit(text[2], np.uint32(ahead + word), shift))
    return np.uint32(wrong & np.uint32(others >> np.uint64(32)))


@device_function
def distance_of_short(codes, text, gaps, ahead, patterns, blocks, p, start):
    """Mismatches of pattern p at a start, for patterns of one block."""
    word = np.uint32(start >> np.uint32(5))
    shift = np.uint32(start & np.uint32(31))
    return bit_count(differing(codes, text, gaps, ahead, patterns, p, word, shift))


@device_function
def distance(codes, text, gaps, ahead, patterns, blocks, p, start):
    """Mismatches of pattern p at a start; blocks: blocks of 32 symbols per pattern."""
    word = np.uint32(start >> np.uint32(5))
    shift = np.uint32(start & np.uint32(31))
    count = np.uint32(0)
    at = np.uint32(p * blocks)
    stop = np.uint32(at + blocks)
    while at < stop:
        wrong = differing(codes, text, gaps, ahead, patterns, at, word, shift)
        count = np.uint32(count + bit_count(wrong))
        word = np.uint32(word + np.uint32(1))
        at = np.uint32(at + np.uint32(1))
    return count


def blocks_of(length: int) -> int:
    """The number of blocks of 32 symbols in a pattern."""
    return -(-length // 32)


def packed(patterns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """uint8[r, m] patterns in the form that ``distance`` reads."""
    count, length = patterns.shape
    blocks = blocks_of(length)
    bits = np.zeros((4, count, 32 * blocks), dtype=np.uint8)
    known = patterns < GAP
    bits[0, :, :length] = patterns & 1 & known
    bits[1, :, :length] = (patterns >> 1) & known
    bits[2, :, :length] = ~known
    bits[3, :, :length] = 1
    rows = np.packbits(bits, axis=2, bitorder="little").view("<u4").astype(np.uint64)
    low, high, gaps, inside = rows.reshape(4, count, blocks)
    thirty_two = np.uint64(32)
    return np.ascontiguousarray(
        np.stack([low | high << thirty_two, gaps | inside << thirty_two], axis=2)
    ).ravel()
