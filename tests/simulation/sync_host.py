"""The process that replays the journal, around the real core, and the thread that starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from streamer.daemon.replay import ReplayedJournal, SyncReplay
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalDamage, JournalError
from tests.simulation.clock import Pause, Process, Steps, Thread
from tests.simulation.model_journal import ReadJournal
from tests.simulation.network import Router

if TYPE_CHECKING:
    from tests.simulation.daemon_host import DaemonHost

_IDLE_SECONDS = 0.1
_REQUESTS = 256
_QUIET_SECONDS, _ENDING_SECONDS = 0.3, 2.0
_START_SECONDS, _PAUSE_SECONDS = 0.2, 1.0
# messages that may wait for one connection
_WAITING_MESSAGES = 64
_STEP = 0.0003
# until the sync process of a killed daemon has noticed that
_LINGERS_SECONDS = 0.05


class SyncHost(Process):
    """As ``streamer.daemon.sync_process``."""

    def __init__(self, daemon: DaemonHost, number: int) -> None:
        super().__init__(daemon.clock, f"sync {daemon.life}.{number}")
        self._daemon = daemon
        reader = ReadJournal(daemon.site.disk, daemon.journal.committed)
        self._replay = SyncReplay(
            ReplayedJournal(cast(JournalReader, reader)),
            daemon.site.sync_limits,
            lambda: self.clock.now,
            lambda route, frames: self._router.send(route, frames),
            self._damaged,
        )
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
        """The daemon drains; what is committed is still sent."""
        self._ending = self.clock.now
        self.wake()

    def _serve(self) -> Steps:
        replay, clock = self._replay, self.clock
        yield 0.0
        quiet = clock.now
        while True:
            if self._woken:
                replay.see()
            came = self._woken and bool(self._router.inbox)
            self._woken = False
            for _ in range(min(_REQUESTS, len(self._router.inbox))):
                route, frames = self._router.inbox.popleft()
                replay.core.hear(route, frames, clock.now)
            busy = replay.turn()
            replay.core.tick(clock.now)
            yield self._daemon.takes(_STEP)
            replay.send()
            if busy or came:
                quiet = clock.now
            if self._ending is not None and (
                clock.now - quiet > _QUIET_SECONDS or clock.now - self._ending > _ENDING_SECONDS
            ):
                break
            if not (busy or self._router.inbox):
                yield Pause(0.002 if replay.waits else _IDLE_SECONDS)
        self._router.close()
        self.alive = False

    def _damaged(self, error: JournalError, ends: bool) -> None:
        self.note(f"ends a request: {error}" if ends else f"damaged: {error}")
        if isinstance(error, JournalDamage) and not ends:
            assert error.record is not None
            self._daemon.site.promises.reported(error.record)


class SyncStarter:
    """Starts the process once a client connects, and restarts it if it has died."""

    def __init__(self, daemon: DaemonHost) -> None:
        self.process: SyncHost | None = None
        self._daemon = daemon
        self._begun = -_PAUSE_SECONDS
        self._starting = False
        self._number = 0
        daemon.site.sync.knock = self.knock
        daemon.at_end.append(self._orphaned)

    def knock(self) -> None:
        """A client wants to connect."""
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
