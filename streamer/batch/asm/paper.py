"""The WsPASM paper's methods on the CPU.

``pasm`` (algorithm 1): a row of D at once, by equations 2 and 3.

    X[l, j]   the last position <= j of the text that holds letter l of the alphabet, 0 if none
    D[i, j]   D[i-1, j-1] where T[j-1] = P[i-1], else 1 + the least of D[i-1, j], D[i-1, j-1] and
              D[i-1, X-1] + (j-1-X), which stands for the row's own past; i+j-1 where X = 0

so no cell depends on another in its row. The alphabet is the set of the pattern's letters (sets of
bases with IUPAC). The rows of X are made in parallel, then each row of D by all threads, with a
barrier between rows. Two rows of D are in memory.

Operations: m cells per symbol, each with three loads from the previous row, one of them random;
memory: 4 bytes per symbol for each letter of X and each of the two rows.

``sequential`` (ASM_CPU): the matrix D by equation 1, column by column, cell by cell. Operations: m
cells per symbol, each a comparison and a minimum of three; 4 m bytes of memory. The only
parallelism is cutting texts: a thread takes a range of ends, and ``reach`` symbols before it.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.blocks import EndsFound
from streamer.batch.asm.pattern_masks import Searches
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


def pasm(codes: NDArray[np.uint8], lead: int, searches: Searches, threads: int) -> list[EndsFound]:
    """Find every end in (lead, n] with a distance <= k, by search."""
    alphabet = np.unique(searches.joined_masks)
    rows_of_x = run_all([partial(_last_positions, codes, mask) for mask in alphabet], threads)
    last = dict(zip(alphabet.tolist(), rows_of_x, strict=True))
    hits = []
    for i, masks in enumerate(searches.masks):
        row = _last_row(codes, masks, last, threads)
        ends = lead + 1 + np.flatnonzero(row[lead + 1 :] <= searches.k)
        hits.append(EndsFound(ends, row[ends], np.full(ends.size, i, dtype=np.int32)))
    return hits


def _last_row(
    codes: NDArray[np.uint8],
    masks: NDArray[np.uint8],
    last: dict[int, NDArray[np.int32]],
    threads: int,
) -> NDArray[np.int32]:
    above = np.zeros(codes.size + 1, dtype=np.int32)
    row = np.empty_like(above)
    parts = split_range(1, codes.size + 1, threads)
    for i, mask in enumerate(masks, 1):
        row[0] = i
        run_all([partial(_row, codes, mask, last[mask], i, above, row, *p) for p in parts], threads)
        above, row = row, above
    return above


@njit(cache=True, nogil=True)
def _last_positions(codes, mask):
    row = np.empty(codes.size + 1, np.int32)
    last = 0
    row[0] = 0
    for j in range(1, codes.size + 1):
        if mask >> codes[j - 1] & 1:
            last = j
        row[j] = last
    return row


@njit(cache=True, nogil=True)
def _row(codes, mask, last, i, above, row, low, high):
    """Compute columns low..high of row i by equation 3."""
    for j in range(low, high):
        if mask >> codes[j - 1] & 1:
            row[j] = above[j - 1]
        else:
            x = last[j]
            along = i + j - 1 if x == 0 else above[x - 1] + (j - 1 - x)
            row[j] = 1 + min(above[j], min(above[j - 1], along))


def sequential(
    codes: NDArray[np.uint8], lead: int, searches: Searches, threads: int
) -> list[EndsFound]:
    """Find every end in (lead, n] with a distance <= k, by search."""
    parts = split_range(lead, codes.size, threads, align=max(1, 4 * searches.reach))
    tasks = [
        partial(_by_columns, codes, low, high, masks, searches.k)
        for masks in searches.masks
        for low, high in parts
    ]
    return [
        EndsFound(ends, distances, np.full(ends.size, i // len(parts), np.int32))
        for i, (ends, distances) in enumerate(run_all(tasks, threads))
    ]


@njit(cache=True, nogil=True)
def _by_columns(codes, low, high, masks, k):
    """Find the ends in (low, high] with D <= k, and D there."""
    rows = masks.size
    column = np.arange(rows + 1).astype(np.int32)
    ends = np.empty(high - low, np.int64)
    distances = np.empty(high - low, np.int32)
    count = 0
    for j in range(max(0, low - rows - k), high):
        code = codes[j]
        diagonal = column[0]
        for i in range(1, rows + 1):
            if masks[i - 1] >> code & 1:
                value = diagonal
            else:
                value = 1 + min(column[i - 1], min(column[i], diagonal))
            diagonal = column[i]
            column[i] = value
        if column[rows] <= k and j >= low:
            ends[count] = j + 1
            distances[count] = column[rows]
            count += 1
    return ends[:count].copy(), distances[:count].copy()
