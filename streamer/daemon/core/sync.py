"""Replay: the pulls of clients, which one is served next, and what each is sent.

Requests and the extent of the journal go in; messages come out (``out``). ``turn`` returns the flow
to serve next; the caller reads its records and passes them in. A flow sends only as much as it has
credit for, so a client that does not read costs its credit and nothing more.

The daemon's own batches come first. Low priority is not enough: what replay sends has to be read,
often by clients on the same machine. So while batches are being committed, replay also pauses if
there are fewer cores than threads that want one.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.protocol import wire
from streamer.protocol.schema import LIVE_ONLY, RECORD_TOPICS, TOPICS

Route = bytes
"""The routing id of a connection."""


@dataclass(frozen=True, slots=True)
class SyncLimits:
    """Limits on what may be sent at a time.

    connections: those with flows. pulls: flows of a connection. pull_bytes: credit of a flow.
    memory_bytes: credit of all flows, of which each connection has a share.
    """

    connections: int
    pulls: int
    pull_bytes: int
    memory_bytes: int

    def window(self, asked: int, taken: int) -> int:
        """Return the credit of a flow; taken: that of the other flows of its connection.

        A quarter of the connection's share is for the flows to come, so there is room for each.
        """
        share = self.memory_bytes // self.connections
        least = share // (4 * self.pulls)
        return max(1, min(asked, self.pull_bytes, max(least, share - least * self.pulls - taken)))


class Stored(NamedTuple):
    """The extent of the journal; heads: by topic, the last record up to ``head`` with a message.

    unread: why the journal could not be read; it may then hold more by now. None if it was read.
    """

    stream: str
    epoch: int
    oldest: int
    head: int
    heads: Mapping[str, int]
    unread: wire.WireError | None = None


class Replayed(Protocol):
    """A record and the messages about it."""

    @property
    def at(self) -> int:
        """Its number."""

    @property
    def prev(self) -> Mapping[str, int]:
        """Its topics, in order, each with the last record before on that topic."""

    def message(self, topic: str) -> Sequence[wire.Buffer]:
        """The frames of the feed's message, without their checksum."""


class SyncState(NamedTuple):
    """The state after record ``at``: header fields, and the k-mers that the stream has brought.

    frames: the k-mers in ``parts`` parts, each made when it is taken.
    """

    at: int
    fields: wire.Header
    parts: int
    frames: Iterable[wire.Buffer]


@dataclass(eq=False, slots=True)
class Flow:
    """A request whose answer is sent as credit allows. window: the most credit that it ever has.

    heard: when its client last gave credit.
    """

    route: Route
    number: int
    window: int
    credit: int
    heard: float = field(default=0.0, kw_only=True)


@dataclass(eq=False, slots=True)
class Pull(Flow):
    """Messages on ``topics`` of records after ``at``, up to ``until`` or without an end.

    reached: the record up to which the client was told that it has everything, and when.
    """

    topics: frozenset[str]
    at: int
    until: int | None
    reached: tuple[int, float] = field(default=(-1, 0.0))


@dataclass(eq=False, slots=True)
class Fetch(Flow):
    """The state at a record, part by part; ``parts`` is None until it is known."""

    parts: Iterator[tuple[wire.Header, wire.Buffer]] | None = None


BURST_BYTES = 1 << 18
"""A flow sends about this much before another one is served."""

_BEAT_SECONDS = 1.0
# seconds between two messages that tell a pull that it has caught up
_REACHED_SECONDS = 0.05
# without a sign that it reads, a connection makes room for another one if all are taken
_STUCK_SECONDS = 10.0
_STREAM_DIGITS = 16
_GIVEN_UP = "damaged, and given up when the daemon was started"
_MOST_TOPICS = 64
_BEGINNING = SyncState(
    0, {"version": 1, "batch": 0, "base": 0, "heads": {}, "totals": {}, "kmers": 0}, 1, [b""]
)


class SyncCore:
    """The state of all pulls.

    out: messages to send, in order, each with the route of its connection. If a connection has no
    room, ``hold`` stops its flows until ``release``.
    """

    def __init__(self, limits: SyncLimits) -> None:
        self.out: list[tuple[Route, Sequence[wire.Buffer]]] = []
        self._limits = limits
        self._stored = Stored("", 0, 1, 0, {})
        self._flows: dict[tuple[Route, int], Flow] = {}
        self._turns: deque[Flow] = deque()
        self._held: set[Route] = set()
        # when something was last sent to a connection
        self._spoken: dict[Route, float] = {}

    # ---- events -----------------------------------------------------------------------------

    def see(self, stored: Stored) -> None:
        """Records were committed, or the oldest ones are no longer kept."""
        self._stored = stored

    def hear(
        self,
        route: Route,
        frames: Sequence[wire.Buffer],
        now: float,
        rights: Rights | wire.WireError = EVERYTHING,
    ) -> None:
        """Take a message from a connection; ``now`` is in seconds of any clock.

        rights: those of its sender, or why it has none.
        """
        number: int | None = None
        try:
            head, *further = wire.unseal(frames)
            header = wire.unpack(head)
            number = wire.integer(header, "id")
            if isinstance(rights, wire.WireError):
                raise rights
            if further:
                raise wire.malformed(
                    f"a request is a header and its checksum, not {len(frames)} frames"
                )
            self._check(header, rights)
            self._request(route, number, header, now)
        except wire.WireError as error:
            self._refuse(route, number, error)

    def gone(self, route: Route) -> None:
        """A connection has ended."""
        for flow in [flow for flow in self._turns if flow.route == route]:
            self._end(flow)
        self._held.discard(route)

    def hold(self, route: Route) -> None:
        """A connection has no room: its flows wait."""
        self._held.add(route)

    def release(self, route: Route) -> None:
        """There is room again."""
        self._held.discard(route)

    def tick(self, now: float) -> None:
        """Time has passed: send what is due, so that no connection falls silent."""
        for flow in [*self._turns]:
            if isinstance(flow, Pull):
                self._catch_up(flow, now)
        for route, spoken in self._spoken.items():
            if now - spoken >= _BEAT_SECONDS and route not in self._held:
                self._spoken[route] = now
                self._say(route, "beat", self._heads())

    # ---- scheduling -------------------------------------------------------------------------

    def turn(self, now: float) -> Flow | None:
        """The flow to serve next, in rotation: a Pull with records to come, or a Fetch."""
        for _ in range(len(self._turns)):
            flow = self._turns[0]
            self._turns.rotate(-1)
            if isinstance(flow, Pull) and flow.at + 1 < self._stored.oldest:
                self._reset(flow, "too-old")
            elif flow.credit > 0 and flow.route not in self._held:
                if isinstance(flow, Fetch):
                    return flow
                if isinstance(flow, Pull):
                    if flow.at < self._last(flow):
                        return flow
                    self._catch_up(flow, now)
        return None

    def open(self, pull: Pull) -> bool:
        """Whether a pull can take another record now."""
        there = self._flows.get((pull.route, pull.number)) is pull
        return there and pull.credit > 0 and pull.at < self._last(pull)

    def give(self, pull: Pull, record: Replayed, now: float) -> int:
        """Send the messages of ``record``, the first one after ``pull.at``; returns their bytes.

        Records that the journal skips were given up; the client is told so.
        """
        if record.at > pull.at + 1:
            self.lose(pull, record.at - 1, _GIVEN_UP, now)
        sent = 0
        for topic in record.prev:
            if topic in pull.topics:
                fields = {"id": pull.number, "topic": f"{topic}."}
                frames = record.message(topic)
                self._say(pull.route, "message", fields, frames, now)
                sent += wire.size_of(frames)
        pull.credit -= sent
        pull.at = record.at
        self._catch_up(pull, now)
        return sent

    def lose(self, pull: Pull, until: int, problem: str, now: float) -> None:
        """The records up to ``until`` cannot be read."""
        fields = {"id": pull.number, "after": pull.at, "until": until, "message": problem}
        self._say(pull.route, "lost", fields, now=now)
        pull.at = until
        self._catch_up(pull, now)

    def give_up(self, pull: Pull, now: float) -> None:
        """There is no record after ``pull.at``, although one was committed: it was given up."""
        self.lose(pull, self._last(pull), _GIVEN_UP, now)

    def expire(self, pull: Pull) -> None:
        """The records after ``pull.at`` are no longer kept."""
        self._reset(pull, "too-old")

    def abandon(self, flow: Flow, problem: wire.WireError) -> None:
        """End a flow whose next part cannot be read."""
        self._end(flow)
        self._refuse(flow.route, flow.number, problem)

    def give_state(self, fetch: Fetch, state: SyncState | None) -> None:
        """Set the state to send, the last one stored; None: the state before the first record."""
        fetch.parts = self._parts(fetch, state or _BEGINNING)

    def go_on(self, fetch: Fetch, now: float) -> None:
        """Send the next parts of a state."""
        assert fetch.parts is not None
        sent = 0
        while sent < BURST_BYTES and fetch.credit > 0:
            part = next(fetch.parts, None)
            if part is None:
                self._end(fetch)
                return
            fields, frame = part
            self._say(fetch.route, "snapshot", fields, [frame], now)
            sent += len(frame)
            fetch.credit -= max(1, len(frame))

    # ---- requests ---------------------------------------------------------------------------

    def _check(self, header: wire.Header, rights: Rights) -> None:
        """WireError if a request is for something that its sender may not watch."""
        kind = header.get("type")
        # a snapshot holds the k-mers that its deltas brought
        if kind == "snapshot" and not rights.may_watch("delta"):
            denied = rights.denial("fetch snapshots, which tell what is on 'delta'")
            raise denied
        if kind == "pull":
            for topic in sorted(_topics(header) & RECORD_TOPICS.keys()):
                if not rights.may_watch(topic):
                    denied = rights.denial(f"watch '{topic}'")
                    raise denied

    def _request(self, route: Route, number: int, header: wire.Header, now: float) -> None:
        match header.get("type"):
            case "pull":
                self._pull(route, number, header, now)
            case "snapshot":
                window = wire.integer(header, "credit", 1)
                self._begin(Fetch(route, number, window, window), now)
            case "credit":
                more = wire.integer(header, "bytes")
                if flow := self._flows.get((route, number)):
                    flow.credit = min(flow.credit + more, flow.window)
                    flow.heard = now
            case "heads":
                self._say(route, "heads", {"id": number} | self._heads(), now=now)
            case "stop":
                if flow := self._flows.get((route, number)):
                    self._end(flow)
                self._say(route, "stopped", {"id": number}, now=now)
            case other:
                raise wire.malformed(f"unknown type {wire.shown(other)}")

    def _pull(self, route: Route, number: int, header: wire.Header, now: float) -> None:
        window, after = wire.integer(header, "credit", 1), wire.integer(header, "after")
        until = None if header.get("until") is None else wire.integer(header, "until", after)
        stream = header.get("stream", "")
        if not isinstance(stream, str) or (len(stream) != _STREAM_DIGITS and (after or stream)):
            raise wire.malformed(f"field 'stream' must have {_STREAM_DIGITS} characters")
        asked = _topics(header)
        topics = frozenset(asked & RECORD_TOPICS.keys() - LIVE_ONLY)
        pull = Pull(route, number, window, window, topics, after, until)
        # even where there is no room
        if reason := self._unservable(stream, after):
            self._say_reset(pull, reason)
            return
        self._begin(pull, now)
        live, unknown = asked & TOPICS.keys() - topics, asked - TOPICS.keys()
        named = {"live_only": sorted(live), "unknown": sorted(unknown)}
        known = {key: [f"{topic}." for topic in topics] for key, topics in named.items() if topics}
        self._say(route, "pulling", {"id": number, "credit": pull.window} | known, now=now)
        self._catch_up(pull, now)

    def _unservable(self, stream: str, after: int) -> str:
        """Why a cursor cannot be served, "" if it can; WireError if that is not known."""
        stored = self._stored
        if stream and stream != stored.stream:
            return "stream"
        if after > stored.head:
            if stored.unread is not None:
                raise stored.unread
            return "future"
        return "too-old" if after + 1 < stored.oldest else ""

    def _begin(self, flow: Flow, now: float) -> None:
        """Start a flow; WireError if there is no room for it."""
        limits, route = self._limits, flow.route
        if (route, flow.number) in self._flows:
            raise wire.malformed(f"id {flow.number} is in use on this connection")
        windows = [other.window for other in self._turns if other.route == route]
        if len(windows) >= limits.pulls:
            raise wire.WireError(
                wire.Reason.CREDIT,
                f"a connection may pull {limits.pulls} times at once (sync.pulls)",
            )
        if route not in self._spoken and len(self._spoken) >= limits.connections:
            self._make_room(now)
        flow.window = flow.credit = limits.window(flow.window, sum(windows))
        flow.heard = now
        self._flows[route, flow.number] = flow
        self._turns.append(flow)
        self._spoken[route] = now

    def _make_room(self, now: float) -> None:
        """End the flows of a connection without credit for long; WireError if there is none."""
        reading = {flow.route for flow in self._turns if now - flow.heard < _STUCK_SECONDS}
        stuck = [flow for flow in self._turns if flow.route not in reading]
        if not stuck:
            raise wire.WireError(
                wire.Reason.CREDIT,
                f"{self._limits.connections} connections pull already (sync.connections)",
            )
        longest = min(stuck, key=lambda flow: flow.heard).route
        problem = (
            f"no credit for {_STUCK_SECONDS:.0f} s: it made room for another connection"
            " (sync.connections)"
        )
        for flow in [flow for flow in stuck if flow.route == longest]:
            self.abandon(flow, wire.WireError(wire.Reason.CREDIT, problem))

    def _end(self, flow: Flow) -> None:
        del self._flows[flow.route, flow.number]
        if flow in self._turns:
            self._turns.remove(flow)
        if not any(other.route == flow.route for other in self._turns):
            self._spoken.pop(flow.route, None)

    # ---- messages out -----------------------------------------------------------------------

    def _last(self, pull: Pull) -> int:
        head = self._stored.head
        return head if pull.until is None else min(head, pull.until)

    def _catch_up(self, pull: Pull, now: float) -> None:
        """Tell a pull that it has everything so far: at once the first time, later now and then."""
        if self._flows.get((pull.route, pull.number)) is not pull or pull.at < self._last(pull):
            return
        finished = pull.at == pull.until
        at, told = pull.reached
        if pull.route in self._held or (at == pull.at and not finished):
            return
        if finished or at < 0 or now - told >= _REACHED_SECONDS:
            pull.reached = pull.at, now
            fields = {"id": pull.number, "at": pull.at} | self._heads()
            self._say(pull.route, "reached", fields, now=now)
            if finished:
                self._end(pull)

    def _reset(self, pull: Pull, reason: str) -> None:
        self._end(pull)
        self._say_reset(pull, reason)

    def _say_reset(self, pull: Pull, reason: str) -> None:
        fields = {"id": pull.number, "reason": reason, "after": pull.at} | self._heads()
        self._say(pull.route, "reset", fields)

    def _refuse(self, route: Route, number: int | None, error: wire.WireError) -> None:
        fields = {} if number is None else {"id": number}
        self._say(route, "refused", fields | error.fields())

    def _heads(self) -> wire.Header:
        stored = self._stored
        heads = {f"{topic}.": at for topic, at in stored.heads.items()}
        return {
            "stream": stored.stream,
            "epoch": stored.epoch,
            "oldest": stored.oldest,
            "head": stored.head,
            "heads": heads,
        }

    def _parts(self, fetch: Fetch, state: SyncState) -> Iterator[tuple[wire.Header, wire.Buffer]]:
        fields = {"id": fetch.number, "stream": self._stored.stream, "at": state.at}
        fields |= {"parts": state.parts} | state.fields
        for part, frame in enumerate(state.frames, 1):
            yield fields | {"part": part}, frame

    def _say(
        self,
        route: Route,
        kind: str,
        fields: wire.Header,
        frames: Sequence[wire.Buffer] = (),
        now: float | None = None,
    ) -> None:
        if now is not None and route in self._spoken:
            self._spoken[route] = now
        head = wire.pack({"v": wire.PROTOCOL, "type": kind} | fields)
        self.out.append((route, wire.seal([head, *frames])))


def _topics(header: wire.Header) -> frozenset[str]:
    topics = header.get("topics")
    if not isinstance(topics, list) or not 0 < len(topics) <= _MOST_TOPICS:
        raise wire.malformed(f"field 'topics' must be an array of 1 to {_MOST_TOPICS} topics")
    if not all(isinstance(topic, str) for topic in topics):
        raise wire.malformed("field 'topics' must be an array of strings")
    return frozenset(topic[:40].removesuffix(".") for topic in topics)


# this long after a commit, further commits are expected
_LIVE_SECONDS = 0.5
# cores are contended if the time waiting for one exceeds this fraction of the time on one
_CONTENDED = 0.25
# pause, as a multiple of the working time: the first, the longest, and what is rounded down to none
_FIRST, _MOST, _NONE = 1.0, 4.0, 0.1
_EASED = 0.7
# the longest pause, since requests wait for its end
_MOST_SECONDS = 0.05


class Pace:
    """How long to pause between two bursts. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._committed = -math.inf
        self._times = 0.0

    def committed(self, now: float) -> None:
        """There are new records."""
        self._committed = now

    def pause(self, now: float, working: float, waiting: float) -> float:
        """Seconds to pause after a burst of ``working`` seconds on a core, ``waiting`` for one."""
        if waiting > _CONTENDED * working:
            self._times = min(max(_FIRST, 2 * self._times), _MOST)
        else:
            self._times *= _EASED
            if self._times < _NONE:
                self._times = 0.0
        if now - self._committed > _LIVE_SECONDS:
            return 0.0
        return min(self._times * working, _MOST_SECONDS)
