"""Batch jobs that outlive their daemon: a row each in a database of their own.

It lies with their results, not in the journal: jobs are kept otherwise than records, and a full
disk of one does not stop the other. A row has a checksum over its id and content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import apsw
import msgpack

from streamer.errors import StreamerError
from streamer.protocol.checksums import crc32c

_APPLICATION = 0x6B6D736A
_TABLE = """
CREATE TABLE jobs (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL, checksum INTEGER NOT NULL
);
"""


class StoredJobs:
    """The database ``path``, which one process has open; StreamerError for what fails.

    durability: as of the journal; ``fsync`` survives a loss of power, ``os`` the end of the
    process. damaged: ids, as far as they can be read, of rows that cannot be.
    """

    def __init__(
        self, path: str | os.PathLike[str], durability: Literal["none", "os", "fsync"]
    ) -> None:
        self._path = os.fspath(path)
        self.damaged: list[str] = []
        with self._errors():
            self._db = apsw.Connection(self._path)
            # no shared memory: it may lie on a network's file system
            self._db.pragma("locking_mode", "exclusive")
            self._db.pragma("journal_mode", "wal")
            self._db.pragma("synchronous", "FULL" if durability == "fsync" else "OFF")
            application = self._db.pragma("application_id")
            if application not in (0, _APPLICATION):
                problem = f"{self._path}: holds no jobs of this program"
                raise StreamerError(problem)
            if application == 0:
                with self._db:
                    self._db.execute(_TABLE)
                    self._db.pragma("application_id", _APPLICATION)

    def rows(self) -> list[dict[str, Any]]:
        """The content of all rows, in the order of their first ``put``."""
        found = []
        with self._errors():
            # as bytes: a flipped bit may have changed the type of a value, or be no UTF-8
            for id_, content, checksum in self._db.execute(
                "SELECT CAST(id AS BLOB), CAST(content AS BLOB), CAST(checksum AS INTEGER)"
                " FROM jobs ORDER BY place"
            ):
                id_, content = id_ or b"", content or b""
                if _checksum(id_, content) == checksum:
                    found.append(msgpack.unpackb(content))
                else:
                    self.damaged.append(id_.decode(errors="replace"))
        return found

    def put(self, id_: str, fields: Mapping[str, Any]) -> None:
        """Store a job as it is now; it is durable once this returns."""
        content = msgpack.packb(dict(fields))
        with self._errors(), self._db:
            self._db.execute(
                "INSERT INTO jobs (id, content, checksum) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (id) DO UPDATE SET content = ?2, checksum = ?3",
                (id_, content, _checksum(id_.encode(), content)),
            )

    def delete(self, id_: str) -> None:
        """Forget a job."""
        with self._errors(), self._db:
            self._db.execute("DELETE FROM jobs WHERE id = ?", (id_,))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            message = f"{self._path}: damaged: {error}; remove it to go on without these jobs"
            raise StreamerError(message) from error
        except apsw.Error as error:
            message = f"{self._path}: {error}"
            raise StreamerError(message) from error


def _checksum(id_: bytes, content: bytes) -> int:
    return crc32c([id_, content])
