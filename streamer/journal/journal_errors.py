"""Errors of a journal."""

from __future__ import annotations

from streamer.errors import StreamerError


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


class JournalDamage(JournalError):
    """Stored bytes have changed: in which file, where, and of which record.

    ``offset`` is None for rows of the index, ``record`` is None for what belongs to no record.
    """

    def __init__(
        self, problem: str, *, file: str, offset: int | None = None, record: int | None = None
    ) -> None:
        self.problem = problem
        self.file = file
        self.offset = offset
        self.record = record
        place = file
        if offset is not None:
            place += f", offset {offset}"
        if record is not None:
            place += f", record {record}"
        super().__init__(f"{place}: {problem}")

    def of(self, damages: int) -> JournalDamage:
        """Return this error as the first of several, with advice."""
        more = f", the first of {damages} damages" if damages > 1 else ""
        problem = f"{self.problem}{more}: --accept-loss starts without what is damaged"
        return JournalDamage(problem, file=self.file, offset=self.offset, record=self.record)
