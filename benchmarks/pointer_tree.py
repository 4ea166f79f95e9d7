"""The generic pointer tree (thesis 3.3.4): one node for every symbol of every k-mer.

A node is four uint32 child numbers, 0 for none (the root, node 0, is no node's child):

    children  | A C G T | A C G T | ...        node v, symbol c: children[4 v + c]

It is the thesis's first intermediate structure, kept as the baseline of the Hybrid Tree Bitmap.
"""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trie.codes import check_k
from trie.cpu.jit import njit
from trie.snapshots.tree_bitmap import MAX_NODES, TooManyNodesError, TreeBitmap, allocate
from trie.trees.shards import as_codes, check_range


class PointerTree:
    """A growing set of k-mers as a tree with a node for each symbol. Not thread-safe."""

    def __init__(self, k: int) -> None:
        self.k = operator.index(k)
        check_k(self.k)
        self._children = np.zeros(4 * 1024, dtype=np.uint32)
        # nodes by depth 0..k; their sum is the number of the next new node
        self._depths = np.zeros(self.k + 1, dtype=np.int64)
        self._depths[0] = 1

    def __len__(self) -> int:
        """The number of k-mers."""
        return int(self._depths[self.k])

    def memory_bytes(self) -> int:
        """The bytes of the arrays, including unused capacity."""
        return self._children.nbytes + self._depths.nbytes

    def insert(self, codes: ArrayLike) -> NDArray[np.bool_]:
        """Add k-mers (uint64[n], any order); returns which of them were new, bool[n].

        Only the first occurrence of a k-mer in a batch is new. Raises ValueError if a code is not
        below 4**k; nothing is added then.
        """
        codes = as_codes(codes)
        check_range(codes, self.k)
        new = np.zeros(codes.size, dtype=np.bool_)
        done = 0
        while done < codes.size:
            done = _insert(codes, done, self.k, self._children, self._depths, new)
            if done < codes.size:
                self._grow()
        return new

    def _grow(self) -> None:
        used = 4 * int(self._depths.sum())
        if used // 4 + self.k > MAX_NODES:
            raise TooManyNodesError(f"the pointer tree is full at {used // 4} nodes")
        children = np.zeros(2 * self._children.size, dtype=np.uint32)
        children[:used] = self._children[:used]
        self._children = children

    def to_tree_bitmap(self) -> TreeBitmap:
        """The snapshot: nodes are visited breadth-first and grouped into trie-nodes."""
        counts = self._depths[None, ::3].copy()
        tree, _ = allocate(self.k, counts, np.empty(0, dtype=np.uint64))
        _convert(self._children, self.k, tree.inmaps, tree.exmaps, tree.prefix_sums)
        return tree


@njit(cache=True, nogil=True)
def _insert(codes, start, k, children, depths, new):
    """Insert codes from ``start`` on until one might not fit; returns the number of codes done."""
    used = depths.sum()
    for i in range(start, codes.size):
        if 4 * (used + k) > children.size:
            return i
        code = codes[i]
        node = np.int64(0)
        for depth in range(k):
            at = 4 * node + np.int64((code >> np.uint64(2 * (k - 1 - depth))) & np.uint64(3))
            node = np.int64(children[at])
            if node == 0:
                node = used
                children[at] = node
                used += 1
                depths[depth + 1] += 1
                new[i] = depth + 1 == k
    return codes.size


@njit(cache=True, nogil=True)
def _convert(children, k, inmaps, exmaps, prefix_sums):
    """Group every node at a depth 3l and its next three symbols into a trie-node, level by level.

    ``queue`` holds the trie-nodes in the order of the snapshot, which is also the visiting order.
    """
    queue = np.empty(inmaps.size, dtype=np.uint32)
    queue[0] = 0
    end = 1
    level_end = 1
    depth = 0
    for at in range(inmaps.size):
        if at == level_end:
            level_end = end
            depth += 3
        inmap = np.uint32(1)
        exmap = np.uint64(0)
        prefix_sums[at] = end
        node = np.int64(queue[at])
        if depth < k:
            for a in range(4):
                child = np.int64(children[4 * node + a])
                if child == 0:
                    continue
                inmap |= np.uint32(2) << np.uint32(a)
                if depth + 1 == k:
                    continue
                for b in range(4):
                    grandchild = np.int64(children[4 * child + b])
                    if grandchild == 0:
                        continue
                    inmap |= np.uint32(32) << np.uint32(4 * a + b)
                    if depth + 2 == k:
                        continue
                    for c in range(4):
                        below = children[4 * grandchild + c]
                        if below:
                            exmap |= np.uint64(1) << np.uint64(16 * a + 4 * b + c)
                            queue[end] = below
                            end += 1
        inmaps[at] = inmap
        exmaps[at] = exmap
