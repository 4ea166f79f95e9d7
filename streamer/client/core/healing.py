"""A subscriber that heals gaps: what it missed on the feed it pulls over sync.

While no message is missing, live messages are delivered as they come. Once one is missing, live
messages wait in a bounded buffer, and a pull brings everything after the last complete record; then
the buffer follows. Each message is delivered once, by topic in the order of records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

from streamer.client.core.pull import CursorRefused, PullCore, Reached, Refused, Unreadable
from streamer.client.core.subscriber import Cursor, Positions, SubscriberCore
from streamer.client.messages import (
    Done,
    Gap,
    Known,
    Message,
    NewEpoch,
    RecordMessage,
    Reset,
    Standing,
)
from streamer.protocol.header import Buffer, Header, Reason, size_of
from streamer.protocol.schema import LIVE_ONLY, RECORD_TOPICS

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
        self.pull = PullCore(self._healed, count(1))
        self.refusal: Header | None = None
        # nothing was received yet, so there is no position to begin from
        self._fresh = cursor is None
        # something is missing, at least up to record ``_needed``
        self.healing = cursor is not None and bool(self._healed)
        self._needed = 0
        # the pull skipped records; later messages show on which topics
        self._left_out = False
        self._next_pull = self._unanswered = 0.0
        start = cursor or Cursor("", 0)
        # positions of the messages that are queued, and of those that were delivered
        self._in, self._out = Positions(self._healed, start), Positions(self._healed, start)
        self._buffer: deque[tuple[RecordMessage, int]] = deque()
        self._buffer_bytes = buffer_bytes
        self._buffered = self._size = 0

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

    def _leave(self, message: Message | Done) -> None:
        match message:
            case Done():
                self._out.complete(message.at)
                self._out.stream = message.stream
            case Reset():
                self._out = self._behind(message.reason, message.stream, message.at, self._out)
            case Gap():
                self._out.message(message.topic, message.until)
            case RecordMessage():
                self._out.message(message.stamp.topic, message.stamp.at)
                self._out.stream = message.stamp.stream

    # ---- sync -------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Ask for what is missing, repeatedly if necessary; ``now`` is in seconds of any clock."""
        pull = self.pull
        if self.healing and (pull.overdue(now) or (not pull.active and now >= self._next_pull)):
            self._left_out = False
            pull.begin(self._in.stream, self._in.at, now)
        self._unanswered = pull.silence(now) if self.healing else 0.0

    def answer(self, frames: Sequence[Buffer], now: float, crc: int | None = None) -> None:
        """Process a message of sync; crc: of all frames but the last, if known."""
        event = self.pull.take(frames, now, crc)
        if self.pull.damaged:
            self.damaged += self.pull.damaged
            self.damage, self.pull.damaged = self.pull.damage, 0
        match event:
            case RecordMessage():
                self._pulled(event)
            case Reached():
                self._reached(event)
            case Unreadable():
                self._left_out = True
            case CursorRefused():
                self._reset(event)
            case Refused():
                self._next_pull = now + _PAUSE
                if event.header.get("reason") != Reason.CREDIT:
                    self.refusal = event.header

    def _pulled(self, message: RecordMessage) -> None:
        stamp = message.stamp
        self._passed(stamp.stream, stamp.at - 1)
        last = self._in.last[stamp.topic]
        if stamp.at <= last:
            return
        if stamp.previous > last:
            # it is damaged in the journal, too
            self._miss(stamp.topic, last, stamp.previous)
        self._in.message(stamp.topic, stamp.at)
        self.ready.append(message)

    def _passed(self, stream: str, at: int) -> None:
        """A pull has passed this record: on no topic need the next one begin earlier."""
        self._in.stream = stream
        if at > self._in.at and not self._left_out:
            self._in.passed(at)
            self.ready.append(Done(stream, at))

    def _reached(self, reached: Reached) -> None:
        for topic in self._healed:
            head, last = reached.extent.heads.get(topic, 0), self._in.last[topic]
            if last < head <= reached.at:
                self._miss(topic, last, head)
        self._in.stream = reached.extent.stream
        self._left_out = False
        self._complete(reached.at)
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
        self._in = self._behind(refused.reason, extent.stream, at, self._in)
        self._needed = min(self._needed, extent.head)
        self._next_pull = 0.0
        self.ready.append(Reset(refused.reason, extent.stream, at))

    def _behind(self, reason: str, stream: str, at: int, before: Positions) -> Positions:
        """The positions after a reset; messages delivered beyond them do not come again."""
        ahead = before.last if reason == "too-old" else {}
        return Positions(self._healed, Cursor(stream, at, ahead))

    # ---- the feed ---------------------------------------------------------------------------

    def take(self, frames: Sequence[Buffer], crc: int | None = None) -> None:
        """Process a message of the feed."""
        self._size = size_of(frames)
        super().take(frames, crc)

    def _note(self, message: Known) -> None:
        if isinstance(message, RecordMessage) and message.stamp.topic in self._healed:
            if self._begins(message, message.stamp.at - 1):
                self._live(message, self._size)
        elif not isinstance(message, Standing) or self._begins(message, message.stamp.at):
            super()._note(message)

    def _begins(self, message: Known, head: int) -> bool:
        """Start a new stream or epoch if the message has one; False if its epoch is over."""
        self.heard = True
        stamp = message.stamp
        if stamp.stream == self.stream and stamp.epoch < self.epoch:
            return False
        if (stamp.stream, stamp.epoch) != (self.stream, self.epoch):
            self._begin(stamp.stream, stamp.epoch, head)
        return True

    def _begin(self, stream: str, epoch: int, head: int) -> None:
        moved = stream != self._in.stream or head < self._in.at
        if self._fresh or (moved and not self._healed):
            self._fresh = False
            start = Cursor(stream, head)
            self._in, self._out = (Positions(self._healed, start) for _ in range(2))
        elif moved:
            # sync knows what has become of the records
            self._heal(0)
        if stream != self.stream:
            self.last.clear()
        elif self.epoch:
            self.ready.append(NewEpoch(self.epoch, epoch))
        self.stream, self.epoch, self.at = stream, epoch, head
        self.state = ""
        self.published = None

    def _live(self, message: RecordMessage, size: int) -> None:
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

    def _compare(self, message: Standing) -> None:
        super()._compare(message)
        here = self._in
        if self.healing or message.stamp.stream != here.stream:
            return
        heads = [message.heads.get(topic, 0) for topic in self._healed]
        if any(head > last for head, last in zip(heads, here.last.values(), strict=True)):
            self._heal(max(heads))
        else:
            self._complete(message.stamp.at)

    def _compared(self) -> list[str]:
        return [topic for topic in super()._compared() if topic not in self._healed]

    def _complete(self, at: int) -> None:
        self._in.complete(at)
        self.ready.append(Done(self._in.stream, at))

    def _heal(self, needed: int) -> None:
        self.healing = True
        self._needed = max(needed, self._needed)
        self._next_pull = 0.0
