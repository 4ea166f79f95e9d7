"""Passes of Hirschberg's division over parts of the two sequences, and their results.

A pass takes rows [row, row + rows) and columns [column, column + columns) of the table, from the
first corner or, read backwards, from the last. Its result after c columns is one bit a row: set
where the length of the longest common subsequence with those c columns grows by that row, in the
pass's own direction. So the length for the first r rows is the number of bits set below r, and a
pass over more rows serves any smaller number.

Results lie in a pool of uint32 words, row i in bit i % 32 of word i // 32.

On the cores of a CPU a pass is cut into lots of rows and stretches of columns (``Waves``). A lot
may take a stretch once it has finished the previous one, and the previous lot this one:

    columns ->   0 1 2 3        the number: the earliest time a tile can run if all tiles take
    lot 0        0 1 2 3        equally long
    lot 1        1 2 3 4

Threads take any ready tile of any pass.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import OnCells, Pair
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
        pairs = np.array(run_all(tasks, self._threads), dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


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


LOTS = 2
"""Lots of rows per thread, over all passes that are cut; with only one, a delayed thread would
delay the others.
"""

STRETCHES = 32  # the most stretches of columns for each lot of a pass

TILE_CELLS = 1 << 28
"""The fewest cells per tile, half a millisecond; Python starts one in a twentieth of that."""

CUT_FROM = 1 << 28  # cells from which a pass is cut for several threads

LEAST_STRETCH = 1024
"""The fewest columns per stretch; a shorter one would cost more to start than to run."""

SHOWN_CELLS = 1 << 33
MOST_SHOWN = 100
"""A pass on one thread reports its progress after this many cells, at most this many times."""

Stretch = tuple[int, int, int | None]
"""First column, one past the last, and the pool word of the result stored there or None."""


class Sweep(Protocol):
    """A pass in progress: ``SystolicSweep`` or ``BitParallelSweep``.

    A lot may take a stretch of columns once the previous lot has.
    """

    lots: int

    def run(self, lot: int, first: int, stop: int) -> None:
        """Advance a lot of rows over the columns [first, stop)."""

    def export(self, lot: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write a lot's bits into the result at pool word ``at``."""


class Waves(HostPool):
    """Runs passes with one kind of sweep on ``threads`` threads (a ``Processor``)."""

    def __init__(
        self, pair: Pair, sweep: Callable[[Pair, Part, int], Sweep], threads: int,
        on_cells: OnCells,
    ) -> None:  # fmt: skip
        super().__init__(threads)
        self._pair = pair
        self._sweep = sweep
        self._on_cells = on_cells

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        parts = list(passes.parts())
        side_by_side = len(parts) >= 2 * self._threads or self._threads == 1
        large = [i for i, part in enumerate(parts) if part.cells >= CUT_FROM and not side_by_side]
        # largest first, so that none is left for the end
        small = sorted(set(range(len(parts))) - set(large), key=lambda i: -parts[i].cells)
        run_all([partial(self._alone, parts[i], passes, i) for i in small], self._threads)
        if large:
            lots = -(-self._threads // len(large))
            crew = Crew([self._chain(parts[i], passes, i, lots) for i in large])
            run_all([crew.work] * self._threads, self._threads)

    def _alone(self, part: Part, passes: Passes, i: int) -> None:
        sweep = self._sweep(self._pair, part, 1)
        # cut only to report progress and handle interrupts
        shown = max(1, min(part.cells // SHOWN_CELLS, MOST_SHOWN))
        for stretch in stretches(passes, i, shown):
            self._tile(sweep, 0, part.rows, stretch)

    def _chain(self, part: Part, passes: Passes, i: int, each: int) -> Chain:
        tiles = max(1, part.cells // TILE_CELLS)
        # more lots if enough stretches remain for threads to start and finish staggered
        lots = LOTS * each if tiles >= 4 * (LOTS * each) ** 2 else min(each, tiles)
        sweep = self._sweep(self._pair, part, lots)
        most = min(tiles // sweep.lots, part.columns // LEAST_STRETCH)
        cut = stretches(passes, i, max(1, min(STRETCHES * sweep.lots, most)))
        rows = part.rows // sweep.lots
        return Chain(
            [
                [partial(self._tile, sweep, lot, rows, stretch) for stretch in cut]
                for lot in range(sweep.lots)
            ]
        )

    def _tile(self, sweep: Sweep, lot: int, rows: int, stretch: Stretch) -> None:
        first, stop, at = stretch
        sweep.run(lot, first, stop)
        if at is not None:
            sweep.export(lot, self.pool, at)
        self._on_cells(rows * (stop - first))


class Chain:
    """The tiles of a pass by lot and stretch, and how many of each lot have run."""

    def __init__(self, tiles: Sequence[Sequence[Callable[[], None]]]) -> None:
        self.tiles = tiles
        self.done = [0] * len(tiles)

    def ready(self, lot: int) -> bool:
        """Return whether the lot's next tile may run, if none of the lot is running."""
        at = self.done[lot]
        return at < len(self.tiles[lot]) and (lot == 0 or self.done[lot - 1] > at)


class Crew:
    """Threads that run the tiles of all chains, each as soon as possible."""

    def __init__(self, chains: list[Chain]) -> None:
        self._changed = threading.Condition()
        self._waiting = deque((chain, 0) for chain in chains)
        self._left = sum(len(tiles) for chain in chains for tiles in chain.tiles)

    def work(self) -> None:
        """Run tiles until none is left; the first exception stops all threads after their tiles."""
        try:
            while (taken := self._take()) is not None:
                chain, lot = taken
                chain.tiles[lot][chain.done[lot]]()
                self._give_back(chain, lot)
        except BaseException:
            with self._changed:
                self._left = 0
                self._changed.notify_all()
            raise

    def _take(self) -> tuple[Chain, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._left <= 0)
            return self._waiting.popleft() if self._left > 0 else None

    def _give_back(self, chain: Chain, lot: int) -> None:
        with self._changed:
            chain.done[lot] += 1
            self._left -= 1
            before = len(self._waiting)
            if chain.ready(lot):
                self._waiting.append((chain, lot))
            # the next lot was waiting if it has finished one less
            below = lot + 1
            if below < len(chain.done) and chain.done[below] == chain.done[lot] - 1:
                self._waiting.append((chain, below))
            if self._left <= 0:
                self._changed.notify_all()
            else:
                # this thread takes one of them itself
                self._changed.notify(len(self._waiting) - before - 1)


def stretches(passes: Passes, i: int, count: int) -> list[Stretch]:
    """Return about ``count`` stretches of a pass, cut also where it stores results."""
    marks = {
        int(mark): int(passes.at[i] + number * passes.stride[i])
        for number, mark in enumerate(passes.marks[i])
        if mark
    }
    columns = int(passes.columns[i])
    cuts = {columns * part // count for part in range(count + 1)} | set(marks)
    return [(first, stop, marks.get(stop)) for first, stop in pairwise(sorted(cuts))]
