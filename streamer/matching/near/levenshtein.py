"""The full Levenshtein distance to a dictionary that may grow: sets of patterns, merged by size.

A set that is smaller than a quarter of its neighbour waits beside it, as in a log-structured merge
tree: a k-mer is indexed anew at most log4(n) times, and a batch is matched against as many sets.
On CUDA the sets' tables stay on the card (gpu/levenshtein/stream.py); the method ``lanes`` runs on
the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.matching.engine import LONG_SPAN
from streamer.matching.near.near_result import Step
from streamer.matching.near.solver import CardOrCpu, Options
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import lacking, merged
from trie.levenshtein import (
    MAX_PATTERNS,
    Nearest,
    Patterns,
    joined,
    lanes,
    least,
    scan,
    unpack,
    unpack_found,
)
from trie.levenshtein.pieces import PieceIndex, build
from trie.trees.shards import sort_unique

GROWTH = 4


@dataclass(slots=True)
class _Set:
    """Stored k-mers, ascending, and what was made from them."""

    codes: NDArray[np.uint64]
    patterns: Patterns | None = None
    index: PieceIndex | None = None


class LevenshteinSolver(CardOrCpu):
    """See ``solver.Solver``."""

    def __init__(
        self, codes: NDArray[np.uint64], k: int, distance: int, both: bool, options: Options
    ) -> None:
        # queueing a chunk takes the host as long as the GPU matches millions of symbols
        super().__init__("levenshtein", options, max(options.chunk, LONG_SPAN))
        self._k = k
        self._distance = distance
        self._both = both
        self._most = MAX_PATTERNS // (2 if both else 1)
        self._sets = [_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most)]
        self._by_cards = options.device == "cuda" and options.method != "lanes"
        if self._by_cards:
            self._begin()

    def sizes(self) -> list[int]:
        """The stored k-mers of each set."""
        return [held.codes.size for held in self._sets]

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        threads = self._options.threads
        codes = sort_unique(codes, self._k, threads)
        for held in self._sets:
            codes = lacking(held.codes, codes, threads)
        if not codes.size:
            return
        while self._sets and self._sets[-1].codes.size <= GROWTH * codes.size:
            if self._sets[-1].codes.size + codes.size > self._most:
                break
            codes = merged(self._sets.pop().codes, codes, threads)
        self._sets.extend(_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most))

    def match(self, batch: ReadBatch, step: Step) -> Nearest:
        """The nearest k-mer of every end."""
        for held in self._sets:
            if held.patterns is None:
                held.patterns = Patterns.of(held.codes, self._k, self._distance, both=self._both)
        if not self._sets:
            empty = Patterns.of(np.zeros(0, np.uint64), self._k, self._distance, both=False)
            return unpack(np.zeros(0, np.uint32), 0, empty)
        by_cpu = partial(self._by_cpu, batch, step)
        if self._by_cards:
            return self._on_cards(partial(self._by_engine, batch, step), by_cpu)
        return by_cpu()

    def _by_cpu(self, batch: ReadBatch, step: Step) -> Nearest:
        return least([self._of_set(held, batch, step) for held in self._sets])

    def _of_set(self, held: _Set, batch: ReadBatch, step: Step) -> Nearest:
        patterns, threads = held.patterns, self._options.threads
        assert patterns is not None
        if self._options.method == "lanes":
            words = lanes.nearest_words(
                patterns, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        else:
            if held.index is None:
                held.index = build(patterns, threads=threads)
            words = scan.nearest_words(
                patterns, held.index, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        return unpack(words, step.first, patterns)

    def _by_engine(self, batch: ReadBatch, step: Step, engine: Any) -> Nearest:
        sets = [held.patterns for held in self._sets if held.patterns is not None]
        found: list[list[Nearest]] = []
        # a chunk's answers come set by set
        for number, ends, words in engine.match(
            sets, batch.bases, batch.offsets, step.first, step.stop
        ):
            if number == 0:
                found.append([])
            found[-1].append(unpack_found(ends, words, sets[number]))
        return joined([least(parts) for parts in found])

    def _made(self) -> Any:
        from gpu.levenshtein.stream import NearEngine

        options = self._options
        return NearEngine(
            self._k, self._distance, chunk=self._chunk, streams=options.streams,
            cards=options.cards, memory_bytes=options.device_bytes, threads=options.threads,
        )  # fmt: skip
