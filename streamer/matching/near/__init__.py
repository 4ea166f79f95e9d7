"""Approximate matching of batches of reads: what is near, beside what is equal.

``Approximate`` holds the k-mers as stored and a solver for the semantics that was asked for:

    levenshtein   streamer/matching/near/levenshtein.py, over trie/levenshtein
    ltb           streamer/matching/near/ltb.py, over trie/ltb

A solver has two methods (``solver.Solver``): ``learn`` takes stored k-mers that are new, and
``match`` the symbols [first, stop) of a batch with the snapshot in use, and gives ``result.Found``.
To plug another semantics in, write a solver and name it in ``_solver`` below; its report goes into
``streamer/matching/reports.py`` and its topic into ``streamer/daemon/publish.py``.

On a fixed dictionary a batch is one step. In grow mode the matcher tells the steps of a batch
(``steps.Steps``): spans of chunks, each with the version of the dictionary before it and the k-mers
that it brought. ``ltb`` gets a Tree Bitmap with every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from streamer.devices import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching.near.near_result import ApproximateResult, Step, joined
from streamer.matching.near.solver import Options, Solver
from streamer.sequences.read_batch import ReadBatch

__all__ = ["Approximate", "ApproximateResult", "Options", "Semantics", "Step"]

Semantics = Literal["levenshtein", "ltb"]


class Approximate:
    """Matches batches within a distance against the k-mers of ``stored`` and those learnt later.

    stored: the k-mers as they stand in the records (strands ``forward``), with their target sets.
    both: a k-mer may match as its reverse complement too.
    """

    def __init__(
        self,
        stored: Dictionary,
        *,
        semantics: Semantics,
        distance: int,
        both: bool,
        options: Options | None = None,
    ) -> None:
        self.k = stored.k
        self.distance = distance
        self.both = both
        self.semantics: Semantics = semantics
        self._stored = stored
        options = options or Options()
        self._threads = options.threads
        self._solver = _solver(semantics, stored, distance, both, options)

    @property
    def walks(self) -> bool:
        """Whether steps must come with a Tree Bitmap."""
        return self.semantics == "ltb"

    def match(self, batch: ReadBatch, steps: Sequence[Step] | None = None) -> ApproximateResult:
        """What is near in a batch: step after step, or all of it against what is stored now."""
        if steps is None:
            steps = [Step(0, batch.bases.size, version=1)]
        parts = []
        for step in steps:
            if step.stop > step.first:
                parts.append((step.version, self._solver.match(batch, step)))
            # where steps bring trees, later ones have it in theirs
            if step.learnt.size and step.tree is None:
                self._solver.learn(step.learnt)
        return joined(batch, parts, self._stored, self.semantics, self.distance, self._threads)

    def share(self, gpu: GpuOrCpu) -> None:
        """Give GPUs up together with others, and report that once."""
        self._solver.share(gpu)

    def close(self) -> None:
        """Give back what is held."""
        self._solver.close()


def _solver(
    semantics: Semantics, stored: Dictionary, distance: int, both: bool, options: Options
) -> Solver:
    make: Callable[..., Solver]
    if semantics == "ltb":
        from streamer.matching.near.ltb import LtbSolver

        make = LtbSolver
    else:
        from streamer.matching.near.levenshtein import LevenshteinSolver

        make = LevenshteinSolver
    return make(np.ascontiguousarray(stored.codes), stored.k, distance, both, options)
