"""The full Levenshtein distance to a dictionary that may grow: sets of patterns, merged by size.

A set that is smaller than a quarter of its neighbour waits beside it, as in a log-structured merge
tree: a k-mer is indexed anew at most log4(n) times, and a batch is matched against as many sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.matching.approximate.result import Step
from streamer.matching.approximate.solver import Options
from streamer.reads import ReadBatch
from trie import levenshtein_lanes, levenshtein_scan
from trie.levenshtein import MAX_PATTERNS, Nearest, Patterns, least, unpack
from trie.levenshtein_pieces import PieceIndex, build

GROWTH = 4
METHODS = ("auto", "pieces", "lanes")


@dataclass(slots=True)
class _Set:
    """Stored k-mers, ascending, and what was made from them."""

    codes: NDArray[np.uint64]
    patterns: Patterns | None = None
    index: PieceIndex | None = None


class LevenshteinSolver:
    """See ``solver.Solver``. UsageError for a method that there is not."""

    def __init__(
        self, codes: NDArray[np.uint64], k: int, distance: int, both: bool, options: Options
    ) -> None:
        if options.method not in METHODS:
            message = f"the kernel '{options.method}' is not for levenshtein: {', '.join(METHODS)}"
            raise UsageError(message)
        self._k = k
        self._distance = distance
        self._both = both
        self._options = options
        self._most = MAX_PATTERNS // (2 if both else 1)
        self._sets = [_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most)]

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        codes = np.unique(codes)
        for held in self._sets:
            codes = codes[~_holds(held.codes, codes)]
        if not codes.size:
            return
        while self._sets and self._sets[-1].codes.size <= GROWTH * codes.size:
            if self._sets[-1].codes.size + codes.size > self._most:
                break
            codes = np.sort(np.concatenate((self._sets.pop().codes, codes)), kind="stable")
        self._sets.extend(_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most))

    def match(self, batch: ReadBatch, step: Step) -> Nearest:
        """The nearest k-mer of every end."""
        parts = [self._nearest(held, batch, step) for held in self._sets]
        if not parts:
            empty = Patterns.of(np.zeros(0, np.uint64), self._k, self._distance, both=False)
            return unpack(np.zeros(0, np.uint32), 0, empty)
        return least(parts)

    def _nearest(self, held: _Set, batch: ReadBatch, step: Step) -> Nearest:
        if held.patterns is None:
            held.patterns = Patterns.of(held.codes, self._k, self._distance, both=self._both)
        patterns, threads = held.patterns, self._options.threads
        if self._options.method == "lanes":
            words = levenshtein_lanes.nearest_words(
                patterns, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        else:
            if held.index is None:
                held.index = build(patterns, threads=threads)
            words = levenshtein_scan.nearest_words(
                patterns, held.index, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        return unpack(words, step.first, patterns)

    def close(self) -> None:
        """Nothing is held."""


def _holds(held: NDArray[np.uint64], codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    at = np.minimum(np.searchsorted(held, codes), held.size - 1)
    return np.asarray(held[at] == codes)
