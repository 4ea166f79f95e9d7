"""The journal thread: matched batches are committed before anything is said about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from streamer.daemon.batch_record import Matched
from streamer.daemon.board import Board
from streamer.daemon.config import Config
from streamer.daemon.core.log import LogCore, Replay, Task
from streamer.daemon.drafts import AnyGroup
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.publish import Publication
from streamer.daemon.restore import identity, put_snapshot
from streamer.daemon.stored_batch import to_record
from streamer.daemon.worker import POLL_SECONDS, Worker
from streamer.journal.errors import JournalFull
from streamer.journal.record import Record
from streamer.journal.store import Journal
from streamer.protocol.header import size_of

log = structlog.get_logger("journal")


def open_journal(config: Config, *, accept_loss: bool) -> Journal | None:
    """The journal of a configuration, in a new epoch; None with durability ``none``."""
    table = config.journal
    if table.durability == "none":
        return None
    journal = Journal.open(
        table.directory,
        identity(config.spec),
        table.durability,
        accept_loss=accept_loss,
        keep_bytes=table.keep_bytes,
        keep_hours=table.keep_hours,
    )
    for damage in journal.accepted:
        log.warning("damaged, and given up", what=str(damage))
    return journal


class JournalWorker(Worker):
    """Commits the groups in ``inbox``, then passes them to ``forward``.

    replayed: bytes, new k-mers and records after the last snapshot. committed: called with batches
    that are durable. full: called when the disk has become full, and when there is room again.
    """

    def __init__(
        self,
        board: Board,
        notify: Callable[[], None],
        journal: Journal,
        *,
        replayed: Sequence[int],
        forward: Callable[[AnyGroup], None],
        committed: Callable[[Sequence[Matched]], None],
        full: Callable[[bool], None],
    ) -> None:
        super().__init__("journal", notify)
        self.inbox: Mailbox[AnyGroup] = Mailbox()
        self._board = board
        self._journal = journal
        self._forward = forward
        self._committed = committed
        self._full = full
        self._core: LogCore[AnyGroup, Record] = LogCore(_records, Replay(*replayed))

    def work(self) -> None:
        """Commit until asked to stop."""
        self.ready.set()
        core = self._core
        while not self.stopping.is_set():
            self.inbox.wait(core.wait(time.monotonic(), POLL_SECONDS))
            core.add(self.inbox.take())
            match core.task(time.monotonic()):
                case Task.APPEND:
                    self._append()
                case Task.SNAPSHOT:
                    self._snapshot()
                case Task.EXPIRE:
                    self._expire()

    def _append(self) -> None:
        core = self._core
        try:
            self._journal.append(core.records())
        except JournalFull as error:
            if core.no_room(time.monotonic()):
                self._full(True)
                log.error("no batch is accepted until there is room", why=str(error))
            return
        if core.full:
            self._full(False)
            log.info("there is room again: batches are accepted")
        for group in core.appended():
            self._committed(group.matched)
            self._forward(group)

    def _snapshot(self) -> None:
        """Bound what a restart reads."""
        stored = False
        # a full disk is reported by the next batch
        with suppress(JournalFull):
            put_snapshot(self._journal)
            stored = True
        self._core.snapshot_tried(time.monotonic(), stored=stored)

    def _expire(self) -> None:
        """Drop what is too old or too much."""
        expired = 0
        with suppress(JournalFull):
            expired = self._journal.expire(time.time_ns())
            self._board.journal = self._journal.usage()
        self._core.expired(expired, time.monotonic())


def _records(group: AnyGroup) -> tuple[list[Record], Replay]:
    """The records of a group, and what they add to a restart."""
    now = time.time_ns()
    records = [
        to_record(one, now) if isinstance(one, Publication) else one.record(now)
        for one in group.publications(intervals=True)
    ]
    size = sum(size_of(record.frames) for record in records)
    kmers = sum(matched.result.new_kmers.size for matched in group.matched)
    return records, Replay(size, kmers, len(records))
