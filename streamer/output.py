"""Rows for users: tab-separated or one JSON object a line, written in bulk by polars."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import BinaryIO, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamer.reports import Columns
from streamer.targets import TargetSets

Format = Literal["tsv", "jsonl"]

EVENT_NAMES = pl.Series(["none", "match", "mismatch"])


class RowWriter:
    """Writes tables with the given columns, one after another, to a file or standard output.

    TSV: one header line, ``#`` directly before its first name; ``.`` is null.
    """

    def __init__(self, path: str | None, format_: Format, columns: Sequence[str]) -> None:
        self._format = format_
        self._file: BinaryIO = sys.stdout.buffer if path is None else open(path, "wb")
        self._owned = path is not None
        if format_ == "tsv":
            self._file.write(("#" + "\t".join(columns) + "\n").encode())
            self._file.flush()

    def write(self, table: pl.DataFrame) -> None:
        """Write the rows of a table."""
        buffer = io.BytesIO()
        if self._format == "jsonl":
            table.write_ndjson(buffer)
        else:
            table.write_csv(
                buffer, include_header=False, separator="\t", null_value=".", quote_style="never"
            )
        self._file.write(buffer.getbuffer())
        self._file.flush()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # the rows before an error are right and stay: the exit code tells that more lack
        self._file.flush()
        if self._owned:
            self._file.close()


def report_table(columns: Columns, names: Sequence[str], targets: TargetSets) -> pl.DataFrame:
    """A report's columns with the names of reads, events and targets instead of their indices."""
    table: dict[str, pl.Series] = {}
    for column, values in columns.items():
        if column == "read":
            table[column] = _pick(names, values)
        elif column == "event":
            table[column] = EVENT_NAMES.gather(values)
        elif column == "target":
            table[column] = _set_labels(values, targets)
        elif column == "best_target":
            table[column] = _pick([*targets.names, None], values)
        else:
            table[column] = pl.Series(values)
    return pl.DataFrame(table)


def _pick(
    names: Sequence[str | None] | Iterable[str | None], index: NDArray[np.integer]
) -> pl.Series:
    return pl.Series(list(names), dtype=pl.String).gather(pl.Series(index.astype(np.int64)))


def _set_labels(sets: NDArray[np.uint32], targets: TargetSets) -> pl.Series:
    present, where = np.unique(sets, return_inverse=True)
    return _pick([targets.label(int(index)) for index in present], where)
