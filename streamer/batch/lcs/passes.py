"""One direction of Hirschberg's division: passes over parts of the two sequences, and their
results.

A pass takes rows [row, row + rows) and columns [column, column + columns) of the table, from the
first corner or, read backwards, from the last. Its result after c columns is one bit a row: set
where the length of the longest common subsequence with those c columns grows by that row, in the
pass's own direction. So the length for the first r rows is the number of bits set below r, and a
pass over more rows serves any smaller number.

Results lie in a pool of uint32 words, row i in bit i % 32 of word i // 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Pair
from trie.cpu.intrinsics import popcount
from trie.cpu.jit import njit

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes that may run at once; int64 arrays of one length.

    row, rows, column, columns: the part of the table. backward: bool. marks: int64[passes, M],
    after how many columns a result is kept, falling, the first of them ``columns``, 0 behind the
    last. at: the pool word of the first result; the m-th stands m * stride words behind it. stride:
    words of a result.
    """

    row: Numbers
    rows: Numbers
    column: Numbers
    columns: Numbers
    backward: NDArray[np.bool_]
    marks: Numbers
    at: Numbers
    stride: Numbers

    def __len__(self) -> int:
        return self.row.size


def stride_of(rows: Numbers) -> Numbers:
    """Pool words that a result of so many rows takes: whole groups of 128 bits."""
    words: Numbers = -(-rows // 128) * 4
    return words


@dataclass(frozen=True, slots=True)
class Splits:
    """Tables to be cut in two at a column: where both directions' results are; int64 arrays.

    first: pool words of the results from the first corner up to the column, last: from the last
    corner. rows: rows of each table.
    """

    first: Numbers
    last: Numbers
    rows: Numbers


def grown(pool: NDArray[np.uint32], words: int) -> NDArray[np.uint32]:
    """A pool with room for so many words, that one if it has; what it holds is kept."""
    if words <= pool.size:
        return pool
    larger = np.zeros(max(words, 2 * pool.size), dtype=np.uint32)
    larger[: pool.size] = pool
    return larger


class Processor(Protocol):
    """What runs passes: the CPU, a word or a vector at a time, or a card."""

    def reserve(self, words: int) -> None:
        """Make the pool hold so many words; what it holds is kept."""

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """The first row at which each table is best cut, and the length of its subsequence."""


def whole(pair: Pair, *, both: bool) -> tuple[Passes, Splits]:
    """The passes over a whole table that give its length: from both corners to the middle, or
    one."""
    rows, columns = pair.a.size, pair.b.size
    middle = columns // 2 if both else columns
    parts = [(0, middle, False)] + ([(middle, columns - middle, True)] if both else [])
    count = len(parts)
    stride = stride_of(np.full(count, rows, dtype=np.int64))
    at = np.arange(count, dtype=np.int64) * stride
    passes = Passes(
        row=np.zeros(count, dtype=np.int64),
        rows=np.full(count, rows, dtype=np.int64),
        column=np.array([part[0] for part in parts], dtype=np.int64),
        columns=np.array([part[1] for part in parts], dtype=np.int64),
        backward=np.array([part[2] for part in parts]),
        marks=np.array([[part[1]] for part in parts], dtype=np.int64),
        at=at,
        stride=stride,
    )
    return passes, Splits(at[:1], at[1:], passes.rows[:1])


@njit(cache=True, nogil=True)
def count_bits(pool, at, rows):
    """Bits set among the first ``rows`` of a result."""
    total = 0
    for word in range(rows >> 5):
        total += int(popcount(pool[at + word]))
    if rows & 31:
        mask = np.uint32((np.uint64(1) << np.uint64(rows & 31)) - np.uint64(1))
        total += int(popcount(np.uint32(pool[at + (rows >> 5)] & mask)))
    return total


@njit(cache=True, nogil=True)
def best_cut(pool, first, last, rows):
    """(row, length): the least row at which first + last lengths are largest (Listing 2, 17-18).

    The length from the last corner for the rows from r on is the number of its bits set below
    rows - r, so that the sum changes by one bit of each from row to row.
    """
    here = count_bits(pool, last, rows)
    best = here
    cut = 0
    for row in range(rows):
        back = rows - 1 - row
        here += np.int64((pool[first + (row >> 5)] >> np.uint32(row & 31)) & np.uint32(1))
        here -= np.int64((pool[last + (back >> 5)] >> np.uint32(back & 31)) & np.uint32(1))
        if here > best:
            best = here
            cut = row + 1
    return cut, best
