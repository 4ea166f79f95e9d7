"""``Subscriber``: follows the feed, checks it, and notices which messages it missed.

``FeedReader`` is what it has in common with the one for asyncio: all but how they wait.
``SyncSocket`` is the clients' connection to sync.
"""

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from math import ceil
from typing import TypeVar

import zmq

from streamer.client import client_errors
from streamer.client.connection import Connection, Context, Keys
from streamer.client.core.subscriber import Cursor, HealingCore, SubscriberCore
from streamer.client.messages import Message
from streamer.errors import UsageError
from streamer.protocol.payloads import DENIED_TOPIC
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.frames import Copier
from streamer.protocol.wire import Buffer, WireError

# a message has at most 30 frames; one with more than this is damaged
_MOST_FRAMES = 32


class SyncSocket(Connection):
    """A connection that never blocks: not for room, for a message or for a missing daemon."""

    def __init__(
        self, endpoint: str, answer_seconds: float, context: Context | None, keys: Keys = None
    ) -> None:
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, {}, keys)
        self.socket = self._socket
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """A message that has come, as ``Copier.take`` returns it."""
        return self._copier.take()

    def send(self, requests: deque[list[Buffer]]) -> None:
        """Send requests; without room they are dropped, since unanswered requests are repeated."""
        while requests:
            self._post(requests.popleft())


T = TypeVar("T")

Steps = Generator[float, bool, T]
"""A long operation in steps; it yields how many seconds to wait for a message before the next step.

Its runner sends back whether a message came. 0 seconds: only let other tasks run.
"""

_POLL_SECONDS = 0.2
_RECEIVE_MESSAGES = 10_000


def topic_names(topics: Sequence[str]) -> tuple[str, ...]:
    """The names of topics, given with or without their dot, each once; UsageError if unknown."""
    names = tuple(dict.fromkeys(topic.removesuffix(".") for topic in topics))
    for name in names:
        if name not in TOPICS:
            raise UsageError(f"unknown topic '{name}' (known: {', '.join(TOPICS)})")
    return names


class FeedReader(Connection):
    """A subscriber whose calls are steps; ``Subscriber`` documents it."""

    def __init__(
        self,
        endpoint: str,
        topics: Sequence[str] = ("match", "mismatch", "delta", "read", "status"),
        *,
        sync: str | None = None,
        cursor: Cursor | None = None,
        answer_seconds: float = 5.0,
        context: Context | None = None,
        keys: Keys = None,
    ) -> None:
        if cursor is not None and sync is None:
            raise UsageError("a cursor needs the endpoint of sync")
        names = topic_names(topics)
        self._healing = None if sync is None else HealingCore(names, answer_seconds, cursor)
        self._core = self._healing or SubscriberCore(names, answer_seconds)
        self._sync: SyncSocket | None = None
        options: dict[int, int] = {zmq.RCVHWM: _RECEIVE_MESSAGES}
        super().__init__(endpoint, answer_seconds, context, zmq.SUB, options, keys)
        if self.keys is not None:
            self._socket.subscribe(DENIED_TOPIC)
        # beats last: once one arrives, all subscriptions are in effect
        for topic in (*(topic for topic in self.topics if topic != "beat"), "status", "beat"):
            self._socket.subscribe(TOPICS[topic].wire)
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)
        if sync is not None:
            self._sync = SyncSocket(sync, answer_seconds, self._context, self.keys)

    @property
    def _sockets(self) -> list[zmq.Socket[bytes]]:
        return [self._socket, *([] if self._sync is None else [self._sync.socket])]

    @property
    def cursor(self) -> Cursor | None:
        """The position after the received messages; None without sync or before any message.

        Store it together with the effects of the messages so far, and begin from it: then each
        message takes effect once.
        """
        return None if self._healing is None else self._healing.cursor

    @property
    def healing(self) -> bool:
        """Whether missing messages are being pulled."""
        return self._healing is not None and self._healing.healing

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, without their dots."""
        return self._core.topics

    @property
    def damaged(self) -> int:
        """How many messages were dropped as damaged."""
        return self._core.damaged

    @property
    def damage(self) -> WireError | None:
        """The error of the last damaged message."""
        return self._core.damage

    @property
    def gaps(self) -> int:
        """How many gaps there were."""
        return self._core.gaps

    @property
    def heard(self) -> bool:
        """Whether a daemon has been heard."""
        return self._core.heard

    @property
    def state(self) -> str:
        """The state of the daemon, empty before the first beat."""
        return self._core.state

    @property
    def ended(self) -> bool:
        """Whether the daemon has announced its end."""
        return self._core.ended

    @property
    def failed(self) -> bool:
        """Whether the daemon ended without publishing everything that it accepted."""
        return self._core.failed

    @property
    def lost(self) -> bool:
        """Whether a daemon that was heard has fallen silent without announcing its end."""
        return self._core.lost

    @property
    def published(self) -> frozenset[str] | None:
        """The topics that the daemon can have messages on."""
        return self._core.published

    # ---- steps ---------------------------------------------------------------------------------

    def _receiving(self, timeout: float | None) -> Steps[Message | None]:
        turn = time.monotonic()
        deadline = None if timeout is None else turn + timeout
        while (message := self._core.next()) is None:
            taken, now = self._take_one(), time.monotonic()
            remaining = _POLL_SECONDS if deadline is None else deadline - now
            # take what has come, but not for ever: messages that lead to no output may never end
            if taken and remaining > -_POLL_SECONDS:
                if now > turn + _POLL_SECONDS:
                    turn = now
                    yield from self._wait(0)
                continue
            if remaining <= 0:
                return None
            yield from self._wait(remaining)
            if deadline is None and self.lost:
                raise client_errors.DaemonLostError(self.endpoint, self._answer_seconds)
        return message

    def _hearing(self, timeout: float) -> Steps[bool]:
        deadline = time.monotonic() + timeout
        while not self.heard and (remaining := deadline - time.monotonic()) > 0:
            if not self._take_one():
                yield from self._wait(remaining)
        return self.heard

    def _going_on(self) -> Steps[Message | None]:
        """The next message; None once the daemon has announced its end."""
        while not (self.ended and not self._core.ready):
            message = yield from self._receiving(_POLL_SECONDS)
            if message is not None:
                return message
            if self.lost:
                raise client_errors.DaemonLostError(self.endpoint, self._answer_seconds)
        return None

    def _wait(self, seconds: float) -> Steps[None]:
        """Wait for a message for at most ``seconds`` and _POLL_SECONDS."""
        wait = min(seconds, _POLL_SECONDS)
        before = time.monotonic()
        if not (yield wait):
            self._core.wait(min(wait, time.monotonic() - before))
            self._check_admitted()
            if self._sync is not None:
                self._sync._check_admitted()

    # ---- messages ------------------------------------------------------------------------------

    def _take_one(self) -> bool:
        """Process a message from each socket; returns whether there was one."""
        received = self._copier.take()
        if received is not None:
            self._core.take(*received)
            if self._core.denial is not None:
                raise client_errors.RefusedError(self.endpoint, self._core.denial)
        answered = self._sync is not None and self._ask()
        return received is not None or answered

    def _ask(self) -> bool:
        """Exchange messages with sync; returns whether one came."""
        assert self._sync is not None
        assert self._healing is not None
        healing, now = self._healing, time.monotonic()
        received = self._sync.take()
        if received is not None:
            frames, crc = received
            healing.answer(frames, now, crc)
        healing.tick(now)
        self._sync.send(healing.pull.requests)
        if healing.refusal is not None:
            raise client_errors.RefusedError(self._sync.endpoint, healing.refusal)
        if healing.pull.hopeless:
            raise client_errors.DaemonError(
                self._sync.endpoint, f"invalid message: {healing.pull.damage}"
            )
        if healing.unserved and not healing.lost:
            raise client_errors.DaemonSilentError(self._sync.endpoint, self._answer_seconds)
        return received is not None

    def close(self) -> None:
        """Close the connections."""
        if self._sync is not None:
            self._sync.close()
        super().close()


class Subscriber(FeedReader):
    """Receives the messages on ``topics`` from the feed at ``endpoint``, as typed objects.

    The arrays of a message are parts of one block of memory, which lives as long as any of them:
    copy those that you keep longer than their message.

    Messages that are damaged or do not follow docs/protocol.md are dropped and counted in
    ``damaged``; ``damage`` is the last such error. Like any lost message they lead to a Gap;
    ``gaps`` counts these. With the endpoint of ``sync``, missing messages are pulled from there:
    each message comes once, by topic in order. A Gap then remains only where the journal is
    damaged, and for ``word``, which is not stored. ``cursor``: where to begin, by default with the
    next live message; a cursor that the stream cannot continue from gives a Reset. Topics, columns
    and fields of later daemons are ignored.

    ``state`` is the last known state of the daemon. ``ended``: it has announced its end.
    ``failed``: it ended without publishing everything that it accepted. Without a beat for
    ``answer_seconds`` it is ``lost``; if it sends again, its messages are received as before.
    ``published``: the topics that the daemon can have messages on, None while unknown.

    >>> from streamer.client import Producer, ReadSummaries, Subscriber
    >>> feed = Subscriber("tcp://127.0.0.1:5702", topics=["read"])
    >>> feed.wait_for_daemon(10)  # messages before that are missed
    True
    >>> with Producer("tcp://127.0.0.1:5701") as producer:
    ...     producer.send([("read2", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...     producer.flush()
    >>> message = feed.receive(timeout=10)
    >>> isinstance(message, ReadSummaries), message.origin.names[0], message.matches
    (True, 'read2', array([12]))
    >>> feed.close()

    ``for message in feed`` continues until the daemon ends. With ``sync`` and a cursor nothing is
    missed, from the first record on if it is still kept:

    >>> from streamer.client import Cursor
    >>> feed = Subscriber("tcp://127.0.0.1:5702", topics=["read"],
    ...                   sync="tcp://127.0.0.1:5704", cursor=Cursor("", 0))
    >>> feed.receive(timeout=10).origin.names[0]
    'read2'
    >>> feed.close()
    """

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message on the topics, or notice about them; None if none came in time.

        timeout: in seconds. Without a timeout: DaemonLostError once the daemon is ``lost``.
        """
        return self._run(self._receiving(timeout))

    def wait_for_daemon(self, timeout: float) -> bool:
        """Whether a message, at least a beat, came within ``timeout`` seconds.

        Then all subscriptions are in effect: nothing that is sent to the daemon afterwards is
        missed.
        """
        return self._run(self._hearing(timeout))

    def __iter__(self) -> Iterator[Message]:
        """Messages until the daemon announces its end; DaemonLostError if it is ``lost``."""
        while (message := self._run(self._going_on())) is not None:
            yield message

    @cached_property
    def _poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN)
        return poller

    def _run(self, steps: Steps[T]) -> T:
        try:
            seconds = next(steps)
            while True:
                seconds = steps.send(bool(self._poller.poll(ceil(seconds * 1000))))
        except StopIteration as done:
            result: T = done.value
            return result
