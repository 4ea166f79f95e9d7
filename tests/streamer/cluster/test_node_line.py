"""A line between two processes of one node."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest

from streamer.cluster import match_worker
from streamer.cluster.connecting import packed, unpacked
from streamer.cluster.match_worker import SLOTS, NodeLine, readable
from tests.waiting import DEADLINE


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


@pytest.mark.parametrize("change", [{"host": "another"}, {"name": "pipe:[0]"}])
def test_a_worker_elsewhere_has_no_line(change, worker):
    assert NodeLine.at(worker[1]._replace(**change)) is None


def test_descriptors_are_closed(worker):
    before = set(os.listdir("/proc/self/fd"))
    NodeLine.at(worker[1]).close()
    assert NodeLine.at(worker[1]._replace(memory=1 << 20)) is None
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_is_too_large_is_not_sent(worker, monkeypatch):
    line = NodeLine.at(worker[1])
    monkeypatch.setattr(match_worker, "SLOT_BYTES", 1 << 12)
    assert not line.send(0, packed(np.zeros(1 << 10)))
    assert readable([line], 0) == []
    line.close()
