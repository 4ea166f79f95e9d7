"""The end of the daemon: what is acknowledged is published first, and every client is told."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from streamer.client import (
    Producer,
    ReadSummaries,
    RefusedError,
    Status,
    Subscriber,
)
from streamer.matching.matcher import StreamMatcher
from tests.daemon_kit import (
    DEADLINE,
    GOOD,
    Raw,
    Running,
    list_batch,
    running,
)
from tests.waiting import until

pytestmark = pytest.mark.whole


def await_state(raw, kind, state):
    """The next answer of a type that names this state."""
    while True:
        answer = raw.receive_type(kind)
        if answer["state"] == state:
            return answer


def test_nothing_is_accepted_between_the_end_and_the_last_thread(path, monkeypatch):
    """Newcomers that send while the threads stop are refused: nobody matches any more."""
    ended, go_on = threading.Event(), threading.Event()
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read", "status"]) as feed,
        Raw(daemon.endpoints["ingest"]) as raw,
        Raw(daemon.endpoints["ingest"]) as late,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        engine = daemon.service._engine

        def stop():
            ended.set()
            assert go_on.wait(DEADLINE)
            engine.stopping.set()

        monkeypatch.setattr(engine, "stop", stop)
        raw.send(*GOOD)
        raw.accepted(1, matched=1)
        daemon.service.drain("enough")
        assert ended.wait(DEADLINE)
        late.send({"v": 2, "type": "hello", "producer": "newcomer", "epoch": 1})
        late.send(*list_batch(1, [["late", "ACGT" * 9]], producer="newcomer"))
        answer = late.receive_type("refused")
        go_on.set()
        assert (answer["type"], answer["reason"]) == ("refused", "draining")
        assert (answer["state"], answer["credit"], answer["received"]) == ("ended", 0, 0)
        daemon.join()
        messages = list(feed)
    assert messages[-1].state == "ended"
    assert [m.origin.producer for m in messages if isinstance(m, ReadSummaries)] == ["raw"]


def test_one_turn_of_ingest_has_one_state(path, monkeypatch):
    """A drain that begins while ingest is at work gives no credit that is not meant."""
    with running(path) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        ingest, status = daemon.service._ingest, daemon.service.status
        take_in, sent = ingest._take_in, threading.Event()

        def drained_meanwhile():
            take_in()
            if sent.is_set() and status.state == "running":
                daemon.service.drain("now")
                while status.state == "running":
                    time.sleep(0)

        raw.open(epoch=1)
        monkeypatch.setattr(ingest, "_take_in", drained_meanwhile)
        raw.send(*GOOD)
        sent.set()
        answers = [raw.receive()]
        while answers[-1]["state"] != "ended":
            answers.append(raw.receive())
    assert all(a["credit"] == 0 for a in answers if a["state"] != "running")
    assert answers[-1]["matched"] == answers[-1]["received"]


def test_a_producer_that_waits_for_credit_ends_with_a_refusal(path):
    with (
        running(path, ["ingest.memory_bytes=1048576", "ingest.max_batch_bytes=1000000"]) as daemon,
        daemon.engine_held(),
        closing(Producer(daemon.endpoints["ingest"])) as producer,
    ):
        producer.send([("first", "ACGT" * 200_000)])

        def drain():
            until(lambda: daemon.service.status.queued_batches == 1, "the first one is accepted")
            until(lambda: not producer._core.all_sent, "a batch without credit")
            daemon.service.drain("enough")

        draining = threading.Thread(target=drain)
        draining.start()
        with pytest.raises(RefusedError, match="accepts no more batches"):
            producer.send([("second", "ACGT" * 200_000)], timeout=DEADLINE)
        draining.join()
        assert producer.durable == 1


def test_a_failure_is_not_called_an_end(path, monkeypatch, streamer):
    """What was accepted is lost then: those who listen and those who send can tell."""
    daemon = Running(path)
    daemon.wait_until_open()
    with (
        Raw(daemon.endpoints["ingest"]) as raw,
        Subscriber(daemon.endpoints["feed"], ["status"]) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        raw.send(*GOOD)
        raw.accepted(1, matched=1)
        monkeypatch.setattr(StreamMatcher, "match", lambda *_, **__: 1 // 0)

        def send():
            daemon.wait_for_subscriptions("beat", "match", "status")
            raw.send(*list_batch(2, [["r", "ACGT" * 9]]))

        sending = threading.Thread(target=send)
        sending.start()
        code, _, err = streamer("watch", "--from", daemon.endpoints["feed"])
        sending.join()
        answer = await_state(raw, "ack", "failed")
        assert (answer["received"], answer["matched"], answer["credit"]) == (2, 1, 0)
        states = [message.state for message in feed if isinstance(message, Status)]
        assert states[-1] == "failed"
        assert feed.failed
    daemon.join()
    assert str(daemon.error) == (
        "the engine thread failed: ZeroDivisionError: integer division or modulo by zero"
    )
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("streamer: error: ")]
    assert lines == [
        f"streamer: error: {daemon.endpoints['feed']}: the daemon failed: batches that it had "
        "accepted may be missing here"
    ]
