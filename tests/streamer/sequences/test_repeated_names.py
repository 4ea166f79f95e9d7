"""Names that come again, against a set of all names."""

from __future__ import annotations

import random

import msgpack
import pytest

from streamer.sequences import repeated_names
from streamer.sequences.read_batch import PackedNames
from streamer.sequences.repeated_names import RepeatedNames


def packed(names):
    return PackedNames.of(msgpack.packb(names))


def told_of(batches):
    """(batch, name) of all that is told."""
    found = RepeatedNames()
    told = [(number, found.first(packed(names))) for number, names in enumerate(batches)]
    return [(number, at) for number, at in told if at >= 0]


@pytest.mark.parametrize("seed", range(6))
def test_the_first_name_that_comes_again_is_told_once(seed):
    rng = random.Random(seed)
    kinds = 10 ** rng.randint(1, 6)
    batches = [
        [f"{'read' * rng.randrange(3)}{rng.randrange(kinds)}" for _ in range(rng.randrange(300))]
        for _ in range(20)
    ]
    known, want = set(), []
    for number, names in enumerate(batches):
        for at, name in enumerate(names):
            if name in known and not want:
                want.append((number, at))
            known.add(name)
    assert told_of(batches) == want


def test_many_names_and_none_again():
    assert told_of([[f"{n}-{i}" for i in range(4000)] for n in range(30)]) == []
    assert told_of([[f"{i}" for i in range(60_000)], ["x", "59999", "0"]]) == [(1, 1)]
    assert told_of([[], [""], ["x"], ["", "x"]]) == [(3, 0)]


def test_memory_is_bounded_and_what_came_long_before_forgotten(monkeypatch):
    monkeypatch.setattr(repeated_names, "_SLOTS", 16)
    monkeypatch.setattr(repeated_names, "_MOST_SLOTS", 256)
    found = RepeatedNames()
    for number in range(100):
        assert found.first(packed([f"{number}.{i}" for i in range(10)])) == -1
        assert found._slots.size <= 256
    assert found.first(packed(["0.0", "99.9"])) == 1
    # a batch that is larger than all of it
    assert RepeatedNames().first(packed([str(i) for i in range(1000)] + ["7"])) == 1000
