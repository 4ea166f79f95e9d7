"""Read files of rows written by ``match --report``, TSV or jsonl; errors have a position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple

from streamer.errors import StreamerError

Row = list[Any]
"""One value per column: str, int or float, None for null."""


class RowError(StreamerError):
    """An error in a file of rows: file, line (from 1) and, if known, column."""

    def __init__(
        self, problem: str, *, file: str, line: int | None = None, column: str | None = None
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        place = file
        if line is not None:
            place += f": line {line}"
        if column is not None:
            place += f", column {column}"
        super().__init__(f"{place}: {problem}")


class ColumnType(NamedTuple):
    """type: a text, an integer from 0, or a decimal number from 0. null: may be ``.``."""

    name: str
    type: Literal["text", "count", "ratio"]
    null: bool = False


class RowKind(NamedTuple):
    """A report: its name in ``match --report``, and its columns."""

    name: str
    columns: tuple[ColumnType, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        return tuple(column.name for column in self.columns)


_MOST = 1 << 62
_DIGITS = 19  # of a number below it, and one more
_CUT = "the file ends within this line: it is not complete"


class RowFile:
    """The rows of an open file, whose first line identifies their kind.

    name: in messages. on_bytes: called now and then with the bytes read so far. Raises RowError for
    anything but a complete file of one of ``kinds``.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        kinds: Sequence[RowKind],
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._file = file
        self._on_bytes = on_bytes
        self.line = 1
        """The number of the last line read."""
        self.bytes = 0
        """Bytes of text read so far."""
        self._first = self._next()
        if not self._first.strip():
            problem = "the file is empty: expected a report of streamer match"
            raise self.fault(problem, None)
        self._json = self._first.lstrip().startswith(b"{")
        self.kind = self._kind(kinds)
        counts = [at for at, column in enumerate(self.kind.columns) if column.type == "count"]
        self._counts = slice(counts[0], counts[-1] + 1)
        self._every = range(len(self.kind.columns))
        self._rest = [at for at in self._every if at not in counts]

    def fault(self, problem: str, column: str | None, *, line: int | None = None) -> RowError:
        """Return an error in the last line read, or in another one."""
        return RowError(problem, file=self._name, line=line or self.line, column=column)

    def rows(self) -> Iterator[Row]:
        """Yield the values of each row, in the order of the kind's columns."""
        take = self._of_json if self._json else self._of_tsv
        if self._json:
            yield take(self._first)
        while line := self._next():
            self.line += 1
            yield take(line)

    def _next(self) -> bytes:
        try:
            line = self._file.readline()
        except (OSError, EOFError, ValueError) as error:
            problem = f"cannot be read: {str(error).lower() or 'damaged'}"
            raise RowError(problem, file=self._name) from error
        except Exception as error:  # each compression has its own exceptions
            problem = f"cannot be read: {error}"
            raise RowError(problem, file=self._name) from error
        self.bytes += len(line)
        if not self.line & 0xFFFF:
            self._on_bytes(self.bytes)
        return line

    def _kind(self, kinds: Sequence[RowKind]) -> RowKind:
        if self._json:
            found = tuple(self._object(self._first))
        else:
            if self._first.startswith(b"#") and not self._first.endswith(b"\n"):
                raise self.fault(_CUT, None)
            text = self._first.decode(errors="replace").rstrip("\r\n")
            found = tuple(text.removeprefix("#").split("\t")) if text.startswith("#") else ()
        for kind in kinds:
            if kind.header == found:
                return kind
        names = ", ".join(dict.fromkeys(kind.name for kind in kinds))
        what = f"columns {' '.join(found)[:200]} are" if found else "the first line is no header"
        end = " of no report that can be shown" if found else ""
        problem = f"{what}{end}: expected rows of --report {names}"
        raise self.fault(problem, None)

    # ---- TSV -----------------------------------------------------------------------------------

    def _of_tsv(self, line: bytes) -> Row:
        if not line.endswith(b"\n"):
            raise self.fault(_CUT, None)
        try:
            row: Row = line.decode().rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise self._not_text(line) from None
        columns = self.kind.columns
        if len(row) != len(columns):
            some = "another header" if line.startswith(b"#") else f"{len(row)} columns"
            problem = f"{some}, expected the {len(columns)} of --report {self.kind.name}"
            raise self.fault(problem, None)
        rest: Sequence[int] = self._every
        # the fast path for nearly all rows: integers converted together
        numbers = row[self._counts]
        digits = "".join(numbers)
        plain = digits.isascii() and digits.isdigit() and all(numbers)
        if plain and max(map(len, numbers)) < _DIGITS:
            row[self._counts] = map(int, numbers)
            rest = self._rest
        for at in rest:
            row[at] = self._cell(row[at], columns[at])
        return row

    def _cell(self, cell: str, column: ColumnType) -> Any:
        name, kind, null = column
        if not cell:
            problem = "it is empty"
            raise self.fault(problem, name)
        if cell == "." and null:
            return None
        if kind == "text":
            return cell
        if cell.isascii():
            if kind == "count" and cell.isdigit() and len(cell) < _DIGITS:
                return int(cell)
            if kind == "ratio" and cell.replace(".", "", 1).isdigit():
                return float(cell)
        raise self._wrong(cell, column)

    def _not_text(self, line: bytes) -> RowError:
        """Return an error for the first cell that is not valid text."""
        name = None
        for cell, column in zip(line.split(b"\t"), self.kind.columns, strict=False):
            try:
                cell.decode()
            except UnicodeDecodeError:
                name = column.name
                break
        return self.fault("it is not UTF-8 text", name)

    # ---- jsonl ---------------------------------------------------------------------------------

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            problem = "it is no JSON object"
            if not line.endswith(b"\n"):
                problem = _CUT
            raise self.fault(problem, None) from None
        if not isinstance(found, dict):
            problem = "it is no JSON object"
            raise self.fault(problem, None)
        return found

    def _of_json(self, line: bytes) -> Row:
        found = self._object(line)
        if tuple(found) != self.kind.header:
            missing = [name for name in self.kind.header if name not in found]
            what = f"'{missing[0]}' is missing" if missing else "other columns"
            problem = f"{what}, expected those of --report {self.kind.name}"
            raise self.fault(problem, None)
        for value, column in zip(found.values(), self.kind.columns, strict=True):
            if not _fits(value, column):
                raise self._wrong(json.dumps(value), column)
        return list(found.values())

    def _wrong(self, shown: str, column: ColumnType) -> RowError:
        expected = {
            "text": "a text", "count": "a whole number from 0", "ratio": "a number from 0"
        }[column.type]  # fmt: skip
        if column.null:
            expected += " or null"
        return self.fault(f"'{shown[:80]}', expected {expected}", column.name)


def _fits(value: Any, column: ColumnType) -> bool:
    if value is None:
        return column.null
    if column.type == "text":
        return isinstance(value, str) and value != ""
    if isinstance(value, bool):
        return False
    if column.type == "count":
        return isinstance(value, int) and 0 <= value < _MOST
    return isinstance(value, (int, float)) and 0 <= value < float("inf")
