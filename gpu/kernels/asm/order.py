"""Bits between the order of the text and the lanes of the bit-sliced search, and out as hits.

    in the text's order   bit i of word w is symbol (or end) 32 w + i
    sliced                word [group, column, lane], uint32: bit b is symbol
                          ((32 group + lane) * 32 + b) * span + column

so that a thread (group, lane) has 32 segments of ``span`` symbols, one a bit, and a warp reads 32
consecutive words for a column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import (
    ALL_LANES,
    as_signed,
    cuda,
    device_function,
    load_word,
    population,
)

WARPS = 8
"""Warps of a block of ``slice_text`` and ``text_order``: 256 columns at once."""

THREADS = 256
"""Threads a block of ``count``, ``places`` and ``emit``; a power of two, at least 32."""

STEPS = 8
"""Words a thread of ``count`` and ``emit`` takes, THREADS apart."""


def signature_slice() -> tuple[str, ...]:
    """Argument types of ``slice_text``."""
    return ("uint8[::1]", "int64", "uint32[::1]", "int64", "int32[::1]")


def slice_text(warps: int) -> Callable[..., None]:
    """Codes to sliced planes; ``[(groups * span / 32, 32 / warps), 32 * warps]``.

    Arguments: codes uint8[n], span int64 (a multiple of 32), planes uint32[3 * size] with
    size = groups * span * 32: bit 0, bit 1, gap; what lies beyond the text is a gap. gaps int32[1]:
    set to 1 if there is a gap code in the text. A warp takes 32 columns of a thread's 32
    segments: a ballot a column and plane, gathered in shared memory so that words are written in
    rows.
    """
    size = 3 * 32 * warps

    def kernel(codes, span, planes, plane_size, gaps):  # type: ignore[no-untyped-def]
        words = cuda.shared.array(size, np.uint32)
        warp = cuda.threadIdx.x >> 5
        lane = cuda.threadIdx.x & 31
        blocks = span // 32
        group = np.int64(cuda.blockIdx.x) // blocks
        column = (np.int64(cuda.blockIdx.x) - group * blocks) * 32
        first = np.int64(cuda.blockIdx.y) * warps
        at = ((group * 32 + first + warp) * 32 + lane) * span + column
        mine0 = np.uint32(0)
        mine1 = np.uint32(0)
        mine2 = np.uint32(0)
        # beyond the text there is nothing to vote on
        some = 32
        if at - lane * span >= codes.size:
            some = 0
            mine2 = np.uint32(0xFFFFFFFF)
        for j in range(some):
            code = np.uint8(4)
            if at + j < codes.size:
                code = codes[at + j]
                if code > 3:
                    gaps[0] = 1
            bits0 = np.uint32(cuda.ballot_sync(ALL_LANES, (code & 1) != 0))
            bits1 = np.uint32(cuda.ballot_sync(ALL_LANES, (code & 2) != 0))
            bits2 = np.uint32(cuda.ballot_sync(ALL_LANES, code > 3))
            if lane == j:
                mine0 = bits0
                mine1 = bits1
                mine2 = bits2
        place = lane * warps + warp
        words[place] = mine0
        words[32 * warps + place] = mine1
        words[64 * warps + place] = mine2
        cuda.syncthreads()
        for i in range(3):
            here = cuda.threadIdx.x
            out = (group * span + column + here // warps) * 32 + first + here % warps
            planes[i * plane_size + out] = words[32 * warps * i + here]

    return kernel


def _exchange(shift: int) -> Any:
    """(one, other): the high bits of each 2 * shift of one word for the low bits of the other."""
    mask = np.uint32(sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift)))

    def simulated(one, other):  # type: ignore[no-untyped-def]
        moved = ((one >> np.uint32(shift)) ^ other) & mask
        return one ^ (moved << np.uint32(shift)), other ^ moved

    # 0x28: (a ^ b) & c
    text = (
        f"{{ .reg .u32 x, y; shr.b32 x, $2, {shift}; lop3.b32 x, x, $3, {mask}, 0x28; "
        f"shl.b32 y, x, {shift}; xor.b32 $0, $2, y; xor.b32 $1, $3, x; }}"
    )
    return instruction(text, ("u32", "u32"), ("u32", "u32"), simulated)


SHIFTS = (16, 8, 4, 2, 1)
EXCHANGES = {f"exchange{shift}": _exchange(shift) for shift in SHIFTS}


def _turning() -> str:
    """Statements that transpose the words w0 ... w31 as a matrix of bits (Hacker's Delight 7-3)."""
    lines = [
        f"w{i}, w{i + shift} = exchange{shift}(w{i}, w{i + shift})"
        for shift in SHIFTS
        for i in range(32)
        if not i & shift
    ]
    return "\n                ".join(lines)


_TEXT_ORDER = """
def kernel(sliced, span, low_planes, size, found):
    staged = cuda.shared.array({size}, np.uint32)
    flags = cuda.shared.array({warps}, np.uint32)
    warp = cuda.threadIdx.x >> 5
    lane = cuda.threadIdx.x & 31
    mine = np.uint32(lane * 32 * {pitch} + warp)
    row = span // 32
    blocks = (row + {warps} - 1) // {warps}
    group = np.int64(cuda.blockIdx.x) // blocks
    first = (np.int64(cuda.blockIdx.x) - group * blocks) * {warps}
    inside = first + warp < row
    search = cuda.blockIdx.y
    start = np.int64(search) * (1 + low_planes) * size
    start += (group * span + (first + warp) * 32) * 32 + lane
    go_on = True
    plane = 0
    while go_on and plane <= low_planes:
        some = np.uint32(0)
        at = np.uint64(start + plane * size)
        if inside:
            {load}
        if plane == 0:
            some = np.uint32(cuda.ballot_sync(ALL_LANES, some != np.uint32(0)))
            if lane == 0:
                flags[warp] = some
            cuda.syncthreads()
            some = np.uint32(0)
            for i in range({warps}):
                some = np.uint32(some | flags[i])
            go_on = some != np.uint32(0)
        else:
            cuda.syncthreads()
        if go_on:
            if inside:
                {turn}
                {stage}
            cuda.syncthreads()
            word = cuda.threadIdx.x % {warps}
            segment = cuda.threadIdx.x // {warps}
            if first + word < row:
                out = (np.int64(search) * (1 + low_planes) + plane) * size
                out = np.uint64(out + (group * 1024 + segment) * row + first + word)
                here = np.uint32(segment * {pitch} + word)
                for _ in range(32):
                    found[out] = staged[here]
                    out = np.uint64(out + np.uint64(32 * row))
                    here = np.uint32(here + np.uint32(32 * {pitch}))
        plane += 1
"""


def signature_text_order() -> tuple[str, ...]:
    """Argument types of ``text_order``."""
    return ("uint32[::1]", "int64", "int32", "int64", "uint32[::1]")


def text_order(warps: int) -> Callable[..., None]:
    """Sliced hits to the text's order; ``[(blocks, searches), 32 * warps]``.

    Arguments: sliced uint32[searches * (1 + low_planes) * groups * span * 32], span int64 (a
    multiple of 32), low_planes int32, size int64 = groups * span * 32, found
    uint32[searches * (1 + low_planes) * size], whose plane 0 holds zeros before. Blocks without
    hits write nothing. A thread turns 32 words by 80 exchanges, a block 32 * warps columns of a
    group; shared memory makes rows of ``warps`` words of them.
    """
    pitch = warps + 1
    text = _TEXT_ORDER.format(
        size=1024 * pitch,
        warps=warps,
        pitch=pitch,
        load="\n            ".join(
            f"w{i} = load_word(sliced, np.uint64(at + np.uint64({32 * i})))\n            "
            f"some = np.uint32(some | w{i})"
            for i in range(32)
        ),
        turn=_turning(),
        stage="\n                ".join(
            f"staged[np.uint32(mine + np.uint32({i * pitch}))] = w{i}" for i in range(32)
        ),
    )
    scope: dict[str, Any] = {
        "cuda": cuda,
        "ALL_LANES": ALL_LANES,
        "np": np,
        "load_word": load_word,
        **EXCHANGES,
    }
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature_count() -> tuple[str, ...]:
    """Argument types of ``count``."""
    return ("uint32[:,:,::1]", "int64", "int64", "int64[:,::1]")


@device_function
def word_of_ends(found, search, word, low, high):  # type: ignore[no-untyped-def]
    """A word of hits without ends at or before ``low`` or beyond ``high``."""
    bits = np.uint32(0)
    if word < found.shape[2]:
        bits = found[search, 0, word]
        first = word * 32 + 1
        if bits != np.uint32(0) and (first <= low or first + 31 > high):
            keep = np.uint32(0)
            for i in range(32):
                if low < first + i <= high:
                    keep = np.uint32(keep | np.uint32(np.uint32(1) << np.uint32(i)))
            bits = np.uint32(bits & keep)
    return bits


def count(threads: int) -> Callable[..., None]:
    """Hits with low < end <= high in each block; ``[(blocks, searches), threads]``.

    A block has threads * STEPS words. Arguments: found uint32[searches, planes, words], low, high
    int64, counts int64[searches, blocks].
    """
    warps = threads // 32

    def kernel(found, low, high, counts):  # type: ignore[no-untyped-def]
        sums = cuda.shared.array(warps, np.uint32)
        search = cuda.blockIdx.y
        first = np.int64(cuda.blockIdx.x) * (threads * STEPS) + cuda.threadIdx.x
        total = np.uint32(0)
        for i in range(STEPS):
            bits = word_of_ends(found, search, first + i * threads, low, high)
            total = np.uint32(total + population(np.uint64(bits)))
        for step in range(5):
            other = cuda.shfl_xor_sync(ALL_LANES, as_signed(total), 1 << step)
            total = np.uint32(total + np.uint32(other))
        if cuda.threadIdx.x & 31 == 0:
            sums[cuda.threadIdx.x >> 5] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            total = np.uint32(0)
            for i in range(warps):
                total = np.uint32(total + sums[i])
            counts[search, cuda.blockIdx.x] = np.int64(total)

    return kernel


def signature_emit() -> tuple[str, ...]:
    """Argument types of ``emit``."""
    return (
        "uint32[:,:,::1]", "int64", "int64", "int32", "int32", "int64[::1]", "uint32[::1]",
        "uint16[::1]",
    )  # fmt: skip


def emit(threads: int) -> Callable[..., None]:
    """Write the hits that ``count`` counted, search by search, ends ascending; same launch.

    Arguments: found, low, high, k, low_planes int32, places int64[searches * blocks + 1] (where a
    block's hits go), ends uint32[], distances uint16[]. The hits of threads words at a time are
    listed in shared memory, so that each thread then has as many as the others.
    """
    warps = threads // 32
    room = 32 * threads

    def kernel(found, low, high, k, low_planes, places, ends, distances):  # type: ignore[no-untyped-def]
        staged = cuda.shared.array(room, np.uint32)
        sums = cuda.shared.array(warps, np.uint32)
        search = cuda.blockIdx.y
        thread = cuda.threadIdx.x
        lane = thread & 31
        warp = thread >> 5
        block = np.int64(search) * cuda.gridDim.x + cuda.blockIdx.x
        at = places[block]
        if at == places[block + 1]:
            return
        nothing = np.int32(np.int32(k + 1) - np.int32(1 << low_planes))
        for i in range(STEPS):
            start = np.int64(cuda.blockIdx.x * STEPS + i) * threads
            word = start + thread
            bits = word_of_ends(found, search, word, low, high)
            mine = population(np.uint64(bits))
            upto = mine
            for step in range(5):
                other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(upto), 1 << step))
                if lane >= 1 << step:
                    upto = np.uint32(upto + other)
            if lane == 31:
                sums[warp] = upto
            cuda.syncthreads()
            total = np.uint32(0)
            place = np.uint32(upto - mine)
            for j in range(warps):
                if j < warp:
                    place = np.uint32(place + sums[j])
                total = np.uint32(total + sums[j])
            while bits != np.uint32(0):
                lowest = np.uint32(bits & np.uint32(~np.uint32(bits - np.uint32(1))))
                bit = population(np.uint64(np.uint32(lowest - np.uint32(1))))
                bits = np.uint32(bits ^ lowest)
                staged[place] = np.uint32(np.uint32(32 * thread) + bit)
                place = np.uint32(place + np.uint32(1))
            cuda.syncthreads()
            for j in range(thread, np.int64(total), threads):
                end = np.int64(staged[j])
                word = np.uint64(np.uint64(start) + np.uint64(end >> 5))
                distance = nothing
                for plane in range(1, 1 + low_planes):
                    digit = np.uint32(found[search, plane, word] >> np.uint32(end & 31))
                    distance = np.int32(
                        distance + np.int32(np.uint32(digit & np.uint32(1)) << np.uint32(plane - 1))
                    )
                ends[at + j] = np.uint32(32 * start + 1 + end)
                distances[at + j] = np.uint16(distance)
            at += np.int64(total)
            cuda.syncthreads()

    return kernel


def signature_clear_hits() -> tuple[str, ...]:
    """Argument types of ``clear_hits``."""
    return ("uint32[:,:,::1]",)


def clear_hits(found):  # type: ignore[no-untyped-def]
    """Zeros in plane 0; ``[(words / threads, searches), threads]``."""
    word = cuda.grid(1)
    if word < found.shape[2]:
        found[cuda.blockIdx.y, 0, word] = np.uint32(0)


def signature_places() -> tuple[str, ...]:
    """Argument types of ``places``."""
    return ("int64[::1]", "int64[::1]")


def places(threads: int) -> Callable[..., None]:
    """Where each block's hits go: sums of all counts before; ``[1, threads]``.

    Arguments: counts int64[n], out int64[n + 1], the last the sum of all. A thread sums a stretch.
    """

    def kernel(counts, out):  # type: ignore[no-untyped-def]
        sums = cuda.shared.array(threads, np.int64)
        thread = cuda.threadIdx.x
        stretch = (counts.size + threads - 1) // threads
        first = min(thread * stretch, counts.size)
        stop = min(first + stretch, counts.size)
        total = np.int64(0)
        for i in range(first, stop):
            total += counts[i]
        sums[thread] = total
        cuda.syncthreads()
        if thread == 0:
            total = np.int64(0)
            for i in range(threads):
                here = sums[i]
                sums[i] = total
                total += here
            out[counts.size] = total
        cuda.syncthreads()
        total = sums[thread]
        for i in range(first, stop):
            out[i] = total
            total += counts[i]

    return kernel
