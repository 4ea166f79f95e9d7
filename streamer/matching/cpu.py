"""The engine on the CPU: the text of an index, and a set of further k-mers.

Windows are looked up in the text first, then in the set, which alone grows. Where the text does not
suit, the set has all k-mers; the first place of each is its value if runs are wanted. With the
kernel ``walk``, windows are matched against the snapshot, and what it lacks is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index
from streamer.dictionary.targets import Dictionary
from streamer.matching import match_engine
from streamer.matching.events import Bits, Events
from streamer.matching.record_runs import NO_RUNS, Runs, runs_in_text, runs_of_places
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import merged
from trie.index.kmer_index import NOTHING_KNOWN, KmerIndex
from trie.snapshots.tree_bitmap import walk
from trie.strands import Strands
from trie.windows import MATCH, clear_at, window_starts

NewKmers = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""New k-mers: codes in stream order, and where their windows start."""


class CpuEngine(match_engine.MatchEngine):
    """Looks windows up in the text of ``index``, if ``in_text``, and in a set of other k-mers.

    codes: uint64, those of the set. places: uint32, where their first windows are in the text, or
    NO_SET; None if the set is not to find runs. walks: match windows against the snapshot, too.
    runs: find those in the text.
    """

    def __init__(
        self,
        k: int,
        strands: Strands,
        codes: NDArray[np.uint64],
        places: NDArray[np.uint32] | None,
        *,
        threads: int,
        index: Index | None = None,
        in_text: bool = False,
        walks: bool = False,
        runs: bool = False,
    ) -> None:
        self._k = k
        self._canonical = strands != "forward"
        # with strands "both" the trie holds both orientations, so the read is walked as it is
        self._walks_canonical = strands == "canonical"
        self._walks = walks
        self._wants_runs = runs
        self._threads = threads
        self._index = index
        self._text = index.text if index is not None and in_text else None
        if index is not None and runs:
            # now, not with the first batch
            _ = index.shares
        self._has_places = places is not None
        self._set = KmerIndex(k, expected=codes.size, with_values=self._has_places)
        self._set.add(codes, places, threads=threads)

    @classmethod
    def of(cls, dictionary: Dictionary, *, walks: bool, runs: bool, threads: int) -> CpuEngine:
        """Make the engine of a dictionary; ``runs``: find them, too."""
        index = dictionary.index
        in_text = index.suits and not walks
        return cls(
            dictionary.k, dictionary.strands, dictionary.grown if in_text else dictionary.codes,
            dictionary.places if runs and not in_text else None, threads=threads, index=index,
            in_text=in_text, walks=walks, runs=runs,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._set) + (self._index.shares.distinct if self._text and self._index else 0)

    def codes(self) -> NDArray[np.uint64]:
        codes = self._set.codes()
        if self._text is None or self._index is None:
            return codes
        return merged(self._index.codes(), codes, self._threads)

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers without a target."""
        self._set.add(codes, threads=self._threads)

    def add(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add k-mers without a target, in order; return which of them were new."""
        return self._set.add(codes)

    def grow(
        self, batch: ReadBatch, start: int, stop: int, known: NDArray[np.uint8] = NOTHING_KNOWN
    ) -> NewKmers:
        """Add the k-mers of the windows inside [start, stop) that are not ``known`` events."""
        return self._set.grow(
            batch.bases, batch.offsets, canonical=self._canonical, threads=self._threads,
            known=known, start=start, stop=stop,
        )  # fmt: skip

    def find(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[match_engine.Found]:
        for batch in batches:
            if self._text is not None:
                bits, runs = self._in_text(batch)
                events = Events(batch.symbols, bits)
                if len(self._set):
                    events, _ = self.in_set(batch, events.codes)
                yield match_engine.Found(events, runs)
                continue
            if self._walks:
                events = Events.of(self._walk(batch.bases, batch.offsets, snapshot())[0])
                places = self.in_set(batch)[1] if self._has_places else None
            else:
                events, places = self.in_set(batch)
            yield match_engine.Found(events, self._runs_of(batch, places))

    def find_in_part(
        self, batch: ReadBatch, *, seeks: bool, settles: bool
    ) -> match_engine.Found | None:
        """Do ``TextIndex.match`` without runs; None if windows are looked up elsewhere, too."""
        if self._text is None or len(self._set):
            return None
        bits = self._text.match(
            batch.bases, batch.offsets, threads=self._threads, seeks=seeks, settles=settles
        )
        return match_engine.Found(Events(batch.symbols, bits), NO_RUNS)

    def _in_text(self, batch: ReadBatch) -> tuple[Bits, Runs]:
        assert self._text is not None
        parts: list[NDArray[np.int64]] | None = [] if self._wants_runs else None
        bits = self._text.match(batch.bases, batch.offsets, threads=self._threads, runs=parts)
        if not parts or self._index is None:
            return bits, NO_RUNS
        return bits, runs_in_text(self._index, parts, self._threads)

    def in_set(
        self, batch: ReadBatch, known: NDArray[np.uint8] = NOTHING_KNOWN
    ) -> tuple[Events, NDArray[np.uint32] | None]:
        """Look windows up in the set; also return the first places of their k-mers, if it has them.

        known: events, of which mismatches are looked up.
        """
        places = np.empty(batch.symbols, np.uint32) if self._has_places else None
        events = self._set.match(
            batch.bases, batch.offsets, canonical=self._canonical, threads=self._threads,
            known=known, values=places,
        )  # fmt: skip
        return Events.of(events), places

    def _runs_of(self, batch: ReadBatch, places: NDArray[np.uint32] | None) -> Runs:
        if places is None or self._index is None:
            return NO_RUNS
        return runs_of_places(self._index, places, batch.offsets, self._threads)

    def run(self, task: match_engine.MatchTask) -> Iterator[match_engine.SpanFound]:
        """Like ``MatchEngine.run``, one span after the other."""
        batch, (starts, matches) = task.batch, task.bits
        known, runs, mismatched = NOTHING_KNOWN, NO_RUNS, [match_engine.NO_STARTS]
        if self._text is not None:
            bits, runs = self._in_text(batch)
            known = Events(batch.symbols, bits).codes
        elif self._walks:
            known = np.zeros(batch.symbols, np.uint8)
        for number, (seeding, chunks) in enumerate(task.spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            codes, new, version = match_engine.NO_CODES, match_engine.NO_STARTS, 0
            walking = self._walks and not seeding
            if task.depths is not None or walking:
                current = task.snapshot(number)
                reads = (
                    batch.bases[start:stop],
                    match_engine.slice_reads(batch.offsets, start, stop),
                )
                want_nodes = task.depths is not None
                events, depths, nodes = self._walk(*reads, current, want_nodes=want_nodes)
                version = current.version
                if walking:
                    known[start:stop] = events
                if task.depths is not None and task.nodes is not None and nodes is not None:
                    task.depths[start:stop], task.nodes[start:stop] = depths, nodes
            if seeding or task.grows:
                codes, new = self.grow(batch, start, stop, known)
            if not seeding:
                mismatched.append(new)
            yield match_engine.SpanFound(seeding, chunks, version, codes, new)
        if task.grows:
            starts[:] = window_starts(batch.bases, batch.offsets, self._k, threads=self._threads)
            matches[:] = starts
            for new in mismatched:
                clear_at(matches, new)
            if self._has_places:
                runs = self._runs_of(batch, self.in_set(batch)[1])
        else:
            (answer,) = self.find([batch], lambda: task.snapshot(len(task.spans)))
            starts[:], matches[:] = answer.events.bits
            runs = answer.runs
        task.runs.append(runs)
        if task.depths is not None:
            task.depths[Events(batch.symbols, task.bits).codes == MATCH] = self._k

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
