"""The k-mer index against a dict of strings, one window at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.index import Oracle, batch, code_of, windows
from trie.index.kmer_index import KmerBitset, KmerIndex, KmerTable
from trie.windows import MATCH, MISMATCH, NO_SET, BatchShapeError

KS = (1, 2, 3, 4, 11, 12, 13, 15, 16, 21, 30, 31)


def grown(index, bases, offsets, canonical, seed_end, **options):
    """The events of windows that are added in turn, but for seeds; new k-mers and their windows."""
    codes, positions = index.grow(bases, offsets, canonical=canonical, **options)
    events = index.match(bases, offsets, canonical=canonical)
    assert not (events == MISMATCH).any()
    events[positions[positions > seed_end - index.k]] = MISMATCH
    return events, codes, positions


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("k", KS)
def test_grow_then_match_equal_the_oracle(k: int, canonical: bool) -> None:
    index = KmerIndex(k)
    oracle = Oracle(k, canonical=canonical)
    for seed, seed_end in ((k, 300), (k + 100, 0), (k, 0)):
        bases, offsets = batch(seed, 1500, 12)
        events, codes, positions = grown(index, bases, offsets, canonical, seed_end)
        expected, new_codes, new_positions = oracle.grow(bases, offsets, seed_end)
        assert events.tolist() == expected.tolist()
        assert codes.tolist() == new_codes
        assert positions.tolist() == new_positions
    assert index.codes().tolist() == oracle.sorted_codes()
    assert len(index) == len(oracle.kmers)
    for seed in (k, 7):
        bases, offsets = batch(seed, 1500, 5)
        matched = index.match(bases, offsets, canonical=canonical)
        assert matched.tolist() == oracle.match(bases, offsets).tolist()


@pytest.mark.whole
@pytest.mark.parametrize(("k", "with_values"), [(3, True), (10, False), (13, False), (21, True)])
@pytest.mark.parametrize("canonical", [True, False])
def test_threads_do_not_change_anything(k: int, with_values: bool, canonical: bool) -> None:
    """Two parts, doublings, slabs: all as one thread does it, and as the oracle."""
    bases, offsets = batch(k, 300_000, 900)
    one = KmerIndex(k, with_values=with_values)
    two = KmerIndex(k, with_values=with_values)
    first = grown(one, bases, offsets, canonical, 5000)
    second = grown(two, bases, offsets, canonical, 5000, threads=2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.codes(), two.codes())
    other, cuts = batch(k + 1, 150_000, 40)
    np.testing.assert_array_equal(
        one.match(other, cuts, canonical=canonical),
        two.match(other, cuts, canonical=canonical, threads=2),
    )
    if canonical:
        expected, codes, positions = Oracle(k, canonical=True).grow(bases, offsets, 5000)
        np.testing.assert_array_equal(second[0], expected)
        assert second[1].tolist() == codes
        assert second[2].tolist() == positions


@pytest.mark.parametrize("k", [5, 21])
@pytest.mark.parametrize("threads", [1, 2])
def test_known_windows_are_left_out(k: int, threads: int) -> None:
    """In parts of a batch too: as if another index had their k-mers."""
    bases, offsets = batch(k, 150_000, 300)
    events = KmerIndex(k).match(bases, offsets, canonical=True)
    events[(events > 0) & (np.random.default_rng(k).random(events.size) < 0.5)] = MATCH
    expected: dict[str, int] = {}
    for first, kmer in windows(bases, offsets, k, canonical=True):
        if events[first] == MISMATCH:
            expected.setdefault(kmer, first)
    index = KmerIndex(k)
    cut = 70_001
    parts = [
        index.grow(
            bases, offsets, canonical=True, known=events, threads=threads, start=start, stop=stop
        )
        for start, stop in ((0, cut), (cut - k + 1, bases.size))
    ]
    codes, positions = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    assert codes.tolist() == [code_of(kmer) for kmer in expected]
    assert positions.tolist() == [*expected.values()]
    found = index.match(bases, offsets, canonical=True, known=events.copy(), threads=threads)
    assert found.tolist() == (events > 0).tolist()


@given(
    k=st.sampled_from(KS),
    reads=st.lists(st.lists(st.integers(0, 4), max_size=40), max_size=8),
    repeated=st.lists(st.integers(0, 7), max_size=6),
    canonical=st.booleans(),
    seed_end=st.integers(0, 60),
    chunks=st.integers(1, 4),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_reads_in_any_batches(
    k: int, reads: list[list[int]], repeated: list[int], canonical: bool, seed_end: int, chunks: int
) -> None:
    reads = reads + [reads[i] for i in repeated if i < len(reads)]
    index = KmerIndex(k)
    oracle = Oracle(k, canonical=canonical)
    for i in range(chunks):
        part = reads[i::chunks]
        bases = np.array([base for read in part for base in read], dtype=np.uint8)
        offsets = np.cumsum([0] + [len(read) for read in part]).astype(np.int64)
        seed = seed_end if i == 0 else 0
        events, codes, positions = grown(index, bases, offsets, canonical, seed)
        expected, new_codes, new_positions = oracle.grow(bases, offsets, seed)
        assert events.tolist() == expected.tolist()
        assert codes.tolist() == new_codes
        assert positions.tolist() == new_positions
        again = index.match(bases, offsets, canonical=canonical)
        assert again.tolist() == oracle.match(bases, offsets).tolist()


def test_lengths_around_block_edges() -> None:
    for length in (0, 1, 20, 21, 127, 128, 129, 147, 148, 149, 255, 256, 257, 385):
        rng = np.random.default_rng(length)
        bases = rng.integers(0, 4, length).astype(np.uint8)
        offsets = np.array([0, length])
        index = KmerIndex(21, with_values=True)
        oracle = Oracle(21, canonical=True)
        half = np.array([0, length // 2])
        index.grow(bases[: length // 2], half, canonical=True)
        oracle.grow(bases[: length // 2], half)
        values = np.zeros(length, dtype=np.uint32)
        events = index.match(bases, offsets, canonical=True, values=values)
        assert events.tolist() == oracle.match(bases, offsets).tolist()
        assert (values == NO_SET).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_values_follow_their_kmers_through_doublings(threads: int) -> None:
    bases, offsets = batch(5, 80_000, 30, gaps=0.001)
    index = KmerIndex(16, with_values=True)
    expected: dict[int, int] = {}
    codes = [code_of(kmer) for _, kmer in windows(bases, offsets, 16, canonical=True)]
    given_values = np.arange(len(codes), dtype=np.uint32)
    new = index.add(np.array(codes, dtype=np.uint64), given_values, threads=threads)
    for number, code in enumerate(codes):
        assert new[number] == (code not in expected)
        expected.setdefault(code, number)
    out = np.zeros(bases.size, dtype=np.uint32)
    events = index.match(bases, offsets, canonical=True, values=out, threads=threads)
    reference = np.full(bases.size, NO_SET, dtype=np.uint32)
    for first, kmer in windows(bases, offsets, 16, canonical=True):
        reference[first] = expected[code_of(kmer)]
    np.testing.assert_array_equal(out, reference)
    np.testing.assert_array_equal(events == 1, reference != NO_SET)


def test_values_of_misses_and_grown_kmers_are_none() -> None:
    index = KmerIndex(4, with_values=True)
    index.add(np.array([0b00011011], dtype=np.uint64), np.array([7], dtype=np.uint32))
    bases = np.array([0, 1, 2, 3, 3], dtype=np.uint8)
    values = np.zeros(5, dtype=np.uint32)
    offsets = np.array([0, 5])
    events = index.match(bases, offsets, canonical=False, values=values)
    assert events.tolist() == [1, 2, 0, 0, 0]
    assert values.tolist() == [7] + [NO_SET] * 4
    index.grow(bases, offsets, canonical=False)
    assert index.match(bases, offsets, canonical=False, values=values).tolist() == [1, 1, 0, 0, 0]
    assert values.tolist() == [7] + [NO_SET] * 4


@pytest.mark.parametrize("k", KS)
def test_the_smallest_and_the_largest_code(k: int) -> None:
    index = KmerIndex(k)
    ends = np.array([0, 4**k - 1], dtype=np.uint64)
    bases = np.repeat(np.array([0, 3], dtype=np.uint8), k)
    offsets = np.array([0, k, 2 * k])
    assert not (index.match(bases, offsets, canonical=False) == MATCH).any()
    assert index.add(np.array([0, 0, 4**k - 1, 0], dtype=np.uint64)).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert (index.match(bases, offsets, canonical=False) == MATCH).sum() == 2
    assert index.codes().tolist() == ends.tolist()
    assert index.add(ends).tolist() == [False, False]


def test_equal_codes_are_new_once() -> None:
    index = KmerIndex(31)
    index.add(np.array([5], dtype=np.uint64))
    added = index.add(np.array([3, 5, 3, 9, 9], dtype=np.uint64))
    assert added.tolist() == [True, False, False, True, False]


@pytest.mark.whole
def test_short_kmers_are_bits_and_tables_become_bits() -> None:
    assert isinstance(KmerIndex(12)._store, KmerBitset)
    assert isinstance(KmerIndex(12, with_values=True)._store, KmerTable)
    assert isinstance(KmerIndex(16, expected=10**6)._store, KmerTable)
    index = KmerIndex(13)
    assert isinstance(index._store, KmerTable)
    rng = np.random.default_rng(1)
    codes = rng.permutation(np.unique(rng.integers(0, 4**13, 810_000, np.uint64)))[:800_000]
    assert index.add(codes[:500_000]).all()
    assert index.add(codes[500_000:], threads=2).all()
    assert isinstance(index._store, KmerBitset)
    np.testing.assert_array_equal(index.codes(), np.sort(codes))
    assert len(index) == codes.size
    assert index.memory_bytes() == 4**13 // 8


def test_an_expected_number_fits_without_doubling() -> None:
    index = KmerIndex(31, expected=300_000)
    before = index.memory_bytes()
    codes = np.random.default_rng(2).integers(0, 4**31, 300_000).astype(np.uint64)
    index.add(codes)
    assert index.memory_bytes() == before


def test_bad_arguments() -> None:
    for k in (0, 32):
        with pytest.raises(ValueError, match=r"1\.\.31"):
            KmerIndex(k)
    index = KmerIndex(4)
    bases = np.zeros(5, dtype=np.uint8)
    for offsets in ([], [0], [0, 6], [1, 5], [0, 4, 3, 5]):
        with pytest.raises(BatchShapeError):
            index.match(bases, np.array(offsets, dtype=np.int64), canonical=True)
    with pytest.raises(ValueError, match="results"):
        index.match(bases, np.array([0, 5]), canonical=True, events=np.zeros(4, dtype=np.uint8))
