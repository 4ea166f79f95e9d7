"""The bit-sliced kernel, the default: trie/ltb_sliced.py with a segment of the text a lane.

A segment is 64 symbols, a bit each: k + D - 1 to warm up, and ``useful`` that it answers for, so
that no lane needs another. Segment s, planes side by side:

    planes   uint64[4, S]   0 same read as the symbol before | 1 no gap code | 2, 3 the code's bits
    letter x = plane 1 & ~(plane 2 ^ x1) & ~(plane 3 ^ x0)

A warp descends the trie with 32 segments at once, in step, and leaves a subtrie in which none of
its 2,048 symbols has a state. Its stack is the path alone, (k + 1) (D + 1) words a lane in local
memory (first-level cache, a line a half-warp). The trie is cut up for more warps:

    task t < T   the subtrie of node t of level L, from its path of 3 L symbols
    task T       all above level L

Operations: about 10 (D + 1) + 25 a lane and node of the trie (not trie-node) that is visited, for
64 symbols: nothing depends on how many states are active there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.bits import children_before
from gpu.intrinsics import ALL_LANES, cuda, device_function, load_word, population
from gpu.kernels.ltb import FIRST_OF_READ

THREADS = 128
"""Threads a block; any multiple of 32."""

SYMBOLS = 64
"""Symbols of a segment."""

DEPTHS = 32
ALL = 0xFFFFFFFFFFFFFFFF


def planes(symbols, useful, overlap, segments, out):  # type: ignore[no-untyped-def]
    """Make the planes, a thread a segment; ``[grid, block]`` with grid * block >= segments.

    Arguments: symbols uint8[n], useful uint32, overlap uint32, segments uint32, out
    uint64[4 segments]. Symbols before the first and behind the last are gap codes.
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
def letter_of(x, good, high, low):  # type: ignore[no-untyped-def]
    """The symbols of a segment that are letter x (0..3)."""
    other_high = np.uint64(0) if x & np.uint32(2) else np.uint64(ALL)
    other_low = np.uint64(0) if x & np.uint32(1) else np.uint64(ALL)
    found = np.uint64(good & np.uint64(high ^ other_high))
    return np.uint64(found & np.uint64(low ^ other_low))


@device_function
def children_of(inmaps, exmaps, node, path, inside):  # type: ignore[no-untyped-def]
    """Which of the four children exist of the node ``inside`` symbols below a trie-node."""
    if inside == np.uint32(0):
        found = np.uint64(np.uint32(load_word(inmaps, node)) >> np.uint32(1))
    elif inside == np.uint32(1):
        found = np.uint64(np.uint32(load_word(inmaps, node)) >> np.uint32(5))
    else:
        found = np.uint64(load_word(exmaps, node))
    found = np.uint64(found >> np.uint64(np.uint64(4) * np.uint64(path)))
    return np.uint32(found & np.uint64(15))


@device_function
def tell(plane, bit, first, symbols, bitmaps):  # type: ignore[no-untyped-def]
    """OR ``bit`` into the bitmaps of the symbols of a plane, the first of which is ``first``."""
    while plane != np.uint64(0):
        below = np.uint64(np.uint64(~plane) & np.uint64(plane - np.uint64(1)))
        at = np.uint64(first + np.uint64(population(below)))
        if at < np.uint64(symbols):
            cuda.atomic.or_(bitmaps, at, bit)
        plane = np.uint64(plane & np.uint64(plane - np.uint64(1)))


def sliced(levels: int) -> Callable[..., None]:
    """The kernel for so many dist-levels, D + 1; ``[grid, block]`` with 32 | block.

    Arguments: plane_words uint64[4 S], segments uint32 S, k uint32, useful uint32, symbols uint32,
    level uint32 (3 level < k), codes uint32[T] (the paths to the nodes of that level; T is 0 for
    level 0), inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N], first_node uint32 (of the
    level), matches uint32[symbols] and mismatches uint32[symbols] (zeros before). grid * block >=
    32 (T + 1) ceil(S / 32).
    """
    distance = levels - 1
    rows = DEPTHS * levels

    @device_function
    def step(before, above, below, letter, same_read, matched, short):  # type: ignore[no-untyped-def]
        """The states of a child: those of level 0, whether any is there; tells its matches."""
        own = np.uint64(before[above])
        here = np.uint64(own & letter)
        every = here
        if short <= np.uint32(distance):
            matched[short] = np.uint64(matched[short] | here)
        following = np.uint64(np.uint64(here << np.uint64(1)) & same_read)
        before[below] = following
        for d in range(1, levels):
            lower = own
            own = np.uint64(before[np.uint32(above + np.uint32(d))])
            here = np.uint64(lower ^ np.uint64(np.uint64(own ^ lower) & letter))
            here = np.uint64(here | following)
            every = np.uint64(every | here)
            deeper = np.uint32(short + np.uint32(d))
            if deeper <= np.uint32(distance):
                matched[deeper] = np.uint64(matched[deeper] | here)
            following = np.uint64(np.uint64(here << np.uint64(1)) & same_read)
            before[np.uint32(below + np.uint32(d))] = following
        return every

    def kernel(  # type: ignore[no-untyped-def]
        plane_words, segments, k, useful, symbols, level, codes, inmaps, exmaps, prefix_sums,
        first_node, matches, mismatches,
    ):  # fmt: skip
        lane = np.uint32(np.uint32(cuda.grid(1)) & np.uint32(31))
        warp = np.uint32(np.uint32(cuda.grid(1)) >> np.uint32(5))
        groups = np.uint32(np.uint32(segments + np.uint32(31)) >> np.uint32(5))
        task = np.uint32(warp // groups)
        if task > np.uint32(codes.size):
            return  # the whole warp
        segment = np.uint32(np.uint32(np.uint32(warp % groups) << np.uint32(5)) + lane)
        before = cuda.local.array(rows, np.uint64)
        nodes = cuda.local.array(DEPTHS, np.uint32)
        rest = cuda.local.array(DEPTHS, np.uint32)  # 7-4: path below the trie-node | 3-0: children
        matched = cuda.local.array(levels, np.uint64)
        missed = cuda.local.array(DEPTHS, np.uint64)
        for d in range(levels):
            matched[d] = np.uint64(0)
        for h in range(DEPTHS):
            missed[h] = np.uint64(0)
        same_read = np.uint64(0)
        good = np.uint64(0)
        high = np.uint64(0)
        low = np.uint64(0)
        root = np.uint64(0)
        if segment < segments:
            count = np.uint64(segments)
            at_in = np.uint64(segment)
            same_read = np.uint64(plane_words[at_in])
            good = np.uint64(plane_words[at_in + count])
            high = np.uint64(plane_words[at_in + np.uint64(2) * count])
            low = np.uint64(plane_words[at_in + np.uint64(3) * count])
            root = np.uint64(ALL)
        for d in range(levels):
            before[d] = root
            root = np.uint64(np.uint64(root << np.uint64(1)) & same_read)
        # down the path of the task
        depth = np.uint32(0)
        floor = np.uint32(0)
        ceiling = k
        node = np.uint32(0)
        there = True
        if task < np.uint32(codes.size):
            floor = np.uint32(np.uint32(3) * level)
            code = np.uint32(load_word(codes, task))
            while depth < floor:
                up = np.uint32(np.uint32(floor - np.uint32(1)) - depth)
                x = np.uint32(np.uint32(code >> np.uint32(np.uint32(2) * up)) & np.uint32(3))
                above = np.uint32(depth * np.uint32(levels))
                every = step(
                    before, above, np.uint32(above + np.uint32(levels)),
                    letter_of(x, good, high, low), same_read, matched, np.uint32(DEPTHS),
                )  # fmt: skip
                depth = np.uint32(depth + np.uint32(1))
                there = there and cuda.any_sync(ALL_LANES, every != np.uint64(0))
            node = np.uint32(first_node + task)
        elif level > np.uint32(0):
            ceiling = np.uint32(np.uint32(3) * level)
        path = np.uint32(0)
        children = np.uint32(0)
        opened = there
        while there:
            if opened:
                # a node that has states: its children, and where none of them is the symbol's
                opened = False
                children = children_of(inmaps, exmaps, node, path, np.uint32(depth % np.uint32(3)))
                if children != np.uint32(15):
                    exact = np.uint64(before[np.uint32(depth * np.uint32(levels))])
                    if cuda.any_sync(ALL_LANES, exact != np.uint64(0)):
                        covered = np.uint64(~good)
                        for i in range(4):
                            if np.uint32(children >> np.uint32(i)) & np.uint32(1):
                                covered = np.uint64(
                                    covered | letter_of(np.uint32(i), good, high, low)
                                )
                        missed[depth] = np.uint64(
                            missed[depth] | np.uint64(exact & np.uint64(~covered))
                        )
            if children == np.uint32(0):
                if depth == floor:
                    there = False
                else:
                    depth = np.uint32(depth - np.uint32(1))
                    node = np.uint32(nodes[depth])
                    children = np.uint32(rest[depth] & np.uint32(15))
                    path = np.uint32(np.uint32(rest[depth]) >> np.uint32(4))
            else:
                x = population(np.uint64(np.uint32(~children) & np.uint32(children - np.uint32(1))))
                children = np.uint32(children & np.uint32(children - np.uint32(1)))
                above = np.uint32(depth * np.uint32(levels))
                deeper = np.uint32(depth + np.uint32(1))
                every = step(
                    before, above, np.uint32(above + np.uint32(levels)),
                    letter_of(x, good, high, low), same_read, matched, np.uint32(k - deeper),
                )  # fmt: skip
                if deeper < ceiling and cuda.any_sync(ALL_LANES, every != np.uint64(0)):
                    nodes[depth] = node
                    rest[depth] = np.uint32(np.uint32(path << np.uint32(4)) | children)
                    path = np.uint32(np.uint32(path << np.uint32(2)) | x)
                    if depth % np.uint32(3) == np.uint32(2):
                        exmap = np.uint64(load_word(exmaps, node))
                        node = np.uint32(
                            np.uint32(load_word(prefix_sums, node)) + children_before(exmap, path)
                        )
                        path = np.uint32(0)
                    depth = deeper
                    opened = True
        # tell what it answers for
        overlap = np.uint32(np.uint32(SYMBOLS) - useful)
        first = np.uint64(np.uint64(segment) * np.uint64(useful))
        for e in range(levels):
            plane = np.uint64(np.uint64(matched[e]) >> np.uint64(overlap))
            tell(plane, np.uint32(1 << e), first, symbols, matches)
        for h in range(DEPTHS - 1):
            plane = np.uint64(np.uint64(missed[h]) >> np.uint64(overlap))
            tell(plane, np.uint32(2 << h), first, symbols, mismatches)

    return kernel


def signature_planes() -> tuple[str, ...]:
    """The argument types of ``planes``."""
    return ("uint8[::1]", "uint32", "uint32", "uint32", "uint64[::1]")


def signature_sliced() -> tuple[str, ...]:
    """The argument types of ``sliced``."""
    return (
        "uint64[::1]", "uint32", "uint32", "uint32", "uint32", "uint32", "uint32[::1]",
        "uint32[::1]", "uint64[::1]", "uint32[::1]", "uint32", "uint32[::1]", "uint32[::1]",
    )  # fmt: skip
