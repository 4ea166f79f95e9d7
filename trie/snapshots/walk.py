"""The walk of windows through a Tree Bitmap snapshot (thesis 3.3.4): match, depth, trie-node.

A trie-node covers three symbols, six bits g = 16 b0 + 4 b1 + b2 of the k-mer's code:

    exmap bit g set      descend to prefix_sum + popcount(exmap & (2**g - 1))
    exmap bit g clear    the walk ends, up to two symbols deeper: inmap bits 1 + b0, 5 + 4 b0 + b1
    last level k // 3    the same two inmap bits (bits deeper than k are 0)

The windows of a block descend together, one level per pass; each pass prefetches the cache lines of
the next one. A level costs about 12 operations and two cache lines (exmap and prefix sum) for each
window that continues; the end costs one line (inmap) unless k is a multiple of 3. For a large batch
the walk begins at level 3 with one look-up in a table of all 4**9 prefixes (1 MB, L2), which saves
three levels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, prefetch_far
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import BLOCK, GRAIN, MATCH, check_batch, roll_block, start_state

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
    left = np.uint64(64 - 2 * k)  # zeros after the k-mer meet inmap bits that are 0
    lean_level = levels if k == 3 * levels and not want_nodes else -1
    if jump.size > 0:
        shift = np.uint64(64 - 6 * _JUMP_LEVEL)
        for j in range(count):
            codes[j] <<= left
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
            codes[j] <<= left
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
