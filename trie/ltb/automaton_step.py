"""One step of the bit-sliced automaton as vector code: a child's states from those of its parent.

numba leaves such a loop as scalars, because it cannot know that the rows of its arrays are apart,
so the step is written in LLVM's vector type <W x i64>, W words of 64 symbols each:

    E[0] = P[0] & letter
    E[d] = P[d - 1] ^ ((P[d] ^ P[d - 1]) & letter)  |  P'[d - 1]
    P'[d] = (E[d] << 1, carried from word to word) & same_read

P is read at ``above``, P' written at ``below``, E at the start of ``states``. Operations a level
and vector: 4 for E (3 where the machine has three-input logic), 6 for P'. Rows are W words.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

W: Final = 8
"""Words a vector: two registers of 256 bits, or one of 512."""

ACTIVE, EXACT = 1, 2
"""Bits of a step's result: some state is active; some state of level 0 is, and goes on."""

_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, W)
_LANE = ir.IntType(32)


def _vector(values: list[int]) -> Any:
    return ir.Constant(_VECTOR, values)


def _row(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """The address of W words of an array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


def _load(builder: Any, address: Any) -> Any:
    word = builder.load(address)
    word.align = 8
    return word


def _any(builder: Any, vector: Any) -> Any:
    wide = ir.IntType(64 * W)
    bits = builder.bitcast(vector, wide)
    return builder.zext(builder.icmp_unsigned("!=", bits, ir.Constant(wide, 0)), _WORD)


def _one_symbol_on(builder: Any, vector: Any) -> Any:
    """All W words shifted left by one bit, as one number."""
    carries = builder.lshr(vector, _vector([63] * W))
    moved = builder.shuffle_vector(
        _vector([0] * W),
        carries,
        ir.Constant(ir.VectorType(_LANE, W), [0, *range(W, 2 * W - 1)]),
    )
    return builder.or_(builder.shl(vector, _vector([1] * W)), moved)


def step_for(levels: int) -> Any:
    """The step for so many dist-levels, an intrinsic.

    (before uint64[], above, below, planes uint64[], letter, states uint64[]) -> uint64 of ACTIVE
    and EXACT. ``above``, ``below`` and ``letter`` are offsets in words; row 0 of ``planes`` is
    ``same_read``. Nothing checks bounds.
    """

    def step(
        typingctx: Any, before: Any, above: Any, below: Any, planes: Any, letter: Any, states: Any
    ) -> Any:
        signature = types.uint64(before, types.uint64, types.uint64, planes, types.uint64, states)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args

            def row(at: int, offset: Any, number: int = 0) -> Any:
                offset = builder.add(offset, _WORD(number * W))
                return _row(context, builder, kinds[at], args[at], offset)

            chosen = _load(builder, row(3, args[4]))
            same_read = _load(builder, row(3, _WORD(0)))
            own = [_load(builder, row(0, args[1], d)) for d in range(levels)]
            following: list[Any] = []
            every = None
            for d in range(levels):
                if d == 0:
                    here = builder.and_(own[0], chosen)
                else:
                    differ = builder.and_(builder.xor(own[d], own[d - 1]), chosen)
                    here = builder.or_(builder.xor(own[d - 1], differ), following[-1])
                builder.store(here, row(5, _WORD(0), d)).align = 8
                following.append(builder.and_(_one_symbol_on(builder, here), same_read))
                builder.store(following[-1], row(0, args[2], d)).align = 8
                every = here if every is None else builder.or_(every, here)
            exact = builder.shl(_any(builder, following[0]), _WORD(1))
            return builder.or_(_any(builder, every), exact)

        return signature, codegen

    step.__doc__ = f"A step with {levels} dist-levels."
    return intrinsic(step)


STEPS: Final = tuple(step_for(levels) for levels in range(1, 6))
STEP_1, STEP_2, STEP_3, STEP_4, STEP_5 = STEPS
