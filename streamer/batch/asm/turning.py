"""From letters, or base codes, of 512 text segments to the lanes of bit-sliced words (``words``).

64 consecutive symbols of a segment are a vector of bytes, of which two tests make two uint64: the
bits of their codes. Those of all segments are 64 words a bit, and turned they are 64 columns.

Letters need not become codes in memory. In either case bits 2-1 of A, C, T, G are 00, 01, 10, 11,
which exclusive-ored with their upper half are the codes; and the low four bits of A, C, G, T and U
all differ, so that a look-up by them and a comparison find every other byte.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from streamer.batch.asm.lane_words import (
    INDEX,
    INT8,
    INT64,
    LINE,
    ROW,
    SELECT,
    WORD,
    WORDS,
    Memory,
    cgutils,
    fetch,
    has_feature,
    intrinsic,
    logic,
    plus,
)
from trie.codes import IUPAC_AMBIGUOUS

_BASES = b"ACGTU"
_UPPER = 0xDF
"""The bits of a letter without its case."""

_BYTES = ir.VectorType(INT8, 64)

TURN_LINES = 16
"""Cache lines that ``transpose`` asks for."""

_AHEAD = 4096
"""Bytes ahead that are asked for: the processor's own prefetching ends at each page of 4 KB."""


def _each(byte: int) -> Any:
    return ir.Constant(_BYTES, [ir.Constant(INT8, byte)] * 64)


def _bits(builder: Any, values: Any, byte: int) -> Any:
    """Which of 64 bytes have some of those bits, as a uint64."""
    found = builder.icmp_unsigned("!=", builder.and_(values, _each(byte)), _BYTES(None))
    return builder.bitcast(found, INT64)


def _among(builder: Any, values: Any, letters: bytes) -> Any:
    """Which of 64 bytes are one of those letters."""
    found = None
    for letter in letters:
        equal = builder.icmp_unsigned("==", values, _each(letter))
        found = equal if found is None else builder.or_(found, equal)
    return found


def _other_than_bases(context: Any, builder: Any, values: Any) -> Any:
    """64 bytes, with bits of ``_UPPER`` where the letter is no base."""
    if has_feature(context, "avx512bw"):
        table = [0x80] * 16
        for letter in _BASES:
            table[letter & 15] = letter
        function = builder.module.declare_intrinsic(
            "llvm.x86.avx512.pshuf.b.512", [], ir.FunctionType(_BYTES, [_BYTES, _BYTES])
        )
        constant = ir.Constant(_BYTES, [ir.Constant(INT8, byte) for byte in 4 * table])
        return builder.xor(builder.call(function, [constant, values]), values)
    upper = builder.and_(values, _each(_UPPER))
    return builder.select(_among(builder, upper, _BASES), _BYTES(None), _each(_UPPER))


def _of_letters(context: Any, builder: Any, values: Any) -> tuple[list[Any], Any]:
    low, high = _bits(builder, values, 2), _bits(builder, values, 4)
    other = _other_than_bases(context, builder, values)
    return [builder.xor(low, high), high], builder.and_(other, _each(_UPPER))


def _of_codes(context: Any, builder: Any, values: Any) -> tuple[list[Any], Any]:
    words = [_bits(builder, values, bit) for bit in (1, 2)]
    return words, builder.and_(values, _each(4))


def _gaps_of_letters(context: Any, builder: Any, values: Any) -> tuple[list[Any], Any]:
    upper = builder.and_(values, _each(_UPPER))
    gaps = builder.not_(_among(builder, upper, _BASES))
    wrong = builder.and_(gaps, builder.not_(_among(builder, upper, IUPAC_AMBIGUOUS)))
    return [builder.bitcast(gaps, INT64)], builder.sext(wrong, _BYTES)


def _gaps_of_codes(context: Any, builder: Any, values: Any) -> tuple[list[Any], Any]:
    return [_bits(builder, values, 4)], _BYTES(None)


def _over_words(name: str, body: Any, doc: str) -> Any:
    """An intrinsic that goes through 64 symbols after another; ``body`` gets each as a vector.

    It returns words to store, the first of them where the doc says and the others a ROW further
    each, and what of a vector is to be or-ed into ``seen``; ``seen`` ends as the result.
    """

    def typed(
        typingctx: Any, symbols: Any, at: Any, lanes: Any, span: Any, planes: Any, place: Any
    ) -> Any:
        signature = types.uint64(symbols, INDEX, INDEX, INDEX, planes, INDEX)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            out = context.make_array(signature.args[4])(context, builder, args[4]).data
            seen = cgutils.alloca_once_value(builder, _BYTES(None))
            at = cgutils.alloca_once_value(builder, args[1])
            with cgutils.for_range(builder, args[2]) as lane:
                first = builder.add(args[5], lane.index)
                with cgutils.for_range(builder, args[3]) as block:
                    pointer = builder.gep(data, [builder.load(at)])
                    builder.store(builder.add(builder.load(at), INT64(64)), at)
                    fetch(builder, builder.gep(pointer, [INT64(_AHEAD)]))
                    values = builder.load(builder.bitcast(pointer, _BYTES.as_pointer()), align=1)
                    words, other = body(context, builder, values)
                    builder.store(builder.or_(builder.load(seen), other), seen)
                    place = builder.add(first, builder.mul(block.index, INT64(3 * ROW)))
                    for i, word in enumerate(words):
                        builder.store(word, builder.gep(out, [plus(builder, place, i * ROW)]))
            found = builder.icmp_unsigned("!=", builder.load(seen), _BYTES(None))
            return builder.bitcast(found, INT64)

        return signature, codegen

    typed.__name__ = name
    typed.__doc__ = doc
    return intrinsic(typed)


_DOC = """Bits 0 and 1 of the codes of ``lanes`` lanes, ``span`` times 64 symbols each.

    The {0} (uint8) begin at ``at``. Block b of lane x is the uint64 place + 3 * ROW * b + x of
    ``planes`` for bit 0, and for bit 1 a ROW further. Not 0 if not all are bases.
    """
letter_planes = _over_words("letter_planes", _of_letters, _DOC.format("letters"))
code_planes = _over_words("code_planes", _of_codes, _DOC.format("codes"))
letter_gaps = _over_words(
    "letter_gaps",
    _gaps_of_letters,
    "Which letters are no bases, as above. Not 0 if some are no ambiguity letters either.",
)
code_gaps = _over_words("code_gaps", _gaps_of_codes, "Which codes are gap codes, as above; 0.")


@intrinsic
def transpose(typingctx: Any, words: Any, at: Any, text: Any, ahead: Any) -> Any:
    """Turn 64 words in place: bit c of word r and bit r of word c change places, in each uint64.

    Six exchanges of half the bits (Hacker's Delight 7-3), three of them on eight words at a time.
    Meanwhile TURN_LINES cache lines of text (uint8) from ``ahead`` on are asked for (``tiles``).
    """
    signature = types.void(words, INDEX, text, INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory = Memory(context, builder, signature.args[0], args[0])
        next_text = builder.gep(
            context.make_array(signature.args[2])(context, builder, args[2]).data, [args[3]]
        )
        for apart, step, shifts in ((8, 1, (32, 16, 8)), (1, 8, (4, 2, 1))):
            with cgutils.for_range(builder, INT64(8)) as loop:
                line = builder.add(loop.index, INT64(8 if step == 8 else 0))
                fetch(builder, builder.gep(next_text, [builder.mul(line, INT64(LINE))]))
                first = builder.add(args[1], builder.mul(loop.index, INT64(step * WORDS)))
                places = [plus(builder, first, i * apart * WORDS) for i in range(8)]
                rows = [memory.load(place) for place in places]
                for shift, distance in zip(shifts, (4, 2, 1), strict=True):
                    _exchange(context, builder, rows, distance, shift)
                for row, place in zip(rows, places, strict=True):
                    memory.store(row, place)
        return context.get_dummy_value()

    return signature, codegen


def _exchange(context: Any, builder: Any, rows: list[Any], distance: int, shift: int) -> None:
    """The high bits of each 2 * shift of one row for the low ones of the row ``distance`` on."""
    group = (1 << shift) - 1
    mask = sum(group << i for i in range(0, 64, 2 * shift))
    low = ir.Constant(WORD, [ir.Constant(INT64, mask)] * WORDS)
    by = ir.Constant(WORD, [ir.Constant(INT64, shift)] * WORDS)
    for i in range(8):
        if not i & distance:
            one, other = rows[i], rows[i + distance]
            rows[i] = logic(context, builder, SELECT, low, one, builder.shl(other, by))
            rows[i + distance] = logic(context, builder, SELECT, low, builder.lshr(one, by), other)


@intrinsic
def bases(
    typingctx: Any, planes: Any, at: Any, columns: Any, gaps: Any, equal: Any, equal_at: Any
) -> Any:
    """For each of so many columns the lanes that hold A, C, G, T, four words a column in ``equal``.

    planes: the columns' words from ``at`` on of the codes' bit 0; of bit 1, and if ``gaps`` is not
    0 of where there is none, a ROW further each.
    """
    signature = types.void(planes, INDEX, INDEX, INDEX, equal, INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        plane = Memory(context, builder, signature.args[0], args[0])
        out = Memory(context, builder, signature.args[4], args[4])
        with_gaps = builder.icmp_signed("!=", args[3], INT64(0))
        gap = cgutils.alloca_once_value(builder, WORD(None))
        with cgutils.for_range(builder, args[2]) as loop:
            low = builder.add(args[1], builder.mul(loop.index, INT64(WORDS)))
            high = plus(builder, low, ROW)
            p0, p1 = plane.load(low), plane.load(high)
            with builder.if_then(with_gaps):
                builder.store(plane.load(plus(builder, high, ROW)), gap)
            known = builder.not_(builder.load(gap))
            place = builder.add(args[5], builder.mul(loop.index, INT64(4 * WORDS)))
            for code in range(4):
                bit0 = p0 if code & 1 else builder.not_(p0)
                bit1 = p1 if code & 2 else builder.not_(p1)
                value = builder.and_(builder.and_(bit0, bit1), known)
                out.store(value, plus(builder, place, code * WORDS))
        return context.get_dummy_value()

    return signature, codegen
