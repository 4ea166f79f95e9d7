"""Machine instructions on single words: prefetch, unaligned words, counts of bits, addresses.

Arrays are one-dimensional and C-contiguous; indices are not checked.
"""

from typing import Any

from numba import types
from numpy.typing import NDArray

from trie.cpu.llvm import I1, I8, I64, INDEX, call, element, instruction
from trie.cpu.llvm import prefetch as ask


@instruction(types.void, None, INDEX)
def prefetch(builder: Any, array: Any, index: Any) -> None:
    """Prefetch the cache line of ``array[index]``."""
    ask(builder, element(builder, array, index), level=1)


@instruction(types.void, None, INDEX)
def prefetch_far(builder: Any, array: Any, index: Any) -> None:
    """Prefetch the cache line of ``array[index]`` into the second-level cache only.

    A prefetch into the first level occupies one of its few miss buffers until the line arrives; one
    into the second level does not, and twice as many lines arrive per second.
    """
    ask(builder, element(builder, array, index), level=2)


@instruction(types.void, None, INDEX)
def prefetch_to_write(builder: Any, array: Any, index: Any) -> None:
    """Prefetch the cache line of ``array[index]`` for writing."""
    ask(builder, element(builder, array, index), level=1, write=True)


@instruction(types.uint64, None, INDEX)
def word_at(builder: Any, array: Any, index: Any) -> Any:
    """The eight bytes of a uint8 array at ``index``, little-endian; unaligned."""
    return builder.load(element(builder, array, index, I64), align=1)


@instruction(types.void, None, INDEX, types.uint64)
def put_word(builder: Any, array: Any, index: Any, word: Any) -> None:
    """Store eight bytes in a uint8 array at ``index``, little-endian; unaligned."""
    builder.store(word, element(builder, array, index, I64), align=1)


@instruction(types.uint8, None)
def load_now(builder: Any, flag: Any) -> Any:
    """flag[0] of a uint8 array, read from memory each time: another thread writes it."""
    return builder.load_atomic(flag, "monotonic", 1)


@instruction(types.void, None, INDEX, types.int64)
def add_shared(builder: Any, array: Any, index: Any, number: Any) -> None:
    """``array[index] += number`` in an int32 or int64 array that several threads add to."""
    place = element(builder, array, index)
    if place.type.pointee.width < 64:
        number = builder.trunc(number, place.type.pointee)
    builder.atomic_rmw("add", place, number, "monotonic")


@instruction(types.void, None, INDEX, types.uint64)
def or_shared(builder: Any, array: Any, index: Any, bits: Any) -> None:
    """``array[index] |= bits`` in a uint64 array that several threads set bits in."""
    builder.atomic_rmw("or", element(builder, array, index), bits, "monotonic")


def _counting(name: str, *, zero_defined: bool = False) -> Any:
    """An instruction on the bits of an unsigned integer of any width, by LLVM's name."""

    @instruction(None, None, name=name)
    def counted(builder: Any, value: Any) -> Any:
        flag = [I1(0)] if zero_defined else []
        return call(builder, f"llvm.{name}.i{value.type.width}", value.type, value, *flag)

    return counted


popcount = _counting("ctpop")
leading_zeros = _counting("ctlz", zero_defined=True)
trailing_zeros = _counting("cttz", zero_defined=True)
reversed_bits = _counting("bitreverse")


def array_address(array: NDArray[Any]) -> int:
    """The address of an array's data, for ``pointer`` in a kernel; keep the array alive."""
    where: int = array.__array_interface__["data"][0]
    return where


@instruction(types.voidptr, types.uint64)
def pointer(builder: Any, address: Any) -> Any:
    """An address in memory as a pointer, for ``numba.carray`` with a type."""
    return builder.inttoptr(address, I8.as_pointer())


@instruction(types.int64, types.int64)
def integer_at(builder: Any, address: Any) -> Any:
    """The int64 at an address in memory; the array that holds it must be alive."""
    return builder.load(builder.inttoptr(address, I64.as_pointer()), align=1)
