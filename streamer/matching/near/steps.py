"""The steps of a batch while its dictionary grows: which ends see which snapshot.

A span of exact matching becomes a step: its ends are matched against the dictionary as it was
before the span, and the span's k-mers are learned afterwards. Seeds are the exception: they are
learned first, because the whole stream is matched against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.matching.chunks import slice_reads
from streamer.matching.match_engine import NO_CODES, SpanFound
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.trees.shards import sort_unique
from trie.windows import codes_at, window_codes

Snapshot = Callable[[bool], tuple[int, VersionedSnapshot | None]]


class Step(NamedTuple):
    """Consecutive symbols of a batch that are matched against one snapshot.

    version: of the snapshot. tree: the snapshot, if the solver walks it. learned: uint64, the
    k-mers, as stored, to add afterwards.
    """

    first: int
    stop: int
    version: int
    tree: TreeBitmap | None = None
    learned: NDArray[np.uint64] = NO_CODES


class NearSteps:
    """Collects the steps of a batch.

    snapshot: returns the current dictionary version and, for solvers that walk, its Tree Bitmap;
    called with True to require the newest.
    """

    def __init__(self, batch: ReadBatch, k: int, snapshot: Snapshot) -> None:
        self._batch = batch
        self._k = k
        self._snapshot = snapshot
        self._steps: list[Step] = []
        self._done = 0
        self._seeds: list[NDArray[np.uint64]] = []
        self._seeded = 0

    def add(self, found: SpanFound) -> None:
        """Add the next span, before any snapshot holds its k-mers."""
        batch, stop = self._batch, int(found.chunks[-1, 1])
        if found.seeding:
            first = int(found.chunks[0, 0])
            bases, offsets = batch.bases[first:stop], slice_reads(batch.offsets, first, stop)
            # keep seeds as they stand: seeding must equal a dictionary of the same windows
            self._seeds.append(window_codes(bases, offsets, self._k, canonical=False)[0])
            self._seeded = stop
            return
        self._learn_seeds()
        learned = NO_CODES
        if found.starts.size:
            learned = codes_at(batch.bases, found.starts, self._k)
        self._match(stop, learned, newest=False)

    def finished(self) -> list[Step]:
        """Return all steps of the batch, in order."""
        self._learn_seeds()
        return self._steps

    def _learn_seeds(self) -> None:
        if self._seeds:
            seeds = sort_unique(np.concatenate(self._seeds), self._k, 1)
            self._seeds.clear()
            self._steps.append(Step(self._done, self._done, 0, None, seeds))
            self._match(self._seeded, NO_CODES, newest=True)

    def _match(self, stop: int, learned: NDArray[np.uint64], *, newest: bool) -> None:
        version, current = self._snapshot(newest)
        tree = None if current is None else current.tree
        self._steps.append(Step(self._done, stop, version, tree, learned))
        self._done = stop
