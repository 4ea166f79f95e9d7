"""The watchdog without I/O: finds stages that make no progress although they have work.

A stage that waits for a later one is not the cause: it is reported only if nothing else is stuck.
"""

from collections.abc import Mapping
from typing import NamedTuple

STUCK_SECONDS = 10.0
"""A stage with work is stuck after this long without progress."""

# at most this much of the time between two checks counts, because a process that was stopped as a
# whole has stopped its stages, too
_COUNTED_SECONDS = 2.0


class StageLook(NamedTuple):
    """The state of a stage at one moment.

    done: a number that changes with all progress. waiting: whether it has work. waits_for: what the
    stage needs to go on. held_up: whether that is a later stage.
    """

    done: int
    waiting: bool
    waits_for: str
    held_up: bool = False


class StuckStage(NamedTuple):
    """A stage without progress: what it waits for, and for how many seconds so far."""

    waits_for: str
    seconds: float


class Watchdog:
    """Checks all stages periodically.

    ages: for each stage, the seconds that work has waited without progress. stuck: the stages that
    are reported now. stalls: how often each stage was reported.
    """

    def __init__(self, seconds: float = STUCK_SECONDS) -> None:
        self.ages: dict[str, float] = {}
        self.stuck: dict[str, StuckStage] = {}
        self.stalls: dict[str, int] = {}
        self._seconds = seconds
        self._done: dict[str, int] = {}
        self._looked: float | None = None

    def look(
        self, stages: Mapping[str, StageLook], now: float
    ) -> tuple[dict[str, StuckStage], dict[str, StuckStage]]:
        """Check the stages; returns those that are newly stuck, and those that go on again.

        stages: by name. now: monotonic seconds.
        """
        passed = 0.0 if self._looked is None else min(now - self._looked, _COUNTED_SECONDS)
        self._looked = now
        ages = {}
        for name, stage in stages.items():
            still = stage.waiting and self._done.get(name) == stage.done
            ages[name] = self.ages.get(name, 0.0) + passed if still else 0.0
            self.stalls.setdefault(name, 0)
        self.ages = ages
        self._done = {name: stage.done for name, stage in stages.items()}
        late = [name for name, age in ages.items() if age >= self._seconds]
        causes = [name for name in late if not stages[name].held_up] or late
        before = self.stuck
        self.stuck = {
            name: StuckStage(stages[name].waits_for, ages[name])
            for name in late
            if name in causes or name in before
        }
        new = {name: stage for name, stage in self.stuck.items() if name not in before}
        for name in new:
            self.stalls[name] += 1
        return new, {name: stage for name, stage in before.items() if name not in self.stuck}
