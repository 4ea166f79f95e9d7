"""The matcher: batches of reads in, events out, with a dictionary that is frozen or grows.

It does no I/O. The command line, the daemon and the benchmarks all call it. Two structures hold the
dictionary: the engine decides exactly whether a window matches; the snapshot, a Tree Bitmap, tells
how deep a window goes in the trie. A fixed dictionary has one snapshot, made on first use; for
depths alone it needs none. A changing one is followed by a tree worker, from the start or once a
snapshot is needed. The engine is ahead of it, so a k-mer is known from the window that first held
it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import GpuOrCpu, OnFallback, usable_cards
from streamer.dictionary.index import check_listed
from streamer.dictionary.targets import LARGE, Dictionary
from streamer.errors import StreamerError, UsageError
from streamer.matching import match_engine
from streamer.matching.cpu import CpuEngine
from streamer.matching.events import Events, no_bits
from streamer.matching.match_engine import NO_CODES, Found, MakeBatch, MakeTogether
from streamer.matching.near import NearSteps, Solver, new_solver
from streamer.matching.record_runs import NO_RUNS, Runs
from streamer.matching.result import BatchResult, Depths, concatenated
from streamer.matching.spec import MatchSpec
from streamer.matching.tree_worker import TreeWorker, VersionedSnapshot, built
from streamer.sequences.read_batch import ReadBatch, joined_batches
from trie.codes import with_reverse_complements
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores
from trie.prefixes import PrefixDepths
from trie.trees.hybrid_tree import snapshot
from trie.trees.shards import sort_unique
from trie.windows import NO_SET


@dataclass(frozen=True, slots=True)
class Start:
    """Where a matcher begins: after ``number`` batches and ``position`` symbols of the stream.

    version: of the dictionary. grown: uint64, the k-mers that the stream added. learned: uint64,
    k-mers, as stored, that a distance is measured to, as in ``BatchResult``. Both in any order.
    """

    number: int = 0
    position: int = 0
    version: int = 1
    grown: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)
    learned: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)


def load_dictionary(
    spec: MatchSpec,
    *,
    as_stored: bool = False,
    on_notice: Callable[[str], None] | None = None,
    team: Team | None = None,
) -> Dictionary:
    """Load the initial dictionary of a StreamMatcher.

    as_stored: k-mers as they stand in the records; always so for a distance. on_notice: called with
    one line about a saved dictionary that lacks targets. team: the threads that build it.
    """
    as_stored = as_stored or spec.near
    if not spec.sources:
        return Dictionary.empty(spec.k, "forward" if as_stored else spec.strands)
    return Dictionary.from_files(
        spec.sources, spec.k, spec.strands, targets=spec.targets or None,
        target_by=spec.target_by, as_stored=as_stored, on_notice=on_notice, team=team,
    )  # fmt: skip


def known_dictionary(dictionary: Dictionary, spec: MatchSpec) -> Dictionary:
    """Derive the dictionary of exact matching from the initial one."""
    if spec.exact:
        return dictionary.known_as(spec.strands)
    if spec.changes:
        # exact matching only finds new k-mers here; no target is reported
        return dictionary.without_targets(spec.strands)
    return Dictionary(dictionary.index, dictionary.grown, strands=spec.strands)


class DepthsAlone:
    """Measures depths in a fixed dictionary; thread-safe.

    The index it uses is built on first use.
    """

    def __init__(self, dictionary: Dictionary, threads: int) -> None:
        self._dictionary = dictionary
        self._threads = threads
        self._prefixes: PrefixDepths | None = None
        self._making = threading.Lock()

    def of(self, batch: ReadBatch, events: Events) -> Depths:
        """Return the depths of the windows of a batch whose events are known."""
        depths = np.zeros(batch.symbols, dtype=np.uint8)
        self._made().measure(
            batch.bases,
            batch.offsets,
            events.codes,
            depths,
            canonical=self._dictionary.strands == "canonical",
            threads=self._threads,
        )
        return Depths.alone(depths)

    def _made(self) -> PrefixDepths:
        with self._making:
            if self._prefixes is None:
                codes, k = self._dictionary.codes, self._dictionary.k
                if self._dictionary.strands == "both":
                    codes = sort_unique(with_reverse_complements(codes, k), k, self._threads)
                self._prefixes = PrefixDepths(codes, k)
            return self._prefixes


class Snapshots:
    """The snapshots of ``dictionary``.

    grows: mismatched k-mers are added, not only seeds; this may end between two batches. version:
    of the dictionary, incremented by every span that adds k-mers.
    """

    def __init__(
        self, dictionary: Dictionary, *, grows: bool, threads: int, version: int = 1
    ) -> None:
        self.version = version
        self._dictionary = dictionary
        self.grows = grows
        self._threads = threads
        self._worker: TreeWorker | None = None
        self._only: VersionedSnapshot | None = None

    @property
    def following(self) -> bool:
        """Whether a tree worker is running."""
        return self._worker is not None

    @property
    def worker(self) -> TreeWorker | None:
        """The tree worker, if there is one."""
        return self._worker

    @property
    def version_in_use(self) -> int:
        """The dictionary version of the snapshot in use."""
        return self.version if self._worker is None else self._worker.current.version

    def follow(self, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Start a tree worker.

        codes: returns the current k-mers of the dictionary (uint64, ascending).
        """
        k, strands = self._dictionary.k, self._dictionary.strands
        self._worker = TreeWorker(k, strands, codes(), self.version, self._threads)

    def go_back(self, version: int, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Return to that version of the dictionary; ``codes`` as for ``follow``."""
        self.version = version
        if self._worker is not None:
            # it holds k-mers that this version lacks
            self._worker.close()
            self.follow(codes)

    def learn(self, span: match_engine.SpanFound) -> None:
        """Add the k-mers of a span."""
        self.version += 1
        if self._worker is None:
            return
        if span.ordered is not None:
            self._worker.add(span.ordered, ascending=True)
        else:
            self._worker.add(span.codes)

    def end_span(self, *, wait: bool) -> VersionedSnapshot | None:
        """Between two spans: return the snapshot to use next; None without a tree worker.

        wait: as for ``TreeWorker.end_span``.
        """
        if self._worker is None:
            return None
        self._worker.end_span(self.version, wait=wait)
        return self._worker.current

    def in_use(self) -> VersionedSnapshot:
        """Return the snapshot to match against now."""
        if self._worker is not None:
            # with seeds alone the snapshot must hold all of them; a growing one is used as it grows
            return self._worker.current if self.grows else self._worker.latest(self.version)
        if self._only is None:
            codes = self._dictionary.codes
            if self._dictionary.strands == "both":
                codes = with_reverse_complements(codes, self._dictionary.k)
            self._only = built(partial(snapshot, codes, self._dictionary.k), self.version)
        return self._only

    def latest(self) -> VersionedSnapshot:
        """Return a snapshot of the current dictionary; waits for merges."""
        return self.in_use() if self._worker is None else self._worker.latest(self.version)

    def views(self, seeds: int) -> SpanViews:
        """The snapshots that the spans of a batch see; the first ``seeds`` spans are seeds."""
        if self.grows:
            assert self._worker is not None
            return SpanViews(self._worker.current, 0, None)
        return SpanViews(self.in_use() if seeds else None, seeds, self.in_use)

    def close(self) -> None:
        """Finish the merges."""
        if self._worker is not None:
            self._worker.close()


class SpanViews:
    """The snapshots that the spans of a batch are matched against, by number.

    While the dictionary grows, a span sees the snapshot in use when the last span but one ended,
    the newest that two streams can provide; faster engines see the same one. With a dictionary that
    does not grow, seeds see the state before the batch, and all other spans see everything.
    """

    def __init__(
        self,
        first: VersionedSnapshot | None,
        seeds: int,
        whole: Callable[[], VersionedSnapshot] | None,
    ) -> None:
        self._after: list[VersionedSnapshot | None] = [first]
        self._seeds = seeds
        self._whole = whole

    def span_ended(self, current: VersionedSnapshot) -> None:
        """Note the snapshot in use after the next span."""
        if self._whole is None:
            self._after.append(current)
            self._after[:-3] = [None] * len(self._after[:-3])

    def of(self, span: int) -> VersionedSnapshot:
        """Return the snapshot of a span."""
        if self._whole is not None and span >= self._seeds:
            return self._whole()
        seen = 0 if self._whole is not None else max(span - 1, 0)
        view = self._after[min(seen, len(self._after) - 1)]
        assert view is not None
        return view


_T = TypeVar("_T")


def _no_snapshot(span: int) -> VersionedSnapshot:
    """Stand in for the snapshots of spans that are not matched against any."""
    raise NotImplementedError


ENOUGH = 1 << 19  # symbols of a batch for each thread, to keep all of them busy
MOST_HALVINGS = 7  # of the longest spans, on a GPU with little memory, down to 65,536 symbols


class StreamMatcher:
    """Matches batches of reads, in the order given, against one dictionary according to ``spec``.

    dictionary: its k-mers as they stand in the records (strands ``forward``), required for a
    distance, or with the strands of ``spec``. start: where to resume. on_fallback: called with one
    line if a GPU fails or has too little memory; matching then continues on the CPU with the same
    results. Without it, that raises StreamerError. Raises UsageError for options that conflict.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        spec: MatchSpec,
        *,
        start: Start | None = None,
        on_fallback: OnFallback | None = None,
    ) -> None:
        for fault in spec.faults():
            raise UsageError(f"{fault} '{getattr(spec, fault)}' does not go with the other options")
        if spec.device == "cuda" and not spec.cards:
            spec = replace(spec, cards=tuple(usable_cards(1)))
        if spec.changes:
            # one GPU suffices here (gpu/exact/pipeline.py); stream_cards reports it to the user
            spec = replace(spec, cards=spec.cards[:1])
        self.spec = spec
        self.stored = dictionary
        """The k-mers as they stand in the records, if a distance is wanted."""
        if spec.near:
            check_listed(dictionary.most_kmers)
        start = start or Start()
        self.dictionary = known_dictionary(dictionary, spec).with_grown(start.grown)
        self._k = dictionary.k
        self._chunk = spec.chunk
        self._threads = spec.threads or usable_cores()
        sets = len(self.dictionary.targets) if spec.exact else 0
        differ = sets > 1 or (sets > 0 and (spec.changes or self.dictionary.grown.size > 0))
        # the target set of windows in no run, and whether runs are needed
        self._default_set = np.uint32(0) if sets and not differ else NO_SET
        self._runs = differ or (spec.counted and sets > 0)
        self._gpu = GpuOrCpu(on_fallback, "matching")
        # what a CPU engine would have to learn; kept only where one may have to take over
        self._grown: list[NDArray[np.uint64]] | None = None if on_fallback is None else []
        # of the longest spans, where GPU memory is short
        self._halvings = 0
        self._solver: Solver | None = None
        if spec.near:
            self._solver = new_solver(dictionary, spec, self._gpu, self._threads)
            self._solver.learn(start.learned)
        self._needs_tree = self._solver is not None and self._solver.walks
        self._snapshots = Snapshots(
            self.dictionary, grows=spec.grows, threads=self._threads, version=start.version
        )
        self._depths = DepthsAlone(self.dictionary, self._threads)
        self._number, self._position = start.number, start.position
        self.steps = 0
        """How many results (of spans or batches) the engine has returned; grows during a match."""
        self._engine = self._new_engine()
        walks = spec.uses_snapshot or self._needs_tree
        if spec.changes and (walks or (spec.track_tree and not self.depths_refused)):
            self._follow()
        elif walks:
            self._snapshots.in_use()
        if self._solver is not None and self.side_by_side:
            # what each of several threads would make
            self._solver.prepare()
            self.stored.sets  # noqa: B018

    @classmethod
    def of(
        cls,
        dictionary: Dictionary,
        *,
        start: Start | None = None,
        on_fallback: OnFallback | None = None,
        **asked: Any,
    ) -> StreamMatcher:
        """Create a matcher with the options of ``MatchSpec``, frozen by default."""
        asked = {"k": dictionary.k, "strands": dictionary.strands, "mode": "frozen"} | asked
        return cls(dictionary, MatchSpec.of(**asked), start=start, on_fallback=on_fallback)

    def _new_engine(self) -> match_engine.MatchEngine:
        if not (self.spec.exact or self.spec.changes):
            return match_engine.NearOnly(self.dictionary)
        if self.spec.device != "cuda":
            return self._cpu_engine()
        from streamer.matching.cuda import LONGEST_CHUNK, CudaEngine

        self._chunk = min(self._chunk, LONGEST_CHUNK)

        def make() -> match_engine.MatchEngine:
            engine = CudaEngine(
                self.dictionary, self.spec, runs=self._runs, chunk=self._chunk,
                threads=self._threads, halvings=self._halvings,
            )  # fmt: skip
            if not self.spec.changes:
                # fail now if the dictionary is too large, not with the first batch
                engine.prepare(self._snapshots.in_use)
            return engine

        def smaller() -> bool:
            self._halvings += 1
            return self._halvings <= MOST_HALVINGS

        return self._gpu.run(make, self._cpu_engine, smaller)

    def _cpu_engine(self) -> match_engine.MatchEngine:
        """Create an engine on the CPU that knows what the one on a failed GPU knew."""
        if self.spec.cuda_kernel:
            self.spec = replace(self.spec, kernel="auto")
        walks = self.spec.exact_kernel == "walk"
        engine = CpuEngine.of(self.dictionary, walks=walks, runs=self._runs, threads=self._threads)
        for codes in self._grown or ():
            engine.learn(codes)
        self._grown = None
        return engine

    def _or_on_cpu(self, run: Callable[[], _T]) -> _T:
        """Return ``run()``; if a GPU fails, run it again on the CPU, or raise StreamerError."""
        if self._engine.device == "cpu":
            return run()
        version = self.version

        def on_cpu() -> _T:
            self._engine = self._cpu_engine()
            # forget the k-mers of the batch that failed
            self._snapshots.go_back(version, self._engine.codes)
            return run()

        return self._gpu.run(run, on_cpu)

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The device in use now: a GPU also if only k-mers within a distance are sought there."""
        if self._solver is not None and self._solver.on_gpu:
            return "cuda"
        return self._engine.device

    @property
    def tree(self) -> TreeWorker | None:
        """The worker that grows the tree in the background, if there is one."""
        return self._snapshots.worker

    @property
    def version(self) -> int:
        """The dictionary version: 1, plus one for every span of the stream that adds k-mers."""
        return self._snapshots.version

    @property
    def number(self) -> int:
        """The number of the next batch."""
        return self._number

    @property
    def kmers(self) -> int:
        """The number of k-mers in the dictionary; both orientations of one count once."""
        return len(self._engine)

    @property
    def limited(self) -> bool:
        """Whether k-mers of the next batch would be added but for the limit.

        This holds once the dictionary has ``max_kmers``. The k-mers of a batch, up to one per base,
        are added all or none, so that chunks and engines make no difference.
        """
        return self._could_grow and 0 < self.spec.max_kmers <= self.kmers

    @property
    def _could_grow(self) -> bool:
        return self.spec.grows or self._position < self.spec.seed_bases

    @property
    def snapshot_version(self) -> int:
        """The dictionary version of the snapshot that depths now come from."""
        return self._snapshots.version_in_use

    @property
    def make_batch(self) -> MakeBatch:
        """A function that makes a batch of names, offsets and joined letters; thread-safe.

        The letters must not change. The batch has the form that is cheapest for ``match``.
        """
        return self._engine.make_batch

    @property
    def make_together(self) -> MakeTogether | None:
        """Like ``make_batch`` for many batches in one step, if possible; None instead of errors."""
        return self._engine.make_together

    @property
    def fixed(self) -> bool:
        """Whether no later batch can add k-mers."""
        return not self._could_grow

    @property
    def side_by_side(self) -> bool:
        """Whether several threads may match batches outside the stream concurrently."""
        return self.fixed and self.device == "cpu"

    @property
    def depths_refused(self) -> str:
        """Why depths cannot be measured, or empty."""
        if not (self.spec.changes and self.dictionary.is_large):
            return ""
        return (
            f"depths in a growing dictionary need a tree of its k-mers, and it begins with "
            f"{self.dictionary.most_kmers:,}: at most {LARGE:,} are listed for this"
        )

    def match(
        self,
        batches: Sequence[ReadBatch],
        *,
        depths: bool = False,
        words: bool = False,
        in_stream: bool = True,
    ) -> list[BatchResult]:
        """Match the next batches, small ones together if nothing is added.

        depths: also measure how deep windows go. words: also in which trie nodes, for event words.
        Without ``in_stream`` the batches have no place in the stream; the dictionary must be
        ``fixed``. StreamerError for depths that are refused.
        """
        assert in_stream or self.fixed
        if (depths or words) and (refused := self.depths_refused):
            raise StreamerError(refused)
        in_text = self.dictionary.is_text and not self.spec.uses_snapshot
        alone = (
            depths
            and not (words or self.spec.changes)
            and (self._engine.device == "cpu" or in_text)
        )
        results: list[BatchResult] = []
        while len(results) < len(batches):
            rest = batches[len(results) :]
            adds = self._could_grow and not self.limited
            if adds or words or (depths and not alone):
                part = [self._or_on_cpu(partial(self._in_spans, rest[0], words or depths))]
                new = part[0].new_kmers
                if self._grown is not None and self._engine.device == "cuda" and new.size:
                    self._grown.append(new)
            else:
                part = self._or_on_cpu(partial(self._looked_up, rest, alone))
            results += part
            if in_stream:
                self._number += len(part)
                self._position += sum(result.batch.symbols for result in part)
        return results

    def match_in_part(
        self, batch: ReadBatch, *, seeks: bool = True, settles: bool = True
    ) -> BatchResult | None:
        """Match outside the stream, as ``TextIndex.match``: some matches may lack, runs do.

        None if this is not possible, or if windows match different targets.
        """
        engine = self._engine
        alone = self.side_by_side and self._solver is None
        if not alone or self._runs or not isinstance(engine, CpuEngine):
            return None
        events = engine.find_in_part(batch, seeks=seeks, settles=settles)
        return None if events is None else self._result(batch, events, self._number, self._position)

    def succeed(self, before: StreamMatcher) -> None:
        """Continue the stream where another matcher is."""
        self._number, self._position = before._number, before._position

    def _looked_up(self, batches: Sequence[ReadBatch], depths: bool) -> list[BatchResult]:
        """Match batches of which none adds k-mers."""
        self._snapshots.grows = False
        joined = batches
        small = sum(batch.symbols for batch in batches) < len(batches) * self._threads * ENOUGH
        joins = self._solver is None and self.make_together is None and not depths
        if joins and len(batches) > 1 and (small or not self.side_by_side):
            joined = [joined_batches(batches, self._threads)]
        results = []
        position = self._position
        found_in = self._engine.find(joined, self._snapshots.in_use)
        for number, (batch, hits) in enumerate(zip(joined, found_in, strict=True), self._number):
            self.steps += 1
            near = None
            if self._solver is not None:
                steps = NearSteps(batch, self._k, self._snapshot_of_step)
                steps.add_all()
                near = self._solver.match_steps(batch, steps.finished(), self.stored)
            measured = self._depths.of(batch, hits.events) if depths else None
            results.append(self._result(batch, hits, number, position, depths=measured, near=near))
            position += batch.symbols
        return results if joined is batches else results[0].split(batches)

    def _result(
        self, batch: ReadBatch, hits: Found, number: int, position: int, **fields: Any
    ) -> BatchResult:
        """Make a result; without ``fields`` the batch added nothing."""
        return BatchResult(
            number=number, base=position, batch=batch, k=self._k, found=hits.events,
            runs=hits.runs, default_set=self._default_set, version=self.version,
            **({"version_before": self.version} | fields),
        )  # fmt: skip

    def _in_spans(self, batch: ReadBatch, measures: bool) -> BatchResult:
        """Match the next batch span by span; ``measures``: depths and trie nodes, too."""
        if measures and self.spec.changes and not self._snapshots.following:
            self._follow()
        grows = self.spec.grows and not self.limited
        self._snapshots.grows = grows
        # steps of approximate matching are spans, just as in walking
        waits = measures or self.spec.uses_snapshot or self._solver is not None
        spans = self._spans(batch.offsets, waits and grows)
        walks = measures or self.spec.uses_snapshot
        views = self._snapshots.views(sum(seeding for seeding, _ in spans)) if walks else None
        bits, runs = no_bits(batch.symbols), list[Runs]()
        task = match_engine.MatchTask(
            batch, spans, self._position, _no_snapshot if views is None else views.of, grows, bits,
            runs,
            depths=np.zeros(batch.symbols, np.uint8) if measures else None,
            nodes=np.zeros(batch.symbols, np.uint32) if measures else None,
        )  # fmt: skip
        before = self.version
        matched: list[match_engine.SpanFound] = []
        steps = NearSteps(batch, self._k, self._snapshot_of_step)
        for span in self._engine.run(task):
            self.steps += 1
            # the sorted codes were for the tree worker only
            matched.append(span._replace(ordered=None))
            if self._solver is not None:
                steps.add(span)
            if span.codes.size:
                self._snapshots.learn(span)
            current = self._snapshots.end_span(wait=waits)
            if views is not None and current is not None:
                views.span_ended(current)
        near, learned = None, []
        if self._solver is not None:
            near = self._solver.match_steps(batch, (taken := steps.finished()), self.stored)
            learned = [step.learned for step in taken if step.learned.size]
        grown = [span for span in matched if span.codes.size]
        events = Found(Events(batch.symbols, bits), concatenated(runs, NO_RUNS))
        return self._result(
            batch, events, self._number, self._position,
            new_kmers=concatenated([span.codes for span in grown], NO_CODES),
            new_starts=concatenated([span.starts for span in grown], match_engine.NO_STARTS),
            seeded=sum(span.codes.size for span in grown if span.seeding),
            seed_bases=max((int(part[-1, 1]) for seeding, part in spans if seeding), default=0),
            version_before=before,
            depths=Depths.of(task, matched),
            near=near,
            learned=concatenated(learned, NO_CODES),
        )  # fmt: skip

    def _snapshot_of_step(self, newest: bool) -> tuple[int, VersionedSnapshot | None]:
        if not self._needs_tree:
            return self.version, None
        current = self._snapshots.latest() if newest else self._snapshots.in_use()
        return current.version, current

    def latest_snapshot(self) -> VersionedSnapshot:
        """Return a snapshot of the current dictionary; waits for merges in progress."""
        if self.spec.changes and not self._snapshots.following:
            self._or_on_cpu(self._follow)
        return self._snapshots.latest()

    def close(self) -> None:
        """Stop the background work; its errors are raised once everything is closed."""
        with ExitStack() as stack:
            if self._solver is not None:
                stack.callback(self._solver.close)
            stack.callback(self._snapshots.close)
            stack.callback(self._engine.close)

    def _follow(self) -> None:
        if refused := self.depths_refused:
            raise StreamerError(refused)
        self._snapshots.follow(self._engine.codes)

    def _spans(self, offsets: NDArray[np.int64], aging: bool) -> list[match_engine.Span]:
        seeds = 0 if self.limited else self.spec.seed_bases - self._position
        end = min(max(seeds, 0), int(offsets[-1]))
        return match_engine.spans_of(
            offsets, self._k, self._chunk, end, aging=aging, halvings=self._halvings
        )
