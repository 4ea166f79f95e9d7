"""The kernels behind the reports against plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.matching import events as event_runs
from streamer.matching.events import Events

NO_SET = 0xFFFFFFFF


@st.composite
def matched(draw):
    """Offsets, events and target sets of a few reads, with long runs and without."""
    k = draw(st.integers(1, 9))
    events, sets, offsets = [], [], [0]
    for _ in range(draw(st.integers(0, 4))):
        length = draw(st.integers(0, 70))
        read, held = [], []
        while len(read) < max(length - k + 1, 0):
            event, owner = draw(st.integers(0, 2)), draw(st.integers(0, 2) | st.just(NO_SET))
            run = draw(st.integers(1, 40))
            read += [event] * run
            held += [owner if event == 1 else NO_SET] * run
        windows = max(length - k + 1, 0)
        events += read[:windows] + [0] * (length - windows)
        sets += held[:windows] + [NO_SET] * (length - windows)
        offsets.append(len(events))
    return (k, np.array(events, np.uint8), np.array(sets, np.uint32), np.array(offsets, np.int64))


def plain_runs(k, events, sets, offsets):
    rows = []
    for read in range(offsets.size - 1):
        begin, windows = offsets[read], max(offsets[read + 1] - offsets[read] - k + 1, 0)
        at = 0
        while at < windows:
            stop = at
            key = (events[begin + at], sets[begin + at])
            while stop < windows and (events[begin + stop], sets[begin + stop]) == key:
                stop += 1
            if key[0]:
                rows.append((read, at, stop - 1 + k, *key))
            at = stop
    return [tuple(map(int, row)) for row in rows]


def runs_of(sets, cuts=()):
    """Runs of symbols with one set, as in ``BatchResult``, cut before some of them."""
    edges = np.flatnonzero(np.diff(sets.astype(np.int64), prepend=-1)).tolist()
    edges = sorted({*edges, *(cut for cut in cuts if cut < sets.size)})
    rows = [(a, b, a, 1, sets[a]) for a, b in zip(edges, [*edges[1:], sets.size], strict=False)]
    return np.array([row for row in rows if row[4] != NO_SET], np.int64).reshape(-1, 5)


TYPES = (np.int64, np.int64, np.int64, np.int64, np.uint32, np.uint8)


@settings(max_examples=200, deadline=None)
@given(matched(), st.booleans())
def test_runs_and_counts(case, many):
    k, events, sets, offsets = case
    if not many:  # one set for all that match
        sets = np.where(events == 1, np.uint32(5), np.uint32(NO_SET))
    if many and not sets.size:
        return
    reads = offsets.size - 1
    found = runs_of(sets, [*offsets.tolist(), 7, 20, 21]) if many else runs_of(sets[:0])
    bits = Events.of(events).bytes_of_bits
    arguments = (*bits, offsets, k, found, np.uint32(NO_SET if many else 5), 7, 0, reads)
    want = plain_runs(k, events, sets, offsets)
    hits = [row for row in want if row[3] == 1]
    misses = [row for row in want if row[3] == 2]
    nothing = tuple(np.zeros(0, t) for t in TYPES)
    rows = tuple(np.zeros(reads, t) for t in (*[np.int64] * 5, np.int32))
    numbers = np.full(reads, -1)
    told = event_runs.summarize(*bits, offsets, k, 7, 0, reads, numbers, rows)
    both = tuple(np.zeros_like(column) for column in rows)
    counted = event_runs.runs(*arguments, 0, 0, nothing, nothing, both)
    assert counted == (*told[:4], len(hits), len(misses))
    assert [column.tolist() for column in both] == [column.tolist() for column in rows]
    none = tuple(column[:0] for column in rows)
    for at_miss, right in ((-1, want), (len(hits), hits + misses)):
        columns = tuple(np.zeros(len(want) + 1, t) for t in TYPES)
        event_runs.runs(*arguments, 0, at_miss, columns, columns, none)
        read, start, end, event, target = zip(*right, strict=True) if right else [()] * 5
        windows = np.subtract(end, start) - k + 1
        found = [column[: len(want)].tolist() for column in columns]
        assert found == [*map(list, (read, start, end, windows, target, event))]
    assert numbers.tolist() == [*range(reads)]
    assert told == event_runs.summarize(*bits, offsets, k, 7, 0, reads, numbers[:0], rows)
    if not many:
        assert told[-2:] == (len(hits), len(misses))
    assert told[:4] == (rows[1].sum(), rows[2].sum(), rows[4].sum(), (rows[2] > 0).sum())
    for at, row in enumerate(zip(*rows, strict=True)):
        part = events[offsets[at] : offsets[at + 1]]
        hit, windows = (part == 1).sum(), (part != 0).sum()
        gone = max(part.size - k + 1, 0) - windows
        assert row == (part.size, windows, hit, windows - hit, gone, 7 if hit else -1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=200))
def test_events_as_bits_and_as_bytes(codes):
    given_codes = np.array(codes, np.uint8)
    starts, matches = Events.of(given_codes).bits
    for bits, want in ((starts, given_codes != 0), (matches, given_codes == 1)):
        flags = np.unpackbits(bits.view(np.uint8), bitorder="little")
        assert flags.tolist() == [*want.tolist(), *[0] * (flags.size - given_codes.size)]
    back = Events(given_codes.size, (starts, matches))
    assert back.codes.tolist() == codes


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=200), st.integers(0, 200), st.integers(0, 200))
def test_a_part_of_events(codes, start, length):
    given_codes = np.array(codes, np.uint8)
    start = min(start, len(codes))
    stop = min(start + length, len(codes))
    part = Events.of(given_codes).part(start, stop)
    assert part.symbols == stop - start
    assert part.codes.tolist() == codes[start:stop]
    for moved, want in zip(part.bits, Events.of(part.codes).bits, strict=True):
        assert moved.tolist() == want.tolist()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_best_targets(data):
    targets = data.draw(st.integers(1, 6) | st.integers(7, 40))
    members = data.draw(
        st.lists(st.sets(st.integers(0, targets - 1), min_size=1).map(sorted), min_size=1)
    )
    reads = data.draw(
        st.lists(st.lists(st.integers(0, len(members) - 1) | st.just(NO_SET), max_size=24))
    )
    want = []
    for read in reads:
        tally = Counter(t for held in read if held != NO_SET for t in members[held])
        greatest = max(tally.values(), default=0)
        want.append((min((t for t, n in tally.items() if n == greatest), default=-1), greatest))
    best, most = np.full(len(reads), 7, np.int32), np.full(len(reads), 7)
    first = len(reads) // 3  # those before it are another thread's
    offsets = np.cumsum([0, *map(len, reads)])
    sets = np.array([held for read in reads for held in read], np.uint32)
    event_runs.best_targets(
        runs_of(sets, offsets.tolist()),
        offsets,
        np.cumsum([0, *map(len, members)]),
        np.array([t for held in members for t in held], np.int32),
        *(zeros := (np.zeros(len(members), np.int64), np.zeros(targets, np.int64))),
        first,
        len(reads),
        best,
        most,
    )
    assert [*zip(best.tolist(), most.tolist(), strict=True)] == [(7, 7)] * first + want[first:]
    assert not np.concatenate(zeros).any()


class Counted(list):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, at):
        self.looks += 1
        return super().__getitem__(at)


def test_kmers_that_a_thousand_records_share_cost_no_thousand_steps_each(monkeypatch):
    monkeypatch.setattr(event_runs, "_holds", event_runs._holds.py_func)
    targets, reads = 1_000, 20
    starts = np.array([0, targets, targets + 1])
    members = Counted([*range(targets), 700])
    sets = np.tile(np.array([0, 0, 0, 1], np.uint32), 25 * reads)
    offsets = np.arange(0, sets.size + 1, 100)
    best, most = np.zeros(reads, np.int32), np.zeros(reads, np.int64)
    zeros = (np.zeros(size, np.int64) for size in (starts.size - 1, targets))
    known = runs_of(sets, offsets), offsets, starts, members, *zeros
    event_runs.best_targets.py_func(*known, 0, reads, best, most)
    assert (best == 700).all()
    assert (most == 100).all()
    # the one member of the smaller set and the first of the thousand, searched for among these
    assert members.looks < 30 * reads


def test_sets_of_every_size_that_others_outdo_cost_nothing(monkeypatch):
    """Ends that records have in common: half of them one base more, a quarter two, and so on."""
    monkeypatch.setattr(event_runs, "_holds", event_runs._holds.py_func)
    targets, reads = 1_024, 10
    sizes = [1, *[1 << power for power in range(11)]]
    starts = np.cumsum([0, *sizes])
    members = Counted([700, *[at for size in sizes[1:] for at in range(size)]])
    sets = np.tile(np.array([0] * 60 + [*range(1, len(sizes))], np.uint32), reads)
    offsets = np.arange(0, sets.size + 1, sets.size // reads)
    best, most = np.zeros(reads, np.int32), np.zeros(reads, np.int64)
    zeros = (np.zeros(size, np.int64) for size in (starts.size - 1, targets))
    known = runs_of(sets, offsets), offsets, starts, members, *zeros
    event_runs.best_targets.py_func(*known, 0, reads, best, most)
    assert (best == 700).all()
    assert (most == 61).all()
    assert members.looks < 100 * reads
