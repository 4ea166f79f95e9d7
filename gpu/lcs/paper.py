"""The LCS paper's CUDA method as published: a baseline for the systolic kernel.

The paper's kernel (section 3.3, Listing 4): one step of 1,024 columns by blocks of 1,024 rows.

    block 2     2 3 4 5      rows 2048 ..
    block 1     1 2 3 4      rows 1024 ..
    block 0     0 1 2 3      rows 0 ..

The numbers are launches in which a block does a step of STEP columns: every anti-diagonal is one
launch, in which blocks without work end at once (Fig. 2).

A block is one warp, each thread has one word of 32 rows. In each column the warp adds two numbers
of 1,024 bits by conditional sums (3.4, after Sklansky): every word's sum and carry for a carry-in
of 0 and of 1, then five rounds in which the upper halves of 2, 4, ... 32 words select by the
carries of the lower halves. Carries between blocks are in shared memory during the step, and in
device memory, double-buffered, between steps.

Line 10 of Listing 4 exits without storing V if the last step is short; here V is stored.
"""

from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from gpu.card.intrinsics import ALL_LANES, cuda
from gpu.card.kernel_cache import plain, with_threads

THREADS = 32
STEP = 1024  # columns of a step, at most 1024
ROWS = 32 * THREADS  # rows of a block
FILL_THREADS = 128


def match_vectors(symbols: Any, first: Any, step: Any, rows: Any, matches: Any, v: Any) -> None:
    """PMV of the rows symbols[first], symbols[first + step], ... and V = 1...1 (lines 22-28).

    matches: uint32[alphabet, words]; rows beyond the last match nothing. One thread per word.
    """
    word = cuda.grid(1)
    if word < v.size:
        for symbol in range(matches.shape[0]):
            matches[symbol, word] = np.uint32(0)
        for bit in range(32):
            row = 32 * np.int64(word) + bit
            if row < rows:
                symbol = symbols[first + step * row]
                matches[symbol, word] = np.uint32(
                    matches[symbol, word] | np.uint32(np.uint32(1) << np.uint32(bit))
                )
        v[word] = np.uint32(0xFFFFFFFF)


def block_step(
    symbols: Any, first: Any, direction: Any, columns: Any, launch: Any, matches: Any, v: Any,
    carries: Any, width: Any,
) -> None:  # fmt: skip
    """llcs_kernel() and, with ``direction`` -1, llcs_kernel'(): launch number ``launch``.

    symbols: uint8; the columns are the ``columns`` symbols symbols[first], symbols[first +
    direction], ... matches, v: from ``match_vectors``. carries: uint8[2, blocks + 1, STEP], 0 at
    first; row b + 1 has the carries out of block b. width: columns of a step, at most STEP. Blocks
    of 32 threads.
    """
    entering = cuda.shared.array(STEP, types.uint8)
    leaving = cuda.shared.array(STEP, types.uint8)
    carry_0 = cuda.shared.array(THREADS, types.uint8)
    carry_1 = cuda.shared.array(THREADS, types.uint8)
    thread = cuda.threadIdx.x
    block = cuda.blockIdx.x
    count = launch - block
    if count < 0 or count * width >= columns:
        return
    cursor = count * width
    stop = min(width, columns - cursor)
    index = block * THREADS + thread
    value = v[index]
    # the block below did this step in the previous launch
    parity = launch & 1
    for j in range(thread, stop, THREADS):
        entering[j] = carries[1 - parity, block, j]
    cuda.syncwarp(ALL_LANES)
    for j in range(stop):
        match = matches[symbols[first + direction * (cursor + j)], index]
        some = np.uint32(value & match)
        # sums and carries of 32 bits for a carry-in of 0 and of 1
        sum_0 = np.uint32(value + some)
        sum_1 = np.uint32(sum_0 + np.uint32(1))
        out_0 = np.uint8(sum_0 < value)
        out_1 = np.uint8(sum_1 <= value)
        size = 1
        while size < THREADS:
            carry_0[thread] = out_0
            carry_1[thread] = out_1
            cuda.syncwarp(ALL_LANES)
            if thread & size:
                # the topmost word of the lower half
                below = (thread | (2 * size - 1)) - size
                low_0 = carry_0[below]
                low_1 = carry_1[below]
                old_0, old_1, old_out_0, old_out_1 = sum_0, sum_1, out_0, out_1
                if low_0:
                    sum_0, out_0 = old_1, old_out_1
                if not low_1:
                    sum_1, out_1 = old_0, old_out_0
            cuda.syncwarp(ALL_LANES)
            size *= 2
        total = sum_0
        out = out_0
        if entering[j]:
            total = sum_1
            out = out_1
        if thread == THREADS - 1:
            leaving[j] = out
        value = np.uint32(np.uint32(value & np.uint32(~match)) | total)
    v[index] = value
    cuda.syncwarp(ALL_LANES)
    for j in range(thread, stop, THREADS):
        carries[parity, block + 1, j] = leaving[j]


class BlockStep:
    """The paper's llcs_gpu() and llcs_gpu'(): one launch per anti-diagonal.

    Holds two strings on the GPU and the arrays for all calls: strings are copied and arrays
    allocated once, before the recursion (section 3.5).
    """

    def __init__(self, a: NDArray[np.uint8], b: NDArray[np.uint8], symbols: int) -> None:
        self._a = cuda.to_device(a)
        self._b = cuda.to_device(b)
        blocks = max(1, -(-a.size // ROWS))
        self._words = THREADS * blocks
        self._matches = cuda.device_array((symbols, self._words), np.uint32)
        self._v = cuda.device_array(self._words, np.uint32)
        self._carries = cuda.device_array((2, blocks + 1, STEP), np.uint8)
        self._zeros = np.zeros(self._carries.shape, dtype=np.uint8)

    def llcs(self, part: Any) -> NDArray[np.uint32]:
        """uint32[ceil(rows / 32)]: bits are set where another row increases the length.

        part: a ``streamer.batch.lcs.passes.Part``. Backward parts traverse both strings from the
        tail (llcs'), so that the first bit is the last row's.
        """
        blocks = -(-part.rows // ROWS)
        steps = -(-part.columns // STEP)
        # a slice of a matrix would not be contiguous, so all of it is used
        with_threads(plain(match_vectors), self._words, FILL_THREADS)(
            self._a, part.first_row, part.step, part.rows, self._matches, self._v
        )
        self._carries.copy_to_device(self._zeros)
        for launch in range(blocks + steps - 1):
            plain(block_step)[blocks, THREADS](
                self._b, part.first_column, part.step, part.columns, launch, self._matches,
                self._v, self._carries, STEP,
            )  # fmt: skip
        grows: NDArray[np.uint32] = ~self._v[: THREADS * blocks].copy_to_host()
        return grows[: -(-part.rows // 32)]
