"""Stages that are really blocked: each is named in one line, in the status and as a metric."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from streamer.client import Control, Producer
from streamer.daemon import watched_stages
from streamer.daemon.process import cpu_seconds, state_of
from streamer.journal.disk import Disk
from tests.daemon_kit import GENOME, reads_of, running, settings
from tests.scraping import scrape, value
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

METRICS = ["metrics.endpoint=127.0.0.1:0"]
STUCK = 1.5  # seconds: a thread may wait as long for a core while other tests run
JOURNAL = ["journal.durability=fsync", "journal.directory=journal"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(watched_stages, "STUCK_SECONDS", STUCK)


@pytest.fixture
def lines(monkeypatch):
    """What the watchdog logs."""
    found = []

    class Log:
        def warning(self, event, **fields):
            found.append((event, fields["stage"], fields["waits_for"]))

        def info(self, event, **fields):
            found.append((event, fields["stage"]))

    monkeypatch.setattr(watched_stages, "log", Log())
    return found


class Blocked:
    """In place of a function: waits until it may go on, then calls it."""

    def __init__(self, function):
        self.begun, self.free = threading.Event(), threading.Event()
        self._function = function

    def __call__(self, *arguments, **named):
        self.begun.set()
        assert self.free.wait(DEADLINE)
        return self._function(*arguments, **named)


@contextmanager
def blocked(monkeypatch, owner, name):
    """The function waits meanwhile."""
    block = Blocked(getattr(owner, name))
    with monkeypatch.context() as patch:
        # a function, which also becomes a method
        patch.setattr(owner, name, lambda *given, **named: block(*given, **named))
        try:
            yield block
        finally:
            block.free.set()


def send(daemon, batches=1):
    """Batches that nobody waits for; the thread that sends them."""
    rng = random.Random(3)

    def work():
        with Producer(daemon.endpoints["ingest"]) as producer:
            for _ in range(batches):
                producer.send(reads_of(GENOME, rng, 20))
            producer.flush()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def check_stuck(daemon, lines, stage, waits_for, earlier=()):
    """The stage is named, and nothing else; earlier: the stages that were named before."""
    stalls = Counter([*earlier, stage])
    endpoints = daemon.service.status.endpoints
    with Control(endpoints["control"]) as control:
        until(lambda: control.status()["stuck"], f"{stage} is stuck")
        stuck = control.status()["stuck"]
    assert [*stuck] == [stage]
    assert waits_for in stuck[stage]["waits_for"]
    assert stuck[stage]["seconds"] >= STUCK
    assert [line[:2] for line in lines] == [("no progress", stage)]
    assert waits_for in lines[0][2]
    samples = scrape(endpoints["metrics"])
    for name in daemon.service._stages | {"gpu": None}:
        assert value(samples, "streamer_stage_stuck", stage=name) == (name == stage)
        assert value(samples, "streamer_stage_stalls_total", stage=name) == stalls[name]
    assert value(samples, "streamer_stage_progress_age_seconds", stage=stage) >= STUCK


def check_free(daemon, lines, stage):
    """The stage has gone on, which is said once."""
    status = daemon.service.status
    until(lambda: not status.stuck, f"{stage} goes on")
    assert lines[1:] == [("progress again", stage)]
    samples = scrape(status.endpoints["metrics"])
    assert value(samples, "streamer_stage_stuck", stage=stage) == 0
    lines.clear()


def test_engine_feed_and_gpu(path, monkeypatch, lines):
    with running(path, METRICS) as daemon:
        engine, earlier = daemon.service._engine, []

        def check(stage, waits_for, batches=1):
            sending = send(daemon, batches)
            check_stuck(daemon, lines, stage, waits_for, earlier)
            earlier.append(stage)
            return sending

        def check_on(stage, sending):
            sending.join(DEADLINE)
            check_free(daemon, lines, stage)

        with blocked(monkeypatch, engine.matcher, "match"):
            sending = check("engine", "batch 0 to be matched", 8)
        check_on("engine", sending)
        busy = scrape(daemon.service.status.endpoints["metrics"])
        # less than STUCK: the watchdog counts from its look before the batch came
        assert value(busy, "streamer_stage_busy_seconds_total", stage="engine") > STUCK / 2
        # nothing behind it is stuck: so it is named, although it only waits
        with daemon.engine_held():
            sending = check("engine", "to be stored and published")
        check_on("engine", sending)
        with blocked(monkeypatch, daemon.service._feed, "_publish"):
            sending = check("feed", "to be laid out and sent", 8)
        check_on("feed", sending)
        with blocked(monkeypatch, engine._matcher, "match"):
            monkeypatch.setattr(engine, "matcher", OnGpu(engine._matcher))
            sending = check("gpu", "results of CUDA device 0, 2")
        check_on("gpu", sending)


def test_the_tree(tmp_path, monkeypatch, lines):
    with running(settings(tmp_path, "k = 11"), METRICS) as daemon:
        tree = daemon.service._engine.matcher.tree
        with blocked(monkeypatch, tree._tree, "merge"):
            sending = send(daemon)
            check_stuck(daemon, lines, "tree", "a merge")
        sending.join(DEADLINE)
        check_free(daemon, lines, "tree")


def test_the_journal_whose_sync_does_not_return(path, monkeypatch, lines):
    """The engine is held up by it, and the feed has nothing to do: neither is named."""
    with running(path, [*METRICS, *JOURNAL]) as daemon:
        with blocked(monkeypatch, Disk, "sync") as block:
            sending = send(daemon, 20)
            assert block.begun.wait(DEADLINE)
            check_stuck(daemon, lines, "journal", "the disk of the journal")
        sending.join(DEADLINE)
        check_free(daemon, lines, "journal")


class OnGpu:
    """A matcher that says that a GPU matches."""

    device = "cuda"

    def __init__(self, matcher):
        self._matcher = matcher
        self.spec = SimpleNamespace(cards=(0, 2))

    def __getattr__(self, name):
        return getattr(self._matcher, name)


def test_a_daemon_without_work_is_not_stuck(path, lines):
    with running(path, [*METRICS, *JOURNAL]) as daemon:
        send(daemon).join(DEADLINE)
        looks = []
        guard = daemon.service._guard_of_stages
        look = guard.look
        guard.look = lambda: (look(), looks.append(0))
        until(lambda: len(looks) > 4, "looks")
        assert lines == []


def test_processes():
    assert state_of(os.getpid()) == "runs"
    assert cpu_seconds(os.getpid()) > 0
    gone = 1 << 30
    assert (state_of(gone), cpu_seconds(gone)) == ("has ended", 0.0)
