"""Approximate matching of batches of reads: what lies within a distance.

    levenshtein   streamer/matching/near/levenshtein.py, over trie/levenshtein
    ltb           streamer/matching/near/ltb.py, over trie/ltb

To add another semantics, write a ``solver.Solver`` and name it in ``Approximate``; its columns go
into ``streamer/matching/reports.py``, its topic into ``streamer/daemon/publish.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.devices import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching.near.near_result import ApproximateResult, joined
from streamer.matching.near.solver import Solver
from streamer.matching.near.steps import Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch


class Approximate:
    """Matches batches within a distance against the k-mers of ``stored`` and those learned later.

    stored: the k-mers as they stand in the records (strands ``forward``), with their target sets.
    gpu: runs what is done on GPUs. threads: of the CPU.
    """

    def __init__(self, stored: Dictionary, spec: MatchSpec, gpu: GpuOrCpu, threads: int) -> None:
        self.walks = spec.semantics == "ltb"
        """Whether steps must come with a Tree Bitmap."""
        self._stored = stored
        self._spec = spec
        self._threads = threads
        self._solver: Solver
        if self.walks:
            from streamer.matching.near.ltb import LtbSolver

            self._solver = LtbSolver(spec, gpu, threads)
        else:
            from streamer.matching.near.levenshtein import LevenshteinSolver

            codes = np.ascontiguousarray(stored.codes)
            self._solver = LevenshteinSolver(codes, spec, gpu, threads)

    def match(self, batch: ReadBatch, steps: Sequence[Step]) -> ApproximateResult:
        """What lies within the distance in a batch, step by step."""
        parts = []
        for step in steps:
            if step.stop > step.first:
                parts.append((step.version, self._solver.match(batch, step)))
            self.learn(step.learned)
        return joined(batch, parts, self._stored, self._spec, self._threads)

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers as stored, in any order."""
        if codes.size:
            self._solver.learn(codes)

    def close(self) -> None:
        """Free the memory on GPUs."""
        self._solver.close()
