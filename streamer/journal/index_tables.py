"""Tables of the index. Each row ends in a checksum over its table's name and all other columns.

SQLite itself only notices damage to the structure of its file. Here, a changed value is detected by
the row's checksum, a missing record by its number, a missing producer by the digest of all of them
in ``state``. Texts are stored as blobs, so that damaged ones can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from streamer.journal.record import LOST, Frame, Outline, Record
from streamer.protocol.checksums import crc32c

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
