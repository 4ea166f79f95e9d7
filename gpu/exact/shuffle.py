"""The shuffle kernel (thesis 3.3.8): one lane per depth, ``shfl`` passes the trie-node on.

A sub-warp of 8, 16 or 32 lanes (k <= 7, 15, 31) reads a piece of the stream, a symbol at a time.
Lane d holds the state at depth d, which belongs to the window that began d symbols ago:

    lane      0         1         2         3         4     ...   k-1
    depth     0  shfl>  1  shfl>  2  shfl>  3  shfl>  4     ...   k-1 -> match
    symbol    internal  internal  external  internal  internal

Lane 0 holds the root wherever a window may begin. Every third lane does the external transition: a
bit of the exmap, equation 2, and one 16-byte load of the child's record (the interleaved ``nodes``
of gpu/exact/walk.py). The others test a bit of the inmap. Then all states move up one lane:

    state   uint32   25 active | 24-21 symbols since the node's own depth (b0, b0 b1) | 20-0 inmap
    exmap   uint64,  prefix sum uint32,  and, with event words, the node's index uint32

Words are written by ballot: a warp reserves its share of the match buffer with one atomic addition
(one word per window), and on each symbol the reporting lanes write adjacent words.

Operations per symbol and warp: about 50, of them 4 shuffles (5 with event words), for 4, 2 or 1
windows; 16 bytes loaded in every third lane whose state continues. Bound by instruction issue: 3.25
of 4 per clock on an H200.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    as_signed,
    bit_mask_below,
    cuda,
    load_pair,
    load_word,
    population,
)
from gpu.exact.window_bits import children_before, event_word, has_bit

THREADS = 128  # threads per block; any multiple of 32


def sub_warp(k: int) -> int:
    """Lanes for the depths 0..k - 1 and, as in the thesis, for depth k."""
    return 8 if k <= 7 else 16 if k <= 15 else 32


def shuffle(k: int, with_words: bool) -> Callable[..., None]:
    """The kernel; 32 | block, one sub-warp per piece of the stream.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, mirror uint32, piece uint32, nodes
    uint64[2 N], matches uint32[W], words uint64[capacity], counter uint32[1].
    32 | piece, and grid * block / sub_warp(k) * piece >= 32 W. Every word of ``matches`` is
    written. ``mirror`` is 0, or the number of symbols if the stream is the reverse complement of
    the chunk: then the words use positions of the chunk, and ``matches`` those of the stream.
    """
    width = sub_warp(k)
    flush = (k + 30) & 31  # the symbol of a group of 32 that completes a word of window starts
    tail = 0 if k == 1 else 1

    def kernel(bases, starts, symbols, mirror, piece, nodes, matches, words, counter):
        thread = np.uint32(cuda.grid(1))
        warp_lane = np.uint32(thread & np.uint32(31))
        lane = np.uint32(thread & np.uint32(width - 1))
        role = np.uint32(lane % np.uint32(3))
        first = np.uint32(np.uint32(thread // np.uint32(width)) * piece)
        shift = np.uint32(1)
        if role == np.uint32(1):
            shift = np.uint32(5)
        root_exmap, root_more = load_pair(nodes, np.uint32(0))
        root_state = np.uint32(root_more >> np.uint64(32))
        state = np.uint32(0)
        exmap = np.uint64(0)
        prefix = np.uint32(0)
        node = np.uint32(0)
        found = np.uint32(0)
        slots = np.uint32(0)
        if with_words:
            # one word per window, so a warp's share of the match buffer is known beforehand
            at = np.uint32(np.uint32(first >> np.uint32(5)) + lane)
            stop = np.uint32(np.uint32(first + piece) >> np.uint32(5))
            while at < stop:
                if at < np.uint32(starts.size):
                    slots = np.uint32(slots + population(np.uint64(load_word(starts, at))))
                at = np.uint32(at + np.uint32(width))
            for step in range(5):
                other = cuda.shfl_xor_sync(ALL_LANES, as_signed(slots), 1 << step)
                slots = np.uint32(slots + np.uint32(other))
            if warp_lane == np.uint32(0) and slots != np.uint32(0):
                slots = np.uint32(cuda.atomic.add(counter, 0, slots))
            slots = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(slots), 0))
        groups = np.uint32(np.uint32(piece >> np.uint32(5)) + np.uint32(tail))
        for group in range(groups):
            base = np.uint32(first + np.uint32(np.uint32(group) << np.uint32(5)))
            codes = np.uint64(0)
            begins = np.uint32(0)
            if base < symbols:
                at = np.uint32(base >> np.uint32(4))
                codes = np.uint64(np.uint64(load_word(bases, at)) << np.uint64(32))
                codes = np.uint64(codes | load_word(bases, np.uint32(at + np.uint32(1))))
                if lane == np.uint32(0) and np.uint32(group << np.uint32(5)) < piece:
                    begins = np.uint32(load_word(starts, np.uint32(base >> np.uint32(5))))
            for j in range(32):
                symbol = np.uint32(np.uint32(codes >> np.uint64(62 - 2 * j)) & np.uint32(3))
                if lane == np.uint32(0):
                    begun = np.uint32(np.uint32(begins >> np.uint32(j)) & np.uint32(1))
                    state = np.uint32(root_state | np.uint32(begun << np.uint32(25)))
                    exmap = root_exmap
                    prefix = np.uint32(root_more)
                    node = np.uint32(0)
                path = np.uint32(np.uint32(state >> np.uint32(21)) & np.uint32(15))
                path = np.uint32(np.uint32(path << np.uint32(2)) | symbol)
                active = np.uint32(np.uint32(state >> np.uint32(25)) & np.uint32(1))
                exists = np.uint32(
                    np.uint32(state >> np.uint32(shift + np.uint32(path & np.uint32(15))))
                    & np.uint32(1)
                )
                inmap = np.uint32(state & np.uint32(0x1FFFFF))
                holder = node
                if role == np.uint32(2):
                    exists = np.uint32(has_bit(exmap, path))
                    if np.uint32(active & exists):
                        node = np.uint32(prefix + children_before(exmap, path))
                        if lane != np.uint32(k - 1):
                            exmap, more = load_pair(nodes, node)
                            inmap = np.uint32(more >> np.uint64(32))
                            prefix = np.uint32(more)
                    path = np.uint32(0)
                going = np.uint32(active & exists)
                if lane == np.uint32(k - 1):
                    found = np.uint32(found | np.uint32(going << np.uint32((j + 33 - k) & 31)))
                    if j == flush:
                        at = np.uint32(base + np.uint32(j))
                        # the first group has symbols before the piece's first window ends
                        if at >= np.uint32(first + np.uint32(k - 1)):
                            out = np.uint32(np.uint32(at - np.uint32(k - 1)) >> np.uint32(5))
                            if out < np.uint32(matches.size):
                                matches[out] = found
                        found = np.uint32(0)
                if with_words:
                    report = np.uint32(active & np.uint32(exists ^ np.uint32(1)))
                    if lane == np.uint32(k - 1):
                        report = active
                    votes = np.uint32(cuda.ballot_sync(ALL_LANES, report != np.uint32(0)))
                    below = np.uint32(votes & np.uint32(bit_mask_below(warp_lane)))
                    slot = np.uint32(slots + population(np.uint64(below)))
                    slots = np.uint32(slots + population(np.uint64(votes)))
                    if report and np.uint64(slot) < np.uint64(words.size):
                        index = np.uint32(base + np.uint32(j))
                        if mirror:
                            # from the window's start, plus the depth
                            begin = np.uint32(index - lane)
                            index = np.uint32(np.uint32(mirror - np.uint32(k)) - begin)
                            index = np.uint32(index + lane)
                        if not exists:
                            node = holder
                        words[slot] = event_word(
                            exists == np.uint32(0), index, node, np.uint32(lane + np.uint32(1))
                        )
                if lane >= np.uint32(k - 1):
                    going = np.uint32(0)
                state = np.uint32(
                    inmap
                    | np.uint32(
                        np.uint32(np.uint32(path & np.uint32(15)) << np.uint32(21))
                        | np.uint32(going << np.uint32(25))
                    )
                )
                state = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(state), 1))
                exmap = np.uint64(cuda.shfl_up_sync(ALL_LANES, as_signed(exmap), 1))
                prefix = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(prefix), 1))
                if with_words:
                    node = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(node), 1))

    return kernel
