"""The index: SQLite through apsw, with a checksum in every row.

Tables of the index. Each row ends in a checksum over its table's name and all other columns.

SQLite itself only notices damage to the structure of its file. Here, a changed value is detected by
the row's checksum, a missing record by its number, a missing producer by the digest of all of them
in ``state``. Texts are stored as blobs, so that damaged ones can still be read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgpack

from streamer.journal.disk import failed, full, has_room
from streamer.journal.record import (
    Frame,
    JournalDamage,
    JournalError,
    JournalFull,
    JournalUnread,
    Record,
)
from streamer.protocol.header import crc32c

FORMAT = 3
"""Format version of the index and the files beside it (``user_version``)."""

APPLICATION = 0x6B6D6A6C
"""Marks SQLite's file as ours (``application_id``)."""

TABLES = (
    """CREATE TABLE state (id INTEGER PRIMARY KEY, stream BLOB, home BLOB, seal BLOB, identity BLOB,
    epoch INTEGER, synced INTEGER, oldest INTEGER, head INTEGER, bytes INTEGER, producers INTEGER,
    digest INTEGER, serial INTEGER, sum INTEGER, file INTEGER, begin INTEGER, end INTEGER,
    checksum INTEGER)""",
    """CREATE TABLE records (at INTEGER PRIMARY KEY, kind BLOB, time INTEGER, file INTEGER,
    offset INTEGER, size INTEGER, lengths BLOB, sum INTEGER, meta BLOB, producer BLOB,
    epoch INTEGER, sequence INTEGER, content INTEGER, mark BLOB, about INTEGER,
    checksum INTEGER)""",
    "CREATE UNIQUE INDEX keys ON records (producer, epoch, sequence) WHERE producer IS NOT NULL",
    "CREATE INDEX subjects ON records (about) WHERE about IS NOT NULL",
    """CREATE TABLE producers (name BLOB PRIMARY KEY, epoch INTEGER, sequence INTEGER, mark BLOB,
    time INTEGER, checksum INTEGER) WITHOUT ROWID""",
    """CREATE TABLE snapshots (id INTEGER PRIMARY KEY, at INTEGER, file INTEGER, lengths BLOB,
    sum INTEGER, meta BLOB, checksum INTEGER)""",
)


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
    producer: bytes | None
    epoch: int | None
    sequence: int | None
    content: int | None
    mark: bytes | None
    about: int | None


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

_KINDS: tuple[type[Any], ...] = (State, RecordRow, ProducerRow, SnapshotRow, ForgottenRow)

_NAMES: dict[type[Any], bytes] = {
    State: b"state",
    RecordRow: b"records",
    ProducerRow: b"producers",
    SnapshotRow: b"snapshots",
    ForgottenRow: b"forgotten",
}

_LOST = b"lost"  # the first word of the kind of a record that was given up

_WIDTH = 2 + max(map(len, (kind._fields for kind in _KINDS)))


def _entries() -> tuple[str, str]:
    """The view of a writer whose inserted rows are stored as the table in their first column.

    Thus one statement, in which SQLite releases the GIL once, stores all rows of a group.
    """
    columns = [f"c{number}" for number in range(_WIDTH)]
    steps = []
    for kind, table, condition in (
        (State, "state", "state"),
        (RecordRow, "records", "records"),
        (RecordRow, "records", "lost"),
        (ProducerRow, "producers", "producers"),
        (SnapshotRow, "snapshots", "snapshots"),
    ):
        # a second row of a record is an error, unless it is being given up
        verb = "INSERT" if condition == "records" else "REPLACE"
        values = ", ".join(f"new.{column}" for column in columns[1 : len(kind._fields) + 2])
        steps.append(
            f"{verb} INTO {table} SELECT {values} WHERE new.c0 = CAST('{condition}' AS BLOB)"
        )
    forgotten, state = (f"new.c0 = CAST('{name}' AS BLOB)" for name in ("forgotten", "state"))
    oldest = columns[1 + State._fields.index("oldest")]
    steps.append(f"DELETE FROM producers WHERE name = new.c1 AND {forgotten}")
    steps.append(f"DELETE FROM records WHERE at < new.{oldest} AND {state}")
    nothing = ", ".join(["NULL"] * _WIDTH)
    return (
        f"CREATE TEMP VIEW entries ({', '.join(columns)}) AS SELECT {nothing}",
        "CREATE TEMP TRIGGER entry INSTEAD OF INSERT ON entries BEGIN "
        f"{' '.join(f'{step};' for step in steps)} END",
    )


def pack_rows(rows: Sequence[Row]) -> bytes:
    """Encode rows for the data files."""
    packed: bytes = msgpack.packb([(_KINDS.index(type(row)), *row) for row in rows])
    return packed


def unpack_rows(packed: bytes) -> list[Row]:
    """The inverse of ``pack_rows``."""
    return [_KINDS[kind](*row) for kind, *row in msgpack.unpackb(packed)]


def is_lost(row: RecordRow) -> bool:
    """Return whether a record was given up."""
    return row.kind.split(b" ")[0] == _LOST


def lost_row(at: int, row: RecordRow | None) -> RecordRow:
    """Return the row of a record that is given up, with what is known from its old row."""
    kind, time, meta = (b" " + row.kind, row.time, row.meta) if row else (b"", 0, b"")
    no_key = None, None, None, None, None
    about = row and row.about
    return RecordRow(at, _LOST + kind, time, 0, 0, 0, pack_lengths([]), 0, meta, *no_key, about)


def row_checksum(row: Row) -> int:
    """Return the CRC-32C of a row with values of any SQLite type."""
    return crc32c([msgpack.packb((_NAMES[type(row)], *row))])


def pack_lengths(frames: Sequence[Frame]) -> bytes:
    """Encode the lengths of frames for the index."""
    packed: bytes = msgpack.packb([len(frame) for frame in frames])
    return packed


def record_row(record: Record, frames: Sequence[Frame], offset: int) -> RecordRow:
    """Return the row of a record in a group; offset: from the first frame of the group."""
    key = record.key
    return RecordRow(
        record.at,
        record.kind.encode(),
        record.time,
        0,
        offset,
        sum(map(len, frames)),
        pack_lengths(frames),
        0,
        record.meta,
        key and key.producer.encode(),
        key and key.epoch,
        key and key.sequence,
        key and key.content,
        key and key.mark,
        record.about,
    )


def flat(frame: Frame) -> Frame:
    """Return a frame as bytes, so that its length is in bytes."""
    if isinstance(frame, memoryview) and (frame.format != "B" or frame.ndim != 1):
        return frame.cast("B") if frame.nbytes else b""
    return frame


def unpack_lengths(packed: bytes) -> list[int]:
    """The inverse of ``pack_lengths``."""
    lengths: list[int] = msgpack.unpackb(packed)
    return lengths


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
        self._directory = directory
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

    def prepare(self) -> None:
        """Set, before the first transaction, that a commit is not synced, but a checkpoint is."""
        with self._writing():
            if self._db.pragma("journal_mode", "wal") != "wal":
                raise JournalError(
                    f"{self.path}: this file system cannot hold a journal (no shared memory)"
                )
            self._db.pragma("synchronous", "NORMAL")
            if self._db.readonly("main"):  # as a flipped bit in its header says
                raise JournalDamage("cannot be written", file=str(self.path))

    def empty(self) -> bool:
        """Whether nothing was ever stored; JournalError for another program's file or format."""
        with self._reading():
            marks = self._db.pragma("application_id"), self._db.pragma("user_version")
            tables = {sql for (sql,) in self._db.execute("SELECT sql FROM sqlite_schema") if sql}
        if not tables and marks == (0, 0):
            return True
        if marks != (APPLICATION, FORMAT) or tables != set(TABLES):
            raise JournalError(
                f"{self.path}: not of this program, or of another version: use another directory"
            )
        return not self._query("SELECT 1 FROM state")

    def create(self) -> None:
        """Store the tables."""
        with self.transaction():
            for sql in TABLES:
                self._db.execute(sql)
            self._db.pragma("application_id", APPLICATION)
            self._db.pragma("user_version", FORMAT)

    def close(self) -> None:
        """Close the connection; nothing is written."""
        with self._lock, suppress(apsw.Error):
            self._db.close()

    # ---- rows in ----------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Store everything within atomically, or raise JournalFull or JournalFailed.

        After JournalFull, nothing is stored.
        """
        with self._lock:
            try:
                with self._writing():
                    self._db.execute("BEGIN IMMEDIATE")
                    yield
                    self._db.execute("COMMIT")
            except BaseException:
                with suppress(apsw.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                raise

    def put(self, rows: Sequence[Row]) -> None:
        """Store rows, delete forgotten producers, and records that a state no longer retains.

        All of that atomically, also outside a transaction.
        """
        with self._lock, self._writing():
            if len(rows) > _FEW and not self._db.in_transaction:
                with self.transaction():
                    self.put(rows)
                return
            for begin in range(0, len(rows), _FEW):
                self._put(rows[begin : begin + _FEW])
            self._rows_since += len(rows)

    def _put(self, rows: Sequence[Row]) -> None:
        values: list[Any] = []
        for row in rows:
            lost = isinstance(row, RecordRow) and is_lost(row)
            entry = (_LOST if lost else _NAMES[type(row)], *row, row_checksum(row))
            values += entry + (None,) * (_WIDTH - len(entry))
        marks = f"({', '.join('?' * _WIDTH)})"
        self._db.execute(f"INSERT INTO entries VALUES {', '.join([marks] * len(rows))}", values)

    def clear(self, table: str) -> None:
        """Delete all rows of a table within a transaction."""
        self._db.execute(f"DELETE FROM {table}")

    def checkpoint(self, rows: int) -> None:
        """Copy committed pages into the main file if ``rows`` or more were stored since."""
        with self._lock:
            if self._rows_since < rows:
                return
            try:
                with self._writing():
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except JournalFull:
                return  # the log keeps growing; an append fails when it cannot
            self._rows_since = 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Convert SQLite's errors to errors of the journal."""
        try:
            yield
        except apsw.FullError as error:
            raise full(self._directory) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.ConstraintError) as error:
            raise JournalDamage(str(error), file=str(self.path)) from error
        except apsw.Error as error:
            unwritten = apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE
            if _code(error) in unwritten and not has_room(self._directory):
                raise full(self._directory) from error
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

    def records(self, after: int, until: int) -> Iterator[RecordRow | JournalDamage]:
        """Yield for each number in (after, until] the row or its damage, ascending."""
        query = "SELECT * FROM records WHERE at > ? AND at <= ?"
        size = 1
        while after < until:
            size = min(2 * size, _AT_ONCE)
            upper = min(after + size, until)
            rows = {row[0]: row for row in self._query(query, (after, upper))}
            for at in range(after + 1, upper + 1):
                try:
                    if at not in rows:
                        raise JournalDamage(
                            "is missing from the index", file=str(self.path), record=at
                        )
                    row: RecordRow | JournalDamage = self._checked(RecordRow, rows[at])
                except JournalDamage as damage:
                    row = damage
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
        """What SQLite finds wrong with its file, and keys that do not lead to their record."""
        rows = self._query("PRAGMA integrity_check(8)")
        return [JournalDamage(text, file=str(self.path)) for (text,) in rows if text != "ok"]

    def file_bytes(self) -> int:
        """Return the size of the main file."""
        return self.path.stat().st_size

    def _checked(self, kind: type[AnyRow], values: tuple[Any, ...]) -> AnyRow:
        """Return a row without its checksum, which is verified."""
        row = kind(*values[:-1])
        if type(values[-1]) is int and values[-1] == row_checksum(row):
            return row
        number = row.at if isinstance(row, RecordRow) else None
        raise JournalDamage(f"{kind.__name__}: wrong checksum", file=str(self.path), record=number)

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._reading():
            return list(self._db.execute(sql, values))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (apsw.Error, UnicodeDecodeError) as error:
                if isinstance(error, _PASSING) or _code(error) in _PASSING_CODES:
                    raise JournalUnread(f"{self.path}: {error}: try again") from error
                raise JournalDamage(f"cannot be read: {error}", file=str(self.path)) from error


def _code(error: Exception) -> int:
    """Return SQLite's extended error code, 0 for other errors."""
    code: int = getattr(error, "extendedresult", 0)
    return code
