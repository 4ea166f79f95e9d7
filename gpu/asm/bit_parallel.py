"""The bit-sliced search on the GPU: send text, slice it into lanes, scan, list hits, fetch them.

Text is sent as 2 bits per symbol and a bit that marks gaps (``gpu.card.packing``), 0.375 bytes per
symbol; a hit takes 6 bytes. Both go through pinned memory while all cores pack and widen; only the
caller's thread calls the driver, since calls from others cost more. The host waits for the GPU once
per search, to learn the number of hits (``listing``). Slicing gives bit planes:

    plane    word [group, column / 4, lane, column % 4], uint32: bit b is of symbol
             ((32 group + lane) * 32 + b) * span + column

So a thread (group, lane) has 32 segments of ``span`` symbols, one per bit, and reads four columns
at once; a warp reads 512 bytes. Columns are grouped in tiles of TILE. There are three planes: bit 0
and bit 1 of a code, and gap codes. The words of the last are set only in tiles (group, column /
TILE) that contain a gap code, marked in ``gaps``.

Packed text lies on the device in pieces of PACKED symbols: PACKED / 32 words of
those bits, PACKED / 16 of bases, and SPARE_WORDS. A thread takes 16 columns of a lane: it
transposes 32 packed words, one from each segment, into 16 columns of both planes. Eight adjacent
threads write whole sectors.

In the scan, two registers of a thread hold a row of D for its 32 segments:

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
plane (6 planes up to m = 32), about 6 for text and hits. Shared memory: m + m / 4 loads of 4 bytes.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.asm import listing
from gpu.asm.listing import places_of
from gpu.card.intrinsics import (
    REGISTERS,
    SIMULATED,
    bytes_of,
    cuda,
    instruction,
    load_four,
    store_four,
    transposed,
    transposing,
)
from gpu.card.kernel_cache import grid, made
from gpu.card.memory import Workspace, fetch, send
from gpu.card.packing import SPARE_WORDS, pack_chunk, pack_letters, packed_sizes
from trie.codes import InvalidBaseError
from trie.cpu.threads import run_all, split_range, usable_cores

UNIT = 16  # symbols of a packed word: the columns of a thread
PACKED = 1 << 23  # symbols of a piece of packed text; a power of two, at least 32


def packed_places(symbols: int) -> tuple[slice, slice]:
    """Slices of a piece: the bits of that many symbols, and their bases with SPARE_WORDS."""
    bases = PACKED // 32
    words, bits = packed_sizes(symbols)
    return slice(0, bits), slice(bases, bases + words)


def packed_words(symbols: int) -> int:
    """Words of packed text for that many symbols."""
    whole, rest = divmod(symbols, PACKED)
    return whole * packed_places(PACKED)[1].stop + (packed_places(rest)[1].stop if rest else 0)


def _load(b: int, bits: bool) -> list[str]:
    """w{b}: 16 symbols of segment b, or with ``bits`` the gaps among 32; ORs any gap into $0."""
    lines = [f"mad.lo.u32 x, $6, {b}, $5; min.u32 x, x, $7;"]
    if not bits:
        lines += [f"shr.b32 y, x, {(PACKED // 16).bit_length() - 1};"]
        lines += [
            f"mad.lo.u32 y, y, {PACKED // 32 + SPARE_WORDS}, x; add.u32 y, y, {PACKED // 32};"
        ]
        lines += ["mul.wide.u32 at, y, 4; add.u64 at, at, $4;", f"ld.global.nc.u32 w{b}, [at];"]
    lines += [f"shr.b32 x, x, 1; shr.b32 y, x, {(PACKED // 32).bit_length() - 1};"]
    lines += [f"mad.lo.u32 y, y, {PACKED // 16 + SPARE_WORDS}, x; mul.wide.u32 at, y, 4;"]
    lines += ["add.u64 at, at, $4; ld.global.nc.u32 y, [at]; not.b32 y, y; or.b32 $0, $0, y;"]
    return [*lines, f"mov.b32 w{b}, y;"] if bits else lines


def _slicing(bits: bool) -> str:
    """Both planes, or with ``bits`` the plane of gaps at $2; $0: nonzero if there is a gap."""
    words = [f"w{b}" for b in range(32)]
    lines = [f"{{ {REGISTERS} .reg .u32 {', '.join(words)}; .reg .u64 at, low, high;"]
    lines += ["mov.u32 $0, 0;", *(line for b in range(32) for line in _load(b, bits))]
    lines += [transposing(words), "shl.b64 low, $2, 4; add.u64 low, low, $1; shl.b64 high, $3, 4;"]
    lines += ["add.u64 high, high, $1;"]
    planes = {"low": words} if bits else {"low": words[30::-2], "high": words[:0:-2]}
    for plane, columns in planes.items():
        for q in range(len(columns) // 4):
            four = ", ".join(columns[4 * q : 4 * q + 4])
            lines += [f"st.global.v4.u32 [{plane} + {512 * q}], {{{four}}};"]
    return " ".join([*lines, "}"])


def _put(planes: Any, place: Any, columns: Any) -> None:
    """Write the words of columns, in the simulator."""
    words = bytes_of(planes).view(np.uint32)
    for i, word in enumerate(columns):
        words[4 * (int(place) + 32 * (i // 4)) + i % 4] = word


def _units(first: Any, step: Any, last: Any) -> list[int]:
    return [min(int(first) + b * int(step), int(last)) for b in range(32)]


def _gap_columns(packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    halves = [unit // 2 for unit in _units(*units)]
    size = PACKED // 32
    return transposed([~words[at + at // size * (2 * size + SPARE_WORDS)] for at in halves])


def _slice_bases(planes: Any, low: Any, high: Any, packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    size = PACKED // 32
    columns = transposed(
        [words[at + size + at // (2 * size) * (size + SPARE_WORDS)] for at in _units(*units)]
    )
    _put(planes, low, columns[30::-2])
    _put(planes, high, columns[:0:-2])
    return np.bitwise_or.reduce(_gap_columns(packed, *units))


def _slice_gaps(planes: Any, place: Any, _: Any, packed: Any, *units: Any) -> Any:
    _put(planes, place, _gap_columns(packed, *units))
    return np.uint32(0)


def slice_text(tile: int) -> Callable[..., None]:
    """The kernel; ``[groups * span / tile, 2 * tile]``.

    Arguments: text uint32[packed_words(n)], units int64, packed words in it (the rest of the last
    segments is arbitrary), span int64 (a multiple of tile), planes uint32[3 * plane_size],
    plane_size int64 = groups * span * 32, gaps uint32[groups * span / tile].
    """
    pieces = tile // UNIT
    # planes, where to write the two planes (in fours of words), text, first unit, step, last unit
    operands = ("global", "u64", "u64", "global", "u32", "u32", "u32")
    slice_bases = instruction(_slicing(bits=False), ("u32",), operands, _slice_bases, volatile=True)
    slice_gaps = instruction(_slicing(bits=True), ("u32",), operands, _slice_gaps, volatile=True)

    def kernel(text, units, span, planes, plane_size, gaps):
        shared = cuda.shared.array(1, np.uint32)
        if cuda.threadIdx.x == 0:
            shared[0] = np.uint32(0)
        piece = np.int64(cuda.threadIdx.x) % pieces
        lane = np.int64(cuda.threadIdx.x) // pieces
        tiles = span // tile
        group = cuda.blockIdx.x // tiles
        column = (cuda.blockIdx.x - group * tiles) * tile + piece * UNIT
        unit = ((group * 32 + lane) * 32 * span + column) // UNIT
        low = (group * span + column) * 8 + lane
        high = low + plane_size // 4
        step = span // UNIT
        cuda.syncthreads()
        seen = slice_bases(planes, low, high, text, unit, step, units - 1)
        if seen != np.uint32(0):
            cuda.atomic.max(shared, 0, np.uint32(1))
        cuda.syncthreads()
        some = shared[0]
        if cuda.threadIdx.x == 0:
            gaps[cuda.blockIdx.x] = some
        # a word of bits covers 32 columns
        if some and column % 32 == 0:
            slice_gaps(planes, high + plane_size // 4, high, text, unit, step, units - 1)

    return kernel


PIECES = 4  # pieces of packed text sent at once
HITS = 1 << 21  # hits fetched at once: about as many bytes
FEW_HITS = 1 << 16  # hits that one core widens faster than several
_BUFFERS = 2


class PinnedPair:
    """Two pinned buffers: one is in transfer while the cores work on the other."""

    def __init__(self) -> None:
        size = max(PIECES * packed_words(PACKED), 6 * HITS // 4)
        self.buffers = [cuda.pinned_array(size, np.uint32) for _ in range(_BUFFERS)]
        self.moved = [cuda.event() for _ in range(_BUFFERS)]


_idle: defaultdict[int, deque[PinnedPair]] = defaultdict(deque)
"""Free buffers by device: pinning memory takes longer than many searches."""


@contextmanager
def _pinned_pair() -> Iterator[PinnedPair]:
    idle = _idle[0 if SIMULATED else int(cuda.get_current_device().id)]
    try:
        pair = idle.pop()
    except IndexError:
        pair = PinnedPair()
    yield pair
    idle.append(pair)


def _pack(symbols: NDArray[np.uint8], first: int, out: NDArray[np.uint32], letters: bool) -> None:
    """Pack the piece of the text that begins at ``first``."""
    part = symbols[first : first + PACKED]
    starts, bases = packed_places(part.size)
    pack = pack_letters if letters else pack_chunk
    try:
        # for k = 1 a window starts at every symbol that is not a gap
        pack(part, np.array([0, part.size]), 1, out_bases=out[bases], out_starts=out[starts])
    except InvalidBaseError as error:
        raise InvalidBaseError(error.byte, first + error.position) from None


def send_packed(
    symbols: NDArray[np.uint8], packed: Any, stream: Any, *, letters: bool = False
) -> None:
    """Pack a text and send it: codes or ``letters``, uint8[n] on the host.

    packed: uint32[slicing.packed_words(n)] or more on the GPU; the transfer is complete on return.
    Raises InvalidBaseError for a letter that is not DNA.
    """
    cores = usable_cores()
    size = packed_words(PACKED)
    at = 0
    with _pinned_pair() as pair:
        for number, begin in enumerate(range(0, symbols.size, PIECES * PACKED)):
            stop = min(symbols.size, begin + PIECES * PACKED)
            buffer, moved = pair.buffers[number % _BUFFERS], pair.moved[number % _BUFFERS]
            if number >= _BUFFERS:
                moved.synchronize()
            tasks = [
                partial(_pack, symbols, first, buffer[i * size : (i + 1) * size], letters)
                for i, first in enumerate(range(begin, stop, PACKED))
            ]
            run_all(tasks, cores)
            words = packed_words(stop - begin)
            send(buffer, packed[at : at + words], stream)
            moved.record(stream)
            at += words
        stream.synchronize()


def fetch_hits(
    ends: Any, distances: Any, total: int, stream: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the GPU, widened on the host."""
    wide: tuple[NDArray[Any], NDArray[Any]] = np.empty(total, np.int64), np.empty(total, np.int32)
    cores = usable_cores() if total >= FEW_HITS else 1
    firsts = range(0, total, HITS)

    def staged(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        buffer, size = pair.buffers[number % _BUFFERS], min(HITS, total - firsts[number])
        return buffer[:size], buffer.view(np.uint16)[2 * size : 3 * size]

    with _pinned_pair() as pair:
        for number in range(len(firsts) + _BUFFERS):
            moved = pair.moved[number % _BUFFERS]
            landed = number - _BUFFERS
            if 0 <= landed < len(firsts):
                moved.synchronize()
                first = firsts[landed]
                run_all(
                    [
                        partial(np.copyto, to[first + a : first + b], here[a:b])
                        for to, here in zip(wide, staged(landed), strict=True)
                        for a, b in split_range(0, here.size, cores)
                    ],
                    cores,
                )
            if number < len(firsts):
                for source, to in zip((ends, distances), staged(number), strict=True):
                    part = source[firsts[number] :] if number else source
                    fetch(part, to, stream, to.size)
                moved.record(stream)
    return wide


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

    def simulated(*values: Any) -> Any:
        words = list(values[: 2 * rows + 2 * COLUMNS])
        letters, equal, mine = values[-3:]
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

    def simulated(*values: Any) -> Any:
        score, out = list(values[:planes]), []
        for c in range(COLUMNS):
            hp, hm = values[planes + 2 * c : planes + 2 * c + 2]
            carry = np.uint32(0)
            for p in range(planes):
                this, other = score[p], hm if p else hp | hm
                score[p] = this ^ other ^ carry
                carry = (this & other) | (carry & (this | other))
            out += [list(score)]
        return tuple(out[c][p] for p in range(planes) for c in range(COLUMNS))

    arguments = ("u32",) * (planes + 2 * COLUMNS)
    return instruction(" ".join([*lines, "}"]), ("u32",) * size, arguments, simulated)


def _entered(*values: Any) -> Any:
    words, left, (keep, more) = values[:COLUMNS], values[COLUMNS : 2 * COLUMNS], values[-2:]
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

    def simulated(*values: Any) -> None:
        equal, mine = values[-2:]
        for c in range(COLUMNS):
            a, b, gap = values[c], values[COLUMNS + c], values[2 * COLUMNS + c]
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
        lines += ["for x in range(16):", "    bases = sets[search * 16 + x]", "    word = zero"]
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


def strip_kernel(strip: Strip, threads: int) -> Callable[..., None]:
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


MULTIPROCESSORS = 132
"""Multiprocessors of a large GPU: texts are cut into equal shares for all its threads."""

LONGEST_SPAN = 2048  # most columns of a segment (more if patterns are long)

FIRST_ROOM = (1 << 16, 1 << 27)
"""Room for hits before their number is known: a sixteenth of the ends, within these bounds."""

Masks = NDArray[np.uint8]


class TooManyHitsError(RuntimeError):
    """A block of text has more hits than the limit."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Hits on the GPU: ends uint32 and distances uint16, grouped by search, ends ascending.

    The arrays may be longer; search i has the elements begins[i] to begins[i + 1] (int64).
    """

    ends: Any
    distances: Any
    begins: NDArray[np.int64]

    @property
    def total(self) -> int:
        """The number of hits."""
        return int(self.begins[-1])


def _resident_groups(rows: int) -> int:
    """Warps that run at once, limited by the registers of a strip of ``rows``.

    As reported by ptxas: 64 registers for 8 rows, 80 for 16, 112 to 128 above; blocks of THREADS.
    """
    registers = 64 if rows <= 8 else 80 if rows <= 16 else 128
    return MULTIPROCESSORS * 4 * min(65_536 // (registers * 128), 16)


class SlicedText:
    """A packed text of ``size`` symbols on the GPU as bit planes.

    reach: symbols before an end that matter. searches: how many run concurrently.
    """

    def __init__(self, packed: Any, size: int, reach: int, searches: int, space: Workspace) -> None:
        tile = TILE
        self.size = size
        self.lead = -(-reach // 4) * 4
        wave = max(1, _resident_groups(min(reach, ROWS)) // max(1, searches))
        wanted = grid(size, 1024 * wave)
        wanted = max(self.lead, grid(wanted, grid(wanted, LONGEST_SPAN)))
        self.span = grid(wanted, tile) * tile
        self.groups = grid(size, 1024 * self.span)
        self.tiles = self.groups * self.span // tile
        self.words = self.groups * self.span * 32
        """Words (uint32) in a plane."""
        self.planes = space.array("planes", 3 * self.words, np.uint32)
        self.gaps = space.array("gaps", self.tiles, np.uint32)
        made(slice_text, tile)[self.tiles, 2 * tile, space.stream](
            packed, grid(size, UNIT), self.span, self.planes, self.words, self.gaps
        )


class SlicedPatterns:
    """Patterns of one length on the GPU, either all or none with plain bases only."""

    def __init__(self, patterns: Sequence[Masks]) -> None:
        self.count, self.length = len(patterns), patterns[0].size
        letters = np.concatenate(patterns).reshape(self.count, self.length)
        plain = bool((np.bitwise_count(letters) == 1).all())
        if plain:
            numbers = np.zeros(9, dtype=np.uint8)
            numbers[[1, 2, 4, 8]] = range(4)
            letters, sets = numbers[letters], np.zeros(1, dtype=np.uint8)
        else:
            # each set of bases is its own letter
            sets = np.tile(np.arange(16, dtype=np.uint8), self.count)
        self.strips = strips_of(self.length, plain)
        self.letters = cuda.to_device(letters.reshape(-1))
        self.sets = cuda.to_device(sets)


def scan(
    text: SlicedText, patterns: SlicedPatterns, k: int, limit: int, lead: int, space: Workspace
) -> Listed:
    """The patterns' hits with ends beyond ``lead``; raises TooManyHitsError above ``limit``."""
    searches, low_planes = patterns.count, k.bit_length()
    words = searches * (1 + low_planes) * text.words
    sliced = space.array("sliced", words, np.uint32)
    flags = space.array("flags", searches * text.tiles * 32, np.uint32)
    between = (text.lead + text.span) * text.groups * 32 if len(patterns.strips) > 1 else 1
    deltas = space.array("deltas", searches * 2 * between, np.uint32)
    stream = space.stream
    launch = ((grid(text.groups * 32, THREADS), searches), THREADS, stream)
    for first, strip in patterns.strips:
        # registers for six resident blocks, or for four
        registers = 80 if strip.rows <= 16 else 128
        made(strip_kernel, strip, THREADS, registers=registers)[launch](
            text.planes, text.gaps, text.groups, text.span, text.lead, patterns.letters,
            patterns.length, first, patterns.sets, deltas, patterns.length - k - 1, low_planes,
            sliced, flags,
        )  # fmt: skip
    segments = searches * text.tiles * 1024
    counts = space.array("counts", segments, np.uint8)
    offsets = space.array("offsets", segments, np.uint32)
    totals = space.array("totals", searches * text.groups, np.int64)
    shape = (text.groups, text.span, low_planes, lead, text.size)
    threads = listing.COUNT_THREADS
    made(listing.count, threads, TILE)[(text.groups, searches), threads, stream](
        sliced, flags, *shape, counts, offsets, totals
    )
    begins_of_groups, begins = places_of(totals, text.groups, searches, space)
    room = min(max((text.size - lead) * searches // 16, FIRST_ROOM[0]), FIRST_ROOM[1], limit)
    on_host = space.on_host("begins on the host", searches + 1, np.int64)[: searches + 1]
    while True:
        ends = space.array("ends", room, np.uint32)
        distances = space.array("distances", ends.size, np.uint16)
        launch = ((text.tiles, searches), TILE, stream)
        made(listing.emit, TILE, listing.LISTED)[launch](
            sliced, flags, *shape, k, counts, offsets, begins_of_groups, ends.size, ends, distances
        )
        space.fetch_now(begins, on_host)
        total = int(on_host[-1])
        if total > limit:
            raise TooManyHitsError
        if total <= ends.size:
            return Listed(ends, distances, on_host)
        room = total
