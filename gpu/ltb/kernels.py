"""The kernels of the Levenshtein Tree Bitmap by name, and how many blocks of them a GPU runs."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.launch import Source, compiled
from gpu.ltb import efficient, naive, queue, sliced
from gpu.ltb.sweeping import ARGUMENTS
from trie.codes import MAX_DISTANCE

KERNELS = ("ltb-sliced", "ltb-naive", "ltb-efficient", "ltb-queue")
"""Names of the methods: the default, then those of the thesis."""

BLOCKS = 4
"""Blocks at most in numba's simulator."""

_SWEEPING: dict[str, ModuleType] = {
    "ltb-naive": naive,
    "ltb-efficient": efficient,
    "ltb-queue": queue,
}


def sources(threads: int = queue.THREADS, entries: int = queue.QUEUE) -> dict[str, Source]:
    """Every kernel; threads a block and entries of a queue are those of ``ltb-queue``."""
    table: dict[str, Source] = {
        "planes": (sliced.planes, ("uint8[::1]", "uint32", "uint32", "uint32", "uint64[::1]")),
        "ltb-naive": (naive.naive, ARGUMENTS),
        "ltb-efficient": (efficient.efficient, ARGUMENTS),
        "ltb-queue": (queue.queue(threads, entries), ARGUMENTS),
    }
    for distance in range(MAX_DISTANCE + 1):
        table[f"ltb-sliced-{distance}"] = (sliced.sliced(distance + 1), sliced.ARGUMENTS)
    return table


def kernel(name: str) -> Any:
    """The compiled kernel of that name."""
    if name == "ltb-queue":
        return compiled(sources, name, queue.THREADS, queue.QUEUE)
    return compiled(sources, name)


def threads_of(method: str) -> int:
    """Threads a block of a kernel of the thesis."""
    return int(_SWEEPING[method].THREADS)


@cache
def occupancy(method: str) -> tuple[int, int]:
    """Registers a thread of a kernel of the thesis, and its blocks that a multiprocessor holds.

    The bounds are registers (65,536, allocated 256 a warp) and threads (2,048): the queues' shared
    memory, 512 bytes a warp, would bind later.
    """
    run = kernel(method)
    run.compile(tuple(numba_type(name) for name in ARGUMENTS))
    registers = int(next(iter(run.get_regs_per_thread().values())))
    a_warp = -(-32 * registers // 256) * 256
    threads = threads_of(method)
    return registers, min(2048 // threads, 65536 // (a_warp * (threads // 32)))


def resident_blocks(method: str) -> int:
    """Blocks of a kernel of the thesis that the current GPU runs at once: no more are started."""
    if SIMULATED:
        return BLOCKS
    return occupancy(method)[1] * int(cuda.get_current_device().MULTIPROCESSOR_COUNT)
