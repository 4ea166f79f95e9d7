"""The log as a model around its core; each disk step is a step of the thread.

It does what ``streamer.daemon.journal`` does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from streamer.daemon.core.log import LogCore, Replay, Task
from streamer.daemon.journal import Epochs, entries_of
from streamer.daemon.publish import Group
from streamer.daemon.restore import put_snapshot
from streamer.journal.record import Begun, JournalFull, Record, Snapshot
from streamer.journal.store import Journal
from tests.simulation.clock import Steps
from tests.simulation.daemon_threads import POLL_SECONDS, DaemonThread, numbers_of
from tests.simulation.model_journal import DiskStep

if TYPE_CHECKING:
    from tests.simulation.daemon_host import DaemonHost


class LogThread(DaemonThread):
    """Commits matched groups, which may then be acknowledged and published."""

    def __init__(self, daemon: DaemonHost, replayed: Replay) -> None:
        super().__init__(daemon)
        site = daemon.site
        self.core: LogCore[Group | Epochs, Record | Begun] = LogCore(
            lambda group: entries_of(group, daemon.clock.wall), replayed, site.snapshot_after
        )

    def work(self) -> Steps:
        core, clock = self.core, self.daemon.clock
        while not self.stopping:
            yield self.idle(core.wait(clock.now, POLL_SECONDS))
            core.add(self.inbox)
            self.inbox.clear()
            match core.task(clock.now):
                case Task.APPEND:
                    yield from self._append()
                case Task.SNAPSHOT:
                    yield from self._snapshot()
                case Task.EXPIRE:
                    yield from self._expire()

    def _append(self) -> Steps:
        core, daemon = self.core, self.daemon
        try:
            for step in daemon.journal.appending(core.records()):
                self.during(step)
                yield step
        except JournalFull:
            if core.no_room(daemon.clock.now):
                daemon.note("the disk is full")
                daemon.journal_full(True)
            return
        if core.full:
            daemon.note("there is room again")
            daemon.journal_full(False)
        for group in core.appended():
            daemon.note(lambda group=group: f"committed {numbers_of(group)}")  # type: ignore[misc]
            if isinstance(group, Group):
                self.committed(group)
                yield self.step()
                self.forward(group)
            else:
                daemon.ingest.put(partial(daemon.ingest.core.begun, group))

    def during(self, step: DiskStep) -> None:
        """Called after each step of an append."""

    def committed(self, group: Group) -> None:
        """The group may be acknowledged."""
        if items := [matched.accepted for matched in group.matched]:
            self.daemon.ingest.put(partial(self.daemon.ingest.core.durable, items))
        self.daemon.replay.wake()

    def forward(self, group: Group) -> None:
        """The group may be published."""
        self.daemon.feed.put(group)

    def _snapshot(self) -> Steps:
        daemon, taken = self.daemon, Taken(self.daemon)
        assert taken.stored is not None
        stored = False
        try:
            yield from daemon.journal.storing(taken.stored)
            stored = True
            daemon.note(f"snapshot at {taken.stored.at}")
        except JournalFull:
            pass
        self.core.snapshot_tried(daemon.clock.now, stored=stored)

    def _expire(self) -> Steps:
        daemon, expired = self.daemon, 0
        try:
            if daemon.site.keep_records:
                daemon.site.promises.learn(daemon.journal)
                expired = yield from daemon.journal.expiring(daemon.site.keep_records)
        except JournalFull:
            pass
        if expired:
            daemon.note(f"keeps records from {daemon.journal.oldest}")
        self.core.expired(expired, daemon.clock.now)


class Taken:
    """A journal that captures a snapshot, to be stored in steps."""

    def __init__(self, daemon: DaemonHost) -> None:
        self._journal = daemon.journal
        self.stored: Snapshot | None = None
        put_snapshot(cast(Journal, self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def put_snapshot(self, at: int, meta: bytes, frames: Any) -> None:
        self.stored = Snapshot(at, meta, frames)
