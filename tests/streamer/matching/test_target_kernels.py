"""The kernels behind the counts of targets against plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.matching import target_kernels
from trie.cpu.threads import run_each
from trie.index.reference_text import first_rows

NO_SET = 0xFFFFFFFF
KMERS = 300


@settings(max_examples=150)
@given(data=st.data(), many=st.booleans(), pieces=st.lists(st.integers(1, 90), max_size=12))
def test_counts_of_runs(data, many, pieces):
    """Numbers along a text that repeats itself, and runs of windows that lie in it."""
    at, count = [NO_SET], 0
    for length in pieces:
        again = count and data.draw(st.booleans())
        first = data.draw(st.integers(0, count - 1)) if again else count
        at += [*range(first, first + length), *data.draw(st.sampled_from([[], [NO_SET]]))]
        count = max(count, first + length)
    at = np.array([*at, NO_SET], np.uint32)
    firsts = {number: np.flatnonzero(at == number)[0] for number in {*at.tolist()} - {int(NO_SET)}}
    rows = [
        (place, place + 1, firsts[number])
        for place, number in enumerate(at.tolist())
        if number != NO_SET and firsts[number] != place
    ]
    repeats = np.array(rows, np.uint32).reshape(-1, 3).T.copy()
    near = first_rows(repeats[1], at.size)[: data.draw(st.sampled_from([0, at.size]))]
    shares = repeats, np.ones(len(rows), np.int8), near
    found = np.flatnonzero(at != NO_SET)
    starts = data.draw(st.lists(st.integers(0, found.size - 1), max_size=5)) if found.size else []
    runs, numbers = [], []
    for place in found[starts].tolist():
        stop = place + 1
        while at[stop] != NO_SET and stop - place < 140:
            stop += 1
        step, first = data.draw(st.sampled_from([(1, place), (-1, stop - 1)]))
        run = [int(firsts[number]) for number in at[place:stop].tolist()][::step]
        runs.append([len(numbers), len(numbers) + len(run), first, step])
        numbers += run
    count = at.size
    runs = np.array(runs, np.int64).reshape(-1, 4)
    sets = np.array([data.draw(st.integers(0, 1)) if many else 0 for _ in runs], np.int64)
    runs = np.column_stack((runs, sets))
    windows = np.full(len(numbers), NO_SET, np.uint32)
    target_kernels.first_places(runs, *shares, windows)
    assert windows.tolist() == numbers
    seen, changes = np.zeros(-(-count // 64), np.uint64), np.zeros(count + 1, np.int64)
    totals = np.zeros(2, np.int64)
    target_kernels.count_runs(runs, *shares, seen, changes, totals)
    by_kmer = Counter(numbers)
    assert np.cumsum(changes).tolist() == [*(by_kmer[at] for at in range(count)), 0]
    bits = np.unpackbits(seen.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == sorted(by_kmer)
    sizes = runs[:, 1] - runs[:, 0]
    assert totals.tolist() == [sizes[sets == own].sum() for own in range(2)]
    empty = seen[:0], changes[:0], totals[:0]
    target_kernels.count_runs(runs, *shares, *empty)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_more_threads_than_one_count_the_same_kmers(kind):
    """Each sees all bits and counts that the others have changed."""
    rng = np.random.default_rng(3)
    kmers, number, length = 1_000, 4_000, 100
    first = rng.integers(0, kmers - 200, number)
    begin = np.arange(number) * length
    runs = np.column_stack((begin, begin + length, first, np.ones_like(first), first % 3))
    seen, changes, totals = np.zeros(16, np.uint64), np.zeros(kmers + 1, kind), np.zeros(3, int)
    shares = np.zeros((3, 0), np.uint32), np.zeros(0, np.int8), np.zeros(0, np.uint32)
    run_each(
        lambda part: target_kernels.count_runs(part, *shares, seen, changes, totals),
        [(part,) for part in np.array_split(runs, 8)],
        8,
    )
    counts = np.bincount((first[:, None] + np.arange(length)).ravel(), minlength=kmers)
    assert np.cumsum(changes)[:-1].tolist() == counts.tolist()
    assert totals.tolist() == (length * np.bincount(first % 3)).tolist()
    bits = np.unpackbits(seen.view(np.uint8), bitorder="little")[:kmers]
    assert np.array_equal(bits, counts > 0)
