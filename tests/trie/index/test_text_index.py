"""The index over a reference text against a dict of strings, one window at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.reference.index import Oracle
from trie.index.kmer_index import KmerIndex
from trie.index.mers import BLOCK
from trie.index.places import MOST
from trie.index.reference_text import ReferenceText, gap_codes
from trie.index.text_index import TextIndex
from trie.windows import MATCH, BatchShapeError, window_codes

KS = (1, 2, 5, 11, 12, 13, 15, 16, 17, 18, 19, 21, 24, 30, 31)
GAP = 4

Codes = NDArray[np.uint8]


def joined(records: list[Codes]) -> tuple[Codes, NDArray[np.int64]]:
    """A batch of records, or the text of an index: the same with a gap code behind each."""
    offsets = np.cumsum([0] + [record.size for record in records])
    return np.concatenate([*records, np.empty(0, np.uint8)]).astype(np.uint8), offsets


class Indexed(TextIndex):
    """An index that remembers its text."""

    def __init__(self, text: ReferenceText, k: int, **options: Any) -> None:
        made = TextIndex.of(text, k, **options)
        super().__init__(made.shape, *made.arrays)
        self.half, self.k = gap_codes(text, 0, text.size), k


def index_of(records: list[Codes], k: int, *, canonical: bool = True, **options: Any) -> Indexed:
    return Indexed(ReferenceText.of(*joined(records)), k, canonical=canonical, **options)


def events(
    index: Indexed, bases: Codes, offsets: NDArray[np.int64], threads: int = 1, **options: object
) -> list[int]:
    """Events as the oracle has them, from the two bits of each symbol; runs are checked, too."""
    runs: list[NDArray[np.int64]] = []
    starts, matches = index.match(bases, offsets, threads=threads, runs=runs, **options)  # type: ignore[arg-type]
    start, match = (
        np.unpackbits(bits.view(np.uint8), bitorder="little", count=bases.size)
        for bits in (starts, matches)
    )
    assert not (match & ~start & 1).any()
    assert covered(index, bases, runs) == match.tolist()
    return (2 * start - match).tolist()


def covered(index: Indexed, bases: Codes, runs: list[NDArray[np.int64]]) -> list[int]:
    """How many runs hold each window; the text must have it where the run says."""
    times = np.zeros(bases.size, np.int64)
    for begin, stop, place, step in np.concatenate([np.empty((0, 4), np.int64), *runs]).tolist():
        read = bases[begin : stop + index.k - 1]
        times[begin:stop] += 1
        if step == 1:
            here = index.half[place : place + read.size]
        else:
            end = place + index.k
            here = 3 - index.half[end - read.size : end][::-1]
        assert np.array_equal(read, here)
    return times.tolist()


def oracle_of(records: list[Codes], k: int, *, canonical: bool) -> Oracle:
    oracle = Oracle(k, canonical=canonical)
    oracle.grow(*joined(records))
    return oracle


def changed(rng: np.random.Generator, read: Codes, errors: float) -> Codes:
    """A read with substitutions, insertions, deletions and gap codes."""
    out: list[int] = []
    for base in read.tolist():
        what = rng.random() / errors if errors else 9
        if what > 1:
            out.append(base)
        elif what > 0.4:
            out.append(int(rng.integers(0, 5)))
        elif what > 0.2:
            out += [base, int(rng.integers(0, 4))]
    return np.array(out, dtype=np.uint8)


def reference(rng: np.random.Generator, k: int) -> list[Codes]:
    """Records with all that is hard: see the comments."""
    text = rng.integers(0, 4, 3_000).astype(np.uint8)
    text[100:160] = 0  # homopolymers
    text[200:260] = 3
    text[300:380] = [0, 3, 1, 2] * 20  # palindromes, tandem repeats
    text[400:440] = [1, 2] * 20
    family = rng.integers(0, 4, 90).astype(np.uint8)
    for copy in range(MOST + 4):  # a repeat with more copies than are looked at one by one
        at = 600 + 100 * copy
        text[at : at + 90] = family if copy % 2 else 3 - family[::-1]
        text[at + 45] = copy % 4
    text[[2_700, 2_750, 2_752]] = GAP
    return [
        text,
        text[2_000:2_300],  # twice the same
        rng.integers(0, 4, k).astype(np.uint8),  # a single window
        rng.integers(0, 4, k - 1).astype(np.uint8),
        np.empty(0, np.uint8),
        np.zeros(2 * k, np.uint8),
        3 - text[1_000:1_100][::-1],
    ]


def reads_of(rng: np.random.Generator, records: list[Codes], count: int) -> list[Codes]:
    """Pieces of the records, of either strand, with and without errors, and others."""
    text = np.concatenate(records)
    reads = []
    for _ in range(count):
        length = int(rng.choice([0, 5, 20, 31, 32, 33, 60, 150, 400]))
        start = int(rng.integers(0, text.size - length))
        read = text[start : start + length]
        kind = int(rng.integers(0, 4))
        if kind == 0:
            read = rng.integers(0, 4, length).astype(np.uint8)
        if kind == 1:
            read = np.array([3, 2, 1, 0, GAP], np.uint8)[read[::-1]]
        reads.append(changed(rng, read, float(rng.choice([0, 0.01, 0.05, 0.2]))))
    return reads


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("k", KS)
def test_equals_the_oracle(k: int, canonical: bool) -> None:
    rng = np.random.default_rng(k)
    records = reference(rng, k)
    index = index_of(records, k, canonical=canonical)
    oracle = oracle_of(records, k, canonical=canonical)
    bases, offsets = joined(reads_of(rng, records, 200))
    expected = oracle.match(bases, offsets)
    if k > 10:
        assert 0.2 < (expected == 1).sum() / (expected > 0).sum() < 0.8
    assert events(index, bases, offsets) == expected.tolist()
    assert events(index, bases, offsets, seeks=False) == expected.tolist()
    for seeks in (True, False):
        part = np.array(events(index, bases, offsets, seeks=seeks, settles=False))
        lacking = part != expected
        assert set(zip(part[lacking], expected[lacking], strict=True)) <= {(2, 1)}
        assert (part == 1).any() == seeks
    bases, offsets = joined(records)
    assert 2 not in events(index, bases, offsets)


motifs = st.lists(st.integers(0, 4), min_size=1, max_size=9)
pieces = st.lists(st.tuples(motifs, st.integers(1, 12)), max_size=8)


def sequence(parts: list[tuple[list[int], int]]) -> Codes:
    return np.array([base for motif, times in parts for base in motif * times], dtype=np.uint8)


@pytest.mark.whole
@given(
    k=st.sampled_from(KS),
    parts=st.lists(pieces, min_size=1, max_size=4),
    others=st.lists(pieces, max_size=3),
    cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 90)), max_size=6),
    turn=st.booleans(),
    canonical=st.booleans(),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_repeats_of_short_motifs(
    k: int,
    parts: list[list[tuple[list[int], int]]],
    others: list[list[tuple[list[int], int]]],
    cuts: list[tuple[int, int, int]],
    turn: bool,
    canonical: bool,
) -> None:
    """Few bases repeated: every minimizer is frequent, and windows have several."""
    records = [sequence(part) for part in parts]
    reads = [sequence(part) for part in others]
    for number, start, length in cuts:
        read = records[number % len(records)][start : start + length]
        reads.append(np.array([3, 2, 1, 0, GAP], np.uint8)[read[::-1]] if turn else read)
    index = index_of(records, k, canonical=canonical)
    oracle = oracle_of(records, k, canonical=canonical)
    bases, offsets = joined(reads)
    assert events(index, bases, offsets) == oracle.match(bases, offsets).tolist()


@pytest.mark.whole
@pytest.mark.parametrize("around", [0, BLOCK, 2 * BLOCK])
def test_lengths_around_block_edges(around: int) -> None:
    for length in (0, 1, 20, 21, 31, 32, 33, 63, 64, 65, 127, 128, 129):
        rng = np.random.default_rng(length)
        text = rng.integers(0, 4, 2 * BLOCK + 200).astype(np.uint8)
        index = index_of([text], 21)
        bases = text[: max(around + length - 64 * (around > 0), 0)].copy()
        bases[rng.integers(0, max(bases.size, 1), bases.size // 50)] ^= 1
        for offsets in ([0, bases.size], [0, bases.size // 2, bases.size // 2, bases.size]):
            expected = oracle_of([text], 21, canonical=True).match(bases, np.array(offsets))
            assert events(index, bases, np.array(offsets)) == expected.tolist()


def test_a_gap_code_is_no_base_wherever_it_stands() -> None:
    """Gaps are stored as A, and a byte for 256 symbols says that there are any."""
    rng = np.random.default_rng(6)
    text = rng.integers(0, 4, 331 * 260).astype(np.uint8)
    text[::331] = GAP
    bases = np.where(text == GAP, 0, text).astype(np.uint8)
    bases = np.concatenate((bases, 3 - bases[::-1]))
    for k in (21, 31):
        found = events(index_of([text], k), bases, np.array([0, bases.size]))
        expected = np.ones(bases.size, dtype=np.uint8)
        gaps = np.flatnonzero(text == GAP)
        for gap in (*gaps, *(bases.size - 1 - gaps)):
            expected[max(gap - k + 1, 0) : gap + 1] = 2
        expected[bases.size - k + 1 :] = 0
        across = bases.size // 2
        expected[across - k + 1 : across] = 2
        assert found == expected.tolist()


def test_threads_and_a_large_text_equal_the_table() -> None:
    rng = np.random.default_rng(5)
    text = rng.integers(0, 4, 600_000).astype(np.uint8)
    text[300_000:350_000] = 3 - text[:50_000][::-1]
    text[rng.integers(0, text.size, 300)] = GAP
    k = 31
    index = index_of([text], k, threads=2)
    table = KmerIndex(k)
    table.add(window_codes(text, np.array([0, text.size]), k, canonical=True)[0])
    records = [text]
    bases, offsets = joined(reads_of(rng, records, 6_000))
    expected = table.match(bases, offsets, canonical=True)
    assert (expected == MATCH).any()
    for threads in (1, 2, 3):
        assert events(index, bases, offsets, threads) == expected.tolist()
    assert index.memory_bytes() < 6 * text.size


@pytest.mark.whole
def test_more_runs_than_there_are_rows_for() -> None:
    rng = np.random.default_rng(8)
    k = 13
    text = rng.integers(0, 4, 5_000).astype(np.uint8)
    reads = [text[at : at + k] for at in rng.integers(0, text.size - k, 20_000)]
    bases, offsets = joined(reads)
    for threads in (1, 2):
        found = events(index_of([text], k), bases, offsets, threads)
        assert found == ([1] + [0] * (k - 1)) * len(reads)


@pytest.mark.parametrize("k", [13, 31])
def test_a_text_without_a_window(k: int) -> None:
    bases, offsets = joined([np.zeros(100, np.uint8)])
    for text in (np.empty(0, np.uint8), np.zeros(k - 1, np.uint8), np.full(200, GAP, np.uint8)):
        index = index_of([text], k)
        assert set(events(index, bases, offsets)) == {0, 2}


def satellites(rng: np.random.Generator) -> Codes:
    """Two families in tandem that interleave: each m-mer of both occurs hundreds of times."""
    one, other = (rng.integers(0, 4, length).astype(np.uint8) for length in (171, 64))
    parts = [one if rng.random() < 0.5 else other for _ in range(900)]
    text = np.concatenate(parts)
    wrong = rng.random(text.size) < 0.002
    text[wrong] = (text[wrong] + 1) & 3
    return text


ADVERSARIAL = {
    "one k-mer": lambda rng: [np.zeros(200_000, np.uint8)],
    "satellites": lambda rng: [satellites(rng), 3 - satellites(rng)[::-1]],
    "equal records": lambda rng: [rng.integers(0, 4, 300).astype(np.uint8)] * 400,
    "gaps everywhere": lambda rng: [
        np.where(rng.random(60_000) < 0.03, GAP, rng.integers(0, 4, 60_000)).astype(np.uint8)
    ],
    "every other base": lambda rng: [np.tile(np.array([0, GAP], np.uint8), 30_000)],
    "short records": lambda rng: [rng.integers(0, 4, 40).astype(np.uint8) for _ in range(900)],
    "palindromes": lambda rng: [
        np.concatenate([part, 3 - part[::-1]])
        for part in rng.integers(0, 4, (500, 24)).astype(np.uint8)
    ],
}


@pytest.mark.whole
@pytest.mark.parametrize("k", [2, 11, 16, 21, 30, 31])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_texts(name: str, k: int) -> None:
    """They equal the table, whatever the strands; a satellite takes a place for each k-mer."""
    rng = np.random.default_rng(k)
    records = ADVERSARIAL[name](rng)
    whole = (record[: 5 * BLOCK] for record in records[-2:])
    bases, offsets = joined([*reads_of(rng, records, 300), *whole])
    for canonical in (True, False):
        table = KmerIndex(k)
        table.add(window_codes(*joined(records), k, canonical=canonical)[0])
        index = index_of(records, k, canonical=canonical)
        expected = table.match(bases, offsets, canonical=canonical)
        assert events(index, bases, offsets) == expected.tolist()
        assert index.arrays[5].size <= len(table) + 64


def test_threads_make_the_same_index() -> None:
    rng = np.random.default_rng(4)
    text = ReferenceText.of(*joined([satellites(rng), *reference(rng, 31) * 40] * 4))
    one, other = (TextIndex.of(text, 31, canonical=True, threads=n) for n in (1, 2))
    for mine, theirs in zip(one.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_offsets_must_describe_the_bases() -> None:
    index = index_of([np.zeros(100, np.uint8)], 21)
    with pytest.raises(BatchShapeError):
        index.match(np.zeros(5, np.uint8), np.array([0, 6]))
