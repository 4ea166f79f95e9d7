"""The bit-sliced kernel, the default: trie/ltb.py with a segment of the text per lane.

A segment is 64 symbols, one bit each: k + D - 1 to warm up, and ``useful`` that it answers, so that
lanes are independent. The planes of segment s:

    planes   uint64[4, S]   0 same read as the symbol before | 1 no gap code | 2, 3 the code's bits
    letter x = plane 1 & ~(plane 2 ^ x1) & ~(plane 3 ^ x0)

A warp descends the trie with 32 segments in lockstep, and leaves a subtrie in which none of its
2,048 symbols has a state. P of the node is in registers; only a node with children left is pushed
on a stack in local memory, D + 1 words per lane. A trie-node takes one 16-byte load for three
depths, and a chain of single children no other memory access. The trie is split for more warps:

    task t < T   the subtrie of node t of level L, from its path of 3 L symbols
    task T       all above level L

Operations: about 10 (D + 1) + 25 per lane and visited node of the trie (not trie-node), for 64
symbols, however many states are active there.
"""

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import ALL_LANES, cuda, device_function, load_pair, load_word, population
from gpu.exact.window_bits import children_before
from gpu.ltb.sweeping import FIRST_OF_READ

THREADS = 128  # threads per block; any multiple of 32
SYMBOLS = 64  # symbols in a segment
DEPTHS = 32
ALL_SYMBOLS = 0xFFFFFFFFFFFFFFFF


def planes(symbols, useful, overlap, segments, out):
    """Compute the planes; one thread per segment.

    Arguments: symbols uint8[n], useful uint32, overlap uint32, segments uint32, out
    uint64[4 segments]. Symbols before the first and after the last are gap codes.
    """
    segment = np.uint32(cuda.grid(1))
    if segment >= segments:
        return
    same_read = np.uint64(0)
    good = np.uint64(0)
    high = np.uint64(0)
    low = np.uint64(0)
    first = np.int64(np.int64(segment) * np.int64(useful) - np.int64(overlap))
    for i in range(SYMBOLS):
        at = np.int64(first + np.int64(i))
        if at >= 0 and at < symbols.size:
            symbol = np.uint32(symbols[at])
            bit = np.uint64(np.uint64(1) << np.uint64(i))
            if np.uint32(symbol & np.uint32(FIRST_OF_READ)) == np.uint32(0):
                same_read = np.uint64(same_read | bit)
            if np.uint32(symbol & np.uint32(4)) == np.uint32(0):
                good = np.uint64(good | bit)
            if symbol & np.uint32(2):
                high = np.uint64(high | bit)
            if symbol & np.uint32(1):
                low = np.uint64(low | bit)
    count = np.uint64(segments)
    at_out = np.uint64(segment)
    out[at_out] = same_read
    out[at_out + count] = good
    out[at_out + np.uint64(2) * count] = high
    out[at_out + np.uint64(3) * count] = low


@device_function
def letter_of(x, good, high, low):
    """The symbols of a segment that are letter x (0..3)."""
    other_high = np.uint64(0) if x & np.uint32(2) else np.uint64(ALL_SYMBOLS)
    other_low = np.uint64(0) if x & np.uint32(1) else np.uint64(ALL_SYMBOLS)
    here = np.uint64(good & np.uint64(high ^ other_high))
    return np.uint64(here & np.uint64(low ^ other_low))


@device_function
def children_of(exmap, more, path, inside):
    """Which of the four children of the node ``inside`` symbols below a trie-node exist."""
    children = exmap
    if inside == np.uint32(0):
        children = np.uint64(more >> np.uint64(33))
    elif inside == np.uint32(1):
        children = np.uint64(more >> np.uint64(37))
    children = np.uint64(children >> np.uint64(np.uint64(4) * np.uint64(path)))
    return np.uint32(children & np.uint64(15))


@device_function
def report(plane, bit, first, symbols, bitmaps):
    """OR ``bit`` into the bitmaps of the symbols set in a plane, which begins at ``first``."""
    while plane != np.uint64(0):
        below = np.uint64(np.uint64(~plane) & np.uint64(plane - np.uint64(1)))
        at = np.uint64(first + np.uint64(population(below)))
        if at < np.uint64(symbols):
            cuda.atomic.or_(bitmaps, at, bit)
        plane = np.uint64(plane & np.uint64(plane - np.uint64(1)))


def sliced(levels: int) -> Callable[..., None]:
    """The kernel for ``levels`` dist-levels, D + 1; 32 | block.

    Arguments: plane_words uint64[4 S], segments uint32 S, k uint32, useful uint32, symbols uint32,
    level uint32 (3 level < k), codes uint32[T] (the paths to the nodes of that level; T is 0 for
    level 0), nodes uint64[2 N] (as laid out in gpu/exact/walk.py), first_node uint32 (of the
    level), matches uint32[symbols] and mismatches uint32[symbols] (zeros before). grid * block >=
    32 (T + 1) ceil(S / 32).
    """
    distance = levels - 1
    rows = DEPTHS * levels

    @device_function
    def one_on(states, same_read):
        return np.uint64(np.uint64(states << np.uint64(1)) & same_read)

    @device_function
    def level_of(own, lower, here, letter, same_read):
        """E[d] from P[d], P[d - 1] of the parent and E[d - 1] of the child."""
        chosen = np.uint64(lower ^ np.uint64(np.uint64(own ^ lower) & letter))
        return np.uint64(chosen | one_on(here, same_read))

    @device_function
    def advance(p0, p1, p2, p3, p4, letter, same_read):
        """E of a child from P of its parent; 0 for levels that do not exist."""
        e0 = np.uint64(p0 & letter)
        e1 = np.uint64(0)
        e2 = np.uint64(0)
        e3 = np.uint64(0)
        e4 = np.uint64(0)
        if levels > 1:
            e1 = level_of(p1, p0, e0, letter, same_read)
        if levels > 2:
            e2 = level_of(p2, p1, e1, letter, same_read)
        if levels > 3:
            e3 = level_of(p3, p2, e2, letter, same_read)
        if levels > 4:
            e4 = level_of(p4, p3, e3, letter, same_read)
        return e0, e1, e2, e3, e4

    @device_function
    def add_match(matched, place, states):
        if place <= np.uint32(distance):
            matched[place] = np.uint64(matched[place] | states)

    def kernel(
        plane_words, segments, k, useful, symbols, level, codes, nodes, first_node, matches,
        mismatches,
    ):  # fmt: skip
        lane = np.uint32(np.uint32(cuda.grid(1)) & np.uint32(31))
        warp = np.uint32(np.uint32(cuda.grid(1)) >> np.uint32(5))
        groups = np.uint32(np.uint32(segments + np.uint32(31)) >> np.uint32(5))
        task = np.uint32(warp // groups)
        if task > np.uint32(codes.size):
            return  # the whole warp
        segment = np.uint32(np.uint32(np.uint32(warp % groups) << np.uint32(5)) + lane)
        saved = cuda.local.array(rows, np.uint64)
        # 31-0 trie-node | 36-32 depth | 41-40 inside | 55-48 path | 59-56 children
        frames = cuda.local.array(DEPTHS, np.uint64)
        matched = cuda.local.array(levels, np.uint64)
        missed = cuda.local.array(DEPTHS, np.uint64)
        pushed = np.uint32(0)
        touched = np.uint32(0)  # the depths that ``missed`` has bits for
        for d in range(levels):
            matched[d] = np.uint64(0)
        same_read = np.uint64(0)
        good = np.uint64(0)
        high = np.uint64(0)
        low = np.uint64(0)
        p0 = np.uint64(0)
        if segment < segments:
            count = np.uint64(segments)
            at_in = np.uint64(segment)
            same_read = np.uint64(load_word(plane_words, at_in))
            good = np.uint64(load_word(plane_words, at_in + count))
            high = np.uint64(load_word(plane_words, at_in + np.uint64(2) * count))
            low = np.uint64(load_word(plane_words, at_in + np.uint64(3) * count))
            p0 = np.uint64(ALL_SYMBOLS)
        p1 = one_on(p0, same_read)
        p2 = one_on(p1, same_read)
        p3 = one_on(p2, same_read)
        p4 = one_on(p3, same_read)
        # down the path of the task
        depth = np.uint32(0)
        ceiling = k
        node = np.uint32(0)
        there = True
        if task < np.uint32(codes.size):
            code = np.uint32(load_word(codes, task))
            up = np.uint32(np.uint32(6) * level)
            while up > np.uint32(0):
                up = np.uint32(up - np.uint32(2))
                x = np.uint32(np.uint32(code >> up) & np.uint32(3))
                letter = letter_of(x, good, high, low)
                e0, e1, e2, e3, e4 = advance(p0, p1, p2, p3, p4, letter, same_read)
                p0 = one_on(e0, same_read)
                p1 = one_on(e1, same_read)
                p2 = one_on(e2, same_read)
                p3 = one_on(e3, same_read)
                p4 = one_on(e4, same_read)
            every = np.uint64(p0 | p1 | p2 | p3 | p4)
            there = cuda.any_sync(ALL_LANES, every != np.uint64(0))
            depth = np.uint32(np.uint32(3) * level)
            node = np.uint32(first_node + task)
        elif level > np.uint32(0):
            ceiling = np.uint32(np.uint32(3) * level)
        exmap, more = load_pair(nodes, node)
        inside = np.uint32(0)
        path = np.uint32(0)
        opened = True
        children = np.uint32(0)
        while there:
            if opened:
                # a node with states: its children, and the symbols without a child
                children = children_of(exmap, more, path, inside)
                some = children != np.uint32(15)
                if some and cuda.any_sync(ALL_LANES, p0 != np.uint64(0)):
                    covered = np.uint64(~good)
                    for i in range(4):
                        if np.uint32(children >> np.uint32(i)) & np.uint32(1):
                            covered = np.uint64(covered | letter_of(np.uint32(i), good, high, low))
                    alone = np.uint64(p0 & np.uint64(~covered))
                    bit = np.uint32(np.uint32(1) << depth)
                    if touched & bit:
                        alone = np.uint64(alone | missed[depth])
                    missed[depth] = alone
                    touched = np.uint32(touched | bit)
                opened = False
            if children == np.uint32(0):
                if pushed == np.uint32(0):
                    there = False
                else:
                    pushed = np.uint32(pushed - np.uint32(1))
                    frame = np.uint64(frames[pushed])
                    node = np.uint32(frame)
                    high_half = np.uint32(frame >> np.uint64(32))
                    depth = np.uint32(high_half & np.uint32(31))
                    inside = np.uint32(np.uint32(high_half >> np.uint32(8)) & np.uint32(3))
                    path = np.uint32(np.uint32(high_half >> np.uint32(16)) & np.uint32(255))
                    children = np.uint32(high_half >> np.uint32(24))
                    exmap, more = load_pair(nodes, node)
                    row = np.uint32(pushed * np.uint32(levels))
                    p0 = np.uint64(saved[row])
                    if levels > 1:
                        p1 = np.uint64(saved[np.uint32(row + np.uint32(1))])
                    if levels > 2:
                        p2 = np.uint64(saved[np.uint32(row + np.uint32(2))])
                    if levels > 3:
                        p3 = np.uint64(saved[np.uint32(row + np.uint32(3))])
                    if levels > 4:
                        p4 = np.uint64(saved[np.uint32(row + np.uint32(4))])
            else:
                x = population(np.uint64(np.uint32(~children) & np.uint32(children - np.uint32(1))))
                children = np.uint32(children & np.uint32(children - np.uint32(1)))
                letter = letter_of(x, good, high, low)
                e0, e1, e2, e3, e4 = advance(p0, p1, p2, p3, p4, letter, same_read)
                deeper = np.uint32(depth + np.uint32(1))
                short = np.uint32(k - deeper)
                if short <= np.uint32(distance):
                    add_match(matched, short, e0)
                    if levels > 1:
                        add_match(matched, np.uint32(short + np.uint32(1)), e1)
                    if levels > 2:
                        add_match(matched, np.uint32(short + np.uint32(2)), e2)
                    if levels > 3:
                        add_match(matched, np.uint32(short + np.uint32(3)), e3)
                    if levels > 4:
                        add_match(matched, np.uint32(short + np.uint32(4)), e4)
                every = np.uint64(e0 | e1 | e2 | e3 | e4)
                if deeper < ceiling and cuda.any_sync(ALL_LANES, every != np.uint64(0)):
                    if children != np.uint32(0):
                        high_half = np.uint32(
                            np.uint32(depth | np.uint32(inside << np.uint32(8)))
                            | np.uint32(
                                np.uint32(path << np.uint32(16))
                                | np.uint32(children << np.uint32(24))
                            )
                        )
                        frames[pushed] = np.uint64(
                            np.uint64(np.uint64(high_half) << np.uint64(32)) | np.uint64(node)
                        )
                        row = np.uint32(pushed * np.uint32(levels))
                        saved[row] = p0
                        if levels > 1:
                            saved[np.uint32(row + np.uint32(1))] = p1
                        if levels > 2:
                            saved[np.uint32(row + np.uint32(2))] = p2
                        if levels > 3:
                            saved[np.uint32(row + np.uint32(3))] = p3
                        if levels > 4:
                            saved[np.uint32(row + np.uint32(4))] = p4
                        pushed = np.uint32(pushed + np.uint32(1))
                    p0 = one_on(e0, same_read)
                    p1 = one_on(e1, same_read)
                    p2 = one_on(e2, same_read)
                    p3 = one_on(e3, same_read)
                    p4 = one_on(e4, same_read)
                    path = np.uint32(np.uint32(path << np.uint32(2)) | x)
                    inside = np.uint32(inside + np.uint32(1))
                    if inside == np.uint32(3):
                        node = np.uint32(np.uint32(more) + children_before(exmap, path))
                        exmap, more = load_pair(nodes, node)
                        inside = np.uint32(0)
                        path = np.uint32(0)
                    depth = deeper
                    opened = True
        # report the symbols that the segment answers
        overlap = np.uint64(np.uint32(SYMBOLS) - useful)
        first = np.uint64(np.uint64(segment) * np.uint64(useful))
        for e in range(levels):
            plane = np.uint64(np.uint64(matched[e]) >> overlap)
            report(plane, np.uint32(1 << e), first, symbols, matches)
        while touched != np.uint32(0):
            h = population(np.uint64(np.uint32(~touched) & np.uint32(touched - np.uint32(1))))
            plane = np.uint64(np.uint64(missed[h]) >> overlap)
            report(plane, np.uint32(np.uint32(2) << h), first, symbols, mismatches)
            touched = np.uint32(touched & np.uint32(touched - np.uint32(1)))

    return kernel
