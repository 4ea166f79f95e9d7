"""Work in forked processes: results in order, wherever and however processes end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from trie.cpu import forks
from trie.cpu.forks import forked
from trie.cpu.stages import Stages

pytestmark = pytest.mark.whole

HERE = os.getpid()


@pytest.fixture(autouse=True)
def none_left():
    before = children()
    yield
    assert children() == before


def children():
    return sorted(
        pid
        for path in Path("/proc/self/task").glob("*/children")
        for pid in path.read_text().split()
    )


def run(items, work, processes=3, stages=None):
    """The single result of each item."""
    return of_many(items, lambda item: [work(item)], processes, stages)


def of_many(items, work, processes=3, stages=None):
    return forked(items, work, processes, stages or Stages(), works="work", takes="take")


def away():
    return os.getpid() != HERE


@pytest.mark.parametrize("processes", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 60])
def test_results_come_in_order_from_other_processes(count, processes):
    def work(item):
        if item % 3 == 0:
            time.sleep(0.001)  # answered later than what follows
        return item * item, os.getpid()

    found = list(run(range(count), work, processes))
    assert [square for square, _ in found] == [item * item for item in range(count)]
    others = {pid for _, pid in found[1:]}
    assert HERE not in others
    assert len(others) <= processes
    assert others or count < 2


@pytest.mark.parametrize(("processes", "most"), [(1, 0), (2, 10_000), (5, 0), (5, 1 << 28)])
def test_an_item_may_have_any_number_of_results_of_any_size(processes, most, monkeypatch):
    """However few bytes of results may wait."""
    monkeypatch.setattr(forks, "MOST_BYTES", most)
    sizes = [0, 1, 100, 1000, 1 << 20, 5_000_001]

    def work(item):
        for number in range(item * 7 % 11):
            array = np.full(sizes[item % 4 if number else item % 6], item, np.uint8)
            yield item, number, {"bytes": array}

    wanted = [(item, number) for item in range(24) for number in range(item * 7 % 11)]
    found = list(of_many(range(24), work, processes))
    assert [(item, number) for item, number, _ in found] == wanted
    for item, number, made in found:
        size = sizes[item % 4 if number else item % 6]
        assert made["bytes"].tobytes() == bytes([item]) * size
        assert made["bytes"].flags.writeable


@pytest.mark.parametrize("processes", [1, 3])
def test_what_a_killed_process_did_not_give_is_made_here(processes):
    def work(item):
        for number in range(5):
            if (item, number) == (4, 3) and away():
                os.kill(os.getpid(), signal.SIGKILL)
            yield item, number, away()

    found = list(of_many(range(12), work, processes))
    assert [place[:2] for place in found] == [(i, number) for i in range(12) for number in range(5)]
    assert [there for *_, there in found[20:25]] == [True, True, True, False, False]


def test_an_exception_after_some_results_of_an_item():
    def work(item):
        yield item
        if item == 3:
            raise OSError("three")

    results = of_many(range(9), work)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(OSError, match="three"):
        next(results)


def test_an_exception_of_the_items_comes_after_the_results_before_it():
    def items():
        yield from range(4)
        raise KeyError("no more")

    results = run(items(), lambda item: item)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="no more"):
        next(results)


def test_all_are_worked_on_here_if_none_can_be_forked(monkeypatch):
    monkeypatch.setattr(os, "fork", fails)
    assert list(run(range(10), lambda item: (item, away()))) == [(i, False) for i in range(10)]


def fails():
    raise BlockingIOError("Resource temporarily unavailable")


def test_results_are_made_here_as_they_are_taken(monkeypatch):
    """There may be more than fit into memory."""
    monkeypatch.setattr(os, "fork", fails)
    made = []

    def work(item):
        for number in range(50):
            made.append((item, number))
            yield item, number

    results = of_many(range(3), work)
    next(results)  # made for its effects, and again with the others
    for taken in range(1, 150):
        assert next(results) == divmod(taken, 50)
        assert len(made) == taken + 2
    assert list(results) == []


def test_items_without_results_precede_the_one_that_is_done_before_a_fork():
    """What the first result loads or compiles is shared."""
    loaded = []

    def work(item):
        if item >= 3:
            shared = bool(loaded)
            loaded.append(item)
            yield item, shared

    found = list(of_many(range(20), work))
    assert found == [(3, False), *((item, True) for item in range(4, 20))]


def test_memory_may_suffice_for_one_process():
    def work(item):
        if item % 4 == 1 and away():
            raise MemoryError
        return item

    assert list(run(range(20), work)) == list(range(20))


class OddError(Exception):
    """Cannot be unpickled."""

    def __init__(self, number, unit):
        super().__init__(f"{number} {unit}")


def test_an_exception_that_cannot_be_unpickled_is_raised_here():
    def work(item):
        if item == 2:
            raise OddError(item, "things")
        return item

    results = run(range(9), work)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OddError, match="2 things"):
        next(results)


def test_a_forked_process_runs_no_handler_of_the_parent():
    """It would remove its unfinished files."""
    read, ends = os.pipe()
    before = signal.signal(signal.SIGHUP, lambda *_: os.write(ends, b"handled"))

    def work(item):
        if item == 2 and away():
            os.kill(os.getpid(), signal.SIGHUP)
        return item, away()

    try:
        found = list(run(range(6), work, 1))
    finally:
        signal.signal(signal.SIGHUP, before)
        os.close(ends)
    assert os.read(read, 100) == b""
    os.close(read)
    assert found[2] == (2, False)


def test_a_forked_process_survives_a_signal_that_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def work(item):
        if away():
            os.kill(os.getpid(), signal.SIGHUP)
        return item, away()

    try:
        assert all(there for _, there in list(run(range(6), work, 2))[1:])
    finally:
        signal.signal(signal.SIGHUP, before)


def test_forked_processes_say_nothing(capfd):
    """As that something is compiled, once for each."""

    def work(item):
        print(item, file=sys.stderr, flush=True)

    list(run(range(6), work, 2))
    assert capfd.readouterr().err == "0\n"


def test_a_daemonic_process_may_fork(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert list(run(range(6), lambda item: item)) == list(range(6))


def test_children_may_be_reaped_by_the_system():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert list(run(range(9), lambda item: item)) == list(range(9))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_results_that_cannot_be_pickled_are_made_here():
    def work(item):
        return threading.Lock() if item == 3 else item

    found = list(run(range(6), work))
    assert found[:3] + found[4:] == [0, 1, 2, 4, 5]


def test_the_work_is_a_bounded_number_of_items_ahead():
    pulled = []

    def items():
        for item in range(1000):
            pulled.append(item)
            yield item

    results = run(items(), lambda item: item, 2)
    for taken in range(50):
        next(results)
        assert len(pulled) <= taken + 2 + 2 * forks.AHEAD
    results.close()


def test_the_time_of_the_processes_counts():
    stages = Stages("work", "take")

    def work(_):
        with stages.spent("inner"):
            until = time.perf_counter() + 0.02
            while time.perf_counter() < until:
                pass

    assert len(list(run(range(9), work, 2, stages))) == 9
    assert stages.seconds("inner", "busy") >= 9 * 0.02
    assert stages.seconds("work", "busy") > 0
    assert stages.seconds("take", "input") > 0


def test_what_other_threads_count_before_a_fork_counts():
    stages = Stages("work", "take")

    def work(_):
        stages.count("work", 100)
        if not away():
            thread = threading.Thread(target=stages.count, args=("take", 10))
            thread.start()
            thread.join()

    assert len(list(run(range(9), work, 2, stages))) == 9
    assert stages.size("work") == 900
    assert stages.size("take") == 10


def test_an_interrupt_ends_the_processes():
    def work(item):
        if away() and item == 4:
            os.kill(HERE, signal.SIGINT)
            time.sleep(60)
        return item

    with pytest.raises(KeyboardInterrupt):
        list(run(range(20), work, 2))


def test_an_interrupt_before_a_fork_leaves_no_signal_blocked(monkeypatch):
    mask = signal.pthread_sigmask

    def interrupted(how, signals):
        found = mask(how, signals)
        if how == signal.SIG_BLOCK and signals:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run(range(4), lambda item: item))
    left = mask(signal.SIG_SETMASK, ())
    assert not left
