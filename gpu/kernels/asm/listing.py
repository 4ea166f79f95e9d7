"""Hits of the bit-sliced search as a list in the order of the text.

A block takes a tile (group, TILE columns): its hits are turned, so that a word is 32 columns of a
segment, and listed in shared memory by segment and column; digits of the distance are looked up in
the scan's planes, a plane at a time; then the list is written out, where ``counting`` says.

A hit in the list, uint32:

    bits   29-20 digits   19-15 segment of its lane   13-2 where its word of a plane is staged

which is byte 512 (column / 4) + 16 (lane ^ column / 4 % 8) + 4 (column % 4): stored in fours, and
what the hits of a segment ask for lies in different banks. The list holds LISTED hits a thread. In
a tile with more, a warp takes 32 columns of a segment after the other and writes their hits side by
side. Tiles without a hit, as the scan's ``flags`` tell, are left out.

Operations: 300 for turning 32 words, and a hit about 25 for listing, 6 a digit, 20 for writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import ALL_LANES, SIMULATED, as_signed, cuda, device_function, load_word
from gpu.kernels.asm.statements import block, sum_up
from gpu.kernels.asm.turning import EXCHANGES, turning
from gpu.kernels.asm.vectors import load_four, stage_four
from gpu.shared_memory import address_of
from gpu.shared_memory import load_word as load_shared

LISTED = 40
"""Hits of a tile that a thread has at once; a multiple of GROUP."""

GROUP = 4

PITCH = 33
"""Words between rows of 32 in shared memory: rows and columns are read without bank conflicts."""

first_bit = instruction(
    "{ .reg .u32 x; brev.b32 x, $1; bfind.shiftamt.u32 $0, x; }",
    ("u32",),
    ("u32",),
    lambda word: np.uint32((int(word) & -int(word)).bit_length() - 1),
)
"""Which is the lowest bit that is set, of a word that is not 0."""

ones_of = instruction(
    "popc.b32 $0, $1;", ("u32",), ("u32",), lambda word: np.uint32(int(word).bit_count())
)
"""How many bits of a word are set."""


@device_function
def inside(word, first, low, high):  # type: ignore[no-untyped-def]
    """The bits of a word that stand for symbols low <= s < high; bit 0 is symbol ``first``."""
    if first < low or first + 32 > high:
        if first + 32 <= low or first >= high:
            word = np.uint32(0)
        if first < low and first + 32 > low:
            word = np.uint32(word & np.uint32(np.uint32(0xFFFFFFFF) << np.uint32(low - first)))
        if first < high and first + 32 > high:
            keep = np.uint32(np.uint32(np.uint32(1) << np.uint32(high - first)) - np.uint32(1))
            word = np.uint32(word & keep)
    return word


digit = instruction(
    "{ .reg .u32 x; shr.b32 x, $1, 15; shf.r.wrap.b32 x, $2, $2, x; and.b32 x, x, 1; "
    "mad.lo.u32 $0, x, $3, $1; }",
    ("u32",),
    ("u32", "u32", "u32"),
    lambda hit, word, weight: hit + ((word >> (hit >> np.uint32(15) & np.uint32(31))) & 1) * weight,
)
"""(hit, word of a plane, weight): the hit with the digit of its segment in that plane."""


_EMIT = """
def kernel(
    sliced, flags, groups, span, low_planes, low, high, k, counts, offsets, places, room, ends,
    distances
):
    staged = cuda.shared.array({staged}, np.uint32{aligned})
    listed = cuda.shared.array({listed}, np.uint32)
    where = cuda.shared.array(1024, np.uint32)
    sums = cuda.shared.array({warps}, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    warp = np.uint32(thread >> np.uint32(5))
    lane = np.uint32(thread & np.uint32(31))
    tiles = np.uint32(np.uint32(span) // np.uint32({tile}))
    group = np.uint32(np.uint32(cuda.blockIdx.x) // tiles)
    tile = np.uint32(np.uint32(cuda.blockIdx.x) - np.uint32(group * tiles))
    search = np.uint32(cuda.blockIdx.y)
    block = np.uint32(np.uint32(search * np.uint32(groups)) + group)
    here = np.uint32(np.uint32(block * tiles) + tile)
    flag = flags[np.uint32(np.uint32(here * np.uint32(32)) + lane)]
    if cuda.ballot_sync(ALL_LANES, flag != np.uint32(0)) == 0:
        return
    if places[np.int64(groups) * cuda.gridDim.y] > room:
        return
    to_hits = places[block]
    nothing = np.uint32(k + 1)
    over = np.uint32(1 << low_planes)
    width = np.uint32(np.uint32(span) * np.uint32(8))
    size = np.uint32(np.uint32(groups) * width)
    start = np.uint32(np.uint32(search * np.uint32(1 + low_planes)) * size)
    start = np.uint32(start + np.uint32(group * width))
    start = np.uint32(start + np.uint32(tile * np.uint32(8 * {tile})))
    base = np.int64(group) * 1024 * span
    edge = low > base or high < base + 1024 * span
    base += np.int64(np.uint32(tile * np.uint32({tile})))
    # how many hits the segments of this thread have, how many those before them, and in all
    mine = np.uint32(thread * np.uint32({each}))
    row = np.uint32(np.uint32(here * np.uint32(1024)) + mine)
    place = np.uint32(0)
    for i in range({each}):
        place = np.uint32(place + np.uint32(counts[np.uint32(row + np.uint32(i))]))
    upto = place
    {sum_upto}
    if lane == 31:
        sums[warp] = upto
    cuda.syncthreads()
    place = np.uint32(upto - place)
    total = np.uint32(0)
    for i in range({warps}):
        if np.uint32(i) < warp:
            place = np.uint32(place + sums[i])
        total = np.uint32(total + sums[i])
    ahead = place
    for i in range({each}):
        at = np.uint32(row + np.uint32(i))
        if total > np.uint32({listed}):
            where[np.uint32(mine + np.uint32(i))] = offsets[at]
        else:
            where[np.uint32(mine + np.uint32(i))] = np.uint32(offsets[at] - ahead)
        ahead = np.uint32(ahead + np.uint32(counts[at]))
    at = np.uint32(start + np.uint32(np.uint32(warp * np.uint32(256)) + lane))
    {load}
    {turn}
    to = np.uint32(np.uint32(warp * np.uint32(32 * {pitch})) + lane)
    {stage}
    cuda.syncthreads()
    if total > np.uint32({listed}):
        # a warp takes 32 columns of a segment, a lane each
        below = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        for i in range({each} * 32):
            segment = np.uint32(np.uint32(warp * np.uint32({each} * 32)) + np.uint32(i))
            lane_of = np.uint32(segment >> np.uint32(5))
            bit = np.uint32(segment & np.uint32(31))
            row = np.uint32(np.uint32(bit * np.uint32({pitch})) + lane_of)
            place = np.uint32(0)
            symbol = base + np.int64(segment) * span
            for number in range({warps}):
                word = staged[np.uint32(row + np.uint32(number * 32 * {pitch}))]
                if edge:
                    word = inside(word, symbol + 32 * number, low, high)
                if np.uint32(np.uint32(word >> lane) & np.uint32(1)) != np.uint32(0):
                    at = np.uint32(np.uint32(8 * number) + np.uint32(lane >> np.uint32(2)))
                    at = np.uint32(np.uint32(at * np.uint32(32)) + lane_of)
                    at = np.uint32(start + at)
                    digits = np.uint32(0)
                    for plane in range(low_planes):
                        at = np.uint32(at + size)
                        of = np.uint64(np.uint64(at) * np.uint64(4))
                        of = np.uint64(of + np.uint64(np.uint32(lane & np.uint32(3))))
                        of_plane = np.uint32(load_word(sliced, of) >> bit)
                        of_plane = np.uint32(np.uint32(of_plane & np.uint32(1)) << np.uint32(plane))
                        digits = np.uint32(digits | of_plane)
                    to = np.uint32(where[segment] + place)
                    to_hit = to_hits + np.int64(np.uint32(to + ones_of(np.uint32(word & below))))
                    ends[to_hit] = np.uint32(symbol + 32 * number + np.int64(lane) + 1)
                    distances[to_hit] = np.uint16(np.uint32(digits + nothing) - over)
                place = np.uint32(place + ones_of(word))
        return
    # what of its words this thread has listed
    row = np.uint32(np.uint32(np.uint32(mine & np.uint32(31)) * np.uint32({pitch})) +
                    np.uint32(mine >> np.uint32(5)))
    first_entry = np.uint32(np.uint32(np.uint32(mine & np.uint32(31)) << np.uint32(15)) |
                            np.uint32(np.uint32(mine >> np.uint32(5)) << np.uint32(4)))
    step = np.uint32(0)
    bits = np.uint32(0)
    entry = np.uint32(0)
    while place < ahead:
        if bits == np.uint32(0):
            of = np.uint32(step // np.uint32({warps}))
            number = np.uint32(step % np.uint32({warps}))
            at = np.uint32(row + np.uint32(of * np.uint32({pitch})))
            bits = staged[np.uint32(at + np.uint32(number * np.uint32(32 * {pitch})))]
            if edge:
                symbol = base + np.int64(np.uint32(mine + of)) * span
                symbol += np.int64(np.uint32(number * np.uint32(32)))
                bits = inside(bits, symbol, low, high)
            entry = np.uint32(first_entry + np.uint32(of << np.uint32(15)))
            entry = np.uint32(entry + np.uint32(number << np.uint32(12)))
            step = np.uint32(step + np.uint32(1))
        if bits != np.uint32(0):
            bit = first_bit(bits)
            bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
            fours = np.uint32(np.uint32(bit & np.uint32(28)) << np.uint32(7))
            fours = np.uint32(fours + np.uint32(bit << np.uint32(2)))
            listed[place] = np.uint32(entry ^ fours)
            place = np.uint32(place + np.uint32(1))
    cuda.syncthreads()
    {take}
    from_planes = address_of(staged)
    for plane in range(low_planes):
        at = np.uint32(start + np.uint32(size * np.uint32(1 + plane)))
        for i in range(thread, {tile} * 8, {threads}):
            a, b, c, d = load_four(sliced, np.uint32(at + np.uint32(i)))
            # lane ^ column / 4 % 8
            to = np.uint32(np.uint32(i) ^ np.uint32(np.uint32(np.uint32(i) >> np.uint32(5)) &
                           np.uint32(7)))
            to = np.uint32(from_planes + np.uint32(to * np.uint32(16)))
            stage_four(staged, to, a, b, c, d)
        cuda.syncthreads()
        weight = np.uint32(np.uint32(1) << np.uint32(20 + plane))
        {digits}
        cuda.syncthreads()
    {write}
"""


_WRITE = """
column = np.uint32(hit{i} >> np.uint32(9))
of = np.uint32(np.uint32(hit{i} >> np.uint32(4)) ^ np.uint32(column & np.uint32(7)))
of = np.uint32(np.uint32(of & np.uint32(31)) * np.uint32(32))
of = np.uint32(of + np.uint32(np.uint32(hit{i} >> np.uint32(15)) & np.uint32(31)))
column = np.uint32(np.uint32(column & np.uint32({fours} - 1)) * np.uint32(4))
column = np.uint32(column + np.uint32(np.uint32(hit{i} >> np.uint32(2)) & np.uint32(3)))
to = to_hits + np.int64(np.uint32(where[of] + np.uint32(j + np.uint32({at}))))
end = np.uint32(np.uint32(base) + np.uint32(of * np.uint32(span)))
ends[to] = np.uint32(np.uint32(end + column) + np.uint32(1))
distances[to] = np.uint16(np.uint32(np.uint32(hit{i} >> np.uint32(20)) + nothing) - over)
"""


def _by_groups(indent: int, each: int, threads: int, lines: Callable[[int], list[str]]) -> str:
    """The lines of the hits of a thread, ``threads`` apart, as many groups as there are hits."""
    text = []
    for first in range(0, each, GROUP):
        text += [f"if total > np.uint32({first * threads}):"]
        for i in range(first, first + GROUP):
            text += ["    " + line for line in lines(i)]
    return block(indent, text)


def emit(tile: int, each: int) -> Callable[..., None]:
    """The kernel; ``[(groups * tiles, searches), tile]``.

    Arguments: sliced, flags, groups, span, low_planes, low, high, counts and offsets as for
    ``count``, k int32, places int64[searches * groups + 1] (of ``order.places``), room int64
    (nothing is written if there are more hits), ends uint32[room], distances uint16[room]: search
    by search, ends ascending. low_planes <= 10, tile <= 128. ``each``: LISTED.
    """
    warps = tile // 32
    words = [f"w{i}" for i in range(32)]

    def take(i: int) -> list[str]:
        return [f"hit{i} = listed[np.uint32(j + np.uint32({i * tile}))]"]

    def look_up(i: int) -> list[str]:
        at = f"np.uint32(from_planes + np.uint32(hit{i} & np.uint32({16 * 8 * tile - 4})))"
        return [f"hit{i} = digit(hit{i}, load_shared(staged, {at}), weight)"]

    def write(i: int) -> list[str]:
        text = _WRITE.format(i=i, at=i * tile, fours=tile // 4)
        lines = text.strip().split("\n")
        return [
            f"if np.uint32(j + np.uint32({i * tile})) < total:",
            *("    " + line for line in lines),
        ]

    text = _EMIT.format(
        tile=tile,
        threads=tile,
        warps=warps,
        each=1024 // tile,
        pitch=PITCH,
        staged=tile * PITCH,
        aligned="" if SIMULATED else ", alignment=16",
        listed=each * tile,
        load=block(
            4,
            [
                f"{', '.join(words[4 * q : 4 * q + 4])} = "
                f"load_four(sliced, np.uint32(at + np.uint32({32 * q})))"
                for q in range(8)
            ],
        ),
        turn=block(4, turning(words)),
        sum_upto=block(4, sum_up("upto")),
        stage=block(
            4,
            [f"staged[np.uint32(to + np.uint32({i * PITCH}))] = w{i}" for i in range(32)],
        ),
        take="j = thread\n    "
        + block(4, [f"hit{i} = np.uint32(0)" for i in range(each)])
        + "\n    "
        + _by_groups(4, each, tile, take),
        digits=_by_groups(8, each, tile, look_up),
        write=_by_groups(4, each, tile, write),
    )
    scope: dict[str, Any] = {
        "cuda": cuda, "np": np, "load_four": load_four, "ALL_LANES": ALL_LANES, "inside": inside,
        "as_signed": as_signed, "first_bit": first_bit, "digit": digit, "address_of": address_of,
        "load_shared": load_shared, "load_word": load_word,
        "stage_four": stage_four, "ones_of": ones_of, **EXCHANGES,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature() -> tuple[str, ...]:
    """Argument types of ``emit``."""
    return (
        "uint32[::1]", "uint32[::1]", "int64", "int64", "int32", "int64", "int64", "int32",
        "uint8[::1]", "uint32[::1]", "int64[::1]", "int64", "uint32[::1]", "uint16[::1]",
    )  # fmt: skip
