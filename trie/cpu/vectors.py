"""Vectors of 8 uint64 as values in numba kernels: 512 bits that LLVM keeps in registers.

numba vectorizes loops over arrays, but then every intermediate result goes through memory, and 512
bits are not used where LLVM prefers 256. Here a vector is an ordinary value in a kernel:

    total = exclusive_or(first, second, third)       # one instruction with AVX-512, two elsewhere

On machines without AVX-512 LLVM makes two (AVX2) or four (SSE, NEON) instructions of each. Indices
count uint64 words; arrays are C-contiguous and one-dimensional, and should begin at a multiple of
64 bytes (``aligned_words``): a vector that crosses two cache lines costs two loads.

Sixty-four bytes of a text at once, for kernels that look for the ends of lines and words.

Texts are uint8 arrays. Each load reads 64 bytes, so a text needs that many readable bytes after its
end (``SLACK``); their values do not matter.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import models, register_model
from numpy.typing import NDArray

from trie.cpu import llvm
from trie.cpu.llvm import BYTES, I8, I64, INDEX, WORDS8, instruction

WORDS = 8  # uint64 in a vector


class _VectorType(types.Type):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="uint64 x 8")  # type: ignore[no-untyped-call, unused-ignore]


_vector = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc, unused-ignore]
    def __init__(self, manager: Any, typed: Any) -> None:
        super().__init__(manager, typed, WORDS8)  # type: ignore[no-untyped-call, unused-ignore]


def aligned_words(count: int) -> NDArray[np.uint64]:
    """uint64[count], zeros, beginning at a multiple of 64 bytes."""
    raw = np.zeros(8 * count + 64, dtype=np.uint8)
    skipped = -raw.ctypes.data % 64
    return raw[skipped : skipped + 8 * count].view(np.uint64)


@instruction(_vector, None, INDEX)
def load(builder: Any, words: Any, index: Any) -> Any:
    """The vector at words[index : index + 8] of a uint64 array."""
    return llvm.load(builder, words, index)


@instruction(types.void, None, INDEX, _vector)
def store(builder: Any, words: Any, index: Any, vector: Any) -> None:
    """words[index : index + 8] = vector."""
    llvm.store(builder, vector, words, index)


@instruction(_vector, types.uint64)
def spread(builder: Any, word: Any) -> Any:
    """The vector with that uint64 in all eight words."""
    return llvm.spread(builder, word, WORDS8)


def _bitwise(count: int, function: Callable[..., Any]) -> Any:
    """A bitwise function of ``count`` vectors."""

    @instruction(_vector, *[_vector] * count)
    def operation(builder: Any, *vectors: Any) -> Any:
        return llvm.bitwise(builder, function, *vectors)

    return operation


exclusive_or = _bitwise(3, lambda x, y, z: x ^ y ^ z)  # the sum bit of a full adder
majority = _bitwise(3, lambda x, y, z: (x & y) | (z & (x | y)))  # its carry bit
any_of = _bitwise(3, lambda x, y, z: x | y | z)
or_neither = _bitwise(3, lambda x, y, z: x | ~(y | z))
select = _bitwise(3, lambda x, y, z: (x & y) | (~x & z))
difference = _bitwise(2, lambda x, y: x ^ y)  # the sum bit of a half adder
common = _bitwise(2, lambda x, y: x & y)  # its carry bit
either = _bitwise(2, lambda x, y: x | y)
without = _bitwise(2, lambda x, y: x & ~y)
complement = _bitwise(1, lambda x: ~x)


@instruction(_vector, _vector, _vector, types.uint64)
def shifted_pair(builder: Any, low: Any, high: Any, bits: Any) -> Any:
    """The low words of (high : low) >> bits, lane by lane; 0 <= bits < 64."""
    amount = llvm.spread(builder, bits, WORDS8)
    return llvm.call(builder, f"llvm.fshr.v{WORDS}i64", WORDS8, high, low, amount)


@instruction(_vector, _vector)
def shifted_up(builder: Any, vector: Any) -> Any:
    """The vector as one 512-bit number, the first word lowest, times two."""
    carries = builder.lshr(vector, llvm.constant(WORDS8, 63))
    lanes = [0, *range(WORDS, 2 * WORDS - 1)]
    carried = llvm.shuffle(builder, llvm.constant(WORDS8, 0), carries, lanes)
    return builder.or_(builder.shl(vector, llvm.constant(WORDS8, 1)), carried)


@instruction(types.uint64, _vector)
def occupied(builder: Any, vector: Any) -> Any:
    """uint64: bit w is set where word w of the vector is not zero."""
    bits = builder.icmp_unsigned("!=", vector, llvm.constant(WORDS8, 0))
    return builder.zext(builder.bitcast(bits, I8), I64)


@instruction(types.uint8, None, INDEX, types.uint64)
def equal_mask(builder: Any, words: Any, index: Any, word: Any) -> Any:
    """uint8: bit w is set where words[index + w] is ``word``; needs 64-byte alignment."""
    line = builder.load(llvm.element(builder, words, index, WORDS8), align=64)
    wanted = llvm.spread(builder, word, WORDS8)
    return builder.bitcast(builder.icmp_unsigned("==", line, wanted), I8)


@instruction(types.uint64, None, INDEX, types.uint8)
def differs(builder: Any, letters: Any, index: Any, letter: Any) -> Any:
    """uint64: bit i is set where letters[index + i] of a uint8 array is not ``letter``."""
    vector = llvm.load(builder, letters, index, BYTES)
    wanted = llvm.spread(builder, letter, BYTES)
    return builder.bitcast(builder.icmp_unsigned("!=", vector, wanted), I64)


@instruction(types.uint64, None, INDEX, types.uint8)
def marked(builder: Any, codes: Any, index: Any, bits: Any) -> Any:
    """uint64: bit i is set where codes[index + i] of a uint8 array has one of ``bits``."""
    vector = llvm.load(builder, codes, index, BYTES)
    there = builder.and_(vector, llvm.spread(builder, bits, BYTES))
    return builder.bitcast(builder.icmp_unsigned("!=", there, llvm.constant(BYTES, 0)), I64)


SLACK = 64


@instruction(types.uint64, None, INDEX, types.uint8)
def equals(builder: Any, text: Any, at: Any, byte: Any) -> Any:
    """uint64: bit i is set where text[at + i] is ``byte``."""
    equal = builder.icmp_unsigned(
        "==", llvm.load(builder, text, at, BYTES), llvm.spread(builder, byte, BYTES)
    )
    return builder.bitcast(equal, I64)


@instruction(types.uint64, None, INDEX, types.uint8, types.uint8)
def outside(builder: Any, text: Any, at: Any, low: Any, high: Any) -> Any:
    """uint64: bit i is set where text[at + i] is less than ``low`` or greater than ``high``."""
    above = builder.sub(llvm.load(builder, text, at, BYTES), llvm.spread(builder, low, BYTES))
    span = llvm.spread(builder, builder.sub(high, low), BYTES)
    return builder.bitcast(builder.icmp_unsigned(">", above, span), I64)


@instruction(types.void, None, INDEX, None, INDEX)
def copy_line(builder: Any, text: Any, at: Any, out: Any, to: Any) -> None:
    """out[to : to + 64] = text[at : at + 64]."""
    llvm.store(builder, llvm.load(builder, text, at, BYTES), out, to)
