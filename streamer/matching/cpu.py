"""The engine on the CPU: the index, or a walk over the snapshot reconciled with the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import slice_reads
from streamer.matching.engine import BatchArrays, PackedPath, Span, SpanFound
from streamer.matching.result import MATCH, MISMATCH
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.index.kmer_index import KmerIndex
from trie.snapshots.walk import walk
from trie.windows import window_codes


class CpuEngine:
    """Matches against ``dictionary``; ``grows`` adds what it lacks, ``walks`` asks the snapshot."""

    def __init__(
        self, dictionary: Dictionary, *, grows: bool, walks: bool, with_sets: bool, threads: int
    ) -> None:
        self.walks = walks
        self.packed: PackedPath | None = None
        self._k = dictionary.k
        self._canonical = dictionary.strands != "forward"
        # with strands "both" the trie holds both orientations and is walked as the read runs
        self._walks_canonical = dictionary.strands == "canonical"
        self._grows = grows
        self._threads = threads
        self._index = KmerIndex(self._k, expected=dictionary.codes.size, with_values=with_sets)
        self._index.add(
            dictionary.codes, dictionary.sets if with_sets else None, threads=self._threads
        )

    def __len__(self) -> int:
        return len(self._index)

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending."""
        return self._index.codes()

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers without a target."""
        self._index.add(codes, threads=self._threads)

    def close(self) -> None:
        """Nothing is held."""

    def run(
        self,
        batch: ReadBatch,
        spans: Sequence[Span],
        position: int,
        arrays: BatchArrays,
        snapshot: Callable[[int], VersionedSnapshot] | None,
    ) -> Iterator[SpanFound]:
        """As ``MatchEngine.run``, a span after the other."""
        for number, (seeding, chunks) in enumerate(spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            bases = batch.bases[start:stop]
            offsets = slice_reads(batch.offsets, start, stop)
            events = arrays.events[start:stop]
            current = snapshot(number) if snapshot is not None else None
            found = self._match_span(bases, offsets, events, seeding, current)
            if arrays.depths is not None and arrays.nodes is not None and current is not None:
                self._measure_depths(
                    bases, offsets, events, arrays.depths[start:stop], arrays.nodes[start:stop],
                    current,
                )  # fmt: skip
            version = current.version if current is not None else 0
            if found is None:
                yield SpanFound(seeding, chunks, version)
            else:
                yield SpanFound(seeding, chunks, version, found[0], found[1] + start)
        if arrays.sets is not None:
            self._index.match(
                batch.bases,
                batch.offsets,
                canonical=self._canonical,
                threads=self._threads,
                events=np.empty_like(arrays.events),
                values=arrays.sets,
            )

    def _match_span(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        seeding: bool,
        current: VersionedSnapshot | None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
        """Fill in the events of a span; the new k-mers and their starts, None if it cannot grow."""
        if self.walks and not seeding and current is not None:
            return self._walk_span(bases, offsets, events, current)
        if seeding or self._grows:
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
        if not self._grows:
            return None
        codes, starts = window_codes(bases, offsets, self._k, canonical=self._canonical)
        missed = events[starts] == MISMATCH
        codes, starts = codes[missed], starts[missed]
        stay = self._index.add(codes)
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
