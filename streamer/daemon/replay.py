"""Replay of a journal on a ROUTER socket; the clock, the network and the log are passed in.

The sync process runs it on a socket, the simulator on its own network.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import msgpack
import structlog

from streamer.daemon.core import sync
from streamer.daemon.stored_messages import StoredMessages, stored_topics
from streamer.journal.data_files import PIECE_BYTES, SnapshotFile
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalDamage, JournalError, JournalExpired, Record
from streamer.protocol.wire import Buffer, Reason, WireError

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
        self._heads: dict[str, int] = (
            {} if snapshot is None else msgpack.unpackb(snapshot.meta)["heads"]
        )
        self._cache: OrderedDict[int, StoredMessages] = OrderedDict()
        self._cached = 0
        # by the last record read: an iterator over the next ones, which has the file open
        self._places: OrderedDict[int, Iterator[Record]] = OrderedDict()
        self._oldest = 0

    def look(self) -> sync.Stored:
        """The committed extent of the journal, as far as it can be read."""
        reader, unread = self._reader, None
        try:
            if reader.refresh() > self._at:
                for record in reader.outlines(self._at):
                    topics = stored_topics(record.kind, record.meta)
                    self._heads |= dict.fromkeys(topics, record.at)
                self._at = reader.head
            if reader.oldest > self._oldest:
                self._oldest = reader.oldest
                # deleted files of expired records would still use the disk while they are open
                for at in [at for at in self._places if at < self._oldest]:
                    del self._places[at]
            self._problem = ""
        except JournalError as error:
            self._report(error)
            unread = refusal(error)
        heads = dict(self._heads)
        return sync.Stored(reader.stream, reader.epoch, reader.oldest, reader.head, heads, unread)

    def after(self, at: int) -> StoredMessages | None:
        """The next record after ``at`` that was not given up, or None.

        JournalDamage if it cannot be read, JournalExpired if it is no longer kept.
        """
        messages = self._cache.get(at)
        if messages is None:
            messages = self._read(at)
            if messages is None:
                return None
            self._cache[at] = messages
            self._cached += messages.size
            while self._cached > _CACHE_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1].size
        return messages

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
                raise JournalDamage(
                    "the stored state was given up, the next one is still to come: try again",
                    file=str(reader.directory),
                )
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

    def state(self) -> sync.SyncState | None:
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
            return sync.SyncState(snapshot.row.at, fields, 1, [b""])
        parts = -(-size // PIECE_BYTES)
        return sync.SyncState(snapshot.row.at, fields, parts, snapshot.pieces(0))

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


MOST_HELD = 1000
"""How many answers may wait for a connection before it is given up."""


class HandedOver(Enum):
    """The outcome of handing a message to a ROUTER socket."""

    SENT = "sent"
    GONE = "gone"
    FULL = "full"


class SyncReplay:
    """Answers requests from a journal, a burst of one request at a time.

    now: returns the time in seconds. send: hands a message over without waiting. on_damage: is
    called for a damaged record, which is skipped, or with ``ends`` for damage that ends a request.
    """

    def __init__(
        self,
        journal: ReplayedJournal,
        limits: sync.SyncLimits,
        now: Callable[[], float],
        send: Callable[[sync.Route, Sequence[Buffer]], HandedOver],
        on_damage: Callable[[JournalError, bool], None],
    ) -> None:
        self.core = sync.SyncCore(limits)
        self._journal = journal
        self._now = now
        self._hand_over = send
        self._on_damage = on_damage
        # messages for connections without room
        self._held: dict[sync.Route, deque[Sequence[Buffer]]] = {}

    @property
    def waits(self) -> bool:
        """Whether a message waits for room."""
        return bool(self._held)

    def see(self) -> int:
        """Check what has been committed; returns the number of the last record."""
        stored = self._journal.look()
        self.core.see(stored)
        return stored.head

    def turn(self) -> bool:
        """Serve a burst of one request; returns whether there was one."""
        flow = self.core.turn(self._now())
        if flow is None:
            return False
        try:
            self._burst(flow)
        except JournalExpired:
            assert isinstance(flow, sync.Pull)
            self.see()
            self.core.expire(flow)
        except JournalError as error:
            self._on_damage(error, True)
            self.core.abandon(flow, refusal(error))
        return True

    def _burst(self, flow: sync.Flow) -> None:
        if isinstance(flow, sync.Fetch):
            if flow.parts is None and self._journal.checked():
                self.core.give_state(flow, self._journal.state())
            if flow.parts is not None:
                self.core.go_on(flow, self._now())
        elif isinstance(flow, sync.Pull):
            self._pull(flow)

    def _pull(self, pull: sync.Pull) -> None:
        core, sent = self.core, 0
        while sent < sync.BURST_BYTES and core.open(pull):
            now = self._now()
            try:
                record = self._journal.after(pull.at)
            except JournalDamage as damage:
                if damage.record is None:
                    raise
                self._on_damage(damage, False)
                core.lose(pull, damage.record, str(damage), now)
                continue
            if record is None:
                core.give_up(pull, now)
            else:
                # a record without messages must be read, too
                sent += core.give(pull, record, now) + (record.size >> 4)

    def send(self) -> bool:
        """Send what waits and what is new; returns whether any waiting message found room."""
        flushed = [self._flush(route) for route in [*self._held]]
        out, self.core.out = self.core.out, []
        # forget the requests of the connection: nothing may follow a lost message
        given_up: set[sync.Route] = set()
        for route, frames in out:
            if route in given_up:
                continue
            waiting = self._held.get(route)
            if waiting is not None:
                waiting.append(frames)
                if len(waiting) > MOST_HELD:
                    self.give_up(route)
                    given_up.add(route)
            else:
                self._try(route, frames)
        return any(flushed)

    def _try(self, route: sync.Route, frames: Sequence[Buffer]) -> bool:
        """Send a message, or keep it until there is room; returns whether there was."""
        match self._hand_over(route, frames):
            case HandedOver.FULL:
                self._held.setdefault(route, deque()).appendleft(frames)
                self.core.hold(route)
                return False
            case HandedOver.GONE:
                self.give_up(route)
                return False
        return True

    def _flush(self, route: sync.Route) -> bool:
        waiting, some = self._held[route], False
        while waiting:
            if not self._try(route, waiting.popleft()):
                return some
            some = True
        del self._held[route]
        self.core.release(route)
        return True

    def give_up(self, route: sync.Route) -> None:
        """Forget a connection that has ended or reads nothing."""
        self._held.pop(route, None)
        self.core.gone(route)
