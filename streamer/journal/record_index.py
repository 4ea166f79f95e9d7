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
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import msgpack

from streamer.journal.disk import failed, full, has_room
from streamer.journal.record import (
    LOST,
    Frame,
    JournalDamage,
    JournalError,
    JournalFull,
    JournalUnread,
    Outline,
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


Row = State | RecordRow | ProducerRow | SnapshotRow

_NAMES: dict[type[Any], bytes] = {
    State: b"state",
    RecordRow: b"records",
    ProducerRow: b"producers",
    SnapshotRow: b"snapshots",
}


_WIDTH = 2 + max(len(kind._fields) for kind in _NAMES)


def _verb(kind: type[Any], *, given_up: bool = False) -> str:
    """A row replaces the one of the same number; a record's only if it is being given up."""
    return "INSERT" if kind is RecordRow and not given_up else "REPLACE"


def _entries() -> tuple[str, str]:
    """The view of a writer whose inserted rows go to the table in their first column."""
    columns = [f"c{number}" for number in range(_WIDTH)]
    steps = []
    for kind, name in _NAMES.items():
        own = ", ".join(f"new.{column}" for column in columns[1 : len(kind._fields) + 2])
        table = name.decode()
        into = f"{_verb(kind)} INTO {table}"
        steps.append(f"{into} SELECT {own} WHERE new.c0 = CAST('{table}' AS BLOB);")
    nothing = ", ".join(["NULL"] * _WIDTH)
    return (
        f"CREATE TEMP VIEW entries ({', '.join(columns)}) AS SELECT {nothing}",
        f"CREATE TEMP TRIGGER entry INSTEAD OF INSERT ON entries BEGIN {' '.join(steps)} END",
    )


ENTRIES = _entries()


_PACKED: tuple[type[Any], ...] = (State, RecordRow, ProducerRow, SnapshotRow, ForgottenRow)


def pack_rows(rows: Sequence[Row | ForgottenRow]) -> bytes:
    """Encode rows for the data files."""
    packed: bytes = msgpack.packb([(_PACKED.index(type(row)), *row) for row in rows])
    return packed


def unpack_rows(packed: bytes) -> list[Row | ForgottenRow]:
    """The inverse of ``pack_rows``."""
    return [_PACKED[kind](*row) for kind, *row in msgpack.unpackb(packed)]


def lost(row: RecordRow) -> Outline | None:
    """Return what is still known of a record if it was given up, else None."""
    word, _, kind = row.kind.decode().partition(" ")
    return Outline(row.at, kind, row.meta) if word == LOST else None


def row_checksum(kind: type[Row], values: Sequence[Any]) -> int:
    """Return the CRC-32C of a row with values of any SQLite type."""
    return crc32c([msgpack.packb((_NAMES[kind], *values))])


def is_plain(row: Row | ForgottenRow) -> bool:
    """Return whether ``put_together`` takes a row."""
    return not isinstance(row, ForgottenRow) and not _is_given_up(row)


def _is_given_up(row: Row) -> bool:
    return isinstance(row, RecordRow) and lost(row) is not None


def put(row: Row | ForgottenRow) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that stores a row, or deletes a producer, and its values."""
    if isinstance(row, ForgottenRow):
        return "DELETE FROM producers WHERE name = ?", (row.name,)
    verb = _verb(type(row), given_up=_is_given_up(row))
    table = _NAMES[type(row)].decode()
    marks = ", ".join("?" * (len(row) + 1))
    return f"{verb} INTO {table} VALUES ({marks})", (*row, row_checksum(type(row), row))


def put_together(rows: Sequence[Row]) -> tuple[str, tuple[Any, ...]]:
    """Return one statement that stores all rows through the view ``entries``, and its values."""
    values: list[Any] = []
    for row in rows:
        filled = (_NAMES[type(row)], *row, row_checksum(type(row), row))
        values += filled + (None,) * (_WIDTH - len(filled))
    marks = f"({', '.join('?' * _WIDTH)})"
    return f"INSERT INTO entries VALUES {', '.join([marks] * len(rows))}", tuple(values)


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
_FEW = 64  # SQLite limits the values of a statement
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
        self._pages = self._checkpointed = 0
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
                self._db.set_wal_hook(self._committed)
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                for sql in ENTRIES:
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

    def empty(self) -> bool:
        """Whether nothing was ever stored; JournalError for another program's file or format."""
        with self._reading():
            application = self._db.pragma("application_id")
            version = self._db.pragma("user_version")
            found = list(self._db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        if not found and not application:
            return True
        if application != APPLICATION:
            raise JournalError(f"{self.path}: not a journal of this program: use another directory")
        if version != FORMAT:
            raise JournalError(
                f"{self.path}: format {version}, this version of the program reads {FORMAT}: "
                "use another directory or another version"
            )
        if sorted(sql for (sql,) in found) != sorted(TABLES):
            raise JournalDamage("tables are not those of a journal", file=str(self.path))
        return False

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

    def commit(self, rows: Sequence[Row | ForgottenRow], *, until: int = 0) -> None:
        """Store rows, and delete records up to ``until``, in a transaction of their own.

        Few rows take one statement, in which SQLite gives the GIL up once.
        """
        if len(rows) <= _FEW and not until and all(map(is_plain, rows)):
            sql, values = put_together(cast(Sequence[Row], rows))
            with self._lock, self._writing():
                self._db.execute(sql, values)
            return
        with self.transaction():
            self.put(*rows)
            if until:
                self.delete_records(until)

    def put(self, *rows: Row | ForgottenRow) -> None:
        """Store rows, or delete a producer, within a transaction."""
        for row in rows:
            self._db.execute(*put(row))

    def delete_records(self, until: int) -> None:
        """Delete records with a number up to ``until`` within a transaction."""
        self._db.execute("DELETE FROM records WHERE at <= ?", (until,))

    def clear(self, table: str) -> None:
        """Delete all rows of a table within a transaction."""
        self._db.execute(f"DELETE FROM {table}")

    def checkpoint(self, pages: int) -> None:
        """Copy committed pages into the main file if there are ``pages`` or more."""
        with self._lock:
            if self._pages < self._checkpointed:  # the log has restarted at its beginning
                self._checkpointed = 0
            if self._pages - self._checkpointed < pages:
                return
            try:
                with self._writing():
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except JournalFull:
                return  # the log keeps growing; an append fails when it cannot
            self._checkpointed = self._pages

    def _committed(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

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

    def has_state(self) -> bool:
        """Return whether there is a state."""
        return bool(self._query("SELECT 1 FROM state"))

    def producers(self) -> list[ProducerRow | JournalDamage]:
        """Return all rows; the caller checks their number and digest."""
        return [self._or_damage(ProducerRow, row) for row in self._query("SELECT * FROM producers")]

    def snapshot(self) -> SnapshotRow | None:
        """Return the row of the last snapshot."""
        rows = self._query("SELECT * FROM snapshots")
        if len(rows) > 1:
            raise JournalDamage("more than one snapshot", file=str(self.path))
        return self._checked(SnapshotRow, rows[0]) if rows else None

    def records(self, after: int, until: int) -> Iterator[RecordRow | JournalDamage]:
        """Yield for each number in (after, until] the row or its damage, ascending."""
        size = 1
        while after < until:
            size = min(2 * size, _AT_ONCE)
            upper = min(after + size, until)
            for row in self._rows(after, upper):
                at = row.at if isinstance(row, RecordRow) else row.record
                if at is None or not after < at <= upper:
                    yield JournalDamage(f"row {at} is out of order", file=str(self.path))
                    continue
                for missing in range(after + 1, at):
                    yield self._missing(missing)
                yield row
                after = at
            for missing in range(after + 1, upper + 1):
                yield self._missing(missing)
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
        try:
            rows = self._query("PRAGMA integrity_check(8)")
        except JournalDamage as damage:
            return [damage]
        found = [str(text) for (text,) in rows if text != "ok"]
        return [JournalDamage(text, file=str(self.path)) for text in found]

    def file_bytes(self) -> int:
        """Return the size of the main file."""
        return self.path.stat().st_size

    def _missing(self, at: int) -> JournalDamage:
        return JournalDamage("is missing from the index", file=str(self.path), record=at)

    def _rows(self, after: int, until: int) -> list[RecordRow | JournalDamage]:
        query = "SELECT * FROM records WHERE at > ? AND at <= ? ORDER BY at"
        try:
            return [self._or_damage(RecordRow, row) for row in self._query(query, (after, until))]
        except JournalDamage:
            found: list[RecordRow | JournalDamage] = []
            for at in range(after + 1, until + 1):
                try:
                    found += [
                        self._or_damage(RecordRow, row)
                        for row in self._query("SELECT * FROM records WHERE at = ?", (at,))
                    ]
                except JournalDamage as damage:
                    damage = JournalDamage(damage.problem, file=str(self.path), record=at)
                    found.append(damage)
            return found

    def _or_damage(self, kind: type[AnyRow], values: tuple[Any, ...]) -> AnyRow | JournalDamage:
        try:
            return self._checked(kind, values)
        except JournalDamage as damage:
            return damage

    def _checked(self, kind: type[AnyRow], values: tuple[Any, ...]) -> AnyRow:
        """Return a row without its checksum, which is verified."""
        if values[-1] == row_checksum(kind, values[:-1]) and type(values[-1]) is int:
            return kind(*values[:-1])
        number = values[0] if kind is RecordRow and isinstance(values[0], int) else None
        table = kind.__name__
        raise JournalDamage(f"{table}: wrong checksum", file=str(self.path), record=number)

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
