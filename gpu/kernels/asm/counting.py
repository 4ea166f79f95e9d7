"""Hits of the bit-sliced search counted by tile (group, TILE columns) and segment.

What the scan leaves is [group, column / 4, lane, column % 4], a bit a segment (``slicing``); where
the hits of a segment go in a list depends on how many there are before it. A block takes a group:
hits of each tile and segment, then where those of a tile and segment go among those of the group,
and the group's number.

Operations a word of hits: seven full adders a group of eight words (Harley-Seal), 3 in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function
from gpu.kernels.asm.sliced import add
from gpu.kernels.asm.statements import block, sum_up
from gpu.kernels.asm.turning import EXCHANGES, turning
from gpu.kernels.asm.vectors import load_four, store_four

THREADS = 1024
"""Threads a block; a power of two from 32 to 1,024."""

half_add = instruction(
    "{ .reg .u32 s; xor.b32 s, $2, $3; and.b32 $1, $2, $3; mov.b32 $0, s; }",
    ("u32", "u32"),
    ("u32", "u32"),
    lambda a, b: (a ^ b, a & b),
)
"""(a, b) -> (sum, carry)."""


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
        clear=block(8, [f"{word} = np.uint32(0)" for word in words]),
        cut=block(
            20,
            [
                f"w{i} = np.uint32(w{i} & np.uint32("
                f"bits_below(high_whole, high_rest, column + {i}) & "
                f"np.uint32(~bits_below(low_whole, low_rest, column + {i}))))"
                for i in range(8)
            ],
        ),
        add=block(16, _counting()),
        sum_upto=block(4, sum_up("upto")),
        sum_value=block(8, sum_up("value")),
        # to bytes: segment 8 j + t in byte j of word t; then four segments side by side
        turn=block(
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


def signature() -> tuple[str, ...]:
    """Argument types of ``count``."""
    return (
        "uint32[::1]", "uint32[::1]", "int64", "int64", "int32", "int64", "int64", "uint8[::1]",
        "uint32[::1]", "int64[::1]",
    )  # fmt: skip
