"""The log without I/O: what is committed together, when it is retried, what bounds a restart.

Its owner adds what is to be recorded, does the task that is due and reports the outcome, until no
task is due. Only what ``appended`` returns may be published and acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

# bytes of a commit: waiting groups are committed together up to this
_TOGETHER = 32 << 20
# seconds between two attempts to write to a full disk, two searches for expired records, and two
# attempts at a snapshot
RETRY_SECONDS = 0.5
LOOK_SECONDS = 1.0
SNAPSHOT_SECONDS = 10.0

Group = TypeVar("Group")
Recorded = TypeVar("Recorded")


class Replay(NamedTuple):
    """The cost of a restart: bytes, new k-mers and records to read."""

    bytes: int = 0
    kmers: int = 0
    records: int = 0

    def plus(self, more: Replay) -> Replay:
        """The sum of both."""
        return Replay(*(a + b for a, b in zip(self, more, strict=True)))

    def exceeds(self, most: Replay) -> bool:
        """Whether any of the three is larger than in ``most``."""
        return any(a > b for a, b in zip(self, most, strict=True))


SNAPSHOT_AFTER = Replay(1 << 30, 1 << 26, 20_000)
"""A snapshot is due once a restart would read more than this."""


class Task(Enum):
    """The next task: append ``records``, store a snapshot, or delete expired records."""

    APPEND = "append"
    SNAPSHOT = "snapshot"
    EXPIRE = "expire"


class LogCore(Generic[Group, Recorded]):
    """The state of the log.

    make: makes the records of a group, and says what they add to a restart. replayed: what follows
    the last snapshot. full: whether the last attempt found no room. Times are monotonic seconds.
    """

    def __init__(
        self,
        make: Callable[[Group], tuple[Sequence[Recorded], Replay]],
        replayed: Replay,
        snapshot_after: Replay = SNAPSHOT_AFTER,
    ) -> None:
        self.full = False
        self._make = make
        self._waiting: list[Group] = []
        # records of the next commits: made once, however often a commit is tried; where the groups
        # end among them, and how many are tried
        self._ends: list[int] = []
        self._records: list[Recorded] = []
        self._tried = 0
        self._adds = Replay()
        self._replayed = replayed
        # while a snapshot is being stored: what was appended since it began
        self._beside: Replay | None = None
        self._snapshot_after = snapshot_after
        self._retry = self._look = self._snapshot = 0.0
        # appends and housekeeping take turns
        self._kept_house = False

    @property
    def waiting(self) -> int:
        """How many groups wait to be recorded."""
        return len(self._waiting)

    def add(self, groups: Iterable[Group]) -> None:
        """Queue further groups to be recorded, in order."""
        self._waiting += groups

    def task(self, now: float) -> Task | None:
        """The task that is due; its outcome must be reported before the next call."""
        housekeeping = self._housekeeping(now)
        if self._waiting and now >= self._retry and (self._kept_house or housekeeping is None):
            return Task.APPEND
        return housekeeping

    def _housekeeping(self, now: float) -> Task | None:
        due = not self.full and now >= self._snapshot and self._beside is None
        if due and self._replayed.exceeds(self._snapshot_after):
            return Task.SNAPSHOT
        return Task.EXPIRE if now >= self._look else None

    def wait(self, now: float, most: float) -> float:
        """Seconds until a task is due, unless more is added; at most ``most``."""
        due = min(self._retry, self._look) if self._waiting else self._look
        return min(max(0.0, due - now), most)

    def records(self) -> Sequence[Recorded]:
        """The records to append: of the waiting groups, at least one, up to a limit in bytes.

        After ``no_room``, half as many as were tried before, even of a single group.
        """
        if not self._ends:
            for group in self._waiting:
                if self._ends and self._adds.bytes > _TOGETHER:
                    break
                records, adds = self._make(group)
                self._records += records
                self._ends.append(len(self._records))
                self._adds = self._adds.plus(adds)
            self._tried = len(self._records)
        return self._records[: self._tried]

    def appended(self) -> list[Group]:
        """``records`` are committed; returns the groups of which all are, in order.

        They may now be published.
        """
        done, untried = self._tried, len(self._records) - self._tried
        self._tried = min(done, untried)
        del self._records[:done]
        count = sum(end <= done for end in self._ends)
        self._ends = [end - done for end in self._ends[count:]]
        groups = self._waiting[:count]
        del self._waiting[:count]
        if not self._ends:
            self._replayed = self._replayed.plus(self._adds)
            if self._beside is not None:
                self._beside = self._beside.plus(self._adds)
            self._adds = Replay()
        self.full = self._kept_house = False
        return groups

    def no_room(self, now: float) -> bool:
        """There was no room for any of ``records``; returns whether this was the first attempt."""
        first, self.full = not self.full, True
        self._tried = max(1, self._tried // 2)
        # deleting the oldest records may make room
        self._retry, self._look = now + RETRY_SECONDS, now
        return first

    def snapshot_begun(self) -> None:
        """A snapshot of everything recorded is being stored while more is appended."""
        self._beside, self._kept_house = Replay(), True

    def snapshot_tried(self, now: float, *, stored: bool) -> None:
        """If the snapshot is stored, a restart reads only what was recorded after it began."""
        if stored:
            self._replayed = self._beside or Replay()
        self._beside = None
        self._snapshot = now + SNAPSHOT_SECONDS
        self._kept_house = True

    def expired(self, records: int, now: float) -> None:
        """This many records were deleted; if there were any, more may have expired."""
        self._look = now if records and not self.full else now + LOOK_SECONDS
        self._kept_house = True
