"""The matcher: batches of reads in, events out, with a dictionary that is frozen or grows.

It does no input or output. The command line, the daemon and the benchmarks all call it. Two things
hold the dictionary: the engine's index answers whether a window matches, and exactly so; the
snapshot, a Tree Bitmap, says how deep a window goes in the trie. In grow mode a worker keeps the
Hybrid Tree Bitmap and emits every snapshot from it, and the index stands in front of it, so that a
k-mer is known from the window that first held it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.devices import GpuOrCpu, usable_cards
from streamer.dictionary.targets import NO_SET, Dictionary
from streamer.errors import StreamerError
from streamer.matching.cpu import CpuEngine
from streamer.matching.engine import BatchArrays, MatchEngine, PackedPath, Span
from streamer.matching.near import Approximate
from streamer.matching.near.steps import NearSteps
from streamer.matching.packed import Columns, Letters
from streamer.matching.result import MATCH, BatchResult, Depths, Events
from streamer.matching.snapshots import Snapshots
from streamer.matching.spans import spans_of
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch, joined_batches
from trie.codes import with_reverse_complements
from trie.cpu.threads import usable_cores
from trie.prefixes import PrefixDepths
from trie.trees.shards import sort_unique

Mode = Literal["frozen", "grow"]
Kernel = Literal["auto", "index", "walk", "shuffle", "naive", "buckets"]
Device = Literal["cpu", "cuda"]
MakeBatch = Callable[[Sequence[str], NDArray[np.int64], Letters], ReadBatch]
MakeTogether = Callable[[Sequence[Columns], NDArray[np.uint32]], Sequence[ReadBatch | None]]
"""The second: a CRC-32 for each batch, continued over its letters, which are read once."""

_T = TypeVar("_T")

CPU_KERNELS = ("auto", "index", "walk")
DEFAULT_CHUNK = 1_000_000

MOST_HALVINGS = 7
"""Of the longest spans, on a GPU with little memory: to 65,536 symbols."""


class Matcher:
    """Matches batches of reads, in the order given, against one dictionary.

    mode: ``grow`` adds every mismatched k-mer at once. seed_bases: the windows wholly inside the
    first so many symbols of the stream are added before the stream is matched. kernel: ``index``
    (``auto``) or ``walk`` over the snapshot, on CUDA also ``shuffle``, ``naive`` and ``buckets``,
    with equal events. chunk: symbols in a chunk. threads: 0 is every usable core. track_tree: keep
    the Hybrid Tree Bitmap of a growing dictionary also when no window's depth is asked for.

    device: ``cuda`` matches on the ``cards`` of those numbers (None: the first), on so many
    ``streams`` each, within ``device_bytes`` of their memory (0: nearly all that is free).
    approximate: what finds k-mers within a distance too, in every batch; its stored k-mers are
    those of ``dictionary``, and in grow mode it learns what the dictionary grows by.

    on_fallback: called with one line if a card fails or is too small, and matching goes on on the
    CPU with the same results; without it that is a StreamerError.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        mode: Mode,
        seed_bases: int = 0,
        kernel: Kernel = "auto",
        chunk: int = DEFAULT_CHUNK,
        threads: int = 0,
        track_tree: bool = False,
        device: Device = "cpu",
        streams: int = 2,
        cards: Sequence[int] | None = None,
        device_bytes: int = 0,
        on_fallback: Callable[[str], None] | None = None,
        approximate: Approximate | None = None,
    ) -> None:
        self.dictionary = dictionary
        self.mode: Mode = mode
        self.kernel: Kernel = kernel
        self._k = dictionary.k
        self._seed_bases = seed_bases
        self._chunk = max(chunk, self._k)
        self._threads = threads or usable_cores()
        self._growing = mode == "grow" or seed_bases > 0
        self._only_set = np.uint32(0) if len(dictionary.targets) == 1 else NO_SET
        self._with_sets = len(dictionary.targets) > 1 or (
            len(dictionary.targets) == 1
            and (self._growing or bool((dictionary.sets == NO_SET).any()))
        )
        self._on_fallback = on_fallback
        self._gpu = GpuOrCpu(on_fallback, "matching")
        # of the longest spans, where the GPU's memory is short
        self._halvings = 0
        self._approximate = approximate
        if approximate is not None:
            approximate.share(self._gpu)
        # what a CPU engine would have to learn; kept only where one may have to take over
        self._grown: list[NDArray[np.uint64]] = []
        self._snapshots = Snapshots(dictionary, grows=mode == "grow", threads=self._threads)
        self._prefixes: PrefixDepths | None = None
        self._number = 0
        self._position = 0
        # of batches that are put together, used again
        self._room = np.zeros(0, dtype=np.uint8)
        self._engine: MatchEngine
        if device == "cuda":
            self._engine = self._cuda_engine(streams, cards, device_bytes)
        else:
            self._engine = self._cpu_engine()
        if self._growing and (track_tree or self._engine.walks or self._needs_tree):
            self._follow()
        elif self._engine.walks or self._needs_tree:
            self._snapshots.in_use()

    @property
    def _needs_tree(self) -> bool:
        return self._approximate is not None and self._approximate.walks

    def _cpu_engine(self) -> CpuEngine:
        if self.kernel not in CPU_KERNELS:
            message = f"the kernel '{self.kernel}' needs a CUDA device"
            raise StreamerError(message)
        return CpuEngine(
            self.dictionary,
            grows=self.mode == "grow",
            walks=self.kernel == "walk",
            with_sets=self._with_sets,
            threads=self._threads,
        )

    def _cuda_engine(
        self, streams: int, cards: Sequence[int] | None, device_bytes: int
    ) -> MatchEngine:
        from streamer.matching.cuda import LONGEST_CHUNK, CudaEngine

        self._chunk = min(self._chunk, LONGEST_CHUNK)

        def make() -> MatchEngine:
            engine = CudaEngine(
                self.dictionary,
                grows=self.mode == "grow",
                seeded=self._seed_bases > 0,
                kernel=self.kernel,
                with_sets=self._with_sets,
                chunk=self._chunk,
                streams=streams,
                cards=usable_cards(1) if cards is None else cards,
                memory_bytes=device_bytes,
                threads=self._threads,
                halvings=self._halvings,
            )
            if not self._growing:
                # a dictionary that is too large is refused here, not with the first batch
                engine.prepare(self._snapshots.in_use())
            return engine

        def smaller() -> bool:
            self._halvings += 1
            return self._halvings <= MOST_HALVINGS

        return self._gpu.run(make, self._take_over, smaller)

    def _or_on_cpu(self, run: Callable[[], _T]) -> _T:
        """What ``run`` gives; if a card fails, once more on the CPU or StreamerError."""
        if isinstance(self._engine, CpuEngine):
            return run()
        version = self.version

        def on_cpu() -> _T:
            self._engine = self._take_over()
            # k-mers of the batch that failed were not there before it
            self._snapshots.go_back(version, self._engine.codes)
            return run()

        return self._gpu.run(run, on_cpu)

    def _take_over(self) -> CpuEngine:
        """An engine on the CPU that knows what the failed one knew."""
        if self.kernel not in CPU_KERNELS:
            self.kernel = "auto"
        engine = self._cpu_engine()
        for codes in self._grown:
            engine.learn(codes)
        self._grown.clear()
        return engine

    @property
    def device(self) -> Device:
        """Where it matches now."""
        return "cpu" if isinstance(self._engine, CpuEngine) else "cuda"

    @property
    def version(self) -> int:
        """Of the dictionary: 1, and one more with every span of the stream that brings k-mers."""
        return self._snapshots.version

    @property
    def kmers(self) -> int:
        """How many k-mers the dictionary holds; both orientations of one count once."""
        return len(self._engine)

    @property
    def snapshot_version(self) -> int:
        """The dictionary version of the snapshot that depths come from now."""
        return self._snapshots.version_in_use

    def match(
        self, batch: ReadBatch, *, want_depths: bool = False, want_nodes: bool = True
    ) -> BatchResult:
        """The events of the next batch; with ``want_depths`` also how deep its windows went.

        Event words need trie nodes too. Without ``want_nodes`` these may be missing: a frozen
        dictionary on the CPU needs no snapshot then, the largest of its structures.
        """
        path = self._packed
        if path is not None and not want_depths and batch.symbols <= path.longest:
            return self._match_packed([batch], path)[0]
        result = self._or_on_cpu(lambda: self._match(batch, want_depths, want_nodes))
        if self.device == "cuda" and self._on_fallback is not None and result.new_kmers.size:
            self._grown.append(result.new_kmers)
        self._number += 1
        self._position += batch.symbols
        return result

    @property
    def _packed(self) -> PackedPath | None:
        """The shorter way, where matches alone are asked for and the engine has one."""
        return None if self._approximate is not None else self._engine.packed

    @property
    def make_batch(self) -> MakeBatch:
        """Makes a batch of names, offsets and joined letters, which must stay as they are.

        In the form that ``match`` has the least work with; from any thread.
        """
        path = self._packed
        return ReadBatch.from_letters if path is None else path.pack

    @property
    def make_together(self) -> MakeTogether | None:
        """As ``make_batch`` of many in one step, where there is a way; None in place of errors."""
        path = self._packed
        return None if path is None else path.pack_together

    def match_all(self, batches: Sequence[ReadBatch]) -> list[BatchResult]:
        """As ``match`` of one after the other; against a fixed dictionary all of them at once."""
        path = self._packed
        if path is not None and all(batch.symbols <= path.longest for batch in batches):
            return self._match_packed(batches, path)
        if len(batches) == 1 or self._growing or self._approximate is not None:
            return [self.match(batch) for batch in batches]
        together = joined_batches(batches, self._room, self._threads)
        if together.bases.size > self._room.size:
            self._room = together.bases
        result = self.match(together)
        self._number += len(batches) - 1
        return result.split(batches)

    def _match_packed(self, batches: Sequence[ReadBatch], path: PackedPath) -> list[BatchResult]:
        events = self._gpu.run(
            lambda: list(path.match(batches, self._snapshots.in_use)), lambda: None
        )
        if events is None:
            self._engine = self._take_over()
            return [self.match(batch) for batch in batches]
        results = []
        for batch, found in zip(batches, events, strict=True):
            results.append(self._result(batch, found))
            self._number += 1
            self._position += batch.symbols
        return results

    def _result(self, batch: ReadBatch, found: Events, **fields: Any) -> BatchResult:
        """The result of the next batch; without ``fields`` it brought nothing new."""
        unchanged: dict[str, Any] = {
            "sets": None,
            "new_kmers": np.zeros(0, np.uint64),
            "new_starts": np.zeros(0, np.int64),
            "seeded": 0,
            "version_before": self.version,
            "depths": None,
        }
        return BatchResult(
            number=self._number,
            base=self._position,
            batch=batch,
            k=self._k,
            found=found,
            only_set=self._only_set,
            version=self.version,
            **(unchanged | fields),
        )

    def _match(self, batch: ReadBatch, want_depths: bool, want_nodes: bool) -> BatchResult:
        if want_depths and not want_nodes and self._has_prefixes:
            result = self._match(batch, want_depths=False, want_nodes=False)
            return replace(result, depths=self._depths_without_nodes(result))
        if want_depths and self._growing and not self._snapshots.following:
            self._follow()
        total = batch.bases.size
        # steps of approximate matching are spans, as those of walking are
        follows = self._approximate is not None and self._growing
        walking = want_depths or self._engine.walks or follows
        arrays = BatchArrays(
            events=np.zeros(total, dtype=np.uint8),
            sets=np.full(total, NO_SET, dtype=np.uint32) if self._with_sets else None,
            depths=np.zeros(total, dtype=np.uint8) if want_depths else None,
            nodes=np.zeros(total, dtype=np.uint32) if want_depths else None,
        )
        before = self.version
        new_kmers: list[NDArray[np.uint64]] = []
        new_starts: list[NDArray[np.int64]] = []
        chunks: list[NDArray[np.int64]] = []
        versions: list[NDArray[np.int64]] = []
        steps = NearSteps(batch, self._k, self._snapshot_of_step)
        seeded = 0
        spans = self._spans(batch.offsets, walking)
        asks = want_depths or self._engine.walks
        views = self._snapshots.views(sum(seeding for seeding, _ in spans)) if asks else None
        for found in self._engine.run(
            batch, spans, self._position, arrays, views.of if views is not None else None
        ):
            if self._approximate is not None:
                steps.add(found)
            if want_depths:
                chunks.append(found.chunks)
                versions.append(np.full(len(found.chunks), found.version, dtype=np.int64))
            if found.codes is not None and found.starts is not None and found.codes.size:
                new_kmers.append(found.codes)
                new_starts.append(found.starts)
                seeded += found.codes.size if found.seeding else 0
                self._snapshots.learn(found)
            current = self._snapshots.end_span(wait=walking)
            if views is not None and current is not None:
                views.told(current)
        if arrays.sets is not None:
            # a k-mer that grew from this very window is a mismatch without a target
            arrays.sets[arrays.events != MATCH] = NO_SET
        near = None
        if self._approximate is not None:
            near = self._approximate.match(batch, steps.finished())
        depths = None
        if arrays.depths is not None and arrays.nodes is not None:
            bounds = np.concatenate(chunks) if chunks else np.zeros((0, 2), np.int64)
            depths = Depths(arrays.depths, arrays.nodes, bounds, _joined(versions, np.int64))
        return self._result(
            batch,
            Events(total, codes=arrays.events),
            sets=arrays.sets,
            new_kmers=_joined(new_kmers, np.uint64),
            new_starts=_joined(new_starts, np.int64),
            seeded=seeded,
            version_before=before,
            depths=depths,
            near=near,
        )

    @property
    def _has_prefixes(self) -> bool:
        fixed = not self._growing and self._approximate is None
        return fixed and isinstance(self._engine, CpuEngine) and not self._engine.walks

    def _depths_without_nodes(self, result: BatchResult) -> Depths:
        strands = self.dictionary.strands
        if self._prefixes is None:
            codes = self.dictionary.codes
            if strands == "both":
                codes = with_reverse_complements(codes, self._k)
                codes = sort_unique(codes, self._k, self._threads)
            self._prefixes = PrefixDepths(codes, self._k)
        depths = np.zeros(result.batch.bases.size, dtype=np.uint8)
        self._prefixes.measure(
            result.batch.bases,
            result.batch.offsets,
            result.events,
            depths,
            canonical=strands == "canonical",
            threads=self._threads,
        )
        nothing = np.zeros(0, np.int64)
        return Depths(depths, np.zeros(0, np.uint32), nothing.reshape(0, 2), nothing)

    def _snapshot_of_step(self, newest: bool) -> tuple[int, VersionedSnapshot | None]:
        if not self._needs_tree:
            return self.version, None
        held = self._snapshots.latest() if newest else self._snapshots.in_use()
        return held.version, held

    def latest_snapshot(self) -> VersionedSnapshot:
        """A snapshot of the dictionary as it is now; waits for what is being merged."""
        if self._growing and not self._snapshots.following:
            self._or_on_cpu(self._follow)
        return self._snapshots.latest()

    def close(self) -> None:
        """End the background work; what went wrong in it is raised when all is closed."""
        with ExitStack() as held:
            if self._approximate is not None:
                held.callback(self._approximate.close)
            held.callback(self._snapshots.close)
            held.callback(self._engine.close)

    def _follow(self) -> None:
        self._snapshots.follow(self._engine.codes)

    def _spans(self, offsets: NDArray[np.int64], walking: bool) -> list[Span]:
        seed_end = min(max(self._seed_bases - self._position, 0), int(offsets[-1]))
        aging = walking and self.mode == "grow"
        return spans_of(
            offsets, self._k, self._chunk, seed_end, aging=aging, halvings=self._halvings
        )


def _joined(parts: list[NDArray], dtype: type) -> NDArray:  # type: ignore[type-arg]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
