"""Depths from ascending codes equal those of the walk through the Tree Bitmap."""

from __future__ import annotations

import numpy as np
import pytest

from trie.index.kmer_index import KmerIndex
from trie.prefixes import PrefixDepths
from trie.snapshots.tree_bitmap import snapshot, walk
from trie.windows import NO_SET, window_codes


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize(
    ("k", "size"),
    [
        (1, 0),
        (1, 2),
        (2, 65),
        (3, 3000),
        (9, 1),
        (15, 3000),
        (16, 65),
        (30, 3000),
        (31, 0),
        (31, 2),
    ],
)
def test_equals_the_walk(k: int, size: int, canonical: bool) -> None:
    rng = np.random.default_rng(k * 100 + size)
    codes = rng.integers(0, 4**k, size, dtype=np.uint64)
    # half of them share all but their last bases, so that the upper bits do not tell them apart
    codes[::2] &= np.uint64(4 ** min(k, 5) - 1)
    codes = np.unique(codes)
    bases = rng.integers(0, 4, 70_000, dtype=np.uint8)
    bases[rng.integers(0, bases.size, 200)] = 4
    bases[1000:1400] = 0
    bases[5000:5400] = 3
    offsets = np.array([0, 0, 3, 40, 1200, 1200, 69_990, bases.size])
    index = KmerIndex(k, expected=codes.size)
    index.add(codes)
    events = index.match(bases, offsets, canonical=canonical)
    _, want, _ = walk(snapshot(codes, k), bases, offsets, canonical=canonical)
    for threads in (1, 3):
        depths = np.zeros(bases.size, dtype=np.uint8)
        PrefixDepths(codes, k).measure(
            bases, offsets, events, depths, canonical=canonical, threads=threads
        )
        np.testing.assert_array_equal(depths, want)


@pytest.mark.parametrize("k", [1, 3, 15, 21, 31])
@pytest.mark.parametrize("canonical", [False, True])
def test_ranks_are_places_among_the_codes(k: int, canonical: bool) -> None:
    rng = np.random.default_rng(k)
    bases = rng.integers(0, 4, 40_000, dtype=np.uint8)
    bases[rng.integers(0, bases.size, 100)] = 4
    offsets = np.array([0, 0, 3, 40, 1200, 1200, bases.size])
    windows, starts = window_codes(bases, offsets, k, canonical=canonical)
    for codes in (np.unique(windows[::3]), np.zeros(0, np.uint64)):
        places = {code: place for place, code in enumerate(codes.tolist())}
        want = np.full(bases.size, NO_SET)
        want[starts] = [places.get(code, NO_SET) for code in windows.tolist()]
        for threads in (1, 3):
            ranks = PrefixDepths(codes, k).ranks(
                bases, offsets, canonical=canonical, threads=threads
            )
            np.testing.assert_array_equal(ranks, want)
