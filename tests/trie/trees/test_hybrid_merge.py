"""Ascending k-mers merged into the Hybrid Tree Bitmap in linear passes, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.reference import tree_bitmap as oracle
from tests.trie.strategies import batches
from trie.trees import hybrid_tree
from trie.trees.hybrid_tree import HybridTreeBitmap, snapshot


@pytest.fixture(autouse=True)
def passes_for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few k-mers come, their shard is written anew."""
    monkeypatch.setattr(hybrid_tree, "MERGED_FROM", 0)
    monkeypatch.setattr(hybrid_tree, "MERGED_SHARE", 1 << 40)


@settings(max_examples=200, deadline=None)
@given(case=batches())
def test_any_runs_give_the_definition(case: tuple[int, list[list[int]]]) -> None:
    k, parts = case
    tree, at_once = HybridTreeBitmap(k), HybridTreeBitmap(k)
    for number, part in enumerate(parts):
        tree.merge([np.sort(np.array(part, dtype=np.uint64))])
        known = {code for part in parts[: number + 1] for code in part}
        assert len(tree) == len(known)
    at_once.merge([np.sort(np.array(part, dtype=np.uint64)) for part in parts], threads=2)
    for made in (tree, at_once):
        oracle.assert_is(made.to_tree_bitmap(), oracle.arrays_of(known if parts else [], k))


@pytest.mark.parametrize("k", [3, 4, 5, 6, 7, 11, 12, 21, 30, 31])
def test_merged_and_inserted_in_turn(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write the same nodes: what one leaves behind the other goes on with."""
    monkeypatch.setattr(hybrid_tree, "SMALL", 0)
    rng = np.random.default_rng(k)
    codes = rng.integers(0, 4**k, 12_000, dtype=np.uint64)
    codes[1::3] = codes[::3] ^ rng.integers(0, min(4**k, 64), 4_000, dtype=np.uint64)
    tree = HybridTreeBitmap(k)
    known: set[int] = set()
    for number, part in enumerate(np.array_split(np.resize(codes, 18_000), 9)):
        ascending = number % 3 != 1
        part = np.sort(part) if ascending else part
        known.update(part.tolist())
        if number % 3 == 2:
            tree.merge([part[::2], part[1::2]], threads=1 + number % 2)
        else:
            tree.insert(part, threads=1 + number % 2)
        assert len(tree) == len(known)
        oracle.assert_same(
            tree.to_tree_bitmap(), snapshot(np.array(list(known), dtype=np.uint64), k)
        )


@pytest.mark.parametrize("k", [12, 21])
def test_runs_longer_than_a_block(k: int) -> None:
    rng = np.random.default_rng(k)
    codes = rng.integers(0, 4**k, 300_000, dtype=np.uint64)
    tree = HybridTreeBitmap(k)
    for runs in np.array_split(codes, 9)[::3], np.array_split(codes, 9):
        tree.merge([np.sort(run) for run in runs])
    tree.insert(codes[:1000])
    oracle.assert_same(tree.to_tree_bitmap(), snapshot(codes, k))


def test_a_pool_that_proves_too_small_is_written_again() -> None:
    """Pairs of k-mers that part at the very end need chains of nodes, ten times the usual."""
    rng = np.random.default_rng(5)
    firsts = np.unique(rng.integers(0, 4**28, 40_000, dtype=np.uint64)) << np.uint64(6)
    codes = np.sort(np.concatenate((firsts, firsts | np.uint64(63))))
    tree = HybridTreeBitmap(31)
    tree.merge([codes])
    assert tree.memory_bytes() > 8 * 1.5 * hybrid_tree.FIRST_WORDS_EACH * codes.size
    oracle.assert_same(tree.to_tree_bitmap(), snapshot(codes, 31))


def test_memory_that_was_not_needed_is_given_back() -> None:
    codes = np.unique(np.random.default_rng(6).integers(0, 4**21, 50_000, dtype=np.uint64))
    tree = HybridTreeBitmap(21)
    tree.merge([codes])
    assert tree.memory_bytes() < 40 * codes.size < 64 * 8 * hybrid_tree.SLACK


@pytest.mark.parametrize("k", [2, 3, 21])
def test_refuses_what_does_not_ascend_or_is_out_of_range(k: int) -> None:
    tree = HybridTreeBitmap(k)
    with pytest.raises(ValueError, match="is not below"):
        tree.merge([[1, 2], [0, 4**k]])
    with pytest.raises(ValueError, match="do not ascend"):
        tree.merge([[1, 2], [3, 0]])
    assert len(tree) == 0
    oracle.assert_same(tree.to_tree_bitmap(), snapshot([], k))


@pytest.mark.parametrize(
    "sizes", [(5,), (3, 3, 3, 3, 3), (0, 7, 1, 7, 0), (100, 1, 50, 50), (9,) * 13]
)
def test_runs_joined_two_by_two(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    runs = [np.sort(rng.integers(0, 40, size, dtype=np.uint64)) for size in sizes]
    found = hybrid_tree._joined(runs)
    np.testing.assert_array_equal(np.unique(found), np.unique(np.concatenate(runs)))
    assert np.all(found[1:] >= found[:-1])
