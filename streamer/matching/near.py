"""Approximate matching of batches of reads: everything within a distance.

    levenshtein   streamer/matching/near.py, over trie/levenshtein
    ltb           streamer/matching/near.py, over trie/ltb

To add a semantics, write a ``solver.Solver`` and name it in ``new_solver``. Its columns go into
``streamer/matching/reports.py``, its topic into ``streamer/daemon/publish.py``.

The full Levenshtein distance to a dictionary that may grow: sets of patterns, merged by size.

As in a log-structured merge tree, a set is merged with its neighbour unless it is smaller than a
quarter of it: a k-mer is indexed at most log4(n) times, and a batch is matched against as many
sets. On CUDA the tables of the sets stay on the GPU (gpu/levenshtein); the kernel
``lanes`` runs on the CPU.

The Levenshtein Tree Bitmap of the thesis (3.3.14-3.3.17) as a solver.

The step provides the snapshot. The automaton restarts in every read; to be independent of where a
step begins, it runs from k + D - 1 symbols before it. ``trie.ltb`` runs it on the CPU,
``gpu.ltb`` on CUDA devices, chunk by chunk on two streams; all kernels give the same words.

The solver of one distance semantics: an engine on GPUs, or the CPU if that fails.

The steps of a batch while its dictionary grows: which ends see which snapshot.

A span of exact matching becomes a step: its ends are matched against the dictionary as it was
before the span, and the span's k-mers are learned afterwards. Seeds are the exception: they are
learned first, because the whole stream is matched against them.

The result of approximate matching of a batch: columns by end, and the best row per cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching.match_engine import LONG_SPAN, NO_CODES, SpanFound, slice_reads
from streamer.matching.spec import MatchSpec, Semantics
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import lacking, merged, places
from trie.levenshtein import (
    MAX_PATTERNS,
    Nearest,
    Patterns,
    joined,
    lanes,
    least,
    piece_index,
    unpack,
    unpack_found,
)
from trie.levenshtein.piece_index import PieceIndex, build
from trie.overlaps import disjoint
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.trees.shards import sort_unique
from trie.windows import NO_SET, codes_at, window_codes

Snapshot = Callable[[bool], tuple[int, VersionedSnapshot | None]]


class Step(NamedTuple):
    """Consecutive symbols of a batch that are matched against one snapshot.

    version: of the snapshot. tree: the snapshot, if the solver walks it. learned: uint64, the
    k-mers, as stored, to add afterwards.
    """

    first: int
    stop: int
    version: int
    tree: TreeBitmap | None = None
    learned: NDArray[np.uint64] = NO_CODES


class NearSteps:
    """Collects the steps of a batch.

    snapshot: returns the current dictionary version and, for solvers that walk, its Tree Bitmap;
    called with True to require the newest.
    """

    def __init__(self, batch: ReadBatch, k: int, snapshot: Snapshot) -> None:
        self._batch = batch
        self._k = k
        self._snapshot = snapshot
        self._steps: list[Step] = []
        self._done = 0
        self._seeds: list[NDArray[np.uint64]] = []
        self._seeded = 0

    def add(self, span: SpanFound) -> None:
        """Add the next span, before any snapshot holds its k-mers."""
        batch, stop = self._batch, int(span.chunks[-1, 1])
        if span.seeding:
            first = int(span.chunks[0, 0])
            bases, offsets = batch.bases[first:stop], slice_reads(batch.offsets, first, stop)
            # keep seeds as they stand: seeding must equal a dictionary of the same windows
            self._seeds.append(window_codes(bases, offsets, self._k, canonical=False)[0])
            self._seeded = stop
            return
        self._learn_seeds()
        learned = NO_CODES
        if span.starts.size:
            learned = codes_at(batch.bases, span.starts, self._k)
        self._match(stop, learned, newest=False)

    def add_all(self) -> None:
        """Add the rest of a batch that adds no k-mers, as one span."""
        self._match(self._batch.symbols, NO_CODES, newest=False)

    def finished(self) -> list[Step]:
        """Return all steps of the batch, in order."""
        self._learn_seeds()
        return self._steps

    def _learn_seeds(self) -> None:
        if self._seeds:
            seeds = sort_unique(np.concatenate(self._seeds), self._k, 1)
            self._seeds.clear()
            self._steps.append(Step(self._done, self._done, 0, None, seeds))
            self._match(self._seeded, NO_CODES, newest=True)

    def _match(self, stop: int, learned: NDArray[np.uint64], *, newest: bool) -> None:
        version, current = self._snapshot(newest)
        tree = None if current is None else current.tree
        self._steps.append(Step(self._done, stop, version, tree, learned))
        self._done = stop


@dataclass(frozen=True, slots=True)
class LtbWords:
    """The bitmaps of the thesis's Fig. 31, by ascending end; at least one of the two is nonzero.

    end int64: position after the symbol, in the batch. matches uint32: bit e for each distance e.
    mismatches uint32: bit h + 1 for each depth h.
    """

    end: NDArray[np.int64]
    matches: NDArray[np.uint32]
    mismatches: NDArray[np.uint32]


Found = Nearest | LtbWords


@dataclass(frozen=True, slots=True)
class ApproximateResult:
    """The rows of one batch, by read and end.

    read int64: index in the batch. end int64: in the read. version int64: of the snapshot.
    levenshtein: start int64, distance uint8, strand uint8 (0 is ``+``), code uint64 (as stored),
    target uint32 (target set). ltb: matches and mismatches uint32 (bitmaps of Fig. 31). Columns
    that the semantics lacks are empty.
    """

    distance_limit: int
    semantics: Semantics
    read: NDArray[np.int64]
    end: NDArray[np.int64]
    version: NDArray[np.int64]
    start: NDArray[np.int64]
    distance: NDArray[np.uint8]
    strand: NDArray[np.uint8]
    code: NDArray[np.uint64]
    target: NDArray[np.uint32]
    matches: NDArray[np.uint32]
    mismatches: NDArray[np.uint32]

    @classmethod
    def of(
        cls,
        batch: ReadBatch,
        parts: Sequence[tuple[int, Found]],
        stored: Dictionary,
        spec: MatchSpec,
        threads: int,
    ) -> ApproximateResult:
        """Join the rows of all steps, with their snapshots' versions, reads and targets."""

        def column(name: str, dtype: type) -> NDArray:  # type: ignore[type-arg]
            values = [getattr(near, name) for _, near in parts if hasattr(near, name)]
            return np.concatenate(values) if values else np.zeros(0, dtype)

        found_ends = column("end", np.int64)
        # ends ascend; the end after a read's last symbol belongs to that read
        rows = np.diff(np.searchsorted(found_ends, batch.offsets, side="right"))
        end = found_ends - np.repeat(batch.offsets[:-1], rows)
        length, code = column("length", np.int64), column("code", np.uint64)
        assert spec.distance is not None
        return cls(
            distance_limit=spec.distance,
            semantics=spec.semantics,
            read=np.repeat(np.arange(rows.size), rows),
            end=end,
            version=np.repeat(
                np.array([version for version, _ in parts], dtype=np.int64),
                [near.end.size for _, near in parts],
            ),
            start=end - length if spec.semantics == "levenshtein" else length,
            distance=column("distance", np.uint8),
            strand=column("strand", np.uint8),
            code=code,
            target=_targets(code, stored, threads),
            matches=column("matches", np.uint32),
            mismatches=column("mismatches", np.uint32),
        )

    def __len__(self) -> int:
        return self.end.size

    def best(self) -> NDArray[np.int64]:
        """Return the rows that are the best of their cluster.

        A cluster is a maximal run of adjacent ends of one read; the best row has the least
        distance, the leftmost among equals. Of those of one k-mer and strand that overlap, the one
        with the least distance stays, then the one with the least end.
        """
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        rows = np.arange(len(self))
        apart = (np.diff(self.read) != 0) | (np.diff(self.end) != 1)
        begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
        ranked = (self.distance.astype(np.int64) << 48) | rows
        best = np.minimum.reduceat(ranked, begins) & ((1 << 48) - 1)
        start, end = self.start[best], self.end[best]
        keys = [
            self.read[best],
            self.code[best].astype(np.int64),
            self.strand[best].astype(np.int64),
        ]
        return best[disjoint(keys, start, end, self.distance[best], int((end - start).max()))]


def _targets(codes: NDArray[np.uint64], stored: Dictionary, threads: int) -> NDArray[np.uint32]:
    """Return the target set of each k-mer; NO_SET for those added later."""
    at = places(stored.codes, codes, threads)
    sets, known = np.full(at.size, NO_SET, np.uint32), at >= 0
    sets[known] = stored.sets[at[known]]
    return sets


_T = TypeVar("_T")

LEAST_CHUNK = 1 << 16  # least symbols per chunk tried when GPU memory is short


class Solver:
    """Matches the ends of batches, and learns k-mers.

    gpu: runs the GPU work, and reports once if the GPUs were given up. chunk: symbols per chunk,
    fewer once memory is short.
    """

    walks = False  # whether steps must come with a Tree Bitmap

    def __init__(self, spec: MatchSpec, gpu: GpuOrCpu, threads: int, *, chunk: int) -> None:
        assert spec.distance is not None
        self._spec = spec
        self._k = spec.k
        self._distance = spec.distance
        self._kernel = spec.near_kernel
        self._threads = threads
        self._chunk = chunk
        self._gpu = gpu
        self._engine: Any = None
        self._on_gpu = spec.device == "cuda" and self._kernel != "lanes"
        if self._on_gpu:
            # fail before the first batch if something does not fit
            gpu.run(self._ready, self.close, self._smaller)

    @property
    def on_gpu(self) -> bool:
        """Whether it matches on a GPU now."""
        return self._on_gpu and not self._gpu.given_up

    def match_steps(
        self, batch: ReadBatch, steps: Sequence[Step], stored: Dictionary
    ) -> ApproximateResult:
        """Find everything within the distance in a batch; ``stored`` names the targets."""
        parts = []
        for step in steps:
            if step.stop > step.first:
                parts.append((step.version, self.match(batch, step)))
            if step.learned.size:
                self.learn(step.learned)
        return ApproximateResult.of(batch, parts, stored, self._spec, self._threads)

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known. A no-op if steps provide the tree."""

    def prepare(self) -> None:
        """Build what matching on the CPU needs, so that several threads may match from now on."""

    def match(self, batch: ReadBatch, step: Step) -> Found:
        """Find what ends at the symbols [step.first, step.stop) of the batch, i.e. at those + 1.

        The batch includes what a match needs from before ``first``.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free the memory on the GPUs."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _new_engine(self, **options: Any) -> Any:
        """Create an engine on GPUs with these options."""
        raise NotImplementedError

    def _run(self, on_gpu: Callable[[Any], _T], on_cpu: Callable[[], _T]) -> _T:
        """Return the result of the engine, or of the CPU."""

        def instead() -> _T:
            self.close()
            return on_cpu()

        if not self._on_gpu:
            return on_cpu()
        return self._gpu.run(lambda: on_gpu(self._ready()), instead, self._smaller)

    def _ready(self) -> Any:
        if self._engine is None:
            spec = self._spec
            self._engine = self._new_engine(
                chunk=self._chunk, streams=spec.streams, cards=spec.cards,
                memory_bytes=spec.device_bytes, threads=self._threads,
            )  # fmt: skip
        return self._engine

    def _smaller(self) -> bool:
        """Free the engine's memory; the next engine gets chunks half as long."""
        self.close()
        self._chunk //= 2
        return self._chunk >= LEAST_CHUNK


def new_solver(stored: Dictionary, spec: MatchSpec, gpu: GpuOrCpu, threads: int) -> Solver:
    """Create the solver of a semantics for the k-mers of ``stored``, as they stand in the records.

    gpu: runs the GPU work. threads: CPU threads.
    """
    if spec.semantics == "ltb":
        return LtbSolver(spec, gpu, threads)

    return LevenshteinSolver(np.ascontiguousarray(stored.codes), spec, gpu, threads)


GROWTH = 4


@dataclass(slots=True)
class _Set:
    """Stored k-mers, ascending, and the structures built from them."""

    codes: NDArray[np.uint64]
    patterns: Patterns | None = None
    index: PieceIndex | None = None


class LevenshteinSolver(Solver):
    """The nearest of the stored k-mers ``codes`` (uint64, ascending) and those learned later."""

    def __init__(
        self, codes: NDArray[np.uint64], spec: MatchSpec, gpu: GpuOrCpu, threads: int
    ) -> None:
        self._both = spec.strands == "both"
        self._most = MAX_PATTERNS // (2 if self._both else 1)
        self._sets = [_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most)]
        # queueing a chunk takes as long as a GPU needs to match millions of symbols
        chunk = max(spec.chunk, LONG_SPAN)
        super().__init__(spec, gpu, threads, chunk=chunk)

    def sizes(self) -> list[int]:
        """The number of stored k-mers in each set."""
        return [each.codes.size for each in self._sets]

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        threads = self._threads
        codes = sort_unique(codes, self._k, threads)
        for each in self._sets:
            codes = lacking(each.codes, codes, threads)
        if not codes.size:
            return
        while self._sets and self._sets[-1].codes.size <= GROWTH * codes.size:
            if self._sets[-1].codes.size + codes.size > self._most:
                break
            codes = merged(self._sets.pop().codes, codes, threads)
        self._sets.extend(_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most))

    def prepare(self) -> None:
        """Build what matching on the CPU needs, so that several threads may match from now on."""
        self._list_patterns()
        for each in self._sets:
            self._index(each)

    def _list_patterns(self) -> None:
        for each in self._sets:
            if each.patterns is None:
                each.patterns = Patterns.of(each.codes, self._k, self._distance, both=self._both)

    def _index(self, kmers: _Set) -> None:
        if kmers.index is None and self._kernel != "lanes":
            assert kmers.patterns is not None
            kmers.index = build(kmers.patterns, threads=self._threads)

    def match(self, batch: ReadBatch, step: Step) -> Nearest:
        """Find the nearest k-mer of every end."""
        self._list_patterns()
        if not self._sets:
            empty = Patterns.of(np.zeros(0, np.uint64), self._k, self._distance, both=False)
            return unpack(np.zeros(0, np.uint32), 0, empty)
        return self._run(partial(self._by_engine, batch, step), partial(self._by_cpu, batch, step))

    def _by_cpu(self, batch: ReadBatch, step: Step) -> Nearest:
        return least([self._of_set(each, batch, step) for each in self._sets])

    def _of_set(self, kmers: _Set, batch: ReadBatch, step: Step) -> Nearest:
        self._index(kmers)
        patterns, threads = kmers.patterns, self._threads
        assert patterns is not None
        if kmers.index is None:
            words = lanes.nearest_words(
                patterns, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        else:
            words = piece_index.nearest_words(
                patterns, kmers.index, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        return unpack(words, step.first, patterns)

    def _by_engine(self, batch: ReadBatch, step: Step, engine: Any) -> Nearest:
        sets = [each.patterns for each in self._sets if each.patterns is not None]

        def take(taken: list[Any]) -> Nearest:
            return least([unpack_found(ends, words, sets[number]) for number, ends, words in taken])

        return joined(
            list(engine.match(take, sets, batch.bases, batch.offsets, step.first, step.stop))
        )

    def _new_engine(self, **options: Any) -> Any:
        from gpu.levenshtein import NearEngine, check_tables

        sizes = [(1 + self._both) * size for size in self.sizes()]
        cards = options["cards"] or (0,)
        check_tables(sizes, self._k, self._distance, cards, options["memory_bytes"])
        return NearEngine(self._k, self._distance, **options)


Bitmaps = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""uint32[symbols] each: the match and the mismatch bitmap of each symbol, 0 if it has no word."""


class LtbSolver(Solver):
    """The automaton's words."""

    walks = True

    def __init__(self, spec: MatchSpec, gpu: GpuOrCpu, threads: int) -> None:
        super().__init__(spec, gpu, threads, chunk=spec.chunk)

    def match(self, batch: ReadBatch, step: Step) -> LtbWords:
        """Compute the match and mismatch bitmaps of every end that has one."""
        assert step.tree is not None
        begin = max(step.first - (self._k + self._distance - 1), 0)
        bases = batch.bases[begin : step.stop]
        offsets = slice_reads(batch.offsets, begin, step.stop)
        bitmaps: Bitmaps = self._run(
            lambda engine: engine.match(step.tree, bases, offsets),
            partial(self._by_cpu, step.tree, bases, offsets),
        )
        matches, mismatches = (words[step.first - begin :] for words in bitmaps)
        at = np.flatnonzero(matches | mismatches)
        return LtbWords(at + step.first + 1, matches[at], mismatches[at])

    def _by_cpu(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> Bitmaps:
        from trie import ltb

        return ltb.approximate(tree, bases, offsets, self._distance, threads=self._threads)

    def _new_engine(self, **options: Any) -> Any:
        from gpu.ltb import LtbEngine

        method = self._kernel if self._kernel.startswith("ltb-") else "ltb-sliced"
        return LtbEngine(self._k, self._distance, method=method, **options)
