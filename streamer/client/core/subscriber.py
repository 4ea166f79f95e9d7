"""A subscriber without I/O: which messages are new, which are missing, whether the daemon is up.

Frames of messages and the time without messages go in; typed messages and notices about missing
ones come out, in order. ``SubscriberCore`` follows the feed, ``PullCore`` replays it over sync, and
``HealingCore`` does both: while no message is missing, live messages are delivered as they come.
Once one is missing, live messages wait in a bounded buffer, and a pull brings everything after the
last complete record; then the buffer follows. Each message is delivered once, by topic in the order
of records. ``FetchCore`` fetches the state at a record.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.client import messages
from streamer.errors import StreamerError
from streamer.protocol import wire
from streamer.protocol.payloads import DENIED_TOPIC, decode_body, decode_feed
from streamer.protocol.schema import LIVE_ONLY, RECORD_TOPICS, TOPICS

FINAL = ("ended", "failed")


class SubscriberCore:
    """The state of a subscriber to ``topics``; ``ready`` holds what to deliver.

    A message on a topic is new if its record ``at`` is later than the last one of that topic, and
    one is missing if its ``previous`` is later, too. Beats and status messages name the last record
    of every topic, so a lost tail is noticed. Records continue over restarts of a daemon with a
    journal (NewEpoch); with another stream everything starts over (NewStream).

    The attributes are those of ``Subscriber``.
    """

    def __init__(self, topics: Sequence[str], answer_seconds: float) -> None:
        self.topics = tuple(topics)
        self.answer_seconds = answer_seconds
        self.ready: deque[messages.Message | messages.Done] = deque()
        self.damaged = 0
        self.damage: wire.WireError | None = None
        self.gaps = 0
        # topics that the daemon has denied
        self.denial: wire.Header | None = None
        self.heard = False
        self.state = ""
        self.published: frozenset[str] | None = None
        self.stream = ""
        self.epoch = 0
        # the last record by topic, and over all topics
        self.last: dict[str, int] = {}
        self.at = 0
        # seconds without a message; those of a stopped process do not count
        self._silence = 0.0
        # the names in the previous message; all messages of a batch have the same
        self._names: Sequence[str] = ()

    def next(self) -> messages.Message | None:
        """The next message to deliver, if there is one."""
        while self.ready:
            message = self.ready.popleft()
            self._leave(message)
            if not isinstance(message, messages.Done):
                return message
        return None

    def _leave(self, message: messages.Message | messages.Done) -> None:
        """Called when a message leaves the queue."""

    @property
    def ended(self) -> bool:
        """Whether the daemon has announced its end."""
        return self.state in FINAL

    @property
    def failed(self) -> bool:
        """Whether the daemon ended without publishing all that it accepted."""
        return self.state == "failed"

    @property
    def lost(self) -> bool:
        """Whether a daemon that was heard has fallen silent without announcing its end."""
        return self.heard and not self.ended and self._silence > self.answer_seconds

    def wait(self, seconds: float) -> None:
        """No message has come for this long."""
        self._silence += seconds

    def take(self, frames: Sequence[wire.Buffer], crc: int | None = None) -> None:
        """Process a message; ``crc``: that of all frames but the last, if known."""
        self._silence = 0.0
        try:
            decoded = decode_feed(frames, crc, self._names)
            if not decoded.topic:
                if decoded.header.get("topic") == DENIED_TOPIC:
                    self.denial = decoded.header
                return
            message = messages.typed(decoded)
        except wire.WireError as error:
            self.damaged += 1
            self.damage = error
            return
        self._names = decoded.names
        self._note(message)

    def _note(self, message: messages.Known) -> None:
        """Queue what the message implies about earlier ones, then the message itself."""
        stamp = message.stamp
        topic, at = stamp.topic, stamp.at
        numbered = topic in RECORD_TOPICS
        # the first record of a new epoch is later than all published before
        if not self._begins(message, at - numbered):
            return  # sent before a restart
        self.at = max(self.at, at)
        if numbered:
            last = self.last.get(topic)
            if last is not None:
                if at <= last:
                    return
                if stamp.previous > last:
                    self._miss(topic, last, stamp.previous)
            self.last[topic] = at
        elif isinstance(message, messages.Standing):
            self._compare(message)
        if topic in self.topics:
            self.ready.append(message)

    def _begins(self, message: messages.Known, head: int) -> bool:
        """Start a new stream or epoch if the message has one; False if its epoch is over."""
        self.heard = True
        stamp = message.stamp
        if stamp.stream == self.stream and stamp.epoch < self.epoch:
            return False
        if (stamp.stream, stamp.epoch) != (self.stream, self.epoch):
            self._begin(stamp.stream, stamp.epoch, head)
        return True

    def _begin(self, stream: str, epoch: int, head: int) -> None:
        """Begin another stream or epoch; ``head``: its last record before this message."""
        if stream != self.stream or head < self.at:
            if self.stream:
                self.ready.append(messages.NewStream(self.stream, stream))
            self.last.clear()
            self.at = 0
        elif self.epoch:
            self.ready.append(messages.NewEpoch(self.epoch, epoch))
        self.stream, self.epoch = stream, epoch
        self.state = ""
        self.published = None

    def _compare(self, message: messages.Standing) -> None:
        """Notice messages missing at the end of a topic, which no later message shows."""
        self.state = message.state
        if isinstance(message, messages.Beat):
            self.published = message.published
        for topic in self._compared():
            head = message.heads.get(topic, 0)
            last = self.last.setdefault(topic, head)
            if last < head:
                self._miss(topic, last, head)
                self.last[topic] = head

    def _compared(self) -> list[str]:
        """The topics whose last record is compared with the daemon's."""
        return [topic for topic in self.topics if topic in RECORD_TOPICS]

    def _miss(self, topic: str, after: int, until: int) -> None:
        """Queue a Gap: the messages of records after ``after`` up to ``until`` did not come.

        A subclass that can ask for them again does so when this Gap is delivered, before what
        follows it.
        """
        if topic in self.topics:
            self.gaps += 1
            self.ready.append(messages.Gap(topic, after, until))


_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a stream: everything up to record ``at`` was received.

    ahead: topics with later messages that were received, too, each with the record of the last
    one. If the effects of a message and the cursor after it are stored together, each message takes
    effect once.
    """

    stream: str
    at: int
    ahead: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"stream": self.stream, "at": self.at, "ahead": dict(self.ahead)}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """The cursor that ``to_json`` wrote; StreamerError if it is not one."""
        try:
            fields = json.loads(text)
            cursor = cls(str(fields["stream"]), fields["at"], dict(fields.get("ahead", {})))
            numbers = [cursor.at, *cursor.ahead.values()]
        except (ValueError, TypeError, KeyError, RecursionError):
            numbers = []
        if not numbers or any(type(n) is not int or not 0 <= n <= _MOST for n in numbers):
            raise StreamerError("not a cursor")
        return cursor


class Positions:
    """By topic, the record up to which all messages were received.

    last: the last message of each topic, or a later record up to which all was ``complete``.
    """

    def __init__(self, topics: Iterable[str], cursor: Cursor) -> None:
        self.stream = cursor.stream
        self.last = {topic: max(cursor.at, cursor.ahead.get(topic, 0)) for topic in topics}
        self._at = cursor.at

    @property
    def at(self) -> int:
        """Everything up to this record was received."""
        return max(self._at, min(self.last.values(), default=0))

    @property
    def cursor(self) -> Cursor:
        """The positions as a cursor, to be stored."""
        at = self.at
        return Cursor(self.stream, at, {t: last for t, last in self.last.items() if last > at})

    def message(self, topic: str, at: int) -> None:
        """The next message of a topic, about record ``at``, was received."""
        if topic in self.last:
            self.last[topic] = at

    def passed(self, at: int) -> None:
        """Nothing up to record ``at`` will still come; ``last`` shows what was skipped."""
        self._at = max(self._at, at)

    def complete(self, at: int) -> None:
        """Nothing up to record ``at`` is missing."""
        self.passed(at)
        for topic, last in self.last.items():
            self.last[topic] = max(last, at)


WINDOW = 8 << 20
"""Bytes that may be in flight."""

# silence of the daemon after which a pull is repeated
_PATIENCE = 3.0
_TRIES = 3
# a pull that has given no credit for this long gives what it has, be it 0: this shows that it reads
_SIGN_SECONDS = 3.0


class Extent(NamedTuple):
    """The records to pull; heads: by topic, the last one up to ``head`` with a message on it."""

    stream: str
    epoch: int
    oldest: int
    head: int
    heads: Mapping[str, int]


class Reached(NamedTuple):
    """Everything up to record ``at`` has come."""

    at: int
    extent: Extent


class CursorRefused(NamedTuple):
    """A position from which no pull can continue: ``too-old``, ``stream`` or ``future``."""

    reason: str
    extent: Extent


class Refused(NamedTuple):
    """A pull was refused; ``header`` has the reason."""

    header: wire.Header


Event = messages.RecordMessage | messages.Gap | messages.Done | Reached | CursorRefused | Refused


class PullCore:
    """Pulls what follows ``received``, repeatedly if need be; send what is in ``requests``.

    numbers: each pull has one. Late answers to an earlier pull are ignored. damaged, damage: as
    those of ``Subscriber``.
    """

    def __init__(
        self, topics: Sequence[str], numbers: Iterator[int], cursor: Cursor, window: int = WINDOW
    ) -> None:
        self.requests: deque[list[wire.Buffer]] = deque()
        self.received = Positions(topics, cursor)
        self.damaged = 0
        self.damage: wire.WireError | None = None
        # damaged answers without a good one in between
        self.damaged_again = 0
        self.active = False
        self._window = window
        self._numbers = numbers
        self._number = 0
        # records were skipped; later messages show on which topics
        self._left_out = False
        # bytes received for which no credit was given, and the most that may be in flight
        self._read, self._granted = 0, window
        # seconds for this pull, and for all
        self._heard = self._answered = 0.0
        # when credit was last given
        self._gave = 0.0
        # the names in the previous message; all messages of a batch have the same
        self._names: Sequence[str] = ()

    def begin(self, now: float, until: int | None = None) -> None:
        """Ask for what follows, up to record ``until``."""
        if not self.active:
            # no answer was due before
            self._answered = now
        self.end()
        self._number = next(self._numbers)
        self._read, self._heard, self._gave, self.active = 0, now, now, True
        self._granted = self._window
        self._left_out = False
        received = self.received
        topics = [TOPICS[topic].wire for topic in received.last]
        fields: wire.Header = {"stream": received.stream, "after": received.at, "topics": topics}
        if until is not None:
            fields["until"] = until
        self._ask("pull", **fields, credit=self._window)

    def end(self) -> None:
        """Ask for no more."""
        if self.active:
            self.active = False
            self._ask("stop")

    def silence(self, now: float) -> float:
        """Seconds since the last answer, or since the pull if that was requested later."""
        return now - self._answered if self._number else 0.0

    @property
    def hopeless(self) -> bool:
        """Whether asking again gives the same damage, so the network is not the cause."""
        return self.damaged_again > _TRIES

    def overdue(self, now: float) -> bool:
        """Whether the daemon has fallen silent and must be asked again."""
        return self.active and now - self._heard > _PATIENCE

    def take(
        self, frames: Sequence[wire.Buffer], now: float, crc: int | None = None
    ) -> Iterable[Event]:
        """Process an answer; crc: that of all frames but the last, if known.

        ``received`` advances as the events are taken. A damaged answer is noted; what is missing
        must be requested again.
        """
        try:
            header, body = wire.opened(frames, crc)
            self._heard = self._answered = now
            if not self.active:
                return ()
            if header.get("type") == "refused" and "id" not in header:
                return [self._unread(header)]
            # beats concern the connection
            events = self._events(header, body) if header.get("id") == self._number else ()
            if self.active:
                self._credit(now)
            return events
        except wire.WireError as error:
            self.damaged += 1
            self.damage = error
            self.damaged_again += 1
            # treated like a long silence
            self._heard = now - 2 * _PATIENCE
            return ()

    def _unread(self, header: wire.Header) -> Event:
        """The daemon could not read a request, but cannot say which one."""
        if header.get("reason") == wire.Reason.CHECKSUM:
            # treated like a damaged answer to it
            raise wire.WireError(wire.Reason.CHECKSUM, "a request was damaged on its way")
        self.active = False
        return Refused(header)

    def _events(self, header: wire.Header, body: Sequence[wire.Buffer]) -> Iterable[Event]:
        match header.get("type"):
            case "pulling":
                self._granted = wire.integer(header, "credit", 1)
            case "message":
                self._read += wire.size_of(body)
                decoded = decode_body(body, self._names)
                if decoded.topic not in self.received.last:
                    raise wire.malformed("a message on a topic that was not asked for")
                self._names = decoded.names
                message = messages.typed(decoded)
                self.damaged_again = 0
                if not isinstance(message, messages.RecordMessage):
                    raise wire.malformed("a message without a record")
                return self._message(message)
            case "reached":
                return self._reached(Reached(wire.integer(header, "at"), extent_of(header)))
            case "lost":
                self._left_out = True
            case "reset":
                self.active = False
                return [CursorRefused(wire.text(header, "reason"), extent_of(header))]
            case "refused":
                self.active = False
                return [Refused(header)]
        # includes what a later version may send
        return ()

    def _message(self, message: messages.RecordMessage) -> Iterator[Event]:
        stamp, received = message.stamp, self.received
        received.stream = stamp.stream
        if not self._left_out and stamp.at - 1 > received.at:
            # on no topic need the next pull begin earlier
            received.passed(stamp.at - 1)
            yield messages.Done(stamp.stream, stamp.at - 1)
        last = received.last[stamp.topic]
        if stamp.at <= last:
            return
        if stamp.previous > last:
            # it is damaged in the journal, too
            received.message(stamp.topic, stamp.previous)
            yield messages.Gap(stamp.topic, last, stamp.previous)
        received.message(stamp.topic, stamp.at)
        yield message

    def _reached(self, reached: Reached) -> Iterator[Event]:
        received = self.received
        received.stream = reached.extent.stream
        for topic, last in received.last.items():
            head = reached.extent.heads.get(topic, 0)
            if last < head <= reached.at and topic not in LIVE_ONLY:
                received.message(topic, head)
                yield messages.Gap(topic, last, head)
        self._left_out = False
        received.complete(reached.at)
        yield messages.Done(received.stream, reached.at)
        yield reached

    def _credit(self, now: float) -> None:
        if self._read >= self._granted // 4 or now - self._gave >= _SIGN_SECONDS:
            self._ask("credit", bytes=self._read)
            self._read, self._gave = 0, now

    def _ask(self, kind: str, **fields: Any) -> None:
        self.requests.append(wire.request(kind, self._number, **fields))


def extent_of(header: wire.Header) -> Extent:
    """The extent of the journal in an answer; WireError if it does not follow docs/protocol.md."""
    heads = messages.heads_of(header)
    epoch, oldest, head = (wire.integer(header, key) for key in ("epoch", "oldest", "head"))
    return Extent(wire.text(header, "stream"), epoch, oldest, head, heads)


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state after the records up to ``cursor``; pulling from the cursor gives the rest.

    version: that of the dictionary. batch, base: number and stream position of the next batch.
    heads: by topic, the last record with a message on it. totals: as in ``status``. kmers: uint64,
    those that the stream has added to the dictionary, in order.
    """

    cursor: Cursor
    version: int
    batch: int
    base: int
    heads: Mapping[str, int]
    totals: Mapping[str, Any]
    kmers: NDArray[np.uint64]


class FetchCore:
    """One request for the state; send what is in ``requests``."""

    def __init__(self, number: int, window: int = WINDOW) -> None:
        self.requests: deque[list[wire.Buffer]] = deque()
        self._number = number
        self._parts: list[bytes] = []
        self._ask("snapshot", credit=window)

    def take(
        self, frames: Sequence[wire.Buffer], crc: int | None = None
    ) -> StoredState | Refused | None:
        """Process an answer; returns the state with its last part. WireError if it is damaged."""
        header, body = wire.opened(frames, crc)
        if header.get("id") != self._number:
            return None
        if header.get("type") == "refused":
            return Refused(header)
        if header.get("type") != "snapshot":
            return None
        part, parts = wire.integers(header, ("part", "parts"))
        if part != len(self._parts) + 1 or part > parts or len(body) != 1:
            raise wire.malformed(f"part {part} after {len(self._parts)} parts")
        self._parts.append(bytes(body[0]))
        self._ask("credit", bytes=max(1, len(body[0])))
        return self._state(header) if part == parts else None

    def _state(self, header: wire.Header) -> StoredState:
        joined = b"".join(self._parts)
        version, batch, base, kmers = wire.integers(header, ("version", "batch", "base", "kmers"))
        heads, totals = messages.heads_of(header), header.get("totals")
        if len(joined) != 8 * kmers or not isinstance(totals, dict):
            raise wire.malformed("the state is incomplete")
        cursor = Cursor(wire.text(header, "stream"), wire.integer(header, "at"))
        codes = np.frombuffer(joined, "<u8").astype(np.uint64, copy=False)
        return StoredState(cursor, version, batch, base, heads, totals, codes)

    def _ask(self, kind: str, **fields: Any) -> None:
        self.requests.append(wire.request(kind, self._number, **fields))


BUFFER_BYTES = 64 << 20

# seconds between two pulls if the daemon has no room for one
_PAUSE = 1.0


class HealingCore(SubscriberCore):
    """The state of a subscriber that heals itself.

    cursor: where it begins; None: with the next live message. Send the requests of ``pull`` to
    sync, and pass what comes from there to ``answer``; call ``tick`` often. buffer_bytes: the
    limit of waiting live messages. refusal: why sync refuses to serve, if it does.
    """

    def __init__(
        self,
        topics: Sequence[str],
        answer_seconds: float,
        cursor: Cursor | None = None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        super().__init__(topics, answer_seconds)
        self._healed = [topic for topic in topics if topic in RECORD_TOPICS.keys() - LIVE_ONLY]
        start = cursor or Cursor("", 0)
        self.pull = PullCore(self._healed, count(1), start)
        self.refusal: wire.Header | None = None
        # nothing was received yet, so there is no position to begin from
        self._fresh = cursor is None
        # something is missing, at least up to record ``_needed``
        self.healing = cursor is not None and bool(self._healed)
        self._needed = 0
        self._next_pull = self._unanswered = 0.0
        # those of the messages that were delivered; ``_in``: of those that are queued
        self._out = Positions(self._healed, start)
        self._buffer: deque[tuple[messages.RecordMessage, int]] = deque()
        self._buffer_bytes = buffer_bytes
        self._buffered = self._size = 0

    @property
    def _in(self) -> Positions:
        return self.pull.received

    @property
    def cursor(self) -> Cursor | None:
        """The position after the delivered messages; None before the daemon was heard."""
        return None if self._fresh else self._out.cursor

    @property
    def ended(self) -> bool:
        """Whether the daemon has announced its end and nothing is missing."""
        return super().ended and not self.healing

    @property
    def unserved(self) -> bool:
        """Whether sync has not answered for ``answer_seconds`` while something is missing."""
        return self.healing and self._unanswered > self.answer_seconds

    def _leave(self, message: messages.Message | messages.Done) -> None:
        match message:
            case messages.Done():
                self._out.complete(message.at)
                self._out.stream = message.stream
            case messages.Reset():
                self._out = self._behind(message.reason, message.stream, message.at, self._out)
            case messages.Gap():
                self._out.message(message.topic, message.until)
            case messages.RecordMessage():
                self._out.message(message.stamp.topic, message.stamp.at)
                self._out.stream = message.stamp.stream

    # ---- sync -------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Ask for what is missing, repeatedly if necessary; ``now`` is in seconds of any clock."""
        pull = self.pull
        if self.healing and (pull.overdue(now) or (not pull.active and now >= self._next_pull)):
            pull.begin(now)
        self._unanswered = pull.silence(now) if self.healing else 0.0

    def answer(self, frames: Sequence[wire.Buffer], now: float, crc: int | None = None) -> None:
        """Process a message of sync; crc: of all frames but the last, if known."""
        for event in self.pull.take(frames, now, crc):
            match event:
                case messages.Gap():
                    self._miss(event.topic, event.after, event.until)
                case messages.RecordMessage() | messages.Done():
                    self.ready.append(event)
                case Reached():
                    self._reached(event)
                case CursorRefused():
                    self._reset(event)
                case Refused():
                    self._next_pull = now + _PAUSE
                    if event.header.get("reason") != wire.Reason.CREDIT:
                        self.refusal = event.header
        if self.pull.damaged:
            self.damaged += self.pull.damaged
            self.damage, self.pull.damaged = self.pull.damage, 0

    def _reached(self, reached: Reached) -> None:
        if reached.at < self._needed:
            return
        self.healing = False
        self.pull.end()
        buffer, self._buffer = self._buffer, deque()
        self._buffered = 0
        for message, size in buffer:
            self._live(message, size)

    def _reset(self, refused: CursorRefused) -> None:
        """Continue at the oldest record, or at the end of the stream if the cursor is beyond it."""
        extent = refused.extent
        at = extent.head if refused.reason == "future" else extent.oldest - 1
        self.pull.received = self._behind(refused.reason, extent.stream, at, self._in)
        self._needed = min(self._needed, extent.head)
        self._next_pull = 0.0
        self.ready.append(messages.Reset(refused.reason, extent.stream, at))

    def _behind(self, reason: str, stream: str, at: int, before: Positions) -> Positions:
        """The positions after a reset; messages delivered beyond them do not come again."""
        ahead = before.last if reason == "too-old" else {}
        return Positions(self._healed, Cursor(stream, at, ahead))

    # ---- the feed ---------------------------------------------------------------------------

    def take(self, frames: Sequence[wire.Buffer], crc: int | None = None) -> None:
        """Process a message of the feed."""
        self._size = wire.size_of(frames)
        super().take(frames, crc)

    def _note(self, message: messages.Known) -> None:
        if isinstance(message, messages.RecordMessage) and message.stamp.topic in self._healed:
            if self._begins(message, message.stamp.at - 1):
                self._live(message, self._size)
        elif not isinstance(message, messages.Standing) or self._begins(message, message.stamp.at):
            super()._note(message)

    def _begin(self, stream: str, epoch: int, head: int) -> None:
        moved = stream != self._in.stream or head < self._in.at
        if self._fresh or (moved and not self._healed):
            self._fresh = False
            start = Cursor(stream, head)
            self.pull.received = Positions(self._healed, start)
            self._out = Positions(self._healed, start)
        elif moved:
            # sync knows what has become of the records
            self._heal(0)
        if stream != self.stream:
            self.last.clear()
        elif self.epoch:
            self.ready.append(messages.NewEpoch(self.epoch, epoch))
        self.stream, self.epoch, self.at = stream, epoch, head
        self.state = ""
        self.published = None

    def _live(self, message: messages.RecordMessage, size: int) -> None:
        stamp, here = message.stamp, self._in
        if not self.healing and stamp.stream == here.stream:
            last = here.last[stamp.topic]
            if stamp.at <= last:
                return
            if stamp.previous <= last:
                here.message(stamp.topic, stamp.at)
                self.ready.append(message)
                return
            self._heal(stamp.previous)
        self._buffer.append((message, size))
        self._buffered += size
        if self._buffered > self._buffer_bytes:
            # these records are pulled, too
            self._buffer.clear()
            self._buffered = 0

    def _compare(self, message: messages.Standing) -> None:
        super()._compare(message)
        here = self._in
        if self.healing or message.stamp.stream != here.stream:
            return
        heads = [message.heads.get(topic, 0) for topic in self._healed]
        if any(head > last for head, last in zip(heads, here.last.values(), strict=True)):
            self._heal(max(heads))
        else:
            here.complete(message.stamp.at)
            self.ready.append(messages.Done(here.stream, message.stamp.at))

    def _compared(self) -> list[str]:
        return [topic for topic in super()._compared() if topic not in self._healed]

    def _heal(self, needed: int) -> None:
        self.healing = True
        self._needed = max(needed, self._needed)
        self._next_pull = 0.0
