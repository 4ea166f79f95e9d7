"""The state machine of sync against a plain picture of what each pull must get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from streamer.daemon.core.sync import SyncLimits
from tests.sync_records import TOPICS, Record, Records, at_of


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
