"""Four columns of 32 segments of the bit-sliced search, in registers (``strips``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.card.assembly import instruction

COLUMNS = 4  # columns processed together


def _strip_text(rows: int, apart: int) -> str:
    """vp, vm of every row and hp, hm of every column, out and in; letters, equal, mine."""
    size = 2 * rows + 2 * COLUMNS
    lines = ["{ .reg .u32 at, base, e, z, p, m;"]
    lines += [f"mov.b32 ${i}, ${size + i};" for i in range(size)]
    lines += [f"add.u32 base, ${2 * size + 1}, ${2 * size + 2};"]
    letters = f"${2 * size}"
    for i in range(rows):
        vp, vm = f"${2 * i}", f"${2 * i + 1}"
        lines += [f"ld.shared.u32 at, [{letters} + {4 * i}]; add.u32 at, at, base;"]
        for column in range(COLUMNS):
            hp, hm = f"${2 * (rows + column)}", f"${2 * (rows + column) + 1}"
            lines += [
                f"ld.shared.u32 e, [at + {apart * column}];",
                f"lop3.b32 z, e, {vm}, {hm}, 0xFE;",
                f"lop3.b32 p, {vm}, z, {vp}, 0xF1; and.b32 m, z, {vp};",
                f"lop3.b32 {vp}, {hm}, z, {hp}, 0xF1; and.b32 {vm}, z, {hp};",
                f"mov.b32 {hp}, p; mov.b32 {hm}, m;",
            ]
    return " ".join([*lines, "}"])


def strip_of(rows: int, apart: int) -> Any:
    """An instruction that takes four columns through the rows of a strip.

    (vp, vm of each row, hp, hm of each column, letters, equal, mine) -> all but the last three. The
    words of ``equal``, ``apart`` bytes apart, starting at ``mine`` plus the row's element of
    ``letters``, mark where each column has the row's letter; addresses are in bytes.
    """

    def simulated(*given: Any) -> Any:
        words = list(given[: 2 * rows + 2 * COLUMNS])
        letters, equal, mine = given[-3:]
        for i in range(rows):
            vp, vm = words[2 * i : 2 * i + 2]
            for column in range(COLUMNS):
                at = 2 * (rows + column)
                hp, hm = words[at : at + 2]
                z = equal[(int(letters[i]) + int(mine) + column * apart) // 4] | vm | hm
                words[at : at + 2] = vm | ~(z | vp), z & vp
                vp, vm = hm | ~(z | hp), z & hp
            words[2 * i : 2 * i + 2] = vp, vm
        return tuple(words)

    size = 2 * rows + 2 * COLUMNS
    arguments = (*["u32"] * size, "shared", "shared", "u32")
    return instruction(
        _strip_text(rows, apart), ("u32",) * size, arguments, simulated, volatile=True
    )


def score_of(planes: int) -> Any:
    """An instruction that adds hp - hm to a score, column by column.

    (the score's planes before, hp and hm of each column) -> plane 0 after columns 0, 1, 2, 3, then
    plane 1, ...: a full adder per plane; plane 0 adds hp | hm, the others hm.
    """
    size = COLUMNS * planes
    lines = ["{ .reg .u32 x, carry;"]
    for c in range(COLUMNS):
        hp, hm = f"${size + planes + 2 * c}", f"${size + planes + 2 * c + 1}"
        lines += [f"or.b32 x, {hp}, {hm};"]
        for p in range(planes):
            old = f"${COLUMNS * p + c - 1}" if c else f"${size + p}"
            new = f"${COLUMNS * p + c}"
            if p == 0:
                lines += [f"xor.b32 {new}, {old}, x; and.b32 carry, {old}, x;"]
            else:
                lines += [f"lop3.b32 {new}, {old}, {hm}, carry, 0x96;"]
                lines += [f"lop3.b32 carry, {old}, {hm}, carry, 0xE8;"]

    def simulated(*given: Any) -> Any:
        score, out = list(given[:planes]), []
        for c in range(COLUMNS):
            hp, hm = given[planes + 2 * c : planes + 2 * c + 2]
            carry = np.uint32(0)
            for p in range(planes):
                one, other = score[p], hm if p else hp | hm
                score[p] = one ^ other ^ carry
                carry = (one & other) | (carry & (one | other))
            out += [list(score)]
        return tuple(out[c][p] for p in range(planes) for c in range(COLUMNS))

    arguments = ("u32",) * (planes + 2 * COLUMNS)
    return instruction(" ".join([*lines, "}"]), ("u32",) * size, arguments, simulated)


def _entered(*given: Any) -> Any:
    words, left, (keep, more) = given[:COLUMNS], given[COLUMNS : 2 * COLUMNS], given[-2:]
    one = np.uint32(1)
    return tuple(
        ((a << one) | (b >> np.uint32(31))) & keep | more for a, b in zip(words, left, strict=True)
    )


# 0xEA: (a & b) | c
entered = instruction(
    "{ .reg .u32 x; "
    + " ".join(
        f"shf.l.wrap.b32 x, ${2 * COLUMNS + c}, ${COLUMNS + c}, 1; "
        f"lop3.b32 ${c}, x, ${3 * COLUMNS}, ${3 * COLUMNS + 1}, 0xEA;"
        for c in range(COLUMNS)
    )
    + " }",
    ("u32",) * COLUMNS,
    ("u32",) * (2 * COLUMNS + 2),
    _entered,
)
"""(column words, those of the previous thread, keep, more): the segments to the left.

A thread's word is its own, shifted by one, with the previous thread's last bit; ANDed with
``keep``, ORed with ``more``.
"""


def base_words(threads: int) -> Any:
    """(a, b, gap of each column, equal, mine): store where each base is to shared memory."""
    size = 3 * COLUMNS
    lines = [f"{{ .reg .u32 x, at; add.u32 at, ${size}, ${size + 1};"]
    for c in range(COLUMNS):
        a, b, gap = f"${c}", f"${COLUMNS + c}", f"${2 * COLUMNS + c}"
        # 0x01: none of the three, 0x30: a & ~b, 0x0C: b & ~a, 0xC0: both
        for x, table in enumerate(("0x01", "0x30", "0x0C", "0xC0")):
            lines += [f"lop3.b32 x, {a}, {b}, {gap}, {table};"]
            lines += [f"st.shared.u32 [at + {4 * threads * (COLUMNS * x + c)}], x;"]

    def simulated(*given: Any) -> None:
        equal, mine = given[-2:]
        for c in range(COLUMNS):
            a, b, gap = given[c], given[COLUMNS + c], given[2 * COLUMNS + c]
            for x, word in enumerate((~(a | b | gap), a & ~b, b & ~a, a & b)):
                equal[int(mine) // 4 + threads * (COLUMNS * x + c)] = word

    arguments = (*["u32"] * size, "shared", "u32")
    return instruction(" ".join([*lines, "}"]), (), arguments, simulated, volatile=True)
