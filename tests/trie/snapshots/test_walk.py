"""The walk over a snapshot against prefixes of strings, and nodes counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import trie.snapshots.tree_bitmap as walk_module
from tests.reference.index import batch, code_of, windows
from trie.snapshots.tree_bitmap import TreeBitmap, snapshot, walk

KS = (1, 2, 3, 4, 6, 11, 13, 14, 16, 21, 30, 31)


class Prefixes:
    """All prefixes of the k-mers, and the number of the node of each whole level's."""

    def __init__(self, kmers: set[str], k: int) -> None:
        self.k = k
        self.prefixes = {kmer[:depth] for kmer in kmers for depth in range(k + 1)} | {""}
        self.numbers: dict[str, int] = {}
        for depth in range(0, k + 1, 3):
            for prefix in sorted(p for p in self.prefixes if len(p) == depth):
                self.numbers[prefix] = len(self.numbers)

    def walk(self, kmer: str) -> tuple[int, int, int]:
        """Event, depth and node of one window."""
        length = max(d for d in range(self.k + 1) if kmer[:d] in self.prefixes)
        node = self.numbers[kmer[: length // 3 * 3]]
        return (1, self.k, node) if length == self.k else (2, length + 1, node)


def dictionary(k: int, bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> set[str]:
    return {kmer for _, kmer in windows(bases, offsets, k, canonical=True)}


def tree_of(kmers: set[str], k: int) -> TreeBitmap:
    return snapshot(np.array(sorted(code_of(kmer) for kmer in kmers), dtype=np.uint64), k)


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("k", KS)
def test_every_window_and_code_equals_the_prefixes(
    k: int, jump: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk_module, "_JUMP_FROM", 0 if jump else 1 << 40)
    stored, cuts = batch(k, 900, 9)
    kmers = dictionary(k, stored, cuts)
    if k <= 3:
        kmers = set(sorted(kmers)[::3])
    tree = tree_of(kmers, k)
    prefixes = Prefixes(kmers, k)
    bases, offsets = batch(k + 50, 1200, 12)
    bases[600:900] = stored[200:500]
    for canonical in (True, False):
        expected = np.zeros((3, bases.size), dtype=np.int64)
        for first, kmer in windows(bases, offsets, k, canonical=canonical):
            expected[:, first] = prefixes.walk(kmer)
        events, depths, nodes = walk(tree, bases, offsets, canonical=canonical, want_nodes=True)
        assert nodes is not None
        np.testing.assert_array_equal(events, expected[0])
        np.testing.assert_array_equal(depths, expected[1])
        np.testing.assert_array_equal(nodes, expected[2])
        lean = walk(tree, bases, offsets, canonical=canonical)
        np.testing.assert_array_equal(lean[0], events)
        np.testing.assert_array_equal(lean[1], depths)
        assert lean[2] is None


@pytest.mark.parametrize("k", [1, 3, 12, 31])
def test_an_empty_dictionary_mismatches_at_depth_one(k: int) -> None:
    tree = tree_of(set(), k)
    bases = np.zeros(40, dtype=np.uint8)
    events, depths, nodes = walk(tree, bases, np.array([0, 40]), canonical=True, want_nodes=True)
    assert nodes is not None
    count = 41 - k
    assert events.tolist() == [2] * count + [0] * (k - 1)
    assert depths.tolist() == [1] * count + [0] * (k - 1)
    assert not nodes.any()


def test_two_threads_equal_one() -> None:
    stored, cuts = batch(1, 3000, 4)
    tree = tree_of(dictionary(21, stored, cuts), 21)
    bases, offsets = batch(2, 80_000, 100)
    bases[30_000:33_000] = stored
    one = walk(tree, bases, offsets, canonical=True, want_nodes=True)
    two = walk(tree, bases, offsets, canonical=True, want_nodes=True, threads=2)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_windows() -> None:
    tree = tree_of({"ACGT"}, 4)
    for bases, offsets in (([], [0]), ([], [0, 0]), ([0, 1, 2], [0, 3]), ([4] * 9, [0, 9])):
        events, depths, _ = walk(
            tree, np.array(bases, dtype=np.uint8), np.array(offsets), canonical=True
        )
        assert not events.any()
        assert not depths.any()
