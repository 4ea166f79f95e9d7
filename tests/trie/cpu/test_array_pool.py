"""Memory that waits for the next search is nobody else's."""

from __future__ import annotations

import _thread
import gc
import operator
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamer.batch.hits import FIELDS
from trie.cpu import array_pool as kept


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch):
    """Nothing yet, and no garbage of other tests comes later."""
    gc.collect()
    monkeypatch.setattr(kept, "_known", [])


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


def known():
    return [one.kind for one in kept._known]


def test_no_more_waits_than_is_to_be_kept(monkeypatch):
    monkeypatch.setattr(kept, "KEPT", 3 << 20)
    several = [kept.empty(1 << 20, np.uint8) for _ in range(5)]
    places = {address(array) for array in several[2:]}
    for number, array in enumerate(several):
        array[:] = number
    assert known() == [20] * 3
    # what is forgotten is in use all the same
    assert [int(array.max()) for array in several] == [0, 1, 2, 3, 4]
    del several, array
    again = [kept.empty(1 << 20, np.uint8) for _ in range(3)]
    assert {address(array) for array in again} == places


def test_what_was_lent_longest_ago_goes_first(monkeypatch):
    monkeypatch.setattr(kept, "KEPT", 3 << 20)
    first, second = kept.empty(2 << 20, np.uint8), kept.empty(1 << 20, np.uint8)
    del first, second
    kept.empty(1 << 19, np.uint8)
    assert known() == [20, 19]
    # used once more it stands last
    kept.empty(1 << 20, np.uint8)
    assert known() == [19, 20]
    # what is too large by itself takes the place of nothing
    kept.empty(1 << 22, np.uint8)
    assert known() == [19, 20]


def test_who_comes_while_others_look_has_memory_too():
    array = kept.empty(1 << 20, np.uint8)
    place = address(array)
    del array
    with kept._lock:  # as if by a collection of garbage in the midst of it
        other = kept.empty(1 << 20, np.uint8)
        assert address(other) != place
    assert address(kept.empty(1 << 20, np.uint8)) == place


def test_an_interrupt_that_comes_when_an_array_ends_is_raised():
    """Were Python to run then, it would report the interrupt and go on."""
    arrays = [kept.empty(1 << 20, np.uint8)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            # both calls by one step of the interpreter
            list(map(operator.call, [_thread.interrupt_main, arrays.clear]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not arrays


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
