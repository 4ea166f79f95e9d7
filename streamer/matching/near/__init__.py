"""Approximate matching of batches of reads: everything within a distance.

    levenshtein   streamer/matching/near/levenshtein.py, over trie/levenshtein
    ltb           streamer/matching/near/ltb.py, over trie/ltb

To add a semantics, write a ``solver.Solver`` and name it in ``new_solver``. Its columns go into
``streamer/matching/reports.py``, its topic into ``streamer/daemon/publish.py``.
"""

from __future__ import annotations

import numpy as np

from streamer.device_choice import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching.near.solver import Solver
from streamer.matching.spec import MatchSpec


def new_solver(stored: Dictionary, spec: MatchSpec, gpu: GpuOrCpu, threads: int) -> Solver:
    """Create the solver of a semantics for the k-mers of ``stored``, as they stand in the records.

    gpu: runs the GPU work. threads: CPU threads.
    """
    if spec.semantics == "ltb":
        from streamer.matching.near.ltb import LtbSolver

        return LtbSolver(spec, gpu, threads)
    from streamer.matching.near.levenshtein import LevenshteinSolver

    return LevenshteinSolver(np.ascontiguousarray(stored.codes), spec, gpu, threads)
