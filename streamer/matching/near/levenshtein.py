"""The full Levenshtein distance to a dictionary that may grow: sets of patterns, merged by size.

As in a log-structured merge tree, a set is merged with its neighbour unless it is smaller than a
quarter of it: a k-mer is indexed at most log4(n) times, and a batch is matched against as many
sets. On CUDA the tables of the sets stay on the GPU (gpu/levenshtein); the kernel
``lanes`` runs on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import GpuOrCpu
from streamer.matching.chunks import LONG_SPAN
from streamer.matching.near.solver import Solver
from streamer.matching.near.steps import Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from trie.ascending import lacking, merged
from trie.levenshtein import (
    MAX_PATTERNS,
    Nearest,
    Patterns,
    joined,
    lanes,
    least,
    piece_search,
    unpack,
    unpack_found,
)
from trie.levenshtein.piece_index import PieceIndex, build
from trie.trees.shards import sort_unique

GROWTH = 4


@dataclass(slots=True)
class _Set:
    """Stored k-mers, ascending, and the structures built from them."""

    codes: NDArray[np.uint64]
    patterns: Patterns | None = None
    index: PieceIndex | None = None


class LevenshteinSolver(Solver):
    """The nearest of the stored k-mers ``codes`` (uint64, ascending) and those learned later."""

    def __init__(
        self, codes: NDArray[np.uint64], spec: MatchSpec, gpu: GpuOrCpu, threads: int
    ) -> None:
        # queueing a chunk takes as long as a GPU needs to match millions of symbols
        chunk = max(spec.chunk, LONG_SPAN)
        super().__init__(spec, gpu, threads, cpu_kernel="lanes", chunk=chunk)
        self._both = spec.strands == "both"
        self._most = MAX_PATTERNS // (2 if self._both else 1)
        self._sets = [_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most)]

    def sizes(self) -> list[int]:
        """The number of stored k-mers in each set."""
        return [one.codes.size for one in self._sets]

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""
        threads = self._threads
        codes = sort_unique(codes, self._k, threads)
        for one in self._sets:
            codes = lacking(one.codes, codes, threads)
        if not codes.size:
            return
        while self._sets and self._sets[-1].codes.size <= GROWTH * codes.size:
            if self._sets[-1].codes.size + codes.size > self._most:
                break
            codes = merged(self._sets.pop().codes, codes, threads)
        self._sets.extend(_Set(codes[i : i + self._most]) for i in range(0, codes.size, self._most))

    def match(self, batch: ReadBatch, step: Step) -> Nearest:
        """Find the nearest k-mer of every end."""
        for one in self._sets:
            if one.patterns is None:
                one.patterns = Patterns.of(one.codes, self._k, self._distance, both=self._both)
        if not self._sets:
            empty = Patterns.of(np.zeros(0, np.uint64), self._k, self._distance, both=False)
            return unpack(np.zeros(0, np.uint32), 0, empty)
        return self._run(partial(self._by_engine, batch, step), partial(self._by_cpu, batch, step))

    def _by_cpu(self, batch: ReadBatch, step: Step) -> Nearest:
        return least([self._of_set(one, batch, step) for one in self._sets])

    def _of_set(self, one: _Set, batch: ReadBatch, step: Step) -> Nearest:
        patterns, threads = one.patterns, self._threads
        assert patterns is not None
        if self._kernel == "lanes":
            words = lanes.nearest_words(
                patterns, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        else:
            if one.index is None:
                one.index = build(patterns, threads=threads)
            words = piece_search.nearest_words(
                patterns, one.index, batch.bases, batch.offsets,
                first=step.first, stop=step.stop, threads=threads,
            )  # fmt: skip
        return unpack(words, step.first, patterns)

    def _by_engine(self, batch: ReadBatch, step: Step, engine: Any) -> Nearest:
        sets = [one.patterns for one in self._sets if one.patterns is not None]

        def take(found: list[Any]) -> Nearest:
            return least([unpack_found(ends, words, sets[number]) for number, ends, words in found])

        return joined(
            list(engine.match(take, sets, batch.bases, batch.offsets, step.first, step.stop))
        )

    def _new_engine(self, **options: Any) -> Any:
        from gpu.levenshtein import NearEngine

        return NearEngine(self._k, self._distance, **options)
