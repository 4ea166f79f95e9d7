"""Hirschberg's division in linear memory, level by level, with half of the passes saved.

A table of rows x columns is cut at its middle column: passes from its first and from its last
corner to that column determine the row at which to cut (Listing 2, 14-18), and two tables of half
the columns remain. All tables of a level are processed together, so many small passes keep a
processor as busy as a few large ones.

Each of the two shares one corner with its parent, and the pass from that corner has already gone
past the middle of the smaller table. So every pass also stores its result at a half, a quarter, an
eighth of its columns (MARKS of them), and a smaller table needs only one new pass, from its new
corner:

    cells = m n (1 + 1/4 + 1/8 + ...) = 1.5 m n   where Hirschberg computes 2 m n

Memory: a level stores up to MARKS results for each new pass; together the passes have m rows.

Small tables are solved directly (direct.py), similar ones by their differences (diff.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Numbers, Passes, Processor, Splits, stride_of
from streamer.batch.lcs.symbols import Pair
from trie.cpu.threads import run_all

MARKS = 4  # results stored per pass; more would save less than a thirtieth of the cells
SHORTEST_MARK = 64  # columns below which no result is stored
SIDES = ("first", "last")

TABLE = np.dtype(
    [(name, np.int64) for name in ("row", "row_end", "column", "column_end")]
    + [(side + what, np.int64) for side in SIDES for what in ("", "_stride", "_left")]
)
"""A table still to be solved: rows [row, row_end), columns [column, column_end).

first: the pool word of the result from the first corner to the middle column. There begin
``first_left`` results for halved columns, ``first_stride`` words apart; 0 if the pass has not run
yet. last: the same for the last corner.
"""

Tables = NDArray[np.void]

Leaves = Callable[[Numbers, Numbers, Numbers, Numbers], None]
"""Solves whole tables: row, row_end, column, column_end of each."""

Tried = Callable[[Numbers, Numbers, Numbers, Numbers], NDArray[np.bool_]]
"""Solves the tables for which that is cheap, and returns which."""


def sizes(tables: Tables) -> tuple[Numbers, Numbers]:
    """Return rows and columns of tables."""
    return tables["row_end"] - tables["row"], tables["column_end"] - tables["column"]


def divide(
    pair: Pair,
    processor: Processor,
    leaves: Leaves,
    *,
    is_leaf: Callable[[Numbers, Numbers], NDArray[np.bool_]],
    tried: Tried | None = None,
    marks: int = MARKS,
) -> None:
    """Solve the whole table, passing ``leaves`` and ``tried`` every part that they can solve.

    is_leaf: takes rows and columns of tables.
    """
    tables = np.zeros(1, dtype=TABLE)
    tables["row_end"], tables["column_end"] = pair.a.size, pair.b.size
    used = 0
    level = 0
    while True:
        rows, columns = sizes(tables)
        # without rows or columns there is nothing in common
        tables = tables[(columns > 0) & (rows > 0)]
        rows, columns = sizes(tables)
        small = is_leaf(rows, columns) | (columns < 2)
        leaves(*_bounds(tables[small]))
        tables = tables[~small]
        if tried is not None and level and tables.size:
            tables = tables[~tried(*_bounds(tables))]
        if not tables.size:
            return
        middle = (tables["column"] + tables["column_end"]) // 2
        passes, used = _passes(tables, middle, marks, used)
        processor.reserve(used)
        processor.sweep(passes)
        cut, _ = processor.split(Splits(tables["first"], tables["last"], sizes(tables)[0]))
        tables = _halves(tables, middle, tables["row"] + cut)
        level += 1


def _bounds(tables: Tables) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    return tables["row"], tables["row_end"], tables["column"], tables["column_end"]


def _passes(tables: Tables, middle: Numbers, marks: int, used: int) -> tuple[Passes, int]:
    """Return the passes that the tables lack, and the pool words used.

    Writes the places of their results into the tables.
    """
    rows, _ = sizes(tables)
    parts = []
    for side in SIDES:
        backward = side == "last"
        which = np.flatnonzero(tables[f"{side}_left"] == 0)
        lengths = _halvings(tables[which], middle[which], backward, marks)
        stride = stride_of(rows[which])
        stored = (lengths > 0).sum(axis=1)
        ends = used + np.cumsum(stride * stored)
        at = ends - stride * stored
        used = int(ends[-1]) if which.size else used
        tables[side][which] = at
        tables[f"{side}_stride"][which] = stride
        tables[f"{side}_left"][which] = stored
        column = middle if backward else tables["column"]
        parts.append(
            (tables["row"][which], rows[which], column[which], lengths[:, 0],
             np.full(which.size, backward), lengths, at, stride)
        )  # fmt: skip
    return Passes(*(np.concatenate(both) for both in zip(*parts, strict=True))), used


def _halvings(tables: Tables, middle: Numbers, backward: bool, marks: int) -> Numbers:
    """int64[tables, marks]: columns from the corner to the middle, then half of those, ..."""
    lengths = np.zeros((tables.size, marks), dtype=np.int64)
    low, high = tables["column"], tables["column_end"]
    at = middle
    for mark in range(marks):
        length = high - at if backward else at - low
        # a table of one column is a leaf, and its middle is not a result
        lengths[:, mark] = np.where((length >= SHORTEST_MARK) | (mark == 0), length, 0)
        at = (at + high) // 2 if backward else (low + at) // 2
    return lengths


def _halves(tables: Tables, middle: Numbers, cut: Numbers) -> Tables:
    """Return the tables before and after the cut, each with the results of its shared corner."""
    halves = np.zeros((2, tables.size), dtype=TABLE)
    before, after = halves
    before["row"], before["row_end"] = tables["row"], cut
    before["column"], before["column_end"] = tables["column"], middle
    after["row"], after["row_end"] = cut, tables["row_end"]
    after["column"], after["column_end"] = middle, tables["column_end"]
    for half, side in zip(halves, SIDES, strict=True):
        half[side] = tables[side] + tables[f"{side}_stride"]
        half[f"{side}_stride"] = tables[f"{side}_stride"]
        half[f"{side}_left"] = np.maximum(tables[f"{side}_left"] - 1, 0)
    return halves.reshape(-1)


def in_lots(kernel: Callable[..., None], threads: int) -> Leaves:
    """Run a kernel that solves tables on all threads, in lots of similar numbers of cells."""

    def solve(*bounds: Numbers) -> None:
        row, row_end, column, column_end = bounds
        order = np.argsort(-(row_end - row) * (column_end - column), kind="stable")
        count = min(4 * threads, order.size)
        lots = [order[lot::count] for lot in range(count)]
        run_all([partial(kernel, *(bound[lot] for bound in bounds)) for lot in lots], threads)

    return solve
