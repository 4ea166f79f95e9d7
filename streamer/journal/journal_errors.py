"""What can be wrong with a journal."""

from __future__ import annotations

from streamer.errors import StreamerError


class JournalError(StreamerError):
    """A journal that cannot be used as asked."""


class JournalInUse(JournalError):
    """Another process writes to this journal."""


class JournalFull(JournalError):
    """No room on the disk: nothing was stored, and the same may be tried again."""


class JournalUnread(JournalError):
    """Nothing is known to be wrong with what is stored: it may be read a moment later."""


class JournalFailed(JournalError):
    """The disk failed to store what it had taken: this process must not go on with the journal."""


class JournalExpired(JournalError):
    """Records that are no longer kept; ``oldest`` is the first that is."""

    def __init__(self, message: str, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(message)


class JournalDamage(JournalError):
    """Stored bytes that are not what was stored: in which file, where, and of which record.

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
        """The same error as the first of several, with what to do."""
        more = f", the first of {damages} damages" if damages > 1 else ""
        problem = f"{self.problem}{more}: --accept-loss starts without what is damaged"
        return JournalDamage(problem, file=self.file, offset=self.offset, record=self.record)
