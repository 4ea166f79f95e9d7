"""Passes of Hirschberg's division over parts of the two sequences, and their results.

A pass takes rows [row, row + rows) and columns [column, column + columns) of the table, from the
first corner or, read backwards, from the last. Its result after c columns is one bit a row: set
where the length of the longest common subsequence with those c columns grows by that row, in the
pass's own direction. So the length for the first r rows is the number of bits set below r, and a
pass over more rows serves any smaller number.

Results lie in a pool of uint32 words, row i in bit i % 32 of word i // 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Pair
from trie.cpu.intrinsics import popcount
from trie.cpu.jit import njit
from trie.cpu.threads import run_all

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a table, taken from its first corner or backwards from its last."""

    row: int
    rows: int
    column: int
    columns: int
    backward: bool

    @property
    def cells(self) -> int:
        """Rows times columns."""
        return self.rows * self.columns

    @property
    def step(self) -> int:
        """The step from a row or column to the next one of the pass."""
        return -1 if self.backward else 1

    @property
    def first_row(self) -> int:
        """The first row of the pass."""
        return self.row + self.rows - 1 if self.backward else self.row

    @property
    def first_column(self) -> int:
        """The first column of the pass."""
        return self.column + self.columns - 1 if self.backward else self.column


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes that may run concurrently; int64 arrays of one length.

    row, rows, column, columns, backward (bool): as in ``Part``. marks: int64[passes, M], the
    numbers of columns after which results are stored, descending, the first is ``columns``, 0 after
    the last. at: the pool word of the first result; the m-th is m * stride words after it. stride:
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

    def parts(self) -> Iterator[Part]:
        """Yield each pass's part of the table."""
        columns = (self.row, self.rows, self.column, self.columns, self.backward)
        return map(Part, *(column.tolist() for column in columns))


def stride_of(rows: Numbers) -> Numbers:
    """Return the pool words of a result of ``rows`` rows: whole groups of 128 bits."""
    words: Numbers = -(-rows // 128) * 4
    return words


@dataclass(frozen=True, slots=True)
class Splits:
    """Tables to cut in two at a column, with the places of both directions' results; int64 arrays.

    first: pool words of the results from the first corner up to the column, last: from the last
    corner. rows: rows of each table.
    """

    first: Numbers
    last: Numbers
    rows: Numbers


class Processor(Protocol):
    """Runs passes: on the CPU, a word or a vector at a time, or on a GPU."""

    def reserve(self, words: int) -> None:
        """Make room for ``words`` words in the pool, and keep its contents."""

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """Return the first optimal row to cut each table at, and the length of its subsequence."""


class HostPool:
    """Results in host memory: the base of processors on the CPU."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.pool = np.zeros(0, dtype=np.uint32)

    def reserve(self, words: int) -> None:
        """Make room for ``words`` words in the pool, and keep its contents."""
        if words > self.pool.size:
            larger = np.zeros(max(words, 2 * self.pool.size), dtype=np.uint32)
            larger[: self.pool.size] = self.pool
            self.pool = larger

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """Return the first optimal row to cut each table at, and the length of its subsequence."""
        columns = (column.tolist() for column in (splits.first, splits.last, splits.rows))
        tasks = [partial(best_cut, self.pool, *table) for table in zip(*columns, strict=True)]
        found = np.array(run_all(tasks, self._threads), dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]


def whole(pair: Pair, *, both: bool) -> tuple[Passes, Splits]:
    """The passes that give a whole table's length: from both corners to the middle, or one."""
    rows, columns = pair.a.size, pair.b.size
    middle = columns // 2 if both else columns
    parts = [(0, middle, False)] + ([(middle, columns - middle, True)] if both else [])
    column, width, backward = map(np.array, zip(*parts, strict=True))
    height = np.full(len(parts), rows)
    stride = stride_of(height)
    at = np.arange(len(parts)) * stride
    passes = Passes(
        np.zeros_like(height), height, column, width, backward, width[:, np.newaxis], at, stride
    )
    return passes, Splits(at[:1], at[1:], height[:1])


@njit(cache=True, nogil=True)
def count_bits(pool, at, rows):
    """Count the bits set among the first ``rows`` of a result."""
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
    rows - r, so the sum changes by one bit of each from row to row.
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
