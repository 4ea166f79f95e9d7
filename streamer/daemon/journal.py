"""The journal thread: commits matched batches before they are published and acknowledged."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from streamer.daemon.config import Config
from streamer.daemon.core.log import LogCore, Replay, Task
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.publish import Group
from streamer.daemon.restore import identity, put_snapshot
from streamer.daemon.worker import POLL_SECONDS, Inbox, Worker
from streamer.journal.record import Begun, JournalDamage, JournalFull, JournalUnread, Record
from streamer.journal.store import Journal
from streamer.protocol.wire import size_of

Epochs = Sequence[tuple[str, int]]
"""Names of producers, each with an epoch that begins once it is stored."""

# after each record that a snapshot reads; reading one takes a little less
_PAUSE_SECONDS = 0.0002

log = structlog.get_logger("journal")


def open_journal(config: Config, *, accept_loss: bool) -> Journal | None:
    """The journal of a configuration, in a new epoch; None with durability ``none``."""
    table = config.journal
    if table.durability == "none":
        return None
    journal = Journal(
        table.directory,
        identity(config.spec),
        table.durability,
        accept_loss=accept_loss,
        keep_bytes=table.keep_bytes,
        keep_hours=table.keep_hours,
    )
    for note in journal.notes:
        log.warning("the journal was not as it was left", what=note)
    for damage in journal.accepted:
        log.warning("damaged, and given up", what=str(damage))
    return journal


class JournalWorker(Worker):
    """Commits the groups in ``inbox``, then passes them to ``forward``.

    replayed: bytes, new k-mers and records after the last snapshot. These are called: committed
    after each commit; begun with producers' epochs that are stored; forgotten with names of which
    nothing is stored any more; full when the disk becomes full and when there is room again.
    """

    def __init__(
        self,
        status: DaemonStatus,
        notify: Callable[[], None],
        journal: Journal,
        *,
        replayed: Sequence[int],
        forward: Callable[[Group], None],
        committed: Callable[[], None],
        begun: Callable[[Epochs], None],
        forgotten: Callable[[Sequence[str]], None],
        full: Callable[[bool], None],
    ) -> None:
        super().__init__("journal", notify)
        self.inbox: Inbox[Group | Epochs] = Inbox()
        self._status = status
        self._journal = journal
        self._forward = forward
        self._committed = committed
        self._begun = begun
        self._forgotten = forgotten
        self._full = full
        self._silent: deque[str] = deque()
        # what was found last while old records were deleted
        self._damage = ""
        self._snapshot_thread: threading.Thread | None = None
        # the outcome of a snapshot: whether it is stored, or an error
        self._snapshot_end: bool | BaseException = False
        self._core: LogCore[Group | Epochs, Record | Begun] = LogCore(
            lambda group: entries_of(group, time.time_ns()), Replay(*replayed)
        )

    def forget(self, names: Sequence[str]) -> None:
        """Queue producers to be forgotten if no record of theirs is kept; from any thread."""
        self._silent += names

    def work(self) -> None:
        """Commit until asked to stop."""
        self.ready.set()
        try:
            while not self.stopping.is_set():
                self._turn()
        finally:
            if self._snapshot_thread is not None:
                self._snapshot_thread.join()

    def _turn(self) -> None:
        core = self._core
        if self._snapshot_thread is not None and not self._snapshot_thread.is_alive():
            self._snapshot_thread = None
            end, now = self._snapshot_end, time.monotonic()
            if isinstance(end, JournalDamage):
                # the next one would read it again
                log.error("damaged: no more snapshots are stored", why=str(end))
                end, now = False, math.inf
            if isinstance(end, BaseException):
                raise end
            core.snapshot_tried(now, stored=end)
        self.inbox.wait(core.wait(time.monotonic(), POLL_SECONDS))
        core.add(self.inbox.take())
        self.stage_work.taken = core.waiting
        match core.task(time.monotonic()):
            case Task.APPEND:
                self._append()
            case Task.SNAPSHOT:
                self._snapshot()
            case Task.EXPIRE:
                self._expire()

    def _append(self) -> None:
        core, work = self._core, self.stage_work
        try:
            with work.step("the disk of the journal"):
                self._journal.append(core.records())
        except JournalFull as error:
            work.trouble = "room for the journal"
            if core.no_room(time.monotonic()):
                self._full(True)
                log.error("no batch is accepted until there is room", why=str(error))
            return
        if core.full:
            self._full(False)
            log.info("there is room again: batches are accepted")
        for group in core.appended():
            if isinstance(group, Group):
                # a producer learns that it is durable once it is published, a moment later
                self._forward(group)
            else:
                self._begun(group)
        self._committed()
        with work.step("the index of the journal"):
            self._journal.checkpoint()
        work.trouble = ""
        work.done += 1
        work.taken = core.waiting

    def _snapshot(self) -> None:
        """Store a snapshot, to bound what a restart reads, while appends continue."""
        self._core.snapshot_begun()
        thread = threading.Thread(target=self._store_snapshot, name="snapshot")
        try:
            thread.start()
        except RuntimeError as error:
            _log_put_off(error)
            self._core.snapshot_tried(time.monotonic(), stored=False)
        else:
            self._snapshot_thread = thread

    def _store_snapshot(self) -> None:
        self._snapshot_end = False
        try:
            # a full disk is reported by the next batch
            with suppress(JournalFull):
                spec = self._status.config.spec
                put_snapshot(self._journal, self._pause, learns=spec.changes or spec.near)
                self._snapshot_end = True
        except (MemoryError, JournalUnread) as error:
            _log_put_off(error)
        except BaseException as error:
            self._snapshot_end = error
        self.inbox.wake()

    def _pause(self) -> None:
        # gives other threads the GIL; when the daemon ends nobody else wants it
        if not self.stopping.is_set():
            time.sleep(_PAUSE_SECONDS)

    def _expire(self) -> None:
        expired = 0
        look_later = suppress(JournalFull, JournalUnread)
        try:
            with look_later, self.stage_work.step("old records to be deleted"):
                self._status.journal = self._journal.usage()
                expired = self._journal.expire(time.time_ns())
                # names that come meanwhile are handled later
                names = [self._silent[at] for at in range(len(self._silent))]
                if names and (gone := self._journal.forget(names)):
                    self._forgotten(gone)
                for _ in names:
                    self._silent.popleft()
        except JournalDamage as damage:
            # names come up again after a while
            self._silent.clear()
            # every look finds it again
            if str(damage) != self._damage:
                self._damage = str(damage)
                log.error("damaged: not all old records can be deleted", why=self._damage)
        self._core.expired(expired, time.monotonic())


def _log_put_off(error: Exception) -> None:
    """Log that a snapshot failed: a restart reads more until it is tried again."""
    log.warning("no snapshot could be stored", why=str(error) or "out of memory")


def entries_of(group: Group | Epochs, now: int) -> tuple[Sequence[Record | Begun], Replay]:
    """The records of a group, and the cost they add to a restart; now: in nanoseconds."""
    if not isinstance(group, Group):
        return [Begun(name, epoch, now) for name, epoch in group], Replay()
    records = [publication.record(now) for publication in group.publications(intervals=True)]
    size = sum(size_of(record.frames) for record in records)
    kmers = sum(matched.result.new_kmers.size for matched in group.matched)
    return records, Replay(size, kmers, len(records))
