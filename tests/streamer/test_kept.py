"""Memory that waits for the next search is nobody else's."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamer import kept
from streamer.batch.hits import FIELDS


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch):
    """Nothing yet, and no garbage of other tests comes later."""
    gc.collect()
    monkeypatch.setattr(kept, "_waiting", [])


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_back_with_the_last_view():
    first = kept.empty(100_000, np.int64)
    first[:] = 7
    part = first[10:20]
    place = address(first)
    del first
    other = kept.empty(100_000, np.int64)
    assert address(other) != place
    other[:] = 9
    assert (part == 7).all()
    frame = part.data[5:]  # as it is given to a socket
    del part
    again = np.frombuffer(frame, np.uint8)
    del frame
    assert address(kept.empty(100_000, np.int64)) != place
    del again
    gc.collect()
    # of the same size class
    assert address(kept.empty(120_000, np.int64)) == place


def test_shapes_and_places():
    for size, dtype in ((0, np.int32), (1, np.uint8), (5, FIELDS), (70_001, np.int64)):
        array = kept.empty(size, dtype)
        assert (array.shape, array.dtype) == ((size,), np.dtype(dtype))
        assert array.flags.writeable
        assert array.nbytes < kept.LEAST or address(array) % 64 == 0


def test_no_more_waits_than_is_to_be_kept(monkeypatch):
    monkeypatch.setattr(kept, "KEPT", 3 << 20)
    several = [kept.empty(1 << 20, np.uint8) for _ in range(5)]
    del several
    gc.collect()
    assert sum(1 << kind for kind, _ in kept._waiting) == 3 << 20


def test_what_has_waited_longest_goes_first(monkeypatch):
    monkeypatch.setattr(kept, "KEPT", 3 << 20)
    first, second = kept.empty(2 << 20, np.uint8), kept.empty(1 << 20, np.uint8)
    del first
    del second
    kept.empty(1 << 19, np.uint8)
    assert [kind for kind, _ in kept._waiting] == [20, 19]
    large = kept.empty(1 << 22, np.uint8)
    del large
    assert not kept._waiting


def test_arrays_that_end_while_others_are_made_change_nothing():
    several = [kept.empty(1 << 20, np.uint8) for _ in range(3)]
    del several[0]
    with kept._lock:  # as if by a collection of garbage in the midst of it
        several.clear()
        assert kept.empty(1 << 20, np.uint8).size == 1 << 20
    assert [kind for kind, _ in kept._waiting] == [20]


def test_many_threads_have_memory_of_their_own():
    def work(number):
        for turn in range(200):
            array = kept.empty(20_000 + 7 * turn, np.int32)
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
