"""The state of the daemon, written by its threads, read by control and the feed.

How long batches took, as a histogram.
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamer.daemon import logs
from streamer.daemon.config import Config
from streamer.daemon.core.life import STARTING
from streamer.daemon.core.watchdog import StuckStage
from streamer.matching.novelty import NoveltyCurve
from streamer.protocol.schema import TOPICS
from streamer.sequences.sample_sheet import SampleSheet

if TYPE_CHECKING:
    from streamer.journal.store import Journal
    from streamer.matching.target_tally import TargetTally

BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""The upper bound of each bucket, in seconds; a last bucket counts longer ones."""


class Durations:
    """Written by one thread, read by any. counts: one for each bucket. seconds: the sum of all."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, begun: Iterable[float]) -> None:
        """Count batches that end now. begun: when each began, in monotonic seconds."""
        now = time.monotonic()
        for at in begun:
            passed = now - at
            self.counts[bisect_left(BOUNDS, passed)] += 1
            self.seconds += passed


_RATE_SECONDS = 10.0
_COUNTS = (
    "batches",
    "reads",
    "bases",
    "windows",
    "matches",
    "mismatches",
    "skipped",
    "reads_on_target",
    "new_kmers",
)


class Totals:
    """Sums over all published batches, and their throughput.

    counts: the sums before this start; throughput counts from this start.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_COUNTS, 0) | dict(counts)
        self._bases_before = self._counts["bases"]
        self._busy = 0.0
        self._last = 0.0
        self._recent: deque[tuple[float, int]] = deque()

    def correct(self, counts: Mapping[str, int]) -> None:
        """Correct earlier sums by these differences."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def add(self, accepted_at: float, **counts: int) -> None:
        """Count published batches; ``accepted_at`` is in monotonic seconds."""
        now = time.monotonic()
        self.correct(counts)
        with self._lock:
            # idle time does not count
            self._busy += now - max(self._last, accepted_at)
            self._last = now
            self._recent.append((now, counts["bases"]))
            self._forget(now)

    def fields(self) -> dict[str, Any]:
        """All sums; ``bases_per_second`` over the busy time, the recent rate over ten seconds."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            recent = sum(bases for _, bases in self._recent)
            bases = self._counts["bases"] - self._bases_before
            rate = bases / self._busy if self._busy > 0 else 0.0
            return self._counts | {
                "busy_seconds": round(self._busy, 3),
                "bases_per_second": round(rate, 1),
                "recent_bases_per_second": round(recent / _RATE_SECONDS, 1),
            }

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - _RATE_SECONDS:
            self._recent.popleft()


def published(config: Config) -> list[str]:
    """The topics that a daemon with this configuration can have messages on."""
    spec = config.spec
    never = {
        "near": not spec.near or spec.semantics != "levenshtein",
        "ltb": not spec.near or spec.semantics != "ltb",
        "delta": not spec.changes,
        "novelty": not spec.changes,
        "settled": not spec.sources,
        "decision": not config.decision.names,
        "targets": not spec.counted,
        "barcodes": not spec.counted,
        "enough": not (spec.counted and config.panel.limits),
    }
    if not spec.sources or spec.grows or config.journal.durability == "none":
        never |= {"retract": True, "upgrade": True}
    return [topic for topic in TOPICS if not never.get(topic)]


class DaemonStatus:
    """The state of the daemon; each attribute is written by one thread only.

    stream, epoch: those of the journal; without one a new stream and 1. counts, novelty: the totals
    and the novelty curve so far.
    """

    def __init__(
        self,
        config: Config,
        journal: Journal | None = None,
        counts: Mapping[str, int] | None = None,
        novelty: NoveltyCurve | None = None,
    ) -> None:
        self.config = config
        self.sheet = SampleSheet.read(config.samples.sheet) if config.samples.sheet else None
        # names of targets by group: of the configuration, else of the table of targets
        self.groups: Mapping[str, Sequence[str]] = config.panel.groups
        self.stream = secrets.token_hex(8) if journal is None else journal.stream
        self.epoch = 1 if journal is None else journal.epoch
        self.journal = None if journal is None else journal.usage()
        self.state = STARTING
        # states that the feed has not announced yet
        self.announcements: deque[str] = deque([STARTING])
        self.totals = Totals(counts or {})
        self.endpoints: dict[str, str] = {}
        self.targets = 0
        self.kmers = 0
        # whether the dictionary is at its limit
        self.limited = False
        self.version = 0
        self.snapshot_version = 0
        # the version of a revision in progress and its batches left; the last version settled
        self.revision: dict[str, int] | None = None
        self.settled = 0
        self.queued_bytes = 0
        self.queued_batches = 0
        # accepted batches that are not durable, their bytes, and since when the oldest waits
        self.undurable: tuple[int, int, float | None] = 0, 0, None
        # of batches, from acceptance to publication
        self.durations = Durations()
        self.refused = 0
        # requests on control that got no reply
        self.unanswered = 0
        self.producers = 0
        self.active_producers = 0
        # of the feed: topics with a subscription, and how many connections have each prefix
        self.topics: frozenset[str] = frozenset()
        self.subscriptions: dict[str, int] = {}
        self.ignored_subscriptions = 0
        # reads of the watched folder that are larger than a batch
        self.passed_over = 0
        # bytes that wait for subscribers, and how many slow subscribers were disconnected
        self.feed_waiting = 0
        self.slow_subscribers = 0
        # whether the disk of the journal is full
        self.journal_full = False
        # what the watchdog found: stuck stages; for each stage, the seconds without progress and
        # how often it was stuck
        self.stuck: dict[str, StuckStage] = {}
        self.stage_ages: dict[str, float] = {}
        self.stalls: dict[str, int] = {}
        # how many jobs are in each state, if jobs are enabled
        self.jobs: dict[str, int] | None = None
        # counts known and refused keys, if the daemon needs keys
        self.key_counts: Callable[[], dict[str, int]] | None = None
        # GPUs in use, by number
        self.cards: tuple[int, ...] = ()
        self.published = published(config)
        # counts by target for the dictionary in use
        self.tally: TargetTally | None = None
        # the curve of new k-mers, if the dictionary grows
        self.novelty = (novelty or NoveltyCurve()) if config.spec.changes else None
        self._started = time.monotonic()

    def enter(self, state: str) -> None:
        """Enter another state, which the feed announces."""
        self.state = state
        self.announcements.append(state)

    def announce(self) -> None:
        """Have the feed announce the state again, because other fields have changed."""
        self.announcements.append(self.state)

    def answers(self) -> dict[str, Any]:
        """The fields that all messages with counts share."""
        return {"version": self.version, "complete": self._unsettled() is None}

    def _unsettled(self) -> dict[str, int] | None:
        revision = self.revision
        return revision if revision and revision["version"] > self.settled else None

    def _undurable(self) -> dict[str, Any]:
        batches, size, since = self.undurable
        age = 0.0 if since is None else time.monotonic() - since
        return {"batches": batches, "bytes": size, "age_seconds": round(age, 3)}

    def fields(self, *, subscriptions: bool = False) -> dict[str, Any]:
        """The reply to ``status``; ``subscriptions``: whether to list each one."""
        spec = self.config.spec
        return {
            "state": self.state,
            "stream": self.stream,
            "epoch": self.epoch,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
            "endpoints": dict(self.endpoints),
            "dictionary": {
                "k": spec.k,
                "mode": spec.mode,
                "strands": spec.strands,
                "targets": self.targets,
                "kmers": self.kmers,
                "limit": spec.max_kmers if spec.changes else 0,
                "at_limit": self.config.dictionary.at_limit,
                "limited": self.limited,
                "version": self.version,
                "snapshot_version": self.snapshot_version,
            },
            "revision": self._unsettled(),
            "queue": {
                "bytes": self.queued_bytes,
                "batches": self.queued_batches,
                "limit_bytes": self.config.ingest.memory_bytes,
            },
            "undurable": self._undurable(),
            "durations": {"bounds": list(BOUNDS), "counts": list(self.durations.counts)},
            "stuck": {
                name: {"waits_for": stage.waits_for, "seconds": round(stage.seconds, 1)}
                for name, stage in self.stuck.items()
            },
            "producers": {"known": self.producers, "active": self.active_producers},
            "refused": self.refused,
            "passed_over": self.passed_over,
            "security": None if self.key_counts is None else self.key_counts(),
            "jobs": None if self.jobs is None else dict(self.jobs),
            "job_keys": self.jobs is not None,
            "unanswered": self.unanswered,
            "log": {"dropped": logs.dropped()},
            "durability": self.config.journal.durability,
            "journal": None if self.journal is None else self.journal._asdict(),
            "feed": {
                "bytes": self.feed_waiting,
                "limit_bytes": self.config.feed.buffer_bytes,
                "slow": self.slow_subscribers,
            },
            "subscriptions": {
                "kept": sum(self.subscriptions.values()),
                "ignored": self.ignored_subscriptions,
            },
            "topics": sorted(TOPICS[name].wire for name in self.topics),
            "published": [TOPICS[name].wire for name in self.published],
            "totals": self.totals.fields(),
        } | ({"prefixes": self.subscriptions} if subscriptions else {})
