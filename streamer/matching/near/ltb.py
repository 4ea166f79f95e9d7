"""The Levenshtein Tree Bitmap of the thesis (3.3.14-3.3.17) as a solver.

The step provides the snapshot. The automaton restarts in every read; to be independent of where a
step begins, it runs from k + D - 1 symbols before it. ``trie.ltb`` runs it on the CPU,
``gpu.ltb`` on CUDA devices, chunk by chunk on two streams; all kernels give the same words.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import GpuOrCpu
from streamer.matching.chunks import slice_reads
from streamer.matching.near.near_result import LtbWords
from streamer.matching.near.solver import Solver
from streamer.matching.near.steps import Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from trie.snapshots.tree_bitmap import TreeBitmap

Bitmaps = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""uint32[symbols] each: the match and the mismatch bitmap of each symbol, 0 if it has no word."""


class LtbSolver(Solver):
    """The automaton's words; the kernel ``active`` runs on the CPU."""

    walks = True

    def __init__(self, spec: MatchSpec, gpu: GpuOrCpu, threads: int) -> None:
        super().__init__(spec, gpu, threads, cpu_kernel="active", chunk=spec.chunk)

    def match(self, batch: ReadBatch, step: Step) -> LtbWords:
        """Compute the match and mismatch bitmaps of every end that has one."""
        assert step.tree is not None
        begin = max(step.first - (self._k + self._distance - 1), 0)
        bases = batch.bases[begin : step.stop]
        offsets = slice_reads(batch.offsets, begin, step.stop)
        bitmaps: Bitmaps = self._run(
            lambda engine: engine.match(step.tree, bases, offsets),
            partial(self._by_cpu, step.tree, bases, offsets),
        )
        matches, mismatches = (words[step.first - begin :] for words in bitmaps)
        at = np.flatnonzero(matches | mismatches)
        return LtbWords(at + step.first + 1, matches[at], mismatches[at])

    def _by_cpu(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> Bitmaps:
        from trie import ltb

        method = "active" if self._kernel == "active" else "sliced"
        return ltb.approximate(
            tree, bases, offsets, self._distance, method=method, threads=self._threads
        )

    def _new_engine(self, **options: Any) -> Any:
        from gpu.ltb import LtbEngine

        method = self._kernel if self._kernel.startswith("ltb-") else "ltb-sliced"
        return LtbEngine(self._k, self._distance, method=method, **options)
