"""What approximate matching of a batch gives: columns by end, and the best of each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import NO_SET, Dictionary
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import places
from trie.levenshtein import Nearest
from trie.snapshots.tree_bitmap import TreeBitmap

_NO_CODES = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive symbols of a batch that are matched against one snapshot.

    version: of the snapshot. tree: it, where the solver walks it. learnt: uint64, the k-mers as
    stored that are added afterwards.
    """

    first: int
    stop: int
    version: int
    tree: TreeBitmap | None = None
    learnt: NDArray[np.uint64] = field(default_factory=lambda: _NO_CODES)


@dataclass(frozen=True, slots=True)
class LtbWords:
    """The bitmaps of Fig. 31, by ascending end, one of the two not zero.

    end int64: behind the symbol, from the first of the batch. matches uint32: bit e for each
    distance e. mismatches uint32: bit h + 1 for each depth h.
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
    target uint32 (target set). ltb: matches and mismatches uint32 (bitmaps of Fig. 31). What the
    semantics lacks is empty.
    """

    k: int
    distance_limit: int
    semantics: str
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

    def __len__(self) -> int:
        return self.end.size

    def best(self) -> NDArray[np.int64]:
        """The rows that are the best of their cluster.

        A cluster is a maximal run of adjacent ends of one read; the least distance is the best, and
        of equals the leftmost.
        """
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        rows = np.arange(len(self))
        apart = (np.diff(self.read) != 0) | (np.diff(self.end) != 1)
        begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
        ranked = (self.distance.astype(np.int64) << 48) | rows
        return np.minimum.reduceat(ranked, begins) & ((1 << 48) - 1)


def joined(
    batch: ReadBatch,
    parts: Sequence[tuple[int, Found]],
    stored: Dictionary,
    semantics: str,
    distance: int,
    threads: int,
) -> ApproximateResult:
    """The rows of all steps, with reads and targets."""
    columns: dict[str, NDArray] = {}  # type: ignore[type-arg]
    names = {"end": np.int64, "length": np.int64, "distance": np.uint8, "strand": np.uint8}
    names |= {"code": np.uint64, "matches": np.uint32, "mismatches": np.uint32}
    for name, dtype in names.items():
        held = [getattr(found, name) for _, found in parts if hasattr(found, name)]
        columns[name] = np.concatenate(held) if held else np.zeros(0, dtype)
    version = np.repeat(
        np.array([version for version, _ in parts], dtype=np.int64),
        [found.end.size for _, found in parts],
    )
    # ends ascend; one behind the last symbol of a read belongs to that read
    rows = np.diff(np.searchsorted(columns["end"], batch.offsets, side="right"))
    read = np.repeat(np.arange(rows.size), rows)
    end = columns["end"] - np.repeat(batch.offsets[:-1], rows)
    return ApproximateResult(
        k=stored.k,
        distance_limit=distance,
        semantics=semantics,
        read=read,
        end=end,
        version=version,
        start=end - columns["length"] if semantics == "levenshtein" else columns["length"],
        distance=columns["distance"],
        strand=columns["strand"],
        code=columns["code"],
        target=_targets(columns["code"], stored, threads),
        matches=columns["matches"],
        mismatches=columns["mismatches"],
    )


def _targets(codes: NDArray[np.uint64], stored: Dictionary, threads: int) -> NDArray[np.uint32]:
    """The target set of each k-mer; NO_SET for those that have grown."""
    at = places(stored.codes, codes, threads)
    # the last one stands for -1
    return np.append(stored.sets, NO_SET).astype(np.uint32, copy=False)[at]
