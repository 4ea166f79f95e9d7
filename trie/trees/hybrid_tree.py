"""The Hybrid Tree Bitmap (thesis 3.3.13): a growing trie whose nodes look like trie-nodes.

``trie.trees.hybrid_nodes`` has the node layout, what it adds to the thesis, and the kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trie.codes import check_k
from trie.cpu.intrinsics import array_address
from trie.cpu.threads import run_each, split_range, usable_cores
from trie.snapshots.tree_bitmap import TreeBitmap, allocate
from trie.trees import hybrid_merge, hybrid_nodes
from trie.trees.hybrid_nodes import FREED, KMERS, MARGIN, STARTED, STATE, USED
from trie.trees.shards import SHARDS, SMALL, as_codes, check_range, group

# of a shard's pool; a cache line above a power of two, or all roots would share one cache set
FIRST_WORDS = 512 + 8
SMALL_POOL = 4096
NOT_ASCENDING = "the k-mers of a run do not ascend"
# words per k-mer in a new tree; a shard whose pool was too small is written again
FIRST_WORDS_EACH = 2.0
# a linear pass merges at least MERGED_FROM ascending k-mers if the shard holds at most MERGED_SHARE
# times as many: a search takes about ten times as long as passing a k-mer
MERGED_FROM = 256
MERGED_SHARE = 8


class HybridTreeBitmap:
    """A growing set of k-mers that turns into a snapshot fast. One writer at a time."""

    def __init__(self, k: int) -> None:
        self.k = operator.index(k)
        check_k(self.k)
        self._tiny = np.zeros(4**self.k if self.k < 3 else 0, dtype=np.bool_)  # k < 3: a root only
        self._state = np.zeros((SHARDS, STATE), dtype=np.int64)
        self._first_pools = np.empty((SHARDS, FIRST_WORDS), dtype=np.uint64)
        self._grown_pools: dict[int, NDArray[np.uint64]] = {}
        self._sizes = np.full(SHARDS, FIRST_WORDS, dtype=np.int64)
        self._addresses = np.arange(SHARDS, dtype=np.uint64)
        self._addresses *= np.uint64(self._first_pools.strides[0])
        self._addresses += np.uint64(array_address(self._first_pools))

    def __reduce__(self) -> NoReturn:
        message = "a HybridTreeBitmap cannot be copied or pickled; its snapshot can"
        raise TypeError(message)

    def __len__(self) -> int:
        """The number of k-mers."""
        return int(self._tiny.sum() + self._state[:, KMERS].sum())

    def memory_bytes(self) -> int:
        """Bytes of the pools, including unused room, and of their state."""
        tables = (self._tiny, self._state, self._sizes, self._addresses, self._first_pools)
        return sum(array.nbytes for array in (*tables, *self._grown_pools.values()))

    def insert(self, codes: ArrayLike, threads: int | None = None) -> None:
        """Add k-mers (uint64[n], in any order; ascending is fastest), shards in parallel.

        Raises ValueError, and adds nothing, if a code is not below 4**k.
        """
        codes = as_codes(codes)
        if self.k < 3:
            self._insert_tiny(codes)
            return
        if codes.size < SMALL or 4**self.k <= SMALL:  # grouping would cost more than it gains
            check_range(codes, self.k)
            self._insert(codes, SHARDS)
            return
        threads = threads or usable_cores()
        # shard by shard even on one thread: a shard stays in the cache
        grouped, bounds, order = group(codes, self.k, threads, noting_order=False)

        def add(shard: int, start: int, stop: int) -> None:
            if order is None:
                self._merge_into_shard(shard, grouped[start:stop])
            else:
                self._insert(grouped[start:stop], 1)

        filled = [(n, a, b) for n, (a, b) in enumerate(pairwise(bounds)) if b > a]
        run_each(add, filled, threads)

    def merge(self, runs: Sequence[ArrayLike], threads: int | None = None) -> None:
        """Add ascending runs of k-mers (uint64[n] each; repeats allowed, within and between runs).

        Much faster than ``insert`` for runs that are long compared to the tree: a shard that grows
        by an eighth or more is rewritten in one linear pass (trie/trees/hybrid_merge.py), shards in
        parallel. Raises ValueError, and adds nothing, if a run does not ascend or a code is not
        below 4**k.
        """
        threads = threads or usable_cores()
        codes = [run for run in map(as_codes, runs) if run.size]
        if self.k < 3:
            for run in codes:
                check_range(run, self.k)
                if np.any(run[1:] < run[:-1]):
                    raise ValueError(NOT_ASCENDING)
            for run in codes:
                self._insert_tiny(run)
            return
        cut = []
        for run in codes:
            grouped = group(run, self.k, threads, noting_order=False)
            if grouped.codes is not run:
                raise ValueError(NOT_ASCENDING)
            cut.append(grouped.bounds)
        sizes = sum((np.diff(bounds) for bounds in cut), start=np.zeros(SHARDS, np.int64))
        # most work first, so that the cores finish together
        work = np.argsort(-(sizes + self._state[:, KMERS]))
        joiner = hybrid_merge.Joiner()

        def merge_shard(shard: int) -> None:
            parts = [run[b[shard] : b[shard + 1]] for run, b in zip(codes, cut, strict=True)]
            self._merge_into_shard(shard, joiner.joined(parts))

        run_each(merge_shard, [[int(shard)] for shard in work if sizes[shard]], threads)

    def _insert_tiny(self, codes: NDArray[np.uint64]) -> None:
        check_range(codes, self.k)
        self._tiny[codes] = True

    def _merge_into_shard(self, shard: int, codes: NDArray[np.uint64]) -> None:
        """Insert ascending codes of one shard."""
        state = self._state[shard]
        held = int(state[KMERS])
        if codes.size < MERGED_FROM or MERGED_SHARE * codes.size < held:
            self._insert(codes, 1)
            return
        old = self._pool_of(shard)
        kmers = held + codes.size
        each = int(state[USED] - state[FREED]) / held if held else FIRST_WORDS_EACH
        while True:
            # untouched pages take no memory; the excess is released below
            pool = np.empty(int(1.5 * each * kmers) + hybrid_merge.SLACK, dtype=np.uint64)
            fresh = np.zeros(STATE, dtype=np.int64)
            if hybrid_merge.rebuild(old, state, codes, pool, self.k, fresh):
                break
            each *= 2
        pool.resize(int(fresh[USED]) + MARGIN, refcheck=False)
        self._replace(shard, pool)
        self._state[shard] = fresh

    def _insert(self, codes: NDArray[np.uint64], shards: int) -> None:
        """Insert codes, in any order, of about ``shards`` shards."""
        pools = (self._addresses, self._sizes, self._state)
        start = 0
        while True:
            start = hybrid_nodes.insert(codes, start, self.k, *pools)
            if start == codes.size:
                return
            shard = int(codes[start]) >> (2 * (self.k - 3))
            self._grow(shard, (codes.size - start) // shards)

    def _pool_of(self, shard: int) -> NDArray[np.uint64]:
        return self._grown_pools.get(shard, self._first_pools[shard])

    def _replace(self, shard: int, pool: NDArray[np.uint64]) -> None:
        self._grown_pools[shard] = pool
        self._sizes[shard] = pool.size
        self._addresses[shard] = array_address(pool)

    def _grow(self, shard: int, to_come: int) -> None:
        """Grow a pool by half of what is in use; by more in a small tree or for a large batch."""
        state = self._state[shard]
        live = int(state[USED] - state[FREED])
        room = max(live // 2, min(live, SMALL_POOL), min(3 * to_come, 4 * live))
        pool = np.empty(live + room + 2 * MARGIN, dtype=np.uint64)
        hybrid_nodes.move(self._pool_of(shard), pool, self.k, state)
        self._replace(shard, pool)

    def to_tree_bitmap(self, threads: int | None = None) -> TreeBitmap:
        """The snapshot: every shard writes its nodes, level by level, to their final places.

        Raises TooManyNodesError above 2**32 - 1 trie-nodes.
        """
        if self.k < 3:
            codes = np.flatnonzero(self._tiny).astype(np.uint64)
            return allocate(self.k, np.zeros((1, 1), dtype=np.int64), codes)[0]
        threads = threads or usable_cores()
        counts = np.cumsum(self._state[:, STARTED : STARTED + self.k // 3 + 1], axis=1)
        present = np.flatnonzero(self._state[:, KMERS])
        tree, starts = allocate(self.k, counts, present.astype(np.uint64))
        pools = (self._addresses, self._sizes)
        arrays = (tree.inmaps, tree.exmaps, tree.prefix_sums)
        parts = split_range(0, SHARDS, 1 if tree.node_count < SMALL else 8 * threads)
        run_each(
            lambda a, b: hybrid_nodes.emit(a, b, self.k, *pools, counts, starts, *arrays),
            parts,
            threads,
        )
        return tree
