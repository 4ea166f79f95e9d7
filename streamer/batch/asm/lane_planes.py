"""Convert letters or base codes of 512 text segments to lanes of bit-sliced words (``cells``).

64 consecutive symbols of a segment form a vector of bytes; two tests turn it into two uint64, the
bits of their codes. All segments together give 64 words per bit, which transposed are 64 columns.

Letters need no codes in memory. In upper and lower case, bits 2-1 of A, C, T, G are 00, 01, 10, 11;
XORing them with their upper bit gives the codes. The low four bits of A, C, G, T and U are
distinct, so a table look-up and a comparison find every other byte.
"""

from __future__ import annotations

from typing import Any

from numba import types

from streamer.batch.asm.cells import LINE, ROW
from trie.codes import IUPAC_AMBIGUOUS
from trie.cpu.llvm import (
    BYTES,
    I64,
    INDEX,
    WORDS8,
    bitwise,
    call,
    cgutils,
    constant,
    element,
    has_feature,
    instruction,
    load,
    plus,
    prefetch,
    store,
)
from trie.cpu.vectors import WORDS

_BASES = b"ACGTU"
_UPPER = 0xDF  # the bits of a letter without its case
TRANSPOSE_LINES = 16  # cache lines that ``transpose`` prefetches

_AHEAD = 4096
"""Prefetch distance in bytes: the hardware prefetcher stops at each 4 KB page."""


def _bits(builder: Any, values: Any, byte: int) -> Any:
    """Return which of 64 bytes have any of those bits, as a uint64."""
    found = builder.icmp_unsigned("!=", builder.and_(values, constant(BYTES, byte)), BYTES(None))
    return builder.bitcast(found, I64)


def _among(builder: Any, values: Any, letters: bytes) -> Any:
    """Return which of 64 bytes are one of those letters."""
    found = None
    for letter in letters:
        equal = builder.icmp_unsigned("==", values, constant(BYTES, letter))
        found = equal if found is None else builder.or_(found, equal)
    return found


def _other_than_bases(builder: Any, values: Any) -> Any:
    """Return 64 bytes, with bits of ``_UPPER`` set where the letter is not a base."""
    if has_feature("avx512bw"):
        table = [0x80] * 16
        for letter in _BASES:
            table[letter & 15] = letter
        found = call(
            builder, "llvm.x86.avx512.pshuf.b.512", BYTES, constant(BYTES, *4 * table), values
        )
        return builder.xor(found, values)
    upper = builder.and_(values, constant(BYTES, _UPPER))
    return builder.select(_among(builder, upper, _BASES), BYTES(None), constant(BYTES, _UPPER))


def _of_letters(builder: Any, values: Any) -> tuple[list[Any], Any]:
    low, high = _bits(builder, values, 2), _bits(builder, values, 4)
    other = _other_than_bases(builder, values)
    return [builder.xor(low, high), high], builder.and_(other, constant(BYTES, _UPPER))


def _of_codes(builder: Any, values: Any) -> tuple[list[Any], Any]:
    words = [_bits(builder, values, bit) for bit in (1, 2)]
    return words, builder.and_(values, constant(BYTES, 4))


def _gaps_of_letters(builder: Any, values: Any) -> tuple[list[Any], Any]:
    upper = builder.and_(values, constant(BYTES, _UPPER))
    gaps = builder.not_(_among(builder, upper, _BASES))
    wrong = builder.and_(gaps, builder.not_(_among(builder, upper, IUPAC_AMBIGUOUS)))
    return [builder.bitcast(gaps, I64)], builder.sext(wrong, BYTES)


def _gaps_of_codes(builder: Any, values: Any) -> tuple[list[Any], Any]:
    return [_bits(builder, values, 4)], BYTES(None)


def _over_words(body: Any, doc: str) -> Any:
    """Define an instruction that processes 64 symbols at a time; ``body`` gets each vector.

    ``body`` returns words to store, the first where the doc says and the others a ROW further each,
    and a vector to be ORed into ``seen``; ``seen`` becomes the result.
    """

    @instruction(types.uint64, None, INDEX, INDEX, INDEX, None, INDEX)
    def over_words(
        builder: Any, symbols: Any, at: Any, lanes: Any, span: Any, planes: Any, place: Any
    ) -> Any:
        seen = cgutils.alloca_once_value(builder, BYTES(None))
        next_at = cgutils.alloca_once_value(builder, at)
        with cgutils.for_range(builder, lanes) as lane:
            first = builder.add(place, lane.index)
            with cgutils.for_range(builder, span) as block:
                here = builder.load(next_at)
                builder.store(builder.add(here, I64(64)), next_at)
                prefetch(builder, element(builder, symbols, plus(builder, here, _AHEAD)), level=2)
                words, other = body(builder, load(builder, symbols, here, BYTES))
                builder.store(builder.or_(builder.load(seen), other), seen)
                out = builder.add(first, builder.mul(block.index, I64(3 * ROW)))
                for i, word in enumerate(words):
                    builder.store(word, element(builder, planes, plus(builder, out, i * ROW)))
        found = builder.icmp_unsigned("!=", builder.load(seen), BYTES(None))
        return builder.bitcast(found, I64)

    over_words.__doc__ = doc
    return over_words


_DOC = """Bits 0 and 1 of the codes of ``lanes`` lanes, ``span`` times 64 symbols each.

    The {0} (uint8) begin at ``at``. Block b of lane x is the uint64 place + 3 * ROW * b + x of
    ``planes`` for bit 0, and for bit 1 a ROW further. Not 0 if not all are bases.
    """
letter_planes = _over_words(_of_letters, _DOC.format("letters"))
code_planes = _over_words(_of_codes, _DOC.format("codes"))
letter_gaps = _over_words(
    _gaps_of_letters,
    "Which letters are no bases, as above. Not 0 if some are no ambiguity codes either.",
)
code_gaps = _over_words(_gaps_of_codes, "Which codes are gap codes, as above; 0.")


@instruction(types.void, None, INDEX, None, INDEX)
def transpose(builder: Any, words: Any, at: Any, text: Any, ahead: Any) -> None:
    """Transpose 64 words in place: exchange bit c of word r and bit r of word c, in each uint64.

    Six exchanges of half the bits (Hacker's Delight 7-3), three of them on eight words at a time.
    It prefetches TRANSPOSE_LINES cache lines of text (uint8) from ``ahead`` on (``tiles``).
    """
    next_text = element(builder, text, ahead)
    for apart, step, shifts in ((8, 1, (32, 16, 8)), (1, 8, (4, 2, 1))):
        with cgutils.for_range(builder, I64(8)) as loop:
            line = builder.add(loop.index, I64(8 if step == 8 else 0))
            prefetch(builder, element(builder, next_text, builder.mul(line, I64(LINE))), level=2)
            first = builder.add(at, builder.mul(loop.index, I64(step * WORDS)))
            places = [plus(builder, first, i * apart * WORDS) for i in range(8)]
            rows = [load(builder, words, place) for place in places]
            for shift, distance in zip(shifts, (4, 2, 1), strict=True):
                _exchange(builder, rows, distance, shift)
            for row, place in zip(rows, places, strict=True):
                store(builder, row, words, place)


def _exchange(builder: Any, rows: list[Any], distance: int, shift: int) -> None:
    """Exchange the high bits per 2 * shift of one row with the low ones of row + ``distance``."""
    group = (1 << shift) - 1
    low = constant(WORDS8, sum(group << i for i in range(0, 64, 2 * shift)))
    by = constant(WORDS8, shift)

    def select(one: Any, other: Any) -> Any:
        return bitwise(builder, lambda x, y, z: (x & y) | (~x & z), low, one, other)

    for i in range(8):
        if not i & distance:
            one, other = rows[i], rows[i + distance]
            rows[i] = select(one, builder.shl(other, by))
            rows[i + distance] = select(builder.lshr(one, by), other)
