"""Functions that numba's CUDA target lacks, each with a body in plain Python for the simulator.

The simulator runs kernels without a device (``NUMBA_ENABLE_CUDASIM=1``). numba widens uint32
arithmetic to 64 bits unless every result is cast back, its shuffles take only signed values, and it
has no 16-byte loads and stores. ``instruction`` makes a function that kernels call from assembly
text and plain Python.

Transposing 32 x 32 bits takes 80 exchanges between pairs of words: 16 per power of two (Hacker's
Delight 7-3). Exchanges of 16 and 8 bits are two byte permutations each, the others two shifts and
two three-input operations: 256 operations for 1024 bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numba.cuda
import numpy as np
from llvmlite import ir
from numba.core import config, types
from numpy.typing import NDArray

cuda: Any = numba.cuda  # numba's CUDA module, which ships no usable types

# a short chunk leaves most of a GPU idle, which needs no warning
_settings: Any
for _settings in (config, getattr(getattr(numba.cuda, "core", None), "config", None)):
    if _settings is not None:
        _settings.CUDA_LOW_OCCUPANCY_WARNINGS = 0

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", 0))
ALL_LANES = 0xFFFFFFFF  # the lanes of a warp that take part in a vote or a shuffle


def context_looked_up_once(function: Callable[..., Any]) -> Any:
    """A decorator: look up the current device only once, when the function begins.

    Otherwise numba asks the driver twice for every copy and launch, releasing the GIL each time.
    """
    return function if SIMULATED else cuda.require_context(function)


def device_function(function: Callable[..., Any]) -> Any:
    """A scalar function that kernels call: inlined on the device, plain Python in the simulator."""
    # without inline="always" the helper alone would need a device to compile
    return function if SIMULATED else cuda.jit(device=True, inline="always")(function)


_I64 = ir.IntType(64)


def on_element(
    assembly: str, constraints: str, returns: ir.Type, shift: int, *, effect: bool = False
) -> Callable[..., Any]:
    """Code that runs assembly on the address of args[0][args[1]] and on args[2:].

    shift: the logarithm of an element's bytes. effect: it reads or writes memory that other threads
    write.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        index = context.cast(builder, args[1], signature.args[1], types.uint64)
        offset = builder.shl(index, _I64(shift))
        values = [builder.add(builder.ptrtoint(data, _I64), offset), *args[2:]]
        kind = ir.FunctionType(returns, [_I64] * len(values))
        text = ir.InlineAsm(kind, assembly, constraints, side_effect=effect)
        answer = builder.call(text, values)
        if isinstance(returns, ir.VoidType):
            return context.get_dummy_value()
        if isinstance(returns, ir.LiteralStructType):
            parts = [builder.extract_value(answer, i) for i in range(len(returns.elements))]
            return context.make_tuple(builder, signature.return_type, parts)
        return answer

    return codegen


if SIMULATED:

    def load_pair(words: Any, index: Any) -> Any:
        """Words 2 index and 2 index + 1 of a uint64 array in one 16-byte load."""
        return words[2 * int(index)], words[2 * int(index) + 1]

    def load_word(words: Any, index: Any) -> Any:
        """words[index] of a uint32 or uint64 array that no kernel in flight writes."""
        return words[int(index)]

    def population(value: Any) -> Any:
        """The set bits of a uint64, as uint32."""
        return np.uint32(int(value).bit_count())

    def product(value: Any, factor: Any) -> Any:
        """The low 64 bits of a product."""
        return np.uint64(int(value) * int(factor) & 0xFFFFFFFFFFFFFFFF)

    def address_of(array: Any) -> Any:
        """The address of a uint32 array in shared memory, in bytes; here 0."""
        return np.uint32(0)

    def as_signed(value: Any) -> Any:
        """The same bits as a signed word, as shuffles take it."""
        return value.view(np.int32 if value.dtype == np.uint32 else np.int64)

else:
    from numba.cuda.extending import intrinsic

    _PAIR: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call, unused-ignore]

    @intrinsic
    def load_pair(typingctx: Any, words: Any, index: Any) -> Any:
        """Words 2 index and 2 index + 1 of a uint64 array in one 16-byte load."""
        load = "ld.global.nc.v2.u64 {$0, $1}, [$2];"
        both = ir.LiteralStructType([_I64, _I64])
        return _PAIR(words, index), on_element(load, "=l,=l,l", both, 4)

    @intrinsic
    def load_word(typingctx: Any, words: Any, index: Any) -> Any:
        """words[index] of a uint32 or uint64 array that no kernel in flight writes."""
        bits = words.dtype.bitwidth
        constraints, shift = ("=l,l", 3) if bits == 64 else ("=r,l", 2)
        load = f"ld.global.nc.u{bits} $0, [$1];"
        return words.dtype(words, index), on_element(load, constraints, ir.IntType(bits), shift)

    @intrinsic
    def address_of(typingctx: Any, array: Any) -> Any:
        """The address of a uint32 array in shared memory, in bytes."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _register(context, builder, signature.args[0], args[0], "shared")

        return types.uint32(array), codegen

    @device_function
    def population(value: Any) -> Any:
        """The set bits of a uint64, as uint32."""
        return np.uint32(cuda.popc(value))

    @device_function
    def product(value: Any, factor: Any) -> Any:
        """The low 64 bits of a product."""
        return np.uint64(value * factor)

    @intrinsic
    def as_signed(typingctx: Any, value: Any) -> Any:
        """The same bits as a signed word, as shuffles take it."""
        signature = (types.int32 if value.bitwidth == 32 else types.int64)(value)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return args[0]

        return signature, codegen


def numba_type(name: str) -> Any:
    """The numba type of a name such as "uint32" or "uint64[::1]"."""
    scalar, _, dimensions = name.partition("[")
    kind: Any = getattr(types, scalar)
    return types.Array(kind, dimensions.count(",") + 1, "C") if dimensions else kind


@device_function
def bit_mask_below(position):
    """A uint64 whose bits below ``position`` (0..63) are set."""
    return np.uint64((np.uint64(1) << np.uint64(position)) - np.uint64(1))


@device_function
def sum_to_lane(value, lane):
    """The inclusive sum of a uint32 over the lanes of a warp; all lanes call it."""
    for step in range(5):
        other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(value), 1 << step))
        if lane >= 1 << step:
            value = np.uint32(value + other)
    return value


_KINDS: dict[str, Any] = {
    "u32": ("r", 32, types.uint32),
    "u64": ("l", 64, types.uint64),
    "global": ("l", 64, None),
    "shared": ("r", 32, None),
}
_SHARED = 3


def _register(context: Any, builder: Any, array_type: Any, array: Any, kind: str) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    if kind == "shared":
        data = builder.addrspacecast(data, ir.PointerType(ir.IntType(32), addrspace=_SHARED))
    return builder.ptrtoint(data, ir.IntType(_KINDS[kind][1]))


def instruction(
    assembly: str,
    results: tuple[str, ...],
    arguments: tuple[str, ...],
    simulated: Callable[..., Any],
    *,
    volatile: bool = False,
) -> Any:
    """A function for kernels that runs ``assembly``.

    results, arguments: "u32" or "u64" each, the operands $0, $1, ... in that order; several results
    form a tuple. An argument may also be "global" or "shared": an array whose address (64 or 32
    bits) is passed, or "simulated": an array that only the simulator reads. A text may have several
    instructions: results may be written before all arguments are read (early clobber). simulated:
    takes and returns NumPy scalars. volatile: keeps unused calls and the order of memory accesses.

    Prefer long texts: numba takes a second for a few hundred casts, but no time for assembly.
    """
    if SIMULATED:
        return simulated
    from numba.cuda.extending import intrinsic

    several = len(results) > 1
    returned: Any = _KINDS[results[0]][2] if results else types.void
    if several:
        returned = types.Tuple([_KINDS[kind][2] for kind in results])  # type: ignore[no-untyped-call, unused-ignore]
    constraints = ",".join(
        [f"=&{_KINDS[kind][0]}" for kind in results]
        + [_KINDS[kind][0] for kind in arguments if kind != "simulated"]
        + ["~{memory}"] * (volatile and not {"global", "shared"}.isdisjoint(arguments))
    )
    words = [ir.IntType(_KINDS[kind][1]) for kind in results]
    returns = ir.LiteralStructType(words) if several else [*words, ir.VoidType()][0]

    def make(*_: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                context.cast(builder, value, type_, _KINDS[kind][2])
                if _KINDS[kind][2] is not None
                else _register(context, builder, type_, value, kind)
                for value, type_, kind in zip(args, signature.args, arguments, strict=True)
                if kind != "simulated"
            ]
            text = ir.InlineAsm(
                ir.FunctionType(returns, [value.type for value in values]),
                assembly,
                constraints,
                side_effect=volatile,
            )
            answer = builder.call(text, values)
            if not results:
                return context.get_dummy_value()
            if not several:
                return answer
            parts = [builder.extract_value(answer, i) for i in range(len(words))]
            return context.make_tuple(builder, signature.return_type, parts)

        return codegen

    # an intrinsic must name its arguments
    names = ", ".join(f"x{i}" for i in range(len(arguments)))
    scope: dict[str, Any] = {"returned": returned, "make": make}
    exec(f"def typed(typingctx, {names}):\n    return returned({names}), make()\n", scope)
    return intrinsic(scope["typed"])


SELECT = "0xE4"  # truth table of a three-input operation: a where c, else b
REGISTERS = ".reg .u32 x, y;"  # what ``transposing`` needs

bit_count = instruction(
    "popc.b32 $0, $1;", ("u32",), ("u32",), lambda word: np.uint32(int(word).bit_count())
)
"""The number of set bits of a word."""

reverse_word = instruction(
    "brev.b32 $0, $1;",
    ("u32",),
    ("u32",),
    lambda word: np.uint32(int(f"{int(word):032b}"[::-1], 2)),
)
"""The bits of a word in reverse order."""

reverse_long = instruction(
    "brev.b64 $0, $1;",
    ("u64",),
    ("u64",),
    lambda word: np.uint64(int(f"{int(word):064b}"[::-1], 2)),
)
"""The bits of a uint64 in reverse order."""

leading_zeros = instruction(
    "clz.b32 $0, $1;", ("u32",), ("u32",), lambda word: np.uint32(32 - int(word).bit_length())
)
"""The zeros above the highest set bit; 32 for 0."""

funnel = instruction(
    "shf.r.wrap.b32 $0, $1, $2, $3;",
    ("u32",),
    ("u32", "u32", "u32"),
    lambda low, high, by: np.uint32((int(high) << 32 | int(low)) >> (int(by) & 31) & 0xFFFFFFFF),
)
"""The 32 bits of two words, the low one first, from bit ``by`` % 32 on."""

lowest_bit = instruction(
    "{ .reg .u32 x; brev.b32 x, $1; bfind.shiftamt.u32 $0, x; }",
    ("u32",),
    ("u32",),
    lambda word: np.uint32((int(word) & -int(word)).bit_length() - 1),
)
"""The index of the lowest set bit of a nonzero word."""


def _exchange(own: str, other: str, shift: int) -> str:
    """Per 2 * shift bits, exchange the high half of one word with the low half of the other."""
    if shift >= 8:
        low, high = ("0x5410", "0x7632") if shift == 16 else ("0x6240", "0x7351")
        return (
            f"prmt.b32 x, {own}, {other}, {low}; prmt.b32 {other}, {own}, {other}, {high}; "
            f"mov.b32 {own}, x;"
        )
    mask = sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift))
    return (
        f"shl.b32 x, {other}, {shift}; shr.b32 y, {own}, {shift}; "
        f"lop3.b32 {own}, {own}, x, {mask}, {SELECT}; "
        f"lop3.b32 {other}, y, {other}, {mask}, {SELECT};"
    )


def transposing(names: Sequence[str], shifts: tuple[int, ...] = (16, 8, 4, 2, 1)) -> str:
    """Instructions that exchange bit i of register j and bit j of register i.

    With only some of the shifts (16 and 8: bytes; 4, 2, 1: bits of each byte) fewer registers: 4,
    8.
    """
    steps = [len(names) // 2 * shift // max(shifts) for shift in shifts]
    return " ".join(
        _exchange(names[i], names[i + step], shift)
        for shift, step in zip(shifts, steps, strict=True)
        for i in range(len(names))
        if not i & step
    )


def transposed(words: Sequence[Any]) -> NDArray[np.uint32]:
    """The transpose of 32 words, in plain Python."""
    bits = np.unpackbits(np.array(words, dtype="<u4").view(np.uint8), bitorder="little")
    return np.packbits(bits.reshape(32, 32).T, bitorder="little").view("<u4")


def bytes_of(array: Any) -> NDArray[np.uint8]:
    """The bytes of an array passed to a kernel by the simulator."""
    flat: NDArray[np.uint8] = getattr(array, "_ary", array).view(np.uint8)
    return flat


def _load(array: Any, index: Any) -> Any:
    return tuple(bytes_of(array)[16 * int(index) :][:16].view(np.uint32))


def _store(array: Any, index: Any, *words: Any) -> None:
    bytes_of(array)[16 * int(index) :][:16].view(np.uint32)[:] = words


load_four = instruction(
    "{ .reg .u64 at; shl.b64 at, $5, 4; add.u64 at, at, $4; "
    "ld.global.nc.v4.u32 {$0, $1, $2, $3}, [at]; }",
    ("u32",) * 4,
    ("global", "u64"),
    _load,
)
"""(array, index): words 4 index to 4 index + 3 (uint32) of a read-only array."""

store_four = instruction(
    "{ .reg .u64 at; shl.b64 at, $1, 4; add.u64 at, at, $0; "
    "st.global.v4.u32 [at], {$2, $3, $4, $5}; }",
    (),
    ("global", "u64", "u32", "u32", "u32", "u32"),
    _store,
    volatile=True,
)
"""(array, index, a, b, c, d): write words 4 index to 4 index + 3."""

stage_four = instruction(
    "{ .reg .u32 at; shl.b32 at, $1, 4; add.u32 at, at, $0; "
    "st.shared.v4.u32 [at], {$2, $3, $4, $5}; }",
    (),
    ("shared", "u32", "u32", "u32", "u32", "u32"),
    _store,
    volatile=True,
)
"""As ``store_four``, in shared memory; the array is aligned to 16 bytes."""


def _word_of(address: Any) -> int:
    assert int(address) % 4 == 0
    return int(address) // 4


def _store_word(array: Any, address: Any, word: Any) -> None:
    array[_word_of(address)] = word


# volatile: it keeps the load after the preceding barrier
load_shared = instruction(
    "ld.shared.u32 $0, [$1];",
    ("u32",),
    ("simulated", "u32"),
    lambda array, address: array[_word_of(address)],
    volatile=True,
)
"""The word of a uint32 array in shared memory at an address in it (``address_of``), 4 | address.

An array index costs two instructions per load, since numba cannot assume that the sum of two uint32
stays below 2^32. Adding a constant to a byte address is free, as it becomes part of the load:

    own = np.uint32(address_of(rows) + np.uint32(4) * lane)             # once
    word = load_shared(rows, np.uint32(own + np.uint32(512)))           # LDS word, [own + 0x200]
"""

store_shared = instruction(
    "st.shared.u32 [$0], $1;", (), ("simulated", "u32", "u32"), _store_word, volatile=True
)
"""Store a word of a uint32 array in shared memory at an address in it, 4 | address."""
