"""The Levenshtein Tree Bitmap of the thesis (3.3.14-3.3.17) as a solver.

The snapshot comes with the step; without one (a fixed dictionary) it is made from the stored
k-mers once. The automaton starts afresh in every read, and so that it does not depend on where a
step begins, it is run from k + D - 1 symbols before. ``trie.ltb`` runs it on the CPU, and
``gpu.ltb.stream`` on CUDA devices, chunk by chunk on two streams; all methods give the same words.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.matching.chunks import slice_reads
from streamer.matching.near.near_result import LtbWords, Step
from streamer.matching.near.solver import CardOrCpu, Options
from streamer.sequences.read_batch import ReadBatch
from trie.codes import with_reverse_complements
from trie.snapshots.tree_bitmap import TreeBitmap, snapshot
from trie.trees.shards import sort_unique

Bitmaps = tuple[NDArray[np.uint32], NDArray[np.uint32]]

CPU_METHODS = {"auto": "sliced", "sliced": "sliced", "active": "active"}


class LtbSolver(CardOrCpu):
    """See ``solver.Solver``. On CUDA, ``active`` runs on the CPU."""

    def __init__(
        self, codes: NDArray[np.uint64], k: int, distance: int, both: bool, options: Options
    ) -> None:
        super().__init__("ltb", options, options.chunk)
        self._k = k
        self._distance = distance
        self._both = both
        self._codes = codes
        self._learnt: list[NDArray[np.uint64]] = []  # merged only if no step brings its tree
        self._tree: TreeBitmap | None = None
        self._by_cards = options.device == "cuda" and options.method != "active"
        if self._by_cards:
            self._begin()
        elif options.method not in CPU_METHODS:
            message = f"the kernel '{options.method}' needs a CUDA device"
            raise StreamerError(message)

    def _made(self) -> Any:
        from gpu.ltb.stream import LtbEngine

        options = self._options
        method = options.method if options.method.startswith("ltb-") else "ltb-sliced"
        return LtbEngine(
            self._k, self._distance, method=method, chunk=self._chunk, streams=options.streams,
            cards=options.cards, memory_bytes=options.device_bytes, threads=options.threads,
        )  # fmt: skip

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        self._learnt.append(codes)
        self._tree = None

    def match(self, batch: ReadBatch, step: Step) -> LtbWords:
        """The match and mismatch bitmaps of every end that has one."""
        begin = max(step.first - (self._k + self._distance - 1), 0)
        bases = batch.bases[begin : step.stop]
        offsets = slice_reads(batch.offsets, begin, step.stop)
        matches, mismatches = self._bitmaps(step.tree or self._own_tree(), bases, offsets)
        matches, mismatches = matches[step.first - begin :], mismatches[step.first - begin :]
        at = np.flatnonzero(matches | mismatches)
        return LtbWords(at + step.first + 1, matches[at], mismatches[at])

    def _bitmaps(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> Bitmaps:
        """uint32[symbols] each: the match and the mismatch bitmap of each symbol, 0 for no word."""
        if not self._by_cards:
            return self._by_cpu(tree, bases, offsets)
        return self._on_cards(
            lambda engine: cast(Bitmaps, engine.match(tree, bases, offsets)),
            partial(self._by_cpu, tree, bases, offsets),
        )

    def _by_cpu(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> Bitmaps:
        from trie import ltb

        method = CPU_METHODS.get(self._options.method, "sliced")
        threads = self._options.threads
        return ltb.approximate(tree, bases, offsets, self._distance, method=method, threads=threads)

    def _own_tree(self) -> TreeBitmap:
        if self._tree is None:
            if self._learnt:
                self._codes = self._distinct(np.concatenate((self._codes, *self._learnt)))
                self._learnt.clear()
            codes = self._codes
            if self._both:
                codes = self._distinct(with_reverse_complements(codes, self._k))
            self._tree = snapshot(codes, self._k)
        return self._tree

    def _distinct(self, codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return sort_unique(codes, self._k, self._options.threads)
