"""The WsPASM paper's methods on the GPU: rows of D, one thread per cell, hits as one bit per end.

The bits are the hits and the low planes of D - k - 1, which distinguish the distances 0..k; bit i
of word w is the end 32 w + i + 1. They are counted by block and listed.

PASM (algorithm 1): the matrix X, then one launch per row of D, a thread per cell.

    last    int32[letters, n + 1]   X (equation 2): the last position <= j with the letter, or 0
    above   int32[n + 1]            row i - 1 of D       row   int32[n + 1]   row i (equation 3)

X is computed in three steps, one thread per letter and piece of PIECE symbols: the last position in
the piece, the last over all previous pieces (one block per letter), and the row itself. Operations
per row and symbol: 4 loads (X, D above, above left, and D[i-1, X-1] at random), 1 store, about 15
integer operations; 16 to 20 bytes of memory traffic, which is the bottleneck.

WsPASM (algorithm 2): one thread per column, D[i-1, j-1] by warp shuffle. A block computes ``columns
= threads * groups`` columns of D independently; the first ``halo`` >= m + k of them only lead up to
its ends, and ``syncthreads`` separates the rows. The thread of column j keeps D[i-1, j] in a
register (Dvar) from row to row:

    Avar = D[i-1, j-1]     shfl_up of Dvar; the first lane of a warp reads it from global memory
                           (line 11 of the paper prints i % w where the lane is j % w)
    Bvar = D[i-1, j]       Dvar
    Cvar = D[i-1, X-1]     from global memory                D[i, j] = equation 4, written there

With ``groups`` > 1, for long patterns, a thread has that many columns, ``threads`` apart. In the
shared form the block's part of the text and the pattern are copied to shared memory first.
Operations per cell: a shuffle, 2 loads (X, Cvar), 1 store, about 15 integer operations; without
shared memory 2 more loads.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm.bit_parallel import Listed, Masks, TooManyHitsError
from gpu.asm.listing import places_of
from gpu.card.intrinsics import ALL_LANES, as_signed, cuda, device_function, population, sum_to_lane
from gpu.card.kernel_cache import grid, made, plain
from gpu.card.memory import Workspace

LIST_THREADS = 256  # threads per block; a power of two, at least 32
STEPS = 8  # words per thread of ``count`` and ``emit``, THREADS apart


@device_function
def word_of_ends(marks, search, word, low, high):
    """A word of hits whose ends lie in (low, high]."""
    bits = np.uint32(0)
    if word < marks.shape[2]:
        bits = marks[search, 0, word]
        first = word * 32 + 1
        if bits != np.uint32(0) and (first <= low or first + 31 > high):
            keep = np.uint32(0)
            for i in range(32):
                if low < first + i <= high:
                    keep = np.uint32(keep | np.uint32(np.uint32(1) << np.uint32(i)))
            bits = np.uint32(bits & keep)
    return bits


def count(threads: int) -> Callable[..., None]:
    """Hits with low < end <= high in each block; ``[(blocks, searches), threads]``.

    A block has threads * STEPS words. Arguments: found uint32[searches, planes, words], low, high
    int64, counts int64[searches, blocks].
    """
    warps = threads // 32

    def kernel(marks, low, high, counts):
        sums = cuda.shared.array(warps, np.uint32)
        search = cuda.blockIdx.y
        first = np.int64(cuda.blockIdx.x) * (threads * STEPS) + cuda.threadIdx.x
        total = np.uint32(0)
        for i in range(STEPS):
            bits = word_of_ends(marks, search, first + i * threads, low, high)
            total = np.uint32(total + population(np.uint64(bits)))
        for step in range(5):
            other = cuda.shfl_xor_sync(ALL_LANES, as_signed(total), 1 << step)
            total = np.uint32(total + np.uint32(other))
        if cuda.threadIdx.x & 31 == 0:
            sums[cuda.threadIdx.x >> 5] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            total = np.uint32(0)
            for i in range(warps):
                total = np.uint32(total + sums[i])
            counts[search, cuda.blockIdx.x] = np.int64(total)

    return kernel


def emit(threads: int) -> Callable[..., None]:
    """Write the hits that ``count`` counted, grouped by search, ends ascending; same launch.

    Arguments: found, low, high, k, low_planes int32, places int64[searches * blocks + 1] (where a
    block's hits go), ends uint32[], distances uint16[]. The hits of ``threads`` words at a time are
    listed in shared memory, so that all threads write equally many.
    """
    warps = threads // 32
    room = 32 * threads

    def kernel(marks, low, high, k, low_planes, places, ends, distances):
        staged = cuda.shared.array(room, np.uint32)
        sums = cuda.shared.array(warps, np.uint32)
        search = cuda.blockIdx.y
        thread = cuda.threadIdx.x
        lane = thread & 31
        warp = thread >> 5
        block = np.int64(search) * cuda.gridDim.x + cuda.blockIdx.x
        at = places[block]
        if at == places[block + 1]:
            return
        nothing = np.int32(np.int32(k + 1) - np.int32(1 << low_planes))
        for i in range(STEPS):
            start = np.int64(cuda.blockIdx.x * STEPS + i) * threads
            word = start + thread
            bits = word_of_ends(marks, search, word, low, high)
            mine = population(np.uint64(bits))
            upto = sum_to_lane(mine, lane)
            if lane == 31:
                sums[warp] = upto
            cuda.syncthreads()
            total = np.uint32(0)
            place = np.uint32(upto - mine)
            for j in range(warps):
                if j < warp:
                    place = np.uint32(place + sums[j])
                total = np.uint32(total + sums[j])
            while bits != np.uint32(0):
                lowest = np.uint32(bits & np.uint32(~np.uint32(bits - np.uint32(1))))
                bit = population(np.uint64(np.uint32(lowest - np.uint32(1))))
                bits = np.uint32(bits ^ lowest)
                staged[place] = np.uint32(np.uint32(32 * thread) + bit)
                place = np.uint32(place + np.uint32(1))
            cuda.syncthreads()
            for j in range(thread, np.int64(total), threads):
                end = np.int64(staged[j])
                word = np.uint64(np.uint64(start) + np.uint64(end >> 5))
                distance = nothing
                for plane in range(1, 1 + low_planes):
                    digit = np.uint32(marks[search, plane, word] >> np.uint32(end & 31))
                    distance = np.int32(
                        distance + np.int32(np.uint32(digit & np.uint32(1)) << np.uint32(plane - 1))
                    )
                ends[at + j] = np.uint32(32 * start + 1 + end)
                distances[at + j] = np.uint16(distance)
            at += np.int64(total)
            cuda.syncthreads()

    return kernel


PASM_THREADS = 256  # threads per block; a multiple of 32
PIECE = 64  # symbols per thread of the kernels that compute X


def last_in_piece(codes, letters, carry):
    """carry[l, p]: the last position in piece p that holds letter l (a set of bases), or 0.

    Positions count from 1. ``[grid over pieces, letters]``.
    """
    piece = cuda.grid(1)
    if piece < carry.shape[1]:
        mask = letters[cuda.blockIdx.y]
        last = np.int32(0)
        first = piece * PIECE
        for at in range(first, min(first + PIECE, codes.size)):
            if (mask >> codes[at]) & 1:
                last = np.int32(at + 1)
        carry[cuda.blockIdx.y, piece] = last


def carry_over(threads: int) -> Callable[..., None]:
    """carry[l, p]: the last position of all pieces before p; ``[letters, threads]``.

    Positions ascend, so the last is the largest. A thread takes a range of pieces.
    """

    def kernel(carry):
        lasts = cuda.shared.array(threads, np.int32)
        thread = cuda.threadIdx.x
        letter = cuda.blockIdx.x
        stretch = (carry.shape[1] + threads - 1) // threads
        first = min(thread * stretch, carry.shape[1])
        stop = min(first + stretch, carry.shape[1])
        last = np.int32(0)
        for piece in range(first, stop):
            last = max(last, carry[letter, piece])
        lasts[thread] = last
        cuda.syncthreads()
        if thread == 0:
            last = np.int32(0)
            for i in range(threads):
                here = lasts[i]
                lasts[i] = last
                last = max(last, here)
        cuda.syncthreads()
        last = lasts[thread]
        for piece in range(first, stop):
            here = carry[letter, piece]
            carry[letter, piece] = last
            last = max(last, here)

    return kernel


def last_positions(codes, letters, carry, last):
    """Rows of X from the result of ``carry_over``; launched as ``last_in_piece``."""
    piece = cuda.grid(1)
    letter = cuda.blockIdx.y
    if piece < carry.shape[1]:
        mask = letters[letter]
        here = carry[letter, piece]
        first = piece * PIECE
        if piece == 0:
            last[letter, 0] = 0
        for at in range(first, min(first + PIECE, codes.size)):
            if (mask >> codes[at]) & 1:
                here = np.int32(at + 1)
            last[letter, at + 1] = here


def first_row(row):
    """Row 0 of D."""
    j = cuda.grid(1)
    if j < row.size:
        row[j] = 0


def pasm_row(codes, mask, last, i, above, row):
    """Row i of D from row i - 1 (equation 3), for the letter ``mask`` and its row of X."""
    j = cuda.grid(1)
    if j == 0:
        row[0] = i
    elif j < row.size:
        if (mask >> codes[j - 1]) & 1:
            row[j] = above[j - 1]
        else:
            x = last[j]
            along = np.int32(i + j - 1)
            if x > 0:
                along = np.int32(above[x - 1] + np.int32(j - 1 - x))
            row[j] = np.int32(1 + min(above[j], min(above[j - 1], along)))


def collect(row, k, low_planes, marks):
    """The last row of D as bits: found[0] where D <= k, then the low bits of D - k - 1.

    Bit i of word w is the end 32 w + i + 1. One thread per end, blocks of whole warps.
    """
    end = cuda.grid(1) + 1
    away = np.int32(0)
    if end < row.size:
        away = np.int32(row[end] - k - 1)
    word = (end - 1) >> 5
    first = (end - 1) & 31 == 0 and word < marks.shape[1]
    bits = cuda.ballot_sync(ALL_LANES, away < 0)
    if first:
        marks[0, word] = bits
    for plane in range(low_planes):
        bits = cuda.ballot_sync(ALL_LANES, (away >> plane) & 1)
        if first:
            marks[1 + plane, word] = bits


WSPASM_THREADS = 1024  # threads per block, the columns of one group; a multiple of 32
LONGEST = 1024  # longest pattern that fits in the shared form


def wspasm(threads: int, groups: int, shared: bool) -> Callable[..., None]:
    """The kernel; ``[any grid, threads]``.

    Arguments: codes uint8[n], pattern uint8[m] (sets of bases), rows int32[m] (which row of X is
    that of each letter), last int32[letters, n + 1] (X), k, halo (a multiple of 32), low_planes
    int32, matrix int32[grid, 2, columns + 1] (scratch), found uint32[1 + low_planes, words] as
    ``rows.collect`` writes it. A block has columns - halo ends, a multiple of 32.
    """
    columns = threads * groups
    text_room = columns if shared else 1
    pattern_room = LONGEST if shared else 1

    def kernel(codes, pattern, rows, last, k, halo, low_planes, matrix, marks):
        text_here = cuda.shared.array(text_room, np.uint8)
        pattern_here = cuda.shared.array(pattern_room, np.uint8)
        values = cuda.local.array(groups, np.int32)
        thread = cuda.threadIdx.x
        lane = thread & 31
        block = cuda.blockIdx.x
        ends = columns - halo
        tiles = (codes.size + ends - 1) // ends
        tile = block
        if shared:
            for i in range(thread, pattern.size, threads):
                pattern_here[i] = pattern[i]
        while tile < tiles:
            base = tile * ends - halo  # column j of the block is symbol base + j - 1
            if thread == 0:
                matrix[block, 0, 0] = 0
            for group in range(groups):
                j = group * threads + thread + 1
                values[group] = 0
                matrix[block, 0, j] = 0
                if shared:
                    code = np.uint8(4)
                    if 0 <= base + j - 1 < codes.size:
                        code = codes[base + j - 1]
                    text_here[j - 1] = code
            cuda.syncthreads()
            for i in range(1, pattern.size + 1):
                above = (i - 1) & 1
                mask = pattern_here[i - 1] if shared else pattern[i - 1]
                if thread == 0:
                    matrix[block, i & 1, 0] = i
                for group in range(groups):
                    j = group * threads + thread + 1
                    at = base + j - 1
                    left = cuda.shfl_up_sync(ALL_LANES, values[group], 1)
                    if lane == 0:
                        left = matrix[block, above, j - 1]
                    code = np.uint8(4)
                    if shared:
                        code = text_here[j - 1]
                    elif 0 <= at < codes.size:
                        code = codes[at]
                    value = left
                    if not (mask >> code) & 1:
                        x = 0
                        if 0 <= at < codes.size:
                            x = last[rows[i - 1], at + 1] - base
                        along = i + j - 1
                        if x > 0:
                            along = matrix[block, above, x - 1] + (j - 1 - x)
                        value = 1 + min(values[group], min(left, along))
                    values[group] = np.int32(value)
                    matrix[block, i & 1, j] = np.int32(value)
                cuda.syncthreads()
            for group in range(groups):
                j = group * threads + thread + 1
                at = base + j - 1
                away = np.int32(0)
                if j > halo and at < codes.size:
                    away = np.int32(values[group] - k - 1)
                first = lane == 0 and j > halo and (at >> 5) < marks.shape[1]
                bits = cuda.ballot_sync(ALL_LANES, away < 0)
                if first:
                    marks[0, at >> 5] = bits
                for plane in range(low_planes):
                    bits = cuda.ballot_sync(ALL_LANES, (away >> plane) & 1)
                    if first:
                        marks[1 + plane, at >> 5] = bits
            cuda.syncthreads()
            tile += cuda.gridDim.x

    return kernel


METHODS = ("pasm", "wspasm", "wspasm-shared")


def symbol_bytes(letters: int, k: int) -> float:
    """GPU bytes per symbol of a text; letters: the number of distinct letters of all patterns."""
    # the symbol, X, two rows of D, hits and digits
    return 1 + 4 * letters + 8 + (1 + k.bit_length()) / 8


def by_rows(
    codes: Any,
    patterns: Sequence[Masks],
    k: int,
    method: str,
    low: int,
    limit: int,
    space: Workspace,
) -> Iterator[tuple[tuple[int, ...], Listed]]:
    """The number of each pattern, and its hits with low < end, valid until the next are produced.

    codes: uint8[n] on the GPU. Raises TooManyHitsError above ``limit``.
    """
    search = _RowSearch(codes, np.unique(np.concatenate(patterns)), k, space)
    for i, pattern in enumerate(patterns):
        if method == "pasm":
            search.pasm(pattern)
        else:
            search.wspasm(pattern, method == "wspasm-shared")
        hits = search.listed(low, limit)
        limit -= hits.total
        yield (i,), hits


class _RowSearch:
    """A text, its matrix X (int32[letters, n + 1]), and the bits of one pattern at a time."""

    def __init__(self, codes: Any, letters: NDArray[np.uint8], k: int, space: Workspace) -> None:
        self._codes, self._letters, self._k, self._space = codes, letters, k, space
        shape = (1, 1 + k.bit_length(), grid(codes.size, 32))
        self._found = space.shaped("found", shape, np.uint32)
        pieces = grid(codes.size, PIECE)
        alphabet = space.upload("alphabet", letters)
        carry = space.shaped("carry", (letters.size, pieces), np.int32)
        self._last = space.shaped("last", (letters.size, codes.size + 1), np.int32)
        launch = ((grid(pieces, PASM_THREADS), letters.size), PASM_THREADS)
        plain(last_in_piece)[launch](codes, alphabet, carry)
        made(carry_over, PASM_THREADS)[letters.size, PASM_THREADS](carry)
        plain(last_positions)[launch](codes, alphabet, carry, self._last)

    def pasm(self, pattern: Masks) -> None:
        """One launch per row (algorithm 1)."""
        size, k = self._codes.size + 1, self._k
        launch = (grid(size, PASM_THREADS), PASM_THREADS)
        above, row = (self._space.shaped(name, (size,), np.int32) for name in ("above", "row"))
        plain(first_row)[launch](above)
        numbers = np.searchsorted(self._letters, pattern).tolist()
        for i, (mask, number) in enumerate(zip(pattern, numbers, strict=True), 1):
            plain(pasm_row)[launch](self._codes, mask, self._last[number], i, above, row)
            above, row = row, above
        plain(collect)[launch](above, k, k.bit_length(), self._found[0])

    def wspasm(self, pattern: Masks, shared: bool) -> None:
        """One launch (algorithm 2)."""
        k, space = self._k, self._space
        halo = -(-(pattern.size + k) // 32) * 32
        groups = 1
        while WSPASM_THREADS * groups < 2 * halo:
            groups *= 2
        columns = WSPASM_THREADS * groups
        blocks = min(grid(self._codes.size, columns - halo), 4096)
        matrix = space.shaped("matrix", (blocks, 2, columns + 1), np.int32)
        numbers = np.searchsorted(self._letters, pattern).astype(np.int32)
        kernel = made(wspasm, WSPASM_THREADS, groups, shared, registers=64)
        kernel[blocks, WSPASM_THREADS](
            self._codes, space.upload("pattern", pattern), space.upload("numbers", numbers),
            self._last, k, halo, k.bit_length(), matrix, self._found[0],
        )  # fmt: skip

    def listed(self, low: int, limit: int) -> Listed:
        """The hits with low < end."""
        marks, k, space = self._found, self._k, self._space
        blocks = grid(marks.shape[2], LIST_THREADS * STEPS)
        span = (low, self._codes.size)
        counts = space.shaped("counts of words", (1, blocks), np.int64)
        launch = ((blocks, 1), LIST_THREADS)
        made(count, LIST_THREADS)[launch](marks, *span, counts)
        places, begins = places_of(counts.reshape(blocks), blocks, 1, space)
        total = int(begins.copy_to_host()[1])
        if total > limit:
            raise TooManyHitsError
        ends = space.array("ends", total, np.uint32)
        distances = space.array("distances", total, np.uint16)
        if total:
            made(emit, LIST_THREADS)[launch](
                marks, *span, k, k.bit_length(), places, ends, distances
            )
        return Listed(ends, distances, np.array([0, total]))
