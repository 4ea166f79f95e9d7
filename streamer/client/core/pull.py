"""One pull over sync without I/O: what to ask for, and what the answers mean.

The state at a record, fetched over sync part by part. Without I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.client.core.subscriber import Cursor
from streamer.client.messages import RecordMessage, typed
from streamer.protocol.feed_messages import decode_body
from streamer.protocol.header import (
    Buffer,
    Header,
    Reason,
    WireError,
    integer,
    integers,
    opened,
    request,
    size_of,
    text,
)
from streamer.protocol.schema import NAMES, TOPICS

WINDOW = 8 << 20
"""Bytes that may be in flight."""

# silence of the daemon after which a pull is repeated
_PATIENCE = 3.0
_TRIES = 3


class Extent(NamedTuple):
    """What can be pulled; heads: by topic, the last record up to ``head`` with a message on it."""

    stream: str
    epoch: int
    oldest: int
    head: int
    heads: Mapping[str, int]


class Reached(NamedTuple):
    """Everything up to record ``at`` has come."""

    at: int
    extent: Extent


class Unreadable(NamedTuple):
    """The records after ``after`` up to ``until`` are damaged; their messages will not come."""

    after: int
    until: int


class CursorRefused(NamedTuple):
    """A position from which no pull can continue: ``too-old``, ``stream`` or ``future``."""

    reason: str
    extent: Extent


class Refused(NamedTuple):
    """A pull was refused; ``header`` has the reason."""

    header: Header


Event = RecordMessage | Reached | Unreadable | CursorRefused | Refused


class PullCore:
    """Pulls one after the other, each with one of ``numbers``; send what is in ``requests``.

    Late answers to an earlier pull are ignored. damaged, damage: as those of ``Subscriber``.
    """

    def __init__(self, topics: Sequence[str], numbers: Iterator[int], window: int = WINDOW) -> None:
        self.requests: deque[list[Buffer]] = deque()
        self.damaged = 0
        self.damage: WireError | None = None
        # damaged answers without a good one in between
        self.damaged_again = 0
        self.active = False
        self._asked = frozenset(topics)
        self._topics = [TOPICS[topic].wire for topic in topics]
        self._window = window
        self._numbers = numbers
        self._number = 0
        # bytes received for which no credit was given, and the most that may be in flight
        self._read, self._granted = 0, window
        # seconds for this pull, and for all
        self._heard = self._answered = 0.0
        # the names in the previous message; all messages of a batch have the same
        self._names: Sequence[str] = ()

    def begin(self, stream: str, after: int, now: float, until: int | None = None) -> None:
        """Ask for what follows record ``after``."""
        if not self.active:
            # no answer was due before
            self._answered = now
        self.end()
        self._number = next(self._numbers)
        self._read, self._heard, self.active = 0, now, True
        self._granted = self._window
        fields: Header = {"stream": stream, "after": after, "topics": self._topics}
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

    def take(self, frames: Sequence[Buffer], now: float, crc: int | None = None) -> Event | None:
        """Process an answer; crc: that of all frames but the last, if known.

        A damaged answer is noted; what is missing must be requested again.
        """
        try:
            header, body = opened(frames, crc)
            self._heard = self._answered = now
            if not self.active:
                return None
            if header.get("type") == "refused" and "id" not in header:
                return self._unread(header)
            # beats concern the connection
            return self._event(header, body) if header.get("id") == self._number else None
        except WireError as error:
            self.damaged += 1
            self.damage = error
            self.damaged_again += 1
            # treated like a long silence
            self._heard = now - 2 * _PATIENCE
            return None

    def _unread(self, header: Header) -> Event:
        """The daemon could not read a request, but cannot say which one."""
        if header.get("reason") == Reason.CHECKSUM:
            # treated like a damaged answer to it
            raise WireError(Reason.CHECKSUM, "a request was damaged on its way")
        self.active = False
        return Refused(header)

    def _event(self, header: Header, body: Sequence[Buffer]) -> Event | None:
        match header.get("type"):
            case "pulling":
                self._granted = integer(header, "credit", 1)
            case "message":
                self._credit(size_of(body))
                decoded = decode_body(body, self._names)
                if decoded.topic not in self._asked:
                    raise WireError(Reason.MALFORMED, "a message on a topic that was not asked for")
                self._names = decoded.names
                message = typed(decoded)
                self.damaged_again = 0
                if not isinstance(message, RecordMessage):
                    raise WireError(Reason.MALFORMED, "a message without a record")
                return message
            case "reached":
                return Reached(integer(header, "at"), extent_of(header))
            case "lost":
                return Unreadable(integer(header, "after"), integer(header, "until"))
            case "reset":
                self.active = False
                return CursorRefused(text(header, "reason"), extent_of(header))
            case "refused":
                self.active = False
                return Refused(header)
        # includes what a later version may send
        return None

    def _credit(self, size: int) -> None:
        self._read += size
        if self._read >= self._granted // 4:
            self._ask("credit", bytes=self._read)
            self._read = 0

    def _ask(self, kind: str, **fields: Any) -> None:
        self.requests.append(request(kind, self._number, **fields))


def extent_of(header: Header) -> Extent:
    """The extent of the journal in an answer; WireError if it does not follow docs/protocol.md."""
    heads = header.get("heads")
    if not isinstance(heads, dict):
        raise WireError(Reason.MALFORMED, "field 'heads' must be a map")
    numbers = {NAMES[topic]: integer(heads, topic) for topic in heads if topic in NAMES}
    epoch, oldest, head = (integer(header, key) for key in ("epoch", "oldest", "head"))
    return Extent(text(header, "stream"), epoch, oldest, head, numbers)


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
        self.requests: deque[list[Buffer]] = deque()
        self._number = number
        self._parts: list[bytes] = []
        self._ask("snapshot", credit=window)

    def take(
        self, frames: Sequence[Buffer], crc: int | None = None
    ) -> StoredState | Refused | None:
        """Process an answer; returns the state with its last part. WireError if it is damaged."""
        header, body = opened(frames, crc)
        if header.get("id") != self._number:
            return None
        if header.get("type") == "refused":
            return Refused(header)
        if header.get("type") != "snapshot":
            return None
        part, parts = integers(header, ("part", "parts"))
        if part != len(self._parts) + 1 or part > parts or len(body) != 1:
            raise WireError(Reason.MALFORMED, f"part {part} after {len(self._parts)} parts")
        self._parts.append(bytes(body[0]))
        self._ask("credit", bytes=max(1, len(body[0])))
        return self._state(header) if part == parts else None

    def _state(self, header: Header) -> StoredState:
        joined = b"".join(self._parts)
        version, batch, base, kmers = integers(header, ("version", "batch", "base", "kmers"))
        heads, totals = header.get("heads"), header.get("totals")
        if len(joined) != 8 * kmers or not isinstance(heads, dict) or not isinstance(totals, dict):
            raise WireError(Reason.MALFORMED, "the state is incomplete")
        named = {NAMES[topic]: integer(heads, topic) for topic in heads if topic in NAMES}
        cursor = Cursor(text(header, "stream"), integer(header, "at"))
        codes = np.frombuffer(joined, "<u8").astype(np.uint64, copy=False)
        return StoredState(cursor, version, batch, base, named, totals, codes)

    def _ask(self, kind: str, **fields: Any) -> None:
        self.requests.append(request(kind, self._number, **fields))
