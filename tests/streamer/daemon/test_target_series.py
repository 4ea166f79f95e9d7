"""Reads by target and barcode: bounded, nothing lost, and no series that comes and goes."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.metrics.scrape import OTHER, TargetSeries


def test_nobody_is_left_out_below_the_limit():
    rows = [("b1", "left", 3), ("b1", None, 4), (None, "left", 5), ("b2", "right", 0)]
    counts = TargetSeries(10).counts(rows)
    assert counts == {("left", "b1"): 3, (".", "b1"): 4, ("left", "."): 5}


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
def test_a_stream_of_scrapes(limit):
    rng = random.Random(limit)
    series, reads, before = TargetSeries(limit), {}, {}
    for _ in range(200):
        for _ in range(rng.randrange(4)):
            pair = f"b{rng.randrange(20)}", f"t{rng.randrange(20)}"
            reads[pair] = reads.get(pair, 0) + rng.randrange(50)
        rows = [(*pair, count) for pair, count in reads.items()]
        rng.shuffle(rows)
        counts = series.counts(rows)
        assert sum(counts.values()) == sum(reads.values())
        assert len(counts) <= limit + 1
        # they are counters: none gets less, none goes
        assert all(counts[pair] >= count for pair, count in before.items())
        own = counts.keys() - {OTHER}
        assert all(counts[target, barcode] == reads[barcode, target] for target, barcode in own)
        before = counts


def test_another_dictionary_begins_anew():
    series = TargetSeries(1)
    series.counts([("b", "old", 1)])
    assert series.counts([("b", "new", 2)]) == {OTHER: 2}
    assert series.counts([("b", "new", 2)], anew=True) == {("new", "b"): 2}


def test_targets_that_are_called_other_are_added_up():
    assert TargetSeries(1).counts([("other", "other", 1), ("b", "t", 2)]) == {OTHER: 3}
