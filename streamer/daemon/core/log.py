"""The log without I/O: what is committed together, when it is tried again, what bounds a restart.

Its owner adds what is to be recorded, does the task that is due, and says how that ended, until
none is due. What ``appended`` returns, and nothing else, may be published and acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

# bytes of a commit: what waits is committed together
_TOGETHER = 32 << 20
# between two tries to write to a full disk, two looks for what may go, and two tries of a snapshot
RETRY_SECONDS = 0.5
LOOK_SECONDS = 1.0
SNAPSHOT_SECONDS = 10.0

Group = TypeVar("Group")
Recorded = TypeVar("Recorded")


class Replay(NamedTuple):
    """What a restart has to read: bytes, new k-mers and records."""

    bytes: int = 0
    kmers: int = 0
    records: int = 0

    def plus(self, more: Replay) -> Replay:
        """Both of them."""
        return Replay(*(a + b for a, b in zip(self, more, strict=True)))

    def exceeds(self, most: Replay) -> bool:
        """Whether there is more of anything."""
        return any(a > b for a, b in zip(self, most, strict=True))


SNAPSHOT_AFTER = Replay(1 << 30, 1 << 26, 20_000)
"""After more than this a snapshot is due."""


class Task(Enum):
    """What is to be done next: append ``records``, store a snapshot, or drop what may go."""

    APPEND = "append"
    SNAPSHOT = "snapshot"
    EXPIRE = "expire"


class LogCore(Generic[Group, Recorded]):
    """The state of the log.

    make: the records of a group, and what they add to a restart. replayed: what is behind the last
    snapshot. full: whether the disk had no room at the last try. Times are monotonic seconds.
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
        # of the next commit: made once, however often it is tried
        self._groups = 0
        self._records: list[Recorded] = []
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
        """Groups that are to be recorded."""
        return len(self._waiting)

    def add(self, groups: Iterable[Group]) -> None:
        """Record these, too, in order."""
        self._waiting += groups

    def task(self, now: float) -> Task | None:
        """What is due; its end is to be said before the next one."""
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
        """Seconds until something is due, unless more is added; at most ``most``."""
        due = min(self._retry, self._look) if self._waiting else self._look
        return min(max(0.0, due - now), most)

    def records(self) -> Sequence[Recorded]:
        """Those to append: of all that waits, up to a limit in bytes, of one group at least."""
        if not self._groups:
            for group in self._waiting:
                if self._groups and self._adds.bytes > _TOGETHER:
                    break
                records, adds = self._make(group)
                self._groups += 1
                self._records += records
                self._adds = self._adds.plus(adds)
        return self._records

    def appended(self) -> list[Group]:
        """``records`` are committed: the groups of which that is to be said now, in order."""
        groups = self._waiting[: self._groups]
        del self._waiting[: self._groups]
        self._replayed = self._replayed.plus(self._adds)
        if self._beside is not None:
            self._beside = self._beside.plus(self._adds)
        self._groups, self._records, self._adds = 0, [], Replay()
        self.full = self._kept_house = False
        return groups

    def no_room(self, now: float) -> bool:
        """``records`` found no room, nothing of them is stored; whether this is the first try."""
        first, self.full = not self.full, True
        # the oldest records may make room
        self._retry, self._look = now + RETRY_SECONDS, now
        return first

    def snapshot_begun(self) -> None:
        """A snapshot of all that is recorded is being stored, while more is appended."""
        self._beside, self._kept_house = Replay(), True

    def snapshot_tried(self, now: float, *, stored: bool) -> None:
        """If it is stored, a restart begins behind all that was recorded when it began."""
        if stored:
            self._replayed = self._beside or Replay()
        self._beside = None
        self._snapshot = now + SNAPSHOT_SECONDS
        self._kept_house = True

    def expired(self, records: int, now: float) -> None:
        """So many have gone; if any, there may be more."""
        self._look = now if records and not self.full else now + LOOK_SECONDS
        self._kept_house = True
