"""Operations of the LCS kernels that CUDA has no functions for.

    step           four columns of a lane's words, in PTX: the carries of the additions stay in the
                   carry flag, which only PTX can access
    read_cell, write_cell   8 bytes that other warps write and read while the kernel runs
    rows_from      32 bits of a bit-vector starting at any row

The operations of ``step`` for each column and lane, W words of 32 rows:

    address    dp4a                 the column's byte, weighted, is added to the lane's address
    matches    ld.shared            one for 4 words, without bank conflicts: 16 bytes a lane,
                                    adjacent
    carry in   add.cc x, x, x       the topmost bit of x falls into the carry flag, the next moves
                                    up
    a word     and, addc.cc, lop3   u = v & m; s = v + u + carry; v = s | (v & ~m)
    carry out  addc o, o, o         o moves up, the carry flag comes in

So 3 W + 1 operations of the integer units for 32 W cells; the dot product and the carries out run
in parallel on the multipliers. Selecting a match word from bit planes would cost the integer units
one more operation per word.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from gpu.card.intrinsics import SIMULATED, device_function, funnel, instruction, reverse_word

COLUMNS = 4  # columns of one step: their symbols are the bytes of a word, the first lowest


def group_words(words: int) -> int:
    """Words of a lane that are adjacent in shared memory and loaded at once."""
    return min(words, 4)


def symbol_words(words: int) -> int:
    """Words of shared memory for the match words of a symbol: all lanes', in whole groups."""
    group = group_words(words)
    return 32 * group * -(-words // group)


def scale_of(symbols: int) -> int:
    """The factor of a symbol in a column's byte, so that a byte reaches every symbol's words."""
    return 8 if 8 * symbols <= 255 else 1


def step_assembly(words: int, scale: int) -> str:
    """The PTX of ``step``: $0 carries out, then the words; symbols, address, carries in, the
    words."""
    group = group_words(words)
    weight = 4 * symbol_words(words) // scale
    assert weight <= 255
    new = [f"${1 + i}" for i in range(words)]
    symbols, address, carries = (f"${words + 1 + i}" for i in range(3))
    old = [f"${words + 4 + i}" for i in range(words)]

    def match(column: int, word: int) -> str:
        return f"m{column}_{word}"

    def load(column: int) -> list[str]:
        lines = [f"dp4a.u32.u32 t, {symbols}, {weight << (8 * column):#x}, {address};"]
        for first in range(0, words, group):
            named = [match(column, i) for i in range(first, min(first + group, words))]
            vector = {1: "", 2: ".v2", 4: ".v4"}[len(named)]
            target = f"{{{', '.join(named)}}}" if vector else named[0]
            lines.append(f"ld.shared{vector}.u32 {target}, [t+{128 * first}];")
        return lines

    matches = [match(column, i) for column in range(COLUMNS) for i in range(words)]
    lines = [f".reg .b32 x, t, {', '.join(f'u{i}, s{i}' for i in range(words))};"]
    lines += [f".reg .b32 {', '.join(matches)};", f"mov.b32 x, {carries};", "mov.b32 $0, 0;"]
    lines += load(0)
    for column in range(COLUMNS):
        if column + 1 < COLUMNS:
            # issued before the previous column's work, which hides the load
            lines += load(column + 1)
        v = old if column == 0 else new
        m = [match(column, i) for i in range(words)]
        lines += [f"and.b32 u{i}, {v[i]}, {m[i]};" for i in range(words)]
        lines.append("add.cc.u32 x, x, x;")
        lines += [f"addc.cc.u32 s{i}, {v[i]}, u{i};" for i in range(words)]
        lines.append("addc.u32 $0, $0, $0;")
        lines += [f"lop3.b32 {new[i]}, s{i}, {v[i]}, {m[i]}, 0xF4;" for i in range(words)]
    return "{ " + " ".join(lines) + " }"


@cache
def step(words: int, scale: int) -> Any:
    """step(table, symbols, address, carries, v) -> (carries out, v...): four columns of W words.

    table: the match words in shared memory (only the simulator reads it). symbols: ``scale`` times
    the columns' symbols, one byte each. address: ``address_of`` the lane's words of symbol 0.
    carries: bit 31 enters at the first column, ..., bit 28 at the fourth; outgoing carries are
    returned in bits 3 to 0. v: a tuple of W uint32, 0 where the length grows.
    """
    if SIMULATED:

        def simulated(table: Any, symbols: Any, address: Any, carries: Any, v: Any) -> Any:
            ones = (1 << (32 * words)) - 1
            whole = sum(int(word) << (32 * i) for i, word in enumerate(v))
            out = 0
            for column in range(COLUMNS):
                symbol = (int(symbols) >> (8 * column) & 255) // scale
                at = int(address) // 4 + symbol_words(words) * symbol
                m = sum(
                    int(table[at + 32 * (i // 4 * 4) + i % 4]) << (32 * i) for i in range(words)
                )
                total = whole + (whole & m) + (int(carries) >> (31 - column) & 1)
                out = out << 1 | total >> (32 * words)
                whole = (total | (whole & ~m)) & ones
            return (
                np.uint32(out),
                *(np.uint32(whole >> (32 * i) & 0xFFFFFFFF) for i in range(words)),
            )

        return simulated
    # volatile: it reads shared memory, which the compiler cannot see
    assembled = instruction(
        step_assembly(words, scale),
        ("u32",) * (words + 1),
        ("u32",) * (words + 3),
        lambda *_: None,
        volatile=True,
    )

    @device_function
    def step(table, symbols, address, carries, v):
        return assembled(symbols, address, carries, *v)

    return step


if SIMULATED:

    def read_cell(cells: Any, index: Any) -> Any:
        """cells[index] (uint64) as it is in memory now."""
        return cells[int(index)]

    def write_cell(cells: Any, index: Any, value: Any) -> None:
        """Write a cell at once, for every warp of the GPU."""
        cells[int(index)] = value

    def address_of(table: Any, index: Any) -> Any:
        """The address in shared memory of ``table[index]``."""
        return np.uint32(4 * int(index))

else:
    from numba.cuda.extending import intrinsic

    _I64 = ir.IntType(64)

    def _at_element(
        assembly: str, constraints: str, returns: ir.Type, shift: int, *, effect: bool
    ) -> Callable[..., Any]:
        """Code that runs assembly on the address of args[0][args[1]], and on args[2:].

        shift: the logarithm of an element's bytes. effect: it reads or writes memory that other
        threads write.
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            index = context.cast(builder, args[1], signature.args[1], types.uint64)
            offset = builder.shl(index, _I64(shift))
            values = [builder.add(builder.ptrtoint(data, _I64), offset), *args[2:]]
            kind = ir.FunctionType(returns, [_I64] * len(values))
            answer = builder.call(
                ir.InlineAsm(kind, assembly, constraints, side_effect=effect), values
            )
            is_void = isinstance(returns, ir.VoidType)
            return context.get_dummy_value() if is_void else answer

        return codegen

    @intrinsic
    def read_cell(typingctx: Any, cells: Any, index: Any) -> Any:
        """cells[index] (uint64) as it is in memory now."""
        load = "ld.relaxed.gpu.global.u64 $0, [$1];"
        return types.uint64(cells, index), _at_element(load, "=l,l", _I64, 3, effect=True)

    @intrinsic
    def write_cell(typingctx: Any, cells: Any, index: Any, value: Any) -> Any:
        """Write a cell at once, for every warp of the GPU."""
        store = "st.relaxed.gpu.global.u64 [$0], $1;"
        codegen = _at_element(store, "l,l", ir.VoidType(), 3, effect=True)
        return types.void(cells, index, types.uint64), codegen

    @intrinsic
    def address_of(typingctx: Any, table: Any, index: Any) -> Any:
        """The address in shared memory of ``table[index]``."""
        convert = "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }"
        codegen = _at_element(convert, "=r,l", ir.IntType(32), 2, effect=False)
        return types.uint32(table, index), codegen


@device_function
def word_or_zero(words, first, count, index):
    """words[first + index], 0 outside of [0, count)."""
    if index < 0 or index >= count:
        return np.uint32(0)
    return np.uint32(words[first + index])


@device_function
def rows_from(words, first, count, row):
    """The 32 bits from ``row`` (any int64) on of a bit-vector of ``count`` words at
    words[first]."""
    index = row >> 5
    low = word_or_zero(words, first, count, index)
    high = word_or_zero(words, first, count, index + 1)
    return funnel(low, high, np.uint32(row & 31))


@device_function
def rows_of(words, first, count, row, backward):
    """The 32 bits from ``row`` on, or with ``backward`` those before it, nearest first."""
    if backward:
        return reverse_word(rows_from(words, first, count, row - 32))
    return rows_from(words, first, count, row)
