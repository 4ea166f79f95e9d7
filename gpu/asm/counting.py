"""Count the hits of the bit-sliced search by tile (group, TILE columns) and segment.

``strips.scan`` writes [group, column / 4, lane, column % 4], one bit per segment (``slicing``).
Where the hits of a segment go in the list depends on the number of hits before them. A block
processes a group: it counts the hits of each tile and segment, then their offsets within the group,
and the hits of the group.

Operations per word of hits: seven full adders per eight words (Harley-Seal), 3 in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.assembly import instruction
from gpu.card.bits import REGISTERS, transposed, transposing
from gpu.card.four_words import load_four, store_four
from gpu.card.intrinsics import ALL_LANES, cuda, device_function, sum_to_lane

THREADS = 1024  # threads per block; a power of two from 32 to 1,024


def _full_adder(total: str, one: str, other: str, carry: str) -> str:
    """total += one + other, bit by bit; carry may be one of them."""
    return (
        f"lop3.b32 t, {total}, {one}, {other}, 0x96; lop3.b32 {carry}, {total}, {one}, {other}, "
        f"0xE8; mov.b32 {total}, t;"
    )


def _add_text() -> str:
    """$0 to $7, from $8 to $15: counts of bits, ones first; $16 to $23: words to be counted."""
    lines = ["{ .reg .u32 t, a, b, c, d;", *(f"mov.b32 ${i}, ${8 + i};" for i in range(8))]
    for carry, first in (("c", 16), ("d", 20)):
        lines += [_full_adder("$0", f"${first}", f"${first + 1}", "a")]
        lines += [_full_adder("$0", f"${first + 2}", f"${first + 3}", "b")]
        lines += [_full_adder("$1", "a", "b", carry)]
    lines += [_full_adder("$2", "c", "d", "a")]
    for i in range(3, 8):
        lines += [f"and.b32 t, ${i}, a; xor.b32 ${i}, ${i}, a; mov.b32 a, t;"]
    return " ".join([*lines, "}"])


def _add(*words: Any) -> Any:
    counts = list(words[:8])
    for word in words[8:]:
        for i in range(8):
            counts[i], word = counts[i] ^ word, counts[i] & word
    return tuple(counts)


add_eight = instruction(_add_text(), ("u32",) * 8, ("u32",) * 16, _add)
"""(counts, eight words): add the words' bits to one count per bit position, in eight planes."""


def _bytes_text() -> str:
    out = [f"${i}" for i in range(8)]
    moves = " ".join(f"mov.b32 ${i}, ${8 + i};" for i in range(8))
    turns = " ".join(
        [transposing(out, (4, 2, 1)), *(transposing(out[i : i + 4], (16, 8)) for i in (0, 4))]
    )
    return f"{{ {REGISTERS} {moves} {turns} }}"


def _bytes(*planes: Any) -> Any:
    columns = transposed([*planes, *[0] * 24]).astype(np.uint8).view(np.uint32)
    return (*columns[::2], *columns[1::2])


as_bytes = instruction(_bytes_text(), ("u32",) * 8, ("u32",) * 8, _bytes)
"""Counts in planes to bytes: bits 8 j to 8 j + 3 in word j, the next four in word 4 + j."""


@device_function
def segments_before(base, span, limit):
    """How many of a lane's segments, from ``base`` on, lie wholly in the first ``limit`` symbols.

    Also returns how many columns of the next one do.
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
def bits_between(low_whole, low_rest, high_whole, high_rest, column):
    """The bits of the segments whose symbol at ``column`` is between the low and high limits."""
    below = np.uint64(1) << np.uint64(low_whole + (column < low_rest))
    above = np.uint64(1) << np.uint64(high_whole + (column < high_rest))
    return np.uint32(np.uint64(above - np.uint64(1)) & ~np.uint64(below - np.uint64(1)))


def count(threads: int, tile: int) -> Callable[..., None]:
    """The kernel ``[(groups, searches), threads]``.

    Arguments: sliced and flags as ``strips.scan`` leaves them, groups, span int64, low_planes
    int32, low, high int64 (hits with low < end <= high), counts uint8[searches * groups * tiles *
    1024], offsets uint32 of the same size, totals int64[searches * groups]. For a group without
    hits only the total is set.
    """
    warps = threads // 32
    flag = warps  # a word after the sums
    room = warps + 1
    each = 1024 // threads

    def kernel(sliced, flags, groups, span, low_planes, low, high, counts, offsets, totals):
        sums = cuda.shared.array(room, np.uint32)
        thread = np.int64(cuda.threadIdx.x)
        warp = thread >> 5
        lane = thread & 31
        tiles = span // tile
        group = cuda.blockIdx.x
        block = cuda.blockIdx.y * groups + group
        if thread == 0:
            sums[flag] = np.uint32(0)
        cuda.syncthreads()
        some = np.uint32(0)
        for at in range(thread, tiles * 32, threads):
            some = np.uint32(some | flags[block * tiles * 32 + at])
        if cuda.ballot_sync(ALL_LANES, some != np.uint32(0)) != 0 and lane == 0:
            cuda.atomic.max(sums, flag, np.uint32(1))
        cuda.syncthreads()
        if sums[flag] == np.uint32(0):
            if thread == 0:
                totals[block] = 0
            return
        base = (group * 32 + lane) * 32 * span
        edge = low > base or high < base + 32 * span
        low_whole, low_rest = segments_before(base, span, low)
        high_whole, high_rest = segments_before(base, span, high)
        start = (cuda.blockIdx.y * (1 + low_planes) * groups + group) * span * 8 + lane
        for number in range(warp, tiles, warps):
            here = block * tiles + number
            c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = np.uint32(0)
            if flags[here * 32 + lane] != np.uint32(0):
                for column in range(number * tile, number * tile + tile, 8):
                    at = start + column * 8
                    w0, w1, w2, w3 = load_four(sliced, at)
                    w4, w5, w6, w7 = load_four(sliced, at + 32)
                    if edge:
                        w0 &= bits_between(low_whole, low_rest, high_whole, high_rest, column)
                        w1 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 1)
                        w2 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 2)
                        w3 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 3)
                        w4 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 4)
                        w5 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 5)
                        w6 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 6)
                        w7 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 7)
                    c0, c1, c2, c3, c4, c5, c6, c7 = add_eight(
                        c0, c1, c2, c3, c4, c5, c6, c7, w0, w1, w2, w3, w4, w5, w6, w7
                    )
            c0, c1, c2, c3, c4, c5, c6, c7 = as_bytes(c0, c1, c2, c3, c4, c5, c6, c7)
            store_four(counts, here * 64 + lane * 2, c0, c4, c1, c5)
            store_four(counts, here * 64 + lane * 2 + 1, c2, c6, c3, c7)
        cuda.syncthreads()
        total = np.uint32(0)
        of_group = block * tiles * 1024
        for at in range(of_group + thread * each, of_group + thread * each + each):
            for number in range(tiles):
                total = np.uint32(total + np.uint32(counts[at + number * 1024]))
        upto = sum_to_lane(total, lane)
        if lane == 31:
            sums[warp] = upto
        cuda.syncthreads()
        if warp == 0:
            value = sum_to_lane(sums[lane] if lane < warps else np.uint32(0), lane)
            if lane < warps:
                sums[lane] = value
        cuda.syncthreads()
        if thread == 0:
            totals[block] = np.int64(sums[warps - 1])
        place = np.uint32(upto - total)
        if warp > 0:
            place = np.uint32(place + sums[warp - 1])
        for at in range(of_group + thread * each, of_group + thread * each + each):
            for number in range(tiles):
                offsets[at + number * 1024] = place
                place = np.uint32(place + np.uint32(counts[at + number * 1024]))

    return kernel
