"""The Hybrid Tree Bitmap (thesis 3.3.13): a growing trie whose nodes look like trie-nodes.

A node is a run of 64-bit words in a pool; its number is the offset of the first:

    word 0    exmap
    word 1    size class << 32 | inmap
    word 2..  one word for every bit of the exmap, ascending; room for CAPACITY[size class]

A child's word is one of

    1 | 0 | code (62 bits)    a tail: the one k-mer below the child, not yet unfolded into nodes
    0 | offset of a node      a child on an inner level
    inmap                     a child on the last level k // 3, which has nothing else

and there are no child words where the last level uses no symbol (k % 3 == 0): the exmap says it
all. Beyond the thesis: no "all brothers at once" allocation (the drawback it names in 3.4.2), the
last level without nodes, and tails, which spare sparse tries their long chains of single children.

Each of the 64 first-level subtries is a tree of its own with a root of its own (one bit of the
common root's exmap), so that shards grow and are written out on several threads.
"""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from trie.codes import check_k
from trie.intrinsics import popcount, prefetch
from trie.parallel import run_all, usable_cores
from trie.shards import SHARDS, SMALL, as_codes, check_range, group
from trie.tree_bitmap import (
    TreeBitmap,
    allocate,
    common_level,
    inner_inmap,
    leaf_inmap,
    symbol_at,
)

CAPACITY = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
TAIL = np.uint64(1 << 63)

# the int64 state of a shard: words used, k-mers, heads of the lists of free nodes by size class
# (0: none), and for every level how many k-mers were the first to need a node there
USED = 0
KMERS = 1
FREE = 2
STARTED = FREE + len(CAPACITY)
STATE = STARTED + 12

# more than one k-mer can take from the end of the pool: a tail unfolded down to the last level,
# three words a node, and a full node moved to the next size
MARGIN = 128


class HybridTreeBitmap:
    """A growing set of k-mers that turns into a snapshot fast. One writer at a time."""

    def __init__(self, k: int) -> None:
        self.k = operator.index(k)
        check_k(self.k)
        self._tiny = np.zeros(4**self.k if self.k < 3 else 0, dtype=np.bool_)  # k < 3: a root only
        self._state = np.zeros((SHARDS, STATE), dtype=np.int64)
        self._pools = [np.zeros(0, dtype=np.uint64)] * SHARDS

    def __len__(self) -> int:
        """The number of k-mers."""
        return int(self._tiny.sum() + self._state[:, KMERS].sum())

    def memory_bytes(self) -> int:
        """The bytes of the pools, unused room included, and of their state."""
        return self._tiny.nbytes + self._state.nbytes + sum(pool.nbytes for pool in self._pools)

    def insert(self, codes: ArrayLike, threads: int | None = None) -> NDArray[np.bool_]:
        """Add k-mers (uint64[n], any order, ascending is fastest); which were new, bool[n].

        Of a k-mer's occurrences in one batch only the first is new. Shards grow in parallel.
        Raises ValueError if a code is not below 4**k, and adds nothing then.
        """
        codes = as_codes(codes)
        if self.k < 3:
            return self._insert_tiny(codes)
        threads = threads or usable_cores()
        if codes.size < SMALL:
            threads = 1
        grouped, bounds, order = group(codes, self.k, threads, noting_order=True)
        new = np.empty(codes.size, dtype=np.bool_)
        cuts = bounds.tolist()
        run_all(
            [
                partial(self._insert_shard, shard, grouped, cuts[shard], cuts[shard + 1], new)
                for shard in range(SHARDS)
                if cuts[shard] < cuts[shard + 1]
            ],
            threads,
        )
        if order is None:
            return new
        unordered = np.empty_like(new)
        unordered[order] = new
        return unordered

    def _insert_tiny(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        check_range(codes, self.k)
        distinct, firsts = np.unique(codes, return_index=True)
        new = np.zeros(codes.size, dtype=np.bool_)
        new[firsts] = ~self._tiny[distinct]
        self._tiny[distinct] = True
        return new

    def _insert_shard(
        self, shard: int, codes: NDArray[np.uint64], start: int, stop: int, new: NDArray[np.bool_]
    ) -> None:
        state = self._state[shard]
        while True:
            start = _insert(codes, new, start, stop, self.k, self._pools[shard], state)
            if start == stop:
                return
            # half as much again; the first batch announces the size of what is to come
            used = int(state[USED])
            size = used + used // 2 + 2 * MARGIN + (0 if used else stop - start)
            pool = np.empty(size, dtype=np.uint64)
            pool[:used] = self._pools[shard][:used]
            self._pools[shard] = pool

    def to_tree_bitmap(self, threads: int | None = None) -> TreeBitmap:
        """The snapshot: every shard writes its nodes level by level to where they belong."""
        if self.k < 3:
            codes = np.flatnonzero(self._tiny).astype(np.uint64)
            return allocate(self.k, np.zeros((1, 1), dtype=np.int64), codes)[0]
        threads = threads or usable_cores()
        counts = np.cumsum(self._state[:, STARTED : STARTED + self.k // 3 + 1], axis=1)
        present = np.flatnonzero(self._state[:, KMERS])
        tree, starts = allocate(self.k, counts, present.astype(np.uint64))
        run_all(
            [
                partial(
                    _emit,
                    self._pools[shard],
                    self.k,
                    counts[shard],
                    starts[shard],
                    tree.inmaps,
                    tree.exmaps,
                    tree.prefix_sums,
                )
                for shard in present
            ],
            1 if tree.node_count < SMALL else threads,
        )
        return tree


@njit(cache=True, nogil=True, inline="always")
def _child_word(code, level, k):  # type: ignore[no-untyped-def]
    """What a node holds for a child on ``level`` that has one k-mer below."""
    if level == k // 3:
        return np.uint64(leaf_inmap(code, k % 3))
    return TAIL | code


@njit(cache=True, nogil=True)
def _new_node(pool, state, size_class):  # type: ignore[no-untyped-def]
    """The number of an unused node, from the free list if there is one."""
    node = state[FREE + size_class]
    if node:
        state[FREE + size_class] = pool[node]
    else:
        node = state[USED]
        state[USED] = node + 2 + CAPACITY[size_class]
    pool[node] = 0
    pool[node + 1] = np.uint64(size_class) << np.uint64(32)
    return node


@njit(cache=True, nogil=True)
def _add_child(pool, state, path, code, level, k):  # type: ignore[no-untyped-def]
    """Give the path's node on ``level`` the child that a code leads to; it may move to grow."""
    node = path[level]
    symbol = symbol_at(code, level, k)
    bit = np.uint64(1) << symbol
    exmap = pool[node]
    head = pool[node + 1]
    if not (level + 1 == k // 3 and k % 3 == 0):
        used = np.int64(popcount(exmap))
        rank = np.int64(popcount(exmap & (bit - np.uint64(1))))
        size_class = np.int64(head >> np.uint64(32))
        if used == CAPACITY[size_class]:
            old = node
            node = _new_node(pool, state, size_class + 1)
            head += np.uint64(1 << 32)
            for i in range(2, 2 + used):
                pool[node + i] = pool[old + i]
            pool[old] = state[FREE + size_class]
            state[FREE + size_class] = old
            path[level] = node
            above = np.uint64(1) << symbol_at(code, level - 1, k)
            parent = path[level - 1]
            place = popcount(pool[parent] & (above - np.uint64(1)))
            pool[parent + 2 + np.int64(place)] = node
        for i in range(node + 1 + used, node + 1 + rank, -1):
            pool[i + 1] = pool[i]
        pool[node + 2 + rank] = _child_word(code, level + 1, k)
    pool[node] = exmap | bit
    pool[node + 1] = head | np.uint64(inner_inmap(symbol))


@njit(cache=True, nogil=True)
def _insert(codes, new, start, stop, k, pool, state):  # type: ignore[no-untyped-def]
    """Insert codes[start:stop] of one shard until one might not fit; where it stopped.

    ``path`` keeps the nodes on the way to the code before, so that a code starts on the deepest
    node that both share: ascending codes hardly walk.
    """
    last = k // 3
    bare = k % 3 == 0  # children on the last level have no words
    path = np.zeros(12, dtype=np.int64)
    deepest = np.int64(0)
    previous = np.uint64(0)
    if state[USED] == 0 and pool.size >= MARGIN:
        _new_node(pool, state, 0 if bare and last == 1 else 1)
    for i in range(start, stop):
        if state[USED] + MARGIN > pool.size:
            return i
        code = codes[i]
        level = min(common_level(code, previous, k), deepest)
        previous = code
        fresh = False
        while True:
            node = path[level]
            bit = np.uint64(1) << symbol_at(code, level, k)
            exmap = pool[node]
            if not exmap & bit:
                _add_child(pool, state, path, code, level, k)
                state[STARTED + level + 1] += 1
                fresh = True
                break
            if bare and level + 1 == last:
                break
            place = node + 2 + np.int64(popcount(exmap & (bit - np.uint64(1))))
            word = pool[place]
            if level + 1 == last:
                inmap = word | np.uint64(leaf_inmap(code, k % 3))
                fresh = inmap != word
                pool[place] = inmap
                break
            level += 1
            if word & TAIL:
                if word == TAIL | code:
                    level -= 1
                    break
                # unfold the tail by one node; the way down goes on from there
                path[level] = _new_node(pool, state, 0 if bare and level + 1 == last else 1)
                pool[place] = np.uint64(path[level])
                _add_child(pool, state, path, word & ~TAIL, level, k)
            else:
                path[level] = np.int64(word)
        deepest = level
        new[i] = fresh
        state[KMERS] += fresh
    return stop


@njit(cache=True, nogil=True)
def _emit(pool, k, counts, following, inmaps, exmaps, prefix_sums):  # type: ignore[no-untyped-def]
    """Write the nodes of one shard from level 1 down, carrying the child words of one level.

    ``counts`` and ``following`` hold the shard's nodes and its first index on every level.
    """
    last = k // 3
    bare = k % 3 == 0
    words = np.empty(counts.max(), dtype=np.uint64)
    below = np.empty(counts.max(), dtype=np.uint64)
    words[0] = pool[2]
    for level in range(1, last):
        found = np.int64(0)
        first_child = following[level + 1]
        kept = not (bare and level + 1 == last)
        at = following[level]
        for i in range(counts[level]):
            ahead = words[min(i + 16, counts[level] - 1)]
            if not ahead & TAIL:
                prefetch(pool, np.int64(ahead))  # type: ignore[call-arg]
            word = words[i]
            if word & TAIL:
                code = word & ~TAIL
                symbol = symbol_at(code, level, k)
                inmaps[at + i] = inner_inmap(symbol)
                exmaps[at + i] = np.uint64(1) << symbol
                prefix_sums[at + i] = first_child + found
                if kept:
                    below[found] = _child_word(code, level + 1, k)
                found += 1
            else:
                node = np.int64(word)
                exmap = pool[node]
                inmaps[at + i] = np.uint32(pool[node + 1] & np.uint64(0xFFFFFFFF))
                exmaps[at + i] = exmap
                prefix_sums[at + i] = first_child + found
                children = np.int64(popcount(exmap))
                if kept:
                    for child in range(children):
                        below[found + child] = pool[node + 2 + child]
                found += children
        words, below = below, words
    at = following[last]
    for i in range(counts[last]):
        inmaps[at + i] = 1 if bare else np.uint32(words[i])
        exmaps[at + i] = 0
        prefix_sums[at + i] = following[last + 1]
