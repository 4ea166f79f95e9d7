"""Lanes give their parts in the order of tasks, whichever thread is first, and errors with them."""

from __future__ import annotations

import threading
import time

import pytest

from tests.waiting import DEADLINE
from trie.cpu.threads import DONE, each_task, in_lanes, prefetched

LANES = (1, 2, 5)


def lanes_now():
    return [one for one in threading.enumerate() if one.name.startswith("lane_")]


@pytest.fixture(autouse=True)
def ends():
    yield
    for thread in lanes_now():
        thread.join(DEADLINE)
    assert not lanes_now()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("tasks", [0, 1, 2, 7])
def test_parts_come_in_order(lanes, tasks):
    seen = []

    def work(lane, task):
        seen.append((lane, task))
        time.sleep(0.001 * ((task * 7) % 3))
        yield from ((task, part) for part in range(task % 4))

    found = list(in_lanes(range(lanes), iter(range(tasks)), each_task(work)))
    assert found == [(task, part) for task in range(tasks) for part in range(task % 4)]
    assert sorted(seen, key=lambda one: one[1]) == [(task % lanes, task) for task in range(tasks)]


@pytest.mark.parametrize("lanes", LANES)
def test_a_part_stays_until_the_next_is_asked_for(lanes):
    """Each lane has one buffer."""

    def work(buffer, task):
        for part in range(3):
            buffer[0] = (task, part)
            yield buffer

    buffers = [[None] for _ in range(lanes)]
    for number, part in enumerate(in_lanes(buffers, range(9), each_task(work))):
        time.sleep(0.001)
        assert part == [divmod(number, 3)]


def test_a_lane_may_be_behind_its_tasks():
    """A result when two more tasks have come, as of chunks in flight."""

    def run(lane, tasks):
        flying = []
        for task in tasks:
            flying.append(task)
            if len(flying) == 3:
                yield flying.pop(0)
                yield DONE
        for task in flying:
            yield task
            yield DONE

    assert list(in_lanes("ab", range(20), run, ahead=3)) == list(range(20))


def test_a_lane_goes_on_with_as_many_parts_as_it_may_have_ready():
    resumed = threading.Semaphore(0)

    def work(lane, task):
        yield task
        resumed.release()

    some = in_lanes("ab", range(12), each_task(work), ahead=3, ready=2)
    assert next(some) == 0
    # each lane twice, though nothing else has been asked for
    for _ in range(4):
        assert resumed.acquire(timeout=DEADLINE)
    assert list(some) == list(range(1, 12))


@pytest.mark.parametrize("ready", [0, 3])
@pytest.mark.parametrize("lanes", LANES)
def test_an_error_comes_where_its_part_would_have(lanes, ready):
    def work(lane, task):
        if task == 4:
            raise ValueError(task)
        yield task

    found = []
    with pytest.raises(ValueError, match="4"):
        found.extend(in_lanes(range(lanes), range(50), each_task(work), ready=ready))
    # extend keeps what came before
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize("lanes", LANES)
def test_an_error_of_the_tasks_comes_after_the_parts_of_those_before(lanes):
    def tasks():
        yield from range(3)
        raise OSError

    found = []
    with pytest.raises(OSError):  # noqa: PT011
        found.extend(in_lanes(range(lanes), tasks(), each_task(lambda _, task: [task])))
    assert found == [0, 1, 2]


@pytest.mark.parametrize("ready", [0, 3])
@pytest.mark.parametrize("lanes", LANES)
def test_an_error_of_the_tasks_and_a_caller_that_stops(lanes, ready):
    closed = []

    def run(lane, tasks):
        try:
            yield from each_task(lambda _, task: [task])(lane, tasks)
        finally:
            closed.append(lane)

    def tasks():
        yield from range(3)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        list(in_lanes(range(lanes), tasks(), run, ready=ready))
    some = in_lanes(range(lanes), iter(int, 1), run, ready=ready)
    assert [next(some), next(some)] == [0, 0]
    some.close()
    for thread in lanes_now():
        thread.join(DEADLINE)
    assert len(closed) >= lanes


def test_lanes_work_at_the_same_time():
    both = threading.Barrier(2, timeout=DEADLINE)

    def work(lane, task):
        both.wait()
        yield task

    assert list(in_lanes("ab", range(6), each_task(work))) == list(range(6))


def test_items_are_made_ahead_in_order_and_an_error_comes_after_them():
    def items():
        yield from range(1000)
        raise ValueError("the last")

    made = []
    with pytest.raises(ValueError, match="the last"):
        made.extend(prefetched(items()))
    assert made == list(range(1000))


def test_a_consumer_that_stops_ends_the_thread_that_is_ahead():
    made = []
    before = set(threading.enumerate())
    ahead = prefetched((made.append(i) or i for i in range(1_000_000)), 2)
    assert next(ahead) == 0
    (thread,) = set(threading.enumerate()) - before
    ahead.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(made) < 10
