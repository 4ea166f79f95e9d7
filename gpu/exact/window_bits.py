"""Device functions of exact matching: windows of a packed stream, event words, trie steps.

The packed stream holds 16 bases per uint32, the first base most significant:

    bit   31 30 29 28         1  0
          [ s0 ][ s1 ] ... [ s15 ]

Start and match masks hold a bit per symbol: symbol s is bit s % 32 of word s / 32.
"""

from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    bit_mask_below,
    cuda,
    device_function,
    load_word,
    population,
    reverse_long,
)


@device_function
def window_at(bases, start):
    """The 32 symbols from ``start`` (uint32), left-aligned in a uint64; reads three words."""
    word = np.uint32(start >> np.uint32(4))
    shift = np.uint64(np.uint32(start & np.uint32(15)) * np.uint32(2))
    first = np.uint64(load_word(bases, word))
    second = np.uint64(load_word(bases, np.uint32(word + np.uint32(1))))
    third = np.uint64(load_word(bases, np.uint32(word + np.uint32(2))))
    both = np.uint64(first << np.uint64(32)) | second
    return np.uint64(np.uint64(both << shift) | (third >> np.uint64(np.uint64(32) - shift)))


@device_function
def every_other(word):
    """The even bits of a uint64, packed."""
    x = np.uint64(word & np.uint64(0x5555555555555555))
    x = np.uint64((x | np.uint64(x >> np.uint64(1))) & np.uint64(0x3333333333333333))
    x = np.uint64((x | np.uint64(x >> np.uint64(2))) & np.uint64(0x0F0F0F0F0F0F0F0F))
    x = np.uint64((x | np.uint64(x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF))
    x = np.uint64((x | np.uint64(x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF))
    return np.uint32(x | np.uint64(x >> np.uint64(16)))


@device_function
def reversed_pairs(word):
    """The 32 symbols of a word in reverse order.

    Reversing all 64 bits reverses the symbols and swaps the two bits of each.
    """
    reverse = np.uint64(reverse_long(word))
    odd = np.uint64(0x5555555555555555)
    return np.uint64(
        np.uint64((reverse >> np.uint64(1)) & odd) | np.uint64((reverse & odd) << np.uint64(1))
    )


@device_function
def reverse_complement_left(window, k):
    """The reverse complement of the first k symbols of a left-aligned window, left-aligned."""
    return np.uint64(reversed_pairs(np.uint64(~window)) << np.uint64(64 - 2 * k))


@device_function
def first_symbols(window, k):
    """The first k symbols of a left-aligned window, then zeros."""
    return np.uint64(np.uint64(window >> np.uint64(64 - 2 * k)) << np.uint64(64 - 2 * k))


def window_reader(k: int, canonical: bool) -> Any:
    """The device function that reads the window at a symbol, left-aligned.

    canonical: the smaller of the window and its reverse complement.
    """

    @device_function
    def read(bases, start):
        window = window_at(bases, start)
        if canonical:
            window = min(first_symbols(window, k), reverse_complement_left(window, k))
        return window

    return read


@device_function
def write_votes(mask, word, start, vote):
    """mask[word] = the votes of a warp, one bit per lane; ``start`` is 32 word + lane."""
    votes = np.uint32(cuda.ballot_sync(ALL_LANES, vote))
    if np.uint32(start & np.uint32(31)) == np.uint32(0):
        mask[word] = votes


@device_function
def bit_of(mask, symbol):
    """The bit of one symbol in a mask."""
    word = load_word(mask, np.uint32(symbol >> np.uint32(5)))
    return np.uint32(np.uint32(word >> np.uint32(symbol & np.uint32(31))) & np.uint32(1))


@device_function
def symbol_of(bases, symbol):
    """The code 0..3 of one symbol of a packed stream."""
    word = load_word(bases, np.uint32(symbol >> np.uint32(4)))
    shift = np.uint32(np.uint32(30) - np.uint32(2) * np.uint32(symbol & np.uint32(15)))
    return np.uint32(np.uint32(word >> shift) & np.uint32(3))


@device_function
def children_before(exmap, group):
    """popc((1 << child) - 1 & exmap) of thesis equation 2, uint32."""
    return population(np.uint64(exmap & bit_mask_below(group)))


@device_function
def has_bit(bitmap, position):
    """Whether a uint64 has bit ``position`` (0..63)."""
    return np.uint64(np.uint64(bitmap >> np.uint64(position)) & np.uint64(1)) != np.uint64(0)


@device_function
def event_word(mismatch, index, node, depth):
    """Thesis Fig. 11: 63 type (1 mismatch) | 62-32 index in chunk | 31-5 trie-node | 4-0 depth."""
    return np.uint64(
        np.uint64(np.uint64(mismatch) << np.uint64(63))
        | np.uint64(np.uint64(index) << np.uint64(32))
        | np.uint64(np.uint64(node) << np.uint64(5))
        | np.uint64(depth)
    )
