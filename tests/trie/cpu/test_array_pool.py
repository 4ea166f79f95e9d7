"""The pool never gives out memory that is in use."""

from __future__ import annotations

import _thread
import gc
import operator
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamer.batch.hits import FIELDS
from trie.cpu import array_pool


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    """And no garbage of other tests comes later."""
    gc.collect()
    gc.freeze()  # the next time there is less to look at
    monkeypatch.setattr(array_pool, "_pool", array_pool._Blocks())


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_back_with_the_last_view():
    first = array_pool.empty(100_000, np.int64)
    first[:] = 7
    part = first[10:20]
    place = address(first)
    del first
    other = array_pool.empty(100_000, np.int64)
    assert address(other) != place
    other[:] = 9
    assert (part == 7).all()
    frame = part.data[5:]  # as it is given to a socket
    del part
    again = np.frombuffer(frame, np.uint8)
    del frame
    assert address(array_pool.empty(100_000, np.int64)) != place
    del again
    gc.collect(1)
    # of the same size class
    assert address(array_pool.empty(120_000, np.int64)) == place


def test_shapes_and_places():
    for size, dtype in ((0, np.int32), (1, np.uint8), (5, FIELDS), (70_001, np.int64)):
        array = array_pool.empty(size, dtype)
        assert (array.shape, array.dtype) == ((size,), np.dtype(dtype))
        assert array.flags.writeable
        assert array.nbytes < array_pool.LEAST or address(array) % 64 == 0


def known():
    return [one.kind for one in array_pool._pool.blocks.values()]


def test_the_pool_has_a_limit(monkeypatch):
    monkeypatch.setattr(array_pool, "POOL_BYTES", 3 << 20)
    several = [array_pool.empty(1 << 20, np.uint8) for _ in range(5)]
    places = {address(array) for array in several[2:]}
    for number, array in enumerate(several):
        array[:] = number
    assert known() == [20] * 3
    # what the pool has dropped is in use all the same
    assert [int(array.max()) for array in several] == [0, 1, 2, 3, 4]
    del several, array
    again = [array_pool.empty(1 << 20, np.uint8) for _ in range(3)]
    assert {address(array) for array in again} == places


def test_the_least_recently_allocated_goes_first(monkeypatch):
    monkeypatch.setattr(array_pool, "POOL_BYTES", 3 << 20)
    first, second = array_pool.empty(2 << 20, np.uint8), array_pool.empty(1 << 20, np.uint8)
    del first, second
    array_pool.empty(1 << 19, np.uint8)
    assert known() == [20, 19]
    # used once more it stands last
    array_pool.empty(1 << 20, np.uint8)
    assert known() == [19, 20]
    # what is too large by itself takes the place of nothing
    array_pool.empty(1 << 22, np.uint8)
    assert known() == [19, 20]


def test_while_the_pool_is_locked_memory_is_fresh():
    array = array_pool.empty(1 << 20, np.uint8)
    place = address(array)
    del array
    with array_pool._pool.lock:  # as if by a collection of garbage in the midst of it
        other = array_pool.empty(1 << 20, np.uint8)
        assert address(other) != place
    assert address(array_pool.empty(1 << 20, np.uint8)) == place


def test_an_interrupt_that_comes_when_an_array_ends_is_raised():
    """Were Python to run then, it would report the interrupt and go on."""
    arrays = [array_pool.empty(1 << 20, np.uint8)]
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
            array = array_pool.empty(20_000 + 7 * turn, np.int32)
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
