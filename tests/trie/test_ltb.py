"""The Levenshtein Tree Bitmap on the CPU against a plain set of states."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import ltb as ltb_oracle
from trie import ltb
from trie.ltb import SYMBOLS, approximate, overlap_of, run_sliced
from trie.snapshots.tree_bitmap import walk
from trie.trees.hybrid_tree import snapshot
from trie.windows import BatchShapeError

CASES = ltb_oracle.edges() + ltb_oracle.edges(1, alphabet="AC", gaps=0.2) + ltb_oracle.awkward()


def found(case, threads=1):
    tree = snapshot(case.codes, case.k)
    return approximate(tree, case.bases, case.offsets, case.distance, threads=threads)


def same(got, wanted, what):
    for side, one, other in zip(("matches", "mismatches"), got, wanted, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"{what}: {side}")


def test_the_bitmaps_equal_the_set_of_states():
    """There are matches at every distance, and mismatches at many depths."""
    matches, mismatches = np.uint32(0), np.uint32(0)
    for case in CASES:
        wanted = case.expected()
        same(found(case), wanted, str(case))
        matches |= np.bitwise_or.reduce(wanted[0], initial=np.uint32(0))
        mismatches |= np.bitwise_or.reduce(wanted[1], initial=np.uint32(0))
    assert matches == 0b11111
    assert np.bitwise_count(mismatches) > 20


@pytest.mark.parametrize("threads", [1, 3])
def test_no_call_of_a_kernel_takes_long_with_a_large_tree(monkeypatch, threads):
    """A block may visit all trie-nodes, and the main thread notices an interrupt between calls."""
    codes, bases, offsets = ltb_oracle.stream(12, 20_000, 9_000, 3, 11)
    tree = snapshot(codes, 12)
    wanted = approximate(tree, bases, offsets, 2)
    sizes = []

    def noted(*given):
        sizes.append(given[-3] - given[-4])
        run_sliced(*given)

    monkeypatch.setattr(ltb, "run_sliced", noted)
    monkeypatch.setattr(ltb, "_MOST_NODES", 2 * tree.node_count)
    same(approximate(tree, bases, offsets, 2, threads=threads), wanted, "short")
    assert max(sizes) <= 3 * (SYMBOLS - overlap_of(12, 2))
    assert sum(sizes) == bases.size


@pytest.mark.parametrize(
    ("k", "distance", "kmers", "total", "reads"),
    [(6, 2, 3000, 20_000, 300), (12, 1, 20_000, 9_000, 3), (24, 3, 96, 20_011, 1),
     (31, 4, 50, 5_000, 60), (9, 4, 500, 3_000, 5)],
)  # fmt: skip
def test_threads_and_chunks_agree(k, distance, kmers, total, reads):
    codes, bases, offsets = ltb_oracle.stream(k, kmers, total, reads, 11)
    tree = snapshot(codes, k)
    wanted = approximate(tree, bases, offsets, distance)
    assert np.count_nonzero(wanted[0]) > total // (10 * k)
    same(approximate(tree, bases, offsets, distance, threads=3), wanted, "threads")
    overlap = overlap_of(k, distance)
    for chunk in (1, 63, 1000):
        parts = []
        for start in range(0, min(total, 60 * chunk), chunk):
            warm, stop = max(start - overlap, 0), min(start + chunk, total)
            cut = np.unique(np.clip(offsets, warm, stop)) - warm
            two = approximate(tree, bases[warm:stop], cut, distance)
            parts.append([one[start - warm :] for one in two])
        joined = [np.concatenate(side) for side in zip(*parts, strict=True)]
        same(joined, [side[: joined[0].size] for side in wanted], f"chunk {chunk}")


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7, 12, 31])
def test_distance_0_is_exact_matching(k):
    codes, bases, offsets = ltb_oracle.stream(k, 40, 3000, 40, k)
    tree = snapshot(codes, k)
    events, depths, _ = walk(tree, bases, offsets, canonical=False)
    ends = np.flatnonzero(events == 1) + k - 1
    matches, mismatches = approximate(tree, bases, offsets, 0)
    np.testing.assert_array_equal(np.flatnonzero(matches), ends)
    assert set(matches[ends].tolist()) <= {1}
    wanted = np.zeros(bases.size, dtype=np.uint32)
    for start in np.flatnonzero(events == 2):
        wanted[start + depths[start] - 1] |= 1 << depths[start]
    # beside the windows there are those that a gap code or the end of a read cuts short
    assert not np.any(wanted & ~mismatches)


@pytest.mark.whole
def test_dense_states_stay_correct():
    """Poly-A against its neighbours: every node of a long chain is active at every level."""
    k, distance = 31, 4
    near = {"A" * i + x + "A" * (k - 1 - i) for x in "ACGT" for i in range(k)}
    reads = ("A" * 70, "A" * 80 + "N" * 9 + "A" * 80)
    case = ltb_oracle.Case("dense", k, distance, tuple(near), reads)
    wanted = case.expected()
    same(found(case), wanted, "dense")
    assert wanted[0][-1] == 0b11111
    assert wanted[0][k - distance - 1] == 0b10000


def test_both_strands_are_a_dictionary_of_both():
    case = ltb_oracle.make(5, 2, 3, kmers=20)
    kmers = ltb_oracle.trie_of(case.kmers, "both")
    both = tuple(kmer for kmer in kmers if len(kmer) == 5)
    wanted = ltb_oracle.bitmaps(case.kmers, 5, 2, case.reads, "both")
    twice = ltb_oracle.Case("both", 5, 2, both, case.reads)
    same(found(twice), [np.array(side, dtype=np.uint32) for side in wanted], "both")


@pytest.mark.parametrize(("k", "distance"), [(5, -1), (5, 5), (31, 5), (1, 1), (3, 3)])
def test_distances_out_of_range_are_refused(k, distance):
    tree = snapshot(np.zeros(0, dtype=np.uint64), k)
    with pytest.raises(ValueError, match=f"0..{min(4, k - 1)} for k = {k}"):
        approximate(tree, np.zeros(3, np.uint8), np.array([0, 3]), distance)


def test_offsets_that_do_not_fit_are_refused():
    tree = snapshot(np.zeros(1, dtype=np.uint64), 4)
    with pytest.raises(BatchShapeError):
        approximate(tree, np.zeros(3, np.uint8), np.array([0, 4]), 1)
