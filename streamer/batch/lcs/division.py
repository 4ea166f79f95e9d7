"""Hirschberg's division in linear memory, a level at a time, with half of the passes saved.

A table of rows x columns is cut at its middle column: passes from its first and from its last
corner to that column tell the row at which to cut (Listing 2, 14-18), and two tables of half the
columns remain. All tables of a level are worked on together, so that many small passes keep a
processor as busy as a few large ones.

Each of the two shares one corner with the table it came from, and the pass from that corner has
come by the middle of the smaller table already. So every pass keeps its result at a half, a
quarter, an eighth of its columns too (MARKS of them), and a smaller table needs only one new pass,
from its new corner:

    cells = m n (1 + 1/4 + 1/8 + ...) = 1.5 m n   where Hirschberg computes 2 m n

Memory: a level keeps at most MARKS results of m bits for each new pass, which together have m rows.

Tables of at most ``leaf_cells`` are solved directly (direct.py), similar ones by their differences
(diff.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Numbers, Passes, Processor, Splits, stride_of
from streamer.batch.lcs.symbols import Pair

MARKS = 4
"""Results that a pass keeps; more save less than a thirtieth of the cells."""

SHORTEST_MARK = 64
"""Columns below which no result is kept."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables still to be solved; int64 arrays of one length.

    Rows [row, row_end), columns [column, column_end). first: the pool word of the result from the
    first corner up to the middle column, ``first_left`` results of halved columns that begin there,
    each ``first_stride`` words behind the one before; 0 left where the pass is still to be run.
    last: the same for the last corner.
    """

    row: Numbers
    row_end: Numbers
    column: Numbers
    column_end: Numbers
    first: Numbers
    first_stride: Numbers
    first_left: Numbers
    last: Numbers
    last_stride: Numbers
    last_left: Numbers

    def __len__(self) -> int:
        return self.row.size

    def cells(self) -> Numbers:
        """The cells of each."""
        return (self.row_end - self.row) * (self.column_end - self.column)

    def take(self, which: Numbers | NDArray[np.bool_]) -> Tables:
        """Some of them."""
        return Tables(*(getattr(self, field.name)[which] for field in fields(self)))


Leaves = Callable[[Numbers, Numbers, Numbers, Numbers], None]
"""Solves whole tables: row, row_end, column, column_end of each."""

Tried = Callable[[Numbers, Numbers, Numbers, Numbers], NDArray[np.bool_]]
"""Solves those tables for which that is cheap, and says which."""


def one_table(pair: Pair) -> Tables:
    """The whole."""
    values = dict.fromkeys((field.name for field in fields(Tables)), 0)
    values |= {"row_end": pair.a.size, "column_end": pair.b.size}
    return Tables(**{name: np.array([value], dtype=np.int64) for name, value in values.items()})


def divide(
    pair: Pair,
    processor: Processor,
    leaves: Leaves,
    *,
    is_leaf: Callable[[Tables], NDArray[np.bool_]],
    tried: Tried | None = None,
    marks: int = MARKS,
) -> None:
    """Solve the whole table: ``leaves`` and ``tried`` are handed every part that they can solve."""
    tables = one_table(pair)
    used = 0
    level = 0
    while len(tables):
        columns = tables.column_end - tables.column
        # without rows or columns there is nothing in common
        tables = tables.take((columns > 0) & (tables.row_end > tables.row))
        small = is_leaf(tables) | (tables.column_end - tables.column < 2)
        leaves(*_bounds(tables.take(small)))
        tables = tables.take(~small)
        if tried is not None and level and len(tables):
            tables = tables.take(~tried(*_bounds(tables)))
        if not len(tables):
            return
        middle = (tables.column + tables.column_end) // 2
        tables, passes, used = _passes(tables, middle, marks, used)
        processor.reserve(used)
        processor.sweep(passes)
        rows = tables.row_end - tables.row
        cut, _ = processor.split(Splits(tables.first, tables.last, rows))
        tables = _halves(tables, middle, tables.row + cut)
        level += 1


def _bounds(tables: Tables) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    return tables.row, tables.row_end, tables.column, tables.column_end


def _passes(tables: Tables, middle: Numbers, marks: int, used: int) -> tuple[Tables, Passes, int]:
    """The passes that the tables lack, the tables with the places of their results, pool words
    used."""
    rows = tables.row_end - tables.row
    needs = {"first": tables.first_left == 0, "last": tables.last_left == 0}
    updated = {field.name: getattr(tables, field.name).copy() for field in fields(Tables)}
    parts = []
    for side, needed in needs.items():
        which = np.flatnonzero(needed)
        backward = side == "last"
        lengths = _halvings(tables, middle, backward, marks)[which]
        stride = stride_of(rows[which])
        kept = (lengths > 0).sum(axis=1)
        ends = used + np.cumsum(stride * kept)
        at = ends - stride * kept
        used = int(ends[-1]) if which.size else used
        updated[side][which] = at
        updated[f"{side}_stride"][which] = stride
        updated[f"{side}_left"][which] = kept
        column = middle if backward else tables.column
        parts.append(
            (
                tables.row[which],
                rows[which],
                column[which],
                lengths[:, 0],
                np.full(which.size, backward),
                lengths,
                at,
                stride,
            )
        )
    joined = [np.concatenate(both) for both in zip(*parts, strict=True)]
    return Tables(**updated), Passes(*joined), used


def _halvings(tables: Tables, middle: Numbers, backward: bool, marks: int) -> Numbers:
    """int64[tables, marks]: columns from the corner to the middle, then to the middle of what is
    left, ..."""
    lengths = np.zeros((len(tables), marks), dtype=np.int64)
    low, high = tables.column, tables.column_end
    at = middle
    for mark in range(marks):
        length = high - at if backward else at - low
        # a table of one column is a leaf, and its middle is no result
        lengths[:, mark] = np.where((length >= SHORTEST_MARK) | (mark == 0), length, 0)
        at = (at + high) // 2 if backward else (low + at) // 2
    return lengths


def _halves(tables: Tables, middle: Numbers, cut: Numbers) -> Tables:
    """The tables before and behind the cut, each with the results of the corner that it keeps."""
    nothing = np.zeros(len(tables), dtype=np.int64)
    before = Tables(
        tables.row, cut, tables.column, middle,
        tables.first + tables.first_stride, tables.first_stride,
        np.maximum(tables.first_left - 1, 0),
        nothing, nothing, nothing,
    )  # fmt: skip
    behind = Tables(
        cut, tables.row_end, middle, tables.column_end,
        nothing, nothing, nothing,
        tables.last + tables.last_stride, tables.last_stride,
        np.maximum(tables.last_left - 1, 0),
    )  # fmt: skip
    return Tables(
        *(
            np.concatenate([getattr(before, field.name), getattr(behind, field.name)])
            for field in fields(Tables)
        )
    )


def split_evenly(cells: Numbers, parts: int) -> list[Numbers]:
    """The tables' numbers in ``parts`` lots of about as many cells each, the largest first in
    each."""
    order = np.argsort(-cells, kind="stable")
    return [order[part::parts] for part in range(parts) if order[part::parts].size]


def lots(
    solve: Callable[..., None],
    parts: int,
    row: Numbers,
    row_end: Numbers,
    column: Numbers,
    column_end: Numbers,
) -> list[Callable[[], None]]:
    """``solve`` on the tables in ``parts`` lots, as tasks."""
    cells = (row_end - row) * (column_end - column)
    return [
        partial(solve, row[which], row_end[which], column[which], column_end[which])
        for which in split_evenly(cells, parts)
    ]
