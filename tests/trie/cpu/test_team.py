"""A team gives results in order, whoever makes them, and errors where they belong; and it ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from functools import partial

import pytest

from tests.waiting import DEADLINE, until
from trie.cpu.team import Done, Team
from trie.cpu.threads import run_all

THREADS = (1, 2, 5)


def teammates():
    return [one for one in threading.enumerate() if one.name.startswith("team_")]


@pytest.fixture(autouse=True)
def ends():
    yield
    for thread in teammates():
        thread.join(DEADLINE)
    assert not teammates()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("threads", THREADS)
def test_results_come_in_order(threads, live):
    with Team(threads, live=live) as team:
        assert list(team.line(range(500), lambda i: i * i, 4)) == [i * i for i in range(500)]


@pytest.mark.parametrize("threads", THREADS)
def test_lines_in_a_chain(threads):
    with Team(threads) as team:
        first = team.line(range(999), lambda i: i + 1, 3)
        threes = zip(first, first, first, strict=True)
        assert list(team.line(threes, sum, 3, takes="end")) == [9 * i + 6 for i in range(333)]


def test_who_waits_for_a_result_does_tasks_of_others():
    both = threading.Barrier(2, timeout=DEADLINE)

    def items():
        while not threading.current_thread().name.startswith("team_"):
            yield
        run_all([both.wait] * 2, 2)

    with Team(2) as team:
        assert set(team.line(items(), lambda item: item, 2, takes="end")) <= {None}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("of", ["items", "work"])
def test_an_error_comes_in_its_place(of, threads):
    def items():
        for i in range(1000):
            if of == "items" and i == 50:
                raise ValueError("the fiftieth")
            yield i

    def work(i):
        if i >= 50:
            message = "the fiftieth" if i == 50 else "a later one"
            raise ValueError(message)
        return i

    taken = []
    with Team(threads) as team, pytest.raises(ValueError, match="the fiftieth"):
        # keeps what came before the error
        taken[:0] = (taken.append(i) for i in team.line(items(), work, 7))
    assert taken == list(range(50))


@pytest.mark.parametrize("threads", THREADS)
def test_no_more_is_pulled_than_may_be_ahead(threads):
    pulled = []
    taken = 0
    with Team(threads) as team:
        for i in team.line((pulled.append(i) or i for i in range(200)), lambda i: i, 6):
            assert i == taken
            taken += 1  # the next may be pulled as soon as one is taken
            assert len(pulled) <= taken + 6


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("seed", range(6))
def test_results_of_calls_of_which_some_have_been_made(seed, threads):
    rng = random.Random(seed)
    share = rng.choice((0, 0.1, 0.9, 1))
    makers = []

    def call(i):
        makers.append(threading.get_ident())
        return i

    calls = (Done(i) if rng.random() < share else partial(call, i) for i in range(300))
    with Team(threads) as team:
        assert list(team.results(calls)) == list(range(300))
    assert len(makers) == 300 or share
    assert not makers or share < 1


@pytest.mark.parametrize("made", [False, True])
def test_calls_whose_results_are_not_wanted_are_closed(made):
    closed = []

    def calls():
        try:
            while True:
                yield Done(1) if made else lambda: 1
        finally:
            closed.append(1)

    with Team(3) as team:
        results = team.results(calls())
        assert [next(results) for _ in range(20)] == [1] * 20
        results.close()
        until(lambda: closed, "the calls are closed")


def test_no_more_threads_work_than_asked_for():
    at_work = []
    most = 0

    def work(i):
        nonlocal most
        at_work.append(i)
        most = max(most, len(at_work))
        # what a kernel gives to other threads is done by the team
        assert run_all([threading.get_ident] * 4, 8)
        names = {one.name for one in threading.enumerate()}
        at_work.remove(i)
        return names

    before = {one.name for one in threading.enumerate()}
    with Team(3) as team:
        names = set().union(*team.line(range(300), work, 8))
    assert most <= 3
    assert names - before == {"team_0", "team_1"}


def test_the_caller_of_a_live_team_takes_what_is_done_while_input_is_waited_for():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as pipe, Team(2, live=True) as team:
        line = team.line(iter(lambda: pipe.read(1), b""), bytes.upper, 4, takes="end")
        for letter in (b"a", b"b", b"c"):
            os.write(writer, letter)
            assert next(line) == letter.upper()
        os.close(writer)
        assert list(line) == []


def test_giving_up_closes_the_items():
    closed = []

    def items():
        try:
            yield from range(1_000_000)
        finally:
            closed.append(True)

    with Team(2) as team:
        assert next(team.line(items(), lambda i: i, 3)) == 0
    assert closed == [True]


def test_what_is_not_taken_before_the_end_is_lost():
    with Team(2) as team:
        line = team.line(range(1_000_000), lambda i: i, 3)
        assert next(line) == 0
    with pytest.raises((RuntimeError, StopIteration)):
        [next(line) for _ in range(10)]


def test_times_of_stages():
    with Team(2) as team:
        line = team.line(range(100), lambda i: sum(range(1000 * i)), 4, pulls="get", works="sum")
        assert len(list(line)) == 100
    stages = team.stages
    assert stages.seconds("sum", "busy") > stages.seconds("get", "busy") > 0


INTERRUPTED = """
import os, signal, threading, time
from trie.cpu.team import Done, Team

def work(i):
    if i == 20:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.001)
    return i

with Team(3) as team:
    for i in team.line(range(1_000_000), work, 4):
        pass
"""


@pytest.mark.whole
def test_an_interrupt_ends_it():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=DEADLINE
    )
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]


def test_lent_threads_do_nothing_until_they_are_back():
    """As many as a library has threads of its own; the others go on."""
    with Team(5) as team:
        with team.lend(3, "library"):
            assert team.lent == 3
            until(lambda: team.stages.seconds("library", "busy") > 0, "a thread sleeps")
            # those that had begun a step before have ended it
            until(lambda: not working(team, 3), "three threads sleep")
            seen = set(team.line(range(300), lambda _: threading.current_thread().name, 4))
            assert not seen & {"team_0", "team_1", "team_2"}
        assert team.lent == 0
        met = threading.Barrier(4, timeout=DEADLINE)
        assert list(team.line(range(4), lambda _: met.wait() >= 0, 4)) == [True] * 4


def working(team, threads):
    """How many of the first threads are not in the stage of a library."""
    found = [one for one in team.stages._sums if ("library", "busy") in one]
    return threads - len(found)


def test_a_team_ends_while_threads_are_lent():
    team = Team(3)
    with team:
        lending = team.lend(2, "library")
        lending.__enter__()
        assert list(team.line(range(50), lambda i: i, 4)) == list(range(50))


def test_no_more_threads_start_than_cores_can_run(monkeypatch):
    monkeypatch.setattr("trie.cpu.threads.usable_cores", lambda: 9)
    with Team(300) as team:
        assert team.threads == 9
        assert len(teammates()) == 8
        assert list(team.line(range(50), abs, 4)) == [*range(50)]
