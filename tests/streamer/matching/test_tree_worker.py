"""The tree worker: a merge that fails is told before a snapshot without its k-mers is in use."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from streamer.matching import tree_worker
from streamer.matching.tree_worker import TreeWorker

K = 9
CODES = np.arange(100, dtype=np.uint64)


@pytest.fixture
def failing(monkeypatch):
    """A worker with k-mers whose merge will fail, but only once they were added."""
    monkeypatch.setattr(tree_worker, "FIRST_SNAPSHOT", CODES.size)
    worker = TreeWorker(K, "forward", np.zeros(0, np.uint64), 1, 1)
    added = Event()

    def fail(runs, threads):
        assert added.wait(60)
        raise MemoryError

    monkeypatch.setattr(worker._tree, "merge", fail)
    worker.add(CODES, ascending=True)
    added.set()
    yield worker
    worker.close()


def test_the_latest_snapshot_is_refused(failing):
    with pytest.raises(MemoryError):
        failing.latest(2)


def test_a_snapshot_is_not_swapped_in(failing):
    before = failing.current
    failing.end_span(2, wait=True)
    failing.end_span(2, wait=True)
    with pytest.raises(MemoryError):
        failing.end_span(2, wait=True)
    assert failing.current is before
