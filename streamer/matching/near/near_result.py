"""The result of approximate matching of a batch: columns by end, and the best row per cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.spec import MatchSpec, Semantics
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import places
from trie.levenshtein import Nearest
from trie.overlaps import disjoint
from trie.windows import NO_SET


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
            given = [getattr(found, name) for _, found in parts if hasattr(found, name)]
            return np.concatenate(given) if given else np.zeros(0, dtype)

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
                [found.end.size for _, found in parts],
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
    # the last element serves index -1
    return np.append(stored.sets, NO_SET).astype(np.uint32, copy=False)[at]
