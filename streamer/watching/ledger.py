"""The ledger of a watched folder: what has been sent of which file, in order of sending.

A row is a visit to a file. It is stored and synced before the first read of that visit is sent,
together with the outcome of all visits before it. Each batch carries a mark that names its visit
and what has been sent up to the batch's end; the daemon keeps the mark of the last durable batch.
So the two agree after any interruption: visits before the marked one are entirely durable, later
ones never happened, and for the marked one the mark says how far it got.

    rows        1  a.fastq   2  b.fastq.gz   3  a.fastq   4  c.fastq.gz
                                                            ^ mark: visit 4, 1,200 records

Digests that identify the records of a file, however files are cut and compressed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgpack

from streamer.errors import StreamerError
from streamer.protocol.wire import crc32c
from streamer.sequences.read_batch import PackedNames, ReadBatch


class Digest(NamedTuple):
    """CRC-32C of the names and of the bases of a file's first ``records`` records."""

    records: int = 0
    names: int = 0
    bases: int = 0

    def after(self, reads: ReadBatch, stop: int | None = None) -> Digest:
        """Return the digest with the first ``stop`` reads of a batch added, by default all."""
        stop = len(reads) if stop is None else stop
        if not stop:
            return self
        assert isinstance(reads.names, PackedNames)
        names = reads.names.text(stop)
        bases = reads.bases[: int(reads.offsets[stop])].data
        return Digest(self.records + stop, crc32c([names], self.names), crc32c([bases], self.bases))


def digest_of_first(reads: ReadBatch) -> int:
    """Return a digest of the first record, in 63 bits."""
    first = Digest().after(reads, 1)
    return (first.names << 32 | first.bases) >> 1


_FORM = "streamer watch 1"
_APPLICATION = 0x6B6D7377
_TABLES = """
CREATE TABLE ledger (id BLOB NOT NULL);
CREATE TABLE visits (
    number INTEGER PRIMARY KEY, path BLOB NOT NULL,
    content INTEGER NOT NULL, first INTEGER NOT NULL,
    size INTEGER NOT NULL, offset INTEGER NOT NULL, tail INTEGER NOT NULL,
    records INTEGER NOT NULL, names INTEGER NOT NULL, bases INTEGER NOT NULL,
    changed INTEGER NOT NULL, touched INTEGER NOT NULL
);
"""
_VERSION = 2
_LAST = "number IN (SELECT max(number) FROM visits WHERE number <= ?1 GROUP BY path)"
_MOST = """number IN (SELECT number FROM (
    SELECT number, max(records) FROM visits WHERE number <= ?1 GROUP BY content
))"""
_FORGET = f"""
DELETE FROM visits WHERE number <= ?1
AND NOT {_LAST} AND NOT {_MOST}
"""
NOT_DONE = -1


def ledger_of(folder: str, name: str, endpoint: str) -> str:
    """Return the default path of a folder's ledger, in the user's state directory.

    name, endpoint: of the producer and its destination; the same in all runs.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    which = digest_of_text("\0".join((os.path.realpath(folder), name, endpoint)))
    return os.path.join(state, "streamer", f"watch-{which}.ledger")


def digest_of_text(text: str) -> str:
    """Return a short name for a long one."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Visit(NamedTuple):
    """A visit to a file, or its current state.

    content: the number of the visit that first sent the records that the file begins with. first: a
    digest of the first of them, 0 for none. size: the file's size if it is done at that size, else
    NOT_DONE. offset: where to resume in a growing file, 0 for its beginning. tail: a checksum of
    the beginning and the end of what precedes that, or of the whole file that is done. sent: the
    records of the content that have been sent. changed, touched: as in ``Sighting``, before the
    visit.
    """

    number: int
    path: str
    content: int
    first: int
    size: int
    offset: int
    tail: int
    sent: Digest
    changed: int = 0
    touched: int = 0

    @classmethod
    def of_row(cls, row: Any) -> Visit:
        number, path, *numbers = row
        fields = (*numbers[:5], Digest(*numbers[5:8]), *numbers[8:])
        return cls._make((number, os.fsdecode(path), *fields))

    def row(self) -> tuple[Any, ...]:
        return self.number, os.fsencode(self.path), *self[2:7], *self.sent, *self[8:]


class Ledger:
    """The ledger in a file, open in one process at a time; raises StreamerError if it fails.

    mark: the producer's mark in the daemon; empty if it has none. name: of the producer. ``files``
    has the last visit to each path, ``contents`` the visit with the most records of each content.
    """

    def __init__(self, path: str, mark: bytes, name: str) -> None:
        self.path = path
        self._name = name
        self._waiting: list[Visit] = []
        with self._errors():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._db = apsw.Connection(path)
            # no shared memory: the file may be on a network file system
            self._db.pragma("locking_mode", "exclusive")
            self._db.pragma("journal_mode", "wal")
            self._db.pragma("synchronous", "FULL")
            with self._db:
                self._id = self._opened()
                self.begins_anew = not mark and bool(self._rows())
                if self.begins_anew:
                    self._id = self._emptied()
                elif mark:
                    self._recover(mark)
            visits = [Visit.of_row(row) for row in self._rows()]
        self.files = {visit.path: visit for visit in visits}
        self.contents: dict[int, Visit] = {}
        self._beginning: dict[int, list[int]] = {}
        self._files_of: defaultdict[int, dict[str, Visit]] = defaultdict(dict)
        for visit in visits:
            self._note_content(visit)
        for visit in self.files.values():
            self._files_of[visit.content][visit.path] = visit
        self._next = visits[-1].number + 1 if visits else 1

    # ---- opening -----------------------------------------------------------------------------

    def _opened(self) -> bytes:
        application = self._db.pragma("application_id")
        if application not in (0, _APPLICATION):
            raise StreamerError(f"{self.path}: is not a ledger of this program")
        if application == 0:
            self._db.execute(_TABLES)
            self._db.pragma("application_id", _APPLICATION)
            self._db.pragma("user_version", _VERSION)
            return self._emptied()
        if self._db.pragma("user_version") != _VERSION:
            raise StreamerError(f"{self.path}: was written by another version of this program")
        ((identity,),) = self._db.execute("SELECT id FROM ledger")
        return bytes(identity)

    def _emptied(self) -> bytes:
        identity = secrets.token_bytes(8)
        self._db.execute("DELETE FROM visits; DELETE FROM ledger")
        self._db.execute("INSERT INTO ledger VALUES (?)", (identity,))
        return identity

    def _recover(self, mark: bytes) -> None:
        """Reduce the ledger to what is durable."""
        try:
            form, identity, number, *sent = msgpack.unpackb(mark)
            digest = Digest(*sent)
        except (ValueError, TypeError):
            form = ""
        which = f"the mark of producer '{self._name}'"
        if form != _FORM:
            raise StreamerError(
                f"{which} was not made by `streamer send --watch`: give another --name"
            )
        if identity != self._id:
            problem = f"{which} is of another ledger than {self.path}: give that one (--ledger), "
            problem += "or another --name, which sends all files"
            raise StreamerError(problem)
        self._db.execute("DELETE FROM visits WHERE number > ?", (number,))
        rows = [Visit.of_row(row) for row in self._rows()]
        if not rows or rows[-1].number != number:
            problem = f"{self.path}: is older than {which}: give another --name, which sends all "
            problem += "files"
            raise StreamerError(problem)
        if rows[-1].sent != digest:
            # the visit was interrupted
            self._put([rows[-1]._replace(size=NOT_DONE, offset=0, sent=digest)])
        self._db.execute(_FORGET, (number,))

    @property
    def last(self) -> int:
        """Return the number of the last visit."""
        return self._next - 1

    def beginning(self, first: int) -> list[Visit]:
        """Return what has been sent of the contents whose first record has this digest.

        For each content, includes everything known: its records, and leading ones that other files
        have.
        """
        ends: dict[tuple[int, Digest], Visit] = {}
        for number in self._beginning.get(first, ()):
            for visit in (self.contents[number], *self._files_of[number].values()):
                if visit.sent.records:
                    ends.setdefault((number, visit.sent), visit)
        return list(ends.values())

    def holders(self, content: int) -> list[str]:
        """Return the paths of the files that had all records of a content, latest first."""
        last = self.contents[content]
        paths = [
            visit.path for visit in self._files_of[content].values() if visit.sent == last.sent
        ]
        return paths[::-1]

    def paths(self, content: int) -> list[str]:
        """Return the paths of files that began with records of a content at their last visit."""
        return [*self._files_of[content]]

    # ---- visits ------------------------------------------------------------------------------

    def begin(self, path: str, content: int, first: int, sent: Digest) -> Visit:
        """Begin a visit that sends records after ``sent``; content 0: no file had them before.

        When this returns, the visit is stored, and everything passed to ``end`` before.
        """
        number = self._next
        visit = Visit(number, path, content or number, first, NOT_DONE, 0, 0, sent)
        self.end(visit)
        self.store()
        return visit

    def end(self, visit: Visit) -> None:
        """Record the outcome of a visit, also of one that sends nothing and has number 0."""
        if not visit.number or visit.number == self._next:
            visit = visit._replace(number=self._next)
            self._next += 1
        self._waiting.append(visit)
        if visit.path in self.files:
            del self._files_of[self.files[visit.path].content][visit.path]
        self._files_of[visit.content][visit.path] = visit
        self.files[visit.path] = visit
        self._note_content(visit)

    def _note_content(self, visit: Visit) -> None:
        if not visit.sent.records:
            return
        most = self.contents.get(visit.content)
        if most is None:
            self._beginning.setdefault(visit.first, []).append(visit.content)
        if most is None or visit.sent.records >= most.sent.records:
            self.contents[visit.content] = visit

    def store(self) -> None:
        """Store and sync everything."""
        if self._waiting:
            with self._errors(), self._db:
                self._put(self._waiting)
            self._waiting = []

    def forget(self, durable: int) -> None:
        """Delete rows up to a durable visit that later visits have replaced."""
        with self._errors(), self._db:
            self._db.execute(_FORGET, (durable,))

    def mark(self, visit: int, sent: Digest) -> bytes:
        """Return the mark of a batch, given what has been sent up to its end."""
        packed: bytes = msgpack.packb([_FORM, self._id, visit, *sent])
        return packed

    def close(self) -> None:
        """Store everything and let other processes open the ledger."""
        self.store()
        self._db.close()

    def _rows(self) -> list[Any]:
        return list(self._db.execute("SELECT * FROM visits ORDER BY number"))

    def _put(self, visits: list[Visit]) -> None:
        rows = [visit.row() for visit in visits]
        self._db.executemany(f"REPLACE INTO visits VALUES ({', '.join('?' * 12)})", rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.BusyError:
            raise StreamerError(f"{self.path}: another process uses this ledger") from None
        except (apsw.Error, OSError) as error:
            raise StreamerError(f"{self.path}: {error}: name another file with --ledger") from None
