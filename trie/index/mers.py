"""m-mers, the short words inside k-mers, extracted from packed bases many at a time.

    bases      byte i   the code of base i
    fours      byte i   bases i..i+3, base i lowest, 2 bits each
    sixteens   word i   bases i..i+15 in the same order: bytes i, i+4, i+8 and i+12 of ``fours``
    m-mer      m is odd, so that none is its own reverse complement
               m < 16   the lowest 2m bits of word i
               m > 16   word i and word i + m - 16, which overlap

An m-mer stands for the smaller of its two orientations, or for itself. A window of k bases holds w
= k - m + 1 of them. Its minimizer is the m-mer of the lowest order, a 32-bit hash; m-mers shorter
than 16 all have different orders. The *number* of an m-mer, or of a k-mer, has its first base
lowest, so it is not a code.

Operations, 512 bits wide: 12 for 64 fours, 3 for 16 sixteens, about 12 for the order of 16 short
m-mers, 25 of long ones.

A filter of short m-mers: one it lacks is in no k-mer of a text; one it has nearly always is.

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

from trie.cpu import llvm
from trie.cpu.intrinsics import leading_zeros, reversed_bits, trailing_zeros
from trie.cpu.jit import inner
from trie.cpu.llvm import BYTES, I1, I8, I32, I64, INDEX, instruction

BLOCK: Final = 4096
"""Symbols whose m-mers are computed together: 16 KB of sixteens."""

MARGIN: Final = 64
"""Sixteens after a block, for windows that begin in it."""

NEEDED: Final = BLOCK + MARGIN + 128
"""Symbols, counted from a block's first, that its sixteens are computed from."""

MOST_MERS: Final = 32
"""m-mers in a window: the bits of a word."""

_LONGEST_SHORT: Final = 15
SHORTEST_K: Final = 11
"""With shorter windows, no m-mer is worth looking for."""

_FOREIGN: Final = 64  # m-mers that a text lacks, per m-mer that it has
_FEW: Final = 8  # the same, at least
_SIXTEEN = ir.VectorType(I32, 16)
_WINDOW = ir.VectorType(I32, MOST_MERS)
_HALF_PAIRS: Final = 0x55555555
ORDER_FLIP: Final = 0x5BD1E995
ORDER_MULTIPLIER: Final = 0x9E3779B1
ORDER_OTHER_MULTIPLIER: Final = 0x85EBCA6B


class Mers(NamedTuple):
    """m-mers of windows, as kernels take them.

    width: how many a window holds, w; 0 if windows are too short for m-mers. ahead: m - 16 if m >
    16, else 0. mask: uint32, the bits of a word that belong to an m-mer. shift: uint32, the number
    of others. unused: uint32, all ones if m-mers stand for themselves alone. lanes: uint32, the w
    lowest bits.
    """

    length: int
    width: int
    ahead: int
    mask: np.uint32
    shift: np.uint32
    unused: np.uint32
    lanes: np.uint32

    @classmethod
    def of(cls, k: int, length: int, *, canonical: bool) -> Mers:
        """The m-mers of ``length`` symbols in windows of k symbols."""
        width = k - length + 1 if length else 0
        in_word = min(length, 16)
        return cls(
            length,
            width,
            max(length - 16, 0),
            np.uint32(4**in_word - 1),
            np.uint32(min(32 - 2 * in_word, 31)),
            np.uint32(0 if canonical else 0xFFFFFFFF),
            np.uint32(2**width - 1),
        )


def mer_lengths(k: int, symbols: int) -> tuple[int, int]:
    """The m of both levels (``trie.index.places``) for windows of k symbols, and such a text.

    0 stands for a level without m-mers. Few m-mers of other texts should occur in this one by
    chance. Windows hold four at least.
    """
    if k < SHORTEST_K:
        return 0, 0
    length = _odd(min(k - 4, _LONGEST_SHORT))
    while _FOREIGN * symbols > 4**length and length + 2 <= k - 3:
        length += 2
    longer = _odd(length + (k - length) * 4 // 7)
    return length, longer if longer > length else 0


def suits(k: int, symbols: int) -> bool:
    """Whether windows of such a text, and of others, are told apart by their m-mers."""
    return _FEW * symbols <= 4 ** mer_lengths(k, symbols)[0]


def _odd(number: int) -> int:
    return number - 1 + number % 2


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


def _turned_words(builder: Any, words: Any, shift: Any) -> Any:
    """The reverse complement of what the lowest bits of each word are, ``shift`` bits less."""
    kind = words.type
    half, one = _number(kind, _HALF_PAIRS), _number(kind, 1)
    turned = llvm.call(builder, f"llvm.bitreverse.v{kind.count}i32", kind, builder.not_(words))
    upper = builder.and_(builder.lshr(turned, one), half)
    turned = builder.or_(upper, builder.shl(builder.and_(turned, half), one))
    return builder.lshr(turned, llvm.spread(builder, shift, kind))


def _short_orders(builder: Any, words: Any, mask: Any, shift: Any, unused: Any) -> Any:
    """The order of the first m-mer of each word, m < 16: a bijection."""
    kind = words.type
    wide_mask = llvm.spread(builder, mask, kind)
    turned = builder.or_(_turned_words(builder, words, shift), llvm.spread(builder, unused, kind))
    mers = _lesser(builder, builder.and_(words, wide_mask), turned)
    product = builder.mul(
        builder.xor(mers, _number(kind, ORDER_FLIP)), _number(kind, ORDER_MULTIPLIER)
    )
    return builder.and_(product, wide_mask)


def _long_orders(builder: Any, words: Any, ends: Any, unused: Any) -> Any:
    """The order of the m-mers, m > 16, that begin with ``words`` and end with ``ends``."""
    kind = words.type

    def order(first: Any, last: Any) -> Any:
        product = builder.mul(
            builder.xor(first, _number(kind, ORDER_FLIP)), _number(kind, ORDER_MULTIPLIER)
        )
        product = builder.xor(product, builder.lshr(product, _number(kind, 15)))
        return builder.mul(builder.xor(product, last), _number(kind, ORDER_OTHER_MULTIPLIER))

    turned = [_turned_words(builder, some, I32(0)) for some in (ends, words)]
    back = builder.or_(order(*turned), llvm.spread(builder, unused, kind))
    # the highest order stands for no m-mer
    return builder.lshr(_lesser(builder, order(words, ends), back), _number(kind, 1))


@instruction(types.void, None, INDEX, types.uint32, types.uint32, types.uint32, None, INDEX)
def _put_short_orders(
    builder: Any, sixteens: Any, at: Any, mask: Any, shift: Any, unused: Any, orders: Any, to: Any
) -> None:
    words = llvm.load(builder, sixteens, at, _SIXTEEN)
    llvm.store(builder, _short_orders(builder, words, mask, shift, unused), orders, to)


@instruction(types.void, None, INDEX, INDEX, types.uint32, None, INDEX)
def _put_long_orders(
    builder: Any, sixteens: Any, at: Any, end: Any, unused: Any, orders: Any, to: Any
) -> None:
    words, ends = (llvm.load(builder, sixteens, place, _SIXTEEN) for place in (at, end))
    llvm.store(builder, _long_orders(builder, words, ends, unused), orders, to)


@inner
def put_orders(sixteens, at, mers, orders, to):
    """orders[to : to + 16], uint32: the orders of the m-mers that begin at ``at``."""
    if mers.ahead:
        _put_long_orders(sixteens, at, at + mers.ahead, mers.unused, orders, to)
    else:
        _put_short_orders(sixteens, at, mers.mask, mers.shift, mers.unused, orders, to)


@instruction(types.uint64, None, INDEX, types.uint32)
def _least_of(builder: Any, orders: Any, at: Any, lanes: Any) -> Any:
    """uint64: lower half: which orders at + i, i in ``lanes``, are their least; upper: are less."""
    orders = llvm.load(builder, orders, at, _WINDOW)
    inside = builder.bitcast(lanes, ir.VectorType(I1, MOST_MERS))
    first = builder.select(inside, orders, _number(_WINDOW, 0xFFFFFFFF))
    least = llvm.call(builder, f"llvm.vector.reduce.umin.v{MOST_MERS}i32", I32, first)
    wide = llvm.spread(builder, least, _WINDOW)
    same = builder.bitcast(builder.icmp_unsigned("==", first, wide), I32)
    less = builder.bitcast(builder.icmp_unsigned("<", orders, wide), I32)
    return builder.or_(builder.shl(builder.zext(less, I64), I64(32)), builder.zext(same, I64))


@inner
def minimizer(orders, at, mers):
    """Where the minimizer of a window begins (the last one), and the first window without it.

    orders: by symbol; those after the window only tell where the minimizer's windows end.
    """
    least = _least_of(orders, at, mers.lanes)
    last = 31 - np.int64(leading_zeros(np.uint32(least)))
    lesser = np.int64(trailing_zeros(np.uint32(least >> np.uint64(32))))
    return at + last, at + min(last, lesser - mers.width) + 1


@inner
def number_at(sixteens, at, length, canonical):
    """The number of the m-mer or k-mer at a symbol, and whether it is the reverse complement's."""
    word = np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)
    return number_of(word, length, canonical)


@inner
def number_of(word, length, canonical):
    """Like ``number_at``, for the lowest symbols of a word."""
    spare = np.uint64(64 - 2 * length)
    number = (word << spare) >> spare
    if not canonical:
        return number, False
    back = reversed_pairs(~word << spare)
    return min(number, back), back < number


@inner
def reversed_pairs(word):
    """The 32 pairs of bits of a uint64 in reverse order."""
    one, low = np.uint64(1), np.uint64(0x5555555555555555)
    back = np.uint64(reversed_bits(word))
    return (back >> one) & low | (back & low) << one


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


def block_arrays() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """fours and sixteens of a block, uninitialized."""
    return np.empty(2 * NEEDED, np.uint8), np.empty(BLOCK + 2 * MARGIN, np.uint32)


BITS: Final = 10
"""Filter bits per m-mer."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@inner
def filter_place(mer, words):
    """The word of the filter ``words``, and its bits, that stand for an m-mer."""
    product = np.uint64(mer) * _ODD
    word = ((product >> np.uint64(32)) * np.uint64(words.size)) >> np.uint64(32)
    one = np.uint64(1)
    some = one << ((product >> np.uint64(26)) & np.uint64(63))
    return word, some | one << ((product >> np.uint64(20)) & np.uint64(63))
