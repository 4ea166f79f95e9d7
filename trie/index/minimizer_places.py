"""Where minimizers occur in a text: a table of cache lines, and k-mers of frequent minimizers.

    entry      key of the minimizer << 34 | place where it reads as it stands for itself; 0: free
    line       8 entries, filled from the first on; the highest bits of a key choose the line, and a
               full one spills into the next: bit 33 of its last entry says so

The place of a minimizer with more than MOST occurrences is FREQUENT: its k-mers are in a hash
table, with a place of each. Any k-mer of the text is found by its minimizer's places or in that
table, and a place leads to all that follows it in the text.

A look-up reads one line, seldom two. The table is a quarter to five eighths full.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from trie.cpu import llvm
from trie.cpu.intrinsics import reversed_bits, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import I8, I16, I32, INDEX, WORDS8, instruction
from trie.cpu.threads import run_ranges
from trie.cpu.vectors import aligned_words
from trie.index.kmer_index import KmerIndex
from trie.index.mers import (
    BLOCK,
    MARGIN,
    MOST_MERS,
    Mers,
    block_arrays,
    fill_sixteens,
    is_turned,
    key_of,
    put_orders,
)
from trie.index.reference_text import PAD
from trie.windows import close_around_gaps, open_windows

MOST: Final = 6
"""Most occurrences of a minimizer that are checked one by one."""

PLACE_BITS: Final = 34
FREQUENT: Final = 1
"""Stored instead of a place; no m-mer has that place."""

_SPILLED: Final = np.uint64(1 << 33)
_PLACE: Final = _SPILLED - np.uint64(1)
_GRAIN: Final = 1 << 18
_SIXTEEN = ir.VectorType(I32, 16)
_SLOTS: Final = 8
_GAPS: Final = np.uint64(0x0404040404040404)
_PIECE: Final = 1 << 20  # symbols whose frequent k-mers are added together
_LEAST_LINES: Final = 16
_ORDERS: Final = BLOCK + MARGIN  # of a block
_STEP: Final = BLOCK - MOST_MERS  # places whose windows all lie in a block


class Places(NamedTuple):
    """The table, and the hash table of frequent minimizers' k-mers, as kernels take them.

    shift: 2m - bits of a line's number. keys, places, key_shift: of a ``KmerTable`` with places.
    """

    entries: NDArray[np.uint64]
    shift: np.uint64
    keys: NDArray[np.uint64]
    places: NDArray[np.uint32]
    key_shift: np.uint64


def minimizer_places(
    half: NDArray[np.uint8], size: int, k: int, mers: Mers, threads: int = 1
) -> Places:
    """The places of the minimizers of ``padded`` base codes (``half``) in a text of ``size``."""

    def found(start: int, stop: int) -> NDArray[np.uint64]:
        entries = np.empty(stop - start, dtype=np.uint64)
        return entries[: _minimizers(half, size, mers, start, stop, entries, *block_arrays())]

    parts = run_ranges(found, PAD, half.size - PAD, threads, grain=_GRAIN)
    entries = np.concatenate([np.empty(0, np.uint64), *parts])
    entries.sort()
    bits = max(_LEAST_LINES, -(-entries.size // 5) - 1).bit_length()
    shift = np.uint64(2 * mers.length - bits)
    table = aligned_words(_SLOTS << bits)
    frequent = _fill(entries, table, shift)
    kmers = KmerIndex(k, with_values=True)
    if frequent:
        _add_frequent(kmers, half, size, mers, table, shift, threads)
    return Places(table, shift, *kmers.arrays())


@instruction(types.void, None, INDEX, INDEX)
def _lesser_ahead(builder: Any, words: Any, at: Any, ahead: Any) -> None:
    """words[at : at + 16] = the lesser of each and the word ``ahead`` further."""
    one = llvm.load(builder, words, at, _SIXTEEN)
    other = llvm.load(builder, words, builder.add(at, ahead), _SIXTEEN)
    less = builder.icmp_unsigned("<", one, other)
    llvm.store(builder, builder.select(less, one, other), words, at)


@instruction(types.uint16, None, INDEX, None, INDEX)
def _equal_words(builder: Any, one: Any, at: Any, other: Any, to: Any) -> Any:
    """16 bits: bit i is set where one[at + i] is other[to + i]."""
    found = llvm.load(builder, one, at, _SIXTEEN), llvm.load(builder, other, to, _SIXTEEN)
    return builder.bitcast(builder.icmp_unsigned("==", *found), I16)


@instruction(types.uint8, None, INDEX, types.uint64)
def with_key(builder: Any, entries: Any, at: Any, key: Any) -> Any:
    """Bit i is set where entry at + i of a line has that key."""
    line = builder.load(llvm.element(builder, entries, at, WORDS8), align=64)
    keys = builder.lshr(line, llvm.constant(WORDS8, PLACE_BITS))
    return builder.bitcast(builder.icmp_unsigned("==", keys, llvm.spread(builder, key, WORDS8)), I8)


@inner
def _fill_orders(half, first, mers, fours, sixteens, orders):
    """The sixteens of a block of a text, and the order of each m-mer."""
    fill_sixteens(half, first, fours, sixteens)
    for at in range(0, _ORDERS, 16):
        put_orders(sixteens, at, mers.mask, mers.shift, mers.unused, orders)


@inner
def _least_ahead(words, count):
    """Each word becomes the least of ``count`` words from it on: by doubling, at most 5 passes."""
    span = 1
    while 2 * span <= count:
        for at in range(0, _ORDERS, 16):
            _lesser_ahead(words, at, span)
        span *= 2
    if span < count:
        for at in range(0, _ORDERS, 16):
            _lesser_ahead(words, at, count - span)


@njit(cache=True, nogil=True)
def _minimizers(half, size, mers, start, stop, entries, fours, sixteens):
    """Write an entry for each minimizer at the symbols [start, stop); their number.

    An m-mer is a minimizer if some window has no lesser m-mer: if it is the greatest of the least
    m-mers of the windows that hold it. Windows with a gap code count too, which adds a few entries.
    """
    orders = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    others = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    filled = 0
    for first in range(start, stop, _STEP):
        origin = first - MOST_MERS
        _fill_orders(half, origin, mers, fours, sixteens, orders)
        for i in range(others.size):
            others[i] = orders[i]
        _least_ahead(others, mers.width)
        # the greatest are the least of the complements
        for i in range(others.size):
            others[i] = ~others[i]
        _least_ahead(others, mers.width)
        for i in range(others.size):
            others[i] = ~others[i]
        for begin in range(MOST_MERS, MOST_MERS + min(_STEP, stop - first), 16):
            chosen = np.uint64(_equal_words(orders, begin, others, begin - mers.width + 1))
            while chosen != 0:
                at = begin + np.int64(trailing_zeros(chosen))
                chosen &= chosen - np.uint64(1)
                place = origin + at
                symbols = word_at(half, place) | word_at(half, place + mers.length - 8)
                if place < stop and symbols & _GAPS == 0:
                    if is_turned(sixteens[at], mers):
                        place = size - place - mers.length
                    key = key_of(orders[at], mers) << np.uint64(PLACE_BITS)
                    entries[filled] = key | np.uint64(place)
                    filled += 1
    return filled


@njit(cache=True, nogil=True)
def _fill(entries, table, shift):
    """Put ascending entries into the empty table; the number of frequent minimizers."""
    frequent = 0
    last = np.uint64(table.size - 1)
    begin = 0
    while begin < entries.size:
        key = entries[begin] >> np.uint64(PLACE_BITS)
        end = begin + 1
        while end < entries.size and entries[end] >> np.uint64(PLACE_BITS) == key:
            end += 1
        often = end - begin > MOST
        frequent += often
        if often:
            entries[begin] = key << np.uint64(PLACE_BITS) | np.uint64(FREQUENT)
        at = line_of(key, shift)
        for i in range(begin, begin + 1 if often else end):
            while table[at] != 0:
                if at & np.uint64(_SLOTS - 1) == _SLOTS - 1:
                    table[at] |= _SPILLED
                at = (at + np.uint64(1)) & last
            table[at] = entries[i]
        begin = end
    return frequent


def _add_frequent(
    kmers: KmerIndex,
    half: NDArray[np.uint8],
    size: int,
    mers: Mers,
    table: NDArray[np.uint64],
    shift: np.uint64,
    threads: int,
) -> None:
    """Add the k-mers of frequent minimizers, each with the place of its first occurrence."""
    starts = np.zeros(half.size // 32 + 1, dtype=np.uint32)
    codes, places = np.empty(_PIECE, np.uint64), np.empty(_PIECE, np.uint32)
    for first in range(0, half.size, _PIECE):
        stop = min(first + _PIECE, half.size)
        count = _frequent_kmers(
            half, size, kmers.k, mers, table, shift, first, stop, starts, codes, places,
            *block_arrays(),
        )  # fmt: skip
        kmers.add(codes[:count], places[:count], threads)


@njit(cache=True, nogil=True)
def _frequent_kmers(
    half, size, k, mers, table, shift, start, stop, starts, codes, places, fours, sixteens
):
    """Write the k-mers with a frequent minimizer that begin in [start, stop), and their places."""
    orders = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    offsets = np.array([0, half.size])
    filled = 0
    for first in range(start, stop, BLOCK):
        end = min(first + BLOCK, stop)
        open_windows(offsets, k, 0, first, end, starts)
        close_around_gaps(half, k, first, min(end + k - 1, half.size), first, end, starts)
        _fill_orders(half, first, mers, fours, sixteens, orders)
        _least_ahead(orders, mers.width)
        frequent = False
        for at in range(end - first):
            if at == 0 or orders[at] != orders[at - 1]:
                key = key_of(orders[at], mers)
                line = line_of(key, shift)
                found = with_key(table, line, key)
                while found == 0 and spills(table, line):
                    line = next_line(table, line)
                    found = with_key(table, line, key)
                slot = line + np.uint64(trailing_zeros(found))
                frequent = found != 0 and place_in(table[slot]) == FREQUENT
            place = first + at
            if frequent and starts[place >> 5] >> np.uint32(place & 31) & np.uint32(1):
                code, turned = kmer_at(sixteens, at, k, mers.unused == 0)
                codes[filled] = code
                places[filled] = size - place - k if turned else place
                filled += 1
    return filled


@inner
def line_of(key, shift):
    """The first entry of a key's line."""
    return (key >> shift) << np.uint64(3)


@inner
def spills(entries, line):
    """Whether entries of this or an earlier line are in the next line."""
    return entries[line + np.uint64(_SLOTS - 1)] & _SPILLED != 0


@inner
def next_line(entries, line):
    """The line that a full one spills into."""
    return (line + np.uint64(_SLOTS)) & np.uint64(entries.size - 1)


@inner
def place_in(entry):
    """The place of an entry."""
    return np.int64(entry & _PLACE)


@inner
def kmer_at(sixteens, at, k, canonical):
    """A number for the k-mer at a symbol of a block, and whether it is the reverse complement's.

    The first base is lowest, so this is not a k-mer code.
    """
    spare = np.uint64(64 - 2 * k)
    word = np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)
    kmer = (word << spare) >> spare
    if not canonical:
        return kmer, False
    one = np.uint64(1)
    low = np.uint64(0x5555555555555555)
    back = np.uint64(reversed_bits(~word << spare))
    back = (back >> one) & low | (back & low) << one
    return min(kmer, back), back < kmer
