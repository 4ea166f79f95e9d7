"""Hit words in ascending order: counted into bins of windows, placed there, ranked in their bin.

A bin is 2^shift consecutive windows, few enough that it holds a handful of hits.

    tally     bins[b] = its hits                                       a thread a hit
    totals    totals[i] = the hits of a block's bins
    begins    bins[b] = the hits in bins before it
    place     hits to their bins; then bins[b] is where bin b ends     a thread a hit
    rank      every hit is compared with its bin's, and written where it belongs, with its id
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function

THREADS = 256
"""Threads a block; a multiple of 32, at most 1024."""

EACH = 4
"""Bins a thread of ``totals`` and ``begins``."""

START = 36
"""The bit where a hit word's start begins."""

ID = 8
_INDEX = ((1 << 28) - 1) << ID


@device_function
def _bin(word, shift):  # type: ignore[no-untyped-def]
    """The bin of a hit word."""
    return np.uint32(np.uint32(word >> np.uint64(START)) >> np.uint32(shift))


def tally(found, hits, shift, bins):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= hits.

    Arguments: found uint64[] hit words, hits uint32 of them, shift uint32, bins uint32[], zeros.
    """
    hit = np.uint32(cuda.grid(1))
    if hit < hits:
        cuda.atomic.add(bins, _bin(found[hit], shift), np.uint32(1))


def signature_tally() -> tuple[str, ...]:
    """Argument types of ``tally``."""
    return ("uint64[::1]", "uint32", "uint32", "uint32[::1]")


def _block_sum(threads: int) -> Callable[..., None]:
    """A device function: a value of each thread to (the sum of those before, the sum of all)."""
    warps = threads // 32

    def block_sum(value, sums):  # type: ignore[no-untyped-def]
        own = np.uint32(cuda.threadIdx.x)
        lane = np.uint32(own & np.uint32(31))
        upto = value
        for step in (1, 2, 4, 8, 16):
            other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(upto), step))
            if lane >= np.uint32(step):
                upto = np.uint32(upto + other)
        cuda.syncthreads()
        if lane == np.uint32(31):
            sums[own >> np.uint32(5)] = upto
        cuda.syncthreads()
        before = np.uint32(upto - value)
        total = np.uint32(0)
        for warp in range(warps):
            here = sums[warp]
            if np.uint32(warp) < np.uint32(own >> np.uint32(5)):
                before = np.uint32(before + here)
            total = np.uint32(total + here)
        return before, total

    return device_function(block_sum)


def totals(threads: int) -> Callable[..., None]:
    """The kernel ``[blocks, threads]`` with EACH * threads bins a block."""
    warps = threads // 32
    block_sum = _block_sum(threads)

    def kernel(bins, totals):  # type: ignore[no-untyped-def]
        """Arguments: bins uint32[blocks * threads * EACH], totals uint32[blocks]."""
        sums = cuda.shared.array(warps, np.uint32)
        at = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(threads * EACH))
        at = np.uint32(at + np.uint32(cuda.threadIdx.x))
        value = np.uint32(0)
        for i in range(EACH):
            value = np.uint32(value + bins[np.uint32(at + np.uint32(i * threads))])
        _, total = block_sum(value, sums)
        if cuda.threadIdx.x == 0:
            totals[cuda.blockIdx.x] = total

    return kernel


def signature_totals() -> tuple[str, ...]:
    """Argument types of ``totals`` and ``begins``."""
    return ("uint32[::1]", "uint32[::1]")


def begins(threads: int) -> Callable[..., None]:
    """The kernel that follows ``totals``; launch and arguments as there."""
    warps = threads // 32
    block_sum = _block_sum(threads)

    def kernel(bins, totals):  # type: ignore[no-untyped-def]
        sums = cuda.shared.array(warps, np.uint32)
        block = np.uint32(cuda.blockIdx.x)
        own = np.uint32(cuda.threadIdx.x)
        before = np.uint32(0)
        other = own
        while other < block:
            before = np.uint32(before + totals[other])
            other = np.uint32(other + np.uint32(threads))
        _, before = block_sum(before, sums)
        at = np.uint32(np.uint32(np.uint32(block * np.uint32(threads)) + own) * np.uint32(EACH))
        value = np.uint32(0)
        for i in range(EACH):
            value = np.uint32(value + bins[np.uint32(at + np.uint32(i))])
        first, _ = block_sum(value, sums)
        first = np.uint32(first + before)
        for i in range(EACH):
            here = bins[np.uint32(at + np.uint32(i))]
            bins[np.uint32(at + np.uint32(i))] = first
            first = np.uint32(first + here)

    return kernel


def place(found, hits, shift, bins, placed):  # type: ignore[no-untyped-def]
    """The kernel; launch as ``tally``. Arguments as there, after ``begins``; placed uint64[]."""
    hit = np.uint32(cuda.grid(1))
    if hit < hits:
        word = found[hit]
        placed[cuda.atomic.add(bins, _bin(word, shift), np.uint32(1))] = word


def signature_place() -> tuple[str, ...]:
    """Argument types of ``place``."""
    return ("uint64[::1]", "uint32", "uint32", "uint32[::1]", "uint64[::1]")


def rank(placed, hits, shift, bins, ids, ordered):  # type: ignore[no-untyped-def]
    """The kernel; launch as ``tally``.

    Arguments: as of ``place``, ids uint64[r] for the patterns' indices, in place in a hit word,
    ordered uint64[].
    """
    hit = np.uint32(cuda.grid(1))
    if hit < hits:
        word = placed[hit]
        number = _bin(word, shift)
        at = np.uint32(0)
        if number != np.uint32(0):
            at = bins[np.uint32(number - np.uint32(1))]
        stop = bins[number]
        to = at
        while at < stop:
            if placed[at] < word:
                to = np.uint32(to + np.uint32(1))
            at = np.uint32(at + np.uint32(1))
        index = np.uint32(np.uint64(word & np.uint64(_INDEX)) >> np.uint64(ID))
        ordered[to] = np.uint64(np.uint64(word & np.uint64(~_INDEX & (2**64 - 1))) | ids[index])


def signature_rank() -> tuple[str, ...]:
    """Argument types of ``rank``."""
    return (
        "uint64[::1]", "uint32", "uint32", "uint32[::1]", "uint64[::1]", "uint64[::1]",
    )  # fmt: skip
