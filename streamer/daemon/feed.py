"""The feed thread: results by topic, a beat every second, and the daemon's changes of state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import structlog
import zmq

from streamer.daemon.batch_record import Matched
from streamer.daemon.board import FINAL, Board
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.publish import Group, Publication
from streamer.daemon.worker import POLL_MILLISECONDS, SocketWorker
from streamer.protocol.feed_messages import encode_notice
from streamer.protocol.header import PROTOCOL, Header
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.sending import Message, send_all

# subscribers send only names of topics
_MAX_SUBSCRIPTION = 1024
# assumed size of a message for the high-water mark: that of a batch of a megabyte
_MESSAGE_BYTES = 128 * 1024
_LEAST_MESSAGES = 16
_MOST_MESSAGES = 1 << 30

log = structlog.get_logger("feed")


def high_water(budget: int) -> int:
    """The socket's high-water mark, in messages, from a budget in bytes.

    Changing it while the socket lives can silence a subscriber for good: libzmq's reader reports
    its progress only at multiples of half the mark, so a subscriber that has read everything can
    still count as full.
    """
    return min(max(_LEAST_MESSAGES, budget // _MESSAGE_BYTES), _MOST_MESSAGES)


@lru_cache(maxsize=16)
def _wanted(prefixes: frozenset[str]) -> frozenset[str]:
    """The topics that match one of these subscriptions."""
    return frozenset(topic for topic in TOPICS if topic.startswith(tuple(prefixes)))


class FeedWorker(SocketWorker):
    """Publishes the groups of batches in ``inbox`` and passes each to ``done`` afterwards."""

    def __init__(
        self,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        done: Callable[[Sequence[Matched]], None],
    ) -> None:
        super().__init__("feed", board, context, notify)
        self.inbox: Mailbox[Group] = Mailbox()
        self._done = done
        # messages not yet sent
        self._ready: list[Message] = []
        self._sequence = 0
        self._heads = dict.fromkeys(TOPICS, 0)

    def wants(self, topic: str) -> bool:
        """Whether somebody subscribes to the topic (a subscription is a prefix)."""
        return topic in _wanted(self._board.topics)

    def work(self) -> None:
        """Publish until asked to stop, then announce the end."""
        socket = self.bind(
            zmq.XPUB,
            {
                zmq.SNDHWM: high_water(self._board.config.feed.buffer_bytes),
                zmq.MAXMSGSIZE: _MAX_SUBSCRIPTION,
            },
        )
        poller = self.poller(socket, self.inbox)
        try:
            period = self._board.config.feed.beat_seconds
            next_beat = time.monotonic()
            while not self.stopping.is_set():
                wait = min(max(0, int((next_beat - time.monotonic()) * 1000)), POLL_MILLISECONDS)
                if socket in dict(poller.poll(wait)):
                    self._subscriptions(socket)
                self._publish_waiting(socket)
                if time.monotonic() >= next_beat:
                    self._beat(socket)
                    next_beat = time.monotonic() + period
            self._subscriptions(socket)
            self._publish_waiting(socket)
            self._beat(socket)
            self._announce_state(socket, self._board.state)
        finally:
            self.release(socket)

    def _publish_waiting(self, socket: zmq.Socket[bytes]) -> None:
        # the end is announced last of all
        states = self._board.announcements
        while states and states[0] not in FINAL:
            self._announce_state(socket, states.popleft())
        for group in self.inbox.take():
            self._publish_all(socket, group)

    def _publish_all(self, socket: zmq.Socket[bytes], group: Group) -> None:
        """Publish a group of batches that were matched together."""
        made = group.publications(intervals=self.wants("match") or self.wants("mismatch"))
        for publication in made:
            self._publish(publication)
        counts = made[0].counts
        if len(made) > 1:
            counts = {name: sum(p.counts[name] for p in made) for name in counts}
        self._board.totals.add(group.matched[0].accepted.at, **counts)
        self._flush(socket)
        self._done(group.matched)

    def _announce_state(self, socket: zmq.Socket[bytes], state: str) -> None:
        self._announce(socket, "status", {"status": self._board.fields() | {"state": state}})

    def _subscriptions(self, socket: zmq.Socket[bytes]) -> None:
        topics = set(self._board.topics)
        while True:
            try:
                message = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            prefix = message[1:].decode("ascii", "replace")
            if message[:1] == b"\x01":
                topics.add(prefix)
            elif message[:1] == b"\x00":
                topics.discard(prefix)
        if topics != self._board.topics:
            log.debug("subscriptions", topics=sorted(topics))
            self._board.topics = frozenset(topics)

    def _publish(self, publication: Publication) -> None:
        about = publication.about
        wanted = _wanted(self._board.topics)
        for topic in publication.prev:
            header = self._next(topic)
            if topic in wanted and (topic != "word" or publication.has_words):
                self._ready.append(publication.message(topic, header | about))

    def _beat(self, socket: zmq.Socket[bytes]) -> None:
        totals = self._board.totals.fields()
        header = {"heads": dict(self._heads), "totals": totals, "version": self._board.version}
        header["published"] = self._board.published
        self._announce(socket, "beat", header)

    def _announce(self, socket: zmq.Socket[bytes], topic: str, fields: dict[str, Any]) -> None:
        header = self._next(topic)
        if self.wants(topic):
            self._ready.append(encode_notice(topic, header | fields))
            self._flush(socket)

    def _next(self, topic: str) -> Header:
        """The header of the next message, which is numbered even if nobody subscribes."""
        self._sequence += 1
        previous = self._heads[topic]
        self._heads[topic] = self._sequence
        return {
            "v": PROTOCOL,
            "topic": topic,
            "epoch": self._board.epoch,
            "seq": self._sequence,
            "prev": previous,
            "time": time.time_ns(),
        }

    def _flush(self, socket: zmq.Socket[bytes]) -> None:
        # an XPUB socket never blocks: a subscriber without room misses messages
        messages, self._ready = self._ready, []
        send_all(socket, messages)
