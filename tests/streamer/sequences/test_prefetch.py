"""Reading ahead keeps the order, the errors, and ends its thread."""

from __future__ import annotations

import threading

import pytest

from streamer.sequences.prefetch import prefetched
from tests.waiting import DEADLINE


def test_order():
    assert list(prefetched(range(1000))) == list(range(1000))


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("third")

    ahead = prefetched(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(ahead)


def test_giving_up_ends_the_thread():
    made = []
    before = set(threading.enumerate())
    ahead = prefetched((made.append(i) or i for i in range(1_000_000)), depth=2)
    assert next(ahead) == 0
    (thread,) = set(threading.enumerate()) - before
    ahead.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(made) < 10
