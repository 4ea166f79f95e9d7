"""The watchdog without I/O: which stage makes no progress although work waits for it.

A stage that waits for a later one is not the cause: it is named only if nothing else is stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

STUCK_SECONDS = 10.0
"""Without progress for this long, a stage with work is stuck."""

# at most this much counts of the time between two looks: whoever stopped the whole process has
# stopped the stages, too
_COUNTED_SECONDS = 2.0


class StageLook(NamedTuple):
    """A stage at one moment.

    done: a number that changes with all progress. waiting: whether there is work. waits_for: what
    the stage needs to go on. held_up: whether that is a later stage.
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
    """Looks at all stages again and again.

    ages: of each stage the seconds that work has waited without progress. stuck: the stages that
    are named now. stalls: how often each stage was named.
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
        """The stages that are stuck since this look, and those that were and go on.

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
