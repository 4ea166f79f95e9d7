"""Records of the journal, the data stored with them, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamer.errors import PlacedError, StreamerError

Frame = bytes | memoryview
Frames = Sequence[Frame]
"""Those of one record."""


class Key(NamedTuple):
    """The identity of a batch: batches with the same key take effect only once, ever.

    content: CRC-32C of the frames as sent by the producer. mark: the producer's own position, b""
    for none. Numbers are at most 2^63 - 1.
    """

    producer: str
    epoch: int
    sequence: int
    content: int
    mark: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record. The journal does not interpret ``meta`` and ``frames``.

    at: 1, 2, 3, ... without gaps. meta: everything that is not an array; it is stored in the index,
    so large data belongs in a frame. frames: none if they were not requested. time: nanoseconds
    since 1970. about: the earlier record that this one refers to, if any. lost: it was given up,
    and has no frames and no key; kind and meta are empty if unknown.
    """

    at: int
    kind: str
    meta: bytes
    frames: tuple[Frame, ...]
    key: Key | None
    time: int
    about: int | None = None
    lost: bool = False


class Snapshot(NamedTuple):
    """The state after record ``at``, where recovery starts. Without frames, it was given up."""

    at: int
    meta: bytes
    frames: tuple[Frame, ...]


class Begun(NamedTuple):
    """The start of a producer's epoch. time: nanoseconds since 1970."""

    producer: str
    epoch: int
    time: int


class Received(NamedTuple):
    """The state of a producer by its name: its last epoch, and the last batch in it.

    sequence: 0 if the epoch has no batch. mark: of the last batch in any epoch. time: of that
    batch, or of the start of the epoch, in nanoseconds since 1970.
    """

    producer: str
    epoch: int
    sequence: int
    mark: bytes
    time: int


class Usage(NamedTuple):
    """bytes: of the records kept; disk: of all files, with what is set aside.

    oldest: the first retained record, head + 1 if none.
    """

    bytes: int
    disk: int
    oldest: int
    head: int


class JournalError(StreamerError):
    """A journal that cannot be used as asked."""


class JournalInUse(JournalError):
    """Another process is writing to this journal."""


class JournalFull(JournalError):
    """No room on the disk, or no descriptor for a file: nothing was stored; a retry may succeed."""


class JournalUnread(JournalError):
    """A temporary failure to read, without known damage; a retry may succeed."""


class JournalFailed(JournalError):
    """The disk failed to store accepted data: this process must stop using the journal."""


class JournalExpired(JournalError):
    """The records are no longer retained; ``oldest`` is the first one that is."""

    def __init__(self, message: str, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(message)


class JournalDamage(PlacedError, JournalError):
    """Stored bytes have changed: in which file, where, and of which record.

    ``offset`` is None for rows of the index, ``record`` is None for what belongs to no record.
    """

    def __init__(
        self, problem: str, *, file: str, offset: int | None = None, record: int | None = None
    ) -> None:
        self.offset, self.record = offset, record
        super().__init__(problem, file, {"offset": offset, "record": record})

    def of(self, damages: int) -> JournalDamage:
        """Return this error as the first of several, with advice."""
        more = f", the first of {damages} damages" if damages > 1 else ""
        problem = f"{self.problem}{more}: --accept-loss starts without what is damaged"
        return JournalDamage(problem, file=self.file, offset=self.offset, record=self.record)
