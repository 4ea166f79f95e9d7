"""A StreamMatcher whose windows are looked up by the workers of a cluster.

This process maintains the order of the stream, versions, labels and the tree. A fixed dictionary is
matched by replicas or by shards: each shard holds a range of the ascending codes, and a window
matches if any shard knows it. While a dictionary grows, workers look up what they know; windows
they do not know are added to the index here, in stream order, so the first window of a k-mer
mismatches, as on one machine. Added k-mers are sent to the workers before the next span.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from streamer.matching.events import Bits, Events, add_bits, no_bits
from streamer.matching.match_engine import (
    NO_CODES,
    Found,
    MatchEngine,
    MatchTask,
    SpanFound,
    chunk_bounds,
    slice_reads,
)
from streamer.matching.matcher import Start, StreamMatcher
from streamer.matching.record_runs import NO_RUNS, Runs, runs_of_places
from streamer.matching.result import concatenated
from streamer.matching.spec import MatchSpec
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import lacking
from trie.cpu.threads import run_all, usable_cores
from trie.windows import MATCH, MISMATCH, NO_SET, clear_at, window_codes, window_starts

LEAST_PART = 1 << 16
"""Symbols per part: a request takes up to a millisecond, and matching these about as long."""


class ClusterMatcher(StreamMatcher):
    """Like StreamMatcher, for exact matching; ``workers`` and ``shards`` as in the daemon's config.

    say: called with lines about workers.
    """

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
            self._cluster, self.dictionary, self.spec, local, workers, shards, self._say, self._runs
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
    """Sends requests to workers. local: makes the engine of this process. runs: find them, too."""

    def __init__(
        self, cluster: Cluster, dictionary: Dictionary, spec: MatchSpec,
        local: Callable[[], MatchEngine], workers: int, shards: int, say: Callable[[str], None],
        runs: bool,
    ) -> None:  # fmt: skip
        self._dictionary = dictionary
        self._k = spec.k
        self._changes = spec.changes
        self._wants_runs = runs
        self._threads = spec.threads or usable_cores()
        self._canonical = self._dictionary.strands != "forward"
        self._make_local = local
        self._local: CpuEngine | None = None
        if spec.changes:
            self.local()
        self._say = say
        self._alone = False
        places = dictionary.places if runs else None
        setups = [*_shards(dictionary, places, shards)]
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
        codes = self._dictionary.codes
        if not self._changes or len(self.local()) == codes.size:
            return NO_CODES
        return lacking(codes, self.local().codes())

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

    def find(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Found]:
        for batch in batches:
            answer = None
            if self._workers_are_there():
                with self._alone_without_workers():
                    places = np.full(batch.symbols if self._wants_runs else 0, NO_SET, np.uint32)
                    bits, _ = self._ask(batch, 0, batch.symbols, places, missed=False)
                    answer = Found(Events(batch.symbols, bits), self._runs_of(batch, places))
            yield from [answer] if answer else self.local().find([batch], snapshot)

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Like ``MatchEngine.run``. This process finds trie nodes and depths."""
        done: list[SpanFound] = []
        if task.depths is None and task.grows and self._workers_are_there():
            with self._alone_without_workers():
                for answer in self._run_there(task):
                    done.append(answer)
                    yield answer
                return
        # a span in which workers failed has changed nothing
        for answer in self.local().run(replace(task, spans=task.spans[len(done) :])):
            if answer.codes.size:
                self._team.learn(answer.codes)
            yield answer
        for answer in done:
            if not answer.seeding:
                clear_at(task.bits[1], answer.starts)

    @contextmanager
    def _alone_without_workers(self) -> Iterator[None]:
        """Go on in this process if there are no workers, unless they have shards."""
        try:
            yield
        except NoWorkersError as error:
            if self._team.shards > 1:
                raise
            self._alone = True
            self._say(f"{error}: matching in the daemon")

    def _run_there(self, task: MatchTask) -> Iterator[SpanFound]:
        """Match with workers; NoWorkersError leaves the index as it was after the last span."""
        batch, (starts, matches) = task.batch, task.bits
        places = np.full(batch.symbols if self._wants_runs else 0, NO_SET, np.uint32)
        mismatched = []
        for seeding, chunks in task.spans:
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            bits, missed = self._ask(batch, start, stop, places, missed=not seeding)
            if seeding:
                codes, new = self.local().grow(batch, start, stop)
            else:
                new = start + np.flatnonzero(Events(stop - start, bits).codes == MISMATCH)
                stay = self.local().add(missed)
                codes, new = missed[stay], new[stay]
                mismatched.append(new)
            if codes.size:
                self._team.learn(codes)
            yield SpanFound(seeding, chunks, 0, codes, new)
        starts[:] = window_starts(batch.bases, batch.offsets, self._k, threads=self._threads)
        matches[:] = starts
        for new in mismatched:
            clear_at(matches, new)
        task.runs.append(self._runs_of(batch, places))

    def _runs_of(self, batch: ReadBatch, places: NDArray[np.uint32]) -> Runs:
        if not places.size:
            return NO_RUNS
        return runs_of_places(self._dictionary.index, places, batch.offsets, self._threads)

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
        self, batch: ReadBatch, start: int, stop: int, places: NDArray[np.uint32], *, missed: bool
    ) -> tuple[Bits, NDArray[np.uint64]]:
        """Return the events of symbols [start, stop) and, if ``missed``, the codes of mismatches.

        Also fill in ``places``, one per symbol of the batch, unless it is empty. A window matches
        if any shard knows it.
        """
        offsets, bases = batch.offsets, batch.bases
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
            if answer.places is not None:
                matching = Events(b - a, answer.bits).codes == MATCH
                places[a:b][matching] = answer.places

        requests = run_all([partial(request, a, b) for a, b in parts], self._threads)
        self._team.ask(requests, take)
        if missed and not alone:
            # codes that no shard knows
            events = Events(stop - start, bits).codes
            for number, (a, b) in enumerate(parts):
                windows, starts = window_codes(
                    bases[a:b], slice_reads(offsets, a, b), self._k, canonical=self._canonical
                )
                codes[number] = windows[events[a - start : b - start][starts] == MISMATCH]
        return bits, concatenated(codes, NO_CODES)


def _shards(
    whole: Dictionary, places: NDArray[np.uint32] | None, shards: int
) -> Iterator[WorkerSetup]:
    """Split the dictionary into ranges of ascending codes with similar numbers of k-mers."""
    size = whole.codes.size
    inner = [
        int(whole.codes[size * shard // shards]) if size else 4**whole.k * shard // shards
        for shard in range(1, shards)
    ]
    lows = [0, *inner, 1 << 64]
    cuts = [0, *np.searchsorted(whole.codes, np.array(inner, np.uint64)).tolist(), size]
    for (first, stop), (low, high) in zip(pairwise(cuts), pairwise(lows), strict=True):
        some = None if places is None else places[first:stop]
        yield WorkerSetup(whole.k, whole.strands, whole.codes[first:stop], some, low, high)
