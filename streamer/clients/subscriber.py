"""``Subscriber``: follows the feed, checks it, and notices what it missed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType

import zmq

from streamer.clients.connection import Connection, Context
from streamer.clients.messages import Beat, Gap, Message, NewEpoch, Status, typed
from streamer.errors import UsageError
from streamer.wire import TOPICS, WireError, decode_feed

_POLL_SECONDS = 0.2
_RECEIVE_MESSAGES = 10_000


class Subscriber:
    """Receives the messages of ``topics`` from the feed at ``endpoint``, as typed objects.

    Damaged messages are dropped and counted in ``damaged``; they show as a Gap like any other
    lost message. ``gaps`` counts those seen.
    """

    def __init__(
        self,
        endpoint: str,
        topics: Sequence[str] = ("match", "mismatch", "delta", "read", "status"),
        *,
        context: Context | None = None,
    ) -> None:
        for topic in topics:
            if topic not in TOPICS:
                problem = f"unknown topic '{topic}' (known: {', '.join(TOPICS)})"
                raise UsageError(problem)
        self.endpoint = endpoint
        self.topics = tuple(dict.fromkeys(topics))
        self.damaged = 0
        self.gaps = 0
        self.ended = False
        self._connection = Connection(zmq.SUB, endpoint, {zmq.RCVHWM: _RECEIVE_MESSAGES}, context)
        self._socket = self._connection.socket
        # beats last: once they arrive, every other topic does
        for topic in (*self.topics, "status", "beat"):
            self._socket.subscribe(topic)
        self._epoch = 0
        self._seen: dict[str, int] = {}
        self._ready: deque[Message] = deque()
        self.heard = False

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message of the topics, a Gap or a NewEpoch; None after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready:
            left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if self._socket.poll(int(max(0.0, min(left, _POLL_SECONDS)) * 1000)):
                self._take(self._socket.recv_multipart(copy=False))
            elif left <= 0:
                return None
        return self._ready.popleft()

    def wait_for_daemon(self, timeout: float) -> bool:
        """Whether a message of the daemon, a beat at the latest, came in ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.heard and (left := deadline - time.monotonic()) > 0:
            if self._socket.poll(int(min(left, _POLL_SECONDS) * 1000)):
                self._take(self._socket.recv_multipart(copy=False))
        return self.heard

    def __iter__(self) -> Iterator[Message]:
        """Messages until the daemon has said that it ends."""
        while not (self.ended and not self._ready):
            message = self.receive(_POLL_SECONDS)
            if message is not None:
                yield message

    def close(self) -> None:
        """End the subscription."""
        self._connection.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, frames: list[zmq.Frame]) -> None:
        try:
            decoded = decode_feed([frame.buffer for frame in frames])
            message = typed(decoded)
        except (WireError, KeyError, TypeError, ValueError):
            self.damaged += 1
            return
        self.heard = True
        stamp = message.stamp
        if stamp.epoch != self._epoch:
            if self._epoch:
                self._ready.append(NewEpoch(self._epoch, stamp.epoch))
            self._epoch = stamp.epoch
            self._seen.clear()
            self.ended = False
        seen = self._seen.get(stamp.topic)
        if seen is not None and stamp.sequence <= seen:
            return
        if seen is not None and stamp.previous != seen:
            self._gap(stamp.topic, seen, stamp.previous)
        self._seen[stamp.topic] = stamp.sequence
        if isinstance(message, Beat):
            self._compare(message)
        if isinstance(message, Status):
            self.ended = message.state == "ended"
        if stamp.topic in self.topics:
            self._ready.append(message)

    def _compare(self, beat: Beat) -> None:
        """Notice what is missing at the end of a topic, where no later message shows it."""
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
