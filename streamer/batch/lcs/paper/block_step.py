"""The paper's CUDA method as a ``Processor``: Listing 2 on the host, llcs on the GPU by its size.

Section 3.5: the GPU computes llcs if the lengths add up to at least 2,048. Otherwise the CPU does:
by dynamic programming for fewer than 96 rows or 256 columns, else by the bit-parallel method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.paper.bit_vectors import BitParallelSweep
from streamer.batch.lcs.paper.dp import RowByRow
from streamer.batch.lcs.passes import Part
from streamer.batch.lcs.symbols import Pair

GPU_FROM = 2_048
DP_ROWS, DP_COLUMNS = 96, 256


class BlockStepProcessor(RowByRow):
    """Runs passes one by one, as the paper's recursion does."""

    def __init__(self, pair: Pair) -> None:
        from gpu.lcs.paper.block_step import BlockStep

        super().__init__(pair)
        self._gpu = BlockStep(pair.a, pair.b, pair.symbols)

    def grown(self, part: Part) -> NDArray[np.uint32]:
        """Implement ``RowByRow.grown``."""
        if part.rows + part.columns >= GPU_FROM:
            return self._gpu.llcs(part)
        if part.rows < DP_ROWS or part.columns < DP_COLUMNS:
            return super().grown(part)
        sweep = BitParallelSweep(self.pair, part, 1)
        sweep.run(0, 0, part.columns)
        out = np.zeros(-(-part.rows // 32), dtype=np.uint32)
        sweep.export(0, out, 0)
        return out
