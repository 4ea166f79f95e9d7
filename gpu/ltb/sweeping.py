"""The thesis's kernels (3.3.17, Fig. 30-35) and their common frame: sweeps by level.

A block takes a piece of the stream, and its threads take turns with the trie-nodes of a level. Each
block has its own active bitmaps in global memory, D + 1 for each trie-node, one array per
dist-level:

    active   uint32[grid, D + 1, N]   laid out as inmaps
    symbols  uint8                    bits 0-2 code (4: gap) | bit 3 first of a read

A sweep visits all levels of the trie, the deepest first, with ``syncthreads`` after each, so that a
child is done before its parent wakes it. The kernels differ in what a sweep does:

    naive      for d = D ... 0: I and S of d into d + 1, then K of d             2 D + 1 sweeps
    efficient  for d = D - 1 ... 0: all transitions into d + 1; last K of 0      max(D, 1) sweeps
    queue      as efficient, but woken children pass through a queue per warp in shared memory

Every thread collects the bits of a symbol in registers and adds them to the bitmaps in global
memory with ``atomicOr`` if there are any. A piece begins k + D - 1 symbols early, without output.

Tuples keep the arguments of device functions few:

    moves    (step, others)                     bits of the symbol, and of the three others
    limits   (k, distance)
    trie     (inmaps, exmaps, prefix_sums)

Transitions take bit tricks (thesis Fig. 13, 14, 27-29). An active bitmap has the layout of an
inmap, one for each dist-level:

    bit 0 the node (depth 3l) | bits 1-4 depth 3l + 1 | bits 5-20 depth 3l + 2

State i of a depth leads to states 4 i ... 4 i + 3 of the next. ``spread`` moves every bit i of a
depth to 4 i at once, where the thesis visits each set bit; times a mask of 4 bits this gives

    generate_next_depth      spread(states) * step            step = 1 << symbol; 0 on a gap code
    generate_next_s_depth    spread(states) * 0xF  XOR  that  = spread(states) * (step ^ 0xF)

because no two products overlap. So K- and S-transitions are the same functions with different
masks, a gap code needs no special case, and I-transitions are an OR of whole bitmaps.

Global memory per symbol and active trie-node, of 4 bytes, besides the inmap: 3 D + 1 reads and
2 D + 1 writes for ``naive`` (Fig. 30), 2 D reads and D + 1 writes for ``efficient`` (Fig. 32).

**queue** (Fig. 33-35): the whole warp queues the children to be woken and wakes them in parallel:

    for each lane with chosen children, its exmap mask, exmap and prefix sum go to all lanes (shfl);
    lane i tests bits i and i + 32; a ballot tells each writing lane how many write before it; the
    entry is the child's index by equation 2
        entry   uint32   bit 31: wake at dist-level 0, else at d + 1 | 30-0 trie-node
    the queue is drained, one entry per lane, when fewer than 32 places are left and after each
    level

So a queue cannot overflow. It takes 4 QUEUE bytes of shared memory per warp.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    SIMULATED,
    as_signed,
    bit_mask_below,
    cuda,
    device_function,
    load_word,
    numba_type,
    population,
)
from gpu.card.kernel_cache import made
from gpu.exact.window_bits import children_before, has_bit

CHILDREN = 0x1E
GRANDCHILDREN = 0x1FFFE0


@device_function
def spread(states):
    """Bit i (0..15) of a uint64 to bit 4 i: 8 operations."""
    x = np.uint64(states)
    x = np.uint64(x | np.uint64(x << np.uint64(24))) & np.uint64(0x000000FF000000FF)
    x = np.uint64(x | np.uint64(x << np.uint64(12))) & np.uint64(0x000F000F000F000F)
    x = np.uint64(x | np.uint64(x << np.uint64(6))) & np.uint64(0x0303030303030303)
    return np.uint64(x | np.uint64(x << np.uint64(3))) & np.uint64(0x1111111111111111)


@device_function
def spread_four(states):
    """Bit i (0..3) of a uint32 to bit 4 i."""
    x = np.uint32(states)
    x = np.uint32(np.uint32(x | np.uint32(x << np.uint32(6))) & np.uint32(0x0303))
    return np.uint32(np.uint32(x | np.uint32(x << np.uint32(3))) & np.uint32(0x1111))


@device_function
def k_step(symbol):
    """The mask of 4 bits of K-transitions on a symbol (0..3; 4: a gap code)."""
    return np.uint32(np.uint32(np.uint32(1) << np.uint32(symbol)) & np.uint32(15))


@device_function
def transition_inmap(states, step):
    """The inmap bits that states reach, existing or not."""
    one = np.uint32(np.uint32(states & np.uint32(1)) * step)
    ones = np.uint32(np.uint32(states >> np.uint32(1)) & np.uint32(15))
    two = np.uint32(spread_four(ones) * step)
    return np.uint32(np.uint32(one << np.uint32(1)) | np.uint32(two << np.uint32(5)))


@device_function
def exmap_transitions(states, step):
    """The exmap bits that states reach, existing or not."""
    twos = np.uint64(np.uint32(states >> np.uint32(5)))
    return np.uint64(spread(twos) * np.uint64(step))


@device_function
def distances(states, depth, level, k, distance):
    """The match bits (equation 4) of states, of which bit 0 has this depth."""
    bits = np.uint32(0)
    least = np.uint32(np.uint32(level + k) - distance)  # equation 4
    if states & np.uint32(1) and depth >= least:
        bits = np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
    depth = np.uint32(depth + np.uint32(1))
    if states & np.uint32(CHILDREN) and depth >= least:
        bits |= np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
    depth = np.uint32(depth + np.uint32(1))
    if states & np.uint32(GRANDCHILDREN) and depth >= least:
        bits |= np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
    return np.uint32(bits)


@device_function
def missing_depths(inner, outer, depth, k):
    """The bits of the depths of mismatches; inner and outer: bits of an inmap and an exmap."""
    missed = np.uint32(0)
    bit = np.uint32(np.uint32(2) << np.uint32(depth))
    if inner & np.uint32(CHILDREN) and depth < k:
        missed = bit
    if inner & np.uint32(GRANDCHILDREN) and np.uint32(depth + np.uint32(1)) < k:
        missed |= np.uint32(bit << np.uint32(1))
    if outer != np.uint64(0) and np.uint32(depth + np.uint32(2)) < k:
        missed |= np.uint32(bit << np.uint32(2))
    return np.uint32(missed)


@device_function
def forget(active, base, words, thread, threads):
    """Clear a thread's share of the active bitmaps of its block."""
    at = np.uint64(thread)
    while at < words:
        active[base + at] = np.uint32(0)
        at = np.uint64(at + np.uint64(threads))


@device_function
def wake(active, row, exmap, chosen, node, trie):
    """Activate the root bit of every child in ``chosen``, at the dist-level that begins at ``row``.

    A child has one parent, and its level is done, so no other thread writes there now.
    """
    if chosen != np.uint64(0):
        prefix_sum = load_word(trie[2], node)
        while chosen != np.uint64(0):
            below = np.uint64(np.uint64(~chosen) & np.uint64(chosen - np.uint64(1)))
            group = population(below)
            child = np.uint64(np.uint32(prefix_sum + children_before(exmap, group)))
            active[row + child] = np.uint32(active[row + child] | np.uint32(1))
            chosen = np.uint64(chosen & np.uint64(chosen - np.uint64(1)))


@device_function
def transition(states, lower, moves, depth, k, inmap, exmaps, node):
    """K of ``states``, I and S of ``lower`` at a node: (new states, exmap, chosen children)."""
    step, others = moves
    reached = np.uint32(transition_inmap(states, step) | transition_inmap(lower, others))
    reached = np.uint32(np.uint32(reached & inmap) | lower)
    exmap = np.uint64(0)
    chosen = np.uint64(0)
    if np.uint32(depth + np.uint32(3)) <= k:
        chosen = np.uint64(exmap_transitions(states, step) | exmap_transitions(lower, others))
        if chosen != np.uint64(0):
            exmap = np.uint64(load_word(exmaps, node))
            chosen = np.uint64(chosen & exmap)
    return reached, exmap, chosen


@device_function
def move(active, row, node, d, states, lower, moves, depth, limits, inmap, trie):
    """Store the transition into dist-level d, whose bitmaps begin at ``row``.

    Returns match bits, exmap and the chosen children.
    """
    k, distance = limits
    reached, exmap, chosen = transition(states, lower, moves, depth, k, inmap, trie[1], node)
    active[row + np.uint64(node)] = reached
    return found_bits(reached, chosen, depth, d, k, distance), exmap, chosen


@device_function
def found_bits(reached, chosen, depth, d, k, distance):
    """Match bits (equation 4) of the new states of a node and of its children's root bits."""
    bits = np.uint32(0)
    if np.uint32(depth + np.uint32(np.uint32(3) + distance)) >= k:
        bits = distances(reached, depth, d, k, distance)
        if chosen != np.uint64(0):
            deeper = np.uint32(depth + np.uint32(3))
            bits = np.uint32(bits | distances(np.uint32(1), deeper, d, k, distance))
    return bits


@device_function
def missed_bits(states, step, depth, k, inmap, exmaps, node):
    """Mismatch bits of the states of a node at dist-level 0."""
    inner = np.uint32(transition_inmap(states, step) & np.uint32(~inmap))
    outer = np.uint64(0)
    if np.uint32(depth + np.uint32(3)) <= k:
        outer = np.uint64(exmap_transitions(states, step))
        if outer != np.uint64(0):
            outer = np.uint64(outer & np.uint64(~load_word(exmaps, node)))
    return missing_depths(inner, outer, depth, k)


FIRST_OF_READ = 8

ARGUMENTS = (
    "uint8[::1]", "uint32", "uint32", "uint32", "uint32[::1]", "uint32[::1]", "uint64[::1]",
    "uint32[::1]", "uint32[::1]", "uint32[::1]", "uint32[::1]",
)  # fmt: skip
"""The argument types of the kernels."""


def by_threads(visit: Any) -> Any:
    """The ``visit_level`` of ``sweeping`` whose threads take turns with the nodes of a level.

    visit(active, base, nodes, node, sweep, ...): match and mismatch bits of a trie-node.
    """

    @device_function
    def visit_level(
        matched, missed, scratch, thread, threads, active, base, nodes, first, end, sweep, moves,
        depth, limits, trie,
    ):  # fmt: skip
        node = np.uint32(first + thread)
        while node < end:
            of_match, of_mismatch = visit(
                active, base, nodes, node, sweep, moves, depth, limits, trie
            )
            matched = np.uint32(matched | of_match)
            missed = np.uint32(missed | of_mismatch)
            node = np.uint32(node + threads)
        return matched, missed

    return visit_level


def sweeping(sweeps: Any, visit_level: Any, words: int = 1) -> Callable[..., None]:
    """The kernel, for any grid; 32 | block.

    Arguments: symbols uint8[n], k uint32, distance uint32, piece uint32 >= 1, level_offsets
    uint32[k // 3 + 2], inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N], active
    uint32[grid (D + 1) N], matches uint32[n] and mismatches uint32[n] (zeros before).

    sweeps(distance): the sweeps per symbol, numbered downwards to the last, 0. visit_level(found,
    missed, scratch, thread, threads, active, base, nodes, first, end, sweep, moves, depth, limits,
    trie): the block's sweep of the trie-nodes first..end - 1 of a level, which returns found and
    missed with this thread's bits added. scratch: uint32[``words``] in shared memory. The active
    bitmaps of dist-level d begin at base + d nodes. moves, limits, trie: as gpu/ltb/sweeping.py.
    """

    def kernel(
        symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
        mismatches,
    ):  # fmt: skip
        # allocated here, as the simulator has no shared memory in device functions; free if unused
        scratch = cuda.shared.array(words, np.uint32)
        count = np.uint32(symbols.size)
        nodes = np.uint64(inmaps.size)
        size = np.uint64(nodes * np.uint64(distance + np.uint32(1)))
        base = np.uint64(np.uint64(cuda.blockIdx.x) * size)
        overlap = np.uint32(np.uint32(k + distance) - np.uint32(1))
        first = np.uint32(np.uint32(cuda.blockIdx.x) * piece)
        while first < count:
            stop = np.uint32(first + min(np.uint32(count - first), piece))
            at = np.uint32(first - min(first, overlap))
            forget(active, base, size, cuda.threadIdx.x, cuda.blockDim.x)
            cuda.syncthreads()
            while at < stop:
                symbol = np.uint32(symbols[at])
                if symbol & np.uint32(FIRST_OF_READ):
                    forget(active, base, size, cuda.threadIdx.x, cuda.blockDim.x)
                    cuda.syncthreads()
                step = k_step(np.uint32(symbol & np.uint32(7)))
                others = np.uint32(step ^ np.uint32(15))
                matched = np.uint32(0)
                missed = np.uint32(0)
                sweep = np.uint32(sweeps(distance))
                while sweep > np.uint32(0):
                    sweep = np.uint32(sweep - np.uint32(1))
                    level = np.uint32(k // np.uint32(3) + np.uint32(1))
                    while level > np.uint32(0):
                        level = np.uint32(level - np.uint32(1))
                        depth = np.uint32(np.uint32(3) * level)
                        matched, missed = visit_level(
                            matched, missed, scratch, np.uint32(cuda.threadIdx.x),
                            np.uint32(cuda.blockDim.x), active, base, nodes,
                            np.uint32(level_offsets[level]), np.uint32(level_offsets[level + 1]),
                            sweep, (step, others), depth, (k, distance),
                            (inmaps, exmaps, prefix_sums),
                        )  # fmt: skip
                        cuda.syncthreads()
                if at >= first:
                    if matched != np.uint32(0):
                        cuda.atomic.or_(matches, at, matched)
                    if missed != np.uint32(0):
                        cuda.atomic.or_(mismatches, at, missed)
                at = np.uint32(at + np.uint32(1))
            first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))

    return kernel


THREADS = 256  # threads per block; any multiple of 32


@device_function
def naive_sweeps(distance):
    """Sweeps per symbol."""
    return np.uint32(np.uint32(distance + distance) + np.uint32(1))


@device_function
def naive_visit(active, base, nodes, node, sweep, moves, depth, limits, trie):
    """Step (a), (b) or (c) at a trie-node."""
    k, distance = limits
    matched = np.uint32(0)
    missed = np.uint32(0)
    d = np.uint32(sweep >> np.uint32(1))
    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
    states = np.uint32(active[row + np.uint64(node)])
    if node == np.uint32(0) and d == np.uint32(0):
        states = np.uint32(states | np.uint32(1))
    if states != np.uint32(0):
        inmap = np.uint32(load_word(trie[0], node))
        if sweep & np.uint32(1):
            above = np.uint64(row + nodes)
            reached, exmap, chosen = transition(
                np.uint32(0), states, moves, depth, k, inmap, trie[1], node
            )
            there = np.uint32(active[above + np.uint64(node)])
            active[above + np.uint64(node)] = np.uint32(there | reached)
            matched = found_bits(reached, chosen, depth, np.uint32(d + np.uint32(1)), k, distance)
            wake(active, above, exmap, chosen, node, trie)
        else:
            matched, exmap, chosen = move(
                active, row, node, d, states, np.uint32(0), moves, depth, limits, inmap, trie
            )
            wake(active, row, exmap, chosen, node, trie)
            if d == np.uint32(0):
                missed = missed_bits(states, moves[0], depth, k, inmap, trie[1], node)
    return matched, missed


def naive() -> Callable[..., None]:
    """The kernel; arguments as ``sweeping``."""
    return sweeping(naive_sweeps, by_threads(naive_visit))


@device_function
def efficient_sweeps(distance):
    """Sweeps per symbol."""
    return max(distance, np.uint32(1))


@device_function
def efficient_visit(active, base, nodes, node, d, moves, depth, limits, trie):
    """All transitions into dist-level d + 1 at a trie-node, and if d = 0 into level 0."""
    k, distance = limits
    matched = np.uint32(0)
    missed = np.uint32(0)
    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
    above = np.uint64(row + nodes)
    lower = np.uint32(active[row + np.uint64(node)])
    if node == np.uint32(0) and d == np.uint32(0):
        lower = np.uint32(lower | np.uint32(1))
    states = np.uint32(0)
    if distance != np.uint32(0):
        states = np.uint32(active[above + np.uint64(node)])
    if np.uint32(lower | states) != np.uint32(0):
        inmap = np.uint32(load_word(trie[0], node))
        if distance != np.uint32(0):
            level = np.uint32(d + np.uint32(1))
            matched, exmap, chosen = move(
                active, above, node, level, states, lower, moves, depth, limits, inmap, trie
            )
            wake(active, above, exmap, chosen, node, trie)
        if d == np.uint32(0) and lower != np.uint32(0):
            exact, exmap, chosen = move(
                active, row, node, d, lower, np.uint32(0), moves, depth, limits, inmap, trie
            )
            matched = np.uint32(matched | exact)
            wake(active, row, exmap, chosen, node, trie)
            missed = missed_bits(lower, moves[0], depth, k, inmap, trie[1], node)
    return matched, missed


def efficient() -> Callable[..., None]:
    """The kernel; arguments as ``sweeping``."""
    return sweeping(efficient_sweeps, by_threads(efficient_visit))


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
        matched, missed, queued, thread, threads, active, base, nodes, first, end, d, moves, depth,
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
                    matched = np.uint32(matched | of_match)
                if d == np.uint32(0) and lower != np.uint32(0):
                    of_match, outer, exact = move(
                        active, row, node, d, lower, np.uint32(0), moves, depth, limits, inmap, trie
                    )
                    exmap = np.uint64(exmap | outer)
                    matched = np.uint32(matched | of_match)
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
        return matched, missed

    return sweeping(efficient_sweeps, visit_level, threads // 32 * entries)


KERNELS = ("ltb-sliced", "ltb-naive", "ltb-efficient", "ltb-queue")
"""Names of the methods: the default, then those of the thesis."""

BLOCKS = 4  # most blocks in numba's simulator


def kernel(method: str) -> tuple[Any, int]:
    """A compiled kernel of the thesis, and its threads per block."""
    if method == "ltb-queue":
        return made(queue, THREADS, QUEUE), THREADS
    if method == "ltb-efficient":
        return made(efficient), THREADS
    return made(naive), THREADS


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
