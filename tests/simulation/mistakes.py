"""Daemons with bugs, each of which the simulation must find."""

from __future__ import annotations

from typing import Any, cast

from streamer.daemon.core.feed import FeedCore
from streamer.daemon.core.log import Replay
from streamer.daemon.core.producers import KnownProducer
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.publish import ControlRecord, Group
from streamer.journal.store import Journal
from tests.simulation.daemon_host import DaemonHost
from tests.simulation.daemon_threads import FeedThread
from tests.simulation.log_thread import LogThread
from tests.simulation.model_journal import DATA, DiskStep


class _EarlyLog(LogThread):
    """Acts once the data is written, before it is synced and committed."""

    def during(self, step: DiskStep) -> None:
        if step.done == f"{DATA} written":
            for group in self.core._waiting[: len(self.core._ends)]:
                if isinstance(group, Group):
                    self.early(group)

    def early(self, group: Group) -> None:
        """The premature action."""
        raise NotImplementedError


class _AcknowledgingLog(_EarlyLog):
    def early(self, group: Group) -> None:
        self.committed(group)


class _PublishingLog(_EarlyLog):
    def early(self, group: Group) -> None:
        super().forward(group)

    def forward(self, group: Group) -> None:
        # groups published early are acknowledged when they are committed
        FeedThread.finished(self.daemon.feed, group)


class _QuietFeed(FeedThread):
    def finished(self, group: Group) -> None:
        """Do nothing: only the log reports it."""


class AcknowledgesEarly(DaemonHost):
    def make_log(self, replayed: Replay) -> LogThread:
        return _AcknowledgingLog(self, replayed)


class PublishesEarly(DaemonHost):
    def make_log(self, replayed: Replay) -> LogThread:
        return _PublishingLog(self, replayed)

    def make_feed(self, core: FeedCore) -> FeedThread:
        return _QuietFeed(self, core)


class ForgetsProducer(DaemonHost):
    def known(self) -> list[KnownProducer]:
        return super().known()[:-1]


class _Skipping(KeptBatches):
    def _revised(self, at: int, batch: Any, *given: Any) -> ControlRecord | None:
        return None if batch.about["batch"] % 2 else super()._revised(at, batch, *given)


class SkipsRevision(DaemonHost):
    def make_kept(self) -> KeptBatches:
        return _Skipping(cast(Journal, self.journal), self.site.revised_records)


class ReusesEpoch(DaemonHost):
    def epoch(self) -> int:
        return 1


MISTAKES: dict[str, type[DaemonHost]] = {
    "acknowledge before sync": AcknowledgesEarly,
    "publish before commit": PublishesEarly,
    "forget a producer": ForgetsProducer,
    "skip a revision": SkipsRevision,
    "reuse an epoch": ReusesEpoch,
}
