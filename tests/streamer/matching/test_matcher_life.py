"""What a matcher holds while it grows, and what it gives back."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from streamer.dictionary.targets import Dictionary
from streamer.matching import Matcher
from streamer.matching.near import Approximate
from streamer.matching.near.ltb import LtbSolver
from streamer.sequences.read_batch import ReadBatch

K = 11


def batch_of(rng, symbols):
    return ReadBatch(["r"], np.array([0, symbols]), rng.integers(0, 4, symbols, dtype=np.uint8))


def growing(**options):
    known = Dictionary.empty(K, "both")
    stored = Dictionary.empty(K, "forward")
    near = Approximate(stored, semantics="ltb", distance=1, both=True)
    return Matcher(known, mode="grow", approximate=near, track_tree=True, **options), near


def test_a_failed_merge_leaves_nothing_open(monkeypatch):
    matcher, near = growing()
    closed = []
    monkeypatch.setattr(near, "close", lambda: closed.append("near"))
    end = matcher._snapshots.close

    def failing():
        end()
        raise MemoryError

    monkeypatch.setattr(matcher._snapshots, "close", failing)
    with pytest.raises(MemoryError):
        matcher.close()
    assert closed == ["near"]


def test_ltb_keeps_no_kmers_that_are_in_the_tree(monkeypatch):
    """A dictionary that grows for weeks would be held twice."""
    learnt = []
    monkeypatch.setattr(LtbSolver, "learn", lambda _, codes: learnt.append(codes.size))
    rng = np.random.default_rng(5)
    matcher, _ = growing()
    with closing(matcher):
        found = [matcher.match(batch_of(rng, 3_000)) for _ in range(3)]
    assert all(result.new_kmers.size > 100 for result in found)
    assert all(len(result.near) for result in found[1:])
    assert learnt == []
