"""The Tree Bitmap snapshot (thesis 3.3.2-3.3.3): four plain arrays, built from sorted k-mers.

A trie-node covers three symbols. For the node of a prefix of length 3l, on level l:

    inmap  bit 0        the prefix itself            (depth 3l)
           bits 1-4     its children, by symbol b0   (depth 3l + 1)     bit 1 + b0
           bits 5-20    its grandchildren            (depth 3l + 2)     bit 5 + 4 b0 + b1
    exmap  bits 0-63    its child trie-nodes         (depth 3l + 3)     bit 16 b0 + 4 b1 + b2

Below the last level k // 3 there are no trie-nodes; k % 3 tells how much of its inmaps is used. The
index of a child is ``prefix_sum + popcount(exmap & (bit - 1))`` (equation 2).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trie.codes import check_k
from trie.cpu.intrinsics import leading_zeros, popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, split_range, usable_cores
from trie.trees.shards import (
    SMALL,
    as_codes,
    check_range,
    cut_between_shards,
    shard_bounds,
    sort_unique,
)

MAX_NODES = 2**32 - 1
NOT_ASCENDING = "the codes do not ascend strictly"
_MOST_CODES = 1 << 19
"""In a call of a kernel, about: the main thread notices an interrupt only between two."""


class TooManyNodesError(ValueError):
    """A trie with more nodes than a uint32 prefix sum can address."""


@dataclass(frozen=True, eq=False)
class TreeBitmap:
    """An immutable trie of k-mers with N trie-nodes, breadth-first, ascending within a level.

    inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N] (index of a node's first child; the
    formula also holds for nodes without children), level_offsets uint64[k // 3 + 2] (the first node
    of every level, then N). The root exists even if there are no k-mers. Equal sets of k-mers give
    bit-identical arrays. Thesis 3.3.3.

    >>> import numpy as np
    >>> import trie
    >>> made = trie.snapshot(np.array([27, 24], np.uint64), 4)
    >>> made.node_count, made.nbytes
    (2, 56)
    >>> made.codes().tolist()
    [24, 27]
    """

    k: int
    inmaps: NDArray[np.uint32]
    exmaps: NDArray[np.uint64]
    prefix_sums: NDArray[np.uint32]
    level_offsets: NDArray[np.uint64]

    @property
    def node_count(self) -> int:
        """The number N of trie-nodes, at least 1."""
        return self.inmaps.size

    @property
    def nbytes(self) -> int:
        """The bytes of the four arrays."""
        arrays = (self.inmaps, self.exmaps, self.prefix_sums, self.level_offsets)
        return sum(array.nbytes for array in arrays)

    def codes(self, threads: int | None = None) -> NDArray[np.uint64]:
        """The k-mer codes in ascending order, uint64[number of k-mers]."""
        threads = threads or usable_cores()
        offsets = [int(offset) for offset in self.level_offsets]
        prefixes = np.zeros(1, dtype=np.uint64)
        for level in range(self.k // 3):
            # one element per node, parallel to the level's part of the arrays
            first, below, stop = offsets[level : level + 3]
            exmaps, sums = self.exmaps[first:below], self.prefix_sums[first:below]
            children = np.empty(stop - below, dtype=np.uint64)
            parts = split_range(0, prefixes.size, 1 if prefixes.size < 4096 else threads)
            run_each(
                _append_symbols,
                [(prefixes[a:b], exmaps[a:b], children[int(sums[a]) - below :]) for a, b in parts],
                threads,
            )
            prefixes = children
        if self.k % 3 == 0:
            return prefixes
        return _append_leaves(prefixes, self.inmaps[offsets[-2] :], self.k % 3)


@njit(cache=True, nogil=True)
def _append_symbols(prefixes, exmaps, children):
    """Write the prefixes of all child nodes, three symbols longer, in order."""
    at = 0
    for i in range(prefixes.size):
        exmap = exmaps[i]
        base = prefixes[i] << np.uint64(6)
        while exmap:
            children[at] = base | trailing_zeros(exmap)
            exmap &= exmap - np.uint64(1)
            at += 1


@njit(cache=True, nogil=True)
def _append_leaves(prefixes, inmaps, symbols):
    """Write the k-mers in the inmaps of the last level, one or two symbols longer."""
    drop = np.uint32(1 if symbols == 1 else 5)
    kept = np.uint32(15 if symbols == 1 else 65535)
    total = 0
    for i in range(inmaps.size):
        total += popcount((inmaps[i] >> drop) & kept)
    codes = np.empty(total, dtype=np.uint64)
    at = 0
    for i in range(inmaps.size):
        leaves = (inmaps[i] >> drop) & kept
        base = prefixes[i] << np.uint64(2 * symbols)
        while leaves:
            codes[at] = base | np.uint64(trailing_zeros(leaves))
            leaves &= leaves - np.uint32(1)
            at += 1
    return codes


@njit(cache=True, nogil=True, inline="always")
def symbol_at(code, level, k):
    """The three symbols of a code that lead from a level to the next, as a number 0..63."""
    return (code >> np.uint64(2 * (k - 3 * level - 3))) & np.uint64(63)


@njit(cache=True, nogil=True, inline="always")
def inner_inmap(symbol):
    """The inmap bits on the path to a child trie-node: the prefix, a child, a grandchild."""
    return np.uint32(
        np.uint64(1)
        | (np.uint64(2) << (symbol >> np.uint64(4)))
        | (np.uint64(32) << (symbol >> np.uint64(2)))
    )


@njit(cache=True, nogil=True, inline="always")
def leaf_inmap(code, symbols):
    """The inmap bits of one k-mer in its last-level node, of which it uses 0..2 symbols."""
    if symbols == 0:
        return np.uint32(1)
    if symbols == 1:
        return np.uint32(np.uint64(1) | (np.uint64(2) << (code & np.uint64(3))))
    return np.uint32(
        np.uint64(1)
        | (np.uint64(2) << ((code >> np.uint64(2)) & np.uint64(3)))
        | (np.uint64(32) << (code & np.uint64(15)))
    )


@njit(cache=True, nogil=True, inline="always")
def common_level(code, other, k):
    """The deepest level on which two codes have the same node; k // 3 if they are equal."""
    return (np.int64(leading_zeros(code ^ other)) - (64 - 2 * k)) // 6


def allocate(
    k: int, counts: NDArray[np.int64], codes_of_root: NDArray[np.uint64]
) -> tuple[TreeBitmap, NDArray[np.int64]]:
    """A TreeBitmap with only the root initialized, and where each part writes.

    ``counts`` int64[parts, k // 3 + 1]: the number of nodes that each part will write on every
    level but 0, parts in ascending order of their k-mers. ``codes_of_root``: the k-mers if k < 3,
    else the symbols 0..63 of the root's children. The second result, int64[parts, k // 3 + 2],
    holds every part's first index on each level; its last column is N, so the entry after a level's
    is a valid prefix sum on the last level too.

    Raises TooManyNodesError above 2**32 - 1 nodes.
    """
    totals = counts.sum(axis=0)
    totals[0] = 1
    offsets = np.concatenate(([0], np.cumsum(totals)))
    size = int(offsets[-1])
    if size > MAX_NODES:
        message = f"the trie has {size} nodes, a Tree Bitmap holds at most {MAX_NODES}"
        raise TooManyNodesError(message)
    starts = np.empty((counts.shape[0], offsets.size), dtype=np.int64)
    starts[:, -1] = size
    starts[:, :-1] = offsets[:-1] + np.cumsum(counts, axis=0) - counts
    tree = TreeBitmap(
        k,
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint64),
        np.empty(size, dtype=np.uint32),
        offsets.astype(np.uint64),
    )
    inmap, exmap = 1, 0
    for code in codes_of_root.tolist():
        if k < 3:
            inmap |= int(leaf_inmap(np.uint64(code), k))
        else:
            inmap |= 2 << (code >> 4) | 32 << (code >> 2)
            exmap |= 1 << code
    tree.inmaps[0], tree.exmaps[0], tree.prefix_sums[0] = inmap, exmap, 1
    return tree, starts


@njit(cache=True, nogil=True)
def _count_nodes(codes, start, stop, k, counts):
    """Count the nodes that the codes start on each level; False if they do not ascend strictly."""
    divergences = np.zeros(k // 3 + 1, dtype=np.int64)
    ascending = True
    previous = codes[start - 1] if start else codes[0] ^ (np.uint64(1) << np.uint64(2 * k - 1))
    for i in range(start, stop):
        code = codes[i]
        ascending &= (code > previous) | (i == 0)
        divergences[max(common_level(code, previous, k), 0)] += 1  # below 0: codes out of order
        previous = code
    started = 0
    for level in range(1, k // 3 + 1):
        started += divergences[level - 1]
        counts[level] = started
    return ascending


@njit(cache=True, nogil=True)
def _emit(codes, start, stop, k, following, inmaps, exmaps, prefix_sums):
    """Write the nodes below the root of whole first-level subtries, on all levels in one pass.

    ``following[level]`` is the index of the next node of a level. A code shares its path with its
    predecessor down to one level; the node there gains a child, and each deeper one is a new node
    with a single child, the next node of the next level.
    """
    last = k // 3
    # differs in the first symbol, like the last code of the previous shard
    previous = codes[start] ^ (np.uint64(1) << np.uint64(2 * k - 1))
    for i in range(start, stop):
        code = codes[i]
        level = common_level(code, previous, k)
        previous = code
        if level == last:
            inmaps[following[last] - 1] |= leaf_inmap(code, k % 3)
            continue
        if level:  # the root, which threads share, is written by allocate()
            symbol = symbol_at(code, level, k)
            node = following[level] - 1
            exmaps[node] |= np.uint64(1) << symbol
            inmaps[node] |= inner_inmap(symbol)
        for opened in range(level + 1, last):
            symbol = symbol_at(code, opened, k)
            node = following[opened]
            following[opened] = node + 1
            exmaps[node] = np.uint64(1) << symbol
            inmaps[node] = inner_inmap(symbol)
            prefix_sums[node] = following[opened + 1]
        node = following[last]
        following[last] = node + 1
        exmaps[node] = 0
        inmaps[node] = leaf_inmap(code, k % 3)
        prefix_sums[node] = following[last + 1]


def from_sorted(codes: NDArray[np.uint64], k: int, threads: int | None = None) -> TreeBitmap:
    """The snapshot of strictly ascending k-mer codes (uint64[n], each below 4**k).

    Two linear passes, each parallel over groups of first-level subtries: count the nodes of every
    level, then write them all. Raises ValueError if a code is too large or the codes do not
    ascend strictly, TooManyNodesError if the trie is too large.
    """
    check_k(k)
    codes = as_codes(codes)
    check_range(codes[-1:], k)  # the largest code, if they ascend
    threads = threads or usable_cores()
    if k < 3:
        if np.any(codes[1:] <= codes[:-1]):
            raise ValueError(NOT_ASCENDING)
        return allocate(k, np.zeros((1, 1), dtype=np.int64), codes)[0]
    bounds = shard_bounds(codes, k)
    # more parts than threads, so that uneven shards balance
    parts = 1 if codes.size < SMALL else max(4 * threads, codes.size // _MOST_CODES)
    ranges = list(pairwise(cut_between_shards(bounds, parts)))
    counts = np.zeros((len(ranges), k // 3 + 1), dtype=np.int64)
    ascending = run_each(
        lambda part, row: _count_nodes(codes, *part, k, row),
        zip(ranges, counts, strict=True),
        threads,
    )
    if not all(ascending):
        raise ValueError(NOT_ASCENDING)
    present = np.flatnonzero(np.diff(bounds)).astype(np.uint64)
    tree, starts = allocate(k, counts, present)
    arrays = tree.inmaps, tree.exmaps, tree.prefix_sums
    run_each(
        lambda part, row: _emit(codes, *part, k, row, *arrays),
        zip(ranges, starts, strict=True),
        threads,
    )
    return tree


def snapshot(codes: ArrayLike, k: int, threads: int | None = None) -> TreeBitmap:
    """The Tree Bitmap of a set of k-mers given as codes (uint64[n]) in any order, repeats allowed.

    Raises ValueError unless 1 <= k <= 31 and every code is an integer in 0..4**k - 1, and
    TooManyNodesError if the trie is too large. Thesis 3.3.2-3.3.3.

    >>> import numpy as np
    >>> import trie
    >>> codes = np.array([0b00_01_10_11, 0b00_01_10_00], np.uint64)  # ACGT and ACGA
    >>> made = trie.snapshot(codes, 4)
    >>> made.level_offsets.tolist(), made.exmaps.tolist()
    ([0, 1, 2], [64, 0])
    """
    k = operator.index(k)
    check_k(k)
    threads = threads or usable_cores()
    return from_sorted(sort_unique(as_codes(codes), k, threads), k, threads)
