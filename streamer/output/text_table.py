"""Tables for users: columns of numbers, or of texts by index, formatted by a compiled kernel.

A cell is copied from a label or written as digits; no Python object is created per row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.intrinsics import array_address, integer_at, put_word
from trie.cpu.jit import njit
from trie.cpu.vectors import SLACK, copy_line
from trie.new_file import WithCommit

Format = Literal["tsv", "jsonl"]

NULL = np.iinfo(np.int64).min  # stands for null in a column of numbers
_BLOCK_BYTES = 1 << 20
_DIGITS = 20  # of an int64, with its sign

_SLACK = np.zeros(
    SLACK, dtype=np.uint8
)  # texts are copied 64 bytes at a time, usually past their end
_NO_TEXTS = np.empty(0, dtype=np.uint8), np.empty((0, 2), dtype=np.int64)
_FEW = 1000  # the most labels that are copied; one column with more stays in place
_NUMBERS: Final = -1
_PACKED: Final = -2
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C

Texts = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""UTF-8 bytes, and int64[texts, 2]: where each text begins and ends in them."""


def _three_digits() -> NDArray[np.uint64]:
    """uint64[1000]: each number's digits in the three lowest bytes, their count above them."""
    digits = np.frombuffer("".join(f"{i:03d}" for i in range(1000)).encode(), np.uint8)
    words = np.zeros((1000, 8), dtype=np.uint8)
    words[:, :3] = digits.reshape(1000, 3)
    words[:, 3] = [len(str(i)) for i in range(1000)]
    return words.view("<u8").ravel().astype(np.uint64)


_THREE = _three_digits()


class PackedTexts(Protocol):
    """Packed texts of printable characters."""

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The texts, UTF-8."""

    @property
    def bounds(self) -> NDArray[np.int64]:
        """int64[texts, 2]: where each text begins and ends in ``memory``."""


class Labels:
    """The texts that a column refers to by index. None is null; a number stays one in JSON."""

    def __init__(self, texts: Sequence[Any]) -> None:
        self.texts = texts
        self._packed: dict[str, Texts] = {}

    def gather(self, at: NDArray[Any]) -> Lookup:
        """Return a column of the labels at these indices."""
        return Lookup(self, at)

    def packed(self, format_: Format) -> Texts:
        """Return the texts as they appear in a row."""
        if format_ not in self._packed:
            self._packed[format_] = self._in_rows(format_)
        return self._packed[format_]

    def _in_rows(self, format_: Format) -> Texts:
        if not len(self.texts):
            return _NO_TEXTS
        # isinstance would take longer than everything else here
        if hasattr(self.texts, "bounds"):
            packed = cast(PackedTexts, self.texts)
            memory, bounds = packed.memory, packed.bounds
            return (memory, bounds) if format_ == "tsv" else _quoted(memory, bounds)
        if format_ == "jsonl":
            joined = json.dumps(list(self.texts), ensure_ascii=False, separators=("\0", ":"))[1:-1]
        else:
            joined = "\0".join("." if text is None else str(text) for text in self.texts)
        return _separated(joined)


class NameLists(Labels):
    """Lists of names, or None: joined by ``;`` in TSV, arrays in JSON."""

    def _in_rows(self, format_: Format) -> Texts:
        if not len(self.texts):
            return _NO_TEXTS
        if format_ == "jsonl":
            whole = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
            return _separated("\0".join(map(whole, self.texts)))
        return _separated("\0".join("." if row is None else ";".join(row) for row in self.texts))


def _separated(joined: str) -> Texts:
    """Return texts that were joined by NUL."""
    letters = np.frombuffer(f"{joined}\0".encode(), dtype=np.uint8)
    stops = np.flatnonzero(letters == 0)
    return letters, np.stack([np.append(0, stops[:-1] + 1), stops], axis=1)


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
        """The number of rows."""
        return next((_numbers(column).size for column in self.columns.values()), 0)

    def head(self, count: int) -> Table:
        """Return the first rows."""
        return Table({name: _part(column, 0, count) for name, column in self.columns.items()})

    def padded(self, names: Sequence[str]) -> Table:
        """Return the table with all columns of ``names``; missing ones are null."""
        nulls = np.broadcast_to(np.int64(NULL), self.rows)
        return Table({name: self.columns.get(name, nulls) for name in names})

    def records(self) -> list[dict[str, Any]]:
        """Return a dict of Python values for each row."""
        return [json.loads(line) for line in b"".join(self.formatted("jsonl")).splitlines()]

    def formatted(self, format_: Format) -> Iterator[memoryview]:
        """Yield the rows as lines of UTF-8, one block at a time."""
        if not self.rows:
            return
        labels = self._labels(format_)
        # keep these arrays alive while their addresses are in use
        numbers = [np.asarray(_numbers(part), dtype=np.int64) for part in self.columns.values()]
        cells = np.array([(array_address(part), *part.strides) for part in numbers], dtype=np.int64)
        row, need, rows = 0, _BLOCK_BYTES, self.rows
        while row < rows:
            out = array_pool.empty(max(_BLOCK_BYTES, need), np.uint8)
            row, filled, need = _format(cells, row, rows, *labels, out)
            yield out[:filled].data

    def _labels(self, format_: Format) -> tuple[NDArray[Any], int, NDArray[Any], Any, Any, Any]:
        """Prepare what ``_format`` needs to know about the columns."""
        if format_ == "jsonl":
            keys = [json.dumps(name) for name in self.columns]
            between = ["{" + keys[0] + ":", *(f",{key}:" for key in keys[1:]), "}\n", "null"]
        else:
            between = ["", *["\t"] * (len(self.columns) - 1), "\n", "."]
        fixed = sum(map(len, between)) + _DIGITS * len(self.columns)
        parts = [_separated("\0".join(between))]
        packed = _NO_TEXTS
        kinds = []
        for column in self.columns.values():
            if not isinstance(column, Lookup):
                kinds.append(_NUMBERS)
                continue
            own = column.labels.packed(format_)
            if len(own[1]) > _FEW and packed is _NO_TEXTS:
                packed = own
                kinds.append(_PACKED)
            else:
                kinds.append(sum(len(bounds) for _, bounds in parts))
                parts.append(own)
        places = np.cumsum([0, *(text.size for text, _ in parts)]).tolist()
        text = np.concatenate([*(text for text, _ in parts), _SLACK])
        bounds = np.concatenate([own + at for (_, own), at in zip(parts, places, strict=False)])
        return np.array(kinds), fixed, text, bounds, *packed


def texts(values: Sequence[Any]) -> Lookup:
    """Return a column with a separate text in each row."""
    return Lookup(Labels(values), np.arange(len(values)))


def same(value: Any, rows: int) -> Lookup:
    """Return a column with the same text or number in every row."""
    return Lookup(Labels([value]), np.zeros(rows, dtype=np.int64))


def distinct(
    values: NDArray[Any],
    shown: Callable[[NDArray[Any]], Sequence[Any]],
    labels: type[Labels] = Labels,
) -> Lookup:
    """Return a column of ``shown`` applied to each value; it receives each distinct value once."""
    present, index = np.unique(values, return_inverse=True)
    return Lookup(labels(shown(present)), index)


def _numbers(column: Column) -> NDArray[Any]:
    return column.at if isinstance(column, Lookup) else column


def _part(column: Column, first: int, stop: int) -> Column:
    if isinstance(column, Lookup):
        return Lookup(column.labels, column.at[first:stop])
    return column[first:stop]


@njit(cache=True, nogil=True)
def _format(cells, row, rows, kinds, fixed, text, bounds, packed, packed_bounds, out):
    """Write rows from ``row`` on while they fit.

    cells: int64[columns, 2], the address of each column's first number, int64, and the stride in
    bytes. Labels are in text: first the prefix of each column, then the end of a row, then null.
    kinds: where each column's labels begin, or _NUMBERS or _PACKED. fixed: the most bytes that a
    row takes without its labels. Returns the next row, the bytes in ``out``, and the bytes that row
    needs.
    """
    at = np.int64(0)
    columns = kinds.size
    null = columns + 1
    for i in range(row, rows):
        need = fixed + SLACK
        for column in range(columns):
            kind = kinds[column]
            cell = integer_at(cells[column, 0] + i * cells[column, 1])
            if kind != _NUMBERS and cell >= 0:
                if kind == _PACKED:
                    need += packed_bounds[cell, 1] - packed_bounds[cell, 0]
                else:
                    need += bounds[kind + cell, 1] - bounds[kind + cell, 0]
        if at + need > out.size:
            return i, at, need
        for column in range(columns):
            at = _copy(text, bounds[column, 0], bounds[column, 1], out, at)
            kind = kinds[column]
            cell = integer_at(cells[column, 0] + i * cells[column, 1])
            if kind == _NUMBERS and cell != NULL:
                at = _write_number(cell, out, at)
            elif kind == _PACKED and cell >= 0:
                first, stop = packed_bounds[cell, 0], packed_bounds[cell, 1]
                if packed.size - stop >= SLACK:
                    at = _copy(packed, first, stop, out, at)
                else:
                    for place in range(first, stop):
                        out[at] = packed[place]
                        at += 1
            else:
                label = kind + cell if cell >= 0 else null
                at = _copy(text, bounds[label, 0], bounds[label, 1], out, at)
        at = _copy(text, bounds[columns, 0], bounds[columns, 1], out, at)
    return rows, at, 0


@njit(cache=True, nogil=True, forceinline=True)
def _copy(text, first, stop, out, at):
    copy_line(text, first, out, at)
    for i in range(64, stop - first, 64):
        copy_line(text, first + i, out, at + i)
    return at + stop - first


@njit(cache=True, nogil=True, forceinline=True)
def _write_number(value, out, at):
    if value < 0:
        out[at] = 45  # a minus sign
        at += 1
    rest = np.uint64(abs(value))
    thousand = np.uint64(1000)
    scale = np.uint64(1)
    first = rest
    if rest >= thousand:
        scale = thousand
        first = rest // thousand
        while first >= thousand:
            scale *= thousand
            first = rest // scale
    three = _THREE[first]
    digits = np.int64(three >> np.uint64(24))
    put_word(out, at, three >> np.uint64(24 - 8 * digits))
    at += digits
    while scale > np.uint64(1):
        rest -= first * scale
        scale //= thousand
        first = rest if scale == np.uint64(1) else rest // scale
        put_word(out, at, _THREE[first])
        at += 3
    return at


@njit(cache=True, nogil=True)
def _quoted(text, bounds):
    """Return the texts as JSON strings."""
    size = 0
    for i in range(len(bounds)):
        for at in range(bounds[i, 0], bounds[i, 1]):
            size += 2 if text[at] == _QUOTE or text[at] == _BACKSLASH else 1
    out = np.empty(size + 2 * len(bounds), dtype=np.uint8)
    places = np.empty_like(bounds)
    to = 0
    for i in range(len(bounds)):
        places[i, 0] = to
        out[to] = _QUOTE
        to += 1
        for at in range(bounds[i, 0], bounds[i, 1]):
            if text[at] == _QUOTE or text[at] == _BACKSLASH:
                out[to] = _BACKSLASH
                to += 1
            out[to] = text[at]
            to += 1
        out[to] = _QUOTE
        to += 1
        places[i, 1] = to
    return out, places


class Rows(WithCommit):
    """Writes tables one after another; in a ``with`` statement, output is complete or absent."""

    def write(self, table: Table) -> None:
        """Write the rows of a table."""
        raise NotImplementedError

    def formatted(self, tables: Iterable[Table]) -> Iterator[memoryview]:
        """Yield the rows of tables in portions for ``put``; thread-safe."""
        raise NotImplementedError

    def put(self, data: bytes | memoryview) -> None:
        """Write formatted rows."""
        raise NotImplementedError
