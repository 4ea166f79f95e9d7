"""The paper's CUDA method as a ``Processor``: Listing 2 on the host, llcs on the card by its size.

Section 3.5: where the lengths add up to at least 2,048 the card computes llcs. Below, the CPU does:
by dynamic programming for fewer than 96 rows or 256 columns, else by the bit-parallel method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs import dp
from streamer.batch.lcs.bit_parallel import BitParallelSweep
from streamer.batch.lcs.passes import Numbers, Passes, Splits, best_cut, grown
from streamer.batch.lcs.symbols import Pair

CARD_FROM = 2_048
DP_ROWS, DP_COLUMNS = 96, 256


class BlockStepProcessor:
    """Runs passes one by one, as the paper's recursion does; results lie in the host's memory."""

    def __init__(self, pair: Pair) -> None:
        from gpu.lcs.block_step_host import BlockStep

        self._pair = pair
        self._card = BlockStep(pair.a, pair.b, pair.symbols)
        self._pool = np.zeros(0, dtype=np.uint32)

    def reserve(self, words: int) -> None:
        """Make the pool hold so many words; what it holds is kept."""
        self._pool = grown(self._pool, words)

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        for row, rows, column, columns, backward, at in zip(
            passes.row.tolist(), passes.rows.tolist(), passes.column.tolist(),
            passes.columns.tolist(), passes.backward.tolist(), passes.at.tolist(), strict=True,
        ):  # fmt: skip
            self._pass(row, rows, column, columns, backward, at)

    def _pass(
        self, row: int, rows: int, column: int, columns: int, backward: bool, at: int
    ) -> None:
        if rows + columns >= CARD_FROM:
            grows = self._card.llcs(row, rows, column, columns, backward)
            self._pool[at : at + grows.size] = grows
        elif rows < DP_ROWS or columns < DP_COLUMNS:
            grows = _by_rows(self._pair, row, rows, column, columns, backward)
            self._pool[at : at + grows.size] = grows
        else:
            sweep = BitParallelSweep(self._pair, row, rows, column, columns, backward, 1)
            sweep.run(0, 0, columns)
            sweep.export(0, self._pool, at)

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """The first row at which each table is best cut, and the length of its subsequence."""
        found: Any = [
            best_cut(self._pool, first, last, rows)
            for first, last, rows in zip(
                splits.first.tolist(), splits.last.tolist(), splits.rows.tolist(), strict=True
            )
        ]
        both = np.array(found, dtype=np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]


def _by_rows(
    pair: Pair, row: int, rows: int, column: int, columns: int, backward: bool
) -> NDArray[np.uint32]:
    """Listing 1 with the rows in the inner loop, as bits: where the length grows by a row."""
    lengths = np.empty(rows + 1, dtype=np.int32)
    # the roles are swapped: the lengths wanted are those of the rows
    dp.lengths(pair.b, column, columns, pair.a, row, rows, backward, lengths)
    packed = np.packbits(np.diff(lengths) > 0, bitorder="little")
    out = np.zeros(4 * -(-rows // 32), dtype=np.uint8)
    out[: packed.size] = packed
    return out.view(np.uint32)
