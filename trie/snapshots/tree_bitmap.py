"""The Tree Bitmap snapshot (thesis 3.3.2-3.3.4): its arrays, and the walk through it.

A trie-node covers three symbols. For the node of a prefix of length 3l, on level l:

    inmap  bit 0        the prefix itself            (depth 3l)
           bits 1-4     its children, by symbol b0   (depth 3l + 1)     bit 1 + b0
           bits 5-20    its grandchildren            (depth 3l + 2)     bit 5 + 4 b0 + b1
    exmap  bits 0-63    its child trie-nodes         (depth 3l + 3)     bit 16 b0 + 4 b1 + b2

Below the last level k // 3 there are no trie-nodes; k % 3 tells how much of its inmaps is used. The
index of a child is ``prefix_sum + popcount(exmap & (bit - 1))`` (equation 2).

A window walks down, six bits g of its code per level, until bit g of the exmap is clear; the inmap
then tells up to two symbols more. The windows of a block descend together, one level per pass; each
pass prefetches the cache lines of the next one. A level costs about 12 operations and two cache
lines (exmap and prefix sum) for each window that continues; the end costs one line (inmap) unless k
is a multiple of 3. For a large batch the walk begins at level 3 with one look-up in a table of all
4**9 prefixes (1 MB, L2).

The event word of thesis Fig. 11, one uint64 per window, made only on request:

    bit  63      62 ............ 32   31 ............ 5   4 ... 0
         type    index in the chunk   trie-node           depth
         0 match / 1 mismatch

The index is that of the symbol that decided the event, window start + depth - 1; the node holds the
deepest state reached; the depth is k for a match.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import leading_zeros, popcount, prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, run_ranges, split_range, usable_cores
from trie.windows import BLOCK, GRAIN, MATCH, MISMATCH, check_batch, roll_block, start_state

MAX_NODES = 2**32 - 1


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
        raise TooManyNodesError(
            f"the trie has {size} nodes, a Tree Bitmap holds at most {MAX_NODES}"
        )
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


_JUMP_LEVEL: Final = 3
_JUMP_FROM: Final = 1 << 19
_NOWHERE: Final = np.uint32(0xFFFFFFFF)
_NO_NODES = np.empty(0, dtype=np.uint32)


@njit(cache=True, nogil=True)
def _make_jump(exmaps, prefix_sums):
    """The node of each prefix of 9 symbols, _NOWHERE if there is none."""
    nodes = np.zeros(1, dtype=np.uint32)
    for _ in range(_JUMP_LEVEL):
        below = np.full(nodes.size * 64, _NOWHERE, dtype=np.uint32)
        for i in range(nodes.size):
            if nodes[i] != _NOWHERE:
                exmap = exmaps[nodes[i]]
                child = prefix_sums[nodes[i]]
                for g in range(64):
                    if (exmap >> np.uint64(g)) & np.uint64(1) != np.uint64(0):
                        below[i * 64 + g] = child
                        child = np.uint32(child + np.uint32(1))
        nodes = below
    return nodes


@njit(cache=True, nogil=True)
def _levels(exmaps, prefix_sums, first, last, lean_level, codes, nodes, depths, going, active):
    """Walk the windows going[:active] down from level ``first``, at most to ``last``.

    Whether a window continues is practically random, so nothing here branches on it. At
    ``lean_level`` no nodes are needed, so the prefix sums above it are not read.
    """
    one = np.uint64(1)
    for level in range(first, last):
        still = 0
        if level == lean_level - 1:
            for i in range(active):
                j = going[i]
                there = (exmaps[nodes[j]] >> (codes[j] >> np.uint64(58))) & one
                depths[j] += np.uint8(np.uint64(3) * there)
            return
        deeper = level + 1 < last
        sums_too = level + 2 != lean_level
        for i in range(active):
            j = going[i]
            code = codes[j]
            node = np.uint64(nodes[j])
            exmap = exmaps[node]
            g = code >> np.uint64(58)
            there = (exmap >> g) & one
            child = np.uint64(prefix_sums[node]) + np.uint64(popcount(exmap & ((one << g) - one)))
            node = child if there != np.uint64(0) else node
            if deeper:
                prefetch_far(exmaps, node)
                if sums_too:
                    prefetch_far(prefix_sums, node)
            nodes[j] = np.uint32(node)
            codes[j] = code << (np.uint64(6) * there)
            depths[j] += np.uint8(np.uint64(3) * there)
            going[still] = j
            still += np.int64(there)
        active = still


@njit(cache=True, nogil=True)
def _descend(
    inmaps, exmaps, prefix_sums, jump, k, want_nodes, codes, count, nodes, depths, going, others
):  # fmt: skip
    """Walk codes[:count] down together: the greatest depth in the trie of each, and its node.

    Overwrites ``codes``, ``going`` and ``others``. Nodes on the last level are only right if
    ``want_nodes``.
    """
    levels = k // 3
    spare = np.uint64(64 - 2 * k)  # zeros after the k-mer meet inmap bits that are 0
    lean_level = levels if k == 3 * levels and not want_nodes else -1
    if jump.size > 0:
        shift = np.uint64(64 - 6 * _JUMP_LEVEL)
        for j in range(count):
            codes[j] <<= spare
            nodes[j] = jump[codes[j] >> shift]
        far = 0
        short = 0
        for j in range(count):
            there = np.int64(nodes[j] != _NOWHERE)
            going[far] = j
            others[short] = j
            far += there
            short += 1 - there
            depths[j] = np.uint8(3 * _JUMP_LEVEL * there)
        for i in range(short):
            nodes[others[i]] = 0
        _levels(exmaps, prefix_sums, 0, _JUMP_LEVEL, -1, codes, nodes, depths, others, short)
        for i in range(far):
            j = going[i]
            prefetch_far(exmaps, np.uint64(nodes[j]))
            codes[j] <<= np.uint64(6 * _JUMP_LEVEL)
        _levels(
            exmaps, prefix_sums, _JUMP_LEVEL, levels, lean_level, codes, nodes, depths, going, far
        )
    else:
        for j in range(count):
            codes[j] <<= spare
            nodes[j] = 0
            depths[j] = 0
            going[j] = j
        _levels(exmaps, prefix_sums, 0, levels, lean_level, codes, nodes, depths, going, count)
    whole = np.uint8(k if k == 3 * levels else 255)
    for j in range(count):
        if depths[j] != whole:
            prefetch_far(inmaps, np.uint64(nodes[j]))
    for j in range(count):
        if depths[j] != whole:
            inmap = inmaps[nodes[j]]
            two = np.uint32(codes[j] >> np.uint64(60))
            first = (inmap >> (np.uint32(1) + (two >> np.uint32(2)))) & np.uint32(1)
            second = (inmap >> (np.uint32(5) + two)) & np.uint32(1)
            depths[j] += np.uint8(first + second)


@njit(cache=True, nogil=True)
def _walk_windows(
    inmaps, exmaps, prefix_sums, jump, bases, offsets, k, canonical, start, stop,
    want_nodes, events, depths, nodes,
):  # fmt: skip
    """Events, depths and nodes of the windows that begin in [start, stop)."""
    codes = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    block_nodes = np.empty(BLOCK, dtype=np.uint32)
    block_depths = np.empty(BLOCK, dtype=np.uint8)
    going = np.empty(BLOCK, dtype=np.int64)
    others = np.empty(BLOCK, dtype=np.int64)
    end = min(stop + k - 1, bases.size)
    state = start_state(offsets, np.uint64(start))
    while state[0] < np.uint64(end):
        n = np.int64(roll_block(bases, offsets, k, canonical, end, state, codes, positions))
        _descend(
            inmaps, exmaps, prefix_sums, jump, k, want_nodes, codes, n, block_nodes,
            block_depths, going, others,
        )  # fmt: skip
        for j in range(n):
            mismatch = np.uint8(block_depths[j] != k)
            events[positions[j]] = MATCH + mismatch
            depths[positions[j]] = block_depths[j] + mismatch
        if want_nodes:
            for j in range(n):
                nodes[positions[j]] = block_nodes[j]


def _jump_of(tree: TreeBitmap, windows: int) -> NDArray[np.uint32]:
    """The table of the first three levels, empty unless it is worth its millisecond."""
    if windows < _JUMP_FROM or tree.k < 3 * _JUMP_LEVEL + 3:
        return _NO_NODES
    jump: NDArray[np.uint32] = _make_jump(tree.exmaps, tree.prefix_sums)
    return jump


def walk(
    tree: TreeBitmap,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    canonical: bool,
    threads: int = 1,
    want_nodes: bool = False,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint32] | None]:
    """Walk every window of a batch through a snapshot (thesis 3.3.4).

    ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Returns, at the first symbol of each
    window and 0 elsewhere, ``events`` uint8[total] (1 match, 2 mismatch), ``depths`` uint8[total]
    (k, or for a mismatch 1 + the length of the longest prefix of the (canonical) window in the
    trie) and, if ``want_nodes``, ``nodes`` uint32[total]: the node that holds the deepest state
    reached; otherwise None. Raises BatchShapeError (a ValueError) for invalid offsets.
    """
    bases, offsets = check_batch(bases, offsets)
    events = np.zeros(bases.size, dtype=np.uint8)
    depths = np.zeros(bases.size, dtype=np.uint8)
    nodes = np.zeros(bases.size, dtype=np.uint32) if want_nodes else None
    jump = _jump_of(tree, bases.size)

    def walk_range(start: int, stop: int) -> None:
        _walk_windows(
            tree.inmaps, tree.exmaps, tree.prefix_sums, jump, bases, offsets, tree.k, canonical,
            start, stop, want_nodes, events, depths, _NO_NODES if nodes is None else nodes,
        )  # fmt: skip

    run_ranges(walk_range, 0, bases.size, threads, grain=GRAIN, align=64)
    return events, depths, nodes


MAX_WORD_NODES: Final = 1 << 27
MAX_INDEX: Final = 1 << 31

_TYPE: Final = np.uint64(63)
_INDEX: Final = np.uint64(32)
_NODE: Final = np.uint64(5)


class WordOverflowError(ValueError):
    """A node or index does not fit its field of an event word."""

    def __init__(self, field: str, value: int, limit: int) -> None:
        super().__init__(f"{field} {value} does not fit an event word, it must be below {limit}")


def pack_events(
    events: NDArray[np.uint8], depths: NDArray[np.uint8], nodes: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """The event words of a chunk, one per window, in window order (thesis Fig. 11).

    ``events`` (0 no window, 1 match, 2 mismatch), ``depths`` and ``nodes`` hold one element per
    symbol of the chunk, as ``walk`` returns them. Raises WordOverflowError for a node of 2**27 or
    more or an index of 2**31 or more.
    """
    starts = np.flatnonzero(events)
    depth = depths[starts].astype(np.uint64)
    node = nodes[starts].astype(np.uint64)
    index = starts.astype(np.uint64) + depth - np.uint64(1)
    _check("node", node, MAX_WORD_NODES)
    _check("index", index, MAX_INDEX)
    kind = (events[starts] == MISMATCH).astype(np.uint64)
    return (kind << _TYPE) | (index << _INDEX) | (node << _NODE) | depth


def _check(field: str, values: NDArray[np.uint64], limit: int) -> None:
    if values.size and int(values.max()) >= limit:
        raise WordOverflowError(field, int(values.max()), limit)
