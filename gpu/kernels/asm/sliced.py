"""The bit-sliced search: a thread has 32 text segments, a bit each; two registers are a row of D.

    vp_i, vm_i   D[i, j-1] - D[i-1, j-1] is +1, -1      hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        the letters are equal, or vm, or hm: D[i, j] = D[i-1, j-1]
    hp' = vm | ~(z | vp)   hm' = z & vp                 vp' = hm | ~(z | hp)   vm' = z & hp

Five operations (three of them three-input) for 32 cells, whatever the distance. Four columns go
through the rows together, so that a row's letter is looked up once for four. The words that tell
where a symbol equals a letter lie in shared memory, [letter, column, thread], written by the thread
that reads them: no barrier, no bank conflict.

A thread's segments are ``span`` columns long; before them it runs ``lead`` columns of the segments
to their left, which are its own shifted by one bit, from a column of D that is D[i, 0] = i.
Patterns of more than ROWS rows are cut into strips, a launch each, which hand (hp, hm) on through
global memory.

The score of the last strip is kept in planes, the two's complement of D - k - 1: a full adder a
plane (two operations) adds hp - hm. The sign plane is the hits.

Operations a column and thread for m rows: 5 m + m / 4, 4 for the letters, 2 a plane (6 planes up to
m = 32), about 6 for loads and stores of text and hits; for 32 symbols. m = 32: 6 a symbol. Shared
memory: m + m / 4 loads of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import SIMULATED, cuda, load_word

THREADS = 128
"""Threads a block, whole groups of 32."""

ROWS = 32
"""Rows of a strip at most: 64 registers of state."""

COLUMNS = 4


class Strip(NamedTuple):
    """What a kernel is made for.

    rows: of the strip. first: row 1 of D is in it. planes: of the score, 0 if it is not the last
    strip. letters: distinct letters there is room for, 4 for plain bases.
    """

    rows: int
    first: bool
    planes: int
    letters: int


def score_planes(rows: int) -> int:
    """Planes for any D - k - 1 with 0 <= D <= rows and 0 <= k < rows."""
    return 1 + (rows - 1).bit_length()


def _row_text() -> str:
    """$0 $1 and $10 $11: vp, vm out and in, then hp, hm of each column; $20 address, $21 step."""
    lines = ["{ .reg .u32 z, e, at;", "mov.b32 at, $20;"]
    for column in range(COLUMNS):
        hp, hm = f"${2 + 2 * column}", f"${3 + 2 * column}"
        vp_in, vm_in = ("$10", "$11") if column == 0 else ("$0", "$1")
        hp_in, hm_in = f"${12 + 2 * column}", f"${13 + 2 * column}"
        lines += [
            "ld.shared.u32 e, [at];",
            "add.u32 at, at, $21;" if column + 1 < COLUMNS else "",
            f"lop3.b32 z, e, {vm_in}, {hm_in}, 0xFE;",
            f"lop3.b32 {hp}, {vm_in}, z, {vp_in}, 0xF1;",
            f"and.b32 {hm}, z, {vp_in};",
            f"lop3.b32 $0, {hm_in}, z, {hp_in}, 0xF1;",
            f"and.b32 $1, z, {hp_in};",
        ]
    return " ".join([*lines, "}"])


if SIMULATED:

    def address_of(shared):  # type: ignore[no-untyped-def]
        """Where an array lies in shared memory, uint32."""
        return np.uint32(0)

    def row(equal, at, apart, vp, vm, *deltas):  # type: ignore[no-untyped-def]
        """(vp, vm, (hp, hm) a column) -> the same, one row of D on: see the head of this module.

        The words at ``at``, ``at + apart``, ... in shared memory (bytes) tell where the row's
        letter is in each column.
        """
        out = []
        for column in range(COLUMNS):
            hp, hm = deltas[2 * column], deltas[2 * column + 1]
            z = equal[(int(at) + column * apart) // 4] | vm | hm
            out += [vm | ~(z | vp), z & vp]
            vp, vm = hm | ~(z | hp), z & hp
        return (vp, vm, *out)

else:
    from llvmlite import ir
    from numba.core import types
    from numba.cuda.extending import intrinsic

    @intrinsic
    def address_of(typingctx: Any, shared: Any) -> Any:
        """Where an array lies in shared memory, uint32."""
        signature = types.uint32(shared)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            wide = ir.IntType(64)
            convert = ir.InlineAsm(
                ir.FunctionType(ir.IntType(32), [wide]),
                "{ .reg .u64 x; cvta.to.shared.u64 x, $1; cvt.u32.u64 $0, x; }",
                "=r,l",
                side_effect=False,
            )
            return builder.call(convert, [builder.ptrtoint(data, wide)])

        return signature, codegen

    def _row_code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        operands = [
            *args[3:],
            args[1],
            context.cast(builder, args[2], signature.args[2], types.uint32),
        ]
        returns = ir.LiteralStructType([word] * (2 + 2 * COLUMNS))
        constraints = ["=&r"] * (2 + 2 * COLUMNS) + ["r"] * (len(operands) - 1) + ["n"]
        text = ir.InlineAsm(
            ir.FunctionType(returns, [word] * len(operands)),
            _row_text(),
            # it reads what was stored before
            ",".join([*constraints, "~{memory}"]),
            side_effect=True,
        )
        answer = builder.call(text, operands)
        parts = [builder.extract_value(answer, i) for i in range(2 + 2 * COLUMNS)]
        return context.make_tuple(builder, signature.return_type, parts)

    @intrinsic
    def row(
        typingctx: Any, equal: Any, at: Any, apart: Any, vp: Any, vm: Any, hp0: Any, hm0: Any,
        hp1: Any, hm1: Any, hp2: Any, hm2: Any, hp3: Any, hm3: Any,
    ) -> Any:  # fmt: skip
        """(vp, vm, (hp, hm) a column) -> the same, one row of D on: see the head of this module.

        The words at ``at``, ``at + apart``, ... in shared memory (bytes) tell where the row's
        letter is in each column.
        """
        words: Any = types.UniTuple(types.uint32, 2 + 2 * COLUMNS)  # type: ignore[no-untyped-call, unused-ignore]
        taken = [types.uint32] * (2 + 2 * COLUMNS)
        return words(equal, types.uint32, apart, *taken), _row_code


add = instruction(
    "{ .reg .u32 s; lop3.b32 s, $2, $3, $4, 0x96; lop3.b32 $1, $2, $3, $4, 0xE8; mov.b32 $0, s; }",
    ("u32", "u32"),
    ("u32", "u32", "u32"),
    lambda a, b, c: (a ^ b ^ c, (a & b) | (c & (a | b))),
)
"""(a, b, carry) -> (sum, carry) of a full adder."""

shifted = instruction(
    "shf.l.wrap.b32 $0, $2, $1, 1;",
    ("u32",),
    ("u32", "u32"),
    lambda word, left: (word << np.uint32(1)) | (left >> np.uint32(31)),
)
"""A thread's word of the segments to the left: its own, and the last bit of the thread before."""


_KERNEL = """
def kernel(
    planes, gaps, groups, span, lead, patterns, first, sets, deltas, start, low_planes, sliced
):
    equal = cuda.shared.array({equal_size}, np.uint32)
    letters = cuda.shared.array({rows}, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    search = np.int64(cuda.blockIdx.y)
    for i in range(cuda.threadIdx.x, {rows}, {threads}):
        letters[i] = np.uint32(np.uint32(patterns[search, first + i]) * np.uint32({pitch}))
    mine = np.uint32(address_of(equal) + np.uint32(thread * np.uint32(4)))
    cuda.syncthreads()
    ones = np.uint32(0xFFFFFFFF)
    zero = np.uint32(0)
    worker = np.int64(cuda.grid(1))
    group = worker >> 5
    lane = worker & 31
    if group >= groups:
        return
    base = group * span * 32 + lane
    left = base - 1
    if lane == 0:
        left = (group - 1) * span * 32 + 31
    if worker == 0:
        left = base
    inner = zero
    if worker:
        inner = ones
    handed = group * (lead + span) * 32 + lane
    {reset}
    column = -lead
    while column < span:
        {text}
        {letters}
        {deltas_in}
        {cells}
        {deltas_out}
        {score}
        column += {columns}
"""


def _lines(indent: int, lines: list[str]) -> str:
    return ("\n" + " " * indent).join(lines)


def _text() -> list[str]:
    """Load the bits of COLUMNS columns; in the lead they come from the segments to the left.

    Before the text (bit 0 of the first thread) are gaps.
    """
    names = [(plane, f"{name}{c}", c) for plane, name in enumerate("ab") for c in range(COLUMNS)]
    gaps = [(2, f"g{c}", c) for c in range(COLUMNS)]
    lines = [" = ".join(name for _, name, _ in gaps) + " = zero"]
    lines += ["if column >= 0:", "    at = np.uint64(base + column * 32)"]
    load = "{name} = load_word(planes, np.uint64(at + np.uint64({plane} * size + {c} * 32)))"
    lines += ["    " + load.format(name=n, plane=p, c=c) for p, n, c in names]
    lines += ["    if gaps:"]
    lines += ["        " + load.format(name=n, plane=p, c=c) for p, n, c in gaps]
    lines += ["else:", "    at = np.uint64(base + (span + column) * 32)"]
    lines += ["    before = np.uint64(left + (span + column) * 32)"]
    for plane, name, c in [*names, *gaps]:
        if (plane, c) == (2, 0):
            lines += ["    if gaps:"]
        indent = "    " * (1 + (plane == 2))
        lines += [
            indent + load.format(name=name, plane=plane, c=c),
            indent + load.format(name="word", plane=plane, c=c).replace("(at +", "(before +"),
            indent + f"{name} = shifted({name}, word)",
        ]
    outside = "np.uint32(np.uint32(~inner) & np.uint32(1))"
    inside = f"np.uint32(~{outside})"
    lines += [f"    {name} = np.uint32({name} & {inside})" for _, name, _ in names]
    lines += [f"    {name} = np.uint32({name} | {outside})" for _, name, _ in gaps]
    return lines


def _letters(strip: Strip, threads: int) -> list[str]:
    """Where the symbols of the columns equal each letter, into shared memory."""
    lines = []
    for c in range(COLUMNS):
        lines += [
            f"e0 = np.uint32(~np.uint32(np.uint32(a{c} | b{c}) | g{c}))",
            f"e1 = np.uint32(a{c} & np.uint32(~b{c}))",
            f"e2 = np.uint32(b{c} & np.uint32(~a{c}))",
            f"e3 = np.uint32(a{c} & b{c})",
        ]
        if strip.letters == 4:
            lines += [
                f"equal[np.uint32(thread + np.uint32({(4 * x + c) * threads}))] = e{x}"
                for x in range(4)
            ]
            continue
        lines += [
            "for x in range(sets.shape[1]):",
            "    bases = sets[search, x]",
            "    word = zero",
        ]
        for x in range(4):
            lines += [f"    if bases & {1 << x}:", f"        word = np.uint32(word | e{x})"]
        lines += [f"    equal[(4 * x + {c}) * {threads} + cuda.threadIdx.x] = word"]
    return lines


def _cells(strip: Strip, threads: int) -> list[str]:
    handed = ", ".join(f"hp{c}, hm{c}" for c in range(COLUMNS))
    return [
        f"vp{i}, vm{i}, {handed} = row("
        f"equal, np.uint32(letters[{i}] + mine), {4 * threads}, vp{i}, vm{i}, {handed})"
        for i in range(strip.rows)
    ]


def _deltas(strip: Strip) -> tuple[list[str], list[str]]:
    """Where (hp, hm) above the strip come from, and where those below it go."""
    names = [(kind, f"{name}{c}", c) for kind, name in enumerate(("hp", "hm")) for c in range(4)]
    places = [f"deltas[search, {kind}, at + {32 * c}]" for kind, _, c in names]
    start = "at = np.uint64(handed + (lead + column) * 32)"
    places = [place.replace("at +", "at + np.uint64(").replace("]", ")]") for place in places]
    come = [" = ".join(name for _, name, _ in names) + " = zero"]
    if not strip.first:
        come = [start, *(f"{n} = {at}" for (_, n, _), at in zip(names, places, strict=True))]
    if strip.planes:
        return come, ["pass"]
    return come, [start, *(f"{at} = {n}" for (_, n, _), at in zip(names, places, strict=True))]


def _score(strip: Strip) -> list[str]:
    """Add hp - hm to the score, column by column; its sign is a hit."""
    if not strip.planes:
        return ["pass"]
    sign = strip.planes - 1
    lines = []
    for c in range(COLUMNS):
        old = (c - 1) % COLUMNS
        lines += [f"s0_{c}, carry = add(s0_{old}, np.uint32(hp{c} | hm{c}), zero)"]
        lines += [
            f"s{p}_{c}, carry = add(s{p}_{old}, hm{c}, carry)" for p in range(1, strip.planes)
        ]
    lines += ["if column >= 0:", "    at = np.uint64(out + column * 32)"]
    store = "sliced[np.uint64(at + np.uint64({p} * size + {c} * 32))] = s{plane}_{c}"
    lines += ["    " + store.format(p=0, c=c, plane=sign) for c in range(COLUMNS)]
    signs = " | ".join(f"s{sign}_{c}" for c in range(COLUMNS))
    lines += [f"    if ({signs}) != zero:", "        pass"]
    for p in range(sign):
        lines += [f"        if low_planes > {p}:"]
        lines += ["            " + store.format(p=1 + p, c=c, plane=p) for c in range(COLUMNS)]
    return lines


def scan(strip: Strip, threads: int) -> Callable[..., None]:
    """The kernel of a strip; ``[(groups * 32 / threads, searches), threads]``.

    Arguments: planes uint32[3 * groups * span * 32] (``order.slice_text``), gaps int32 (0: there
    are none), groups, span, lead int64 (4 | span, 4 | lead <= span), patterns uint8[searches, m]
    (which letter each row is), first int32 (the strip's first row), sets uint8[searches, letters]
    (the bases of a letter; not read if strip.letters is 4), deltas uint32[searches, 2,
    groups * (lead + span) * 32] (between strips), start int32 (m - k - 1), low_planes int32, sliced
    uint32[searches * (1 + low_planes) * groups * span * 32].
    """
    reset = ["size = groups * span * 32"]
    reset += [f"vp{i} = ones\n    vm{i} = zero" for i in range(strip.rows)]
    reset += [
        f"s{p}_{COLUMNS - 1} = ones if start >> {p} & 1 else zero" for p in range(strip.planes)
    ]
    reset += ["out = search * (1 + low_planes) * size + base"]
    come, go = _deltas(strip)
    text = _KERNEL.format(
        equal_size=strip.letters * COLUMNS * threads,
        rows=strip.rows,
        threads=threads,
        pitch=4 * COLUMNS * threads,
        columns=COLUMNS,
        reset=_lines(4, reset),
        text=_lines(8, _text()),
        letters=_lines(8, _letters(strip, threads)),
        deltas_in=_lines(8, come),
        cells=_lines(8, _cells(strip, threads)),
        deltas_out=_lines(8, go),
        score=_lines(8, _score(strip)),
    )
    scope = {
        "cuda": cuda, "np": np, "row": row, "add": add, "address_of": address_of,
        "load_word": load_word, "shifted": shifted,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]  # type: ignore[assignment]
    return made


def signature() -> tuple[str, ...]:
    """Argument types of ``scan``."""
    return (
        "uint32[::1]", "int32", "int64", "int64", "int64", "uint8[:,::1]", "int32", "uint8[:,::1]",
        "uint32[:,:,::1]", "int32", "int32", "uint32[::1]",
    )  # fmt: skip
