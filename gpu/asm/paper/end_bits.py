"""Count by block and list hits given as one bit per end, as ``pasm`` and ``wspasm`` write them.

Bit i of word w is the end 32 w + i + 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    as_signed,
    cuda,
    device_function,
    population,
    sum_to_lane,
)

THREADS = 256  # threads per block; a power of two, at least 32
STEPS = 8  # words per thread of ``count`` and ``emit``, THREADS apart


@device_function
def word_of_ends(found, search, word, low, high):
    """A word of hits whose ends lie in (low, high]."""
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

    def kernel(found, low, high, counts):
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


def emit(threads: int) -> Callable[..., None]:
    """Write the hits that ``count`` counted, grouped by search, ends ascending; same launch.

    Arguments: found, low, high, k, low_planes int32, places int64[searches * blocks + 1] (where a
    block's hits go), ends uint32[], distances uint16[]. The hits of ``threads`` words at a time are
    listed in shared memory, so that all threads write equally many.
    """
    warps = threads // 32
    room = 32 * threads

    def kernel(found, low, high, k, low_planes, places, ends, distances):
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
            upto = sum_to_lane(mine, lane)
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
