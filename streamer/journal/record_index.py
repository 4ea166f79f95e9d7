"""The index: SQLite through apsw.

Each row ends in a checksum over its table's name and all other columns, because SQLite itself only
notices damage to the structure of its file. A missing record is noticed by its number, a missing
producer by the digest of all of them in ``state``. Texts are blobs: damaged ones can be read, too.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgpack

from streamer.journal.disk import NO_ROOM, failed, full
from streamer.journal.record import (
    Frame,
    Frames,
    JournalDamage,
    JournalError,
    JournalFull,
    JournalUnread,
    Record,
)
from streamer.protocol.wire import crc32c

# SQLite's ``application_id`` and ``user_version``: the file is ours, the format of the journal
_OURS = 0x6B6D6A6C, 3


class State(NamedTuple):
    """The single row about the journal as a whole.

    stream: 8 bytes. home: the folder and the machine of this stream. seal: 16 secret bytes at the
    start of each group in the data files. synced: 1 if the last owner synced what it wrote. oldest:
    the first retained record, head + 1 if none. bytes: of the retained records. producers, digest:
    their number, and the sum of their rows' checksums. serial, sum, file, begin, end: of the last
    group, whose header has the first two; 0 within the group itself.
    """

    id: int
    stream: bytes
    home: bytes
    seal: bytes
    identity: bytes
    epoch: int
    synced: int
    oldest: int
    head: int
    bytes: int
    producers: int
    digest: int
    serial: int
    sum: int
    file: int
    begin: int
    end: int


class RecordRow(NamedTuple):
    """Where a record is stored. size: of all its frames; lengths: of each; sum: CRC-32C of all.

    A record that was given up has no frames and no key; its kind is ``lost``, then what it was.
    file: -1 for a row that is missing or damaged. producer to mark: the key, None if it has none.
    """

    at: int
    kind: bytes
    time: int
    file: int
    offset: int
    size: int
    lengths: bytes
    sum: int
    meta: bytes
    producer: bytes | None = None
    epoch: Any = None
    sequence: Any = None
    content: Any = None
    mark: Any = None
    about: int | None = None


class ProducerRow(NamedTuple):
    """A producer's name, its last epoch, what was last received from it, and when."""

    name: bytes
    epoch: int
    sequence: int
    mark: bytes
    time: int


class SnapshotRow(NamedTuple):
    """A snapshot: its file's number, the lengths of its frames and the CRC-32C of all.

    A snapshot that was given up has no file: its number is 0.
    """

    id: int
    at: int
    file: int
    lengths: bytes
    sum: int
    meta: bytes


class ForgottenRow(NamedTuple):
    """In a group only: nothing more is known of this producer."""

    name: bytes


Row = State | RecordRow | ProducerRow | SnapshotRow | ForgottenRow

_NAMES: dict[type[Any], str] = {
    State: "state",
    RecordRow: "records",
    ProducerRow: "producers",
    SnapshotRow: "snapshots",
    ForgottenRow: "forgotten",
}

_KINDS = tuple(_NAMES)

_LOST = b"lost"  # the first word of the kind of a record that was given up

_WIDTH = 2 + max(len(kind._fields) for kind in _KINDS)
_MARKS = f"({', '.join('?' * _WIDTH)})"


def _table(kind: type[Any], key: str, ending: str = "") -> str:
    columns = ", ".join(kind._fields[1:])
    return f"CREATE TABLE {_NAMES[kind]} ({key} PRIMARY KEY, {columns}, checksum){ending}"


TABLES = (
    _table(State, "id INTEGER"),
    _table(RecordRow, "at INTEGER"),
    "CREATE UNIQUE INDEX keys ON records (producer, epoch, sequence) WHERE producer IS NOT NULL",
    "CREATE INDEX subjects ON records (about) WHERE about IS NOT NULL",
    _table(ProducerRow, "name BLOB", " WITHOUT ROWID"),
    _table(SnapshotRow, "id INTEGER"),
)


def _entries() -> tuple[str, str]:
    """The view of a writer whose inserted rows are stored as the table in their first column.

    Thus one statement, in which SQLite releases the GIL once, stores all rows of a group.
    """
    columns = [f"c{number}" for number in range(_WIDTH)]
    # of a record that is given up
    steps = ["DELETE FROM records WHERE at = new.c1 AND new.c0 = 'records';"]
    for kind, name in list(_NAMES.items())[:-1]:
        values = ", ".join(f"new.{column}" for column in columns[1 : len(kind._fields) + 2])
        verb = "INSERT" if kind is RecordRow else "REPLACE"  # a batch has one record
        steps.append(f"{verb} INTO {name} SELECT {values} WHERE new.c0 = '{name}';")
    oldest = columns[1 + State._fields.index("oldest")]
    steps.append("DELETE FROM producers WHERE name = new.c1 AND new.c0 = 'forgotten';")
    steps.append(f"DELETE FROM records WHERE at < new.{oldest} AND new.c0 = 'state';")
    nothing = ", ".join(["NULL"] * _WIDTH)
    return (
        f"CREATE TEMP VIEW entries ({', '.join(columns)}) AS SELECT {nothing}",
        f"CREATE TEMP TRIGGER entry INSTEAD OF INSERT ON entries BEGIN {' '.join(steps)} END",
    )


def pack_rows(rows: Sequence[Row]) -> bytes:
    """Encode rows for the data files."""
    return bytes(msgpack.packb([(_KINDS.index(type(row)), *row) for row in rows]))


def unpack_rows(packed: bytes) -> list[Row]:
    """The inverse of ``pack_rows``."""
    return [_KINDS[kind](*row) for kind, *row in msgpack.unpackb(packed)]


def is_lost(row: RecordRow) -> bool:
    """Return whether a record was given up."""
    return row.kind.split(b" ")[0] == _LOST


def lost_row(row: RecordRow) -> RecordRow:
    """Return the row of a record that is given up, with what is known from its old row."""
    kind, nothing = _LOST + b" " + row.kind if row.kind else _LOST, pack_lengths([])
    return RecordRow(row.at, kind, row.time, 0, 0, 0, nothing, 0, row.meta, about=row.about)


def row_checksum(row: Row) -> int:
    """Return the CRC-32C of a row with values of any SQLite type."""
    return crc32c([msgpack.packb((_NAMES[type(row)].encode(), *row))])


def pack_lengths(frames: Frames) -> bytes:
    """Encode the lengths of frames for the index."""
    return bytes(msgpack.packb([len(frame) for frame in frames]))


def record_row(record: Record, frames: Frames, offset: int) -> RecordRow:
    """Return the row of a record in a group; offset: from the first frame of the group."""
    key: tuple[Any, ...] = (None,) * 5
    if record.key is not None:
        key = record.key.producer.encode(), *record.key[1:]
    rest = offset, sum(map(len, frames)), pack_lengths(frames), 0, record.meta, *key, record.about
    return RecordRow(record.at, record.kind.encode(), record.time, 0, *rest)


def flat(frame: Frame) -> Frame:
    """Return a frame as bytes, so that its length is in bytes."""
    if isinstance(frame, memoryview) and (frame.format != "B" or frame.ndim != 1):
        return frame.cast("B") if frame.nbytes else b""
    return frame


def unpack_lengths(packed: bytes) -> list[int]:
    """The inverse of ``pack_lengths``."""
    return list(msgpack.unpackb(packed))


NAME = "index.sqlite"

_AT_ONCE = 256  # rows per query: a reader must not keep old pages alive for long
_BUSY_MS = 60_000
_FEW = 64  # rows per statement: SQLite limits its values
# not about stored data: the file is in use, or descriptors or memory have run out
_PASSING = apsw.BusyError, apsw.CantOpenError, apsw.NoMemError, apsw.ProtocolError
_PASSING_CODES = apsw.SQLITE_IOERR_NOMEM, apsw.SQLITE_IOERR_SHMMAP

AnyRow = TypeVar("AnyRow", State, RecordRow, ProducerRow, SnapshotRow)


class Index:
    """A connection that threads may share. Damage is raised or returned as JournalDamage."""

    def __init__(
        self, directory: Path, *, vfs: str = "", write: bool = False, page_bytes: int = 4096
    ) -> None:
        self.path = directory / NAME
        self._lock = threading.RLock()
        self._rows_since = 0  # the last checkpoint
        flags = apsw.SQLITE_OPEN_READONLY
        if write:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        with self._reading():
            self._db = apsw.Connection(str(self.path), flags=flags, vfs=vfs or None)
            self._db.set_busy_timeout(_BUSY_MS)
            self._db.pragma("cell_size_check", True)
            self._db.pragma("trusted_schema", False)
            if write:
                self._db.pragma("page_size", page_bytes)
                # errors in SQLite's automatic checkpoints, such as failed syncs, would go unnoticed
                self._db.wal_autocheckpoint(0)
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                for sql in _entries():
                    self._db.execute(sql)

    # ---- the file ---------------------------------------------------------------------------

    def prepare(self, *, create: bool) -> None:
        """Set, before the first transaction, that a commit is not synced, but a checkpoint is."""
        with self._writing():
            if self._db.pragma("journal_mode", "wal") != "wal":
                raise JournalError(
                    f"{self.path}: this file system cannot hold a journal (no shared memory)"
                )
            self._db.pragma("synchronous", "NORMAL")
            if self._db.readonly("main"):  # as a flipped bit in its header says
                raise JournalDamage("cannot be written", file=str(self.path))
        if create:
            with self.transaction():
                for sql in TABLES:
                    self._db.execute(sql)
                self._db.pragma("application_id", _OURS[0])
                self._db.pragma("user_version", _OURS[1])

    def empty(self) -> bool:
        """Whether nothing was ever stored; JournalError for another program's file or format."""
        with self._reading():
            marks = self._db.pragma("application_id"), self._db.pragma("user_version")
            tables = {sql for (sql,) in self._db.execute("SELECT sql FROM sqlite_schema") if sql}
        if not tables and marks == (0, 0):
            return True
        if marks != _OURS or tables != set(TABLES):
            raise JournalError(
                f"{self.path}: not of this program, or of another version: use another directory"
            )
        return not self._query("SELECT 1 FROM state")

    def close(self) -> None:
        """Close the connection; nothing is written."""
        with self._lock, suppress(apsw.Error):
            self._db.close()

    # ---- rows in ----------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Store everything within, or nothing: JournalFull or JournalFailed."""
        with self._lock, self._writing(), self._db:
            yield

    def put(self, rows: Sequence[Row]) -> None:
        """Store rows, delete forgotten producers and what a state no longer retains; atomically."""
        with self._lock:  # in_transaction, too, raises while another thread reads
            alone = len(rows) <= _FEW or self._db.in_transaction
            with self._writing() if alone else self.transaction():
                for begin in range(0, len(rows), _FEW):
                    values: list[Any] = []
                    for row in rows[begin : begin + _FEW]:
                        entry = (_NAMES[type(row)], *row, row_checksum(row))
                        values += entry + (None,) * (_WIDTH - len(entry))
                    marks = ", ".join([_MARKS] * (len(values) // _WIDTH))
                    self._db.execute(f"INSERT INTO entries VALUES {marks}", values)
                self._rows_since += len(rows)

    def clear(self, table: str) -> None:
        """Delete all rows of a table within a transaction."""
        self._db.execute(f"DELETE FROM {table}")

    def checkpoint(self, rows: int) -> None:
        """Copy committed pages into the main file if ``rows`` or more were stored since."""
        with self._lock:
            if self._rows_since < rows:
                return
            with suppress(JournalFull), self._writing():  # the log grows until an append fails
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._rows_since = 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Convert SQLite's errors to errors of the journal."""
        try:
            yield
        except apsw.FullError as error:
            raise full(self.path.parent) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.ConstraintError) as error:
            raise JournalDamage(str(error), file=str(self.path)) from error
        except apsw.Error as error:
            if isinstance(error, apsw.IOError) and self._db.system_errno in NO_ROOM:
                raise full(self.path.parent) from error
            raise failed(self.path, error) from error

    # ---- rows out ---------------------------------------------------------------------------

    def state(self) -> State:
        """Return the row about the journal as a whole."""
        rows = self._query("SELECT * FROM state")
        if len(rows) != 1:
            raise JournalDamage("no row of state", file=str(self.path))
        return self._checked(State, rows[0])

    def producers(self) -> list[ProducerRow]:
        """Return all rows; the caller checks their number and digest."""
        return [self._checked(ProducerRow, row) for row in self._query("SELECT * FROM producers")]

    def snapshot(self) -> SnapshotRow | None:
        """Return the row of the last snapshot."""
        rows = self._query("SELECT * FROM snapshots")
        return self._checked(SnapshotRow, rows[0]) if rows else None

    def records(self, after: int, until: int) -> Iterator[RecordRow]:
        """Yield the row of each number in (after, until], ascending."""
        query = "SELECT * FROM records WHERE at > ? AND at <= ?"
        size = 1
        while after < until:
            size = min(2 * size, _AT_ONCE)
            upper = min(after + size, until)
            rows = {row[0]: row for row in self._query(query, (after, upper))}
            for at in range(after + 1, upper + 1):
                try:
                    row = self._checked(RecordRow, rows[at])
                except (KeyError, JournalDamage):
                    row = RecordRow(at, b"", 0, -1, 0, 0, pack_lengths([]), 0, b"")
                yield row
            after = upper

    def key(self, producer: bytes, epoch: int, sequence: int) -> RecordRow | None:
        """Return the row of a batch."""
        rows = self._query(
            "SELECT * FROM records WHERE producer = ? AND epoch = ? AND sequence = ?",
            (producer, epoch, sequence),
        )
        return self._checked(RecordRow, rows[0]) if rows else None

    def has_records_of(self, producer: bytes) -> bool:
        """Return whether a record of this producer is retained."""
        return bool(self._query("SELECT 1 FROM records WHERE producer = ? LIMIT 1", (producer,)))

    def about(self, at: int) -> list[RecordRow]:
        """Return the rows of the records about record ``at``, ascending."""
        rows = self._query("SELECT * FROM records WHERE about = ? ORDER BY at", (at,))
        return [self._checked(RecordRow, row) for row in rows]

    def integrity(self) -> list[JournalDamage]:
        """The damage that SQLite finds in its file, and keys that do not lead to their record."""
        rows = self._query("PRAGMA integrity_check(8)")
        return [JournalDamage(text, file=str(self.path)) for (text,) in rows if text != "ok"]

    def _checked(self, kind: type[AnyRow], values: tuple[Any, ...]) -> AnyRow:
        """Return a row without its checksum, which is verified."""
        row = kind(*values[:-1])
        if type(values[-1]) is int and values[-1] == row_checksum(row):
            return row
        raise JournalDamage(f"{kind.__name__}: wrong checksum", file=str(self.path))

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._reading():
            return list(self._db.execute(sql, values))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (apsw.Error, UnicodeDecodeError) as error:
                code = getattr(error, "extendedresult", 0)
                if isinstance(error, _PASSING) or code in _PASSING_CODES:
                    raise JournalUnread(f"{self.path}: {error}: try again") from error
                raise JournalDamage(f"cannot be read: {error}", file=str(self.path)) from error
