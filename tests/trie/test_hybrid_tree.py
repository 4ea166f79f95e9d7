"""What only the Hybrid Tree Bitmap promises: threads, little memory, nodes that are used again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trie import oracle_trie as oracle
from trie.hybrid_tree import HybridTreeBitmap
from trie.pointer_tree import PointerTree
from trie.tree_bitmap import snapshot


@pytest.mark.parametrize("k", [3, 8, 12, 21, 31])
@pytest.mark.parametrize("in_order", [True, False])
def test_threads_do_not_change_it(k: int, in_order: bool) -> None:
    codes = np.random.default_rng(k).integers(0, 4**k, 50_000, dtype=np.uint64)
    if in_order:
        codes.sort()
    one, three = HybridTreeBitmap(k), HybridTreeBitmap(k)
    np.testing.assert_array_equal(one.insert(codes, threads=1), three.insert(codes, threads=3))
    oracle.assert_same(one.to_tree_bitmap(threads=1), three.to_tree_bitmap(threads=3))
    oracle.assert_same(one.to_tree_bitmap(), snapshot(codes, k))


@pytest.mark.parametrize("length", range(1, 31))
def test_two_kmers_that_share_a_prefix(length: int) -> None:
    """The second k-mer unfolds the first one's tail down to where they part, and no further."""
    k = 31
    first = int(np.random.default_rng(length).integers(0, 4**k))
    second = first ^ (1 << (2 * (k - length) - 1))
    tree = HybridTreeBitmap(k)
    assert tree.insert([first, second, first]).tolist() == [True, True, False]
    oracle.assert_is(tree.to_tree_bitmap(), oracle.arrays_of([first, second], k))


def test_far_smaller_than_the_pointer_tree() -> None:
    codes = np.random.default_rng(5).integers(0, 4**31, 50_000, dtype=np.uint64)
    hybrid, pointer = HybridTreeBitmap(31), PointerTree(31)
    hybrid.insert(codes)
    pointer.insert(codes)
    assert 10 * hybrid.memory_bytes() < pointer.memory_bytes()


def test_nodes_that_moved_leave_room_for_others() -> None:
    """One k-mer more for every node, again and again: each size's nodes serve the next ones."""
    tree = HybridTreeBitmap(9)
    rng = np.random.default_rng(6)
    everything = rng.permutation(4**9).astype(np.uint64)
    for batch in np.array_split(everything, 40):
        tree.insert(batch)
    # a full tree needs 66 words for each of 64 nodes on level 1, and two for each on level 2
    needed = 8 * (64 * 66 + 4096 * 2)
    assert tree.memory_bytes() < 4 * needed
