"""Ingest and feed as models around the real cores: the work of each thread, step by step.

They do what ``ingest`` and ``feed`` in ``streamer/daemon`` do, with models of their sockets. A step
ends wherever another thread or a kill may interfere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from streamer.daemon.core.feed import Backlog, FeedCore
from streamer.daemon.core.ingest import IngestCore
from streamer.daemon.core.life import FINAL
from streamer.daemon.journal import Epochs
from streamer.daemon.publish import Group
from streamer.protocol.payloads import decode_batch
from streamer.protocol.transport.frames import Message, Placed
from streamer.protocol.wire import Header, WireError, answer, crc32c, size_of, unpack, unseal
from tests.simulation.clock import Pause, Steps, Thread
from tests.simulation.network import FeedServer, Frames, Router

if TYPE_CHECKING:
    from tests.simulation.daemon_host import DaemonHost

POLL_SECONDS = 0.2
# messages of a turn, and seconds to refuse messages that came before the end
_BURST = 64
_END_SECONDS = 1.0
_READ_SECONDS = 0.2
_STEP = 0.0003


class DaemonThread:
    """A thread of the daemon; an error in ``work`` brings the daemon down."""

    def __init__(self, daemon: DaemonHost) -> None:
        self.daemon = daemon
        self.inbox: deque[Any] = deque()
        self.stopping = False
        self.error: Exception | None = None
        self._thread: Thread | None = None

    def work(self) -> Steps:
        """Its steps."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._thread = Thread(self.daemon, self.work(), self._failed)

    @property
    def ended(self) -> bool:
        """Whether it has ended, or never began."""
        return self._thread is None or self._thread.ended

    def _failed(self, error: Exception) -> None:
        self.error = error
        self.daemon.main.wake()

    def wake(self) -> None:
        """Have it check for work."""
        if self._thread is not None:
            self._thread.wake()

    def put(self, *things: Any) -> None:
        """Put items into its inbox."""
        self.inbox.extend(things)
        self.wake()

    def stop(self) -> None:
        """Have it end."""
        self.stopping = True
        self.wake()

    def step(self, mean: float = _STEP) -> float:
        """Seconds that a step takes."""
        return self.daemon.takes(mean)

    def idle(self, most: float = POLL_SECONDS, *, busy: object = False) -> float:
        """Wait until woken, but not if ``busy``."""
        return self.step() if busy or self.inbox or self.stopping else Pause(most)


class IngestThread(DaemonThread):
    """Messages of producers in, acknowledgements out."""

    def __init__(self, daemon: DaemonHost, core: IngestCore) -> None:
        super().__init__(daemon)
        self.core = core
        self.drained = False
        site = daemon.site
        self.router = Router(daemon, site.ingest, self.wake, life=daemon.life)

    def work(self) -> Steps:
        while not self.stopping:
            yield self.idle(busy=self.router.inbox)
            yield from self._turn()
        deadline = self.daemon.clock.now + _END_SECONDS
        while (yield from self._turn()) and self.daemon.clock.now < deadline:
            pass
        yield _READ_SECONDS
        self.router.close()

    def _turn(self) -> Generator[float, None, int]:
        daemon, core = self.daemon, self.core
        core.tick(daemon.clock.now, daemon.clock.wall // 1_000_000)
        core.life(daemon.state)
        while self.inbox:
            self.inbox.popleft()()
        taken = min(len(self.router.inbox), _BURST)
        for _ in range(taken):
            self._handle(*self.router.inbox.popleft())
        if epochs := core.epochs():
            daemon.log.put(epochs)
        yield self.step()
        for route, header in core.answers():
            daemon.note(lambda header=header: f"answers {_shown(header)}")  # type: ignore[misc]
            self.router.send(route, answer(header))
        daemon.site.promises.memory(core.producers.queued_bytes, core.producers.limit)
        if core.drained and not self.drained:
            self.drained = True
            daemon.main.wake()
        return taken

    def _handle(self, route: bytes, frames: Frames) -> None:
        core, data = self.core, frames[1:-1]
        header: Header = {}
        try:
            unseal(frames)
            header = unpack(frames[0])
            offer = core.message(route, header, size_of(data), crc32c(data))
            if offer is None:
                return
            batch, names = decode_batch(header, data)
        except WireError as error:
            core.refuse(route, error, header)
            return
        item = core.accept(offer, batch, names)
        self.daemon.note(lambda: "accepts {} {}.{}".format(*item.key))
        self.daemon.engine.put(item)


class FeedThread(DaemonThread):
    """Publishes what is committed, and beats."""

    def __init__(self, daemon: DaemonHost, core: FeedCore) -> None:
        super().__init__(daemon)
        self.core = core
        site = daemon.site
        self.server = FeedServer(daemon, site.feed, self.wake, room=site.feed_messages)
        self._limit = site.feed_bytes
        self._backlog = Backlog(self._limit)
        self._sent = 0

    def work(self) -> Steps:
        clock, core = self.daemon.clock, self.core
        while not self.stopping:
            wait = min(core.seconds_to_beat(clock.now), POLL_SECONDS)
            yield self.idle(wait, busy=self.server.inbox)
            self._subscriptions()
            yield from self._publish_waiting()
            if not core.seconds_to_beat(clock.now):
                totals = dict(self.daemon.totals)
                self._send(core.beat(clock.now, clock.wall, totals=totals, version=1))
        self._subscriptions()
        yield from self._publish_waiting()
        self._announce(self.daemon.state)
        yield self.step()
        self.server.close()

    def _publish_waiting(self) -> Steps:
        states = self.daemon.announcements
        while states and states[0] not in FINAL:
            self._announce(states.popleft())
        while self.inbox:
            yield from self._publish(self.inbox.popleft())

    def _publish(self, group: Group) -> Steps:
        made = group.publications(intervals=True)
        messages = self.core.publish(made, self.daemon.clock.wall)
        for publication in made:
            self.daemon.totals.update(publication.counts)
        for message in messages:
            self._send([message])
            if self.daemon.clock.random.random() < 0.1:
                yield self.step()
        self.daemon.note(lambda: f"published {numbers_of(group)}")
        self.daemon.engine.release()
        self.finished(group)

    def finished(self, group: Group) -> None:
        """The messages about a group are out."""
        group.done()
        if group.matched:
            items = [matched.accepted for matched in group.matched]
            self.daemon.ingest.put(partial(self.daemon.ingest.core.published, items))

    def _announce(self, state: str) -> None:
        self.daemon.note(f"announces {state}")
        status = {"totals": dict(self.daemon.totals)}
        self._send(self.core.announce(state, status, self.daemon.clock.wall))

    def _send(self, messages: list[Message]) -> None:
        for message in messages:
            frames: Frames = []
            for frame in message:
                frames += frame.frames() if isinstance(frame, Placed) else [bytes(frame)]
            size = sum(map(len, frames))
            self._make_room(size)
            self.server.send(frames)
            self._sent += size

    def _make_room(self, size: int) -> None:
        """End slow subscribers; a step takes no time, so one that reads is not waited for."""
        server, now = self.server, self.daemon.clock.now
        while server.held and server.held + size > self._limit:
            queued = server.in_kernel()
            known = {n: queued[n] for n in self._backlog.connections if n in queued}
            self._backlog.look(known, self._sent, now)
            for number in self._backlog.slowest(float("-inf"), now):
                self.daemon.note(f"ends slow subscriber {number}")
                server.connections[number].end()

    def _subscriptions(self) -> None:
        subscriptions = self.core.subscriptions
        while self.server.inbox:
            said = self.server.inbox.popleft()
            if said.ended:
                subscriptions.leave(said.number)
                continue
            if said.number in self.server.connections:
                self._backlog.add(said.number, self._sent, self.daemon.clock.now)
                subscriptions.add(said.prefix, said.number)
                self.server.connections[said.number].prefixes += (said.prefix,)


def numbers_of(group: Group | Epochs) -> str:
    """The records of a group, or the epochs that it stores, for the trace."""
    if not isinstance(group, Group):
        return ", ".join(f"epoch {epoch} of {name}" for name, epoch in group)
    return ", ".join(str(publication.at) for publication in group.publications(intervals=True))


_SHOWN = "type", "producer", "epoch", "received", "durable", "matched", "credit", "seq", "reason"


def _shown(header: Header) -> str:
    return " ".join(f"{key}={header[key]}" for key in _SHOWN if key in header)
