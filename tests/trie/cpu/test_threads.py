"""Tasks on several threads: all of them, in order, never more at once than asked for."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from tests.waiting import DEADLINE
from trie.cpu import threads as parallel
from trie.cpu.threads import in_background, run_all, run_chains, run_each, split_range, tasks_go_to


@pytest.mark.parametrize("threads", [1, 2, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_results_come_in_order(threads: int, count: int) -> None:
    assert run_all([lambda i=i: i * i for i in range(count)], threads) == [
        i * i for i in range(count)
    ]


def test_no_more_threads_than_asked_for() -> None:
    lock, running, most = threading.Lock(), 0, 0
    meet = threading.Barrier(3, timeout=DEADLINE)

    def task() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meet.wait()  # three must run at once, else this times out
        with lock:
            running -= 1

    run_all([task] * 9, 3)
    assert most == 3


def test_the_first_error_is_raised_once_what_has_begun_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = []
    ended = []
    both = threading.Barrier(2)
    given_up = threading.Event()

    class Waiting(deque[int]):
        """The tasks that have not begun."""

        def clear(self) -> None:
            super().clear()
            given_up.set()

    def task(number: int) -> None:
        began.append(number)
        both.wait(DEADLINE)
        if number == 0:
            raise ValueError(f"task {number}")
        assert given_up.wait(DEADLINE)
        ended.append(number)

    monkeypatch.setattr(parallel, "deque", Waiting)
    with pytest.raises(ValueError, match="task 0"):
        run_all([lambda i=i: task(i) for i in range(100)], 2)
    assert sorted(began) == [0, 1]
    assert ended == [1]


def test_helpers_that_come_when_all_is_done_change_nothing() -> None:
    inner = [lambda i=i: i for i in range(5)]

    def caller() -> list[list[int]]:
        return [found for _ in range(100) for found in run_all([lambda: run_all(inner, 8)] * 20, 8)]

    with ThreadPoolExecutor(4) as callers:
        for called in [callers.submit(caller) for _ in range(4)]:
            assert called.result() == [[0, 1, 2, 3, 4]] * 2000


def test_jobs_that_wait_behind_others_keep_no_arrays() -> None:
    class Busy:
        def __init__(self) -> None:
            self.jobs: list[Callable[[], None]] = []

        def give(self, job: Callable[[], None]) -> None:
            self.jobs.append(job)

    helpers = Busy()
    arrays = [np.zeros(8) for _ in range(4)]
    kept = [weakref.ref(array) for array in arrays]
    before = tasks_go_to(helpers)
    try:
        assert run_each(np.sum, [[array] for array in arrays], 4) == [0, 0, 0, 0]
    finally:
        tasks_go_to(before)
    del arrays
    gc.collect(1)
    assert len(helpers.jobs) == 3
    assert not any(reference() is not None for reference in kept)
    for job in helpers.jobs:  # late, with nothing to do
        job()


def test_nobody_waits_for_work_in_the_background() -> None:
    hold, begun = threading.Event(), threading.Semaphore(0)

    def long() -> None:
        begun.release()
        assert hold.wait(DEADLINE)

    def background() -> None:
        in_background()
        run_all([long] * 64, 8)

    thread = threading.Thread(target=background)
    thread.start()
    try:
        assert begun.acquire(timeout=DEADLINE)
        names = run_all([lambda: threading.current_thread().name] * 64, 8)
        assert not any(name.startswith("background") for name in names)
    finally:
        hold.set()
        thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
@pytest.mark.parametrize("chains", [0, 1, 3])
def test_steps_of_a_chain_come_in_order(threads: int, chains: int) -> None:
    done: list[list[int]] = [[] for _ in range(chains)]
    run_chains([[partial(one.append, i) for i in range(50)] for one in done], threads)
    assert done == [[*range(50)]] * chains


def test_after_an_exception_no_chain_goes_on() -> None:
    """A chain may take long: the others end with the step that they do."""
    failed = threading.Event()
    done: list[int] = []

    def fail() -> None:
        failed.set()
        raise KeyboardInterrupt

    def steps(first: Callable[[], object]) -> list[Callable[[], object]]:
        return [first, lambda: failed.wait(DEADLINE), *[partial(done.append, 1)] * 10_000]

    with pytest.raises(KeyboardInterrupt):
        run_chains([steps(fail), steps(int)], 2)
    assert failed.is_set()
    assert len(done) < 10_000


def test_ranges_cover_everything() -> None:
    assert split_range(0, 10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert split_range(0, 100, 4, align=32) == [(0, 32), (32, 64), (64, 100)]
    assert split_range(5, 5, 4) == []
