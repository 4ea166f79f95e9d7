"""``Subscriber``: follows the feed, checks it, and notices which messages it missed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil

import zmq

from streamer.client.connection import Connection, Context
from streamer.client.errors import DaemonLostError
from streamer.client.messages import (
    BatchMessage,
    Beat,
    Gap,
    Message,
    NewEpoch,
    Status,
    typed,
)
from streamer.errors import UsageError
from streamer.protocol.feed_messages import decode_feed
from streamer.protocol.header import WireError
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.copying import Copier

_POLL_SECONDS = 0.2
_RECEIVE_MESSAGES = 10_000
# a message has at most 12; one of more than this is damaged
_MOST_FRAMES = 32


class Subscriber(Connection):
    """Receives the messages of ``topics`` from the feed at ``endpoint``, as typed objects.

    The arrays of a message are parts of one block of memory, which lives as long as any of them:
    copy those that you keep longer than their message.

    Messages that are damaged, or not as docs/protocol.md says, are dropped and counted in
    ``damaged``; ``damage`` is the last such error. They show as a Gap like any other lost message.
    ``gaps`` counts the gaps.

    ``ended``: the daemon has announced its end; ``failed``: it has not published all that it
    accepted. Without a beat for ``answer_seconds`` it is ``lost``; should it send again, its
    messages are received as before. ``published``: the topics that the daemon can have messages on,
    None as long as that is unknown.
    """

    def __init__(
        self,
        endpoint: str,
        topics: Sequence[str] = ("match", "mismatch", "delta", "read", "status"),
        *,
        answer_seconds: float = 5.0,
        context: Context | None = None,
    ) -> None:
        for topic in topics:
            if topic not in TOPICS:
                problem = f"unknown topic '{topic}' (known: {', '.join(TOPICS)})"
                raise UsageError(problem)
        super().__init__(
            endpoint, answer_seconds, context, zmq.SUB, {zmq.RCVHWM: _RECEIVE_MESSAGES}
        )
        self.topics = tuple(dict.fromkeys(topics))
        self.damaged = 0
        self.damage: WireError | None = None
        self.gaps = 0
        self.ended = self.failed = False
        self.published: frozenset[str] | None = None
        # seconds spent waiting since the last message, without those of a stopped process
        self._silence = 0.0
        # beats last: once they arrive, all subscriptions hold
        for topic in (*(topic for topic in self.topics if topic != "beat"), "status", "beat"):
            self._socket.subscribe(topic)
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        # of the message before: all messages of a batch have the same
        self._names: Sequence[str] = ()
        self._epoch = 0
        self._seen: dict[str, int] = {}
        self._ready: deque[Message] = deque()
        self.heard = False

    @property
    def lost(self) -> bool:
        """Whether a daemon that was heard has fallen silent without announcing its end."""
        return self.heard and not self.ended and self._silence > self._answer_seconds

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message of the topics, a Gap or a NewEpoch; None after ``timeout`` seconds.

        Without a timeout: DaemonLostError once the daemon is ``lost``.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready:
            if self._take_one():
                continue
            left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            self._wait(left)
            if deadline is None and self.lost:
                raise DaemonLostError(self.endpoint, self._answer_seconds)
        return self._ready.popleft()

    def wait_for_daemon(self, timeout: float) -> bool:
        """Whether a message of the daemon, a beat at the latest, came in ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.heard and (left := deadline - time.monotonic()) > 0:
            if not self._take_one():
                self._wait(left)
        return self.heard

    def __iter__(self) -> Iterator[Message]:
        """Messages until the daemon announces its end; DaemonLostError if it is ``lost``."""
        while not (self.ended and not self._ready):
            message = self.receive(_POLL_SECONDS)
            if message is not None:
                yield message
            elif self.lost:
                raise DaemonLostError(self.endpoint, self._answer_seconds)

    def _wait(self, seconds: float) -> None:
        """Wait for a message, for up to ``seconds`` and _POLL_SECONDS."""
        wait = min(seconds, _POLL_SECONDS)
        before = time.monotonic()
        if not self._poller.poll(ceil(wait * 1000)):
            self._silence += min(wait, time.monotonic() - before)

    def _take_one(self) -> bool:
        """Process one message that has come; whether there was one."""
        received = self._copier.take()
        if received is None:
            return False
        self._silence = 0.0
        frames, found = received
        try:
            decoded = decode_feed(frames, found, self._names)
            message = typed(decoded)
        except WireError as error:
            self.damaged += 1
            self.damage = error
            return True
        self._names = decoded.names
        self._note(message)
        return True

    def _note(self, message: BatchMessage | Beat | Status) -> None:
        """Queue what the message implies about those before it, then the message itself."""
        self.heard = True
        stamp = message.stamp
        if stamp.epoch != self._epoch:
            if self._epoch:
                self._ready.append(NewEpoch(self._epoch, stamp.epoch))
            self._epoch = stamp.epoch
            self._seen.clear()
            self.ended = self.failed = False
            self.published = None
        seen = self._seen.get(stamp.topic)
        if seen is not None and stamp.sequence <= seen:
            return
        if seen is not None and stamp.previous != seen:
            self._gap(stamp.topic, seen, stamp.previous)
        self._seen[stamp.topic] = stamp.sequence
        if isinstance(message, Beat):
            self.published = message.published
            self._compare(message)
        if isinstance(message, Status):
            self.failed = message.state == "failed"
            self.ended = self.failed or message.state == "ended"
        if stamp.topic in self.topics:
            self._ready.append(message)

    def _compare(self, beat: Beat) -> None:
        """Notice what is missing at the end of a topic, which no later message shows."""
        for topic in (*self.topics, "status"):
            head = beat.heads.get(topic, 0)
            seen = self._seen.setdefault(topic, head)
            if seen < head:
                self._gap(topic, seen, head)
                self._seen[topic] = head

    def _gap(self, topic: str, after: int, until: int) -> None:
        if topic in self.topics:
            self.gaps += 1
            self._ready.append(Gap(topic, after, until))
