"""What the pulls of sync are, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamer.protocol.header import Buffer, Header, WireError

Route = bytes
"""Of a connection."""


@dataclass(frozen=True, slots=True)
class SyncLimits:
    """Of what may be sent at a time.

    connections: those with flows. pulls: flows of a connection. pull_bytes: credit of a flow.
    memory_bytes: credit of all flows.
    """

    connections: int
    pulls: int
    pull_bytes: int
    memory_bytes: int


class Stored(NamedTuple):
    """What is in the journal; heads: by topic, the last record up to ``head`` that is about it.

    unread: why more may be there by now that cannot be read, None if it could.
    """

    stream: str
    epoch: int
    oldest: int
    head: int
    heads: Mapping[str, int]
    unread: WireError | None = None


class Replayed(Protocol):
    """A record and the messages about it."""

    @property
    def at(self) -> int:
        """Its number."""

    @property
    def prev(self) -> Mapping[str, int]:
        """Its topics, in order, and of each the last record before with a message on it."""

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum."""


class SyncState(NamedTuple):
    """The state after record ``at``: header fields, and the k-mers that the stream has brought.

    frames: in so many parts, each made when it is asked for.
    """

    at: int
    fields: Header
    parts: int
    frames: Iterable[Buffer]


@dataclass(eq=False, slots=True)
class Flow:
    """What is sent on credit. window: the most credit that it ever has."""

    route: Route
    number: int
    window: int
    credit: int


@dataclass(eq=False, slots=True)
class Pull(Flow):
    """Messages on ``topics`` of records after ``at``, up to ``until`` or without an end.

    reached: the record up to which the client knows that it has everything, and when it was told.
    """

    topics: frozenset[str]
    at: int
    until: int | None
    reached: tuple[int, float] = field(default=(-1, 0.0))


@dataclass(eq=False, slots=True)
class Fetch(Flow):
    """The state at a record, part by part; ``parts`` is None until it is known."""

    parts: Iterator[tuple[Header, Buffer]] | None = None
