"""The journal thread: matched batches are committed before anything is said about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import structlog

from streamer.daemon.batch_record import Matched
from streamer.daemon.board import Board
from streamer.daemon.config import Config
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.publish import MatchedGroup
from streamer.daemon.restore import identity, put_snapshot
from streamer.daemon.stored_batch import to_record
from streamer.daemon.worker import POLL_SECONDS, Worker
from streamer.journal.errors import JournalFull
from streamer.journal.record import Record
from streamer.journal.store import Journal
from streamer.protocol.header import size_of

# bytes of a commit: what waits is committed together
_TOGETHER = 32 << 20
# between two tries to write to a full disk, two looks for what may go, and two tries of a snapshot
_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_SNAPSHOT_SECONDS = 10.0
# bytes, new k-mers and records after which a snapshot bounds what a restart has to read
_SNAPSHOT_AFTER = np.array([1 << 30, 1 << 26, 20_000])

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
        forward: Callable[[MatchedGroup], None],
        committed: Callable[[Sequence[Matched]], None],
        full: Callable[[bool], None],
    ) -> None:
        super().__init__("journal", notify)
        self.inbox: Mailbox[MatchedGroup] = Mailbox()
        self._board = board
        self._journal = journal
        self._forward = forward
        self._committed = committed
        self._full = full
        self._waiting: list[MatchedGroup] = []
        self._since_snapshot = np.array(replayed)
        self._looked = self._tried = 0.0

    def work(self) -> None:
        """Commit until asked to stop."""
        self.ready.set()
        while not self.stopping.is_set():
            self.inbox.wait(POLL_SECONDS)
            self._waiting += self.inbox.take()
            while self._waiting and not self.stopping.is_set():
                self._commit()
            self._housekeeping()

    def _commit(self) -> None:
        groups: list[MatchedGroup] = []
        records: list[Record] = []
        size = 0
        for group in self._waiting:
            if groups and size > _TOGETHER:
                break
            groups.append(group)
            made = [to_record(p, time.time_ns()) for p in group.publications(intervals=True)]
            records += made
            size += sum(size_of(record.frames) for record in made)
        self._append(records)
        del self._waiting[: len(groups)]
        kmers = sum(m.result.new_kmers.size for group in groups for m in group.matched)
        self._since_snapshot += (size, kmers, len(records))
        for group in groups:
            self._committed(group.matched)
            self._forward(group)

    def _append(self, records: Sequence[Record]) -> None:
        """Append, once there is room; without a stop this waits as long as the disk is full."""
        told = False
        while True:
            try:
                self._journal.append(records)
                break
            except JournalFull as error:
                if not told:
                    told = True
                    self._full(True)
                    log.error("no batch is accepted until there is room", why=str(error))
                # the oldest records may make room
                with suppress(JournalFull):
                    self._expire()
                if self.stopping.wait(_RETRY_SECONDS):
                    raise
        if told:
            self._full(False)
            log.info("there is room again: batches are accepted")

    def _housekeeping(self) -> None:
        """Bound what a restart reads, and drop what is too old or too much."""
        now = time.monotonic()
        # a full disk is reported by the next batch
        with suppress(JournalFull):
            if now - self._tried > _SNAPSHOT_SECONDS and (
                (self._since_snapshot > _SNAPSHOT_AFTER).any()
            ):
                self._tried = now
                put_snapshot(self._journal)
                self._since_snapshot[:] = 0
            if now - self._looked > _LOOK_SECONDS:
                self._looked = now
                if self._expire():
                    # some at a call: there may be more
                    self._looked = 0.0

    def _expire(self) -> int:
        expired = self._journal.expire(time.time_ns())
        self._board.journal = self._journal.usage()
        return expired
