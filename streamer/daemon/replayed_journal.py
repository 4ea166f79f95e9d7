"""The journal as sync replays it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgpack
import structlog

from streamer.daemon.core.flows import Stored, SyncState
from streamer.daemon.core.heads import Heads
from streamer.daemon.stored_messages import StoredMessages, stored_topics
from streamer.journal.journal_errors import JournalDamage, JournalError
from streamer.journal.reader import JournalReader
from streamer.journal.record import Record
from streamer.journal.stored_snapshots import PIECE_BYTES, SnapshotFile
from streamer.protocol.header import Reason, WireError

# bytes of cached records, which several pulls may read, and positions where pulls continue
_CACHE_BYTES, _PLACES = 32 << 20, 64
# bytes of a snapshot to check between two bursts of other requests
_CHECK_BYTES = 16 << 20

log = structlog.get_logger("sync")


class ReplayedJournal:
    """The journal as pulls read it: each at its own position, often the same records.

    reader: closed with this.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._problem = ""
        self._snapshot: SnapshotFile | None = None
        try:
            snapshot = self._reader.snapshot()
        except JournalDamage as damage:
            # a client that asks for the lost state is told; the records can still be read
            self._report(damage)
            snapshot = None
        self._at = 0 if snapshot is None else snapshot.at
        self._heads = Heads({} if snapshot is None else msgpack.unpackb(snapshot.meta)["heads"])
        self._cache: OrderedDict[int, StoredMessages] = OrderedDict()
        self._cached = 0
        # by the last record read: an iterator over the next ones, which has the file open
        self._places: OrderedDict[int, Iterator[Record]] = OrderedDict()
        self._oldest = 0

    def look(self) -> Stored:
        """The committed extent of the journal, as far as it can be read."""
        reader, unread = self._reader, None
        try:
            if reader.refresh() > self._at:
                for at, kind, meta in reader.outlines(self._at):
                    self._heads.take(at, stored_topics(kind, meta))
                self._at = reader.head
            if reader.oldest > self._oldest:
                self._oldest = reader.oldest
                self._close_expired()
            self._problem = ""
        except JournalError as error:
            self._report(error)
            unread = refusal(error)
        heads = self._heads.all()
        return Stored(reader.stream, reader.epoch, reader.oldest, reader.head, heads, unread)

    def _close_expired(self) -> None:
        """Close files of expired records; deleted but open, they would still use the disk."""
        for at in [at for at in self._places if at < self._oldest]:
            del self._places[at]

    def after(self, at: int) -> StoredMessages | None:
        """The next record after ``at`` that was not given up, or None.

        JournalDamage if it cannot be read, JournalExpired if it is no longer kept.
        """
        found = self._cache.get(at)
        if found is None:
            found = self._read(at)
            if found is None:
                return None
            self._cache[at] = found
            self._cached += found.size
            while self._cached > _CACHE_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1].size
        return found

    def _read(self, at: int) -> StoredMessages | None:
        place = self._places.pop(at, None)
        record = None if place is None else next(place, None)
        if record is None:
            # also if the iterator has reached what was the head when it was made
            place = self._reader.records(at)
            record = next(place, None)
        if place is None or record is None:
            return None
        self._places[record.at] = place
        if len(self._places) > _PLACES:
            self._places.popitem(last=False)
        return StoredMessages(record, self._reader.stream, self._reader.epoch)

    def checked(self) -> bool:
        """Whether the last stored state has been verified; each call verifies more of it.

        JournalDamage if it is damaged.
        """
        reader = self._reader
        while (row := reader.snapshot()) is not None:
            if not row.file:
                # all records are there and make up for it
                if reader.oldest == 1:
                    break
                message = "the stored state was given up, the next one is still to come: try again"
                raise JournalDamage(message, file=str(reader.directory))
            if self._snapshot is None or self._snapshot.row != row:
                self._snapshot = reader.open_snapshot(row)
            if self._snapshot is not None:
                return self._check(self._snapshot)
        self._snapshot = None
        return True

    def _check(self, snapshot: SnapshotFile) -> bool:
        try:
            return snapshot.check(_CHECK_BYTES)
        except JournalDamage:
            self._snapshot = None
            raise

    def state(self) -> SyncState | None:
        """The verified state, if there is one; only its next part is in memory.

        JournalDamage may still be raised for a part.
        """
        snapshot = self._snapshot
        if snapshot is None:
            return None
        meta = msgpack.unpackb(snapshot.row.meta)
        size = snapshot.size(0)
        fields = {
            "version": meta["version"],
            "batch": meta["number"],
            "base": meta["position"],
            "heads": {f"{topic}.": at for topic, at in meta["heads"].items()},
            "totals": meta["counts"],
            "kmers": size // 8,
        }
        if not size:
            return SyncState(snapshot.row.at, fields, 1, [b""])
        parts = -(-size // PIECE_BYTES)
        return SyncState(snapshot.row.at, fields, parts, snapshot.pieces(0))

    def _report(self, error: JournalError) -> None:
        """Log an error of the journal itself, once."""
        if str(error) != self._problem:
            self._problem = str(error)
            log.error("the journal cannot be read", problem=self._problem)

    def close(self) -> None:
        """Close the journal."""
        self._reader.close()


def refusal(error: JournalError) -> WireError:
    """The error that a client gets; it retries what may be temporary."""
    reason = Reason.DAMAGED if isinstance(error, JournalDamage) else Reason.CREDIT
    return WireError(reason, str(error))
