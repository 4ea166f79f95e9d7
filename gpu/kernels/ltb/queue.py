"""The queue kernel (thesis Fig. 33-35): the efficient kernel with a queue a warp in shared memory.

Sweeps and transitions are those of the efficient kernel. Children are not woken by the thread of
their parent, one after the other, but queued by the whole warp and woken side by side:

    for each lane that has chosen children, its exmap mask, exmap and prefix sum go to all lanes
    (shfl); lane i looks at bits i and i + 32; a ballot tells each lane that writes how many write
    before it; the entry is the child's index by equation 2
        entry   uint32   bit 31: to be woken at dist-level 0, else at d + 1 | 30-0 trie-node
    an entry a lane is woken when fewer than 32 places are left, and behind each level

So a queue cannot overflow: before 32 entries are added at most QUEUE - 32 are there. 4 QUEUE bytes
of shared memory a warp; each child costs a write and a read of shared memory more than in
``efficient``, each parent 2 ballots and 5 shuffles of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.bits import children_before, has_bit
from gpu.intrinsics import (
    ALL_LANES,
    as_signed,
    bit_mask_below,
    cuda,
    device_function,
    load_word,
    population,
)
from gpu.kernels.ltb import FIRST_OF_READ
from gpu.kernels.ltb.shared import K_STEP, forget, found_bits, missed_bits, transition

THREADS = 256
"""Threads a block; any multiple of 32."""

QUEUE = 128
"""Entries of a warp's queue, as in the thesis; at least 32."""

NODES = 2**31
"""Trie-nodes that an entry can name."""


def queue(threads: int, entries: int = QUEUE) -> Callable[..., None]:
    """The kernel; ``[grid, threads]`` with 32 | threads, arguments ``gpu.kernels.ltb.signature``.

    ``entries``: the size of a queue, at least 32. N is at most NODES.
    """
    words_shared = threads // 32 * entries

    @device_function
    def drain(queued, start, count, lane, active, row, above):  # type: ignore[no-untyped-def]
        """Wake all that is queued; entries are distinct, for a child has one parent."""
        cuda.syncwarp(ALL_LANES)
        at = lane
        while at < count:
            entry = np.uint32(queued[np.uint32(start + at)])
            place = np.uint64(above + np.uint64(np.uint32(entry & np.uint32(0x7FFFFFFF))))
            if entry >> np.uint32(31):
                place = np.uint64(row + np.uint64(np.uint32(entry & np.uint32(0x7FFFFFFF))))
            active[place] = np.uint32(active[place] | np.uint32(1))
            at = np.uint32(at + np.uint32(32))
        cuda.syncwarp(ALL_LANES)

    @device_function
    def put(  # type: ignore[no-untyped-def]
        queued, start, count, lane, tag, chosen, exmap, prefix_sum, active, row, above
    ):
        """Queue the children of all lanes (thesis Fig. 35); the number of entries afterwards."""
        pending = np.uint32(cuda.ballot_sync(ALL_LANES, chosen != np.uint64(0)))
        while pending != np.uint32(0):
            lower = np.uint32(np.uint32(~pending) & np.uint32(pending - np.uint32(1)))
            source = population(np.uint64(lower))
            pending = np.uint32(pending & np.uint32(pending - np.uint32(1)))
            mask = np.uint64(cuda.shfl_sync(ALL_LANES, as_signed(chosen), source))
            children = np.uint64(cuda.shfl_sync(ALL_LANES, as_signed(exmap), source))
            before = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(prefix_sum), source))
            for half in range(2):
                group = np.uint32(lane + np.uint32(32 * half))
                writes = has_bit(mask, group)
                votes = np.uint32(cuda.ballot_sync(ALL_LANES, writes))
                if writes:
                    ahead = population(np.uint64(votes) & bit_mask_below(lane))
                    child = np.uint32(before + children_before(children, group))
                    slot = np.uint32(np.uint32(start + count) + ahead)
                    queued[slot] = np.uint32(child | tag)
                count = np.uint32(count + population(np.uint64(votes)))
                if count > np.uint32(entries - 32):
                    drain(queued, start, count, lane, active, row, above)
                    count = np.uint32(0)
        return count

    def kernel(  # type: ignore[no-untyped-def]
        symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
        mismatches,
    ):  # fmt: skip
        queued = cuda.shared.array(words_shared, np.uint32)
        lane = np.uint32(np.uint32(cuda.threadIdx.x) & np.uint32(31))
        warp = np.uint32(np.uint32(cuda.threadIdx.x) >> np.uint32(5))
        start = np.uint32(warp * np.uint32(entries))
        total = np.uint32(symbols.size)
        nodes = np.uint64(inmaps.size)
        words = np.uint64(nodes * np.uint64(distance + np.uint32(1)))
        base = np.uint64(np.uint64(cuda.blockIdx.x) * words)
        overlap = np.uint32(np.uint32(k + distance) - np.uint32(1))
        first = np.uint32(np.uint32(cuda.blockIdx.x) * piece)
        while first < total:
            stop = np.uint32(first + min(np.uint32(total - first), piece))
            at = np.uint32(first - min(first, overlap))
            forget(active, base, words, cuda.threadIdx.x, cuda.blockDim.x)
            cuda.syncthreads()
            while at < stop:
                symbol = np.uint32(symbols[at])
                if symbol & np.uint32(FIRST_OF_READ):
                    forget(active, base, words, cuda.threadIdx.x, cuda.blockDim.x)
                    cuda.syncthreads()
                step = K_STEP(np.uint32(symbol & np.uint32(7)))
                others = np.uint32(step ^ np.uint32(15))
                found = np.uint32(0)
                missed = np.uint32(0)
                sweep = max(distance, np.uint32(1))
                while sweep > np.uint32(0):
                    sweep = np.uint32(sweep - np.uint32(1))
                    d = sweep
                    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
                    above = np.uint64(row + nodes)
                    level = np.uint32(k // np.uint32(3) + np.uint32(1))
                    while level > np.uint32(0):
                        level = np.uint32(level - np.uint32(1))
                        depth = np.uint32(np.uint32(3) * level)
                        count = np.uint32(0)
                        # the first node of this warp, so that its lanes stay together
                        leader = np.uint32(level_offsets[level] + np.uint32(warp << np.uint32(5)))
                        end = np.uint32(level_offsets[level + 1])
                        while leader < end:
                            node = np.uint32(leader + lane)
                            lower = np.uint32(0)
                            states = np.uint32(0)
                            if node < end:
                                lower = np.uint32(active[row + np.uint64(node)])
                                if distance != np.uint32(0):
                                    states = np.uint32(active[above + np.uint64(node)])
                            if node == np.uint32(0) and d == np.uint32(0):
                                lower = np.uint32(lower | np.uint32(1))
                            exmap = np.uint64(0)
                            prefix_sum = np.uint32(0)
                            chosen = np.uint64(0)
                            exact = np.uint64(0)
                            if np.uint32(lower | states) != np.uint32(0):
                                inmap = np.uint32(load_word(inmaps, node))
                                if distance != np.uint32(0):
                                    reached, exmap, chosen = transition(
                                        states, lower, step, others, depth, k, inmap, exmaps, node
                                    )
                                    active[above + np.uint64(node)] = reached
                                    found = np.uint32(
                                        found
                                        | found_bits(
                                            reached, chosen, depth, np.uint32(d + np.uint32(1)), k,
                                            distance,
                                        )
                                    )  # fmt: skip
                                if d == np.uint32(0) and lower != np.uint32(0):
                                    reached, outer, exact = transition(
                                        lower, np.uint32(0), step, others, depth, k, inmap, exmaps,
                                        node,
                                    )  # fmt: skip
                                    exmap = np.uint64(exmap | outer)
                                    active[row + np.uint64(node)] = reached
                                    found = np.uint32(
                                        found | found_bits(reached, exact, depth, d, k, distance)
                                    )
                                    missed = np.uint32(
                                        missed
                                        | missed_bits(lower, step, depth, k, inmap, exmaps, node)
                                    )
                                if np.uint64(chosen | exact) != np.uint64(0):
                                    prefix_sum = np.uint32(load_word(prefix_sums, node))
                            count = put(
                                queued, start, count, lane, np.uint32(0), chosen, exmap,
                                prefix_sum, active, row, above,
                            )  # fmt: skip
                            if d == np.uint32(0):
                                count = put(
                                    queued, start, count, lane, np.uint32(0x80000000), exact,
                                    exmap, prefix_sum, active, row, above,
                                )  # fmt: skip
                            leader = np.uint32(leader + np.uint32(cuda.blockDim.x))
                        drain(queued, start, count, lane, active, row, above)
                        cuda.syncthreads()
                if at >= first:
                    if found != np.uint32(0):
                        cuda.atomic.or_(matches, at, found)
                    if missed != np.uint32(0):
                        cuda.atomic.or_(mismatches, at, missed)
                at = np.uint32(at + np.uint32(1))
            first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))

    return kernel
