"""The queue kernel (thesis Fig. 33-35): the efficient kernel with a shared-memory queue per warp.

Sweeps and transitions are those of the efficient kernel. There the parent's thread wakes its
children one after another; here the whole warp queues them and wakes them in parallel:

    for each lane with chosen children, its exmap mask, exmap and prefix sum go to all lanes (shfl);
    lane i tests bits i and i + 32; a ballot tells each writing lane how many write before it; the
    entry is the child's index by equation 2
        entry   uint32   bit 31: wake at dist-level 0, else at d + 1 | 30-0 trie-node
    the queue is drained, one entry per lane, when fewer than 32 places are left and after each
    level

So a queue cannot overflow: before 32 entries are added it has at most QUEUE - 32. It takes 4 QUEUE
bytes of shared memory per warp. Compared to ``efficient``, a child costs one more write and read of
shared memory, a parent 2 ballots and 5 shuffles of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    as_signed,
    bit_mask_below,
    cuda,
    device_function,
    load_word,
    population,
)
from gpu.exact.window_bits import children_before, has_bit
from gpu.ltb.efficient import sweeps
from gpu.ltb.sweeping import missed_bits, move, sweeping

THREADS = 256  # threads per block; any multiple of 32
QUEUE = 128  # entries of a warp's queue, as in the thesis; at least 32
NODES = 2**31  # trie-nodes that an entry can name


def queue(threads: int, entries: int = QUEUE) -> Callable[..., None]:
    """The kernel for blocks of ``threads``, 32 | threads; arguments as ``sweeping``, N <= NODES.

    entries: the size of a queue, at least 32.
    """

    @device_function
    def drain(queued, start, count, lane, active, row, above):
        """Wake the queued children; entries are distinct, since a child has one parent."""
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
    def put(queued, start, count, lane, tag, chosen, exmap, prefix_sum, active, row, above):
        """Queue the children of all lanes (thesis Fig. 35); returns the entries afterwards."""
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

    @device_function
    def visit_level(
        found, missed, queued, thread, threads, active, base, nodes, first, end, d, moves, depth,
        limits, trie,
    ):  # fmt: skip
        k, distance = limits
        lane = np.uint32(thread & np.uint32(31))
        warp = np.uint32(thread >> np.uint32(5))
        start = np.uint32(warp * np.uint32(entries))
        row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
        above = np.uint64(row + nodes)
        count = np.uint32(0)
        # the loop is over warps, so that their lanes stay together
        leader = np.uint32(first + np.uint32(warp << np.uint32(5)))
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
                inmap = np.uint32(load_word(trie[0], node))
                if distance != np.uint32(0):
                    level = np.uint32(d + np.uint32(1))
                    of_match, exmap, chosen = move(
                        active, above, node, level, states, lower, moves, depth, limits, inmap, trie
                    )
                    found = np.uint32(found | of_match)
                if d == np.uint32(0) and lower != np.uint32(0):
                    of_match, outer, exact = move(
                        active, row, node, d, lower, np.uint32(0), moves, depth, limits, inmap, trie
                    )
                    exmap = np.uint64(exmap | outer)
                    found = np.uint32(found | of_match)
                    of_mismatch = missed_bits(lower, moves[0], depth, k, inmap, trie[1], node)
                    missed = np.uint32(missed | of_mismatch)
                if np.uint64(chosen | exact) != np.uint64(0):
                    prefix_sum = np.uint32(load_word(trie[2], node))
            count = put(
                queued, start, count, lane, np.uint32(0), chosen, exmap, prefix_sum, active, row,
                above,
            )  # fmt: skip
            if d == np.uint32(0):
                count = put(
                    queued, start, count, lane, np.uint32(0x80000000), exact, exmap, prefix_sum,
                    active, row, above,
                )  # fmt: skip
            leader = np.uint32(leader + threads)
        drain(queued, start, count, lane, active, row, above)
        return found, missed

    return sweeping(sweeps, visit_level, threads // 32 * entries)
