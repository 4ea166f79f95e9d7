"""The steps of a batch while its dictionary grows: which ends see which snapshot.

A span of exact matching becomes a step: its ends are matched against the dictionary as it was
before the span, and the k-mers that it brought are learnt afterwards. Seeds are the exception: they
are learnt first, since the whole stream is matched against them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamer.matching.chunks import slice_reads
from streamer.matching.engine import SpanFound
from streamer.matching.near.near_result import Step
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.trees.shards import sort_unique
from trie.windows import codes_at, window_codes

Snapshot = Callable[[bool], tuple[int, VersionedSnapshot | None]]


class NearSteps:
    """Collects the steps of a batch.

    snapshot: the version of the dictionary now and, for solvers that walk, its Tree Bitmap; asked
    with True where the newest is wanted at any cost.
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
        """The next span, before its k-mers are in any snapshot."""
        batch, stop = self._batch, int(found.chunks[-1, 1])
        if found.seeding:
            first = int(found.chunks[0, 0])
            bases, offsets = batch.bases[first:stop], slice_reads(batch.offsets, first, stop)
            # every seed as it stands: what is seeded equals a dictionary of the same windows
            self._seeds.append(window_codes(bases, offsets, self._k, canonical=False)[0])
            self._seeded = stop
            return
        self._learn_seeds()
        learnt = np.zeros(0, dtype=np.uint64)
        if found.starts is not None and found.starts.size:
            learnt = codes_at(batch.bases, found.starts, self._k)
        self._match(stop, learnt, newest=False)

    def finished(self) -> list[Step]:
        """All steps of the batch, in order."""
        self._learn_seeds()
        return self._steps

    def _learn_seeds(self) -> None:
        if self._seeds:
            seeds = sort_unique(np.concatenate(self._seeds), self._k, 1)
            self._seeds.clear()
            self._steps.append(Step(self._done, self._done, 0, None, seeds))
            self._match(self._seeded, np.zeros(0, dtype=np.uint64), newest=True)

    def _match(self, stop: int, learnt: NDArray[np.uint64], *, newest: bool) -> None:
        version, held = self._snapshot(newest)
        tree = None if held is None else held.tree
        self._steps.append(Step(self._done, stop, version, tree, learnt))
        self._done = stop
