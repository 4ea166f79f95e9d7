"""What the daemon refuses, how it says so, and whom that harms: nobody."""

from __future__ import annotations

import msgpack
import pytest
import zmq

from streamer.client import Producer
from tests.daemon_kit import (
    DEADLINE,
    GOOD,
    Raw,
    columns_batch,
    list_batch,
    running,
    sealed,
)

pytestmark = pytest.mark.whole

# as deep as msgpack reads, deeper than what Python can write out
DEEP = b"\x91" * 1015 + b"\x01"
MARK = msgpack.packb("deep")
NESTED = {
    field: msgpack.packb(list_batch(1, [])[0] | {field: "deep"}).replace(MARK, DEEP)
    for field in ("v", "type", "form")
}

GARBAGE = {
    "not msgpack": ((b"\xc1\xff\xff",), "malformed"),
    "empty header": ((b"",), "malformed"),
    "truncated header": ((msgpack.packb(GOOD[0])[:-3], GOOD[1]), "malformed"),
    "a list for a header": (([1, 2],), "malformed"),
    "numbers for keys": (({1: 2},), "malformed"),
    "deeply nested": ((b"\x91" * 5000,), "malformed"),
    **{
        f"{field} nested deeply": ((NESTED[field],), reason)
        for field, reason in (("v", "version"), ("type", "malformed"), ("form", "malformed"))
    },
    "huge header": ((b"\xdb" + (70_000).to_bytes(4, "big") + b"x" * 70_000,), "malformed"),
    "no version": (({"type": "hello"},), "version"),
    "version 3": (({"v": 3, "type": "hello", "producer": "raw", "epoch": 1},), "version"),
    "version true": (({"v": True, "type": "hello", "producer": "raw", "epoch": 1},), "version"),
    "version 2.0": (({"v": 2.0, "type": "hello", "producer": "raw", "epoch": 1},), "version"),
    "a hello with frames": (
        ({"v": 2, "type": "hello", "producer": "raw", "epoch": 1}, b""),
        "malformed",
    ),
    "a key that is bytes": (
        ({"v": 2, "type": "hello", "producer": "raw", "epoch": 1, "x": {b"v": 2}},),
        "malformed",
    ),
    "a key that is a number": (
        ({"v": 2, "type": "hello", "producer": "raw", "epoch": 1, 7: 8},),
        "malformed",
    ),
    "unknown type": (({"v": 2, "type": "bye"},), "malformed"),
    "no producer": (({"v": 2, "type": "hello", "epoch": 1},), "malformed"),
    "producer is a number": (
        ({"v": 2, "type": "hello", "producer": 5, "epoch": 1},),
        "malformed",
    ),
    "producer too long": (
        ({"v": 2, "type": "hello", "producer": "x" * 300, "epoch": 1},),
        "malformed",
    ),
    "negative epoch": (({"v": 2, "type": "hello", "producer": "raw", "epoch": -1},), "malformed"),
    "sequence 0": (list_batch(0, []), "malformed"),
    "sequence is text": (list_batch("1", []), "malformed"),
    "sequence over 2^63": (list_batch(2**64 - 1, []), "malformed"),
    "no frames": ((GOOD[0],), "malformed"),
    "too many frames": ((*GOOD, b"more"), "malformed"),
    "unknown form": (list_batch(1, [], form="rows"), "malformed"),
    "list of numbers": (list_batch(1, [[1, 2]]), "malformed"),
    "read without a sequence": (list_batch(1, [["r"]]), "malformed"),
    "columns with one frame": (list_batch(1, [], form="columns"), "malformed"),
    "name with a tab": (list_batch(1, [["a\tb", "ACGT"]]), "malformed"),
    "names are numbers": (columns_batch(1, [1], [0, 4], b"ACGT"), "malformed"),
    "names are a map": (columns_batch(1, {}, [0], b""), "malformed"),
    "fewer names": (columns_batch(1, ["a"], [0, 2, 4], b"ACGT"), "malformed"),
    "offsets fall": (columns_batch(1, ["a", "b", "c"], [0, 3, 1, 4], b"ACGT"), "malformed"),
    "offsets do not begin at 0": (columns_batch(1, ["a"], [1, 4], b"ACGT"), "malformed"),
    "offsets end too far": (columns_batch(1, ["a"], [0, 5], b"ACGT"), "malformed"),
    "offsets wrap around": (
        columns_batch(1, ["a", "b"], [0, -(2**63), 4], b"ACGT"),
        "malformed",
    ),
    "no offsets": (columns_batch(1, [], [], b""), "malformed"),
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


OLD = msgpack.packb({"v": 1, "type": "hello", "producer": "raw", "epoch": 9, "command": "status"})


@pytest.mark.parametrize("name", ["ingest", "control"])
def test_messages_of_version_1_or_without_a_checksum_are_refused(small, name):
    """In the form of version 1, without a checksum, so that an old client can read why."""
    request = {"v": 2, "type": "hello", "producer": "raw", "epoch": 1, "command": "status"}
    with Raw(small.endpoints[name]) as raw:
        for frames in ([OLD], [OLD, b"data"], [OLD, b"data", b"1234"], sealed(OLD)):
            raw.socket.send_multipart(frames)
            assert raw.socket.poll(DEADLINE * 1000)
            (frame,) = raw.socket.recv_multipart()
            answer = msgpack.unpackb(frame)
            assert (answer["v"], answer["reason"]) == (1, "version")
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
