"""Building blocks of LLVM code, and a decorator for instructions that numba does not offer.

An array argument of an instruction is the address of its first element. Arrays are
one-dimensional and C-contiguous; places in them are counted in elements and not checked.

C functions called from kernels, without the GIL.

An extension module wraps its C library one call at a time, and releases and takes the GIL for each.
With several threads, one wait for the GIL takes longer than many of the calls. A kernel makes all
the calls without it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.core import codegen, config
from numba.extending import intrinsic

INDEX = types.int64

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
BYTES = ir.VectorType(I8, 64)
WORDS8 = ir.VectorType(I64, 8)

# untyped, as some annotations do not match what the functions accept
cgutils: Any = _cgutils


def instruction(result: Any, *parameters: Any, name: str = "") -> Callable[[Any], Any]:
    """A decorator that turns a function that builds LLVM code into an instruction for kernels.

    result, parameters: numba types. A parameter of None accepts any type; a result of None has the
    type of the first argument. The function is called with the builder and a value for each
    argument.
    """

    def decorate(body: Callable[..., Any]) -> Any:
        def typed(typingctx: Any, *types_: Any) -> Any:
            kinds = [
                own if kind is None else kind for own, kind in zip(types_, parameters, strict=True)
            ]

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                values = [
                    context.make_array(kind)(context, builder, value).data
                    if isinstance(kind, types.Array)
                    else value
                    for kind, value in zip(signature.args, args, strict=True)
                ]
                made = body(builder, *values)
                return context.get_dummy_value() if result is types.void else made

            return (types_[0] if result is None else result)(*kinds), generate

        functools.update_wrapper(typed, body)
        typed.__name__ = name or body.__name__
        own_names = list(inspect.signature(body).parameters)[1:]
        if len(own_names) != len(parameters):
            own_names = [f"x{i}" for i in range(len(parameters))]
        # numba inspects the names of the arguments
        typed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(own, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for own in ("typingctx", *own_names)
            ]
        )
        return intrinsic(typed)

    return decorate


@functools.cache
def has_feature(name: str) -> bool:
    """Whether numba compiles for a CPU with a feature, given by its LLVM name.

    Respects NUMBA_CPU_FEATURES and NUMBA_CPU_NAME.
    """
    settings: Any = config
    features = settings.CPU_FEATURES
    if features is None:
        if settings.CPU_NAME == "generic":
            return False
        features = codegen.get_host_cpu_features()  # type: ignore[no-untyped-call, unused-ignore]
    return f"+{name}" in features.split(",")


def call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(builder.module.declare_intrinsic(name, [], kind), values)


def plus(builder: Any, at: Any, count: int) -> Any:
    """The place ``count`` elements further."""
    return builder.add(at, I64(count)) if count else at


def element(builder: Any, data: Any, at: Any, pointed: Any = None) -> Any:
    """The address of an element, as a pointer to ``pointed`` if given."""
    address = builder.gep(data, [at])
    return address if pointed is None else builder.bitcast(address, pointed.as_pointer())


def load(builder: Any, data: Any, at: Any, vector: Any = WORDS8) -> Any:
    """The vector whose first element is at a place."""
    return builder.load(element(builder, data, at, vector), align=vector.element.width // 8)


def store(builder: Any, value: Any, data: Any, at: Any) -> None:
    """Write a vector to a place."""
    vector = value.type
    builder.store(value, element(builder, data, at, vector), align=vector.element.width // 8)


def constant(vector: Any, *numbers: int) -> Any:
    """A vector of these numbers; a single one stands in every lane."""
    values = list(numbers) * (vector.count if len(numbers) == 1 else 1)
    return ir.Constant(vector, [vector.element(value) for value in values])


def shuffle(builder: Any, vector: Any, other: Any, lanes: list[int]) -> Any:
    """The lanes with these numbers, where those of ``other`` follow those of ``vector``."""
    return builder.shuffle_vector(vector, other, constant(ir.VectorType(I32, len(lanes)), *lanes))


def spread(builder: Any, value: Any, vector: Any) -> Any:
    """A vector with that value in every lane."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, I32(0))
    return shuffle(builder, first, nothing, [0] * vector.count)


class _Bits:
    """A value whose bitwise operators in Python generate code."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def __and__(self, other: _Bits) -> _Bits:
        return _Bits(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: _Bits) -> _Bits:
        return _Bits(self.builder, self.builder.or_(self.value, other.value))

    def __xor__(self, other: _Bits) -> _Bits:
        return _Bits(self.builder, self.builder.xor(self.value, other.value))

    def __invert__(self) -> _Bits:
        return _Bits(self.builder, self.builder.not_(self.value))


def bitwise(builder: Any, function: Callable[..., Any], *values: Any) -> Any:
    """A bitwise function of vectors; of three it is a single instruction with AVX-512.

    LLVM finds that instruction only for some forms of an expression.
    """
    if len(values) == 3 and values[0].type == WORDS8 and has_feature("avx512f"):
        table = function(0b11110000, 0b11001100, 0b10101010) & 0xFF
        return call(builder, "llvm.x86.avx512.pternlog.q.512", WORDS8, *values, I32(table))
    return function(*(_Bits(builder, value) for value in values)).value


def prefetch(builder: Any, address: Any, *, level: int, write: bool = False) -> None:
    """Prefetch the cache line at an address into that cache level and all below it."""
    byte = builder.bitcast(address, I8.as_pointer())
    # LLVM's locality 3 is the first level; the last argument selects the data cache
    arguments = [byte, I32(int(write)), I32(4 - level), I32(1)]
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in arguments])
    builder.call(builder.module.declare_intrinsic("llvm.prefetch", [byte.type], kind), arguments)


_KINDS: dict[str, tuple[Any, Any]] = {
    "int": (types.int32, I32),
    "unsigned": (types.uint32, I32),
    "size": (types.int64, I64),
    "pointer": (types.uint64, I8.as_pointer()),
}


def foreign(result: str, *arguments: str) -> Any:
    """A function for kernels that calls the C function at an address (uint64), its first argument.

    Kinds are ``int`` (int32), ``unsigned`` (uint32), ``size`` (int64) and ``pointer`` (uint64).
    """
    kinds = [_KINDS[kind][1] for kind in arguments]

    @instruction(_KINDS[result][0], types.uint64, *(_KINDS[kind][0] for kind in arguments))
    def called(builder: Any, address: Any, *values: Any) -> Any:
        function = builder.inttoptr(address, ir.FunctionType(_KINDS[result][1], kinds).as_pointer())
        passed = [
            builder.inttoptr(value, kind) if kind == _KINDS["pointer"][1] else value
            for value, kind in zip(values, kinds, strict=True)
        ]
        answer = builder.call(function, passed)
        return builder.ptrtoint(answer, I64) if result == "pointer" else answer

    return called
