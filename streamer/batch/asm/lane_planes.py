"""Turn letters or codes of 512 text segments into lanes of bit-sliced words, and bits into lists.

64 consecutive symbols of a segment form a vector of bytes; two tests turn it into two uint64, the
bits of their codes. All segments together give 64 words per bit, which transposed are 64 columns.
In upper and lower case, bits 2-1 of A, C, T, G are 00, 01, 10, 11; XORing them with their upper bit
gives the codes. The low four bits of A, C, G, T and U are distinct, so a table look-up and a
comparison find every other byte.

AVX-512 (VBMI2) compresses the chosen elements of a vector in one instruction, so a word with hits
costs the same whichever bits are set. Elsewhere it takes a step per bit, or per set bit.
"""

from typing import Any

from llvmlite import ir
from numba import types

from trie.codes import IUPAC_AMBIGUOUS
from trie.cpu.llvm import (
    BYTES,
    I1,
    I8,
    I16,
    I32,
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
    shuffle,
    spread,
    store,
)
from trie.cpu.vectors import WORDS

LANES = 512

ROW = LANES + WORDS
"""Stride in uint64 between planes of one word per lane; planes share no cache set."""

LINE = 64  # bytes of a cache line

_BASES = b"ACGTU"
_UPPER = 0xDF  # the bits of a letter without its case
TRANSPOSE_LINES = 16  # cache lines that ``transpose`` prefetches

_AHEAD = 4096
"""Prefetch distance in bytes: the hardware prefetcher stops at each 4 KB page."""


def _bits(builder: Any, values: Any, byte: int) -> Any:
    """Return which of 64 bytes have any of those bits, as a uint64."""
    bits = builder.icmp_unsigned("!=", builder.and_(values, constant(BYTES, byte)), BYTES(None))
    return builder.bitcast(bits, I64)


def _among(builder: Any, values: Any, letters: bytes) -> Any:
    """Return which of 64 bytes are one of those letters."""
    among = None
    for letter in letters:
        equal = builder.icmp_unsigned("==", values, constant(BYTES, letter))
        among = equal if among is None else builder.or_(among, equal)
    return among


def _other_than_bases(builder: Any, values: Any) -> Any:
    """Return 64 bytes, with bits of ``_UPPER`` set where the letter is not a base."""
    if has_feature("avx512bw"):
        table = [0x80] * 16
        for letter in _BASES:
            table[letter & 15] = letter
        turned = call(
            builder, "llvm.x86.avx512.pshuf.b.512", BYTES, constant(BYTES, *4 * table), values
        )
        return builder.xor(turned, values)
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
        bits = builder.icmp_unsigned("!=", builder.load(seen), BYTES(None))
        return builder.bitcast(bits, I64)

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

    def select(low_row: Any, other: Any) -> Any:
        return bitwise(builder, lambda x, y, z: (x & y) | (~x & z), low, low_row, other)

    for i in range(8):
        if not i & distance:
            low_row, other = rows[i], rows[i + distance]
            rows[i] = select(low_row, builder.shl(other, by))
            rows[i + distance] = select(builder.lshr(low_row, by), other)


AT_ONCE = 8  # numbers that ``widen`` writes at a time
LISTED = 16  # places that ``list_bits`` writes, and bits that it examines
_NUMBERS = ir.VectorType(I32, LISTED)
_MASK = ir.VectorType(I1, 64)
_FEW = 16
"""A word with no more hits than this stores this many: 64 bytes would touch two cache lines."""


def _compressed(builder: Any, values: Any, bits: Any) -> Any:
    """Return the values whose bit is set, contiguously, then zeros."""
    vector = values.type
    name = f"llvm.x86.avx512.mask.compress.v{vector.count}i{vector.element.width}"
    mask = builder.bitcast(bits, ir.VectorType(I1, vector.count))
    return call(builder, name, vector, values, vector(None), mask)


def _ascending(vector: Any) -> Any:
    return constant(vector, *range(vector.count))


@instruction(types.int64, None, INDEX, types.uint32, types.uint64)
def list_bits(builder: Any, numbers: Any, at: Any, first: Any, bits: Any) -> Any:
    """numbers[at:] = first + b for each set bit b < 16, ascending; return their count, int64.

    numbers: uint32[]; LISTED elements from ``at`` on are overwritten.
    """
    few = builder.trunc(bits, I16)
    if has_feature("avx512f"):
        every = builder.add(spread(builder, first, _NUMBERS), _ascending(_NUMBERS))
        store(builder, _compressed(builder, every, few), numbers, at)
        return builder.zext(call(builder, "llvm.ctpop.i16", I16, few), I64)
    done = I64(0)
    for bit in range(LISTED):
        place = element(builder, numbers, builder.add(at, done))
        builder.store(builder.add(first, I32(bit)), place)
        own = builder.and_(builder.lshr(few, I16(bit)), I16(1))
        done = builder.add(done, builder.zext(own, I64))
    return done


@instruction(types.int64, types.uint64, None, INDEX, INDEX, INDEX, None, None, INDEX)
def pack_word(
    builder: Any,
    bits: Any,
    planes: Any,
    plane_at: Any,
    stride: Any,
    count: Any,
    places: Any,
    digits: Any,
    at: Any,
) -> Any:
    """places[at:] = b and digits[at:] = its digits, for each set bit b of the 64 ``bits``.

    Digits: bit p is bit b of planes[plane_at + p * stride], for p < count <= 8. places, digits
    uint8[], of which 64 from ``at`` on may be overwritten. Returns their count, int64.
    """
    size = call(builder, "llvm.ctpop.i64", I64, bits)

    def plane(number: Any) -> Any:
        offset = builder.add(plane_at, builder.mul(number, stride))
        return builder.load(element(builder, planes, offset))

    if has_feature("avx512vbmi2"):
        digit = cgutils.alloca_once_value(builder, BYTES(None))
        with cgutils.for_range(builder, count) as loop:
            value = builder.shl(I8(1), builder.trunc(loop.index, I8))
            there = builder.bitcast(plane(loop.index), _MASK)
            chosen = builder.select(there, spread(builder, value, BYTES), BYTES(None))
            builder.store(builder.or_(builder.load(digit), chosen), digit)
        packed = [
            (_compressed(builder, _ascending(BYTES), bits), places),
            (_compressed(builder, builder.load(digit), bits), digits),
        ]
        for values, out in packed:
            store(builder, shuffle(builder, values, values, list(range(_FEW))), out, at)
        with builder.if_then(builder.icmp_unsigned(">", size, I64(_FEW)), likely=False):
            for values, out in packed:
                store(builder, values, out, at)
        return size
    unpacked = cgutils.alloca_once_value(builder, bits)
    with cgutils.for_range(builder, size) as loop:
        rest = builder.load(unpacked)
        bit = call(builder, "llvm.cttz.i64", I64, rest, I1(1))
        builder.store(builder.and_(rest, builder.sub(rest, I64(1))), unpacked)
        to = builder.add(at, loop.index)
        builder.store(builder.trunc(bit, I8), element(builder, places, to))
        digit = cgutils.alloca_once_value(builder, I64(0))
        builder.store(I64(0), digit)
        with cgutils.for_range(builder, count) as inner:
            own = builder.and_(builder.lshr(plane(inner.index), bit), I64(1))
            own = builder.shl(own, inner.index)
            builder.store(builder.or_(builder.load(digit), own), digit)
        builder.store(builder.trunc(builder.load(digit), I8), element(builder, digits, to))
    return size


@instruction(types.void, None, INDEX, types.int64, None, INDEX)
def widen(builder: Any, small: Any, at: Any, first: Any, out: Any, to: Any) -> None:
    """out[to + i] = first + small[at + i] for i < AT_ONCE.

    small: uint8[]. out: int32[] or int64[].
    """
    number = out.type.pointee
    vector = ir.VectorType(number, AT_ONCE)
    values = load(builder, small, at, ir.VectorType(I8, AT_ONCE))
    base = first if number == I64 else builder.trunc(first, number)
    values = builder.add(builder.zext(values, vector), spread(builder, base, vector))
    store(builder, values, out, to)
