"""What a matcher holds while it grows, and what it gives back."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch

K = 11


def batch_of(rng, symbols):
    return ReadBatch(["r"], np.array([0, symbols]), rng.integers(0, 4, symbols, dtype=np.uint8))


def growing(**options):
    return StreamMatcher.of(
        Dictionary.empty(K, "forward"), mode="grow", semantics="ltb", distance=1, strands="both",
        track_tree=True, **options,
    )  # fmt: skip


def test_a_failed_merge_leaves_nothing_open(monkeypatch):
    matcher = growing()
    closed = []
    monkeypatch.setattr(matcher._solver, "close", lambda: closed.append("near"))
    end = matcher._snapshots.close

    def failing():
        end()
        raise MemoryError

    monkeypatch.setattr(matcher._snapshots, "close", failing)
    with pytest.raises(MemoryError):
        matcher.close()
    assert closed == ["near"]


def test_what_has_grown_is_near_in_later_batches():
    rng = np.random.default_rng(5)
    with closing(growing()) as matcher:
        found = [matcher.match([batch_of(rng, 3_000)])[0] for _ in range(3)]
    assert all(result.new_kmers.size > 100 for result in found)
    assert all(len(result.near) for result in found[1:])
