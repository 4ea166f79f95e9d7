"""Sort hit words: on the GPU if there are many, otherwise on the host.

Both sort by ranges of windows. On the GPU a group is 2^13 windows, a tile of ``bit_sliced``, whose
hits are already adjacent, about 64 at a time. So the lanes of a warp mostly add to the same
counter, and one of them adds for all.

    tally     counts[g] = the hits of group g                          a thread per hit
    begins    ends[g] = the hits of groups before g; counts are zeros again
    place     hits to their group; then ends[g] is where group g ends  a thread per hit
    sort      a group's hits in order, with ids                        a block per group

``sort`` counts hits into bins of windows in shared memory, so small that each holds a handful,
places the hits in them, and compares each with the others in its bin.

A hit word, as read by streamer/batch/hamming/problem.py:

63              36 35                                          8 7          0
[ start in chunk ] [ id, or on the GPU the pattern's index     ] [ distance ]
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import ALL_LANES, as_signed, cuda, device_function
from gpu.card.kernel_cache import grid, made, plain
from gpu.card.memory import Workspace
from gpu.exact.device_tree import clear
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges, usable_cores
from trie.trees.shards import sort_unique

START, ID = 36, 8  # the bits where start and id begin
ID_MASK = ((1 << START - ID) - 1) << ID


# mypy: no-check-untyped-defs


THREADS = 256  # threads per block; a multiple of 32, at most 1024
EACH = 4  # counts per thread of ``begins`` at a time
GROUP = 13  # a group is 2^GROUP windows
FEW = 3  # ``sort`` for few hits uses bins of 2^FEW windows or more

FEW_THREADS, MANY_THREADS = THREADS // 2, 4 * THREADS
"""Threads per block of ``sort`` and ``begins``; with many hits few blocks per multiprocessor, so
that their output stays in the GPU's cache.
"""


@device_function
def _peers(words, hit, hits):
    """(a hit's group or -1, the lanes with the same group, the first of them)."""
    group = np.int32(-1)
    if hit < hits:
        group = np.int32(words[hit] >> np.uint64(START + GROUP))
    peers = np.uint32(cuda.match_any_sync(ALL_LANES, group))
    return group, peers, np.uint32(np.uint32(cuda.ffs(peers)) - np.uint32(1))


def tally(words, hits, counts):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= hits.

    Arguments: found uint64[] hit words, hits uint32 of them, counts uint32[groups], zeros.
    """
    group, peers, first = _peers(words, np.uint32(cuda.grid(1)), hits)
    lane = np.uint32(np.uint32(cuda.threadIdx.x) & np.uint32(31))
    if lane == first and group >= np.int32(0):
        cuda.atomic.add(counts, group, np.uint32(cuda.popc(peers)))


def _block_sum(threads: int) -> Callable[..., None]:
    """A device function that returns (the sum over earlier threads, the sum of all)."""
    warps = threads // 32

    def block_sum(value, sums):
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


def begins(threads: int) -> Callable[..., None]:
    """The kernel ``[1, threads]``."""
    warps = threads // 32
    block_sum = _block_sum(threads)

    def kernel(counts, ends):
        """Arguments: counts, ends uint32[groups]."""
        sums = cuda.shared.array(warps, np.uint32)
        mine = cuda.local.array(EACH, np.uint32)
        groups = np.uint32(counts.size)
        before_all = np.uint32(0)
        first = np.uint32(0)
        while first < groups:
            at = np.uint32(first + np.uint32(np.uint32(cuda.threadIdx.x) * np.uint32(EACH)))
            value = np.uint32(0)
            for i in range(EACH):
                mine[i] = np.uint32(0)
                if np.uint32(at + np.uint32(i)) < groups:
                    mine[i] = counts[np.uint32(at + np.uint32(i))]
                value = np.uint32(value + mine[i])
            before, total = block_sum(value, sums)
            before = np.uint32(before + before_all)
            for i in range(EACH):
                if np.uint32(at + np.uint32(i)) < groups:
                    ends[np.uint32(at + np.uint32(i))] = before
                    counts[np.uint32(at + np.uint32(i))] = np.uint32(0)
                before = np.uint32(before + mine[i])
            before_all = np.uint32(before_all + total)
            first = np.uint32(first + np.uint32(threads * EACH))

    return kernel


def place(words, hits, ends, placed):
    """The kernel; launch as ``tally``. Arguments as there, after ``begins``; placed uint64[]."""
    hit = np.uint32(cuda.grid(1))
    group, peers, first = _peers(words, hit, hits)
    lane = np.uint32(np.uint32(cuda.threadIdx.x) & np.uint32(31))
    to = np.uint32(0)
    if lane == first and group >= np.int32(0):
        to = cuda.atomic.add(ends, group, np.uint32(cuda.popc(peers)))
    to = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(np.uint32(to)), first))
    if group >= np.int32(0):
        lower = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        before = np.uint32(cuda.popc(np.uint32(peers & lower)))
        placed[np.uint32(to + before)] = words[hit]


@device_function
def _padded(number):
    """The index of a bin: a word is skipped after every 32, against bank conflicts."""
    return np.uint32(number + np.uint32(number >> np.uint32(5)))


@device_function
def _bin(word, shift):
    """The number of a hit word's bin in its group."""
    start = np.uint32(np.uint32(word >> np.uint64(START)) & np.uint32((1 << GROUP) - 1))
    return np.uint32(start >> shift)


def sort(threads: int, least: int) -> Callable[..., None]:
    """The kernel ``[groups, threads]`` for bins of at least 2^least windows."""
    warps = threads // 32
    room = (1 << (GROUP - least)) + (1 << (GROUP - least) >> 5)
    block_sum = _block_sum(threads)

    def kernel(placed, ends, shift, ids, space):
        """Arguments: placed uint64[] from ``place``, then sorted, with ids; ends; shift uint32, a
        bin is 2^shift windows; ids uint64[r] to replace the patterns' indices, shifted to their
        place in a hit word; space uint64[], as large as placed.
        """
        bins = cuda.shared.array(room, np.uint32)
        sums = cuda.shared.array(warps, np.uint32)
        own = np.uint32(cuda.threadIdx.x)
        group = np.uint32(cuda.blockIdx.x)
        begin = np.uint32(0)
        if group != np.uint32(0):
            begin = ends[np.uint32(group - np.uint32(1))]
        stop = ends[group]
        if begin == stop:
            return
        count = np.uint32(np.uint32(1 << GROUP) >> shift)
        at = own
        while at < count:
            bins[_padded(at)] = np.uint32(0)
            at = np.uint32(at + np.uint32(threads))
        cuda.syncthreads()
        at = np.uint32(begin + own)
        while at < stop:
            cuda.atomic.add(bins, _padded(_bin(placed[at], shift)), np.uint32(1))
            at = np.uint32(at + np.uint32(threads))
        cuda.syncthreads()
        each = np.uint32(np.uint32(count + np.uint32(threads - 1)) // np.uint32(threads))
        first = min(np.uint32(own * each), count)
        last = min(np.uint32(first + each), count)
        value = np.uint32(0)
        at = first
        while at < last:
            value = np.uint32(value + bins[_padded(at)])
            at = np.uint32(at + np.uint32(1))
        before, _ = block_sum(value, sums)
        at = first
        while at < last:
            here = bins[_padded(at)]
            bins[_padded(at)] = before
            before = np.uint32(before + here)
            at = np.uint32(at + np.uint32(1))
        cuda.syncthreads()
        at = np.uint32(begin + own)
        while at < stop:
            word = placed[at]
            to = cuda.atomic.add(bins, _padded(_bin(word, shift)), np.uint32(1))
            space[np.uint32(begin + np.uint32(to))] = word
            at = np.uint32(at + np.uint32(threads))
        cuda.syncthreads()
        at = np.uint32(begin + own)
        while at < stop:
            word = space[at]
            number = _bin(word, shift)
            other = begin
            if number != np.uint32(0):
                other = np.uint32(begin + bins[_padded(np.uint32(number - np.uint32(1)))])
            last = np.uint32(begin + bins[_padded(number)])
            to = other
            while other < last:
                if space[other] < word:
                    to = np.uint32(to + np.uint32(1))
                other = np.uint32(other + np.uint32(1))
            index = np.uint32(np.uint64(word & np.uint64(ID_MASK)) >> np.uint64(ID))
            placed[to] = np.uint64(np.uint64(word & np.uint64(~ID_MASK & (2**64 - 1))) | ids[index])
            at = np.uint32(at + np.uint32(threads))

    return kernel


LEAST_PART = 1 << 14  # hit words worth a thread
LEAST_ON_GPU = 1 << 17  # hit words worth compiling the kernels
CROWDED = 256  # hits per window above which the GPU would compare each with too many others


def bin_width(hits: int, windows: int) -> int:
    """The shift from a window's number to its bin's: about two hits per bin."""
    return min(GROUP, max(0, (2 * windows // hits).bit_length() - 1))


class HitSorter:
    """Fetches sorted hit words; ids: uint64[r], ascending, shifted to their place in a hit word."""

    def __init__(self, ids: NDArray[np.uint64]) -> None:
        self._ids = ids
        self._ids_there = cuda.to_device(ids)
        self._space = Workspace()
        self._zeros: Any = None

    def fetch(self, there: Any, hits: int, windows: int, stream: Any) -> list[NDArray[np.uint64]]:
        """The first ``hits`` words of ``there`` on the host, ascending; valid until the next call.

        there: on the GPU, with indices of patterns; overwritten.
        """
        if not hits:
            return []
        on_gpu = LEAST_ON_GPU <= hits <= CROWDED * windows
        if on_gpu:
            there = self._sorted(there, hits, windows, stream)
        words = self._space.on_host("words", hits, np.uint64)[:hits]
        there[:hits].copy_to_host(words, stream=stream)
        stream.synchronize()
        return [words] if on_gpu else in_order(words, self._ids, windows)

    def _sorted(self, there: Any, hits: int, windows: int, stream: Any) -> Any:
        """Queue the sorting of the first ``hits`` words; returns the array that will hold them."""
        placed = self._space.array("placed", there.size, np.uint64)
        groups = ((windows - 1) >> GROUP) + 1
        zeros = self._space.array("counts", groups, np.uint32)
        if zeros is not self._zeros:  # they are zero again after use
            clear(zeros, stream)
            self._zeros = zeros
        counts = zeros[:groups]
        ends = self._space.array("ends", groups, np.uint32)[:groups]
        launch = (grid(hits, THREADS), THREADS, stream)
        number, width = np.uint32(hits), np.uint32(bin_width(hits, windows))
        threads, least = MANY_THREADS, 0
        plain(tally)[launch](there, number, counts)
        made(begins, threads)[1, threads, stream](counts, ends)
        plain(place)[launch](there, number, ends, placed)
        if width >= FEW:
            threads, least = FEW_THREADS, FEW
        made(sort, threads, least)[groups, threads, stream](
            placed, ends, width, self._ids_there, there
        )
        return placed


def in_order(
    words: NDArray[np.uint64], ids: NDArray[np.uint64], windows: int
) -> list[NDArray[np.uint64]]:
    """Hit words, all distinct, with indices replaced by ids, ascending."""
    named, cores = np.empty_like(words), usable_cores()
    run_ranges(partial(_name, words, ids, named), 0, words.size, cores, grain=LEAST_PART)
    bits = START + max(windows - 1, 1).bit_length()
    return [sort_unique(named, max(3, -(-bits // 2)), cores)]


@njit(cache=True, nogil=True)
def _name(words, ids, named, first, stop):
    """Replace the indices of words[first:stop] by the patterns' ids."""
    index_bits = np.uint64(ID_MASK)
    for i in range(first, stop):
        index = np.int64((words[i] & index_bits) >> np.uint64(ID))
        named[i] = (words[i] & ~index_bits) | ids[index]
