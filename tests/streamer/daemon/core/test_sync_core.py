"""Sync without sockets: cursors, credit, turns, and any order of pulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from streamer.daemon.core.sync import BURST_BYTES, Fetch, SyncLimits, SyncState
from streamer.protocol.wire import seal
from tests.daemon_kit import asked
from tests.reference import crc32c as definition
from tests.sync_records import STREAM, TOPICS, Record, Records, at_of


def test_messages_are_sealed_and_whole():
    stream = Records()
    stream.commit(["match", "read"])
    stream.pull(b"a", 7)
    stream.work()
    for _, frames in stream.core.out:
        *rest, seal = frames
        assert int.from_bytes(seal, "little") == definition.crc32c(b"".join(rest))
    (_, pulling, _), (_, first, frames), (_, second, _), (_, reached, _) = stream.said()
    assert pulling["type"] == "pulling"
    assert (first["id"], first["topic"], second["topic"]) == (7, "match.", "read.")
    assert frames == stream.records[0].message("match")
    assert (reached["type"], reached["at"]) == ("reached", 1)
    assert reached["heads"] == {"match.": 1, "read.": 1}
    assert (reached["stream"], reached["epoch"], reached["oldest"]) == (STREAM, 3, 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"after": 9}, "future"),
        ({"stream": "f" * 16}, "stream"),
        ({"stream": "f" * 16, "after": 99}, "stream"),
        ({"after": 2}, "too-old"),
        ({"after": 0, "stream": ""}, "too-old"),
    ],
)
def test_a_cursor_that_cannot_be_served_is_reset(fields, reason):
    stream = Records()
    for _ in range(8):
        stream.commit(TOPICS)
    stream.oldest = 4
    stream.see()
    stream.pull(b"a", 1, **({"after": 8} | fields))
    ((_, header, _),) = stream.said()
    assert (header["type"], header["reason"], header["id"]) == ("reset", reason, 1)
    assert (header["oldest"], header["head"], header["stream"]) == (4, 8, STREAM)
    assert stream.work() == 0


def test_a_cursor_at_the_oldest_record_is_served():
    stream = Records()
    for _ in range(8):
        stream.commit(["read"])
    stream.oldest = 4
    stream.see()
    stream.pull(b"a", 1, 3)
    stream.work()
    got = [at_of(frames) for _, header, frames in stream.said() if header["type"] == "message"]
    assert got == [4, 5, 6, 7, 8]


def test_a_pull_that_is_overtaken_by_retention_is_reset():
    stream = Records()
    for _ in range(8):
        stream.commit(["read"], 600)
    stream.pull(b"a", 1)
    stream.work()
    assert "reached" not in stream.said_types()
    stream.oldest = 7
    stream.see()
    stream.work()
    ((_, header, _),) = stream.said()
    assert (header["type"], header["reason"], header["after"]) == ("reset", "too-old", 2)


def test_the_stream_of_a_cursor_may_be_left_out_at_the_beginning():
    stream = Records()
    stream.commit(["read"])
    stream.pull(b"a", 1, 0, stream="")
    stream.pull(b"a", 2, 1, stream="")
    kinds = {header["id"]: header["type"] for _, header, _ in stream.said()}
    assert kinds == {1: "pulling", 2: "refused"}


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "pull", "id": 1},
        {"type": "pull", "id": 1, "after": 0, "credit": 0, "topics": ["read"]},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": []},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": "read"},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": [1]},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": ["read"] * 65},
        {"type": "pull", "id": 1, "after": -1, "credit": 9, "topics": ["read"]},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": ["read"], "stream": 5},
        {"type": "pull", "id": 1, "after": 0, "credit": 9, "topics": ["read"], "stream": "x"},
        {"type": "pull", "id": 1, "after": 1, "until": 0, "credit": 9, "topics": ["read"]},
        {"type": "pull", "after": 0, "credit": 9, "topics": ["read"]},
        {"type": "snapshot", "id": 1},
        {"type": "credit", "id": 1},
        {"type": "other", "id": 1},
        {"id": 1},
        {"type": "heads", "id": 1, "v": 1},
    ],
)
def test_a_malformed_request_changes_nothing(fields):
    stream = Records()
    stream.commit(["read"])
    stream.hear(b"a", **fields)
    ((_, header, _),) = stream.said()
    assert header["type"] == "refused"
    assert header["reason"] == ("version" if fields.get("v") == 1 else "malformed")
    assert header["v"] == 2
    assert stream.work() == 0
    assert not stream.core._flows


def test_a_request_has_no_frames_but_its_header():
    stream = Records()
    head = asked({"type": "heads", "id": 1})[0]
    for further in ([b""], [b"more", b"yet"]):
        stream.core.hear(b"a", seal([head, *further]), 0.0)
        ((_, header, _),) = stream.said()
        assert (header["type"], header["reason"], header["id"]) == ("refused", "malformed", 1)


def test_what_is_no_message_is_refused():
    stream = Records()
    for frames in ([], [b""], [b"", b""], [b"\x80", b"1234"], asked({}, body=b"\xc1")):
        stream.core.hear(b"a", frames, 0.0)
    kinds = [(header["type"], "id" in header) for _, header, _ in stream.said()]
    assert kinds == [("refused", False)] * 5


def test_event_words_are_live_only_and_unknown_topics_are_named():
    stream = Records()
    stream.commit(["read"])
    stream.pull(b"a", 1, topics=["word.", "read.", "later", "beat"])
    stream.work()
    (_, pulling, _), *rest = stream.said()
    assert pulling["live_only"] == ["beat.", "word."]
    assert pulling["unknown"] == ["later."]
    assert [header.get("topic") for _, header, _ in rest] == ["read.", None]


def test_limits():
    """Each connection has a share of the memory, and each of its pulls gets some of it."""
    stream = Records(SyncLimits(connections=2, pulls=2, pull_bytes=1000, memory_bytes=3500))
    stream.commit(["read"])
    stream.pull(b"a", 1, credit=5000)
    stream.pull(b"a", 2, credit=1000)
    stream.pull(b"a", 3)
    stream.pull(b"b", 1, credit=10)
    stream.pull(b"c", 1)
    stream.pull(b"b", 2, credit=5000)
    stream.pull(b"b", 3, credit=1)
    said = [(header["type"], header.get("credit")) for _, header, _ in stream.said()]
    refused = ("refused", None)
    told = ("reached", None)
    pulling = [("pulling", size) for size in (1000, 314, 10, 1000)]
    assert [one for one in said if one != told] == [
        *pulling[:2], refused, pulling[2], refused, pulling[3], refused
    ]  # fmt: skip
    # what ends leaves room
    stream.hear(b"a", type="stop", id=1)
    stream.hear(b"a", type="stop", id=2)
    stream.pull(b"c", 1)
    assert stream.said_types() == ["stopped", "stopped", "pulling"]
    stream.core.gone(b"b")
    stream.pull(b"a", 9)
    assert "pulling" in stream.said_types()


@pytest.mark.parametrize("records", [9, 0], ids=["out of credit", "caught up"])
def test_pulls_that_never_read_make_room_for_others(records):
    """Those that read stay, also where there is nothing to read."""
    limits = SyncLimits(connections=64, pulls=16, pull_bytes=16 << 20, memory_bytes=256 << 20)
    stream = Records(limits)
    for _ in range(records):
        stream.commit(["read"], 1 << 20)
    stuck = [b"stuck%d" % number for number in range(62)]
    for route in stuck:
        for number in range(16):
            stream.pull(route, number, credit=1 << 30)
        stream.now += 0.01
    for route in (b"reads", b"done"):
        stream.pull(route, 1, after=records if route == b"done" else 0, credit=1 << 30)
    stream.work()
    stream.pull(b"new", 1)
    assert [h["reason"] for _, h, _ in stream.said() if h["type"] == "refused"] == ["credit"]
    for number in range(62):
        stream.now += 10
        stream.hear(b"reads", type="credit", id=1, bytes=1)
        stream.hear(b"done", type="credit", id=1, bytes=0)
        for earlier in range(number):
            stream.hear(b"new%d" % earlier, type="credit", id=1, bytes=0)
        stream.pull(b"new%d" % number, 1, after=records)
        said = [(route, h["type"]) for route, h, _ in stream.said() if h["type"] != "beat"]
        assert said[:-1] == [(stuck[number], "refused")] * 16 + [(b"new%d" % number, "pulling")]
    stream.pull(b"late", 1)
    assert stream.said_types() == ["refused"]


def test_a_pull_without_credit_gets_nothing_more_and_others_do():
    stream = Records()
    for _ in range(20):
        stream.commit(["read"], 300)
    stream.pull(b"stuck", 1)
    stream.pull(b"healthy", 1)
    for _ in range(20):
        stream.work()
        stream.hear(b"healthy", type="credit", id=1, bytes=1000)
    got = [(route, at_of(f)) for route, header, f in stream.said() if header["type"] == "message"]
    assert [at for route, at in got if route == b"healthy"] == list(range(1, 21))
    assert len([at for route, at in got if route == b"stuck"]) <= 4


def test_pulls_take_turns():
    stream = Records(SyncLimits(8, 8, 1 << 30, 1 << 40))
    for _ in range(9):
        stream.commit(["read"], BURST_BYTES)
    for route in (b"a", b"b", b"c"):
        stream.pull(route, 1, credit=1 << 30)
    stream.work()
    order = [route for route, header, _ in stream.said() if header["type"] == "message"]
    assert order == [b"a", b"b", b"c"] * 9


def test_a_connection_without_room_waits():
    stream = Records()
    for _ in range(5):
        stream.commit(["read"])
    stream.pull(b"a", 1)
    stream.core.hold(b"a")
    assert stream.work() == 0
    stream.now += 5
    stream.core.tick(stream.now)
    assert stream.said_types() == ["pulling"]
    stream.core.release(b"a")
    assert stream.work() == 5


def test_a_connection_is_not_left_in_silence():
    stream = Records()
    stream.pull(b"a", 1)
    assert stream.said_types() == ["pulling", "reached"]
    stream.core.tick(stream.now + 0.5)
    assert stream.said_types() == []
    stream.core.tick(stream.now + 1.5)
    ((route, header, _),) = stream.said()
    assert (route, header["type"], header["head"]) == (b"a", "beat", 0)
    stream.hear(b"a", type="stop", id=1)
    stream.said()
    stream.core.tick(stream.now + 9)
    assert stream.said() == []


def test_records_that_were_given_up_are_named():
    stream = Records()
    for _ in range(6):
        stream.commit(["read"])
    stream.lost = {1, 3, 4, 6}
    stream.pull(b"a", 1)
    stream.work()
    told = [
        (header["after"], header["until"]) if header["type"] == "lost" else at_of(frames)
        for _, header, frames in stream.said()
        if header["type"] in ("lost", "message")
    ]
    assert told == [(0, 1), 2, (2, 4), 5, (5, 6)]


def test_a_state_is_sent_in_parts_on_credit():
    stream = Records()
    parts = [bytes([i]) * 600 for i in range(5)]
    stream.hear(b"a", type="snapshot", id=4, credit=1000)
    fetch = stream.core.turn(stream.now)
    assert isinstance(fetch, Fetch)
    stream.core.give_state(fetch, SyncState(17, {"version": 3}, 5, parts))
    got = []
    for _ in range(5):
        stream.work()
        for _, header, frames in stream.said():
            assert (header["type"], header["id"], header["at"]) == ("snapshot", 4, 17)
            assert (header["parts"], header["version"], header["stream"]) == (5, 3, STREAM)
            got += frames
            assert header["part"] == len(got)
        stream.hear(b"a", type="credit", id=4, bytes=600)
    assert got == parts
    assert not stream.core._flows


def test_without_a_stored_state_it_is_that_before_the_first_record():
    stream = Records()
    stream.hear(b"a", type="snapshot", id=4, credit=1000)
    fetch = stream.core.turn(stream.now)
    assert isinstance(fetch, Fetch)
    stream.core.give_state(fetch, None)
    stream.work()
    ((_, header, frames),) = stream.said()
    assert (header["at"], header["part"], header["parts"], frames) == (0, 1, 1, [b""])


@dataclass
class Client:
    """What a pull must have got: its messages, in order, and where it stands."""

    topics: frozenset[str]
    at: int
    until: int | None
    credit: int
    got: list[tuple[int, str]] = field(default_factory=list)
    reached: int = -1
    ended: bool = False
    stopped: bool = False

    def wanted(self, records: Sequence[Record], after: int, until: int) -> list[tuple[int, str]]:
        return [
            (record.at, topic)
            for record in records[after:until]
            for topic in record.prev
            if topic in self.topics
        ]


step = st.one_of(
    st.tuples(st.just("commit"), st.sets(st.sampled_from(TOPICS)), st.integers(0, 300)),
    st.tuples(
        st.just("pull"),
        st.integers(0, 3),
        st.sets(st.sampled_from(TOPICS), min_size=1),
        st.floats(0, 1),
        st.none() | st.integers(0, 10),
        st.integers(1, 2000),
    ),
    st.tuples(st.just("credit"), st.integers(0, 15), st.integers(0, 2000)),
    st.tuples(st.just("stop"), st.integers(0, 15)),
    st.tuples(st.just("work"), st.integers(1, 20)),
    st.tuples(st.just("hold"), st.integers(0, 3)),
    st.tuples(st.just("release"), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.floats(0, 2)),
)


@pytest.mark.whole
@tries(max_examples=300, deadline=None)
@given(st.lists(step, max_size=60))
def test_every_pull_gets_what_follows_its_cursor_once(steps):
    stream = Records(SyncLimits(connections=8, pulls=100, pull_bytes=1000, memory_bytes=10**9))
    clients: dict[tuple[bytes, int], Client] = {}
    starts: dict[tuple[bytes, int], int] = {}
    live: list[tuple[bytes, int]] = []
    held: set[bytes] = set()

    def collect() -> None:
        for route, header, frames in stream.said():
            kind = header["type"]
            if kind in ("beat", "pulling"):
                continue
            client = clients[route, header["id"]]
            if kind == "message":
                assert not client.ended
                assert client.until is None or at_of(frames) <= client.until
                assert client.credit > 0 or client.got[-1][0] == at_of(frames)
                client.credit -= sum(map(len, frames))
                client.got.append((at_of(frames), frames[0].decode().removesuffix(".")))
                assert header["topic"] == frames[0].decode()
            elif kind == "reached":
                assert client.reached < header["at"]
                assert header["head"] == len(stream.records)
                client.reached = client.at = header["at"]
                client.ended = header["at"] == client.until
                after = starts[route, header["id"]]
                assert client.got == client.wanted(stream.records, after, header["at"])
            else:
                assert kind == "stopped"
                client.ended = client.stopped = True

    for kind, *given_values in steps:
        match kind, given_values:
            case "commit", (topics, size):
                stream.commit(topics, size)
            case "pull", (route, topics, where, length, credit):
                after = int(where * len(stream.records))
                until = None if length is None else after + length
                key = (b"%d" % route, len(clients))
                clients[key] = Client(frozenset(topics), after, until, min(credit, 1000))
                starts[key] = after
                live.append(key)
                stream.pull(*key, after, topics=list(topics), until=until, credit=credit)
            case "credit", (which, more) if live:
                key = live[which % len(live)]
                client = clients[key]
                collect()
                window = min(1000, client.credit + more)
                stream.hear(key[0], type="credit", id=key[1], bytes=more)
                if not client.ended:
                    client.credit = min(window, 1000)
            case "stop", (which,) if live:
                key = live[which % len(live)]
                stream.hear(key[0], type="stop", id=key[1])
            case "work", (turns,):
                stream.work(turns)
            case "hold", (route,):
                held.add(b"%d" % route)
                stream.core.hold(b"%d" % route)
            case "release", (route,):
                held.discard(b"%d" % route)
                stream.core.release(b"%d" % route)
            case "tick", (seconds,):
                stream.now += seconds
                stream.core.tick(stream.now)
        collect()
    # whoever reads all of it gets all of it
    for route in held:
        stream.core.release(route)
    for _ in range(200):
        for route, number in live:
            if not clients[route, number].ended:
                clients[route, number].credit = 1000
                stream.hear(route, type="credit", id=number, bytes=10**9)
        stream.work(50)
        stream.now += 1
        stream.core.tick(stream.now)
        collect()
    head = len(stream.records)
    for key, client in clients.items():
        if client.stopped:
            continue
        assert client.ended == (client.until is not None and client.until <= head), key
        assert client.reached == (client.until if client.ended else head), key
