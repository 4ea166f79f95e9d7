"""The engine on the CPU: the index, or a walk over the snapshot reconciled with the index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import slice_reads
from streamer.matching.match_engine import NO_CODES, NO_STARTS, MatchEngine, MatchTask, SpanFound
from streamer.matching.tree_worker import VersionedSnapshot
from trie.index.kmer_index import KmerIndex
from trie.snapshots.walk import walk
from trie.windows import MATCH, MISMATCH, window_codes

NewKmers = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Codes in stream order, and where their windows start."""


class CpuEngine(MatchEngine):
    """Matches against ``dictionary``; ``walks`` uses the snapshot."""

    def __init__(
        self, dictionary: Dictionary, *, walks: bool, with_sets: bool, threads: int
    ) -> None:
        self.walks = walks
        self._k = dictionary.k
        self._canonical = dictionary.strands != "forward"
        # with strands "both" the trie holds both orientations and is walked as the read runs
        self._walks_canonical = dictionary.strands == "canonical"
        self._threads = threads
        self._index = KmerIndex(self._k, expected=dictionary.codes.size, with_values=with_sets)
        self._index.add(dictionary.codes, dictionary.sets if with_sets else None, threads=threads)

    def __len__(self) -> int:
        return len(self._index)

    def codes(self) -> NDArray[np.uint64]:
        return self._index.codes()

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers without a target."""
        self._index.add(codes, threads=self._threads)

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """As ``MatchEngine.run``, one span after the other."""
        batch = task.batch
        # k-mers that are learnt from this batch have no set: a fixed dictionary's are at hand
        fixed = not (self.walks or task.grows or any(seeding for seeding, _ in task.spans))
        for number, (seeding, chunks) in enumerate(task.spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            bases = batch.bases[start:stop]
            offsets = slice_reads(batch.offsets, start, stop)
            events = task.events[start:stop]
            current = None if task.snapshot is None else task.snapshot(number)
            if fixed:
                sets = None if task.sets is None else task.sets[start:stop]
                self._index.match(
                    bases, offsets, canonical=self._canonical, threads=self._threads,
                    events=events, values=sets,
                )  # fmt: skip
                codes, starts = NO_CODES, NO_STARTS
            else:
                codes, starts = self._match_span(
                    bases, offsets, events, seeding, task.grows, current
                )
            if task.depths is not None and task.nodes is not None and current is not None:
                _, depths, nodes = self._walk(bases, offsets, current, want_nodes=True)
                assert nodes is not None
                depths[events == MATCH] = self._k
                task.depths[start:stop], task.nodes[start:stop] = depths, nodes
            version = 0 if current is None else current.version
            yield SpanFound(seeding, chunks, version, codes, starts + start)
        if task.sets is not None and not fixed:
            self._index.match(
                batch.bases,
                batch.offsets,
                canonical=self._canonical,
                threads=self._threads,
                events=np.empty_like(task.events),
                values=task.sets,
            )

    def _match_span(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        seeding: bool,
        grows: bool,
        current: VersionedSnapshot | None,
    ) -> NewKmers:
        """Fill in the events of a span; the k-mers that it adds."""
        canonical, threads = self._canonical, self._threads
        if self.walks and not seeding and current is not None:
            events[:] = self._walk(bases, offsets, current)[0]
            if not grows:
                return NO_CODES, NO_STARTS
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
        return NO_CODES, NO_STARTS

    def _walk(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        current: VersionedSnapshot,
        *,
        want_nodes: bool = False,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint32] | None]:
        """Events, depths and trie nodes by the snapshot."""
        return walk(
            current.tree, bases, offsets,
            canonical=self._walks_canonical, threads=self._threads, want_nodes=want_nodes,
        )  # fmt: skip
