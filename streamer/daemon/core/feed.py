"""What the feed says: stamps, which messages a burst of records makes, beats, subscriptions.

Without I/O: published records, changes of state, subscriptions and the time go in, messages come
out, in the order to send them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streamer.daemon.core.rights import Rights
from streamer.protocol.feed_messages import encode_denied, encode_notice
from streamer.protocol.header import PROTOCOL, Header
from streamer.protocol.schema import FEED, RECORD_TOPICS, TOPICS

if TYPE_CHECKING:
    from streamer.protocol.transport.sending import Message

MAX_IGNORED = 64
"""Subscriptions of one connection that match no topic, in its whole life."""

_OFFENDERS = 4096
# of the rows in a header, as msgpack: a character has four bytes at most, a value a head
_ROWS_BYTES, _VALUE_BYTES = 12_000, 5


class Publishable(Protocol):
    """A record of the stream that is to be published."""

    @property
    def at(self) -> int:
        """Its number."""

    @property
    def prev(self) -> Mapping[str, int]:
        """The topics that it has a message on, in order, and of each the last record before.

        They depend on the stream alone, not on who listens.
        """

    def message(self, topic: str, header: Header) -> Message | None:
        """The message for one of them, None if it was not made; ``header``: its beginning."""


class Subscriptions:
    """What all connections subscribe to. A subscription is a prefix of topics.

    Where it is known whose each is (``add_of``), they go with their connection (``leave``).

    prefixes: how many connections have each, for at most some hundred, since one that is a prefix
    of no topic is not kept, but counted in ``ignored``. topics: those with a subscription.
    """

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.ignored = 0
        self.topics: frozenset[str] = frozenset()
        # by connection, the last ones
        self._ignored_of: dict[int, int] = {}
        # by connection, where that is known; and its key
        self._of: dict[int, Counter[str]] = {}
        self._keys: dict[int, str] = {}
        # by connection: the key, and what it may not watch
        self.denied: dict[int, tuple[str, dict[str, str]]] = {}

    def add(self, prefix: bytes, connection: int) -> bool:
        """Add one; whether that connection may stay. connection: any number."""
        text = _known(prefix)
        if text is not None:
            self._count(text, 1)
            return True
        self.ignored += 1
        count = self._ignored_of.pop(connection, 0) + 1
        self._ignored_of[connection] = count
        if len(self._ignored_of) > _OFFENDERS:
            del self._ignored_of[next(iter(self._ignored_of))]
        return count <= MAX_IGNORED

    def add_of(
        self, prefix: bytes, connection: int, rights: Rights
    ) -> Literal["apply", "leave", "end"]:
        """Add one of a connection with these rights, and say what becomes of it.

        It is applied or left; or the connection is ended, as in ``add``. What is not allowed is in
        ``denied``, with the reason.
        """
        text = _known(prefix)
        if text is None:
            return "leave" if self.add(prefix, connection) else "end"
        most, why = rights.limits.subscriptions, ""
        if not rights.may_subscribe(text):
            why = str(rights.denial(f"watch '{text}'"))
        elif most and self._held_by(rights.key) >= most:
            why = f"the key '{rights.name}' has {most} subscriptions already, its limit"
        if why:
            self.deny(text, connection, rights.key, why)
            return "leave"
        self._of.setdefault(connection, Counter())[text] += 1
        self._keys[connection] = rights.key
        self._count(text, 1)
        return "apply"

    def deny(self, prefix: str, connection: int, key: str, why: str) -> None:
        """A connection must not have this."""
        self.denied.setdefault(connection, (key, {}))[1][prefix] = why

    def remove_of(self, prefix: bytes, connection: int) -> None:
        """Remove one of a connection, if it has it."""
        text = _known(prefix)
        held = self._of.get(connection)
        if text is not None and held is not None and held[text]:
            held[text] -= 1
            self._count(text, -1)

    def topics_of(self, connection: int) -> frozenset[str]:
        """What a connection has, as on the wire."""
        prefixes = tuple(text for text, count in self._of.get(connection, {}).items() if count)
        return frozenset(topic.wire for topic in FEED if topic.wire.startswith(prefixes))

    def leave(self, connection: int) -> None:
        """Remove all of a connection, which has ended."""
        self.denied.pop(connection, None)
        self._keys.pop(connection, None)
        for text, count in self._of.pop(connection, Counter()).items():
            if count:
                self._count(text, -count)

    def _held_by(self, key: str) -> int:
        return sum(self._of[one].total() for one, other in self._keys.items() if other == key)

    def remove(self, prefix: bytes) -> None:
        """Remove one, which some connection had."""
        text = _known(prefix)
        if text is not None and text in self.prefixes:
            self._count(text, -1)

    def _count(self, prefix: str, change: int) -> None:
        count = self.prefixes.pop(prefix, 0) + change
        if count:
            self.prefixes[prefix] = count
        prefixes = tuple(self.prefixes)
        self.topics = frozenset(topic.name for topic in FEED if topic.wire.startswith(prefixes))


def parted(rows: Sequence[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Rows in parts that fit into a header, of one row at least."""
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
    """A prefix as text if a topic begins with it."""
    text = prefix.decode("ascii", "replace")
    return text if any(topic.wire.startswith(text) for topic in FEED) else None


class FeedCore:
    """Makes the messages of a stream's records, and those about the daemon.

    stream, epoch: of the journal. published: the topics that can have messages. at, heads: the last
    record that was published before, and the last one of each topic. beat_seconds: between beats.

    The first beat is due at once. ``state`` is the last one announced.
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
        """The message that the state of the daemon is another one; status: all about it."""
        self.state = state
        return self._notice("status", time, {"status": status | {"state": state}})

    def seconds_to_beat(self, now: float) -> float:
        """How long until the next beat is due; now: monotonic seconds."""
        return max(0.0, self._next_beat - now)

    def beat(self, now: float, time: int, **fields: Any) -> list[Message]:
        """The beat that is due, with further fields of its topic."""
        self._next_beat = now + self._beat_seconds
        further = {"state": self.state, "published": self._published}
        return self._notice("beat", time, further | fields)

    def tally(
        self, topic: str, rows: Sequence[Sequence[Any]], time: int, **fields: Any
    ) -> list[Message]:
        """Rows of counts, in messages of a bounded size, with further fields of their topic."""
        messages: list[Message] = []
        if rows and self.wants(topic):
            columns = TOPICS[topic].shown.split()
            for part in parted(rows):
                header = self._stamp(topic, time) | {"columns": columns, "rows": part} | fields
                messages.append(encode_notice(topic, header))
        return messages

    def denials(self, time: int) -> list[Message]:
        """To each key that asks for what it may not watch, what that is; time: in nanoseconds."""
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
