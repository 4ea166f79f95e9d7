"""The feed without I/O: sequence stamps, the messages of a burst of records, beats, subscriptions.

Published records, changes of state, subscriptions and the time go in; messages come out, in the
order in which to send them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.protocol.payloads import encode_denied, encode_notice
from streamer.protocol.schema import FEED, RECORD_TOPICS, TOPICS
from streamer.protocol.wire import PROTOCOL, Header

if TYPE_CHECKING:
    from streamer.protocol.transport.frames import Message

MAX_IGNORED = 64
"""How many subscriptions that match no topic a connection may make in its lifetime."""

# of the rows in a header, as msgpack: a character has four bytes at most, a value a head
_ROWS_BYTES, _VALUE_BYTES = 12_000, 5


# seconds without any change of its buffer after which a peer counts as stopped, and that a peer
# that reads may take for a burst
_PATIENCE = 0.1
_AT_MOST_EVERY, _AT_LEAST_EVERY = 0.005, 1.0
# a buffer counts as drained below this fraction (1/n) of the most that it has held
_DRAINED = 4
# below this fraction (1/n) of the limit there is no need to look at the buffers
_LITTLE = 4
# connections are equally slow if no more than this fraction (1/n) of the limit was sent in between
_ALIKE = 16


class Publishable(Protocol):
    """A record of the stream that is to be published."""

    @property
    def at(self) -> int:
        """Its number."""

    @property
    def prev(self) -> Mapping[str, int]:
        """The topics it has a message on, in order, each with the last record before on that topic.

        They depend on the stream alone, not on the subscribers.
        """

    def message(self, topic: str, header: Header) -> Message | None:
        """The message on one of these topics, or None; its header begins with ``header``."""


class Subscriptions:
    """The subscriptions of all connections. A subscription is a prefix of topics.

    As in ZeroMQ, a connection has a prefix or not, however often it subscribes to it.

    prefixes: how many connections have each prefix. A prefix of no topic is not stored but counted
    in ``ignored``, so there are at most some hundred. listeners: how many connections receive each
    topic, as on the wire. topics: those with a subscription.
    """

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.ignored = 0
        self.listeners = Counter[str]()
        self.topics: frozenset[str] = frozenset()
        # by connection: its prefixes, its key, and how many subscriptions were ignored
        self._of: dict[int, set[str]] = {}
        self._keys: dict[int, str] = {}
        self._ignored_of = Counter[int]()
        # by connection: its key, and what that key may not watch
        self.denied: dict[int, tuple[str, dict[str, str]]] = {}

    def add(self, prefix: bytes, connection: int, rights: Rights = EVERYTHING) -> bool:
        """Add a subscription of a connection, any number; returns whether the connection may stay.

        ``denied`` has what is not allowed, with the reason.
        """
        text = _known(prefix)
        if text is None:
            self.ignored += 1
            self._ignored_of[connection] += 1
            return self._ignored_of[connection] <= MAX_IGNORED
        if text in self._of.get(connection, ()):
            return True
        most, why = rights.limits.subscriptions, ""
        if not rights.may_subscribe(text):
            why = str(rights.denial(f"watch '{text}'"))
        elif most and self._held_by(rights.key) >= most:
            why = f"the key '{rights.name}' has {most} subscriptions already, its limit"
        if why:
            self.deny(text, connection, rights.key, why)
        else:
            self._keys[connection] = rights.key
            self._change(connection, text, 1)
        return True

    def deny(self, prefix: str, connection: int, key: str, why: str) -> None:
        """Note that a connection must not have this prefix."""
        self.denied.setdefault(connection, (key, {}))[1][prefix] = why

    def remove(self, prefix: bytes, connection: int) -> None:
        """Remove a prefix from a connection, if it has it."""
        text = _known(prefix)
        if text in self._of.get(connection, ()):
            self._change(connection, str(text), -1)

    def topics_of(self, connection: int) -> frozenset[str]:
        """The topics that a connection has subscribed to, as on the wire."""
        prefixes = tuple(self._of.get(connection, ()))
        return frozenset(topic.wire for topic in FEED if topic.wire.startswith(prefixes))

    def leave(self, connection: int) -> None:
        """Remove all that is known of a connection that has ended."""
        for text in [*self._of.get(connection, ())]:
            self._change(connection, text, -1)
        for known in (self._of, self._keys, self._ignored_of, self.denied):
            known.pop(connection, None)

    def _held_by(self, key: str) -> int:
        return sum(len(self._of[peer]) for peer, other in self._keys.items() if other == key)

    def _change(self, connection: int, prefix: str, change: int) -> None:
        before = self.topics_of(connection)
        self._of.setdefault(connection, set()).symmetric_difference_update({prefix})
        count = self.prefixes.pop(prefix, 0) + change
        if count:
            self.prefixes[prefix] = count
        for topic in before ^ self.topics_of(connection):
            self.listeners[topic] += change
        self.topics = frozenset(topic.name for topic in FEED if self.listeners[topic.wire])


def parted(rows: Sequence[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Split rows into parts that fit into a header, with at least one row each."""
    part: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        own = sum(len(str(value)) + _VALUE_BYTES for value in row)
        if part and size + own > _ROWS_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += own
    if part:
        yield part


def _known(prefix: bytes) -> str | None:
    """The prefix as text if a topic begins with it, else None."""
    text = prefix.decode("ascii", "replace")
    return text if any(topic.wire.startswith(text) for topic in FEED) else None


class FeedCore:
    """Makes the messages about a stream's records and about the daemon.

    stream, epoch: those of the journal. published: the topics that can have messages. at, heads:
    the last record published before, over all and by topic. beat_seconds: between two beats.

    The first beat is due at once. ``state`` is the last state announced.
    """

    def __init__(
        self,
        *,
        stream: str,
        epoch: int,
        published: Sequence[str],
        beat_seconds: float,
        at: int = 0,
        heads: Mapping[str, int] | None = None,
    ) -> None:
        self.at = at
        self.heads = dict.fromkeys(RECORD_TOPICS, 0) | dict(heads or {})
        self.state = ""
        self.subscriptions = Subscriptions()
        self._fixed = {"v": PROTOCOL, "stream": stream, "epoch": epoch}
        self._published = [TOPICS[name].wire for name in published]
        self._beat_seconds = beat_seconds
        self._next_beat = 0.0

    def wants(self, topic: str) -> bool:
        """Whether somebody subscribes to the topic."""
        return topic in self.subscriptions.topics

    def publish(self, records: Iterable[Publishable], time: int) -> list[Message]:
        """The messages of the next records that somebody subscribes to; time: in nanoseconds."""
        messages = []
        wanted = self.subscriptions.topics
        for record in records:
            self.at = record.at
            for topic, previous in record.prev.items():
                self.heads[topic] = self.at
                if topic in wanted:
                    header = self._stamp(topic, time) | {"prev": previous}
                    message = record.message(topic, header)
                    if message is not None:
                        messages.append(message)
        return messages

    def announce(self, state: str, status: Header, time: int) -> list[Message]:
        """The message about a new state of the daemon; status: its further fields."""
        self.state = state
        return self._notice("status", time, {"status": status | {"state": state}})

    def seconds_to_beat(self, now: float) -> float:
        """How long until the next beat is due; now: monotonic seconds."""
        return max(0.0, self._next_beat - now)

    def beat(self, now: float, time: int, **fields: Any) -> list[Message]:
        """The beat that is due, with further fields for its topic."""
        self._next_beat = now + self._beat_seconds
        further = {"state": self.state, "published": self._published}
        return self._notice("beat", time, further | fields)

    def tally(
        self, topic: str, rows: Sequence[Sequence[Any]], time: int, **fields: Any
    ) -> list[Message]:
        """Rows of counts in messages of a bounded size, with further fields for their topic."""
        messages: list[Message] = []
        if rows and self.wants(topic):
            columns = TOPICS[topic].shown.split()
            for part in parted(rows):
                header = self._stamp(topic, time) | {"columns": columns, "rows": part} | fields
                messages.append(encode_notice(topic, header))
        return messages

    def denials(self, time: int) -> list[Message]:
        """A message to each key that asked for what it may not watch; time: in nanoseconds."""
        by_key: dict[str, dict[str, str]] = {}
        for key, denied in self.subscriptions.denied.values():
            by_key.setdefault(key, {}).update(denied)
        messages: list[Message] = []
        for key, denied in by_key.items():
            told = {"topics": sorted(denied)[:MAX_IGNORED], "message": next(iter(denied.values()))}
            messages.append(encode_denied(key, self._fixed | {"time": time} | told))
        return messages

    def _stamp(self, topic: str, time: int) -> Header:
        return self._fixed | {"topic": TOPICS[topic].wire, "at": self.at, "time": time}

    def _notice(self, topic: str, time: int, fields: Header) -> list[Message]:
        if not self.wants(topic):
            return []
        heads = {TOPICS[name].wire: at for name, at in self.heads.items()}
        return [encode_notice(topic, self._stamp(topic, time) | {"heads": heads} | fields)]


@dataclass(slots=True)
class _Buffer:
    """The kernel buffer of a connection. most: bytes that it has held. moved: when it changed last.

    drained: the bytes sent to all subscribers before it was last seen drained.
    """

    moved: float
    drained: int
    queued: int = 0
    most: int = 0


class Backlog:
    """Finds the subscribers that make the daemon hold too much memory.

    It is known how many bytes wait for all together, but not for each. However, a connection whose
    peer reads drains its kernel buffer again and again, while that of a peer that has stopped stays
    equally full. What waits for a connection was sent after its buffer was last seen drained: so
    the one for which that is longest ago, in bytes sent since, is the slowest. Connections are
    integers. limit: bytes that may wait for all of them together. Times are
    monotonic seconds. sent: bytes sent so far.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: dict[int, _Buffer] = {}
        self._looked, self._sent = float("-inf"), 0

    @property
    def connections(self) -> Iterable[int]:
        """All known connections."""
        return self._buffers.keys()

    def add(self, connection: int, sent: int, now: float) -> None:
        """Add a connection that subscribes, if it is a new one."""
        self._buffers.setdefault(connection, _Buffer(now, sent))

    def wants_look(self, unsent: int, sent: int, now: float) -> bool:
        """Whether to look at the buffers; unsent: bytes that wait."""
        much = unsent > self._limit // _LITTLE and sent - self._sent >= self._limit // _ALIKE // 4
        return now - self._looked >= (_AT_MOST_EVERY if much else _AT_LEAST_EVERY)

    def look(self, queued: Mapping[int, int], sent: int, now: float) -> None:
        """Note the bytes in the buffer of each open connection; others have ended."""
        self._looked, self._sent = now, sent
        for connection in self._buffers.keys() - queued.keys():
            del self._buffers[connection]
        for connection, size in queued.items():
            buffer = self._buffers[connection]
            buffer.most = max(size, buffer.most)
            if size != buffer.queued:
                buffer.queued, buffer.moved = size, now
            if size * _DRAINED <= buffer.most:
                buffer.drained, buffer.moved = sent, now

    def slowest(self, since: float, now: float) -> list[int]:
        """The connections to end, which are forgotten; since: when the limit was reached.

        Those that have stopped come first. One that reads has a tenth of a second to drain.
        """
        behind = {c: buffer for c, buffer in self._buffers.items() if buffer.drained < self._sent}
        still = {c: buffer for c, buffer in behind.items() if now - buffer.moved >= _PATIENCE}
        slow = still or (behind if now - since >= _PATIENCE else {})
        first = min((buffer.drained for buffer in slow.values()), default=0)
        alike = first + self._limit // _ALIKE
        ended = [connection for connection, buffer in slow.items() if buffer.drained <= alike]
        for connection in ended:
            del self._buffers[connection]
        return ended
