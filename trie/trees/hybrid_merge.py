"""Merge ascending k-mers into a shard of the Hybrid Tree Bitmap in one linear pass.

A depth-first read of the old nodes yields their k-mers in ascending order; they are merged with the
new ones, and the nodes of both are written sequentially to a new pool:

    old pool --list--> codes  \\
                               join --> codes --build--> new pool
    new k-mers         codes  /

No k-mer is looked up. ``build`` keeps the nodes on the path to the last k-mer open: their exmaps,
and the words of their children so far. A k-mer hangs from the deepest node that it shares with the
previous or next k-mer. A node that the next k-mer does not share is complete: it is written in the
size that it needs, and its offset becomes a word of its parent. So children precede their parents,
and each word is written once, in order.

The steps pass on blocks of 1,024 codes, which stay in the first-level cache. On one core of a
server a k-mer takes about 12 ns: 5 to list an old one, 3 to join (branch-free), 8 to build, half of
that for mispredicted branches where nodes end; an insertion took 45 to 95. Each k-mer reads 8 to 24
bytes and writes as many.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trie.ascending import merge_into
from trie.cpu.intrinsics import leading_zeros, trailing_zeros
from trie.cpu.jit import njit
from trie.snapshots.tree_bitmap import leaf_inmap
from trie.trees.hybrid_nodes import CAPACITY, KMERS, STARTED, TAIL, USED

BLOCK = 1024
LEVELS = 12
# words that a block may add: a pair of k-mers may need its own chain of nodes down to the last
# level, at most 4 words each, and the open nodes may be full
SLACK = 20 * BLOCK + 66 * LEVELS

# the smallest size class for each number of children
CLASS_OF = np.searchsorted(CAPACITY, np.arange(65)).astype(np.uint64)
SIZE_OF = CAPACITY.astype(np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _inmap_of(exmap):
    """The inmap of an inner node: itself, and the path to each child in its exmap."""
    x = exmap | (exmap >> np.uint64(2))
    x = (x | (x >> np.uint64(1))) & np.uint64(0x1111111111111111)
    x = (x | (x >> np.uint64(3))) & np.uint64(0x0303030303030303)
    x = (x | (x >> np.uint64(6))) & np.uint64(0x000F000F000F000F)
    x = (x | (x >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
    x = (x | (x >> np.uint64(24))) & np.uint64(0xFFFF)
    y = x | (x >> np.uint64(2))
    y = (y | (y >> np.uint64(1))) & np.uint64(0x1111)
    y = (y | (y >> np.uint64(3))) & np.uint64(0x0303)
    y = (y | (y >> np.uint64(6))) & np.uint64(0xF)
    return np.uint64(1) | (y << np.uint64(1)) | (x << np.uint64(5))


@njit(cache=True, nogil=True)
def _list(pool, k, depth, left, place, prefix, block):
    """The next k-mers of a tree, up to BLOCK, ascending: (their number, the depth to resume at).

    ``left``, ``place``, ``prefix`` describe the node being read on every level above ``depth``: the
    remaining bits of its exmap, where their words begin, and the symbols that lead to it. Depth 0
    means the end.
    """
    one = np.uint64(1)
    six = np.uint64(6)
    last = np.uint64(k // 3)
    symbols = np.uint64(k % 3)
    full = np.uint64(BLOCK - 16)
    found = np.uint64(0)
    rest = left[depth - one]
    at = place[depth - one]
    while found <= full:
        if rest == 0:
            depth -= one
            if depth == 0:
                break
            rest = left[depth - one]
            at = place[depth - one]
        elif depth < last:
            word = pool[at]
            at += one
            if word & TAIL:
                block[found] = word ^ TAIL
                found += one
                rest &= rest - one
            else:
                left[depth - one] = rest & (rest - one)
                place[depth - one] = at
                prefix[depth] = (prefix[depth - one] << six) | np.uint64(trailing_zeros(rest))
                rest = pool[word]
                at = word + np.uint64(2)
                depth += one
        else:
            code = (prefix[depth - one] << six) | np.uint64(trailing_zeros(rest))
            rest &= rest - one
            if symbols == 0:
                block[found] = code
                found += one
            else:
                leaves = pool[at] >> np.uint64(1 if symbols == 1 else 5)
                at += one
                code <<= np.uint64(2) * symbols
                while leaves != 0:
                    block[found] = code | np.uint64(trailing_zeros(leaves))
                    leaves &= leaves - one
                    found += one
    if depth != 0:
        left[depth - one] = rest
        place[depth - one] = at
    return found, depth


@njit(cache=True, nogil=True)
def _join(old, i, stop_i, ended, codes, j, stop_j, out):
    """Merge old[i:stop_i] and codes[j:stop_j] until ``out`` is full or more old codes are needed.

    ended: the old codes end at stop_i. Equal codes may appear twice. Returns (i, j, number
    written).
    """
    one = np.uint64(1)
    found = np.uint64(0)
    limit = np.uint64(out.size)
    while True:
        # steps in which neither side can end
        steps = min(limit - found, min(stop_i - i, stop_j - j))
        if steps == 0:
            break
        for _ in range(steps):
            a = old[i]
            b = codes[j]
            out[found] = min(a, b)
            found += one
            i += np.uint64(a <= b)
            j += np.uint64(b <= a)
    if i == stop_i and ended:
        count = min(stop_j - j, limit - found)
        for n in range(count):
            out[found + n] = codes[j + n]
        j += count
        found += count
    elif j == stop_j:
        count = min(stop_i - i, limit - found)
        for n in range(count):
            out[found + n] = old[i + n]
        i += count
        found += count
    return i, j, found


@njit(cache=True, nogil=True)
def _levels(codes, k, held, levels):
    """levels[i] = the deepest level on which codes[i] and the code before it have the same node.

    held: the code before the first. The loop is branch-free, so that it vectorizes.
    """
    short = np.uint64(64 - 2 * k)
    before = held
    for i in range(codes.size):
        code = codes[i]
        unlike = np.uint64(leading_zeros(code ^ before)) - short
        levels[i] = np.uint8((unlike * np.uint64(43)) >> np.uint64(8))  # a sixth, below 64
        before = code


@njit(cache=True, nogil=True)
def _build(codes, levels, k, held, shared, exmaps, counts, children, pool, state):
    """Place ``held`` and all codes but the last; close the nodes that are complete.

    held: the code that waits for its successor; shared: the level down to which it shares nodes
    with its predecessor. Both are returned for the next block. levels: of ``_levels``. ``exmaps``
    and ``counts`` (of children) belong to the open node of each level; ``children`` holds its
    words, 64 per level. The first code of a shard is counted when the shard ends.
    """
    # unsigned throughout: numba checks the sign of a signed index
    one = np.uint64(1)
    eight = np.uint64(8)
    bottom = np.uint64(k // 3 - 1)
    bare = k % 3 == 0
    symbols = k % 3
    wide = np.uint64(2 * (k - 3))
    used = np.uint64(state[USED])
    kmers = state[KMERS]
    for i in range(np.uint64(codes.size)):
        code = codes[i]
        if code == held:
            continue
        following = np.uint64(levels[i])
        state[np.uint64(STARTED + 1) + following] += 1
        kmers += 1
        level = min(max(shared, following), bottom)
        number = counts[level]
        at = (level << np.uint64(6)) + number
        if shared > bottom:
            children[at - one] |= np.uint64(leaf_inmap(held, symbols))
        else:
            word = TAIL | held
            if level == bottom:
                word = np.uint64(leaf_inmap(held, symbols))
            children[at] = word
            exmaps[level] |= one << ((held >> (wide - np.uint64(6) * level)) & np.uint64(63))
            counts[level] = number + one
        while level > following:
            exmap = exmaps[level]
            number = counts[level]
            if bare and level == bottom:
                number = np.uint64(0)
            exmaps[level] = 0
            counts[level] = 0
            size_class = CLASS_OF[number]
            pool[used] = exmap
            pool[used + one] = (size_class << np.uint64(32)) | _inmap_of(exmap)
            first = np.uint64(0)
            node = used + np.uint64(2)
            at = level << np.uint64(6)
            while first < number:
                # the next node overwrites the excess
                for n in range(eight):
                    pool[node + n] = children[at + n]
                node += eight
                at += eight
                first += eight
            level -= one
            at = counts[level]
            children[(level << np.uint64(6)) + at] = used
            exmaps[level] |= one << ((held >> (wide - np.uint64(6) * level)) & np.uint64(63))
            counts[level] = at + one
            used += np.uint64(2) + SIZE_OF[size_class]
        shared = following
        held = code
    state[USED] = used
    state[KMERS] = kmers
    return held, shared


@njit(cache=True, nogil=True)
def rebuild(old, old_state, codes, pool, k, state):
    """Write the nodes of a shard and of ``codes`` to ``pool``; False if it is too small.

    codes: ascending, of this shard only. ``state`` (zeros at first) becomes that of the new pool.
    The old pool stays unchanged.
    """
    left = np.zeros(LEVELS, dtype=np.uint64)
    place = np.zeros(LEVELS, dtype=np.uint64)
    prefix = np.zeros(LEVELS, dtype=np.uint64)
    exmaps = np.zeros(LEVELS, dtype=np.uint64)
    counts = np.zeros(LEVELS, dtype=np.uint64)
    children = np.empty(64 * LEVELS, dtype=np.uint64)
    levels = np.empty(BLOCK, dtype=np.uint8)
    block = np.empty(BLOCK, dtype=np.uint64)
    joined = np.empty(BLOCK, dtype=np.uint64)
    depth = np.uint64(0)
    if old_state[USED]:
        depth = np.uint64(1)
        left[0] = old[0]
        place[0] = 2
    root_words = 2 + CAPACITY[0 if k == 3 else 1]
    state[USED] = root_words
    held = ~np.uint64(0)
    shared = np.uint64(0)
    i = stop_i = j = np.uint64(0)
    end = np.uint64(codes.size)
    while True:
        if i == stop_i and depth != 0:
            i = np.uint64(0)
            stop_i, depth = _list(old, k, depth, left, place, prefix, block)
        i, j, found = _join(block, i, stop_i, depth == 0, codes, j, end, joined)
        if found == 0 and depth == 0:
            break
        if state[USED] + SLACK > pool.size:
            return False
        first = np.uint64(0)
        if held == ~np.uint64(0) and found != 0:
            held = joined[0]
            first = np.uint64(1)
        part = joined[first:found]
        _levels(part, k, held, levels)
        held, shared = _build(part, levels, k, held, shared, exmaps, counts, children, pool, state)
    # a sentinel that shares only the root: it places the last code and closes all other nodes
    joined[0] = ~held
    levels[0] = 0
    _build(joined[:1], levels, k, held, shared, exmaps, counts, children, pool, state)
    pool[0] = exmaps[0]
    pool[1] = (CLASS_OF[root_words - 2] << np.uint64(32)) | _inmap_of(exmaps[0])
    if root_words > 2:
        pool[2] = children[0]
    return True


class Joiner:
    """Joins ascending runs, in memory that each thread reuses: fresh memory costs as much as the
    work, and more when several threads allocate it."""

    def __init__(self) -> None:
        self._memory = threading.local()

    def joined(self, runs: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
        """The runs merged pairwise; repeats may remain. The result is valid until the next call."""
        runs = [run for run in runs if run.size]
        room, other_room = self._rooms(sum(run.size for run in runs) if len(runs) > 1 else 0)
        while len(runs) > 1:
            level, start = [], 0
            for one, other in zip(runs[::2], [*runs[1::2], runs[-1][:0]], strict=False):
                stop = start + one.size + other.size
                level.append(room[start:stop])
                merge_into(one, other, level[-1])
                start = stop
            runs = level
            room, other_room = other_room, room
        return runs[0]

    def _rooms(self, size: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        rooms: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None
        rooms = getattr(self._memory, "rooms", None)
        if rooms is None or rooms[0].size < size:
            rooms = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint64)
            self._memory.rooms = rooms
        return rooms
