"""Where a run of ``streamer send`` stands, as a mark that the daemon keeps with each batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgpack

from streamer.errors import DataError, StreamerError
from streamer.sequences.source import shown_name

# of another form is a mark of another program
_FORM = "streamer send 1"
# of a path in a mark: at most 256 bytes are allowed in all
_PATH_BYTES = 120
_DIGEST_BYTES = 8


class SendMark(NamedTuple):
    """The first ``records`` of file number ``file``, from 0, and all files before it.

    last: a digest of the name of the last of them. path: the end of the file's. paths: a digest of
    all paths up to it, as given.
    """

    file: int
    records: int
    last: bytes
    path: bytes
    paths: bytes

    @classmethod
    def at(cls, paths: Sequence[str], file: int, records: int, last: str) -> SendMark:
        """The mark behind a record of this name."""
        path, digest = _about(paths, file)
        return cls(file, records, name_digest(last), path, digest)

    @classmethod
    def unpack(cls, mark: bytes, paths: Sequence[str], name: str) -> SendMark:
        """The mark of producer ``name``; StreamerError unless it stands in one of the files."""
        try:
            form, *fields = msgpack.unpackb(mark)
            file, records, last, path, digest = fields
        except (ValueError, TypeError):
            form = ""
        if form != _FORM:
            problem = (
                f"the mark of producer '{name}' was not made by `streamer send`: send without "
            )
            problem += "--resume, or under another name"
            raise StreamerError(problem)
        was = path.decode("utf-8", "replace")
        problem = f"producer '{name}' has come to file {file + 1} ({was}): give the same files"
        if file >= len(paths):
            problem += f" in the same order, not {len(paths)}"
            raise StreamerError(problem)
        if _about(paths, file) != (path, digest):
            problem += f" in the same order, not {shown_name(paths[file])} or others before it"
            raise StreamerError(problem)
        return cls(file, records, last, path, digest)

    def pack(self) -> bytes:
        """The mark as bytes, at most 256."""
        packed: bytes = msgpack.packb([_FORM, *self])
        return packed

    def check(self, path: str, records: int, last: str) -> None:
        """DataError unless the file is as it was: ``records``, at most as asked, the last so."""
        if records < self.records:
            problem = f"has {records:,} records, but {self.records:,} are durable: it has changed"
            raise DataError(problem, file=shown_name(path))
        if name_digest(last) != self.last:
            problem = f"is not the last durable one ({last}): the file has changed"
            raise DataError(problem, file=shown_name(path), record=self.records)


def name_digest(name: str) -> bytes:
    """A digest of the name of a record."""
    return sha256(name.encode("utf-8", "surrogateescape")).digest()[:_DIGEST_BYTES]


def _about(paths: Sequence[str], file: int) -> tuple[bytes, bytes]:
    """The end of a path, and a digest of all up to it."""
    given = [os.fsencode(path) for path in paths[: file + 1]]
    return given[-1][-_PATH_BYTES:], sha256(b"\0".join(given)).digest()[:_DIGEST_BYTES]
