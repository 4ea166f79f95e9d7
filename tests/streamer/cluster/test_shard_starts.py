"""Starts of workers, their line to the daemon on one node, and their version."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest

from streamer import __version__
from streamer.cluster import match_worker
from streamer.cluster.batch_tasks import run_tile
from streamer.cluster.cluster_tasks import RETRIES, perform
from streamer.cluster.connecting import packed, unpacked
from streamer.cluster.match_worker import SLOTS, MatchWorker, NodeLine, readable
from streamer.cluster.worker_team import LONGEST_PAUSE, START_SECONDS, ShardStarts
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from tests.waiting import DEADLINE


@pytest.fixture
def starts():
    return ShardStarts(1000.0)


def late(seconds):
    return 1000.0 + START_SECONDS + seconds


def test_without_a_sign_of_life_it_is_given_up_after_a_while(starts):
    assert not starts.given_up(late(0))
    assert starts.given_up(late(1))
    assert starts.reason().startswith("none has started for 60 s")


def test_a_sign_of_life_is_waited_for_without_end(starts):
    for second in range(10_000):
        starts.alive(1000.0 + second)
        assert not starts.given_up(1000.0 + second)
    assert not starts.given_up(11_000.0)
    assert starts.given_up(11_000.0 + START_SECONDS)


def test_once_given_up_it_stays_so_until_one_works(starts):
    assert starts.given_up(late(1))
    starts.alive(late(2))
    assert starts.given_up(late(2))
    starts.working(late(3))
    assert not starts.given_up(late(3))


def test_it_says_once_that_it_waits_long(starts):
    starts.alive(late(0))
    assert [starts.is_late(late(at)) for at in (0, 1, 2)] == [False, True, False]


def test_killed_starts_are_tried_again_at_once_and_are_no_end(starts):
    for kill in range(RETRIES):
        now = 1000.0 + 20 * kill
        starts.failed(now, "died", raised=False)
        assert starts.may_start(now, works=False), kill
        assert not starts.given_up(now), kill


def test_starts_that_always_die_pause_and_are_given_up(starts):
    for _ in range(RETRIES + 1):
        starts.failed(1010.0, "died (of hunger)", raised=False)
    assert not starts.may_start(1011.9, works=False)
    assert starts.may_start(1012.0, works=False)
    starts.alive(late(0))
    assert not starts.given_up(late(0))
    assert starts.given_up(late(1))
    assert starts.reason() == "8 have failed while starting; the last one died (of hunger)"


@pytest.mark.parametrize(("works", "raised"), [(True, False), (False, True), (True, True)])
def test_others_pause_longer_and_longer(works, raised, starts):
    now, pauses = 1000.0, []
    for _ in range(7):
        starts.failed(now, "failed", raised=raised)
        first = next(more for more in range(100) if starts.may_start(now + more / 2, works=works))
        pauses.append(first / 2)
        now += first / 2
    assert pauses == [2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    starts.started()
    assert starts.may_start(now, works=works)


def test_one_that_raises_was_no_life(starts):
    starts.alive(late(0))
    starts.failed(late(1), "failed (wrong version)", raised=True)
    assert starts.given_up(late(1))
    assert starts.reason() == "one has failed while starting; the last one failed (wrong version)"


def test_one_worker_that_starts_makes_good_for_all_that_failed(starts):
    for _ in range(RETRIES + 1):
        starts.failed(1001.0, "died", raised=False)
    starts.started()
    starts.working(1002.0)
    starts.failed(1003.0, "died", raised=False)
    assert starts.may_start(1003.0, works=False)
    assert not starts.given_up(1003.0 + START_SECONDS)


def test_while_the_caller_is_busy_no_silence_counts(starts):
    starts.delayed(100.0)
    assert not starts.given_up(late(99))
    assert starts.given_up(late(101))


def echo(conn):
    """Send back, by a line, the sum of each array that comes and the number with it."""
    line, address = NodeLine.new()
    conn.send(address)
    while True:
        slot, parts, number = line.receive()
        line.send(slot, packed(unpacked(parts).sum()), number)


@pytest.fixture
def worker():
    """A process with a line, and where it is."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(there,), daemon=True)
    process.start()
    there.close()
    assert here.poll(DEADLINE)
    yield process, here.recv()
    process.kill()
    process.join()
    here.close()


@pytest.mark.whole
def test_objects_go_there_and_back(worker):
    line = NodeLine.at(worker[1])
    assert readable([line], 0) == []
    for number in range(3 * SLOTS):
        array = np.arange(100_000) + number
        assert line.send(number % SLOTS, packed(array), number)
        assert readable([line], DEADLINE) == [line]
        slot, parts, same = line.receive()
        assert (slot, same) == (number % SLOTS, number)
        assert unpacked(parts) == array.sum()
    line.close()


@pytest.mark.whole
def test_the_end_of_the_worker_shows_in_receive(worker):
    process, address = worker
    line = NodeLine.at(address)
    process.kill()
    process.join()
    assert line.send(0, packed(np.arange(9)))
    assert readable([line], DEADLINE) == [line]
    with pytest.raises(EOFError):
        line.receive()
    line.close()
    assert NodeLine.at(address) is None


@pytest.mark.whole
@pytest.mark.parametrize("change", [{"host": "another"}, {"name": "pipe:[0]"}])
def test_a_worker_elsewhere_has_no_line(change, worker):
    assert NodeLine.at(worker[1]._replace(**change)) is None


@pytest.mark.whole
def test_descriptors_are_closed(worker):
    before = set(os.listdir("/proc/self/fd"))
    NodeLine.at(worker[1]).close()
    assert NodeLine.at(worker[1]._replace(memory=1 << 20)) is None
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.whole
def test_what_is_too_large_is_not_sent(worker, monkeypatch):
    line = NodeLine.at(worker[1])
    monkeypatch.setattr(match_worker, "SLOT_BYTES", 1 << 12)
    assert not line.send(0, packed(np.zeros(1 << 10)))
    assert readable([line], 0) == []
    line.close()


FAULT = rf"^a worker has version {__version__} of kmer-streamer, "


def test_a_tile_of_another_version_is_refused():
    with pytest.raises(StreamerError, match=FAULT + r"this command 0\.0$"):
        run_tile("0.0", packed(None), (0, 1, 0, 1, False), None, None, False)


def test_a_task_of_another_version_is_refused():
    done = perform("0.0", "key", packed(""), packed(""))
    assert unpacked(done).lines == [
        f"a worker has version {__version__} of kmer-streamer, this command 0.0"
    ]


def test_a_daemon_of_another_version_is_refused():
    empty = Dictionary.empty(11, "canonical")
    with pytest.raises(StreamerError, match=FAULT + r"the daemon 0\.0$"):
        MatchWorker().load("0.0", [packed(None)], [empty.codes], 0)
