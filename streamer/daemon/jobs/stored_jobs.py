"""Batch jobs that outlive their daemon, one row each in a separate database.

It is stored with their results, not in the journal: jobs have a different retention, and a full
disk of one does not stop the other. A row has a checksum over its id and content.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import apsw
import msgpack

from streamer.errors import StreamerError
from streamer.protocol.header import crc32c

_APPLICATION = 0x6B6D736A
_TABLE = """
CREATE TABLE jobs (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL, checksum INTEGER NOT NULL
);
"""


class StoredJobs:
    """The database ``path``, open in one process at a time; raises StreamerError on failure.

    durability: as for the journal; ``fsync`` survives a power loss, ``os`` a kill. damaged: the
    ids, as far as readable, of damaged rows.
    """

    def __init__(
        self, path: str | os.PathLike[str], durability: Literal["none", "os", "fsync"]
    ) -> None:
        self._path = os.fspath(path)
        self.damaged: list[str] = []
        with self._errors():
            self._db = apsw.Connection(self._path)
            # no shared memory: the file may be on a network file system
            self._db.pragma("locking_mode", "exclusive")
            self._db.pragma("journal_mode", "wal")
            self._db.pragma("synchronous", "FULL" if durability == "fsync" else "OFF")
            application = self._db.pragma("application_id")
            if application not in (0, _APPLICATION):
                raise StreamerError(f"{self._path}: holds no jobs of this program")
            if application == 0:
                with self._db:
                    self._db.execute(_TABLE)
                    self._db.pragma("application_id", _APPLICATION)

    def rows(self) -> list[dict[str, Any]]:
        """Return the content of all rows, in the order of their first ``put``."""
        found = []
        with self._errors():
            # read as bytes: a flipped bit may have changed a value's type, or made it invalid UTF-8
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
        """Store the current state of a job; it is durable once this returns."""
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
            raise StreamerError(
                f"{self._path}: damaged: {error}; remove it to go on without these jobs"
            ) from error
        except apsw.Error as error:
            raise StreamerError(f"{self._path}: {error}") from error


def _checksum(id_: bytes, content: bytes) -> int:
    return crc32c([id_, content])
