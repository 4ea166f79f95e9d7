"""The Hybrid Tree Bitmap (thesis 3.3.13): a growing trie whose nodes look like trie-nodes.

A node holds an inmap, an exmap and its children, and is allocated on an external transition only.
Beyond the thesis: a child costs a word only if it exists (allocating "the child's brothers and
sisters also" is the drawback 3.4.2 names), the last level has no nodes, and a subtrie of one k-mer
stays that k-mer (a tail) until a second one comes, which spares sparse tries their long chains of
single children. The layout and the kernels are in ``trie.hybrid_nodes``.
"""

from __future__ import annotations

import operator
from functools import partial
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trie import hybrid_nodes
from trie.codes import check_k
from trie.hybrid_nodes import FREED, KMERS, MARGIN, STARTED, STATE, USED
from trie.parallel import run_all, split_range, usable_cores
from trie.shards import SHARDS, SMALL, as_codes, check_range, cut_between_shards, group
from trie.tree_bitmap import TreeBitmap, allocate

# of a shard's pool; a cache line more than a power of two, lest all roots compete for one cache set
FIRST_WORDS = 512 + 8
SMALL_POOL = 4096


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
        self._addresses += np.uint64(self._first_pools.__array_interface__["data"][0])

    def __reduce__(self) -> NoReturn:
        message = "a HybridTreeBitmap cannot be copied or pickled; its snapshot can"
        raise TypeError(message)

    def __len__(self) -> int:
        """The number of k-mers."""
        return int(self._tiny.sum() + self._state[:, KMERS].sum())

    def memory_bytes(self) -> int:
        """The bytes of the pools, unused room included, and of their state."""
        tables = (self._tiny, self._state, self._sizes, self._addresses, self._first_pools)
        return sum(array.nbytes for array in (*tables, *self._grown_pools.values()))

    def insert(self, codes: ArrayLike, threads: int | None = None) -> NDArray[np.bool_]:
        """Add k-mers (uint64[n], any order, ascending is fastest); which were new, bool[n].

        Of a k-mer's occurrences in one batch only the first is new. Shards grow in parallel.
        Raises ValueError if a code is not below 4**k, and adds nothing then.
        """
        codes = as_codes(codes)
        if self.k < 3:
            return self._insert_tiny(codes)
        new = np.empty(codes.size, dtype=np.bool_)
        if codes.size < SMALL or 4**self.k <= SMALL:  # grouping would cost more than it gives
            check_range(codes, self.k)
            self._insert_range(codes, new, None, 0, codes.size)
            return new
        threads = threads or usable_cores()
        # shard by shard also on one thread: what a shard touches stays in the cache
        grouped, bounds, order = group(codes, self.k, threads, noting_order=True)
        ranges = pairwise(cut_between_shards(bounds, 8 * threads))
        run_all(
            [partial(self._insert_range, grouped, new, bounds, a, b) for a, b in ranges], threads
        )
        if order is None:
            return new
        in_old_order = np.empty_like(new)
        in_old_order[order] = new
        return in_old_order

    def _insert_tiny(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        check_range(codes, self.k)
        distinct, firsts = np.unique(codes, return_index=True)
        new = np.zeros(codes.size, dtype=np.bool_)
        new[firsts] = ~self._tiny[distinct]
        self._tiny[distinct] = True
        return new

    def _insert_range(
        self,
        codes: NDArray[np.uint64],
        new: NDArray[np.bool_],
        bounds: NDArray[np.int64] | None,
        start: int,
        stop: int,
    ) -> None:
        """Insert codes[start:stop]; ``bounds`` says where each shard's end if they are grouped."""
        pools = (self._addresses, self._sizes, self._state)
        while True:
            start = hybrid_nodes.insert(codes, new, start, stop, self.k, *pools)
            if start == stop:
                return
            shard = int(codes[start]) >> (2 * (self.k - 3))
            to_come = (stop - start) // SHARDS if bounds is None else int(bounds[shard + 1]) - start
            self._grow(shard, to_come)

    def _grow(self, shard: int, to_come: int) -> None:
        """Half as much room again as is in use; more in a small tree or for a large batch."""
        state = self._state[shard]
        live = int(state[USED] - state[FREED])
        room = max(live // 2, min(live, SMALL_POOL), min(3 * to_come, 4 * live))
        pool = np.empty(live + room + 2 * MARGIN, dtype=np.uint64)
        old = self._grown_pools.get(shard, self._first_pools[shard])
        hybrid_nodes.move(old, pool, self.k, state)
        self._grown_pools[shard] = pool
        self._sizes[shard] = pool.size
        self._addresses[shard] = pool.__array_interface__["data"][0]

    def to_tree_bitmap(self, threads: int | None = None) -> TreeBitmap:
        """The snapshot: every shard writes its nodes level by level to where they belong.

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
        run_all(
            [
                partial(hybrid_nodes.emit, a, b, self.k, *pools, counts, starts, *arrays)
                for a, b in parts
            ],
            threads,
        )
        return tree
