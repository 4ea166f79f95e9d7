"""Subscribers: some only follow the feed, others also ask sync for what they missed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from streamer.client.client_errors import DaemonError, DaemonSilentError, RefusedError
from streamer.client.core.subscriber import (
    Cursor,
    FetchCore,
    HealingCore,
    Refused,
    StoredState,
    SubscriberCore,
)
from streamer.client.messages import Gap, Message, NewStream, RecordMessage, Reset
from streamer.protocol.schema import TOPICS
from streamer.protocol.wire import Reason, WireError
from tests.simulation.clock import EventClock, Pause, Process, Steps, Thread
from tests.simulation.network import Dealer, Endpoint, FeedClient, FeedEndpoint, Path
from tests.simulation.promises import Promises
from tests.simulation.said import said

ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.2
_PAUSE_SECONDS = 1.0
_SYNC = "sync"


@dataclass
class Heard:
    """What a subscriber has received; it survives the process.

    name, topics: those of the subscriber. messages: contents by topic and record, in order. gaps:
    ranges of records (exclusive, inclusive) that it knows to lack on a topic; resets: on all
    topics. start: it has everything after this record except these, None before it has heard
    anything. cursor: where to resume. state: the one fetched at ``start``. over: it receives
    nothing more.
    """

    name: str
    topics: tuple[str, ...]
    messages: dict[str, dict[int, bytes]] = field(default_factory=dict)
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)
    start: int | None = None
    cursor: Cursor | None = None
    state: StoredState | None = None
    over: bool = False

    def restart(self) -> None:
        """Forget everything."""
        self.messages.clear()
        self.gaps.clear()
        self.resets.clear()
        self.start = self.cursor = self.state = None

    def add(self, other: Heard) -> None:
        """Add what was heard since."""
        for topic, messages in other.messages.items():
            self.messages.setdefault(topic, {}).update(messages)
        self.gaps += other.gaps
        self.resets += other.resets
        self.start = other.start if self.start is None else self.start
        self.cursor = other.cursor
        self.state = other.state if self.state is None else self.state


class Follower(Process):
    """A process that follows the feed, with the shell of ``streamer.client.subscriber``."""

    def __init__(
        self,
        clock: EventClock,
        name: str,
        path: Path,
        feed: FeedEndpoint,
        topics: Sequence[str],
        promises: Promises,
    ) -> None:
        super().__init__(clock, name)
        self.topics = tuple(topics)
        self.promises = promises
        self.path = path
        self.core = self.make_core()
        self._thread = Thread(self, self._run(), self.fails)
        prefixes = [TOPICS[topic].wire.encode() for topic in (*topics, "status", "beat")]
        self._feed = FeedClient(self, path, feed, prefixes, self.wake)

    @property
    def listens(self) -> bool:
        """Whether the daemon knows its subscriptions and it is not stalled."""
        connection = self._feed.connection
        known = connection is not None and len(connection.prefixes) == len(self._feed.prefixes)
        return known and self.stalled_until <= self.clock.now

    def make_core(self) -> SubscriberCore:
        """The core."""
        return SubscriberCore(self.topics, ANSWER_SECONDS)

    def wake(self) -> None:
        """Something has come."""
        self._thread.wake()

    def prepare(self) -> Steps:
        """Steps before following the feed."""
        return
        yield 0.0

    def ask(self) -> bool:
        """Exchange messages with sync; returns whether one came."""
        return False

    def take(self, message: Message) -> None:
        """Take a message or a notice."""
        raise NotImplementedError

    def keep(self, message: RecordMessage, new: Heard, *before: Heard) -> None:
        """Store a message as heard; it must follow the earlier ones."""
        topic, at = message.stamp.topic, message.stamp.at
        for heard in (new, *before):
            self.promises.follows(self.name, topic, heard.messages.get(topic, {}), at)
        new.messages.setdefault(topic, {})[at] = said(message)
        self.note(lambda: f"has {topic} {at}")

    def fails(self, error: Exception) -> None:
        """A call raised this."""
        self.promises.unexpected(self.name, error)

    def _run(self) -> Steps:
        yield 0.0
        yield from self.prepare()
        clock = self.clock
        while self.alive:
            came = bool(self._feed.inbox)
            if came:
                self.core.take(self._feed.inbox.popleft())
            came = self.ask() or came
            while self.alive and (message := self.core.next()) is not None:
                self.take(message)
            if not came:
                before = clock.now
                yield Pause(_POLL_SECONDS)
                if not self._feed.inbox:
                    self.core.wait(min(_POLL_SECONDS, clock.now - before))
            elif clock.random.random() < 0.1:
                yield 0.0005


class Watcher(Follower):
    """Only follows the feed, and notices what it misses."""

    def __init__(self, clock: EventClock, name: str, *rest: Any) -> None:
        super().__init__(clock, name, *rest)
        self.heard = Heard(name, self.topics)
        self.promises.watches(self.heard)
        self.at_end.append(self._killed)

    def _killed(self) -> None:
        self.heard.over = True

    def take(self, message: Message) -> None:
        match message:
            case RecordMessage():
                self.keep(message, self.heard)
            case Gap(topic, after, until):
                self.heard.gaps.append((topic, after, until))
                self.note(f"misses {topic} after {after} to {until}")
            case NewStream():
                self.promises.unexpected(self.name, message)


class Healer(Follower):
    """Heals itself over sync; ``heard`` and its cursor are stored together, now and then.

    fetches: whether it begins with the state at a record; otherwise it begins with the next live
    message, or with the first record if ``from_first``. ended: called when it ends by itself.
    """

    def __init__(
        self,
        clock: EventClock,
        name: str,
        path: Path,
        feed: FeedEndpoint,
        sync: Endpoint,
        heard: Heard,
        promises: Promises,
        ended: Callable[[], None],
        *,
        buffer_bytes: int,
        fetches: bool = False,
        from_first: bool = False,
    ) -> None:
        self._stored = heard
        self._new = Heard(heard.name, heard.topics, cursor=heard.cursor)
        self._buffer_bytes = buffer_bytes
        self._fetches = fetches
        if from_first and heard.cursor is None:
            self._new.cursor, self._new.start = Cursor("", 0), 0
        self._ended = ended
        # when sync was first asked for something since its last message
        self._asked: float | None = None
        self._numbers = count(1)
        super().__init__(clock, name, path, feed, heard.topics, promises)
        self._sync = self._connect(sync)
        # ``streamer.Sync`` has its own connection
        self._state = self._connect(sync) if fetches else self._sync

    def _connect(self, sync: Endpoint) -> Dealer:
        return Dealer(self, self.path, sync, self.wake, immediate=False)

    @property
    def healing(self) -> HealingCore:
        """The core."""
        assert isinstance(self.core, HealingCore)
        return self.core

    def make_core(self) -> SubscriberCore:
        return HealingCore(self.topics, ANSWER_SECONDS, self._new.cursor, self._buffer_bytes)

    def prepare(self) -> Steps:
        if not self._fetches or self._new.cursor is not None:
            return
        found = yield from self._fetch()
        while isinstance(found, Refused):
            reason = found.header["reason"]
            if reason == Reason.DAMAGED:
                break
            if reason != Reason.CREDIT:
                raise RefusedError(_SYNC, found.header)
            yield _PAUSE_SECONDS
            found = yield from self._fetch()
        self._state.close()
        if isinstance(found, StoredState):
            self._new.state, self._new.cursor = found, found.cursor
        else:
            # as docs/protocol.md says: from the oldest record
            self._fetches, self._new.cursor = False, Cursor("", 0)
        self._new.start = self._new.cursor.at
        self.note(f"begins behind record {self._new.start}")
        self.core = self.make_core()

    def _fetch(self) -> Generator[float, None, StoredState | Refused]:
        """The stored state."""
        core, asked = FetchCore(next(self._numbers)), self.clock.now
        while True:
            while core.requests:
                self._state.send(core.requests.popleft())
            while self._state.inbox:
                _, frames = self._state.inbox.popleft()
                asked = self.clock.now
                found = core.take(frames)
                if found is not None:
                    return found
            if self.clock.now - asked > ANSWER_SECONDS:
                raise DaemonSilentError(_SYNC, ANSWER_SECONDS)
            if not core.requests:
                yield Pause(_POLL_SECONDS)

    def ask(self) -> bool:
        core, now = self.healing, self.clock.now
        came = bool(self._sync.inbox)
        if came:
            core.answer(self._sync.inbox.popleft()[1], now)
            self._asked = None
        core.tick(now)
        while core.pull.requests:
            self._sync.send(core.pull.requests.popleft())
            self._asked = now if self._asked is None else self._asked
        if core.refusal is not None:
            raise RefusedError(_SYNC, core.refusal)
        if core.pull.hopeless:
            raise DaemonError(_SYNC, f"invalid message: {core.pull.damage}")
        if core.unserved and not core.lost:
            if self._asked is None or now - self._asked < _PAUSE_SECONDS:
                early = AssertionError("calls sync silent without having asked it")
                self.promises.unexpected(self.name, early)
            raise DaemonSilentError(_SYNC, ANSWER_SECONDS)
        if self._new.start is None and core.cursor is not None:
            self._new.start = core.cursor.at
        if self.clock.random.random() < 0.2:
            self._store()
        return came

    def take(self, message: Message) -> None:
        match message:
            case RecordMessage():
                self.keep(message, self._new, self._stored)
            case Gap(topic, after, until):
                self.note(f"lacks {topic} after {after} to {until}")
                self._new.gaps.append((topic, after, until))
            case Reset():
                self._reset(message)
            case NewStream():
                self.promises.unexpected(self.name, message)

    def _reset(self, reset: Reset) -> None:
        self.note(f"is reset to {reset.at}: {reset.reason}")
        self.promises.reset(self.name, self._new.cursor, reset)
        if self._fetches:
            self._stored.restart()
            self.kill("begins anew, with the state")
            self._ended()
            return
        cursor = self._new.cursor
        self._new.resets.append((0 if cursor is None else cursor.at, reset.at))

    def _store(self) -> None:
        """Effects and cursor, in one step."""
        self._new.cursor = self.healing.cursor
        if self._new.cursor is not None:
            self._stored.add(self._new)
            self._new = Heard(
                self.name, self.topics, start=self._new.start, cursor=self._new.cursor
            )

    def reached(self, head: int) -> bool:
        """Whether it has everything up to a record."""
        self._store()
        cursor = self.healing.cursor
        return not self.healing.healing and cursor is not None and cursor.at >= head

    def fails(self, error: Exception) -> None:
        match error:
            case DaemonSilentError():
                pass
            case DaemonError() | WireError() if self.path.noise.damaging:
                pass
            case _:
                super().fails(error)
        self.note(f"fails: {error}")
        self.kill("exit")
        self._ended()
