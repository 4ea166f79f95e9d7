"""Tree bitmaps: made by the definition, and walked."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

import trie
import trie.snapshots.tree_bitmap as walk_module
from tests.reference import tree_bitmap as oracle
from tests.reference.index import batch, code_of, windows
from tests.trie.strategies import EDGE_K, kmers
from trie.snapshots.tree_bitmap import TooManyNodesError, TreeBitmap, allocate, walk
from trie.trees.hybrid_tree import snapshot


def random_codes(k: int, size: int, seed: int = 3) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 4**k, size, dtype=np.uint64)


@settings(max_examples=150, deadline=None)
@given(kmers())
def test_equals_the_definition(case: tuple[int, list[int]]) -> None:
    k, codes = case
    tree = snapshot(np.array(codes, dtype=np.uint64), k)
    oracle.assert_is(tree, oracle.arrays_of(codes, k))
    np.testing.assert_array_equal(tree.codes(), np.array(sorted(set(codes)), dtype=np.uint64))


def test_by_hand() -> None:
    # ACG, ACT, TTT at k = 3: one root and three nodes below it
    tree = snapshot([63, 0b000110, 0b000111, 63], 3)
    assert tree.inmaps.tolist() == [1 | 1 << 1 | 1 << 4 | 1 << (5 + 1) | 1 << (5 + 15), 1, 1, 1]
    assert tree.exmaps.tolist() == [1 << 6 | 1 << 7 | 1 << 63, 0, 0, 0]
    assert tree.prefix_sums.tolist() == [1, 4, 4, 4]
    assert tree.level_offsets.tolist() == [0, 1, 4]


def test_empty_dictionary_has_a_root() -> None:
    for k in range(1, 32):
        tree = snapshot([], k)
        oracle.assert_is(tree, oracle.arrays_of([], k))
        assert tree.node_count == 1
        assert tree.codes().size == 0


def test_all_kmers() -> None:
    for k in range(1, 7):
        codes = np.arange(4**k, dtype=np.uint64)
        tree = snapshot(codes[::-1], k)
        oracle.assert_is(tree, oracle.arrays_of(range(4**k), k))
        np.testing.assert_array_equal(tree.codes(), codes)


def test_one_kmer() -> None:
    for k in EDGE_K:
        for value in (0, 4**k - 1):
            oracle.assert_is(snapshot([value], k), oracle.arrays_of([value], k))


@pytest.mark.parametrize("k", [3, 4, 8, 9, 21, 31])
def test_threads_do_not_change_it(k: int) -> None:
    codes = random_codes(k, 60_000)
    codes[30_000:] = codes[:30_000] ^ np.uint64(1)
    one = snapshot(codes, k, threads=1)
    oracle.assert_same(snapshot(codes, k, threads=3), one)
    np.testing.assert_array_equal(one.codes(threads=3), np.unique(codes))


def test_all_in_one_shard() -> None:
    codes = random_codes(15, 40_000)
    distinct = np.unique(codes)
    tree = snapshot(codes, 21, threads=2)
    np.testing.assert_array_equal(tree.codes(threads=2), distinct)
    oracle.assert_same(tree, snapshot(distinct, 21, threads=1))


@pytest.mark.parametrize("k", [-1, 0, 32])
def test_refuses_k(k: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.31"):
        snapshot([], k)


@pytest.mark.parametrize(("k", "size"), [(1, 20_000), (2, 1), (3, 20_000), (15, 1), (31, 20_000)])
def test_refuses_codes_out_of_range(k: int, size: int) -> None:
    codes = np.zeros(size, dtype=np.uint64)
    codes[size // 2] = 4**k
    with pytest.raises(ValueError, match=f"{4**k} is not below"):
        snapshot(codes, k)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([1.0], "float64"),
        ([True], "bool"),
        (["ACG"], "must be uint64"),
        ([[1, 2]], "one-dimensional"),
        ([3, -7], "-7 is negative"),
    ],
)
def test_refuses_what_is_no_code(codes: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snapshot(codes, 5)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16, ">u8"])
def test_takes_any_integer_type(dtype: str) -> None:
    oracle.assert_same(snapshot(np.array([9, 3, 9], dtype=dtype), 4), snapshot([3, 9], 4))


def test_too_many_nodes() -> None:
    counts = np.array([[0, 2**31], [0, 2**31 - 1]])
    with pytest.raises(TooManyNodesError, match="4294967296 nodes"):
        allocate(3, counts, np.zeros(0, dtype=np.uint64))


def test_the_package_offers_it_without_loading_numba() -> None:
    assert trie.snapshot is snapshot
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trie.nothing  # noqa: B018
    program = "import sys, trie; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


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
