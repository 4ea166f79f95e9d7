"""The process that replays the journal, around the real core, and the thread that starts it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from streamer.daemon.core.flows import Fetch, Flow, Pull, Route
from streamer.daemon.core.sync import BURST_BYTES, SyncCore
from streamer.daemon.replayed_journal import ReplayedJournal
from streamer.journal.journal_errors import JournalDamage, JournalExpired
from streamer.journal.reader import JournalReader
from streamer.protocol.header import Buffer
from tests.simulation.clock import Pause, Process, Steps, Thread
from tests.simulation.model_journal import ReadJournal
from tests.simulation.network import Router, Sent

if TYPE_CHECKING:
    from tests.simulation.daemon_host import DaemonHost

_IDLE_SECONDS = 0.1
_REQUESTS = 256
_QUIET_SECONDS, _ENDING_SECONDS = 0.3, 2.0
_START_SECONDS, _PAUSE_SECONDS = 0.2, 1.0
# messages that may wait for one connection, and answers that may wait behind them
_WAITING_MESSAGES, _MOST_HELD = 64, 1000
_STEP = 0.0003
# until the process of a daemon that was killed has noticed
_LINGERS_SECONDS = 0.05


class SyncHost(Process):
    """As ``streamer.daemon.sync_process``."""

    def __init__(self, daemon: DaemonHost, number: int) -> None:
        super().__init__(daemon.clock, f"sync {daemon.life}.{number}")
        self._daemon = daemon
        reader = ReadJournal(daemon.site.disk, daemon.journal.committed)
        self._journal = ReplayedJournal(cast(JournalReader, reader))
        self._core = SyncCore(daemon.site.sync_limits)
        self._held: dict[Route, deque[Sequence[Buffer]]] = {}
        self._ending: float | None = None
        self._woken = True
        self._thread = Thread(self, self._serve())
        self._router = Router(
            self, daemon.site.sync, self.wake, life=daemon.life, room=_WAITING_MESSAGES
        )

    def wake(self) -> None:
        """Something was committed, or a request has come."""
        self._woken = True
        self._thread.wake()

    def end(self) -> None:
        """The daemon drains: what is committed is still sent."""
        self._ending = self.clock.now
        self.wake()

    def _serve(self) -> Steps:
        core, clock = self._core, self.clock
        yield 0.0
        quiet = clock.now
        while True:
            if self._woken:
                core.see(self._journal.look())
            came = self._woken and bool(self._router.inbox)
            self._woken = False
            for _ in range(min(_REQUESTS, len(self._router.inbox))):
                route, frames = self._router.inbox.popleft()
                core.hear(route, frames, clock.now)
            busy = self._replay()
            core.tick(clock.now)
            yield self._daemon.takes(_STEP)
            self._send()
            if busy or came:
                quiet = clock.now
            if self._ending is not None and (
                clock.now - quiet > _QUIET_SECONDS or clock.now - self._ending > _ENDING_SECONDS
            ):
                break
            if not (busy or self._router.inbox):
                yield Pause(0.002 if self._held else _IDLE_SECONDS)
        self._router.close()
        self.alive = False

    def _replay(self) -> bool:
        flow = self._core.turn(self.clock.now)
        if flow is None:
            return False
        try:
            self._burst(flow)
        except JournalExpired:
            assert isinstance(flow, Pull)
            self._core.see(self._journal.look())
            self._core.expire(flow)
        except JournalDamage as damage:
            self.note(f"ends a request: {damage}")
            self._core.abandon(flow, str(damage))
        return True

    def _burst(self, flow: Flow) -> None:
        if isinstance(flow, Fetch):
            if flow.parts is None and self._journal.checked():
                self._core.give_state(flow, self._journal.state())
            if flow.parts is not None:
                self._core.go_on(flow, self.clock.now)
        elif isinstance(flow, Pull):
            self._pull(flow)

    def _pull(self, pull: Pull) -> None:
        core, now, sent = self._core, self.clock.now, 0
        while sent < BURST_BYTES and core.open(pull):
            try:
                record = self._journal.after(pull.at)
            except JournalDamage as damage:
                if damage.record is None:
                    raise
                self.note(f"damaged record {damage.record}")
                self._daemon.site.promises.reported(damage.record)
                core.lose(pull, damage.record, str(damage), now)
                continue
            if record is None:
                core.give_up(pull, now)
            else:
                sent += core.give(pull, record, now) + (record.size >> 4)

    def _send(self) -> None:
        core = self._core
        for route in [*self._held]:
            self._flush(route)
        out, core.out = core.out, []
        for route, frames in out:
            waiting = self._held.get(route)
            if waiting is not None:
                waiting.append(frames)
                if len(waiting) > _MOST_HELD:
                    self._give_up(route)
            else:
                self._try(route, frames)

    def _try(self, route: Route, frames: Sequence[Buffer]) -> bool:
        match self._router.send(route, frames):
            case Sent.FULL:
                self._held.setdefault(route, deque()).appendleft(frames)
                self._core.hold(route)
                return False
            case Sent.GONE:
                self._give_up(route)
                return False
        return True

    def _flush(self, route: Route) -> None:
        waiting = self._held[route]
        while waiting:
            if not self._try(route, waiting.popleft()):
                return
        del self._held[route]
        self._core.release(route)

    def _give_up(self, route: Route) -> None:
        self._held.pop(route, None)
        self._core.gone(route)


class SyncStarter:
    """Starts the process once somebody connects, and another one if it has died."""

    def __init__(self, daemon: DaemonHost) -> None:
        self.process: SyncHost | None = None
        self._daemon = daemon
        self._begun = -_PAUSE_SECONDS
        self._starting = False
        self._number = 0
        daemon.site.sync.knock = self.knock
        daemon.at_end.append(self._orphaned)

    def knock(self) -> None:
        """Somebody wants to connect."""
        daemon = self._daemon
        busy = self._starting or (self.process is not None and self.process.alive)
        if busy or not daemon.serving or daemon.clock.now - self._begun < _PAUSE_SECONDS:
            return
        self._begun, self._starting = daemon.clock.now, True
        daemon.after(daemon.takes(_START_SECONDS), self._start)

    def _start(self) -> None:
        self._starting = False
        if self._daemon.serving and self._daemon.site.sync.server is None:
            self._number += 1
            self.process = SyncHost(self._daemon, self._number)

    def wake(self) -> None:
        """Something was committed."""
        if self.process is not None and self.process.alive:
            self.process.wake()

    def end(self) -> None:
        """The daemon ends."""
        if self.process is not None and self.process.alive:
            self.process.end()

    def _orphaned(self) -> None:
        process = self.process
        if process is not None and process.alive:
            wait = self._daemon.clock.random.random() * _LINGERS_SECONDS
            process.after(wait, lambda: process.kill("its daemon has ended"))
