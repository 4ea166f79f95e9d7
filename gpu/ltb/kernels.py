"""The Levenshtein Tree Bitmap kernels by name, and how many of their blocks a GPU runs."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.launch import made, plain
from gpu.ltb import efficient, naive, queue
from gpu.ltb.sweeping import ARGUMENTS

KERNELS = ("ltb-sliced", "ltb-naive", "ltb-efficient", "ltb-queue")
"""Names of the methods: the default, then those of the thesis."""

BLOCKS = 4  # most blocks in numba's simulator


def kernel(method: str) -> tuple[Any, int]:
    """A compiled kernel of the thesis, and its threads per block."""
    if method == "ltb-queue":
        return made(queue.queue, queue.THREADS, queue.QUEUE), queue.THREADS
    if method == "ltb-efficient":
        return plain(efficient.efficient), efficient.THREADS
    return plain(naive.naive), naive.THREADS


@cache
def occupancy(method: str) -> tuple[int, int]:
    """Registers per thread of a kernel of the thesis, and its resident blocks per multiprocessor.

    The limits are registers (65,536, allocated 256 per warp) and threads (2,048); the queues'
    shared memory, 512 bytes per warp, is not reached before.
    """
    run, threads = kernel(method)
    run.compile(tuple(numba_type(name) for name in ARGUMENTS))
    registers = int(next(iter(run.get_regs_per_thread().values())))
    a_warp = -(-32 * registers // 256) * 256
    return registers, min(2048 // threads, 65536 // (a_warp * (threads // 32)))


def resident_blocks(method: str) -> int:
    """Blocks of a kernel of the thesis that the current GPU runs at once; no more are launched."""
    if SIMULATED:
        return BLOCKS
    return occupancy(method)[1] * int(cuda.get_current_device().MULTIPROCESSOR_COUNT)
