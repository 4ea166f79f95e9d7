"""PASM (WsPASM paper, algorithm 1): the matrix X, then one launch per row of D, a thread per cell.

    last    int32[letters, n + 1]   X (equation 2): the last position <= j with the letter, or 0
    above   int32[n + 1]            row i - 1 of D       row   int32[n + 1]   row i (equation 3)

X is computed in three steps, one thread per letter and piece of PIECE symbols: the last position in
the piece, the last over all previous pieces (one block per letter), and the row itself.

Operations per row and symbol: 4 loads (X, D above, above left, and D[i-1, X-1] at random), 1 store,
about 15 integer operations; 16 to 20 bytes of memory traffic, which is the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import ALL_LANES, cuda

THREADS = 256  # threads per block; a multiple of 32
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


def collect(row, k, low_planes, found):
    """The last row of D as bits: found[0] where D <= k, then the low bits of D - k - 1.

    Bit i of word w is the end 32 w + i + 1. One thread per end, blocks of whole warps.
    """
    end = cuda.grid(1) + 1
    away = np.int32(0)
    if end < row.size:
        away = np.int32(row[end] - k - 1)
    word = (end - 1) >> 5
    first = (end - 1) & 31 == 0 and word < found.shape[1]
    bits = cuda.ballot_sync(ALL_LANES, away < 0)
    if first:
        found[0, word] = bits
    for plane in range(low_planes):
        bits = cuda.ballot_sync(ALL_LANES, (away >> plane) & 1)
        if first:
            found[1 + plane, word] = bits
