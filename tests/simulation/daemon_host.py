"""One start of the daemon, on a machine that survives it: from opening the journal to its end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from streamer.daemon.core.feed import FeedCore
from streamer.daemon.core.ingest import IngestCore, Settings
from streamer.daemon.core.life import STARTING, Life
from streamer.daemon.core.log import Replay
from streamer.daemon.core.producers import KnownProducer
from streamer.daemon.core.sync import SyncLimits
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.restore import restore
from streamer.journal.record import JournalError, JournalFull
from streamer.journal.store import Journal
from streamer.protocol.schema import RECORD_TOPICS
from tests.simulation.clock import EventClock, Pause, Process, Steps, Thread
from tests.simulation.daemon_threads import DaemonThread, FeedThread, IngestThread
from tests.simulation.engine_thread import EngineThread
from tests.simulation.log_thread import LogThread, Taken
from tests.simulation.model_journal import MachineDisk, OwnedJournal
from tests.simulation.network import Endpoint, FeedEndpoint
from tests.simulation.promises import Promises
from tests.simulation.sync_host import SyncStarter

_LOOK_SECONDS = 0.5
# the longest time of a step, as a multiple of its mean; mean seconds of a process start
_SLOWEST = 30
_BOOT = 0.1


@dataclass
class Site:
    """The machine and the configuration of the daemon; its reports go to ``promises``.

    keep_records: 0 for all. revised_records: those examined in one step. grows: whether the
    dictionary does; max_kmers: its limit, 0 for none. sources: the k-mers of its files.
    """

    clock: EventClock
    disk: MachineDisk
    promises: Promises
    durability: str
    memory_bytes: int
    max_batch_bytes: int
    beat_seconds: float
    feed_messages: int
    feed_bytes: int
    sync_limits: SyncLimits
    snapshot_after: Replay
    keep_records: int
    revised_records: int
    grows: bool
    max_kmers: int
    sources: frozenset[int]
    ingest: Endpoint = field(default_factory=Endpoint)
    sync: Endpoint = field(default_factory=Endpoint)
    feed: FeedEndpoint = field(default_factory=FeedEndpoint)


class DaemonHost(Process):
    """A start of the daemon. life: its number. exited: called with the reason if it ends by itself.

    accept_loss: start without damaged data. slowness: a factor for the time of its steps.
    """

    def __init__(
        self,
        site: Site,
        life: int,
        *,
        accept_loss: bool,
        slowness: float,
        exited: Callable[[str], None],
    ) -> None:
        super().__init__(site.clock, f"daemon {life}")
        self.site = site
        self.life = life
        self.journal = OwnedJournal(site.disk, site.clock.random, synced=site.durability == "fsync")
        self.state = STARTING
        self.announcements: deque[str] = deque([STARTING])
        self.totals: Counter[str] = Counter()
        self.serving = False
        self._accept_loss = accept_loss
        self._slowness = slowness
        self._exited = exited
        self._life = Life(self._enter)
        self._workers: list[DaemonThread] = []
        self._disk_full = self._drain_wanted = False
        self.main = Thread(self, self._run(), self._fails)

    def takes(self, mean: float) -> float:
        """A random duration with this mean, in seconds."""
        mean *= self._slowness
        return min(self.clock.random.expovariate(1 / mean), _SLOWEST * mean)

    def drain(self) -> None:
        """Finish what was accepted, then end."""
        self._drain_wanted = True
        self.main.wake()

    def journal_full(self, full: bool) -> None:
        """The disk has no room, or has room again."""
        self._disk_full = full
        self.ingest.put(lambda: self.ingest.core.journal_full(full))
        self.main.wake()

    # ---- parts that ``mistakes`` replace ----------------------------------------------------

    def known(self) -> list[KnownProducer]:
        """The producers that the journal knows."""
        return [KnownProducer(*received[:4]) for received in self.journal.producers()]

    def epoch(self) -> int:
        """The epoch of this start."""
        return self.journal.epoch

    def make_log(self, replayed: Replay) -> LogThread:
        """The thread of the log."""
        return LogThread(self, replayed)

    def make_ingest_core(self, number: int) -> IngestCore:
        """The core of ingest."""
        site = self.site
        settings = Settings(
            self.journal.stream,
            self.epoch(),
            site.durability,
            site.memory_bytes,
            site.max_batch_bytes,
            stores_epochs=True,
        )
        return IngestCore(
            settings, known=self.known(), number=number, content_of=self.journal.content
        )

    def make_feed(self, core: FeedCore) -> FeedThread:
        """The thread of the feed."""
        return FeedThread(self, core)

    def make_kept(self) -> KeptBatches:
        """The batches that a reload has matched again."""
        return KeptBatches(cast(Journal, self.journal), self.site.revised_records)

    # ---- its life ---------------------------------------------------------------------------

    def _run(self) -> Steps:
        yield self.takes(_BOOT)
        yield from self.journal.opening(accept_loss=self._accept_loss)
        journal = self.journal
        self.site.promises.recovered(journal)
        restored = restore(cast(Journal, journal))
        if restored.loss:
            self.note(f"k-mers were given up: {restored.loss}")
            yield from self._keep(restored.at)
        self.note(f"epoch {journal.epoch}, records {journal.oldest} to {journal.head}")
        self.totals = Counter(restored.counts)
        yield self.takes(_BOOT)
        topics = [topic for topic in RECORD_TOPICS if topic not in ("near", "ltb")]
        feed = FeedCore(
            stream=journal.stream,
            epoch=self.epoch(),
            published=[*topics, "beat", "status"],
            beat_seconds=self.site.beat_seconds,
            at=restored.at,
            heads=restored.heads,
        )
        self.feed = self.make_feed(feed)
        self.ingest = IngestThread(self, self.make_ingest_core(restored.number))
        self.log = self.make_log(Replay(*restored.replayed))
        self.engine = EngineThread(self, restored, self.make_kept())
        self.replay = SyncStarter(self)
        self._workers = [self.engine, self.log, self.ingest, self.feed]
        self.serving = True
        for worker in (self.feed, self.ingest, self.log, self.engine):
            worker.start()
        while not (self.ingest.drained and self._life.drained()):
            yield Pause(_LOOK_SECONDS)
            for worker in self._workers:
                if worker.error is not None:
                    raise worker.error
            self._advance()
        yield from self._stop()
        self._exit("drained")

    def _keep(self, at: int) -> Steps:
        """Store the state, so that a loss becomes part of it."""
        taken = Taken(self)
        assert taken.stored is not None
        assert taken.stored.at == at
        with suppress(JournalFull):
            yield from self.journal.storing(taken.stored)

    def _advance(self) -> None:
        if self.engine.ready and self._life.ready():
            self.ingest.wake()
        self._life.journal_full(self._disk_full)
        if self._drain_wanted and self._life.drain():
            self.ingest.wake()

    def _stop(self) -> Steps:
        """Stop the engine first and the feed late, since it announces the end."""
        for worker in self._workers:
            worker.stop()
            while not worker.ended:
                yield 0.01
        self.serving = False
        self.replay.end()
        while self.replay.process is not None and self.replay.process.alive:
            yield 0.01

    def _fails(self, error: Exception) -> None:
        """A thread has failed: only errors of the journal may end the daemon, with a report."""
        if not isinstance(error, JournalError):
            raise error
        self.note(f"fails: {error}")
        if self.serving and self._life.fail():
            self.main = Thread(self, self._end_failed(error))
        else:
            self._exit(str(error))

    def _end_failed(self, error: Exception) -> Steps:
        yield from self._stop()
        self._exit(str(error))

    def _exit(self, why: str) -> None:
        self.kill(f"exit: {why}")
        self._exited(why)

    def _enter(self, state: str) -> None:
        self.note(f"is {state}")
        self.state = state
        self.announcements.append(state)
