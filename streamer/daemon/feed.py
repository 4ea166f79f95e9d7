"""The feed thread: the socket around ``FeedCore``, which says what to send."""

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

from streamer.daemon.board import Board
from streamer.daemon.core.backlog import Backlog
from streamer.daemon.core.feed import MAX_IGNORED, FeedCore
from streamer.daemon.core.life import FINAL
from streamer.daemon.drafts import AnyGroup
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.open_connections import ENDED, end, inode
from streamer.daemon.security import guarded_subscriptions
from streamer.daemon.security.guarded_subscriptions import MAX_SUBSCRIPTION, GuardedSubscriptions
from streamer.daemon.security.known_peers import KnownPeers
from streamer.daemon.worker import POLL_MILLISECONDS, SocketWorker
from streamer.protocol.transport.curve import descriptor_of
from streamer.protocol.transport.held import HeldBytes
from streamer.protocol.transport.sending import Message, send_all

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

# subscribers send only the name of a command and a topic; libzmq stores every subscription,
# whatever it is, in a tree that takes 50 bytes for each of its bytes
_OPTIONS: dict[int, int] = {
    zmq.MAXMSGSIZE: MAX_SUBSCRIPTION,
    # report every subscription and unsubscription, not only the first and last of a topic
    zmq.XPUB_VERBOSER: 1,
}
_SUBSCRIPTIONS_AT_ONCE = 1000
# between two checks of the connections, while much waits for them
_LOOK_MILLISECONDS = 5
# between two log lines
_REPORT_SECONDS = 10.0
# the least memory of a message, with what libzmq takes for its frames
_MESSAGE_BYTES = 4096
# the size assumed if bytes cannot be counted: that of a message about a batch of one megabyte
_LARGE_MESSAGE_BYTES = 128 * 1024
_LEAST_MESSAGES = 16
_MOST_MESSAGES = 1 << 30

log = structlog.get_logger("feed")


def high_water(budget: int, *, counted: bool) -> int:
    """The socket's high-water mark, in messages for one subscriber, from a budget in bytes.

    counted: whether waiting messages are counted in bytes, too.

    Changing it while the socket lives can silence a subscriber for good: libzmq's reader reports
    its progress only at multiples of half the mark, so a subscriber that has read everything can
    still count as full.
    """
    size = _MESSAGE_BYTES if counted else _LARGE_MESSAGE_BYTES
    return min(max(_LEAST_MESSAGES, budget // size), _MOST_MESSAGES)


class FeedWorker(SocketWorker):
    """Publishes the groups of batches in ``inbox`` and passes each to ``done`` afterwards.

    at, heads: as in ``FeedCore``.
    """

    def __init__(
        self,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        done: Callable[[AnyGroup], None],
        *,
        at: int = 0,
        heads: Mapping[str, int] | None = None,
        gate: Gatekeeper | None = None,
    ) -> None:
        super().__init__("feed", board, context, notify, gate)
        self.inbox: Mailbox[AnyGroup] = Mailbox()
        self._done = done
        self._core = FeedCore(
            stream=board.stream,
            epoch=board.epoch,
            published=board.published,
            beat_seconds=board.config.feed.beat_seconds,
            at=at,
            heads=heads,
        )
        self._guarded: GuardedSubscriptions | None = None
        if gate is not None:
            peers = KnownPeers(gate, "feed", strict=True)
            self._guarded = GuardedSubscriptions(peers, self._core.subscriptions)
        self._held = HeldBytes()
        self._backlog = Backlog(board.config.feed.buffer_bytes)
        # by connection, identified by its inode
        self._descriptors: dict[int, int] = {}
        self._reported = -_REPORT_SECONDS
        self._novelty_told: list[int] = []

    def wants(self, topic: str) -> bool:
        """Whether somebody subscribes to the topic (a subscription is a prefix)."""
        return self._core.wants(topic)

    def work(self) -> None:
        """Publish until asked to stop, then announce the end."""
        socket = self.bind(
            zmq.XPUB,
            {
                zmq.SNDHWM: high_water(
                    self._board.config.feed.buffer_bytes, counted=not self._held.missing
                ),
                **(_OPTIONS if self._guarded is None else guarded_subscriptions.OPTIONS),
            },
        )
        poller = self.poller(socket, self.inbox)
        core = self._core
        try:
            while not self.stopping.is_set():
                most = (
                    _LOOK_MILLISECONDS
                    if self._backlog.much(self._held.bytes)
                    else POLL_MILLISECONDS
                )
                wait = min(int(core.seconds_to_beat(time.monotonic()) * 1000), most)
                if socket in dict(poller.poll(wait)):
                    self._subscriptions(socket)
                if self._guarded is not None and self._guarded.sweep(time.monotonic()):
                    self._note_subscriptions()
                self._publish_waiting(socket)
                if not core.seconds_to_beat(time.monotonic()):
                    self._beat(socket)
            self._subscriptions(socket)
            self._publish_waiting(socket)
            self._announce(socket, self._board.state)
        finally:
            self.release(socket)

    def _publish_waiting(self, socket: zmq.Socket[bytes]) -> None:
        # the end is announced after everything else
        states = self._board.announcements
        while states and states[0] not in FINAL:
            self._announce(socket, states.popleft())
        groups, work = self.inbox.take(), self.stage_work
        work.taken = len(groups)
        for group in groups:
            # before and after each group, since right after a burst nobody has read it
            self._end_slow()
            with work.step("a group of batches to be laid out and sent"):
                self._publish(socket, group)
            work.taken -= 1
            work.done += 1
        self._end_slow()

    def _publish(self, socket: zmq.Socket[bytes], group: AnyGroup) -> None:
        """Publish a group that was matched or drafted together."""
        made = group.publications(intervals=self.wants("match") or self.wants("mismatch"))
        messages = self._core.publish(made, time.time_ns())
        counts = Counter[str]()
        for one in made:
            counts.update(one.counts)
        totals = self._board.totals
        if group.matched:
            totals.add(group.matched[0].accepted.at, **counts)
        else:
            totals.correct(counts)
        self._send(socket, messages)
        self._board.durations.add([one.accepted.at for one in group.matched])
        tally, matched = self._board.tally, group.matched
        # batches matched with another dictionary will be matched again
        if tally is not None and matched and matched[0].dictionary is tally.dictionary:
            tally.add([one.result for one in matched])
        if self._board.novelty is not None:
            for result in (one.result for one in matched):
                self._board.novelty.add(result.batch.offsets, result.new_starts)
        self._done(group)

    def _announce(self, socket: zmq.Socket[bytes], state: str) -> None:
        self._send(socket, self._core.announce(state, self._board.fields(), time.time_ns()))

    def _beat(self, socket: zmq.Socket[bytes]) -> None:
        totals, version = self._board.totals.fields(), self._board.version
        now = time.monotonic()
        # denials come first: a subscriber that was denied a topic would take its head in the beat
        # for a gap
        self._send(socket, self._core.denials(time.time_ns()))
        self._send(socket, self._core.beat(now, time.time_ns(), totals=totals, version=version))
        self._tell_counts(socket)
        self._tell_novelty(socket)

    def _tell_counts(self, socket: zmq.Socket[bytes]) -> None:
        """Publish the target counts that have changed."""
        tally, core, fields = self._board.tally, self._core, self._board.answers()
        if tally is None:
            return
        for topic, by_barcode in (("targets", False), ("barcodes", True)):
            if core.wants(topic):
                rows = tally.changed(by_barcode=by_barcode)
                self._send(socket, core.tally(topic, rows, time.time_ns(), **fields))
        if "enough" in self._board.published:
            self._send(socket, core.tally("enough", tally.enough(), time.time_ns(), **fields))

    def _tell_novelty(self, socket: zmq.Socket[bytes]) -> None:
        """Publish the end of the novelty curve, if it has moved."""
        curve, core = self._board.novelty, self._core
        if curve is None or not core.wants("novelty"):
            return
        row = curve.last()
        if row is not None and row != self._novelty_told:
            self._novelty_told = row
            version = self._board.version
            self._send(socket, core.tally("novelty", [row], time.time_ns(), version=version))

    def _send(self, socket: zmq.Socket[bytes], messages: Sequence[Message]) -> None:
        # an XPUB socket never blocks: a subscriber without room misses messages
        send_all(socket, messages, self._held)

    def _end_slow(self) -> None:
        """End the connection of a subscriber that makes libzmq hold too much memory."""
        held, now = self._held.bytes, time.monotonic()
        self._board.feed_waiting = held
        if not self._backlog.wants_look(held, now):
            return
        queued: dict[int, int] = {}
        for connection in list(self._backlog.connections):
            descriptor = self._descriptors[connection]
            if inode(descriptor) == connection:
                queued[connection] = _queued(descriptor)
            else:
                del self._descriptors[connection]
        slow = self._backlog.look(queued, held, now)
        if slow is not None:
            end(self._descriptors.pop(slow.connection))
            self._board.slow_subscribers += 1
            log.warning(
                "slow subscriber: its connection is ended",
                waiting_bytes=held,
                buffer_bytes=self._board.config.feed.buffer_bytes,
                behind_seconds=round(slow.behind_seconds, 3),
                still_seconds=round(slow.still_seconds, 3),
                kernel_bytes=slow.queued,
                looks=slow.looks,
            )

    def _subscriptions(self, socket: zmq.Socket[bytes]) -> None:
        held = self._core.subscriptions
        before = held.topics
        for _ in range(_SUBSCRIPTIONS_AT_ONCE):
            try:
                frame = socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                if self._guarded is not None:
                    self._guarded.caught_up()
                break
            message, descriptor = frame.bytes, descriptor_of(frame)
            if self._guarded is not None:
                self._note(descriptor)
                if not self._guarded.obey(socket, frame):
                    self._end_offender(descriptor)
            elif message[:1] == b"\x01":
                self._add(message[1:], descriptor)
            elif message[:1] == b"\x00":
                held.remove(message[1:])
        if held.topics != before:
            log.debug("subscriptions", topics=sorted(held.topics))
        self._note_subscriptions()

    def _note_subscriptions(self) -> None:
        held = self._core.subscriptions
        self._board.topics, self._board.subscriptions = held.topics, held.prefixes.copy()
        self._board.ignored_subscriptions = held.ignored

    def _add(self, prefix: bytes, descriptor: int) -> None:
        """Add a subscription; a connection with too many that match no topic is ended."""
        connection = self._note(descriptor)
        if not self._core.subscriptions.add(prefix, connection):
            self._end_offender(descriptor)

    def _note(self, descriptor: int) -> int:
        """Note and return the connection that a descriptor belongs to now."""
        connection = inode(descriptor)
        if connection != ENDED:
            self._descriptors[connection] = descriptor
            self._backlog.add(connection)
        return connection

    def _end_offender(self, descriptor: int) -> None:
        end(descriptor)
        now = time.monotonic()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            log.warning(
                "connection ended: too many subscriptions that match no topic", limit=MAX_IGNORED
            )


def _queued(descriptor: int) -> int:
    """The bytes in the kernel that the peer of a connection has not received."""
    with contextlib.suppress(OSError):
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0
