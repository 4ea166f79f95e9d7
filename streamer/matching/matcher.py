"""The matcher: batches of reads in, events out, with a dictionary that is frozen or grows.

It does no input or output. The command line, the daemon and the benchmarks all call it. Two things
hold the dictionary: the index answers whether a window matches, and exactly so; the snapshot, a
Tree Bitmap, says how deep a window goes in the trie. In grow mode a worker keeps the Hybrid Tree
Bitmap and emits every snapshot from it, and the index stands in front of it, so that a k-mer
is known from the window that first held it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.matching.chunks import chunk_bounds, slice_reads
from streamer.matching.result import MATCH, MISMATCH, BatchResult, Depths
from streamer.matching.tree_worker import TreeWorker, VersionedSnapshot
from streamer.reads import ReadBatch
from streamer.targets import NO_SET, Dictionary
from trie.codes import with_reverse_complements
from trie.index import KmerIndex
from trie.parallel import usable_cores
from trie.tree_bitmap import snapshot
from trie.walk import walk
from trie.windows import window_codes

Mode = Literal["frozen", "grow"]
Kernel = Literal["auto", "index", "walk"]

DEFAULT_CHUNK = 1_000_000
# chunks smaller than this share a snapshot: swapping one in costs more than matching them
SPAN_SYMBOLS = 65_536


class Matcher:
    """Matches batches of reads, in the order given, against one dictionary.

    mode: ``grow`` adds every mismatched k-mer at once. seed_bases: the windows wholly inside the
    first so many symbols of the stream are added before the stream is matched. kernel: ``index``
    (``auto``) or ``walk`` over the snapshot, with equal events. chunk: symbols in a chunk.
    threads: 0 is every usable core. track_tree: keep the Hybrid Tree Bitmap of a growing dictionary
    also when no window's depth is asked for.
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
    ) -> None:
        self.dictionary = dictionary
        self.mode: Mode = mode
        self.kernel: Kernel = "index" if kernel == "auto" else kernel
        self.version = 1
        self._k = dictionary.k
        self._seed_bases = seed_bases
        self._chunk = max(chunk, self._k)
        self._threads = threads or usable_cores()
        self._canonical = dictionary.strands != "forward"
        self._growing = mode == "grow" or seed_bases > 0
        self._only_set = np.uint32(0) if len(dictionary.targets) == 1 else NO_SET
        self._with_sets = len(dictionary.targets) > 1 or (
            len(dictionary.targets) == 1
            and (self._growing or bool((dictionary.sets == NO_SET).any()))
        )
        self._index = KmerIndex(
            self._k, expected=dictionary.codes.size, with_values=self._with_sets
        )
        self._index.add(
            dictionary.codes, dictionary.sets if self._with_sets else None, threads=self._threads
        )
        self._tree: TreeWorker | None = None
        self._frozen_snapshot: VersionedSnapshot | None = None
        if self._growing and (track_tree or self.kernel == "walk"):
            self._start_tree()
        self._number = 0
        self._position = 0

    @property
    def kmers(self) -> int:
        """How many k-mers the dictionary holds; both orientations of one count once."""
        return len(self._index)

    @property
    def snapshot_version(self) -> int:
        """The dictionary version of the snapshot that depths come from now."""
        if self._tree is not None:
            return self._tree.current.version
        return self.version

    def match(self, batch: ReadBatch, *, want_depths: bool = False) -> BatchResult:
        """The events of the next batch; with ``want_depths`` also how deep its windows went."""
        if want_depths and self._growing and self._tree is None:
            self._start_tree()
        walking = want_depths or self.kernel == "walk"
        total = batch.bases.size
        events = np.zeros(total, dtype=np.uint8)
        depths = np.zeros(total, dtype=np.uint8) if want_depths else None
        nodes = np.zeros(total, dtype=np.uint32) if want_depths else None
        before = self.version
        new_kmers: list[NDArray[np.uint64]] = []
        new_starts: list[NDArray[np.int64]] = []
        chunks: list[NDArray[np.int64]] = []
        versions: list[NDArray[np.int64]] = []
        seeded = 0
        for seeding, span_chunks in self._spans(batch.offsets, walking):
            start, stop = int(span_chunks[0, 0]), int(span_chunks[-1, 1])
            bases = batch.bases[start:stop]
            offsets = slice_reads(batch.offsets, start, stop)
            view = events[start:stop]
            current = self._snapshot() if walking else None
            found = self._grow_span(bases, offsets, view, seeding, current)
            if found is not None:
                codes, starts = found
                new_kmers.append(codes)
                new_starts.append(starts + start)
                seeded += codes.size if seeding else 0
            if depths is not None and nodes is not None and current is not None:
                self._measure_depths(
                    bases, offsets, view, depths[start:stop], nodes[start:stop], current
                )
                chunks.append(span_chunks)
                versions.append(np.full(len(span_chunks), current.version, dtype=np.int64))
            if found is not None and found[0].size:
                self.version += 1
                if self._tree is not None:
                    self._tree.add(found[0])
            if self._tree is not None:
                self._tree.end_span(self.version, wait=walking)
        result = BatchResult(
            number=self._number,
            base=self._position,
            batch=batch,
            k=self._k,
            events=events,
            sets=self._sets(batch, events),
            only_set=self._only_set,
            new_kmers=np.concatenate(new_kmers) if new_kmers else np.zeros(0, np.uint64),
            new_starts=np.concatenate(new_starts) if new_starts else np.zeros(0, np.int64),
            seeded=seeded,
            version_before=before,
            version=self.version,
            depths=None
            if depths is None or nodes is None
            else Depths(
                depths,
                nodes,
                np.concatenate(chunks) if chunks else np.zeros((0, 2), np.int64),
                np.concatenate(versions) if versions else np.zeros(0, np.int64),
            ),
        )
        self._number += 1
        self._position += total
        return result

    def latest_snapshot(self) -> VersionedSnapshot:
        """A snapshot of the dictionary as it is now; waits for what is being merged."""
        if self._tree is None:
            if self._growing:
                self._start_tree()
            return self._snapshot()
        return self._tree.latest(self.version)

    def close(self) -> None:
        """End the background work."""
        if self._tree is not None:
            self._tree.close()

    def _start_tree(self) -> None:
        held = self.dictionary
        if self.version > 1:
            codes = self._index.codes()
            held = Dictionary(
                self._k, held.strands, codes, np.zeros(codes.size, np.uint32), held.targets
            )
        self._tree = TreeWorker(held, self.version, self._threads)

    def _spans(
        self, offsets: NDArray[np.int64], walking: bool
    ) -> list[tuple[bool, NDArray[np.int64]]]:
        """(seeding, chunks) of every span: consecutive chunks matched against one snapshot."""
        total = int(offsets[-1])
        seed_end = min(max(self._seed_bases - self._position, 0), total)
        spans: list[tuple[bool, NDArray[np.int64]]] = []
        begin = 0
        if seed_end:
            spans.append((True, chunk_bounds(offsets, self._k, self._chunk, 0, seed_end)))
            if seed_end == total:
                return spans
            read_start = int(offsets[np.searchsorted(offsets, seed_end, side="right") - 1])
            begin = max(seed_end - self._k + 1, read_start)
        chunks = chunk_bounds(offsets, self._k, self._chunk, begin)
        if not len(chunks):
            return spans
        if not (walking and self.mode == "grow"):
            # nothing depends on the snapshot's age: one span
            return [*spans, (False, chunks)]
        group = np.concatenate(([0], np.cumsum(chunks[:, 1] - chunks[:, 0])[:-1])) // SPAN_SYMBOLS
        cuts = np.flatnonzero(np.diff(group)) + 1
        return spans + [(False, part) for part in np.split(chunks, cuts)]

    def _grow_span(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        seeding: bool,
        current: VersionedSnapshot | None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
        """Fill in the events of a span; the new k-mers and their starts, None if it cannot grow."""
        if self.kernel == "walk" and not seeding and current is not None:
            return self._walk_span(bases, offsets, events, current)
        if seeding or self.mode == "grow":
            return self._index.grow(
                bases,
                offsets,
                canonical=self._canonical,
                threads=self._threads,
                events=events,
                seed_end=bases.size if seeding else 0,
            )
        self._index.match(
            bases, offsets, canonical=self._canonical, threads=self._threads, events=events
        )
        return None

    def _walk_span(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        current: VersionedSnapshot,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
        walked, _, _ = walk(
            current.tree, bases, offsets, canonical=self._walks_canonical, threads=self._threads
        )
        events[:] = walked
        if self.mode == "frozen":
            return None
        codes, starts = window_codes(bases, offsets, self._k, canonical=self._canonical)
        missed = events[starts] == MISMATCH
        codes, starts = codes[missed], starts[missed]
        stay = self._index.reconcile(codes)
        events[starts[~stay]] = MATCH
        return codes[stay], starts[stay]

    def _measure_depths(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        depths: NDArray[np.uint8],
        nodes: NDArray[np.uint32],
        current: VersionedSnapshot,
    ) -> None:
        _, walked, reached = walk(
            current.tree,
            bases,
            offsets,
            canonical=self._walks_canonical,
            threads=self._threads,
            want_nodes=True,
        )
        np.copyto(depths, walked)
        depths[events == MATCH] = self._k
        assert reached is not None
        np.copyto(nodes, reached)

    @property
    def _walks_canonical(self) -> bool:
        # with strands "both" the trie holds both orientations and is walked as the read runs
        return self.dictionary.strands == "canonical"

    def _snapshot(self) -> VersionedSnapshot:
        if self._tree is not None:
            # a frozen dictionary is whole once seeded; a growing one is matched while it is merged
            return self._tree.latest(self.version) if self.mode == "frozen" else self._tree.current
        if self._frozen_snapshot is None:
            codes = self.dictionary.codes
            if self.dictionary.strands == "both":
                codes = with_reverse_complements(codes, self._k)
            self._frozen_snapshot = VersionedSnapshot(snapshot(codes, self._k), self.version)
        return self._frozen_snapshot

    def _sets(self, batch: ReadBatch, events: NDArray[np.uint8]) -> NDArray[np.uint32] | None:
        """The target set of each matching window, where the dictionary has more than one answer."""
        if not self._with_sets:
            return None
        sets = np.full(batch.bases.size, NO_SET, dtype=np.uint32)
        self._index.match(
            batch.bases,
            batch.offsets,
            canonical=self._canonical,
            threads=self._threads,
            events=np.empty_like(events),
            values=sets,
        )
        # a k-mer of the dictionary that grew from this very window is a mismatch without a target
        sets[events != MATCH] = NO_SET
        return sets
