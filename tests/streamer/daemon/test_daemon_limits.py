"""What clients cannot do to a daemon: fill its memory, or harm others with what is refused."""

from __future__ import annotations

import ast
import json
import random
import signal
from contextlib import contextmanager

import msgpack
import pytest
import zmq

from streamer.client import Control, Producer, Subscriber
from streamer.daemon import control as control_room
from streamer.daemon.core.feed import MAX_IGNORED
from tests.daemon_kit import (
    GENOME,
    GOOD,
    Raw,
    columns_batch,
    list_batch,
    process,
    random_dna,
    running,
    sealed,
    wait_for_line,
)
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


def resident(child):
    """The megabytes of a process."""
    with open(f"/proc/{child.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


@contextmanager
def subscribing(endpoint, topics):
    """A socket with these subscriptions, which libzmq sends again after every reconnection."""
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.sndhwm = 0
    socket.connect(endpoint)
    for topic in topics:
        socket.subscribe(topic)
    try:
        yield socket
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize(("transport", "size"), [("ipc", 1000), ("tcp", 50)])
def test_subscriptions_to_what_is_no_topic_take_no_memory(path, tmp_path, transport, size):
    rng = random.Random(size)
    asked = ["run", "--config", path, "--set", "feed.beat_seconds=0.05"]
    if transport == "tcp":
        asked += ["--set", "feed.endpoint=tcp://127.0.0.1:*"]
    with process(asked) as child:
        wait_for_line(child, '"ready"')
        with Control(f"ipc://{tmp_path}/control") as control:
            endpoint = control.status()["endpoints"]["feed"]
            with Subscriber(endpoint, ["read"]) as feed:
                assert feed.wait_for_daemon(DEADLINE)
                before = resident(child)
                topics = [rng.randbytes(size) for _ in range(10_000)]
                with subscribing(endpoint, topics) as greedy:
                    if size < 64:
                        enough = 5 * MAX_IGNORED
                        until(
                            # libzmq subscribes anew, after a connection ended, when it is called
                            lambda: (
                                greedy.poll(1),
                                control.status()["subscriptions"]["ignored"] > enough,
                            )[1],
                            "ignored subscriptions",
                        )
                    with Producer(f"ipc://{tmp_path}/ingest") as producer:
                        for number in range(20):
                            producer.send([(f"r{number}", GENOME[:50])])
                        producer.flush(matched=True)
                    names = [
                        name for _ in range(20) for name in feed.receive(DEADLINE).origin.names
                    ]
                    assert names == [f"r{number}" for number in range(20)]
                    status = control.status(subscriptions=True)
                    assert resident(child) < before + 40
                assert (feed.gaps, feed.damaged) == (0, 0)
        # those of the subscriber, and nothing of the others
        assert status["prefixes"] == {"read.": 1, "status.": 1, "beat.": 1}
        assert status["subscriptions"]["kept"] == 3
        assert len(msgpack.packb(status)) < 3_000


def test_a_few_subscriptions_to_what_is_no_topic_do_no_harm(small):
    """As those of a client for a later version."""
    endpoint = small.endpoints["feed"]
    small.wait_for_subscriptions()
    before = small.service.status.ignored_subscriptions
    later = [b"novel%d." % number for number in range(MAX_IGNORED)]
    with (
        subscribing(endpoint, [*later, b"beat."]) as socket,
        Control(small.endpoints["control"]) as control,
    ):
        for _ in range(2):
            assert socket.poll(DEADLINE * 1000)
            assert socket.recv_multipart()[0] == b"beat."
        status = control.status(subscriptions=True)
        assert status["prefixes"] == {"beat.": 1}
        assert "prefixes" not in control.status()
        counts = status["subscriptions"]
        assert counts == {"kept": 1, "ignored": before + MAX_IGNORED}


def flood(socket, message, ended):
    """Send a message again and again until the connection is ended; returns how many were sent."""
    for sent in range(1, 1_000_000):
        socket.send(message)
        if sent % 100 == 0 and ended():
            return sent
    pytest.fail("the connection was never ended")


def test_who_repeats_a_subscription_without_end_is_ended(small):
    """libzmq keeps what comes until the daemon takes it, and takes it faster than the daemon."""
    for message in (b"\x01word.", b"\x01", b"\x01nothing"):
        context = zmq.Context()
        socket = context.socket(zmq.XSUB)
        socket.sndhwm = 0
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            socket.connect(small.endpoints["feed"])
            flood(socket, message, lambda: monitor.poll(0))  # noqa: B023
            with Subscriber(small.endpoints["feed"], ["read"]) as feed:
                assert feed.wait_for_daemon(DEADLINE)
        finally:
            socket.disable_monitor()
            context.destroy(linger=0)
        small.wait_for_subscriptions()


def test_a_subscription_that_is_repeated_ends_with_its_connection(small):
    """Words are computed only while somebody subscribes to them."""
    small.wait_for_subscriptions()
    with (
        subscribing(small.endpoints["feed"], [b"word.", b"word.", b"beat."]) as socket,
        Control(small.endpoints["control"]) as control,
    ):
        assert socket.poll(DEADLINE * 1000)
        assert control.status(subscriptions=True)["prefixes"] == {"word.": 1, "beat.": 1}
    small.wait_for_subscriptions()


FOLLOW = """
import sys
from streamer.client import Gap, Subscriber
with Subscriber(sys.argv[1], ["match", "read"], answer_seconds=600) as feed:
    feed.wait_for_daemon(600)
    print("ready", flush=True)
    seen = {"match": 0, "read": 0}
    for message in feed:
        gap = isinstance(message, Gap)
        topic = message.topic if gap else message.stamp.topic
        if gap:
            seen[topic + " gaps"] = seen.get(topic + " gaps", 0) + 1
        else:
            seen[topic] += 1
print(seen)
"""


def test_a_subscriber_that_stopped_takes_no_more_than_its_share(path, tmp_path):
    """It is ended, and notices what it missed; what waits for it is in memory once."""
    rng = random.Random(6)
    # matches and mismatches in turn: 32 bytes a row, and a row every ten bases
    pieces = [GENOME[i : i + 15] + random_dna(rng, 5) for i in range(0, 3900, 30)]
    reads = [(f"r{i}", "".join(rng.choices(pieces, k=500))) for i in range(50)]
    limits = ["--set", "ingest.memory_bytes=2_000_000", "--set", "ingest.max_batch_bytes=1_000_000"]
    limits += ["--set", "feed.buffer_bytes=16_777_216"]
    with process(["run", "--config", path, *limits]) as child:
        wait_for_line(child, '"ready"')
        with (
            Control(f"ipc://{tmp_path}/control") as control,
            Producer(f"ipc://{tmp_path}/ingest") as producer,
            process([f"ipc://{tmp_path}/feed"], FOLLOW) as follower,
        ):
            assert follower.stdout.readline() == "ready\n"

            def send(batches):
                most = 0
                for _ in range(batches):
                    producer.send(reads, timeout=DEADLINE)
                    producer.flush(timeout=DEADLINE, matched=True)
                    most = max(most, resident(child))
                return most

            before = send(30)
            follower.send_signal(signal.SIGSTOP)
            # it may have been slow before, where cores are few
            slow = control.status()["feed"]["slow"]
            most = send(200)
            until(lambda: control.status()["subscriptions"]["kept"] == 0, "it is ended")
            status = control.status()["feed"]
            follower.send_signal(signal.SIGCONT)
            # 160 MB were published meanwhile
            assert most < before + 80
            assert status["slow"] <= slow + 1
            assert status["bytes"] < 16_777_216
            said = json.loads(wait_for_line(child, "slow subscriber"))
            assert said["waiting_bytes"] <= said["buffer_bytes"] == 16_777_216
            until(lambda: control.status()["subscriptions"]["kept"] >= 4, "it comes again")
            send(1)
            control.drain()
            seen = ast.literal_eval(follower.communicate(timeout=DEADLINE)[0])
    assert seen["read gaps"] >= 1
    assert seen["match gaps"] >= 1
    assert seen["read"] < 231


def requests(count):
    for number in range(count):
        yield sealed(msgpack.packb({"v": 2, "id": number, "command": "status"}))


def test_control_answers_dealers_and_reqs(small):
    known = "status, drain, reload, ask, targets, panel, coverage, novelty, submit, jobs, job, "
    known += "cancel, retry, result"
    for kind in (zmq.DEALER, zmq.REQ):
        with Raw(small.endpoints["control"], kind) as raw:
            raw.send({"v": 2, "id": "x", "command": "status"})
            answer = raw.receive()
            state = answer["status"]["state"]
            assert (answer["ok"], answer["id"], state) == (True, "x", "running")
            raw.send({"v": 2, "id": 2, "command": "dance"})
            answer = raw.receive()
            assert not answer["ok"]
            assert answer["message"] == f"unknown command 'dance' (known: {known})"
            raw.send(b"\xc1")
            assert raw.receive()["reason"] == "malformed"


def test_every_request_has_a_reply_however_many_are_sent_at_once(small):
    before = small.service.status.unanswered
    with Raw(small.endpoints["control"]) as raw:
        raw.socket.sndhwm = raw.socket.rcvhwm = 1000
        raw.socket.disconnect(small.endpoints["control"])
        raw.socket.sndhwm = 0
        raw.socket.connect(small.endpoints["control"])
        count = 20_000
        for request in requests(count):
            raw.socket.send_multipart(request)
        assert [raw.receive()["id"] for _ in range(count)] == [*range(count)]
    assert small.service.status.unanswered == before


def test_whoever_does_not_read_replies_holds_up_nobody(small, monkeypatch):
    monkeypatch.setattr(control_room, "MAX_PENDING", 2_000)
    before = small.service.status.unanswered
    with Raw(small.endpoints["control"]) as raw, Control(small.endpoints["control"]) as other:
        raw.socket.disconnect(small.endpoints["control"])
        raw.socket.sndhwm = 0
        raw.socket.connect(small.endpoints["control"])
        for request in requests(20_000):
            raw.socket.send_multipart(request)
        until(lambda: other.status()["unanswered"] > before, "replies without room")
        for _ in range(100):
            assert other.status()["state"] == "running"
        assert small.service._control._count <= 2_001
        # what it gets is in order
        first = [raw.receive()["id"] for _ in range(1_000)]
        assert first == [*range(1_000)]
    until(lambda: not small.service._control._pending, "the replies of a client that has gone")


def test_a_routing_id_can_be_used_again(small):
    """By a client that comes again before its first connection is known to have ended."""
    sockets = []
    context = zmq.Context()
    try:
        for number in range(3):
            socket = context.socket(zmq.DEALER)
            socket.routing_id = b"same"
            socket.connect(small.endpoints["control"])
            sockets.append(socket)
            (request,) = requests(1)
            socket.send_multipart(request)
            assert socket.poll(DEADLINE * 1000), f"no reply to connection {number}"
            assert msgpack.unpackb(socket.recv_multipart()[0])["ok"]
    finally:
        context.destroy(linger=0)


# as deep as msgpack reads, deeper than what Python can write out
DEEP = b"\x91" * 1015 + b"\x01"
MARK = msgpack.packb("deep")
NESTED = {
    field: msgpack.packb(list_batch(1, [])[0] | {field: "deep"}).replace(MARK, DEEP)
    for field in ("v", "type", "form")
}

HELLO = {"v": 2, "type": "hello", "producer": "raw", "epoch": 1}
MALFORMED = {
    "not msgpack": (b"\xc1\xff\xff",),
    "empty header": (b"",),
    "truncated header": (msgpack.packb(GOOD[0])[:-3], GOOD[1]),
    "a list for a header": ([1, 2],),
    "numbers for keys": ({1: 2},),
    "deeply nested": (b"\x91" * 5000,),
    "type nested deeply": (NESTED["type"],),
    "form nested deeply": (NESTED["form"],),
    "huge header": (b"\xdb" + (70_000).to_bytes(4, "big") + b"x" * 70_000,),
    "a hello with frames": (HELLO, b""),
    "a key that is bytes": (HELLO | {"x": {b"v": 2}},),
    "a key that is a number": (HELLO | {7: 8},),
    "unknown type": ({"v": 2, "type": "bye"},),
    "no producer": ({"v": 2, "type": "hello", "epoch": 1},),
    "producer is a number": (HELLO | {"producer": 5},),
    "producer too long": (HELLO | {"producer": "x" * 300},),
    "negative epoch": (HELLO | {"epoch": -1},),
    "sequence 0": list_batch(0, []),
    "sequence is text": list_batch("1", []),
    "sequence over 2^63": list_batch(2**64 - 1, []),
    "no frames": (GOOD[0],),
    "too many frames": (*GOOD, b"more"),
    "unknown form": list_batch(1, [], form="rows"),
    "list of numbers": list_batch(1, [[1, 2]]),
    "read without a sequence": list_batch(1, [["r"]]),
    "columns with one frame": list_batch(1, [], form="columns"),
    "name with a tab": list_batch(1, [["a\tb", "ACGT"]]),
    "names are numbers": columns_batch(1, [1], [0, 4], b"ACGT"),
    "names are a map": columns_batch(1, {}, [0], b""),
    "fewer names": columns_batch(1, ["a"], [0, 2, 4], b"ACGT"),
    "offsets fall": columns_batch(1, ["a", "b", "c"], [0, 3, 1, 4], b"ACGT"),
    "offsets do not begin at 0": columns_batch(1, ["a"], [1, 4], b"ACGT"),
    "offsets end too far": columns_batch(1, ["a"], [0, 5], b"ACGT"),
    "offsets wrap around": columns_batch(1, ["a", "b"], [0, -(2**63), 4], b"ACGT"),
    "no offsets": columns_batch(1, [], [], b""),
}
GARBAGE = {what: (message, "malformed") for what, message in MALFORMED.items()} | {
    "no version": (({"type": "hello"},), "version"),
    "version 3": ((HELLO | {"v": 3},), "version"),
    "version true": ((HELLO | {"v": True},), "version"),
    "version 2.0": ((HELLO | {"v": 2.0},), "version"),
    "v nested deeply": ((NESTED["v"],), "version"),
    "a byte that is no base": (list_batch(1, [["a", "AC"], ["b", "ACXT"]]), "base"),
    "a character that is no byte": (list_batch(1, [["a", "AC\u20ac"]]), "base"),
    "a batch too large": (columns_batch(1, ["a"], [0, 60_000], b"A" * 60_000), "too-large"),
    "a gap": (list_batch(2, [["a", "ACGT"]]), "gap"),
}


def test_garbage_is_refused_with_a_reason_and_harms_nobody(small):
    refused = small.service.status.refused
    with Raw(small.endpoints["ingest"]) as raw, Producer(small.endpoints["ingest"]) as other:
        for what, (message, reason) in GARBAGE.items():
            raw.send(*message)
            answer = raw.receive()
            assert (answer["type"], answer["reason"]) == ("refused", reason), what
            assert answer["message"], what
            assert answer.get("received", 0) == 0, what
            other.send([(what, "ACGT" * 10)])
            other.flush(timeout=DEADLINE)
        raw.send(*GOOD)
        assert raw.receive_type("ack")["received"] == 1
        raw.send(*list_batch(2, [["a", "ACGT"], ["b", "ACGNX"]]))
        answer = raw.receive_type("refused")
        assert (answer["read"], answer["index"], answer["position"]) == ("b", 1, 4)
        assert answer["message"] == "read 2 (b), position 5: 'X' is not a base"
        # of a huge name the beginning
        raw.send(*columns_batch(2, ["x" * 30_000], [0, 1], b"!"))
        answer = raw.receive_type("refused")
        assert (answer["reason"], answer["read"]) == ("base", "x" * 256)
        assert len(answer["message"]) < 400
    assert small.service.status.refused == refused + len(GARBAGE) + 2


def test_limits_beyond_what_zeromq_counts(path):
    """A high-water mark has 31 bits, a budget in bytes may have more."""
    budgets = [f"ingest.memory_bytes={2**50}", f"feed.buffer_bytes={2**50}"]
    with running(path, budgets) as daemon, Producer(daemon.endpoints["ingest"]) as producer:
        producer.send([("a", "ACGTACGTACGT")])


def test_control_survives_what_cannot_be_written_out(small):
    request = msgpack.packb({"v": 2, "command": "deep"}).replace(MARK, DEEP)
    with Raw(small.endpoints["control"]) as raw:
        raw.send(request)
        assert raw.receive()["reason"] == "malformed"
        raw.send({"v": 2, "command": "status"})
        assert raw.receive()["ok"]


def test_huge_frame_ends_its_connection_only(small):
    with Raw(small.endpoints["ingest"]) as raw, Producer(small.endpoints["ingest"]) as other:
        raw.send(b"\x80" * 5_000_000)
        other.send([("a", "ACGT" * 10)])
        other.flush(timeout=DEADLINE)


def test_a_routing_id_that_is_used_again_gets_answers(small):
    with Raw(small.endpoints["ingest"]) as before, Raw(small.endpoints["ingest"]) as after:
        for number, raw in enumerate((before, after), 1):
            again = raw.context.socket(zmq.DEALER)
            again.routing_id = b"mine"
            again.linger = 0
            again.connect(small.endpoints["ingest"])
            raw.socket.close()
            raw.socket = again
            raw.send({"v": 2, "type": "hello", "producer": "routes", "epoch": 1})
            raw.receive_type("welcome")
            raw.send(*list_batch(number, [], producer="routes"))
            # what is said of the first batch may still come
            raw.accepted(number)


@pytest.mark.parametrize("name", ["ingest", "control"])
def test_messages_of_another_version_or_without_a_checksum_are_refused(small, name):
    request = {"v": 2, "type": "hello", "producer": "raw", "epoch": 1, "command": "status"}
    with Raw(small.endpoints[name]) as raw:
        raw.send(request | {"v": 1})
        answer = raw.receive()
        assert (answer["v"], answer["reason"]) == (2, "version")
        assert answer["message"] == "protocol version 1, must be 2"
        raw.send(request)
        assert raw.receive()["v"] == 2
        raw.socket.send(msgpack.packb(request))
        answer = raw.receive()
        assert (answer["reason"], answer["message"]) == (
            "malformed",
            "the last frame of a message is its checksum of 4 bytes",
        )
        raw.socket.send_multipart([msgpack.packb(request), b"1234"])
        assert raw.receive()["reason"] == "checksum"
