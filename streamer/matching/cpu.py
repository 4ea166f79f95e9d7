"""The engine on the CPU: an index, or a walk over the snapshot reconciled with the index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index, sets_of_runs
from streamer.dictionary.targets import Dictionary
from streamer.matching import match_engine
from streamer.matching.events import Events
from streamer.matching.result import concatenated
from streamer.matching.tree_worker import VersionedSnapshot
from trie.index.kmer_index import KmerIndex
from trie.snapshots.tree_bitmap import walk
from trie.windows import MATCH, MISMATCH, window_codes

NewKmers = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""New k-mers: codes in stream order, and where their windows start."""


class CpuEngine(match_engine.MatchEngine):
    """Matches against ``dictionary``; ``walks`` uses the snapshot.

    index: of the dictionary, if windows are looked up in it: for a fixed dictionary. counted: with
    it, find runs.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        walks: bool,
        with_sets: bool,
        changes: bool,
        threads: int,
        index: Index | None = None,
        counted: bool = False,
    ) -> None:
        self.walks = walks
        self._k = dictionary.k
        self._canonical = dictionary.strands != "forward"
        # with strands "both" the trie holds both orientations, so the read is walked as it is
        self._walks_canonical = dictionary.strands == "canonical"
        self._threads = threads
        self._dictionary = dictionary
        self._indexed = index
        self.finds_bits = index is not None
        self.finds_runs = counted and index is not None
        if index is not None:
            # now, not with the first batch
            _ = index.text
            if counted or with_sets:
                _ = index.shares
        else:
            self._index = KmerIndex(self._k, expected=dictionary.kmers, with_values=with_sets)
            sets = dictionary.sets if with_sets else None
            self._index.add(dictionary.codes, sets, threads=threads)

    def __len__(self) -> int:
        return len(self._index) if self._indexed is None else self._dictionary.kmers

    def codes(self) -> NDArray[np.uint64]:
        return self._index.codes() if self._indexed is None else self._dictionary.codes

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers without a target."""
        self._index.add(codes, threads=self._threads)

    def add(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add k-mers without a target, in order; return which of them were new."""
        return self._index.add(codes)

    def seed(self, task: match_engine.MatchTask, start: int, stop: int) -> NewKmers:
        """Fill in events and sets of seeds, symbols [start, stop); return the k-mers added."""
        bases = task.batch.bases[start:stop]
        offsets = match_engine.slice_reads(task.batch.offsets, start, stop)
        events = task.events[start:stop]
        codes, starts = self._match_span(bases, offsets, events, True, task.grows, None)
        if task.sets is not None:
            self._index.match(
                bases, offsets, canonical=self._canonical, threads=self._threads,
                events=np.empty_like(events), values=task.sets[start:stop],
            )  # fmt: skip
        return codes, starts + start

    def run(self, task: match_engine.MatchTask) -> Iterator[match_engine.SpanFound]:
        """Like ``MatchEngine.run``, one span after the other."""
        batch = task.batch
        events, runs = self._found_in_text(task)
        if events is not None and task.depths is None:
            if task.spans:
                parts = [chunks for _, chunks in task.spans]
                yield match_engine.SpanFound(
                    False, np.concatenate(parts), 0, events=events, runs=runs
                )
            return
        for number, (seeding, chunks) in enumerate(task.spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            bases = batch.bases[start:stop]
            offsets = match_engine.slice_reads(batch.offsets, start, stop)
            span_events = task.events[start:stop]
            current = None if task.snapshot is None else task.snapshot(number)
            codes, starts = match_engine.NO_CODES, match_engine.NO_STARTS
            if events is None:
                codes, starts = self._match_span(
                    bases, offsets, span_events, seeding, task.grows, current
                )
            if task.depths is not None and task.nodes is not None and current is not None:
                _, depths, nodes = self._walk(bases, offsets, current, want_nodes=True)
                assert nodes is not None
                depths[span_events == MATCH] = self._k
                task.depths[start:stop], task.nodes[start:stop] = depths, nodes
            version = 0 if current is None else current.version
            yield match_engine.SpanFound(seeding, chunks, version, codes, starts + start, runs=runs)
        if task.sets is not None and events is None:
            self._index.match(
                batch.bases,
                batch.offsets,
                canonical=self._canonical,
                threads=self._threads,
                events=np.empty_like(task.events),
                values=task.sets,
            )

    def _found_in_text(
        self, task: match_engine.MatchTask
    ) -> tuple[Events | None, NDArray[np.int64] | None]:
        """Find a batch's events and runs in the index, and the sets.

        Events are written as bytes too if depths are wanted.
        """
        index = self._indexed
        if index is None:
            return None, None
        bases, offsets = task.batch.bases, task.batch.offsets
        parts: list[NDArray[np.int64]] | None = None
        if self.finds_runs or task.sets is not None:
            parts = []
        bits = index.text.match(bases, offsets, threads=self._threads, runs=parts)
        events = Events(bases.size, bits=bits)
        if task.depths is not None:
            task.events[:] = events.codes
        if parts is None:
            return events, None
        runs = concatenated(parts, match_engine.NO_RUNS)
        if task.sets is not None:
            places = index.starts, index.record_sets, index.shares.shared
            sets_of_runs(runs, *places, len(index.targets), task.sets)
        return events, runs if self.finds_runs else None

    def _match_span(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        seeding: bool,
        grows: bool,
        current: VersionedSnapshot | None,
    ) -> NewKmers:
        """Fill in the events of a span; return the k-mers that it adds."""
        canonical, threads = self._canonical, self._threads
        if self.walks and not seeding and current is not None:
            events[:] = self._walk(bases, offsets, current)[0]
            if not grows:
                return match_engine.NO_CODES, match_engine.NO_STARTS
            codes, starts = window_codes(bases, offsets, self._k, canonical=canonical)
            missed = events[starts] == MISMATCH
            codes, starts = codes[missed], starts[missed]
            stay = self._index.add(codes)
            events[starts[~stay]] = MATCH
            return codes[stay], starts[stay]
        if seeding or grows:
            return self._index.grow(
                bases, offsets, canonical=canonical, threads=threads,
                events=events, seed_end=bases.size if seeding else 0,
            )  # fmt: skip
        self._index.match(bases, offsets, canonical=canonical, threads=threads, events=events)
        return match_engine.NO_CODES, match_engine.NO_STARTS

    def _walk(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        current: VersionedSnapshot,
        *,
        want_nodes: bool = False,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint32] | None]:
        """Compute events, depths and trie nodes by walking the snapshot."""
        return walk(
            current.tree, bases, offsets,
            canonical=self._walks_canonical, threads=self._threads, want_nodes=want_nodes,
        )  # fmt: skip
