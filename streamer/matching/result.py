"""The result of matching one batch of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from streamer.matching.events import SET, Events
from streamer.matching.match_engine import NO_CODES, NO_STARTS, MatchTask, SpanFound
from streamer.matching.near import ApproximateResult
from streamer.matching.record_runs import NO_RUNS, Runs, moved
from streamer.sequences.read_batch import ReadBatch
from trie.snapshots.tree_bitmap import pack_events
from trie.windows import MATCH, NO_SET

_NO_CHUNKS = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Depths:
    """How deep each window went in the trie, and in which snapshots.

    depths: uint8[symbols], at each window start, the depth of its event (k for a match, 1 + the
    longest prefix in the trie for a mismatch). nodes: uint32[symbols], the trie node that holds the
    deepest state reached. chunks: int64[chunks, 2], first symbol and one past the last. versions:
    int64[chunks], the dictionary version of the snapshot that each chunk was matched against.
    Without trie nodes, everything except depths may be empty.
    """

    depths: NDArray[np.uint8]
    nodes: NDArray[np.uint32]
    chunks: NDArray[np.int64]
    versions: NDArray[np.int64]

    @classmethod
    def of(cls, task: MatchTask, spans: Sequence[SpanFound]) -> Depths | None:
        """Take them from a task whose spans are matched; None if it did not ask for them."""
        if task.depths is None or task.nodes is None:
            return None
        versions = [np.full(len(span.chunks), span.version, dtype=np.int64) for span in spans]
        chunks = concatenated([span.chunks for span in spans], _NO_CHUNKS)
        return cls(task.depths, task.nodes, chunks, concatenated(versions, NO_STARTS))

    @classmethod
    def alone(cls, depths: NDArray[np.uint8]) -> Depths:
        """Create depths without trie nodes."""
        return cls(depths, np.zeros(0, np.uint32), _NO_CHUNKS, NO_STARTS)


@dataclass(frozen=True, slots=True)
class ChunkWords:
    """The event words (thesis Fig. 11) of one chunk and its header.

    base: 64-bit stream position of the chunk's first symbol, to which the index in each word is
    relative. version: of the snapshot that the words' nodes belong to. words: uint64.
    """

    base: int
    version: int
    words: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The events of one batch.

    number: order of acceptance, from 0. base: position of the batch's first symbol in the stream.
    found: MATCH or MISMATCH at each window start, 0 elsewhere; ``events`` has them as bytes. runs:
    int64[runs, 5], where the records of the dictionary have matching windows
    (``streamer.matching.record_runs``); empty if nobody asked. default_set: the target set of the
    matching windows that are in no run: NO_SET, or, if the dictionary has one set for all its
    k-mers and always will, that set. new_kmers: uint64, k-mers added to the dictionary, in stream
    order (canonical codes unless strands is ``forward``). new_starts: int64, their windows; the
    first ``seeded`` are seeds: windows within the first ``seed_bases`` symbols. version,
    version_before: of the dictionary, after and before the batch. near: what lies within the
    distance, if one was requested. learned: uint64, k-mers, as stored, that later windows are
    compared with.
    """

    number: int
    base: int
    batch: ReadBatch
    k: int
    found: Events
    version_before: int
    version: int
    default_set: np.uint32 = NO_SET
    runs: Runs = field(default_factory=lambda: NO_RUNS)
    new_kmers: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)
    new_starts: NDArray[np.int64] = field(default_factory=lambda: NO_STARTS)
    seeded: int = 0
    seed_bases: int = 0
    depths: Depths | None = None
    near: ApproximateResult | None = None
    learned: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)

    @property
    def events(self) -> NDArray[np.uint8]:
        """uint8[symbols]: MATCH or MISMATCH at each window start, 0 elsewhere."""
        return self.found.codes

    @property
    def has_one_set(self) -> bool:
        """Whether all matching windows have the ``default_set``."""
        return bool(self.default_set != NO_SET) or not len(self.runs)

    def sets_at(self, symbols: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The target set of the window at each of these symbols, if it matches, or else NO_SET."""
        sets = np.where(self.events[symbols] == MATCH, self.default_set, NO_SET).astype(np.uint32)
        if len(self.runs):
            run = np.searchsorted(self.runs[:, 0], symbols, side="right") - 1
            inside = (run >= 0) & (symbols < self.runs[run, 1])
            sets[inside] = self.runs[run[inside], SET]
        return sets

    def split(self, batches: Sequence[ReadBatch]) -> list[BatchResult]:
        """Split the result of batches that were matched together and added nothing."""
        assert not self.new_kmers.size
        assert self.depths is None
        results: list[BatchResult] = []
        start, runs = 0, self.runs
        for batch in batches:
            stop = start + batch.symbols
            if len(self.runs):
                first, last = np.searchsorted(self.runs[:, 0], (start, stop))
                runs = moved(self.runs[first:last].copy(), -start)
            number, base = self.number + len(results), self.base + start
            events = self.found.part(start, stop)
            results.append(
                replace(self, number=number, base=base, batch=batch, found=events, runs=runs)
            )
            start = stop
        return results

    def words(self) -> list[ChunkWords]:
        """Return the event words of every chunk, in stream order; requires ``want_depths``.

        If the snapshot does not yet hold a matching k-mer (new in an earlier window, thesis
        3.3.10), its word has depth k and the deepest node on its path in the snapshot.
        """
        if self.depths is None or self.depths.nodes.size != self.depths.depths.size:
            raise ValueError("event words need want_depths and want_nodes")
        depths = self.depths
        return [
            ChunkWords(
                self.base + int(start),
                int(version),
                pack_events(
                    # windows that start in the last k-1 symbols belong to the next chunk
                    self.events[start : max(stop - self.k + 1, start)],
                    depths.depths[start : max(stop - self.k + 1, start)],
                    depths.nodes[start : max(stop - self.k + 1, start)],
                ),
            )
            for (start, stop), version in zip(depths.chunks, depths.versions, strict=True)
        ]


def concatenated(parts: Sequence[NDArray], empty: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Concatenate all parts, or return ``empty`` if there are none."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else empty
