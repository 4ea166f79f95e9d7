"""The paper's CUDA method as a ``Processor``: Listing 2 on the host, llcs on the GPU by its size.

Section 3.5: where the lengths add up to at least 2,048 the GPU computes llcs. Below, the CPU does:
by dynamic programming for fewer than 96 rows or 256 columns, else by the bit-parallel method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.paper import dp
from streamer.batch.lcs.paper.bit_vectors import BitParallelSweep
from streamer.batch.lcs.passes import HostPool, Part, Passes
from streamer.batch.lcs.symbols import Pair

GPU_FROM = 2_048
DP_ROWS, DP_COLUMNS = 96, 256


class BlockStepProcessor(HostPool):
    """Runs passes one by one, as the paper's recursion does."""

    def __init__(self, pair: Pair) -> None:
        from gpu.lcs.paper.block_step import BlockStep

        super().__init__(threads=1)
        self._pair = pair
        self._gpu = BlockStep(pair.a, pair.b, pair.symbols)

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        for part, at in zip(passes.parts(), passes.at.tolist(), strict=True):
            self._run(part, at)

    def _run(self, part: Part, at: int) -> None:
        if part.rows + part.columns >= GPU_FROM:
            grows = self._gpu.llcs(part)
        elif part.rows < DP_ROWS or part.columns < DP_COLUMNS:
            grows = _by_rows(self._pair, part)
        else:
            sweep = BitParallelSweep(self._pair, part, 1)
            sweep.run(0, 0, part.columns)
            sweep.export(0, self.pool, at)
            return
        self.pool[at : at + grows.size] = grows


def _by_rows(pair: Pair, part: Part) -> NDArray[np.uint32]:
    """Listing 1 with the rows in the inner loop, as bits: where the length grows by a row."""
    lengths = np.zeros(part.rows + 1, dtype=np.int32)
    # the roles are swapped: the lengths wanted are those of the rows
    dp.more_rows(pair.b, part.column, part.columns, pair.a, part.row, part.rows, part.backward,
                 lengths)  # fmt: skip
    packed = np.packbits(np.diff(lengths) > 0, bitorder="little")
    out = np.zeros(4 * -(-part.rows // 32), dtype=np.uint8)
    out[: packed.size] = packed
    return out.view(np.uint32)
