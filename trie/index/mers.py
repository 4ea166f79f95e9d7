"""m-mers, the short words inside k-mers, extracted from packed bases many at a time.

    bases      byte i   the code of base i
    fours      byte i   bases i..i+3, base i lowest, 2 bits each
    sixteens   word i   bases i..i+15 in the same order: bytes i, i+4, i+8 and i+12 of ``fours``
    m-mer      the lowest 2m bits of a word; m is odd, so that none is its own reverse complement
    reversed   the complement of a word, its pairs of bits in reverse order, its highest 2m bits

An m-mer stands for the smaller of its two orientations, or for itself. A window of k bases holds w
= k - m + 1 of them. m-mers are ordered by a product modulo 4**m, which is distinct for each; the
first in that order is a window's minimizer.

Operations, 512 bits wide: 12 for 64 fours, 3 for 16 sixteens, about 12 for the order of 16 m-mers.

A filter of m-mers: one it lacks is in no k-mer of a text; one it has nearly always is.

    word          floor(product / 2**32 * words / 2**32)      of the m-mer times an odd constant
    bits a, b     of that word, by 6 bits of the product each

A look-up reads one word. With 10 bits per m-mer the false-positive rate is 5 %. All m-mers of a
text are entered, so a window with any m-mer that the filter lacks is a mismatch.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from trie.codes import GAP
from trie.cpu import llvm
from trie.cpu.intrinsics import leading_zeros, prefetch_to_write, reversed_bits
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import BYTES, I1, I8, I32, I64, INDEX, instruction
from trie.cpu.vectors import aligned_words

BLOCK: Final = 4096
"""Symbols whose m-mers are computed together: 16 KB of sixteens."""

MARGIN: Final = 64
"""Sixteens after a block, for windows that begin in it."""

NEEDED: Final = BLOCK + MARGIN + 128
"""Symbols, counted from a block's first, that its sixteens are computed from."""

MOST_MERS: Final = 32
"""m-mers in a window: the bits of a word."""

SHORTEST: Final = 9  # symbols of an m-mer; a kernel reads eight at its end
_LONGEST: Final = 15  # odd, and 30 bits leave 34 for a place in a text
_SIXTEEN = ir.VectorType(I32, 16)
_WINDOW = ir.VectorType(I32, MOST_MERS)
_HALF_PAIRS: Final = 0x55555555
_FLIP: Final = 0x5BD1E995
_MULTIPLIER: Final = 0x9E3779B1
_SPREAD: Final = np.uint64(0x2545F491)


class Mers(NamedTuple):
    """m-mers of windows, as kernels take them.

    width: how many a window holds, w. mask: uint32, the 2m lowest bits. shift: uint32, 32 - 2m.
    unused: uint32, all ones if m-mers stand for themselves alone. lanes: uint32, the w lowest bits.
    """

    length: int
    width: int
    mask: np.uint32
    shift: np.uint32
    unused: np.uint32
    lanes: np.uint32

    @classmethod
    def of(cls, k: int, length: int, *, canonical: bool) -> Mers:
        """The m-mers of ``length`` symbols in windows of k symbols."""
        width = k - length + 1
        return cls(
            length,
            width,
            np.uint32(4**length - 1),
            np.uint32(32 - 2 * length),
            np.uint32(0 if canonical else 0xFFFFFFFF),
            np.uint32(2**width - 1),
        )


def mer_length(k: int, kmers: int) -> int:
    """The m for windows of k symbols and a text of that many k-mers; 0 if none is useful.

    A window should hold several m-mers, and few m-mers of other texts should occur in this one by
    chance.
    """
    for times in (32, 8):
        for width in (5, 4):
            length = min(k - width + 1, _LONGEST)
            length -= 1 - length % 2
            if length >= SHORTEST and times * kmers <= 4**length:
                return length
    return 0


def _number(vector: Any, value: int) -> Any:
    """A constant as LLVM expects it, signed."""
    top = 1 << (vector.element.width - 1)
    return llvm.constant(vector, (value ^ top) - top)


@instruction(types.void, None, INDEX, None, INDEX)
def _to_fours(builder: Any, bases: Any, at: Any, fours: Any, to: Any) -> None:
    """fours[to : to + 64] from the 67 codes starting at ``at``."""
    parts = []
    for base in range(4):
        codes = llvm.load(builder, bases, llvm.plus(builder, at, base), BYTES)
        codes = builder.and_(codes, _number(BYTES, 3))
        parts.append(builder.shl(codes, _number(BYTES, 2 * base)))
    low, high = builder.or_(*parts[:2]), builder.or_(*parts[2:])
    llvm.store(builder, builder.or_(low, high), fours, to)


@instruction(types.void, None, INDEX, None)
def _to_sixteens(builder: Any, fours: Any, at: Any, sixteens: Any) -> None:
    """sixteens[at : at + 16] from the 32 bytes of ``fours`` starting at ``at``."""
    found = llvm.load(builder, fours, at, ir.VectorType(I8, 32))
    lanes = [word + byte for word in range(16) for byte in (0, 4, 8, 12)]
    chosen = llvm.shuffle(builder, found, found, lanes)
    llvm.store(builder, builder.bitcast(chosen, _SIXTEEN), sixteens, at)


def _lesser(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_unsigned("<", one, other), one, other)


def _ordered(builder: Any, words: Any, mask: Any, shift: Any, unused: Any) -> Any:
    """The order of the first m-mer of each word."""
    kind = words.type
    half = _number(kind, _HALF_PAIRS)
    one = _number(kind, 1)
    wide_mask = llvm.spread(builder, mask, kind)
    turned = llvm.call(builder, f"llvm.bitreverse.v{kind.count}i32", kind, builder.not_(words))
    upper = builder.and_(builder.lshr(turned, one), half)
    turned = builder.or_(upper, builder.shl(builder.and_(turned, half), one))
    turned = builder.lshr(turned, llvm.spread(builder, shift, kind))
    turned = builder.or_(turned, llvm.spread(builder, unused, kind))
    mers = _lesser(builder, builder.and_(words, wide_mask), turned)
    product = builder.mul(builder.xor(mers, _number(kind, _FLIP)), _number(kind, _MULTIPLIER))
    return builder.and_(product, wide_mask)


@instruction(types.void, None, INDEX, types.uint32, types.uint32, types.uint32, None)
def put_orders(
    builder: Any, sixteens: Any, at: Any, mask: Any, shift: Any, unused: Any, orders: Any
) -> None:
    """orders[at : at + 16], uint32: the orders of the m-mers that begin there."""
    words = llvm.load(builder, sixteens, at, _SIXTEEN)
    llvm.store(builder, _ordered(builder, words, mask, shift, unused), orders, at)


@instruction(types.uint64, None, INDEX, types.uint32, types.uint32, types.uint32, types.uint32)
def _first_in_order(
    builder: Any, sixteens: Any, at: Any, mask: Any, shift: Any, unused: Any, lanes: Any
) -> Any:
    words = llvm.load(builder, sixteens, at, _WINDOW)
    inside = builder.bitcast(lanes, ir.VectorType(I1, MOST_MERS))
    orders = _ordered(builder, words, mask, shift, unused)
    orders = builder.select(inside, orders, _number(_WINDOW, 0xFFFFFFFF))
    least = llvm.call(builder, f"llvm.vector.reduce.umin.v{MOST_MERS}i32", I32, orders)
    same = builder.icmp_unsigned("==", orders, llvm.spread(builder, least, _WINDOW))
    order = builder.shl(builder.zext(least, I64), I64(32))
    return builder.or_(order, builder.zext(builder.bitcast(same, I32), I64))


@inner
def fill_sixteens(bases, first, fours, sixteens):
    """The sixteens of the block whose symbols begin at ``first``.

    fours: uint8[2 * NEEDED]. sixteens: uint32[BLOCK + 2 * MARGIN]. Anything after the last base
    counts as bases too.
    """
    if first + NEEDED > bases.size:
        for at in range(bases.size - first):
            fours[NEEDED + at] = bases[first + at]
        for at in range(0, BLOCK + 2 * MARGIN, 64):
            _to_fours(fours, NEEDED + at, fours, at)
    else:
        for at in range(0, BLOCK + 2 * MARGIN, 64):
            _to_fours(bases, first + at, fours, at)
    for at in range(0, BLOCK + MARGIN + 32, 16):
        _to_sixteens(fours, at, sixteens)


@inner
def is_turned(word, mers):
    """Whether the m-mer at the start of a sixteen stands for its reverse complement."""
    return mers.unused == 0 and _turned(word, mers) < np.uint32(word & mers.mask)


@inner
def mer_at(word, mers):
    """The m-mer at the start of a sixteen, in the orientation it stands for."""
    turned = np.uint32(_turned(word, mers) | mers.unused)
    return min(np.uint32(word & mers.mask), turned)


@inner
def _turned(word, mers):
    half = np.uint32(_HALF_PAIRS)
    one = np.uint32(1)
    back = reversed_bits(np.uint32(~word))
    upper = np.uint32(np.uint32(back >> one) & half)
    lower = np.uint32(np.uint32(back & half) << one)
    return np.uint32(np.uint32(upper | lower) >> mers.shift)


@inner
def key_of(order, mers):
    """Map an order to a number below 4**m, spread evenly: the orders of minimizers are small."""
    return (np.uint64(order) * _SPREAD) & np.uint64(mers.mask)


@inner
def minimizer(sixteens, at, mers):
    """The key of a window's minimizer, and where its last occurrence in the window begins."""
    found = np.uint64(_first_in_order(sixteens, at, mers.mask, mers.shift, mers.unused, mers.lanes))
    last = at + 31 - np.int64(leading_zeros(np.uint32(found)))
    return key_of(found >> np.uint64(32), mers), last


def block_arrays() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """fours and sixteens of a block, uninitialized."""
    return np.empty(2 * NEEDED, np.uint8), np.empty(BLOCK + 2 * MARGIN, np.uint32)


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
