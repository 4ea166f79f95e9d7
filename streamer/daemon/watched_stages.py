"""The stages that the watchdog checks, each through the thread that does its work."""

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Protocol

import structlog

from streamer.daemon.core.watchdog import STUCK_SECONDS, StageLook, Watchdog
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.engine import EngineWorker
from streamer.daemon.worker import Inbox, Worker
from streamer.matching.tree_worker import TreeWorker

# what a stage waits for if its thread has not begun with the work
_UNBEGUN = "its thread to begin with what waits"

log = structlog.get_logger("watchdog")


class MeasuredStage(Protocol):
    """The measurements of a stage; any thread may ask."""

    def queued(self) -> int:
        """Items that wait or are being processed."""

    def busy_seconds(self) -> float:
        """Seconds of work so far."""

    def look(self) -> StageLook:
        """The state of the stage for the watchdog."""


class WatchedStage:
    """A stage whose worker takes its work from an inbox."""

    def __init__(self, worker: Worker, inbox: Inbox) -> None:  # type: ignore[type-arg]
        self._inbox = inbox
        self._work = worker.stage_work

    def queued(self) -> int:
        """Items that wait or are being processed."""
        return self._inbox.length + self._work.taken

    def busy_seconds(self) -> float:
        """Seconds of work so far."""
        return self._work.busy_seconds

    def look(self) -> StageLook:
        """The state of the stage for the watchdog."""
        work = self._work
        return StageLook(
            work.done, self.queued() > 0, work.waits_for or _UNBEGUN, held_up=work.held_up
        )


class EngineStage(WatchedStage):
    """The engine, which also waits for the tree worker and for GPUs."""

    def __init__(self, engine: EngineWorker) -> None:
        super().__init__(engine, engine.inbox)
        self._engine = engine

    def look(self) -> StageLook:
        """The state of the stage for the watchdog; steps within a long batch count as progress."""
        stage, engine = super().look(), self._engine
        if engine.matcher is None or not engine.matching:
            return stage
        tree, on_gpu = engine.matcher.tree, engine.matcher.device == "cuda"
        return stage._replace(
            done=stage.done + engine.matcher.steps,
            held_up=stage.held_up or on_gpu or (tree is not None and tree.awaited),
        )


class TreeStage:
    """The tree worker of the matcher in use; a reload replaces it."""

    def __init__(self, engine: EngineWorker) -> None:
        self._engine = engine
        self._lock = Lock()
        self._last: TreeWorker | None = None
        self._busy_before = 0.0

    def queued(self) -> int:
        """Merges and snapshots that wait or are being processed."""
        tree = self._tree()
        return 0 if tree is None else tree.queued

    def busy_seconds(self) -> float:
        """Seconds of merges and snapshots so far."""
        tree = self._tree()
        with self._lock:
            if tree is not self._last:
                # what the previous worker does from now on is not counted
                self._busy_before += 0.0 if self._last is None else self._last.work.busy_seconds
                self._last = tree
            return self._busy_before + (0.0 if tree is None else tree.work.busy_seconds)

    def look(self) -> StageLook:
        """The state of the stage for the watchdog."""
        tree = self._tree()
        if tree is None:
            return StageLook(0, False, "")
        return StageLook(tree.work.done, tree.queued > 0, tree.work.waits_for or _UNBEGUN)

    def _tree(self) -> TreeWorker | None:
        matcher = self._engine.matcher
        return None if matcher is None else matcher.tree


class GpuStage:
    """The GPUs that the engine waits for."""

    def __init__(self, engine: EngineWorker) -> None:
        self._engine = engine

    def look(self) -> StageLook:
        """The state of the stage for the watchdog."""
        engine, matcher = self._engine, self._engine.matcher
        if matcher is None or matcher.device != "cuda" or not engine.matching:
            return StageLook(0, False, "")
        tree = matcher.tree
        awaits_tree = tree is not None and tree.awaited
        numbers = ", ".join(map(str, matcher.spec.cards))
        return StageLook(
            engine.stage_work.done + matcher.steps,
            not awaits_tree,
            f"results of CUDA device {numbers}",
        )


class StageGuard:
    """Runs the watchdog over all stages, puts its findings on the status, and logs changes."""

    def __init__(self, status: DaemonStatus, stages: Mapping[str, Callable[[], StageLook]]) -> None:
        self._status = status
        self._stages = stages
        self._core = Watchdog(STUCK_SECONDS)

    def look(self) -> None:
        """Check once; call it about twice a second."""
        core = self._core
        looks = {name: look() for name, look in self._stages.items()}
        new, freed = core.look(looks, time.monotonic())
        status = self._status
        status.stuck, status.stage_ages, status.stalls = core.stuck, core.ages, dict(core.stalls)
        for name, stage in new.items():
            seconds = round(stage.seconds, 1)
            log.warning("no progress", stage=name, waits_for=stage.waits_for, seconds=seconds)
        for name, stage in freed.items():
            log.info("progress again", stage=name, seconds=round(stage.seconds, 1))
