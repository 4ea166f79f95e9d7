"""The feed thread: the socket around ``FeedCore``, which says what to send.

The columns of its messages are defined in ``streamer.protocol.schema``.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog
import zmq

from streamer.daemon.core.feed import MAX_IGNORED, Backlog, FeedCore, Subscriptions
from streamer.daemon.core.life import FINAL
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.publish import Group
from streamer.daemon.security.known_peers import ENDED, KnownPeers, end, inode
from streamer.daemon.socket_worker import SocketWorker
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox
from streamer.protocol.payloads import DENIED_TOPIC
from streamer.protocol.transport.curve import HANDSHAKE_BYTES, descriptor_of
from streamer.protocol.transport.frames import (
    FRAME_BYTES,
    MESSAGE_BYTES,
    Message,
    UnsentBytes,
    measure,
    send_all,
)
from streamer.protocol.wire import WireError

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

_SUBSCRIPTIONS_AT_ONCE = 1000
# between two log lines
_REPORT_SECONDS = 10.0
# messages for one subscriber if bytes cannot be counted: one for each of these, the size of a
# message about a batch of one megabyte
_LARGE_MESSAGE_BYTES = 128 * 1024
_LEAST_MESSAGES, _MOST_MESSAGES = 16, 1 << 30
# messages are sent in parts of up to this fraction (1/n) of the limit
_PARTS = 64
# while there is no room: between two checks, for libzmq to free memory, and until messages are lost
_CHECK_SECONDS, _RELEASE_SECONDS, _LOSE_SECONDS = 0.0005, 0.02, 2.0

log = structlog.get_logger("feed")

MAX_SUBSCRIPTION = 64
"""In bytes; a longer subscription ends the connection, because libzmq stores every subscription in
a tree that takes 50 bytes for each of its bytes."""

MAX_MESSAGES = 256
"""How many messages a connection may send in a second: libzmq queues them without a limit."""

_SWEEP_SECONDS = 1.0
_DENIED = DENIED_TOPIC.encode()


class GuardedSubscriptions:
    """Applies the allowed subscriptions of a feed's connections; ``held`` has those in effect.

    The socket is "manual": libzmq applies what it is told to, for the connection whose subscription
    was received last. This holds only as long as every message received is a subscription. libzmq
    (xpub.cpp of 4.3.5) queues a connection for each subscription, but dequeues one with every
    message. After any other message, a subscription would be applied for the connection of a later
    one, perhaps with another key. So nothing is applied then until the queue is empty, and clients
    that ask meanwhile must ask again.

    descriptors: of each connection that has sent a message, by its inode.
    """

    def __init__(self, peers: KnownPeers, subscriptions: Subscriptions) -> None:
        self.descriptors: dict[int, int] = {}
        self._peers = peers
        self._held = subscriptions
        # by connection: its messages of this second
        self._messages = Counter[int]()
        self._swept = 0.0
        # whether a connection has ended since
        self._ended = False
        # whether libzmq would apply a subscription for the wrong connection
        self._shifted = False

    def caught_up(self) -> None:
        """No message is left to be received."""
        self._shifted = False

    def obey(self, socket: zmq.Socket[bytes], frame: zmq.Frame) -> bool:
        """Apply a received subscription or its end; returns whether the connection may stay."""
        sender, message = self._peers.sender(frame), frame.bytes
        begins, prefix = message[:1] == b"\x01", message[1:]
        if message[:1] not in (b"\x00", b"\x01"):
            self._shifted = True
            return False
        connection = inode(sender.descriptor)
        if connection == ENDED:
            self._ended = True
            return True
        self.descriptors[connection] = sender.descriptor
        self._messages[connection] += 1
        if len(message) > MAX_SUBSCRIPTION or self._messages[connection] > MAX_MESSAGES:
            return False
        if self._shifted:
            end(sender.descriptor)
            return True
        before = self._held.topics_of(connection)
        if not begins:
            self._held.remove(prefix, connection)
            for topic in before - self._held.topics_of(connection):
                socket.setsockopt_string(zmq.UNSUBSCRIBE, topic)
            return True
        try:
            rights = self._peers.rights(str(connection).encode(), sender)
        except WireError as error:
            rights = None
            self._held.deny(prefix.decode("ascii", "replace"), connection, sender.user, str(error))
        if prefix == _DENIED:
            # subscribe to the denials for this key only
            socket.setsockopt(zmq.SUBSCRIBE, prefix + sender.user.encode())
            return True
        stays = rights is None or self._held.add(prefix, connection, rights)
        # not the prefix itself: the prefix of all topics also matches denials for other keys
        for topic in self._held.topics_of(connection) - before:
            socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        return stays

    def sweep(self, now: float) -> bool:
        """Remove subscriptions of connections that ended or lost rights; returns if any did."""
        gone = [int(route) for route in self._peers.sweep(now)]
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept, self._ended = now, True
            self._messages.clear()
        if self._ended:
            self._ended = False
            gone += [known for known, where in self.descriptors.items() if inode(where) != known]
        for connection in gone:
            self.descriptors.pop(connection, None)
            self._held.leave(connection)
        return bool(gone)


class FeedWorker(SocketWorker):
    """Publishes the groups of batches in ``inbox`` and passes each to ``done`` afterwards.

    at, heads: as in ``FeedCore``.
    """

    def __init__(
        self,
        status: DaemonStatus,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        done: Callable[[Group], None],
        *,
        at: int = 0,
        heads: Mapping[str, int] | None = None,
        gate: Gatekeeper | None = None,
    ) -> None:
        super().__init__("feed", status, context, notify, gate)
        self.inbox: Mailbox[Group] = Mailbox()
        self._done = done
        self._core = FeedCore(
            stream=status.stream,
            epoch=status.epoch,
            published=status.published,
            beat_seconds=status.config.feed.beat_seconds,
            at=at,
            heads=heads,
        )
        peers = KnownPeers(gate, "feed", strict=True)
        self._guarded = GuardedSubscriptions(peers, self._core.subscriptions)
        self._unsent = UnsentBytes()
        self._limit = status.config.feed.buffer_bytes
        self._backlog = Backlog(self._limit)
        self._sent = 0
        self._reported = -_REPORT_SECONDS
        self._last_novelty: list[int] = []

    def wants(self, topic: str) -> bool:
        """Whether somebody subscribes to the topic (a subscription is a prefix)."""
        return self._core.wants(topic)

    def work(self) -> None:
        """Publish until asked to stop, then announce the end."""
        # with counted bytes there is room for any number. Changing it while the socket lives can
        # silence a subscriber for good: libzmq's reader reports its progress only at multiples of
        # half the mark, so a subscriber that has read everything can still count as full
        most = min(max(_LEAST_MESSAGES, self._limit // _LARGE_MESSAGE_BYTES), _MOST_MESSAGES)
        options: dict[int, int] = {
            zmq.SNDHWM: most if self._unsent.missing else 0,
            zmq.MAXMSGSIZE: MAX_SUBSCRIPTION if self.gate is None else HANDSHAKE_BYTES,
            zmq.XPUB_MANUAL: 1,
        }
        socket = self.bind(zmq.XPUB, options)
        # what waits for a connection that ended is freed at once
        socket.linger = 0
        poller = self.poller(socket, self.inbox)
        core = self._core
        try:
            while not self.stopping.is_set():
                wait = min(int(core.seconds_to_beat(time.monotonic()) * 1000), POLL_MILLISECONDS)
                if socket in dict(poller.poll(wait)):
                    self._subscriptions(socket)
                if self._guarded.sweep(time.monotonic()):
                    self._note_subscriptions()
                self._publish_waiting(socket)
                if not core.seconds_to_beat(time.monotonic()):
                    self._beat(socket)
            self._subscriptions(socket)
            self._publish_waiting(socket)
            self._announce(socket, self._status.state)
        finally:
            self.release(socket)

    def _publish_waiting(self, socket: zmq.Socket[bytes]) -> None:
        # the end is announced after everything else
        states = self._status.announcements
        while states and states[0] not in FINAL:
            self._announce(socket, states.popleft())
        groups, work = self.inbox.take(), self.stage_work
        work.taken = len(groups)
        for group in groups:
            with work.step("a group of batches to be laid out and sent"):
                self._publish(socket, group)
            work.taken -= 1
            work.done += 1
        self._status.feed_waiting = self._unsent.bytes

    def _publish(self, socket: zmq.Socket[bytes], group: Group) -> None:
        made = group.publications(intervals=self.wants("match") or self.wants("mismatch"))
        messages = self._core.publish(made, time.time_ns())
        counts = Counter[str]()
        for record in made:
            counts.update(record.counts)
        totals = self._status.totals
        if group.matched:
            totals.add(group.matched[0].accepted.at, **counts)
        else:
            totals.correct(counts)
        self._send(socket, messages)
        self._status.durations.add([batch.accepted.at for batch in group.matched])
        tally, matched = self._status.tally, group.matched
        # batches matched with another dictionary will be matched again
        if tally is not None and matched and matched[0].dictionary is tally.dictionary:
            tally.add([batch.result for batch in matched])
        if self._status.novelty is not None:
            for result in (batch.result for batch in matched):
                self._status.novelty.add(result.batch.offsets, result.new_starts)
        self._done(group)

    def _announce(self, socket: zmq.Socket[bytes], state: str) -> None:
        self._send(socket, self._core.announce(state, self._status.fields(), time.time_ns()))

    def _beat(self, socket: zmq.Socket[bytes]) -> None:
        totals, version = self._status.totals.fields(), self._status.version
        now = time.monotonic()
        # denials come first: a subscriber that was denied a topic would take its head in the beat
        # for a gap
        self._send(socket, self._core.denials(time.time_ns()))
        self._send(socket, self._core.beat(now, time.time_ns(), totals=totals, version=version))
        self._publish_counts(socket)
        self._publish_novelty(socket)

    def _publish_counts(self, socket: zmq.Socket[bytes]) -> None:
        tally, core, fields = self._status.tally, self._core, self._status.answers()
        if tally is None:
            return
        for topic, by_barcode in (("targets", False), ("barcodes", True)):
            if core.wants(topic):
                rows = tally.changed(by_barcode=by_barcode)
                self._send(socket, core.tally(topic, rows, time.time_ns(), **fields))
        if "enough" in self._status.published:
            self._send(socket, core.tally("enough", tally.enough(), time.time_ns(), **fields))

    def _publish_novelty(self, socket: zmq.Socket[bytes]) -> None:
        """Publish the end of the novelty curve, if it has moved."""
        curve, core = self._status.novelty, self._core
        if curve is None or not core.wants("novelty"):
            return
        row = curve.last()
        if row is not None and row != self._last_novelty:
            self._last_novelty = row
            version = self._status.version
            self._send(socket, core.tally("novelty", [row], time.time_ns(), version=version))

    def _send(self, socket: zmq.Socket[bytes], messages: Sequence[Message]) -> None:
        """Send messages, as many at once as there is room for."""
        part: list[Message] = []
        shares: list[int] = []
        size = 0
        for message in messages:
            own, frames = measure(message)
            # in libzmq each connection has an entry of its own for each frame
            listeners = self._core.subscriptions.listeners[bytes(message[0]).decode()]
            share = frames * MESSAGE_BYTES * listeners
            own += frames * FRAME_BYTES + share
            if part and size + own > self._limit // _PARTS:
                self._send_part(socket, part, shares, size)
                part, shares, size = [], [], 0
            part.append(message)
            shares.append(share)
            size += own
        self._send_part(socket, part, shares, size)

    def _send_part(
        self, socket: zmq.Socket[bytes], part: list[Message], shares: list[int], size: int
    ) -> None:
        # an XPUB socket never blocks
        if self._make_room(socket, size):
            send_all(socket, part, self._unsent, shares)
            self._sent += size
        else:
            log.error("messages of the feed are lost: no memory becomes free", bytes=size)

    def _make_room(self, socket: zmq.Socket[bytes], size: int) -> bool:
        """Return once so much more may wait; connections of the slowest subscribers are ended.

        A message beyond the limit fits if nothing else waits. False if it takes too long.
        """
        begun = judged = time.monotonic()
        since, now = begun, begun
        if self._backlog.wants_look(self._unsent.bytes, self._sent, now):
            self._look(now)
        while (unsent := self._unsent.bytes) and unsent + size > self._limit:
            now = time.monotonic()
            if now - begun > _LOSE_SECONDS:
                return False
            if now >= judged:
                self._look(now)
                ended = self._backlog.slowest(since, now)
                for connection in ended:
                    end(self._guarded.descriptors[connection])
                if ended:
                    since, judged = now, now + _RELEASE_SECONDS
                    self._status.slow_subscribers += len(ended)
                    self._report(
                        "slow subscribers: their connections are ended",
                        connections=len(ended),
                        waiting_bytes=unsent,
                        buffer_bytes=self._limit,
                    )
            # libzmq frees what an ended connection left when it is called
            socket.getsockopt(zmq.EVENTS)
            time.sleep(_CHECK_SECONDS)
        return True

    def _look(self, now: float) -> None:
        """Note how much the peers of all connections have not received."""
        descriptors = self._guarded.descriptors
        queued = {
            connection: _queued(descriptors[connection])
            for connection in self._backlog.connections
            if inode(descriptors.get(connection, ENDED)) == connection
        }
        self._backlog.look(queued, self._sent, now)

    def _report(self, event: str, **fields: int) -> None:
        """Log a warning, at most once in ten seconds."""
        now = time.monotonic()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            log.warning(event, **fields)

    def _subscriptions(self, socket: zmq.Socket[bytes]) -> None:
        subscriptions, guarded = self._core.subscriptions, self._guarded
        before = subscriptions.topics
        for _ in range(_SUBSCRIPTIONS_AT_ONCE):
            try:
                frame = socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                guarded.caught_up()
                break
            if not guarded.obey(socket, frame):
                end(descriptor_of(frame))
                self._report(
                    "connection ended: it sent what is no subscription, or too many",
                    limit_of_unknown_topics=MAX_IGNORED,
                    limit_a_second=MAX_MESSAGES,
                )
        for connection in guarded.descriptors:
            self._backlog.add(connection, self._sent, time.monotonic())
        if subscriptions.topics != before:
            log.debug("subscriptions", topics=sorted(subscriptions.topics))
        self._note_subscriptions()

    def _note_subscriptions(self) -> None:
        subscriptions = self._core.subscriptions
        self._status.topics = subscriptions.topics
        self._status.subscriptions = subscriptions.prefixes.copy()
        self._status.ignored_subscriptions = subscriptions.ignored


def _queued(descriptor: int) -> int:
    """The bytes in the kernel that the peer of a connection has not received."""
    with contextlib.suppress(OSError):
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0
