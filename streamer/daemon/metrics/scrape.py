"""The text of a scrape: the status of the daemon at this moment, in the formats of Prometheus.

A time series costs memory wherever it is stored, and a panel may have a million pairs of target
and barcode. A pair gets a series with its first read and keeps it; once the limit is reached,
further pairs are counted together.
"""

import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streamer import __version__
from streamer.daemon.core.life import DRAINING, ENDED, FAILED, FULL, RUNNING, STARTING
from streamer.daemon.daemon_status import BOUNDS, DaemonStatus
from streamer.daemon.metrics.device_memory import DeviceMemory
from streamer.daemon.watched_stages import MeasuredStage
from streamer.matching.target_tally import TargetTally
from streamer.protocol.wire import PROTOCOL

Kind = Literal["counter", "gauge", "histogram"]
Value = float | Mapping[Any, float] | None
"""A number, or numbers by the value of the label (a tuple of several); None if there is none."""

STATES = (STARTING, RUNNING, FULL, DRAINING, ENDED, FAILED)


class Moment(NamedTuple):
    """The sources of values: the reply to ``status``, the status itself, stages by name."""

    reply: Mapping[str, Any]
    status: DaemonStatus
    stages: Mapping[str, MeasuredStage]


class Metric(NamedTuple):
    """A metric. name: as in a scrape, with ``_total`` for a counter. read: returns its value.

    Without ``read``, ``StatusCollector`` has the values.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    read: Callable[[Moment], Value] | None = None


def _status(*keys: str) -> Callable[[Moment], Value]:
    """Reads the value at a path of keys in the status, None if a key on the way is None."""

    def read(moment: Moment) -> Value:
        value: Any = moment.reply
        for key in keys:
            value = value and value[key]
        return None if value is None else float(value)

    return read


METRICS = (
    Metric("streamer_build_info", "gauge", "Always 1; the labels say which program runs.",
           ("version", "protocol", "python"),
           lambda _: {(__version__, str(PROTOCOL), platform.python_version()): 1}),
    Metric("streamer_state", "gauge", "1 for the state that the daemon is in, 0 for the others.",
           ("state",),
           lambda now: {state: state == now.reply["state"] for state in STATES}),
    # what was published
    Metric("streamer_batches_total", "counter", "Published batches.",
           read=_status("totals", "batches")),
    Metric("streamer_reads_total", "counter", "Reads of published batches.",
           read=_status("totals", "reads")),
    Metric("streamer_bases_total", "counter", "Bases of published batches.",
           read=_status("totals", "bases")),
    Metric("streamer_windows_total", "counter",
           "Windows by event, match or mismatch; a revision after a reload corrects them.",
           ("event",),
           lambda now: {name: now.reply["totals"][f"{name}es"] for name in ("match", "mismatch")}),
    Metric("streamer_skipped_windows_total", "counter",
           "Windows that hold an ambiguity code and are not matched.",
           read=_status("totals", "skipped")),
    Metric("streamer_reads_on_target_total", "counter", "Reads with at least one matching window.",
           read=_status("totals", "reads_on_target")),
    Metric("streamer_target_reads_total", "counter",
           "Reads assigned to a target, by barcode; '.' is none, 'other' all beyond the limit.",
           ("target", "barcode")),
    Metric("streamer_new_kmers_total", "counter", "K-mers that reads added to the dictionary.",
           read=_status("totals", "new_kmers")),
    Metric("streamer_batch_duration_seconds", "histogram",
           "From the acceptance of a batch until its results are published."),
    # the dictionary
    Metric("streamer_dictionary_kmers", "gauge", "K-mers of the dictionary.",
           read=_status("dictionary", "kmers")),
    Metric("streamer_dictionary_targets", "gauge", "Targets of the dictionary.",
           read=_status("dictionary", "targets")),
    Metric("streamer_dictionary_version", "gauge", "Version of the dictionary.",
           read=_status("dictionary", "version")),
    Metric("streamer_dictionary_limited", "gauge", "1 once the dictionary is at its limit.",
           read=_status("dictionary", "limited")),
    Metric("streamer_revision_batches", "gauge",
           "Batches of the journal that are still to be matched again after a reload.",
           read=lambda now: (now.reply["revision"] or {"batches": 0})["batches"]),
    # queues
    Metric("streamer_queue_bytes", "gauge",
           "Bytes that wait: at ingest of batches that are not published, at the feed of messages "
           "for subscribers.", ("stage",),
           lambda now: {"ingest": now.reply["queue"]["bytes"], "feed": now.reply["feed"]["bytes"]}),
    Metric("streamer_queue_limit_bytes", "gauge",
           "At ingest producers get no more credit from here on, at the feed the slowest "
           "subscriber is disconnected.", ("stage",),
           lambda now: {"ingest": now.reply["queue"]["limit_bytes"],
                      "feed": now.reply["feed"]["limit_bytes"]}),
    Metric("streamer_queue_batches", "gauge", "Batches that are accepted and not published.",
           read=_status("queue", "batches")),
    Metric("streamer_queue_items", "gauge",
           "Items at each stage: batches at the engine, groups of batches at journal and feed, "
           "merges and snapshots at the tree.", ("stage",),
           lambda now: {name: stage.queued() for name, stage in now.stages.items()}),
    # clients
    Metric("streamer_producers", "gauge", "Known producers.", read=_status("producers", "known")),
    Metric("streamer_active_producers", "gauge",
           "Producers that sent something in the last five seconds or wait for results.",
           read=_status("producers", "active")),
    Metric("streamer_refused_messages_total", "counter",
           "Messages of producers that were refused, not counting those without credit.",
           read=_status("refused")),
    Metric("streamer_passed_over_reads_total", "counter",
           "Reads of the watched folder that are larger than a batch.",
           read=_status("passed_over")),
    Metric("streamer_subscriptions", "gauge", "Subscriptions of the feed, over all connections.",
           read=_status("subscriptions", "kept")),
    Metric("streamer_ignored_subscriptions_total", "counter",
           "Subscriptions that match no topic.", read=_status("subscriptions", "ignored")),
    Metric("streamer_feed_dropped_total", "counter",
           "Subscribers that were disconnected because they read too slowly: what waited for "
           "them is dropped.", read=_status("feed", "slow")),
    Metric("streamer_unanswered_requests_total", "counter",
           "Requests on control that got no reply.", read=_status("unanswered")),
    Metric("streamer_jobs", "gauge", "Known batch jobs, by their state.", ("state",),
           lambda now: now.reply["jobs"]),
    # durability
    Metric("streamer_undurable_batches", "gauge", "Accepted batches that are not durable.",
           read=_status("undurable", "batches")),
    Metric("streamer_undurable_bytes", "gauge", "Bytes of accepted batches that are not durable.",
           read=_status("undurable", "bytes")),
    Metric("streamer_undurable_age_seconds", "gauge",
           "How long ago the oldest batch that is not durable was accepted; 0: there is none.",
           read=_status("undurable", "age_seconds")),
    Metric("streamer_journal_bytes", "gauge", "Bytes of the records that the journal keeps.",
           read=_status("journal", "bytes")),
    Metric("streamer_journal_disk_bytes", "gauge", "Bytes of all files of the journal.",
           read=_status("journal", "disk")),
    Metric("streamer_journal_limit_bytes", "gauge",
           "From here on the oldest records are deleted; 0: no limit.",
           read=lambda now: now.status.journal and now.status.config.journal.keep_bytes),
    Metric("streamer_journal_full", "gauge",
           "1 while the disk of the journal has no room, so that no batch is accepted.",
           read=lambda now: now.status.journal and now.status.journal_full),
    # stages
    Metric("streamer_stage_busy_seconds_total", "counter",
           "Seconds that a stage worked; of sync the seconds of a CPU.", ("stage",),
           lambda now: {name: stage.busy_seconds() for name, stage in now.stages.items()}),
    Metric("streamer_stage_progress_age_seconds", "gauge",
           "Seconds that work has waited at a stage without progress; 0: none waits.",
           ("stage",),
           lambda now: now.status.stage_ages),
    Metric("streamer_stage_stuck", "gauge",
           "1 while the watchdog names a stage: ten seconds without progress.", ("stage",),
           lambda now: {name: name in now.status.stuck for name in now.status.stage_ages}),
    Metric("streamer_stage_stalls_total", "counter", "How often the watchdog named a stage.",
           ("stage",),
           lambda now: now.status.stalls),
    # the process
    Metric("streamer_log_dropped_total", "counter", "Lines of the log that could not be written.",
           read=_status("log", "dropped")),
    Metric("streamer_gpus", "gauge", "GPUs that match; 0: the CPU does.",
           read=lambda now: len(now.status.cards)),
    Metric("streamer_gpu_memory_used_bytes", "gauge",
           "Memory of a GPU in use, by all programs.", ("gpu",)),
    Metric("streamer_gpu_memory_size_bytes", "gauge", "Memory that a GPU has.", ("gpu",)),
)  # fmt: skip


Pair = tuple[str, str]
"""Target and barcode."""

NONE = "."
OTHER: Pair = ("other", "other")


class TargetSeries:
    """Which pairs have a series: at most ``limit``, plus one for all others together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._own: set[Pair] = set()

    def counts(
        self, rows: Iterable[tuple[str | None, str | None, int]], *, anew: bool = False
    ) -> dict[Pair, int]:
        """Reads by pair. rows: barcode, target, reads. anew: forget which pairs have a series."""
        if anew:
            self._own.clear()
        counts: dict[Pair, int] = {}
        for barcode, target, reads in rows:
            if not reads:
                continue
            pair = target or NONE, barcode or NONE
            if pair not in self._own:
                if len(self._own) < self._limit:
                    self._own.add(pair)
                else:
                    pair = OTHER
            counts[pair] = counts.get(pair, 0) + reads
        return counts


_BY_NAME = {metric.name: metric for metric in METRICS}


class StatusCollector(Collector):
    """Reads the status; nothing is counted for it beforehand."""

    def __init__(self, status: DaemonStatus, stages: Mapping[str, MeasuredStage]) -> None:
        self._status = status
        self._stages = stages
        self._series = TargetSeries(status.config.metrics.target_series)
        # counts start again with another dictionary
        self._tally: TargetTally | None = None
        self._memory = DeviceMemory()

    def collect(self) -> Iterator[Family]:
        """All metrics that have a value now."""
        status = self._status
        # read first, since batches are counted here last: so no scrape has more of these than reads
        targets = self._targets()
        moment = Moment(status.fields(), status, self._stages)
        for metric in METRICS:
            if metric.read is not None:
                yield _family(metric, metric.read(moment))
        yield _family(_BY_NAME["streamer_target_reads_total"], targets)
        yield self._durations()
        memory = self._memory.read(status.cards)
        for at, name in enumerate(("used", "size")):
            values = {str(number): sizes[at] for number, sizes in memory.items()}
            yield _family(_BY_NAME[f"streamer_gpu_memory_{name}_bytes"], values)

    def _targets(self) -> dict[Pair, int]:
        tally = self._status.tally
        if tally is None:
            return {}
        anew, self._tally = tally is not self._tally, tally
        return self._series.counts(tally.reads(), anew=anew)

    def _durations(self) -> Family:
        metric = _BY_NAME["streamer_batch_duration_seconds"]
        durations = self._status.durations
        seconds, counts = durations.seconds, list(durations.counts)
        bounds = [*map(str, BOUNDS), "+Inf"]
        buckets = [*zip(bounds, accumulate(counts), strict=True)]
        return HistogramMetricFamily(metric.name, metric.meaning, buckets, seconds)


def _family(metric: Metric, value: Value) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    if not isinstance(value, Mapping):
        value = {} if value is None else {(): value}
    for labels, number in value.items():
        family.add_metric([labels] if isinstance(labels, str) else labels, float(number))
    return family


class Scrape:
    """Makes the text of scrapes, one at a time."""

    def __init__(self, status: DaemonStatus, stages: Mapping[str, MeasuredStage]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(StatusCollector(status, stages))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the best format that an ``Accept`` header names."""
        encode, kind = choose_encoder(accept)
        with self._lock:
            return encode(self._registry), kind
