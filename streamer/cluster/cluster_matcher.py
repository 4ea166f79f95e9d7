"""A StreamMatcher whose windows are looked up by the workers of a cluster.

This process maintains the order of the stream, versions, labels and the tree. A fixed dictionary is
matched by replicas or by shards: each shard holds a range of the ascending codes, and a window
matches if any shard knows it. While a dictionary grows, workers look up what they know; windows
they do not know are added to the index here, in stream order, so the first window of a k-mer
mismatches, as on one machine. Added k-mers are sent to the workers before the next span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamer.cluster.connecting import Cluster
from streamer.cluster.match_worker import MatchAnswer, MatchRequest, WorkerSetup
from streamer.cluster.worker_team import NoWorkersError, WorkerTeam
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.cpu import CpuEngine
from streamer.matching.events import Bits, Events, add_bits, no_bits, to_codes
from streamer.matching.match_engine import (
    NO_CODES,
    NO_STARTS,
    MatchEngine,
    MatchTask,
    SpanFound,
    chunk_bounds,
    slice_reads,
)
from streamer.matching.matcher import StreamMatcher
from streamer.matching.result import concatenated
from streamer.matching.spec import MatchSpec
from streamer.matching.starting import Start
from streamer.matching.window_labels import WindowLabels
from trie.ascending import lacking
from trie.cpu.threads import run_all, usable_cores
from trie.windows import MATCH, MISMATCH, window_codes

LEAST_PART = 1 << 16
"""Symbols per part: a request takes up to a millisecond, and matching these about as long."""


class ClusterMatcher(StreamMatcher):
    """Like StreamMatcher, for exact matching; ``workers`` and ``shards`` as in the daemon's config.

    say: called with lines about workers.
    """

    keeps_index = False

    def __init__(
        self,
        dictionary: Dictionary,
        spec: MatchSpec,
        cluster: Cluster,
        *,
        workers: int = 0,
        shards: int = 1,
        start: Start | None = None,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._size = workers, shards
        self._say = say
        super().__init__(dictionary, replace(spec, device="cpu"), start=start)

    def _cpu_engine(self) -> MatchEngine:
        workers, shards = self._size
        local = super()._cpu_engine
        return ClusterEngine(
            self._cluster, self.labels, self.spec, local, workers, shards, self._say
        )

    @property
    def workers(self) -> int:
        """The number of workers that can be asked, when last seen."""
        return self._engine.workers if isinstance(self._engine, ClusterEngine) else 0

    @property
    def side_by_side(self) -> bool:
        """Return False: only one thread may send requests to workers."""
        return False


class ClusterEngine(MatchEngine):
    """Sends requests to workers. local: makes the engine of this process."""

    def __init__(
        self, cluster: Cluster, labels: WindowLabels, spec: MatchSpec,
        local: Callable[[], MatchEngine], workers: int, shards: int, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._dictionary = labels.dictionary
        self._k = spec.k
        self._changes = spec.changes
        self._threads = spec.threads or usable_cores()
        self.finds_bits = not spec.changes
        self._canonical = self._dictionary.strands != "forward"
        self._make_local = local
        self._local: CpuEngine | None = None
        if spec.changes:
            self.local()
        self._say = say
        self._alone = False
        setups = [
            WorkerSetup(part, spec.changes, labels.needed, low, high)
            for part, low, high in _shards(labels.dictionary, shards)
        ]
        self._team = WorkerTeam(cluster, setups, workers, self._known, say)

    @property
    def workers(self) -> int:
        """The number of workers that can be asked."""
        return self._team.ready

    def local(self) -> CpuEngine:
        """The engine of this process: it adds k-mers, and matches if there are no workers."""
        if self._local is None:
            made = self._make_local()
            assert isinstance(made, CpuEngine)
            self._local = made
        return self._local

    def _known(self) -> NDArray[np.uint64]:
        """Return the codes that a new worker learns: those that its dictionary lacks."""
        given = self._dictionary.codes
        if not self._changes or len(self.local()) == given.size:
            return NO_CODES
        return lacking(given, self.local().codes())

    def __len__(self) -> int:
        return len(self.local()) if self._changes else self._dictionary.kmers

    def codes(self) -> NDArray[np.uint64]:
        return self.local().codes() if self._changes else self._dictionary.codes

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers without a target, here and in all workers."""
        self.local().learn(codes)
        self._team.learn(codes)

    def close(self) -> None:
        """Stop the workers."""
        self._team.close()

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Like ``MatchEngine.run``. This process finds trie nodes and depths."""
        done = 0
        if task.depths is None and self._workers_are_there():
            try:
                for found in self._run_there(task):
                    yield found
                    done += 1
                return
            except NoWorkersError as error:
                if self._team.shards > 1:
                    raise
                self._alone = True
                self._say(f"{error}: matching in the daemon")
        # a span in which workers failed has changed nothing
        alone = self.local()
        events = task.events
        if self.finds_bits and not alone.finds_bits:
            events = np.zeros(task.batch.bases.size, np.uint8)
        for found in alone.run(replace(task, spans=task.spans[done:], events=events)):
            if events is not task.events:
                found = found._replace(events=Events(events.size, codes=events))
            if found.codes.size:
                self._team.learn(found.codes)
            yield found

    def _run_there(self, task: MatchTask) -> Iterator[SpanFound]:
        """Match with workers.

        NoWorkersError leaves arrays and index as they were after the last span.
        """
        if self.finds_bits:
            size = task.batch.bases.size
            if task.spans:
                chunks = np.concatenate([part for _, part in task.spans])
                bits, _ = self._ask(task, 0, size, missed=False)
                yield SpanFound(False, chunks, 0, events=Events(size, bits=bits))
            return
        for seeding, chunks in task.spans:
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            codes, starts = NO_CODES, NO_STARTS
            if seeding:
                codes, starts = self.local().seed(task, start, stop)
            else:
                bits, missed = self._ask(task, start, stop, missed=task.grows)
                to_codes(*bits, task.events[start:stop])
                if task.grows:
                    places = start + np.flatnonzero(task.events[start:stop] == MISMATCH)
                    stay = self.local().add(missed)
                    task.events[places[~stay]] = MATCH
                    codes, starts = missed[stay], places[stay]
            if codes.size:
                self._team.learn(codes)
            yield SpanFound(seeding, chunks, 0, codes, starts)

    def _workers_are_there(self) -> bool:
        there = self._team.here
        if not there and self._team.shards > 1:
            raise StreamerError(f"a shard of the dictionary has no worker ({self._team.reason()})")
        if there == self._alone:
            self._alone = not there
            self._say(
                "workers of the cluster match" if there
                else f"the cluster has no workers ({self._team.reason()}): matching in the daemon"
            )  # fmt: skip
        return there

    def _ask(
        self, task: MatchTask, start: int, stop: int, *, missed: bool
    ) -> tuple[Bits, NDArray[np.uint64]]:
        """Return the events of symbols [start, stop) and the codes of mismatches; fill in labels.

        A window matches if any shard knows it.
        """
        offsets, bases = task.batch.offsets, task.batch.bases
        # a part for each worker; those of one read overlap by k - 1 symbols
        each = -(-(stop - start) // max(1, self._team.size)) + self._k
        parts = chunk_bounds(offsets, self._k, max(LEAST_PART, each), start, stop).tolist()
        alone = self._team.shards == 1
        bits = no_bits(stop - start)
        codes = [NO_CODES] * len(parts)

        def request(a: int, b: int) -> MatchRequest:
            reads = slice_reads(offsets, a, b)
            return MatchRequest.of(bases[a:b], reads, missed=missed and alone)

        def take(number: int, answer: MatchAnswer) -> None:
            a, b = parts[number]
            for whole, part in zip(bits, answer.bits, strict=True):
                add_bits(part, a - start, whole)
            codes[number] = answer.missed.copy()
            if task.sets is not None and answer.labels is not None:
                places = Events(b - a, bits=answer.bits).codes == MATCH
                task.sets[a:b][places] = answer.labels

        requests = run_all([partial(request, a, b) for a, b in parts], self._threads)
        self._team.ask(requests, take)
        if missed and not alone:
            # codes that no shard knows
            events = Events(stop - start, bits=bits).codes
            for number, (a, b) in enumerate(parts):
                windows, starts = window_codes(
                    bases[a:b], slice_reads(offsets, a, b), self._k, canonical=self._canonical
                )
                codes[number] = windows[events[a - start : b - start][starts] == MISMATCH]
        return bits, concatenated(codes, NO_CODES)


def _shards(whole: Dictionary, shards: int) -> Iterator[tuple[Dictionary, int, int]]:
    """Split the dictionary into ranges of ascending codes with similar numbers of k-mers."""
    if shards == 1:
        yield whole, 0, 1 << 64
        return
    size = whole.codes.size
    inner = [
        int(whole.codes[size * shard // shards]) if size else 4**whole.k * shard // shards
        for shard in range(1, shards)
    ]
    lows = [0, *inner, 1 << 64]
    cuts = [0, *np.searchsorted(whole.codes, np.array(inner, np.uint64)).tolist(), size]
    for (first, stop), (low, high) in zip(pairwise(cuts), pairwise(lows), strict=True):
        lists = whole.codes[first:stop], whole.sets[first:stop]
        part = Dictionary(whole.k, whole.strands, *lists, whole.targets)
        yield part, low, high
