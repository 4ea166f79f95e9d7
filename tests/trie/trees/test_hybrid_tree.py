"""What only the Hybrid Tree Bitmap promises: threads, little memory, nodes that are used again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.pointer_tree import PointerTree
from tests.reference import tree_bitmap as oracle
from trie.snapshots.tree_bitmap import snapshot
from trie.trees.hybrid_tree import HybridTreeBitmap


@pytest.mark.parametrize("k", [3, 12, 31])
@pytest.mark.parametrize("in_order", [True, False])
def test_threads_do_not_change_it(k: int, in_order: bool) -> None:
    codes = np.random.default_rng(k).integers(0, 4**k, 50_000, dtype=np.uint64)
    if in_order:
        codes.sort()
    one, three = HybridTreeBitmap(k), HybridTreeBitmap(k)
    one.insert(codes, threads=1)
    three.insert(codes, threads=3)
    oracle.assert_same(one.to_tree_bitmap(threads=1), three.to_tree_bitmap(threads=3))
    oracle.assert_same(one.to_tree_bitmap(), snapshot(codes, k))


def test_two_kmers_that_share_a_prefix() -> None:
    """The second k-mer unfolds the first one's tail down to where they part, and no further."""
    k = 31
    for length in range(1, k):
        first = int(np.random.default_rng(length).integers(0, 4**k))
        second = first ^ (1 << (2 * (k - length) - 1))
        tree = HybridTreeBitmap(k)
        tree.insert([first, second, first])
        assert len(tree) == 2
        oracle.assert_is(tree.to_tree_bitmap(), oracle.arrays_of([first, second], k))


def test_far_smaller_than_the_pointer_tree() -> None:
    codes = np.random.default_rng(5).integers(0, 4**31, 50_000, dtype=np.uint64)
    hybrid, pointer = HybridTreeBitmap(31), PointerTree(31)
    hybrid.insert(codes)
    pointer.insert(codes)
    assert 10 * hybrid.memory_bytes() < pointer.memory_bytes()


@pytest.mark.parametrize("k", [9, 10, 21])
def test_outgrown_nodes_take_no_memory(k: int) -> None:
    """Random order leaves nodes of every size behind; a pool that moves does not take them."""
    rng = np.random.default_rng(k)
    ordered = np.unique(rng.integers(0, 4**k, 200_000, dtype=np.uint64))
    at_once, by_and_by = HybridTreeBitmap(k), HybridTreeBitmap(k)
    at_once.insert(ordered)
    for batch in np.array_split(rng.permutation(ordered), 30):
        by_and_by.insert(batch)
    assert by_and_by.memory_bytes() < 1.6 * at_once.memory_bytes()
    oracle.assert_same(by_and_by.to_tree_bitmap(), at_once.to_tree_bitmap())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    """A copy would write into the pools of the original."""
    with pytest.raises(TypeError, match="cannot be copied"):
        duplicate(HybridTreeBitmap(5))
