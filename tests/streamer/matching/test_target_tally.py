"""Rows of targets while a stream goes on: what changed, what is enough, and at which cost."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from streamer.matching import target_tally
from streamer.matching.target_tally import Panel, TargetTally

NAMES = [f"t{at}" for at in range(30)]
KMERS = 10


class PlainCounts:
    """In the place of ``TargetCounts``: reads, matches and seen by barcode, in lists."""

    def __init__(self, *_):
        self.groups = {}

    def find(self, label, at, reads, matches):
        group = self.groups.setdefault(label, [[0, 0, 0] for _ in [*NAMES, None]])
        group[at][0] += reads
        if at < len(NAMES):
            group[at][1] += matches
            group[at][2] = min(KMERS, group[at][2] + matches)

    def union(self):
        # what each barcode has seen is disjoint here, or all of it
        return self._columns([self._sum(at) for at in range(len(NAMES) + 1)])

    def columns(self, label):
        return self._columns(self.groups[label])

    def _sum(self, at):
        reads, matches, seen = (
            sum(group[at][of] for group in self.groups.values()) for of in range(3)
        )
        return [reads, matches, min(KMERS, seen)]

    def _columns(self, counts):
        reads, matches, seen = np.array(counts, np.int64).T
        kmers = np.array([KMERS] * len(NAMES) + [0])
        target = np.array([*range(len(NAMES)), -1])
        return {
            "target": target, "reads": reads, "bases": 100 * reads, "matches": matches,
            "kmers": kmers, "seen": seen,
        }  # fmt: skip


class CountingPanel(Panel):
    """Says how often it was asked."""

    asked = 0

    def reached(self, *values):
        type(self).asked += 1
        return super().reached(*values)


@pytest.fixture
def tally(monkeypatch):
    """Makes one of plain counts, for a panel."""
    monkeypatch.setattr(target_tally, "TargetCounts", PlainCounts)
    monkeypatch.setattr(CountingPanel, "asked", 0)
    dictionary = SimpleNamespace(
        targets=SimpleNamespace(names=NAMES), index=SimpleNamespace(groups=())
    )
    return lambda panel: TargetTally(SimpleNamespace(dictionary=dictionary), None, panel)


def find(tally, label, *counts):
    tally._counts.find(label, *counts)
    tally._touched.add(label)


def plain_rows(counts, *first):
    """Each row as the definition of the report has it."""
    columns = [values.tolist() for values in counts.values()][1:]
    rows = [
        [*first, name, *values, round(values[4] / KMERS, 4), round(values[2] / KMERS, 4)]
        for name, values in zip(NAMES, zip(*columns, strict=True), strict=False)
    ]
    return [*rows, [*first, None, columns[0][-1], columns[1][-1], *[None] * 5]]


def all_rows(made, by=None):
    """Every row."""
    return made.some_rows(0, 1 << 62, by)[0]


@pytest.mark.parametrize("groups", [{}, {"g": ["t1", "t2"], "h": ["t2", "t7", "t9"], "none": []}])
def test_rows_and_enough_are_those_of_counting_anew(tally, groups):
    random.seed(3)
    panel = Panel(groups, breadth=0.5, reads=3)
    made = tally(panel)
    assert all_rows(made) == plain_rows(made._counts.union())
    told, said = {False: {}, True: {}}, []
    for _ in range(60):
        for _ in range(random.randrange(4)):
            label, at = random.choice([None, "b1", "b2"]), random.choice([1, 2, 7, 9, 11, 30])
            find(made, label, at, random.randrange(2), random.randrange(4))
        for by_barcode in (False, True):
            for row in made.changed(by_barcode=by_barcode):
                key = tuple(row[: 1 + by_barcode])
                assert told[by_barcode].get(key) != row
                told[by_barcode][key] = row
        said += [tuple(row[:3]) for row in made.enough()]
        rows = {
            label: plain_rows(made._counts.columns(label), label) for label in made._counts.groups
        }
        everything = plain_rows(made._counts.union())
        assert all_rows(made) == everything
        ordered = sorted(rows, key=lambda label: label or ".")
        assert all_rows(made, "barcode") == [row for label in ordered for row in rows[label]]
        # also rows of targets that are matched and have no read
        assert told[False] == {(row[0],): row for row in everything if any(row[1:4])}
        every = [row for label in rows for row in rows[label]]
        assert told[True] == {(*row[:2],): row for row in every if any(row[2:5])}
        assert sorted(said, key=str) == sorted(enough(panel, rows), key=str)


def enough(panel, rows):
    """barcode, group and target of all of which there is enough."""
    watched = {name for members in panel.groups.values() for name in members} or set(NAMES)

    def reached(members):
        reads, kmers, seen = (sum(row[at] for row in members) for at in (2, 5, 6))
        return reads >= panel.reads and seen / kmers >= panel.breadth

    for label, of in rows.items():
        by_name = {row[1]: row for row in of[:-1]}
        found = {name for name in watched if reached([by_name[name]])}
        yield from ((label, None, name) for name in found)
        for group, members in panel.groups.items():
            if members and found.issuperset(members) and reached([by_name[one] for one in members]):
                yield label, group, None


def test_what_has_not_changed_costs_nothing(tally):
    made = tally(CountingPanel(reads=3))
    for label in ("b1", "b2", "b3"):
        for at in range(len(NAMES)):
            find(made, label, at, 3, 1)
    assert len(made.enough()) == 3 * len(NAMES)
    CountingPanel.asked = 0
    assert made.enough() == []
    assert CountingPanel.asked == 0
    find(made, "b2", 7, 1, 1)
    assert made.enough() == []
    assert CountingPanel.asked == 1


def test_some_rows_are_those_of_all(tally):
    made = tally(Panel())
    for label in ("b1", "b2", None):
        find(made, label, 7, 1, 1)
    for by, size in (("barcode", 3 * 31), (None, 31)):
        everything = all_rows(made, by)
        assert len(everything) == size
        for first in (0, 1, 30, 31, 32, 61, 62, 92, 93, 100, 1 << 70):
            for most in (1, 2, 31, 62, 200):
                some = made.some_rows(first, most, by)
                chosen = range(size)[first : first + most]
                assert some == ([everything[at] for at in chosen], [*chosen], size)
                some = made.some_rows(first, most, by, found=True)
                chosen = [at for at in (7, 38, 69) if first <= at < size][:most]
                assert some == ([everything[at] for at in chosen], chosen, size)
