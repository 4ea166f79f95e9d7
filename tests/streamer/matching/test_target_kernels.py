"""The kernels behind the counts of targets against plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer.matching import target_kernels
from trie.cpu.threads import run_each

NO_SET = 0xFFFFFFFF
KMERS = 300


@st.composite
def numbered(draw):
    """Reads of runs of numbers, up or down, broken and at random, as they follow a record."""
    reads = []
    for _ in range(draw(st.integers(0, 4))):
        read = []
        for _ in range(draw(st.integers(0, 5))):
            first, length = draw(st.integers(0, KMERS - 1)), draw(st.integers(1, 150))
            run = range(first, min(first + length, KMERS))
            read += draw(
                st.sampled_from([list(run), list(run)[::-1], [NO_SET] * (length % 7), [first] * 3])
            )
        reads.append(read)
    return reads


def arrays_of(reads, k):
    """The numbers and offsets of reads whose last k - 1 symbols begin no window."""
    symbols = [one for read in reads for one in [*read, *[NO_SET] * (k - 1)]]
    lengths = [len(read) + k - 1 for read in reads]
    return np.array(symbols, np.uint32), np.cumsum([0, *lengths])


@settings(max_examples=150)
@given(
    reads=numbered(),
    k=st.integers(1, 4),
    set_of=st.lists(st.integers(0, 3) | st.just(NO_SET), min_size=KMERS, max_size=KMERS)
    | st.just([0] * KMERS)
    | st.just([at // 100 for at in range(KMERS)]),
    many=st.booleans(),
    threads=st.integers(1, 3),
)
@example(reads=[[*range(14, -1, -1), NO_SET]], k=1, set_of=[0] * KMERS, many=False, threads=1)
@example(reads=[[*range(40), *range(60, 5, -1)]], k=1, set_of=[0, 1] * 150, many=True, threads=1)
def test_counts_of_windows(reads, k, set_of, many, threads):
    if not many:
        set_of = [0] * KMERS
    numbers, offsets = arrays_of(reads, k)
    set_of = np.array(set_of, np.uint32)
    sets = np.zeros(numbers.size, np.uint32)
    target_kernels.look_up_sets(numbers, set_of, 0, numbers.size, sets)
    windows = [one for read in reads for one in read if one != NO_SET]
    by_kmer = Counter(windows)
    by_set = Counter(int(set_of[one]) for one in windows)
    seen = np.zeros(-(-KMERS // 64), np.uint64)
    changes, totals, nothing = np.zeros(KMERS + 1, np.int64), np.zeros(4, np.int64), []
    given_sets = sets if many and sets.size else np.zeros(0, np.uint32)
    known = numbers, given_sets, np.uint32(0), offsets, k
    chosen = np.arange(len(reads))
    parts = [(chosen[at::threads], seen, changes, totals) for at in range(threads)]
    run_each(lambda *part: target_kernels.count_windows(*known, *part), parts, threads)
    assert totals.tolist() == [by_set[one] for one in range(4)]
    assert np.cumsum(changes).tolist() == [*(by_kmer[at] for at in range(KMERS)), 0]
    bits = np.unpackbits(seen.view(np.uint8), bitorder="little")[:KMERS]
    assert np.flatnonzero(bits).tolist() == sorted(by_kmer)
    counts = np.zeros(4, np.int64)
    target_kernels.seen_by_set(seen, set_of, counts)
    assert counts.tolist() == [sum(set_of[one] == own for one in by_kmer) for own in range(4)]
    # what is empty is not counted
    empty = [np.array(nothing, kind) for kind in (np.uint64, np.int64, np.int64)]
    target_kernels.count_windows(*known, chosen, *empty)


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
    shares = repeats, np.ones(len(rows), np.int8)
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
    windows = np.full(len(numbers), NO_SET, np.uint32)
    target_kernels.first_places(runs, *shares, windows)
    assert windows.tolist() == numbers
    sets = windows % 3 if many else windows[:0]
    sets[sets == 2] = NO_SET
    seen, changes = np.zeros(-(-count // 64), np.uint64), np.zeros(count + 1, np.int64)
    totals = np.zeros(2, np.int64)
    target_kernels.count_places(runs, *shares, sets, np.uint32(0), seen, changes, totals)
    by_kmer = Counter(numbers)
    assert np.cumsum(changes).tolist() == [*(by_kmer[at] for at in range(count)), 0]
    bits = np.unpackbits(seen.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == sorted(by_kmer)
    wanted = [(sets == own).sum() for own in range(2)] if many else [len(numbers), 0]
    assert totals.tolist() == wanted
    empty = seen[:0], changes[:0], totals[:0]
    target_kernels.count_places(runs, *shares, sets, np.uint32(0), *empty)


def test_more_threads_than_one_count_the_same_kmers():
    """Each sees all bits and counts that the others have changed."""
    rng = np.random.default_rng(3)
    kmers, reads, length = 1_000, 400, 1_000
    starts = rng.integers(0, kmers - 200, reads * length // 100)
    numbers = (starts[:, None] + np.arange(100)).astype(np.uint32).ravel()
    sets = numbers % 3
    offsets = np.arange(reads + 1) * length
    seen, changes, totals = np.zeros(16, np.uint64), np.zeros(kmers + 1, np.int64), np.zeros(3, int)
    parts = np.array_split(np.arange(reads), 8)
    known = numbers, sets, np.uint32(NO_SET), offsets, 1
    run_each(
        lambda part: target_kernels.count_windows(*known, part, seen, changes, totals),
        [(part,) for part in parts],
        8,
    )
    counts = np.bincount(numbers, minlength=kmers)
    assert np.cumsum(changes)[:-1].tolist() == counts.tolist()
    assert totals.tolist() == np.bincount(sets).tolist()
    bits = np.unpackbits(seen.view(np.uint8), bitorder="little")[:kmers]
    assert np.array_equal(bits, counts > 0)
