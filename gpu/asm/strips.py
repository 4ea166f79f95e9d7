"""The bit-sliced search: a thread has 32 text segments, one per bit; two registers hold a row of D.

    vp_i, vm_i   D[i, j-1] - D[i-1, j-1] is +1, -1      hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        the letters are equal, or vm, or hm: D[i, j] = D[i-1, j-1]
    hp' = vm | ~(z | vp)   hm' = z & vp                 vp' = hm | ~(z | hp)   vm' = z & hp

Five operations (three of them three-input) for 32 cells, whatever the distance. Four columns are
processed together, so a row's letter is looked up once for four. The words that mark where a symbol
equals a letter are in shared memory, [letter, column, thread]; each is read only by the thread that
wrote it: no barrier, no bank conflict.

A thread's segments are ``span`` columns long; before them it processes the last ``lead`` columns of
the segments to their left, which are its own shifted by one bit, starting from the column D[i, 0] =
i. Patterns of more than ROWS rows are cut into strips, one launch each, which pass (hp, hm) through
global memory.

The score of the last strip is kept in planes, the two's complement of D - k - 1: a full adder per
plane (two operations) adds hp - hm. The sign plane marks the hits.

Operations per column and thread (32 symbols) for m rows: 5 m + m / 4, 4 for the letters, 2 per
plane (6 planes up to m = 32), about 6 for text and hits. m = 32: 6 per symbol. Shared memory: m + m
/ 4 loads of 4 bytes. Text and hits are loaded and stored four columns at once (``slicing``).

Four columns of 32 segments of the bit-sliced search, in registers (``strips``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpu.card.intrinsics import cuda, instruction, load_four, store_four

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


THREADS = 128  # threads per block, whole warps
ROWS = 32  # most rows in a strip: 64 registers of state
TILE = 128  # columns counted and listed together; a power of two, at least 32


class Strip(NamedTuple):
    """The parameters of a kernel.

    rows: of the strip. first: whether row 1 of D is in it. planes: of the score, 0 unless it is the
    last strip. letters: most distinct letters, 4 for plain bases.
    """

    rows: int
    first: bool
    planes: int
    letters: int


def strips_of(rows: int, plain: bool) -> list[tuple[int, Strip]]:
    """The strips of a pattern of ``rows`` letters, with the first row of each."""
    # for any D - k - 1 with 0 <= D <= rows and 0 <= k < rows
    planes = 1 + (rows - 1).bit_length()
    firsts = range(0, rows, ROWS)
    return [
        (
            first,
            Strip(
                rows=min(ROWS, rows - first),
                first=first == 0,
                planes=planes if first == firsts[-1] else 0,
                letters=4 if plain else 16,
            ),
        )
        for first in firsts
    ]


_KERNEL = """
def kernel(
    planes, gaps, groups, span, lead, patterns, length, first, sets, deltas, start, low_planes,
    sliced, flags
):
    equal = cuda.shared.array({equal_size}, np.uint32)
    letters = cuda.shared.array({rows}, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    search = np.int64(cuda.blockIdx.y)
    for i in range(cuda.threadIdx.x, {rows}, {threads}):
        letter = np.uint32(patterns[search * length + first + i])
        letters[i] = np.uint32(letter * np.uint32({pitch}))
    mine = np.uint32(thread * np.uint32(4))
    cuda.syncthreads()
    ones = np.uint32(0xFFFFFFFF)
    zero = np.uint32(0)
    worker = np.uint32(cuda.grid(1))
    group = np.uint32(worker >> np.uint32(5))
    lane = np.uint32(worker & np.uint32(31))
    if group >= np.uint32(groups):
        return
    # places count fours of words
    width = np.uint32(np.uint32(span) * np.uint32(8))
    size = np.uint32(np.uint32(groups) * width)
    base = np.uint32(np.uint32(group * width) + lane)
    back = np.uint32(1)
    if lane == 0:
        back = np.uint32(width - np.uint32(31))
    inner = ones
    if worker == 0:
        inner = np.uint32(0xFFFFFFFE)
        back = zero
    tiles = np.uint32(np.uint32(span) // np.uint32({tile}))
    {reset}
    column = np.int32(-lead)
    while column < np.int32(span):
        # the position in its segment; in the lead, in the segments to the left
        position = np.uint32(column if column >= 0 else np.int32(span) + column)
        tile = np.uint32(np.uint32(group * tiles) + np.uint32(position // np.uint32({tile})))
        holes = gaps[tile]
        if column < 0 and worker:
            before = tile
            if lane == 0:
                before = np.uint32(tile - tiles)
            holes = np.uint32(holes | np.uint32(gaps[before] << np.uint32(1)))
        some = zero
        more = True
        while more:
            at = np.uint32(base + np.uint32(position * np.uint32(8)))
            {text}
            {letters}
            {deltas_in}
            {cells}
            {deltas_out}
            {score}
            column = np.int32(column + np.int32({columns}))
            position = np.uint32(position + np.uint32({columns}))
            more = np.uint32(position & np.uint32({tile} - 1)) != zero
        {flag}
"""


def _lines(indent: int, lines: list[str]) -> str:
    return ("\n" + " " * indent).join(lines)


def _text() -> list[str]:
    """Load the bits of COLUMNS columns; in the lead they come from the segments to the left.

    What precedes the text (bit 0 of the first thread) counts as gaps.
    """
    planes = [(0, "a"), (1, "b"), (2, "g")]

    def load(name: str, plane: int, at: str) -> str:
        names = ", ".join(f"{name}{c}" for c in range(COLUMNS))
        return (
            f"{names} = load_four(planes, np.uint32({at} + np.uint32(np.uint32({plane}) * size)))"
        )

    def shift(name: str, keep: str, more: str) -> str:
        names = ", ".join(f"{name}{c}" for c in range(COLUMNS))
        return f"{names} = entered({names}, w0, w1, w2, w3, {keep}, {more})"

    lines = [" = ".join(f"g{c}" for c in range(COLUMNS)) + " = zero"]
    lines += ["if column >= 0:"]
    lines += ["    " + load(name, plane, "at") for plane, name in planes[:2]]
    lines += ["    if holes:", "        " + load("g", 2, "at")]
    lines += ["else:", "    before = np.uint32(at - back)"]
    for plane, name in planes[:2]:
        lines += ["    " + load(name, plane, "at"), "    " + load("w", plane, "before")]
        lines += ["    " + shift(name, "inner", "zero")]
    lines += ["    if holes:"]
    lines += ["        " + " = ".join(f"w{c}" for c in range(COLUMNS)) + " = zero"]
    lines += ["        if np.uint32(holes & np.uint32(1)):", "            " + load("g", 2, "at")]
    lines += [
        "        if np.uint32(holes & np.uint32(2)):",
        "            " + load("w", 2, "before"),
    ]
    gaps = [f"g{c}" for c in range(COLUMNS)]
    lines += ["        " + shift("g", "ones", "np.uint32(~inner)")]
    return [*lines, "    elif inner != ones:", f"        {' = '.join(gaps)} = np.uint32(~inner)"]


def _letters(strip: Strip, threads: int) -> list[str]:
    """Store to shared memory where the symbols of the columns equal each letter."""
    if strip.letters == 4:
        words = ", ".join(f"{name}{c}" for name in "abg" for c in range(COLUMNS))
        return [f"base_words({words}, equal, mine)"]
    lines = []
    for c in range(COLUMNS):
        lines += [
            f"e0 = np.uint32(~np.uint32(np.uint32(a{c} | b{c}) | g{c}))",
            f"e1 = np.uint32(a{c} & np.uint32(~b{c}))",
            f"e2 = np.uint32(b{c} & np.uint32(~a{c}))",
            f"e3 = np.uint32(a{c} & b{c})",
        ]
        lines += [
            "for x in range(16):",
            "    bases = sets[search * 16 + x]",
            "    word = zero",
        ]
        for x in range(4):
            lines += [f"    if bases & {1 << x}:", f"        word = np.uint32(word | e{x})"]
        lines += [f"    equal[(4 * x + {c}) * {threads} + cuda.threadIdx.x] = word"]
    return lines


def _cells(strip: Strip) -> list[str]:
    names = [f"{name}{i}" for i in range(strip.rows) for name in ("vp", "vm")]
    names += [f"{name}{c}" for c in range(COLUMNS) for name in ("hp", "hm")]
    return [f"{', '.join(names)} = strip({', '.join(names)}, letters, equal, mine)"]


def _deltas(strip: Strip) -> tuple[list[str], list[str]]:
    """Code that loads (hp, hm) above the strip, and code that stores those below it."""
    start = [
        "wide = np.uint32(np.uint32(np.uint32(lead) + np.uint32(span)) * np.uint32(8))",
        "at = np.uint32(np.uint32(np.int32(lead) + column) * np.uint32(8))",
        "at = np.uint32(at + np.uint32(np.uint32(group * wide) + lane))",
        "wide = np.uint32(np.uint32(groups) * wide)",
        "at = np.uint32(at + np.uint32(np.uint32(np.uint32(2) * np.uint32(search)) * wide))",
    ]
    names = [", ".join(f"{name}{c}" for c in range(COLUMNS)) for name in ("hp", "hm")]
    places = ["at", "np.uint32(at + wide)"]
    come = [" = ".join(", ".join(names).split(", ")) + " = zero"]
    if not strip.first:
        come = [
            *start,
            *(f"{n} = load_four(deltas, {at})" for n, at in zip(names, places, strict=True)),
        ]
    if strip.planes:
        return come, ["pass"]
    return come, [
        *start,
        *(f"store_four(deltas, {at}, {n})" for n, at in zip(names, places, strict=True)),
    ]


def _score(strip: Strip) -> list[str]:
    """Add hp - hm to the score, column by column; its sign is a hit."""
    if not strip.planes:
        return ["pass"]
    sign = strip.planes - 1
    after = ", ".join(f"s{p}_{c}" for p in range(strip.planes) for c in range(COLUMNS))
    before = ", ".join(f"s{p}_{COLUMNS - 1}" for p in range(strip.planes))
    deltas = ", ".join(f"{name}{c}" for c in range(COLUMNS) for name in ("hp", "hm"))
    lines = [f"{after} = score({before}, {deltas})"]

    def store(p: int, plane: int) -> str:
        words = ", ".join(f"s{plane}_{c}" for c in range(COLUMNS))
        return f"store_four(sliced, np.uint32(at + np.uint32(np.uint32({p}) * size)), {words})"

    signs = [f"s{sign}_{c}" for c in range(COLUMNS)]
    lines += ["if column >= 0:", "    at = np.uint32(np.uint32(column) * np.uint32(8))"]
    lines += ["    at = np.uint32(out + at)", "    " + store(0, sign)]
    lines += [f"    here = np.uint32(np.uint32({signs[0]} | {signs[1]}) | "
              f"np.uint32({signs[2]} | {signs[3]}))"]  # fmt: skip
    lines += ["    some = np.uint32(some | here)", "    if here:", "        pass"]
    for p in range(sign):
        lines += [f"        if low_planes > {p}:", "            " + store(1 + p, p)]
    return lines


def scan(strip: Strip, threads: int) -> Callable[..., None]:
    """The kernel of a strip; ``[(groups * 32 / threads, searches), threads]``.

    Arguments: planes uint32[3 * groups * span * 32] and gaps (``slicing``), groups, span, lead
    int64 (TILE | span, 4 | lead <= span), patterns uint8[searches * length] (which letter each row
    is), length int64, first int32 (the strip's first row), sets uint8[searches * letters] (the
    bases of a letter; unused if strip.letters is 4), deltas uint32[searches * 2 * groups * (lead +
    span) * 32] (between strips), start int32 (length - k - 1), low_planes int32, sliced
    uint32[searches * (1 + low_planes) * groups * span * 32] (a hit in a plane of its own, then the
    low bits of D - k - 1, set only in fours of columns that have a hit), flags uint32[searches *
    groups * span / TILE * 32]: the segments with a hit by (group, tile, lane).
    """
    reset = [f"vp{i} = ones\n    vm{i} = zero" for i in range(strip.rows)]
    reset += [
        f"s{p}_{COLUMNS - 1} = ones if start >> {p} & 1 else zero" for p in range(strip.planes)
    ]
    reset += [
        "out = np.uint32(np.uint32(np.uint32(search) * np.uint32(1 + low_planes)) * size)",
        "out = np.uint32(out + base)",
    ]
    come, go = _deltas(strip)
    flag = ["pass"]
    if strip.planes:
        flag = [
            "if column > 0:",
            "    at = np.uint32(np.uint32(np.uint32(search) * np.uint32(groups)) * tiles)",
            "    at = np.uint32(np.uint32(np.uint32(at + tile) * np.uint32(32)) + lane)",
            "    flags[at] = some",
        ]
    text = _KERNEL.format(
        equal_size=strip.letters * COLUMNS * threads,
        rows=strip.rows,
        threads=threads,
        pitch=4 * COLUMNS * threads,
        columns=COLUMNS,
        tile=TILE,
        reset=_lines(4, reset),
        text=_lines(12, _text()),
        letters=_lines(12, _letters(strip, threads)),
        deltas_in=_lines(12, come),
        cells=_lines(12, _cells(strip)),
        deltas_out=_lines(12, go),
        score=_lines(12, _score(strip)),
        flag=_lines(8, flag),
    )
    scope = {
        "cuda": cuda, "np": np, "strip": strip_of(strip.rows, 4 * threads), "entered": entered,
        "load_four": load_four, "store_four": store_four, "score": score_of(strip.planes),
        "base_words": base_words(threads),
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]  # type: ignore[assignment]
    return made
