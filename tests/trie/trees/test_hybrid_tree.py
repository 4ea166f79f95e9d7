"""Growing trees: the hybrid and the pointer tree equal the definition."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.pointer_tree import PointerTree
from tests.reference import tree_bitmap as oracle
from tests.trie.strategies import EDGE_K, batches
from trie.trees.hybrid_tree import HybridTreeBitmap, snapshot


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


TREES = pytest.mark.parametrize("make", [PointerTree, HybridTreeBitmap])
Tree = PointerTree | HybridTreeBitmap


@TREES
@settings(max_examples=150, deadline=None)
@given(case=batches())
def test_any_batches_give_the_definition(
    make: type[Tree], case: tuple[int, list[list[int]]]
) -> None:
    k, parts = case
    tree = make(k)
    inserted: list[int] = []
    for part in parts:
        tree.insert(np.array(part, dtype=np.uint64))
        inserted += part
        assert len(tree) == len(set(inserted))
    oracle.assert_is(tree.to_tree_bitmap(), oracle.arrays_of(inserted, k))


@TREES
@pytest.mark.parametrize("k", EDGE_K)
def test_snapshots_while_growing(make: type[Tree], k: int) -> None:
    """Batches of several sizes and orders, snapshots between them, half of them known."""
    rng = np.random.default_rng(k)
    codes = rng.integers(0, 4**k, 40_000, dtype=np.uint64)
    codes[1::4] = codes[::4] ^ rng.integers(0, min(4**k, 4096), 10_000, dtype=np.uint64)
    codes[3::4] = codes[::4]
    tree = make(k)
    oracle.assert_same(tree.to_tree_bitmap(), snapshot([], k))
    for start, stop in [(0, 1), (1, 100), (0, 0), (50, 5_000), (0, 30_000), (10_000, 40_000)]:
        batch = codes[start:stop]
        known = tree.to_tree_bitmap().codes()
        tree.insert(np.sort(batch) if start == 10_000 else batch)
        done = np.union1d(known, batch)
        assert len(tree) == done.size
        oracle.assert_same(tree.to_tree_bitmap(), snapshot(done, k))


@TREES
@pytest.mark.parametrize("k", [1, 2, 3, 4, 6, 9])
def test_all_kmers_in_random_order(make: type[Tree], k: int) -> None:
    codes = np.random.default_rng(k).permutation(4**k).astype(np.uint64)
    tree = make(k)
    for _ in range(2):
        tree.insert(codes)
        assert len(tree) == 4**k
    oracle.assert_same(tree.to_tree_bitmap(), snapshot(codes, k))


@TREES
@pytest.mark.parametrize("k", [1, 3, 31])
def test_refuses_codes_out_of_range_and_adds_none(make: type[Tree], k: int) -> None:
    tree = make(k)
    with pytest.raises(ValueError, match="is not below"):
        tree.insert([0, 4**k])
    assert len(tree) == 0
    oracle.assert_same(tree.to_tree_bitmap(), snapshot([], k))


@TREES
@pytest.mark.parametrize("k", [0, 32])
def test_refuses_k(make: type[Tree], k: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.31"):
        make(k)


@TREES
def test_memory_grows_with_the_tree(make: type[Tree]) -> None:
    tree = make(21)
    codes = np.random.default_rng(1).integers(0, 4**21, 100_000, dtype=np.uint64)
    before = tree.memory_bytes()
    tree.insert(codes)
    assert tree.memory_bytes() > before
    grown = tree.memory_bytes()
    tree.insert(codes)
    assert tree.memory_bytes() == grown
