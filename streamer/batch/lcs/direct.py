"""Solve small tables: store every column's bit-vector, and trace one subsequence back.

Bit i of v is 0 where the length grows by row i (Listing 4). The traceback from (row i, column j) is

    v[j] bit i is 1              the row adds nothing: go up
    else v[j-1] bit i is 0       the column adds nothing: go left
    else                         row i and column j match: take them, go up and left

because a length never grows by more than one from (i-1, j-1) to (i, j).
"""

from __future__ import annotations

import numpy as np

from streamer.batch.lcs.paper.bit_vectors import next_word
from trie.cpu.jit import njit


@njit(cache=True, nogil=True)
def solve(symbols, a, b, in_a, in_b, row, row_end, column, column_end):
    """Set the flags of one longest common subsequence of each table.

    row to column_end: int64[tables], half-open ranges of a and b (codes below ``symbols``). Memory
    is that of the largest table: ceil(rows / 64) words per column.
    """
    largest = 0
    widest = 0
    for t in range(row.size):
        words = (row_end[t] - row[t] + 63) >> 6
        widest = max(widest, words)
        largest = max(largest, words * (column_end[t] - column[t] + 1))
    columns = np.empty(largest, dtype=np.uint64)
    matches = np.zeros((symbols, widest), dtype=np.uint64)
    for t in range(row.size):
        _table(a[row[t] : row_end[t]], b[column[t] : column_end[t]], matches, columns,
               in_a[row[t] : row_end[t]], in_b[column[t] : column_end[t]])  # fmt: skip


@njit(cache=True, nogil=True)
def _table(a, b, matches, columns, in_a, in_b):
    words = (a.size + 63) >> 6
    for i in range(a.size):
        matches[a[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    for word in range(words):
        columns[word] = ~np.uint64(0)
    for j in range(b.size):
        of_symbol = matches[b[j]]
        before = columns[j * words : (j + 1) * words]
        after = columns[(j + 1) * words : (j + 2) * words]
        carry = np.uint64(0)
        for word in range(words):
            after[word], carry = next_word(before[word], of_symbol[word], carry)
    for i in range(a.size):
        matches[a[i], i >> 6] = np.uint64(0)
    i = a.size - 1
    j = b.size
    while i >= 0 and j > 0:
        if (columns[j * words + (i >> 6)] >> np.uint64(i & 63)) & np.uint64(1):
            i -= 1
        elif (columns[(j - 1) * words + (i >> 6)] >> np.uint64(i & 63)) & np.uint64(1):
            in_a[i] = True
            in_b[j - 1] = True
            i -= 1
            j -= 1
        else:
            j -= 1
