"""The requests that sync serves, pulls and fetches, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamer.protocol.header import Buffer, Header, WireError

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
    """What is in the journal; heads: by topic, the last record up to ``head`` with a message on it.

    unread: why the journal could not be read; it may then hold more by now. None if it was read.
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
        """Its topics, in order, each with the last record before on that topic."""

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum."""


class SyncState(NamedTuple):
    """The state after record ``at``: header fields, and the k-mers that the stream has brought.

    frames: the k-mers in ``parts`` parts, each made when it is taken.
    """

    at: int
    fields: Header
    parts: int
    frames: Iterable[Buffer]


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

    parts: Iterator[tuple[Header, Buffer]] | None = None
