"""Hits of the bit-sliced search as a list in the order of the text.

What the scan leaves is [group, column / 4, lane, column % 4], a bit a segment (``slicing``); where
the hits of a segment go depends on how many there are before it. So they are counted first, by tile
(group, TILE columns) and segment:

    count    a block a group: hits of each tile and segment; where those of a tile and segment go
             among those of the group (offsets uint32[group, tile, segment]); the group's number
    places   where each group's hits go (``order``)
    emit     a block a tile: the tile's hits are turned, so that a word is 32 columns of a segment,
             and listed in shared memory by segment and column; digits of the distance are looked
             up in the scan's planes, a plane at a time; then the list is written out

The list holds LISTED hits; a tile with more is done in rounds. Tiles without a hit, as the scan's
``flags`` tell, are left out.

Operations of ``count`` a word of hits: seven full adders a group of eight words (Harley-Seal), 3 in
all. Of ``emit``: 256 + 32 a word of 32 columns and segment for turning, and a hit about 20 for
listing, 13 a digit and 15 for writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function, population
from gpu.kernels.asm.sliced import add
from gpu.kernels.asm.turning import EXCHANGES, turning
from gpu.kernels.asm.vectors import load_four, store_four

COUNT_THREADS = 1024
"""Threads a block of ``count``; a power of two from 32 to 1,024."""

LISTED = 5120
"""Hits of a tile in shared memory at once."""

PITCH = 33
"""Words between rows of 32 in shared memory: rows and columns are read without bank conflicts."""

half_add = instruction(
    "{ .reg .u32 s; xor.b32 s, $2, $3; and.b32 $1, $2, $3; mov.b32 $0, s; }",
    ("u32", "u32"),
    ("u32", "u32"),
    lambda a, b: (a ^ b, a & b),
)
"""(a, b) -> (sum, carry)."""


def _lines(indent: int, lines: list[str]) -> str:
    return ("\n" + " " * indent).join(lines)


@device_function
def segments_before(base, span, limit):  # type: ignore[no-untyped-def]
    """How many of a lane's segments, from ``base`` on, lie wholly in the first ``limit`` symbols.

    Also how many columns of the next one do.
    """
    whole = np.int64(0)
    rest = np.int64(0)
    if limit >= base + 32 * span:
        whole = np.int64(32)
    elif limit > base:
        whole = (limit - base) // span
        rest = limit - base - whole * span
    return whole, rest


@device_function
def bits_below(whole, rest, column):  # type: ignore[no-untyped-def]
    """The bits of the segments whose symbol at ``column`` is before the limit."""
    if column < rest:
        whole += 1
    bits = np.uint32(0xFFFFFFFF)
    if whole < 32:
        bits = np.uint32(np.uint32(np.uint32(1) << np.uint32(whole)) - np.uint32(1))
    return bits


def _sum_up(name: str) -> list[str]:
    """``name`` (uint32) becomes the sum of this lane's and of those before it."""
    lines = []
    for step in (1, 2, 4, 8, 16):
        lines += [
            f"other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed({name}), {step}))",
            f"if lane >= np.uint32({step}):",
            f"    {name} = np.uint32({name} + other)",
        ]
    return lines


_COUNT = """
def kernel(sliced, flags, groups, span, low_planes, low, high, counts, offsets, totals):
    sums = cuda.shared.array({warps} + 1, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    warp = np.uint32(thread >> np.uint32(5))
    lane = np.uint32(thread & np.uint32(31))
    tiles = np.uint32(np.uint32(span) // np.uint32({tile}))
    group = np.uint32(cuda.blockIdx.x)
    search = np.uint32(cuda.blockIdx.y)
    block = np.uint32(np.uint32(search * np.uint32(groups)) + group)
    if thread == 0:
        sums[{warps}] = np.uint32(0)
    cuda.syncthreads()
    some = np.uint32(0)
    for at in range(thread, np.int32(tiles * np.uint32(32)), {threads}):
        some = np.uint32(some | flags[np.uint32(np.uint32(block * tiles) * np.uint32(32)) + at])
    if some != np.uint32(0):
        sums[{warps}] = np.uint32(1)
    cuda.syncthreads()
    if sums[{warps}] == np.uint32(0):
        if thread == 0:
            totals[block] = 0
        return
    base = (np.int64(group) * 32 + lane) * 32 * span
    edge = low > base or high < base + 32 * span
    low_whole, low_rest = segments_before(base, np.int64(span), np.int64(low))
    high_whole, high_rest = segments_before(base, np.int64(span), np.int64(high))
    width = np.uint32(np.uint32(span) * np.uint32(8))
    start = np.uint32(np.uint32(search * np.uint32(1 + low_planes)) * np.uint32(groups))
    start = np.uint32(np.uint32(np.uint32(start + group) * width) + lane)
    for tile in range(warp, np.int32(tiles), {warps}):
        here = np.uint32(np.uint32(block * tiles) + np.uint32(tile))
        {clear}
        if flags[np.uint32(np.uint32(here * np.uint32(32)) + lane)] != np.uint32(0):
            first = np.int64(tile) * {tile}
            for eight in range({tile} // 8):
                column = first + 8 * eight
                at = np.uint32(start + np.uint32(np.uint32(column) * np.uint32(8)))
                w0, w1, w2, w3 = load_four(sliced, at)
                w4, w5, w6, w7 = load_four(sliced, np.uint32(at + np.uint32(32)))
                if edge:
                    {cut}
                {add}
        {turn}
        at = np.uint32(np.uint32(here * np.uint32(64)) + np.uint32(lane * np.uint32(2)))
        store_four(counts, at, c0, c4, c1, c5)
        store_four(counts, np.uint32(at + np.uint32(1)), c2, c6, c3, c7)
    cuda.syncthreads()
    total = np.uint32(0)
    of_group = np.int64(np.uint32(block * tiles)) * 1024
    for i in range({each}):
        at = of_group + np.int64(thread) * {each} + i
        for tile in range(np.int32(tiles)):
            total = np.uint32(total + np.uint32(counts[at + np.int64(tile) * 1024]))
    upto = total
    {sum_upto}
    if lane == 31:
        sums[warp] = upto
    cuda.syncthreads()
    if warp == 0:
        value = np.uint32(0)
        if lane < np.uint32({warps}):
            value = sums[lane]
        {sum_value}
        if lane < np.uint32({warps}):
            sums[lane] = value
    cuda.syncthreads()
    if thread == 0:
        totals[block] = np.int64(sums[{warps} - 1])
    place = np.uint32(upto - total)
    if warp > 0:
        place = np.uint32(place + sums[np.uint32(warp - np.uint32(1))])
    for i in range({each}):
        at = of_group + np.int64(thread) * {each} + i
        for tile in range(np.int32(tiles)):
            offsets[at + np.int64(tile) * 1024] = place
            place = np.uint32(place + np.uint32(counts[at + np.int64(tile) * 1024]))
"""


def _counting() -> list[str]:
    """Add eight words to the counts c0 (ones) to c7."""
    lines = []
    for low, words in enumerate((("w0", "w1", "w2", "w3"), ("w4", "w5", "w6", "w7"))):
        a, b, c, d = words
        lines += [
            f"c0, x = add(c0, {a}, {b})",
            f"c0, y = add(c0, {c}, {d})",
            f"c1, f{low} = add(c1, x, y)",
        ]
    lines += ["c2, x = add(c2, f0, f1)"]
    return [*lines, *(f"c{i}, x = half_add(c{i}, x)" for i in range(3, 8))]


def count(threads: int, tile: int) -> Callable[..., None]:
    """The kernel; ``[(groups, searches), threads]``.

    Arguments: sliced and flags as ``sliced.scan`` leaves them, groups, span int64, low_planes
    int32, low, high int64 (hits with low < end <= high), counts uint8[searches * groups * tiles *
    1024] (scratch), offsets uint32 of the same size, totals int64[searches * groups]. Offsets of a
    group without hits are not set.
    """
    words = [f"c{i}" for i in range(8)]
    text = _COUNT.format(
        threads=threads,
        warps=threads // 32,
        each=1024 // threads,
        tile=tile,
        clear=_lines(8, [f"{word} = np.uint32(0)" for word in words]),
        cut=_lines(
            20,
            [
                f"w{i} = np.uint32(w{i} & np.uint32("
                f"bits_below(high_whole, high_rest, column + {i}) & "
                f"np.uint32(~bits_below(low_whole, low_rest, column + {i}))))"
                for i in range(8)
            ],
        ),
        add=_lines(16, _counting()),
        sum_upto=_lines(4, _sum_up("upto")),
        sum_value=_lines(8, _sum_up("value")),
        # to bytes: segment 8 j + t in byte j of word t; then four segments side by side
        turn=_lines(
            8,
            [
                *turning(words, (4, 2, 1)),
                *turning(words[:4], (16, 8)),
                *turning(words[4:], (16, 8)),
            ],
        ),
    )
    scope: dict[str, Any] = {
        "cuda": cuda, "np": np, "load_four": load_four, "store_four": store_four, "add": add,
        "half_add": half_add, "segments_before": segments_before, "bits_below": bits_below,
        "as_signed": as_signed, "ALL_LANES": ALL_LANES, **EXCHANGES,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature_count() -> tuple[str, ...]:
    """Argument types of ``count``."""
    return (
        "uint32[::1]", "uint32[::1]", "int64", "int64", "int32", "int64", "int64", "uint8[::1]",
        "uint32[::1]", "int64[::1]",
    )  # fmt: skip


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


_EMIT = """
def kernel(
    sliced, flags, groups, span, low_planes, low, high, k, offsets, places, room, ends, distances
):
    staged = cuda.shared.array({staged}, np.uint32)
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
    nothing = np.int32(np.int32(k + 1) - np.int32(1 << low_planes))
    width = np.uint32(np.uint32(span) * np.uint32(8))
    size = np.uint32(np.uint32(groups) * width)
    start = np.uint32(np.uint32(search * np.uint32(1 + low_planes)) * size)
    start = np.uint32(start + np.uint32(group * width))
    start = np.uint32(start + np.uint32(tile * np.uint32(8 * {tile})))
    base = np.int64(group) * 1024 * span + np.int64(tile) * {tile}
    mine = np.uint32(thread * np.uint32({each}))
    step = np.uint32(0)  # of this thread: which word of its segments, what is left of it
    bits = np.uint32(0)
    place = np.uint32(0)
    total = np.uint32(1)
    first = np.uint32(0)
    while first < total:
        at = np.uint32(start + np.uint32(np.uint32(warp * np.uint32(256)) + lane))
        {load}
        {turn}
        to = np.uint32(np.uint32(warp * np.uint32(32 * {pitch})) + lane)
        {stage}
        cuda.syncthreads()
        if first == np.uint32(0):
            for i in range({each} * {warps}):
                segment = np.uint32(mine + np.uint32(i // {warps}))
                row = np.uint32(np.uint32(np.uint32(i % {warps}) * np.uint32(32)) +
                                np.uint32(segment & np.uint32(31)))
                row = np.uint32(np.uint32(row * np.uint32({pitch})) +
                                np.uint32(segment >> np.uint32(5)))
                symbol = base + np.int64(segment) * span + 32 * (i % {warps})
                word = inside(staged[row], symbol, low, high)
                place = np.uint32(place + population(np.uint64(word)))
            upto = place
            {sum_upto}
            if lane == 31:
                sums[warp] = upto
            place = np.uint32(upto - place)
            cuda.syncthreads()
            total = np.uint32(0)
            for i in range({warps}):
                if np.uint32(i) < warp:
                    place = np.uint32(place + sums[i])
                total = np.uint32(total + sums[i])
        top = np.uint32(first + np.uint32({listed}))
        going = True
        while going:
            if bits == np.uint32(0):
                going = step < np.uint32({each} * {warps})
                if going:
                    segment = np.uint32(mine + np.uint32(step // np.uint32({warps})))
                    number = np.uint32(step % np.uint32({warps}))
                    row = np.uint32(np.uint32(number * np.uint32(32)) +
                                    np.uint32(segment & np.uint32(31)))
                    row = np.uint32(np.uint32(row * np.uint32({pitch})) +
                                    np.uint32(segment >> np.uint32(5)))
                    symbol = base + np.int64(segment) * span
                    symbol += np.int64(np.uint32(number * np.uint32(32)))
                    bits = inside(staged[row], symbol, low, high)
                    if number == np.uint32(0):
                        to = np.uint32(np.uint32(here * np.uint32(1024)) + segment)
                        where[segment] = np.uint32(offsets[to] - place)
                    step = np.uint32(step + np.uint32(1))
                    entry = np.uint32(np.uint32(segment * np.uint32({tile})) +
                                      np.uint32(number * np.uint32(32)))
            elif place < top:
                below = np.uint32(np.uint32(bits - np.uint32(1)) & np.uint32(~bits))
                bit = population(np.uint64(below))
                bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
                listed[np.uint32(place - first)] = np.uint32(entry + bit)
                place = np.uint32(place + np.uint32(1))
            else:
                going = False
        cuda.syncthreads()
        some = min(np.uint32(total - first), np.uint32({listed}))
        for plane in range(low_planes):
            at = np.uint32(start + np.uint32(size * np.uint32(1 + plane)))
            for i in range(thread, {tile} * 8, {threads}):
                a, b, c, d = load_four(sliced, np.uint32(at + np.uint32(i)))
                to = np.uint32(np.uint32(np.uint32(np.uint32(i) >> np.uint32(5)) *
                               np.uint32(4 * {pitch})) + np.uint32(np.uint32(i) & np.uint32(31)))
                staged[to] = a
                staged[np.uint32(to + np.uint32({pitch}))] = b
                staged[np.uint32(to + np.uint32(2 * {pitch}))] = c
                staged[np.uint32(to + np.uint32(3 * {pitch}))] = d
            cuda.syncthreads()
            for j in range(thread, np.int32(some), {threads}):
                hit = listed[j]
                column = np.uint32(hit & np.uint32({tile} - 1))
                of = np.uint32(np.uint32(hit >> np.uint32({shift})) & np.uint32(1023))
                row = np.uint32(np.uint32(column * np.uint32({pitch})) +
                                np.uint32(of >> np.uint32(5)))
                digit = np.uint32(np.uint32(staged[row] >> np.uint32(of & np.uint32(31))) &
                                  np.uint32(1))
                listed[j] = np.uint32(hit | np.uint32(digit << np.uint32({shift} + 10 + plane)))
            cuda.syncthreads()
        to_hits = places[block]
        for j in range(thread, np.int32(some), {threads}):
            hit = listed[j]
            column = np.uint32(hit & np.uint32({tile} - 1))
            of = np.uint32(np.uint32(hit >> np.uint32({shift})) & np.uint32(1023))
            to = np.uint32(np.uint32(where[of] + first) + np.uint32(j))
            end = np.uint32(base) + np.uint32(of * np.uint32(span))
            ends[to_hits + np.int64(to)] = np.uint32(np.uint32(end + column) + np.uint32(1))
            distance = np.int32(nothing + np.int32(hit >> np.uint32({shift} + 10)))
            distances[to_hits + np.int64(to)] = np.uint16(distance)
        first = top
        cuda.syncthreads()
"""


def emit(tile: int, listed: int) -> Callable[..., None]:
    """The kernel; ``[(groups * tiles, searches), tile]``.

    Arguments: sliced, flags, groups, span, low_planes, low, high and offsets as for ``count``, k
    int32, places int64[searches * groups + 1] (of ``order.places``), room int64 (nothing is written
    if there are more hits than that), ends uint32[room], distances uint16[room]: search by search,
    ends ascending. low_planes <= 10, since a hit in the list is 10 bits of segment, the column and
    the digits.
    """
    warps = tile // 32
    words = [f"w{i}" for i in range(32)]
    text = _EMIT.format(
        tile=tile,
        shift=tile.bit_length() - 1,
        threads=tile,
        warps=warps,
        each=1024 // tile,
        pitch=PITCH,
        staged=tile * PITCH,
        listed=listed,
        load=_lines(
            8,
            [
                f"{', '.join(words[4 * q : 4 * q + 4])} = "
                f"load_four(sliced, np.uint32(at + np.uint32({32 * q})))"
                for q in range(8)
            ],
        ),
        turn=_lines(8, turning(words)),
        sum_upto=_lines(12, _sum_up("upto")),
        stage=_lines(
            8,
            [f"staged[np.uint32(to + np.uint32({i * PITCH}))] = w{i}" for i in range(32)],
        ),
    )
    scope: dict[str, Any] = {
        "cuda": cuda, "np": np, "load_four": load_four, "ALL_LANES": ALL_LANES, "inside": inside,
        "population": population, "as_signed": as_signed, **EXCHANGES,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature_emit() -> tuple[str, ...]:
    """Argument types of ``emit``."""
    return (
        "uint32[::1]", "uint32[::1]", "int64", "int64", "int32", "int64", "int64", "int32",
        "uint32[::1]", "int64[::1]", "int64", "uint32[::1]", "uint16[::1]",
    )  # fmt: skip
