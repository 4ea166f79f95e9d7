"""What the daemon refuses, how it says so, and whom that harms: nobody."""

from __future__ import annotations

import msgpack
import pytest
import zmq

from streamer.client import Control, Producer
from streamer.daemon.core import producers
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
    assert small.service.status.refused == len(GARBAGE)


def test_credit_bounds_how_many_batches_wait(path, monkeypatch):
    monkeypatch.setattr(producers, "MAX_QUEUED", 10)
    with running(path) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        with daemon.engine_held():
            for number in range(1, 12):
                raw.send(*list_batch(number, []))
                answer = raw.receive()
            assert (answer["reason"], answer["received"], answer["credit"]) == ("credit", 10, 0)
        assert raw.accepted(10, matched=10)["credit"]
        raw.send(*list_batch(11, []))
        raw.accepted(11, matched=11)


def test_limits_beyond_what_zeromq_counts(path):
    """A high-water mark has 31 bits, a budget in bytes may have more."""
    budgets = [f"ingest.memory_bytes={2**50}", f"feed.buffer_bytes={2**50}"]
    with running(path, budgets) as daemon, Producer(daemon.endpoints["ingest"]) as producer:
        producer.send([("a", "ACGTACGTACGT")])


def test_refusal_names_read_and_position(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*list_batch(1, [["a", "ACGT"], ["b", "ACGNX"]]))
        answer = raw.receive()
    assert (answer["read"], answer["index"], answer["position"]) == ("b", 1, 4)
    assert answer["message"] == "read 2 (b), position 5: 'X' is not a base"


def test_refusal_quotes_the_beginning_of_a_huge_name(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*columns_batch(1, ["x" * 30_000], [0, 1], b"!"))
        answer = raw.receive()
    assert (answer["reason"], answer["read"]) == ("base", "x" * 256)
    assert len(answer["message"]) < 400


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
        raw.send(*GOOD)
        other.send([("a", "ACGT" * 10)])
        other.flush(timeout=DEADLINE)


def test_same_batch_twice_has_one_effect(small):
    with Raw(small.endpoints["ingest"]) as raw:
        for _ in range(3):
            raw.send(*GOOD)
            assert raw.receive_type("ack")["received"] == 1
        raw.send(*list_batch(2, [["s", "ACGT"]]))
        answer = raw.accepted(2, matched=2)
        assert (answer["received"], answer["durable"]) == (2, 2)
        raw.send(*list_batch(1, [["other", "AAAA"]]))
        answer = raw.receive_type("refused")
        assert (answer["reason"], answer["seq"], answer["received"]) == ("conflict", 1, 2)
    assert small.service.status.totals.fields()["batches"] == 2


def test_gap_is_refused_and_says_what_is_expected(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        raw.send(*list_batch(3, [["c", "ACGT"]]))
        answer = raw.receive_type("refused")
        assert (answer["reason"], answer["received"], answer["seq"]) == ("gap", 1, 3)
        assert answer["message"] == "got batch 3, expected batch 2"


def test_new_epoch_counts_from_one_and_the_old_one_has_ended(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        raw.send(*list_batch(1, [["b", "ACGT"]], epoch=2))
        answer = raw.receive_type("refused")
        assert (answer["reason"], answer["seq"], answer["epoch"]) == ("epoch", 1, 2)
        assert "received" not in answer
        raw.send({"v": 2, "type": "hello", "producer": "raw", "epoch": 2})
        assert raw.receive_type("welcome")["received"] == 0
        raw.send(*list_batch(1, [["b", "ACGT"]], epoch=2))
        raw.accepted(1)
        raw.send(*list_batch(2, [["c", "ACGT"]]))
        assert raw.receive_type("refused")["reason"] == "stale-epoch"
        raw.send({"v": 2, "type": "hello", "producer": "raw", "epoch": 2})
        assert raw.receive_type("welcome")["received"] == 1


def test_an_epoch_far_in_the_future_shuts_nobody_out(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        raw.accepted(1)
        for kind, frames in (({"type": "hello"}, ()), (GOOD[0], GOOD[1:])):
            raw.send(GOOD[0] | kind | {"epoch": 2**63 - 1}, *frames)
            assert raw.receive_type("refused")["reason"] == "epoch"
        raw.send(*list_batch(2, [["b", "ACGT"]]))
        raw.accepted(2)


def test_a_strangers_hello_takes_no_acknowledgement_away(small):
    with Raw(small.endpoints["ingest"]) as raw, Raw(small.endpoints["ingest"]) as stranger:
        with small.engine_held():
            raw.send(*GOOD)
            raw.accepted(1)
            stranger.send({"v": 2, "type": "hello", "producer": "raw", "epoch": 1})
            assert stranger.receive_type("welcome")["received"] == 1
        raw.accepted(1, matched=1)
        stranger.accepted(1, matched=1)


def test_a_routing_id_that_is_used_again_gets_answers(small):
    with Raw(small.endpoints["ingest"]) as before, Raw(small.endpoints["ingest"]) as after:
        for number, raw in enumerate((before, after), 1):
            again = raw.context.socket(zmq.DEALER)
            again.routing_id = b"mine"
            again.linger = 0
            again.connect(small.endpoints["ingest"])
            raw.socket.close()
            raw.socket = again
            raw.send(*list_batch(number, []))
            # what is said of the first batch may still come
            raw.accepted(number)


def test_credit_bounds_what_waits(path):
    limit = 1 << 20
    overrides = [f"ingest.memory_bytes={limit}", "ingest.max_batch_bytes=200000"]
    letters = b"ACGT" * 40_000
    accepted = 0
    with running(path, overrides) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        with daemon.engine_held():
            while True:
                raw.send(*columns_batch(accepted + 1, ["a"], [0, len(letters)], letters))
                answer = raw.receive()
                if answer["type"] == "refused":
                    break
                accepted += 1
                assert 0 <= answer["credit"] <= limit
            assert answer["reason"] == "credit"
            assert accepted == limit // len(letters)
            with Control(daemon.endpoints["control"]) as control:
                queue = control.status()["queue"]
            assert queue["batches"] == accepted
            assert queue["bytes"] <= limit
        assert raw.accepted(accepted, matched=accepted)["credit"] >= 200_000
        raw.send(*columns_batch(accepted + 1, ["a"], [0, len(letters)], letters))
        raw.accepted(accepted + 1)


OLD = msgpack.packb({"v": 1, "type": "hello", "producer": "raw", "epoch": 9, "command": "status"})


@pytest.mark.parametrize("name", ["ingest", "control"])
def test_version_1_is_answered_in_its_form(small, name):
    """Without a frame of its checksum, so that an old client can read why."""
    with Raw(small.endpoints[name]) as raw:
        for frames in ([OLD], [OLD, b"data"], [OLD, b"data", b"1234"], sealed(OLD)):
            raw.socket.send_multipart(frames)
            assert raw.socket.poll(DEADLINE * 1000)
            (frame,) = raw.socket.recv_multipart()
            answer = msgpack.unpackb(frame)
            assert (answer["v"], answer["reason"]) == (1, "version")
            assert answer["message"] == "protocol version 1, must be 2"
        raw.send({"v": 2, "type": "hello", "producer": "raw", "epoch": 1, "command": "status"})
        assert raw.receive()["v"] == 2


def test_every_flipped_bit_is_refused_and_changes_nothing(small):
    """Also one in the header, which could make it another batch."""
    message = sealed(msgpack.packb(GOOD[0]), GOOD[1])
    status = small.service.status
    before = status.producers
    with Raw(small.endpoints["ingest"]) as raw:
        for at, frame in enumerate(message):
            for bit in range(8 * len(frame)):
                damaged = bytearray(frame)
                damaged[bit // 8] ^= 1 << bit % 8
                raw.socket.send_multipart([*message[:at], damaged, *message[at + 1 :]])
                answer = raw.receive()
                assert answer["type"] == "refused"
                assert answer["reason"] in ("checksum", "malformed", "version")
                assert answer.get("received", 0) == 0
        assert (status.producers, status.queued_batches) == (before, 0)
        raw.send(*GOOD)
        raw.accepted(1, matched=1)


@pytest.mark.parametrize("name", ["ingest", "control"])
def test_messages_without_a_checksum_are_refused(small, name):
    request = {"v": 2, "type": "hello", "producer": "raw", "epoch": 1, "command": "status"}
    with Raw(small.endpoints[name]) as raw:
        raw.socket.send(msgpack.packb(request))
        answer = raw.receive()
        assert (answer["reason"], answer["message"]) == (
            "malformed",
            "the last frame of a message is its checksum of 4 bytes",
        )
        raw.socket.send_multipart([msgpack.packb(request), b"1234"])
        assert raw.receive()["reason"] == "checksum"
