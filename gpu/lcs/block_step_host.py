"""The paper's llcs_gpu() and llcs_gpu'() (Listing 4) on a card: one launch an anti-diagonal.

Strings go to the card once, before the recursion, and every array is allocated once (section 3.5).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit
from gpu.lcs import block_step
from gpu.lcs.kernels import SHAPES, sources

FILL_THREADS = 128


@cache
def _kernel(name: str) -> Any:
    return jit(sources(SHAPES[0])[name][0])


class BlockStep:
    """Two strings on the card in use, and the arrays that every call uses."""

    def __init__(self, a: NDArray[np.uint8], b: NDArray[np.uint8], symbols: int) -> None:
        self._a = cuda.to_device(a)
        self._b = cuda.to_device(b)
        blocks = max(1, -(-a.size // block_step.ROWS))
        self._words = block_step.THREADS * blocks
        self._matches = cuda.device_array((symbols, self._words), np.uint32)
        self._v = cuda.device_array(self._words, np.uint32)
        self._carries = cuda.device_array((2, blocks + 1, block_step.STEP), np.uint8)
        self._zeros = np.zeros(self._carries.shape, dtype=np.uint8)

    def llcs(
        self, row: int, rows: int, column: int, columns: int, backward: bool
    ) -> NDArray[np.uint32]:
        """uint32[ceil(rows / 32)]: a bit is set where the length for those columns grows by a row.

        ``backward`` traverses both strings from the tail (llcs'), so that the first bit is the last
        row's.
        """
        blocks = -(-rows // block_step.ROWS)
        steps = -(-columns // block_step.STEP)
        words = block_step.THREADS * blocks
        direction = -1 if backward else 1
        first_row = row + rows - 1 if backward else row
        first_column = column + columns - 1 if backward else column
        # a slice of a matrix would not be contiguous: the whole is used, from its start
        _kernel("match_vectors")[-(-self._words // FILL_THREADS), FILL_THREADS](
            self._a, first_row, direction, rows, self._matches, self._v
        )
        self._carries.copy_to_device(self._zeros)
        kernel = _kernel("block_step")
        for launch in range(blocks + steps - 1):
            kernel[blocks, block_step.THREADS](
                self._b, first_column, direction, columns, launch, self._matches, self._v,
                self._carries, block_step.STEP,
            )  # fmt: skip
        grows: NDArray[np.uint32] = ~self._v[:words].copy_to_host()
        return grows[: -(-rows // 32)]
