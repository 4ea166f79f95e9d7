"""The result of matching one batch of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from streamer.matching.events import Events
from streamer.matching.match_engine import NO_CODES, NO_STARTS, MatchTask, SpanFound
from streamer.matching.near import ApproximateResult
from streamer.sequences.read_batch import ReadBatch
from trie.snapshots.tree_bitmap import pack_events

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
    found: MATCH or MISMATCH at each window start, 0 elsewhere; ``events`` has them as bytes. sets:
    uint32[symbols], the target set of each matching window; None if all have ``only_set``. numbers:
    uint32[symbols], the number of each window's k-mer if the initial dictionary has it
    (``WindowLabels.numbers``), else NO_SET; None if not counted, or if the engine found ``runs``:
    int64[runs, 4], which hold each matching window once: first window, one past the last, place of
    the first one's k-mer in the records (``WindowLabels.places``), and the step to the places of
    the next ones, 1 or -1. new_kmers: uint64, k-mers added to the dictionary, in stream order
    (canonical codes unless strands is ``forward``). new_starts: int64, their windows; the first
    ``seeded`` are seeds: windows within the first ``seed_bases`` symbols. version, version_before:
    of the dictionary, after and before the batch. near: what lies within the distance, if one was
    requested. learned: uint64, k-mers, as stored, that later windows are compared with.
    """

    number: int
    base: int
    batch: ReadBatch
    k: int
    found: Events
    only_set: np.uint32
    version_before: int
    version: int
    sets: NDArray[np.uint32] | None = None
    numbers: NDArray[np.uint32] | None = None
    runs: NDArray[np.int64] | None = None
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

    def split(self, batches: Sequence[ReadBatch]) -> list[BatchResult]:
        """Split the result of batches that were matched together and added nothing."""
        assert not self.new_kmers.size
        assert self.depths is None
        found = []
        start = 0
        runs = self._runs_of(batches)
        for at, batch in enumerate(batches):
            part = slice(start, start + batch.bases.size)
            found.append(
                replace(
                    self,
                    number=self.number + at,
                    base=self.base + start,
                    batch=batch,
                    found=self.found.part(start, part.stop),
                    sets=None if self.sets is None else self.sets[part],
                    numbers=None if self.numbers is None else self.numbers[part],
                    runs=None if runs is None else runs[at] - np.array([start, start, 0, 0]),
                )
            )
            start = part.stop
        return found

    def _runs_of(self, batches: Sequence[ReadBatch]) -> list[NDArray[np.int64]] | None:
        """Distribute the runs to the batches that they lie in."""
        if self.runs is None:
            return None
        ends = np.cumsum([batch.bases.size for batch in batches])
        return grouped(self.runs, np.searchsorted(ends, self.runs[:, 0], side="right"), len(ends))

    def words(self) -> list[ChunkWords]:
        """Return the event words of every chunk, in stream order; requires ``want_depths``.

        If the snapshot does not yet hold a matching k-mer (new in an earlier window, thesis
        3.3.10), its word has depth k and the deepest node on its path in the snapshot.
        """
        if self.depths is None or self.depths.nodes.size != self.depths.depths.size:
            raise ValueError("event words need want_depths and want_nodes")
        found = self.depths
        return [
            ChunkWords(
                self.base + int(start),
                int(version),
                pack_events(
                    # windows that start in the last k-1 symbols belong to the next chunk
                    self.events[start : max(stop - self.k + 1, start)],
                    found.depths[start : max(stop - self.k + 1, start)],
                    found.nodes[start : max(stop - self.k + 1, start)],
                ),
            )
            for (start, stop), version in zip(found.chunks, found.versions, strict=True)
        ]


def grouped(
    rows: NDArray[np.int64], group: NDArray[np.int64], groups: int
) -> list[NDArray[np.int64]]:
    """Distribute rows to the groups 0..groups - 1, in their order."""
    order = np.argsort(group, kind="stable")
    cuts = np.searchsorted(group[order], np.arange(1, groups))
    return np.split(rows[order], cuts)


def concatenated(parts: Sequence[NDArray], empty: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Concatenate all parts, or return ``empty`` if there are none."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else empty
