"""Every metric of the daemon: its name, labels, meaning, and the source of its values."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from streamer import __version__
from streamer.daemon.board import Board
from streamer.daemon.core.jobs import JOB_STATES
from streamer.daemon.core.life import DRAINING, ENDED, FAILED, FULL, RUNNING, STARTING
from streamer.daemon.watched_stages import MeasuredStage
from streamer.protocol.header import PROTOCOL

Kind = Literal["counter", "gauge", "histogram"]
Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and the value of the metric for them."""

STATES = (STARTING, RUNNING, FULL, DRAINING, ENDED, FAILED)


class Moment(NamedTuple):
    """The sources of values: the reply to ``status``, the board, stages by name."""

    status: Mapping[str, Any]
    board: Board
    stages: Mapping[str, MeasuredStage]


class Metric(NamedTuple):
    """A metric. name: as in a scrape, with ``_total`` for a counter. read: returns its samples.

    Without ``read``, another module has the values.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    read: Callable[[Moment], Samples] | None = None


def _status(*keys: str) -> Callable[[Moment], Samples]:
    """Reads the value at a path of keys in the status; no sample if a key is missing."""

    def read(moment: Moment) -> Samples:
        value: Any = moment.status
        for key in keys:
            value = value and value[key]
        return [] if value is None else [((), float(value))]

    return read


def _windows(moment: Moment) -> Samples:
    totals = moment.status["totals"]
    return [(("match",), totals["matches"]), (("mismatch",), totals["mismatches"])]


def _queue_bytes(moment: Moment) -> Samples:
    status = moment.status
    return [(("ingest",), status["queue"]["bytes"]), (("feed",), status["feed"]["bytes"])]


def _queue_limits(moment: Moment) -> Samples:
    status = moment.status
    limits = status["queue"]["limit_bytes"], status["feed"]["limit_bytes"]
    return [(("ingest",), limits[0]), (("feed",), limits[1])]


def _queues(moment: Moment) -> Samples:
    return [((name,), stage.queued()) for name, stage in moment.stages.items()]


def _busy(moment: Moment) -> Samples:
    return [((name,), stage.busy_seconds()) for name, stage in moment.stages.items()]


def _ages(moment: Moment) -> Samples:
    return [((name,), age) for name, age in moment.board.stage_ages.items()]


def _stuck(moment: Moment) -> Samples:
    board = moment.board
    return [((name,), name in board.stuck) for name in board.stage_ages]


def _stalls(moment: Moment) -> Samples:
    return [((name,), count) for name, count in moment.board.stalls.items()]


def _revision(moment: Moment) -> Samples:
    revision = moment.status["revision"]
    return [((), revision["batches"] if revision else 0)]


def _state(moment: Moment) -> Samples:
    return [((state,), state == moment.status["state"]) for state in STATES]


def _jobs(moment: Moment) -> Samples:
    counts = moment.status["jobs"]
    return [] if counts is None else [((state,), counts[state]) for state in JOB_STATES]


def _journal_full(moment: Moment) -> Samples:
    return [] if moment.board.journal is None else [((), moment.board.journal_full)]


def _journal_limit(moment: Moment) -> Samples:
    board = moment.board
    return [] if board.journal is None else [((), board.config.journal.keep_bytes)]


def _build(moment: Moment) -> Samples:
    return [((__version__, str(PROTOCOL), platform.python_version()), 1)]


def _gpus(moment: Moment) -> Samples:
    return [((), len(moment.board.cards))]


METRICS = (
    Metric("streamer_build_info", "gauge", "Always 1; the labels say which program runs.",
           ("version", "protocol", "python"), _build),
    Metric("streamer_state", "gauge", "1 for the state that the daemon is in, 0 for the others.",
           ("state",), _state),
    # what was published
    Metric("streamer_batches_total", "counter", "Published batches.",
           read=_status("totals", "batches")),
    Metric("streamer_reads_total", "counter", "Reads of published batches.",
           read=_status("totals", "reads")),
    Metric("streamer_bases_total", "counter", "Bases of published batches.",
           read=_status("totals", "bases")),
    Metric("streamer_windows_total", "counter",
           "Windows by event, match or mismatch; a revision after a reload corrects them.",
           ("event",), _windows),
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
           read=_revision),
    # queues
    Metric("streamer_queue_bytes", "gauge",
           "Bytes that wait: at ingest of batches that are not published, at the feed of messages "
           "for subscribers.", ("stage",), _queue_bytes),
    Metric("streamer_queue_limit_bytes", "gauge",
           "At ingest producers get no more credit from here on, at the feed the slowest "
           "subscriber is disconnected.", ("stage",), _queue_limits),
    Metric("streamer_queue_batches", "gauge", "Batches that are accepted and not published.",
           read=_status("queue", "batches")),
    Metric("streamer_queue_items", "gauge",
           "Items at each stage: batches at the engine, groups of batches at journal and feed, "
           "merges and snapshots at the tree.", ("stage",), _queues),
    # clients
    Metric("streamer_producers", "gauge", "Known producers.", read=_status("producers", "known")),
    Metric("streamer_active_producers", "gauge",
           "Producers that sent something in the last five seconds or wait for results.",
           read=_status("producers", "active")),
    Metric("streamer_refused_messages_total", "counter",
           "Messages of producers that were refused, not counting those without credit.",
           read=_status("refused")),
    Metric("streamer_subscriptions", "gauge", "Subscriptions of the feed, over all connections.",
           read=_status("subscriptions", "kept")),
    Metric("streamer_ignored_subscriptions_total", "counter",
           "Subscriptions that match no topic.", read=_status("subscriptions", "ignored")),
    Metric("streamer_feed_dropped_total", "counter",
           "Subscribers that were disconnected because they read too slowly: what waited for "
           "them is dropped.", read=_status("feed", "slow")),
    Metric("streamer_unanswered_requests_total", "counter",
           "Requests on control that got no reply.", read=_status("unanswered")),
    Metric("streamer_jobs", "gauge", "Known batch jobs, by their state.", ("state",), _jobs),
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
           "From here on the oldest records are deleted; 0: no limit.", read=_journal_limit),
    Metric("streamer_journal_full", "gauge",
           "1 while the disk of the journal has no room, so that no batch is accepted.",
           read=_journal_full),
    # stages
    Metric("streamer_stage_busy_seconds_total", "counter",
           "Seconds that a stage worked; of sync the seconds of a CPU.", ("stage",), _busy),
    Metric("streamer_stage_progress_age_seconds", "gauge",
           "Seconds that work has waited at a stage without progress; 0: none waits.",
           ("stage",), _ages),
    Metric("streamer_stage_stuck", "gauge",
           "1 while the watchdog names a stage: ten seconds without progress.", ("stage",), _stuck),
    Metric("streamer_stage_stalls_total", "counter", "How often the watchdog named a stage.",
           ("stage",), _stalls),
    # the process
    Metric("streamer_log_dropped_total", "counter", "Lines of the log that could not be written.",
           read=_status("log", "dropped")),
    Metric("streamer_gpus", "gauge", "GPUs that match; 0: the CPU does.", read=_gpus),
    Metric("streamer_gpu_memory_used_bytes", "gauge",
           "Memory of a GPU in use, by all programs.", ("gpu",)),
    Metric("streamer_gpu_memory_size_bytes", "gauge", "Memory that a GPU has.", ("gpu",)),
)  # fmt: skip
