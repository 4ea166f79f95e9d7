"""Tables for users: columns of numbers, and of texts by index, formatted by a compiled kernel.

A cell is copied from a label or written as digits; nothing is made into a Python object a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import put_word, word_at
from trie.cpu.jit import njit

Format = Literal["tsv", "jsonl"]

NULL = np.iinfo(np.int64).min  # a number that is null
_ROWS_AT_ONCE = 1 << 15  # so that the numbers of a block stay in the cache
_DIGITS = 20  # of an int64, with its sign

_SLACK = np.zeros(8, dtype=np.uint8)  # texts are copied eight bytes at a time, up to seven too many
_PAIRS = np.frombuffer("".join(f"{i:02d}" for i in range(100)).encode(), dtype=np.uint8)


class Labels:
    """The texts that a column refers to by index; None is null, a number stays one in JSON."""

    def __init__(self, texts: Sequence[Any]) -> None:
        self.texts = texts
        self._packed: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}

    def gather(self, at: NDArray[Any]) -> Lookup:
        """A column of the labels at these indices."""
        return Lookup(self, at)

    def packed(self, format_: Format) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The texts as bytes, one NUL behind each, and int64[texts]: where these NULs are."""
        if format_ not in self._packed:
            if format_ == "jsonl":
                joined = json.dumps(list(self.texts), ensure_ascii=False, separators=("\0", ":"))[
                    1:-1
                ]
            else:
                joined = "\0".join("." if text is None else str(text) for text in self.texts)
            letters = np.frombuffer(f"{joined}\0".encode(), dtype=np.uint8)
            self._packed[format_] = letters, np.flatnonzero(letters == 0)
        return self._packed[format_]


class Lookup(NamedTuple):
    """A column of texts: row i is ``labels[at[i]]``, null where ``at[i]`` is -1."""

    labels: Labels
    at: NDArray[Any]


Column = NDArray[Any] | Lookup  # integers of any width below 2^63 (NULL is null), or texts


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length, by name, in order."""

    columns: Mapping[str, Column]

    @property
    def rows(self) -> int:
        """How many."""
        return next((_numbers(column).size for column in self.columns.values()), 0)

    def head(self, count: int) -> Table:
        """The first rows."""
        return Table({name: _part(column, 0, count) for name, column in self.columns.items()})

    def padded(self, names: Sequence[str]) -> Table:
        """The table with all columns of ``names``, null where it has none."""
        nulls = np.broadcast_to(np.int64(NULL), self.rows)
        return Table({name: self.columns.get(name, nulls) for name in names})

    def records(self) -> list[dict[str, Any]]:
        """A dictionary of Python's own values for each row."""
        return [json.loads(line) for line in b"".join(self.formatted("jsonl")).splitlines()]

    def formatted(self, format_: Format) -> Iterator[memoryview]:
        """The rows as lines of UTF-8, a block at a time."""
        if not self.rows:
            return
        if format_ == "jsonl":
            keys = [json.dumps(name) for name in self.columns]
            between = ["{" + keys[0] + ":", *(f",{key}:" for key in keys[1:]), "}\n", "null"]
        else:
            between = ["", *["\t"] * (len(self.columns) - 1), "\n", "."]
        texts = [np.frombuffer("\0".join([*between, ""]).encode(), dtype=np.uint8)]
        stops = [np.flatnonzero(texts[0] == 0)]
        first_label = []
        size, labels = texts[0].size, len(between)
        for column in self.columns.values():
            first_label.append(labels if isinstance(column, Lookup) else -1)
            if isinstance(column, Lookup) and len(column.labels.texts):
                text, ends = column.labels.packed(format_)
                texts.append(text)
                stops.append(ends + size)
                size, labels = size + text.size, labels + ends.size
        text, stop = np.concatenate([*texts, _SLACK]), np.concatenate(stops)
        start = np.concatenate([[0], stop[:-1] + 1])
        length = stop - start
        fixed = int(length[: len(between)].sum()) + _DIGITS * len(self.columns)
        at_column = np.array(first_label)
        for first in range(0, self.rows, _ROWS_AT_ONCE):
            parts = [_part(c, first, first + _ROWS_AT_ONCE) for c in self.columns.values()]
            cells = np.array([_numbers(part) for part in parts], dtype=np.int64)
            bound = fixed * cells.shape[1] + sum(
                int(length[label + row[row >= 0]].sum())
                for label, row in zip(first_label, cells, strict=True) if label >= 0
            )  # fmt: skip
            out = np.empty(bound + _SLACK.size, dtype=np.uint8)
            yield out[: _format(cells, at_column, text, start, stop, out)].data


def texts(values: Sequence[Any]) -> Lookup:
    """A column with a text of its own in each row."""
    return Lookup(Labels(values), np.arange(len(values)))


def same(value: Any, rows: int) -> Lookup:
    """A column with one text or number in every row."""
    return Lookup(Labels([value]), np.zeros(rows, dtype=np.int64))


def distinct(values: NDArray[Any], shown: Callable[[NDArray[Any]], Sequence[Any]]) -> Lookup:
    """A column of what ``shown`` makes of each value; it gets each distinct one once."""
    present, index = np.unique(values, return_inverse=True)
    return Lookup(Labels(shown(present)), index)


def _numbers(column: Column) -> NDArray[Any]:
    return column.at if isinstance(column, Lookup) else column


def _part(column: Column, first: int, stop: int) -> Column:
    if isinstance(column, Lookup):
        return Lookup(column.labels, column.at[first:stop])
    return column[first:stop]


@njit(cache=True, nogil=True)
def _format(cells, first_label, text, start, stop, out):
    """Write the rows; returns the bytes written. cells: int64[columns, rows].

    Labels are text[start:stop]: first what stands before each column, then the end of a row, then
    null. first_label: of each column, -1 for numbers.
    """
    columns, rows = cells.shape
    at = 0
    for row in range(rows):
        for column in range(columns):
            at = _copy(text, start[column], stop[column], out, at)
            cell = cells[column, row]
            if cell == NULL or (cell < 0 and first_label[column] >= 0):
                at = _copy(text, start[columns + 1], stop[columns + 1], out, at)
            elif first_label[column] >= 0:
                label = first_label[column] + cell
                at = _copy(text, start[label], stop[label], out, at)
            else:
                at = _write_number(cell, out, at)
        at = _copy(text, start[columns], stop[columns], out, at)
    return at


@njit(cache=True, nogil=True, forceinline=True)
def _copy(text, first, stop, out, at):
    for i in range(0, stop - first, 8):
        put_word(out, at + i, word_at(text, first + i))
    return at + stop - first


@njit(cache=True, nogil=True, forceinline=True)
def _write_number(value, out, at):
    if value < 0:
        out[at] = 45  # a minus sign
        at += 1
    rest = np.uint64(abs(value))
    end = at + 1
    above = np.uint64(10)
    while end - at < 19 and rest >= above:
        end += 1
        above *= np.uint64(10)
    i = end
    while i - at >= 2:
        pair = np.int64(rest % np.uint64(100)) * 2
        rest //= np.uint64(100)
        i -= 2
        out[i] = _PAIRS[pair]
        out[i + 1] = _PAIRS[pair + 1]
    if i > at:
        out[at] = np.uint8(48) + np.uint8(rest)
    return end
