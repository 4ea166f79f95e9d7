"""A subscriber without I/O: which messages are new, which are missing, whether the daemon is up.

Frames of messages and the time without messages go in; typed messages and notices about missing
ones come out, in order.

The position of a consumer of the feed: which messages it has, and what it stores to resume.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamer.client.messages import (
    Beat,
    Done,
    Gap,
    Known,
    Message,
    NewEpoch,
    NewStream,
    Standing,
    typed,
)
from streamer.errors import StreamerError
from streamer.protocol.feed_messages import DENIED_TOPIC, decode_feed
from streamer.protocol.header import Buffer, Header, WireError
from streamer.protocol.schema import RECORD_TOPICS

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
        self.ready: deque[Message | Done] = deque()
        self.damaged = 0
        self.damage: WireError | None = None
        self.gaps = 0
        # topics that the daemon has denied
        self.denial: Header | None = None
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

    def next(self) -> Message | None:
        """The next message to deliver, if there is one."""
        while self.ready:
            message = self.ready.popleft()
            self._leave(message)
            if not isinstance(message, Done):
                return message
        return None

    def _leave(self, message: Message | Done) -> None:
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

    def take(self, frames: Sequence[Buffer], crc: int | None = None) -> None:
        """Process a message; ``crc``: that of all frames but the last, if known."""
        self._silence = 0.0
        try:
            decoded = decode_feed(frames, crc, self._names)
            if not decoded.topic:
                if decoded.header.get("topic") == DENIED_TOPIC:
                    self.denial = decoded.header
                return
            message = typed(decoded)
        except WireError as error:
            self.damaged += 1
            self.damage = error
            return
        self._names = decoded.names
        self._note(message)

    def _note(self, message: Known) -> None:
        """Queue what the message implies about earlier ones, then the message itself."""
        self.heard = True
        stamp = message.stamp
        topic, at = stamp.topic, stamp.at
        numbered = topic in RECORD_TOPICS
        if (stamp.stream, stamp.epoch) != (self.stream, self.epoch):
            if stamp.stream == self.stream and stamp.epoch < self.epoch:
                return  # sent before a restart
            # the first record of a new epoch is later than all published before
            self._begin(stamp.stream, stamp.epoch, at - numbered)
        self.at = max(self.at, at)
        if numbered:
            last = self.last.get(topic)
            if last is not None:
                if at <= last:
                    return
                if stamp.previous > last:
                    self._miss(topic, last, stamp.previous)
            self.last[topic] = at
        elif isinstance(message, Standing):
            self._compare(message)
        if topic in self.topics:
            self.ready.append(message)

    def _begin(self, stream: str, epoch: int, head: int) -> None:
        """Begin another stream or epoch; ``head``: its last record before this message."""
        if stream != self.stream or head < self.at:
            if self.stream:
                self.ready.append(NewStream(self.stream, stream))
            self.last.clear()
            self.at = 0
        elif self.epoch:
            self.ready.append(NewEpoch(self.epoch, epoch))
        self.stream, self.epoch = stream, epoch
        self.state = ""
        self.published = None

    def _compare(self, message: Standing) -> None:
        """Notice messages missing at the end of a topic, which no later message shows."""
        self.state = message.state
        if isinstance(message, Beat):
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
            self.ready.append(Gap(topic, after, until))


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
            found = cls(str(fields["stream"]), fields["at"], dict(fields.get("ahead", {})))
            numbers = [found.at, *found.ahead.values()]
        except (ValueError, TypeError, KeyError, RecursionError):
            numbers = []
        if not numbers or any(type(n) is not int or not 0 <= n <= _MOST for n in numbers):
            raise StreamerError("not a cursor")
        return found


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
