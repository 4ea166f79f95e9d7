"""The text of a scrape: the state of the board at this moment, in the formats of Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from streamer.daemon.board import Board
from streamer.daemon.durations import BOUNDS
from streamer.daemon.metrics.device_memory import DeviceMemory
from streamer.daemon.metrics.exported import METRICS, Metric, Moment, Samples
from streamer.daemon.metrics.target_series import TargetSeries
from streamer.daemon.watched_stages import MeasuredStage
from streamer.matching.target_tally import TargetTally

_BY_NAME = {metric.name: metric for metric in METRICS}


class BoardCollector(Collector):
    """Reads the board; nothing is counted for it beforehand."""

    def __init__(self, board: Board, stages: Mapping[str, MeasuredStage]) -> None:
        self._board = board
        self._stages = stages
        self._series = TargetSeries(board.config.metrics.target_series)
        # counts start again with another dictionary
        self._tally: TargetTally | None = None
        self._memory = DeviceMemory()

    def collect(self) -> Iterator[Family]:
        """All metrics that have a value now."""
        board = self._board
        # read first, since batches are counted here last: so no scrape has more of these than reads
        targets = self._targets()
        moment = Moment(board.fields(), board, self._stages)
        for metric in METRICS:
            if metric.read is not None:
                yield _family(metric, metric.read(moment))
        yield _family(_BY_NAME["streamer_target_reads_total"], targets)
        yield self._durations()
        memory = self._memory.read(board.cards)
        for at, name in enumerate(("used", "size")):
            samples = [((str(number),), sizes[at]) for number, sizes in memory.items()]
            yield _family(_BY_NAME[f"streamer_gpu_memory_{name}_bytes"], samples)

    def _targets(self) -> Samples:
        tally = self._board.tally
        if tally is None:
            return []
        anew, self._tally = tally is not self._tally, tally
        return self._series.counts(tally.reads(), anew=anew).items()

    def _durations(self) -> Family:
        metric = _BY_NAME["streamer_batch_duration_seconds"]
        durations = self._board.durations
        seconds, counts = durations.seconds, list(durations.counts)
        bounds = [*map(str, BOUNDS), "+Inf"]
        buckets = [*zip(bounds, accumulate(counts), strict=True)]
        return HistogramMetricFamily(metric.name, metric.meaning, buckets, seconds)


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, float(value))
    return family


class Scrape:
    """Makes the text of scrapes, one at a time."""

    def __init__(self, board: Board, stages: Mapping[str, MeasuredStage]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BoardCollector(board, stages))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the best format that an ``Accept`` header names."""
        encode, kind = choose_encoder(accept)
        with self._lock:
            return encode(self._registry), kind
