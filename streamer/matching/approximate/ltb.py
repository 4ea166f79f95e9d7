"""The Levenshtein Tree Bitmap of the thesis (3.3.14-3.3.17) as a solver.

The snapshot comes with the step; without one (a fixed dictionary) it is made from the stored
k-mers once. ``trie.ltb`` runs the automaton: it starts afresh in every read, and so that it does
not depend on where a step begins, it is run from k + D - 1 symbols before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.matching.approximate.result import Step, Words
from streamer.matching.approximate.solver import Options
from streamer.matching.chunks import slice_reads
from streamer.reads import ReadBatch
from trie.codes import with_reverse_complements
from trie.tree_bitmap import TreeBitmap, snapshot


class LtbSolver:
    """See ``solver.Solver``."""

    def __init__(
        self, codes: NDArray[np.uint64], k: int, distance: int, both: bool, options: Options
    ) -> None:
        from trie import ltb

        names = ("auto", *ltb.METHODS)
        if options.method not in names:
            message = f"the kernel '{options.method}' is not for ltb here: {', '.join(names)}"
            raise UsageError(message)
        self._k = k
        self._distance = distance
        self._both = both
        self._options = options
        self._codes = codes
        self._tree: TreeBitmap | None = None

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        self._codes = np.union1d(self._codes, codes)
        self._tree = None

    def match(self, batch: ReadBatch, step: Step) -> Words:
        """The match and mismatch bitmaps of every end that has one."""
        begin = max(step.first - (self._k + self._distance - 1), 0)
        bases = batch.bases[begin : step.stop]
        offsets = slice_reads(batch.offsets, begin, step.stop)
        matches, mismatches = self._words(step.tree or self._own_tree(), bases, offsets)
        matches, mismatches = matches[step.first - begin :], mismatches[step.first - begin :]
        at = np.flatnonzero(matches | mismatches)
        return Words(at + step.first + 1, matches[at], mismatches[at])

    def _words(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """uint32[symbols] each: the match and the mismatch bitmap of each symbol, 0 for no word."""
        from trie import ltb

        method = "sliced" if self._options.method == "auto" else self._options.method
        return ltb.approximate(
            tree, bases, offsets, self._distance, method=method, threads=self._options.threads
        )

    def _own_tree(self) -> TreeBitmap:
        if self._tree is None:
            codes = self._codes
            if self._both:
                codes = np.unique(with_reverse_complements(codes, self._k))
            self._tree = snapshot(codes, self._k)
        return self._tree

    def close(self) -> None:
        """Nothing is held."""
