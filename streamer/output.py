"""Rows for users: tab-separated or one JSON object a line, written in bulk by polars."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, BinaryIO, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.reports import Columns
from streamer.targets import TargetSets
from trie import memory_limit
from trie.codes import decode_kmers

Format = Literal["tsv", "jsonl"]

TABLE_BYTES = 48 << 20
"""What polars may need beside a table and its text; it aborts the process where it gets less."""

STRAND_NAMES = pl.Series(["+", "-"])
EVENT_NAMES = pl.Series(["none", "match", "mismatch"])


class RowWriter:
    """Writes tables with the given columns, one after another, to a file or standard output.

    path: None or ``-`` is standard output. TSV: one header line, ``#`` directly before its first
    name; ``.`` is null.
    """

    def __init__(self, path: str | None, format_: Format, columns: Sequence[str]) -> None:
        self._format = format_
        self._owned = path not in (None, "-")
        self._name = str(path) if self._owned else "standard output"
        self._file: BinaryIO = open(self._name, "wb") if self._owned else sys.stdout.buffer
        if format_ == "tsv":
            self._put(("#" + "\t".join(columns) + "\n").encode())

    def write(self, table: pl.DataFrame) -> None:
        """Write the rows of a table."""
        memory_limit.require(TABLE_BYTES + 2 * int(table.estimated_size()), "writing rows")
        buffer = io.BytesIO()
        if self._format == "jsonl":
            table.write_ndjson(buffer)
        else:
            table.write_csv(
                buffer, include_header=False, separator="\t", null_value=".", quote_style="never"
            )
        self._put(buffer.getbuffer())

    def _put(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        try:
            # standard output may have no buffer (python -u): then a write may take a part only
            while len(rest):
                rest = rest[self._file.write(rest) :]
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._close()
            message = f"{self._name}: cannot write rows: {error.strerror}"
            raise StreamerError(message) from error

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # the rows before an error are right and stay: the exit code tells that more lack
        self._close()

    def _close(self) -> None:
        if self._owned:
            with suppress(OSError):  # what cannot be flushed was said when it was written
                self._file.close()


class ReportTables:
    """Puts the names of reads, events and targets into a report's columns of indices.

    k: of the codes in a column ``kmer``.
    """

    def __init__(self, targets: TargetSets, k: int = 0) -> None:
        self._targets = targets
        self._k = k
        # -1, no target, picks the null at the end
        self._target_names = pl.Series([*targets.names, None], dtype=pl.String)

    def table(self, columns: Columns, names: Sequence[str]) -> pl.DataFrame:
        """The rows as users see them; ``names`` of the batch's reads."""
        return pl.DataFrame(
            {column: self._named(column, values, names) for column, values in columns.items()}
        )

    def _named(self, column: str, values: NDArray[Any], names: Sequence[str]) -> pl.Series:
        if column == "read":
            return pl.Series(names, dtype=pl.String).gather(values)
        if column == "event":
            return EVENT_NAMES.gather(values)
        if column == "target":
            present, where = np.unique(values, return_inverse=True)
            labels = [self._targets.label(int(index)) for index in present]
            return pl.Series(labels, dtype=pl.String).gather(where)
        if column == "best_target":
            return self._target_names.gather(values)
        if column == "strand":
            return STRAND_NAMES.gather(values)
        if column == "kmer":
            return _distinct(values, lambda codes: decode_kmers(codes, self._k))
        if column in ("distances", "depths"):
            return bit_lists(values)
        return pl.Series(values)


def bit_lists(bitmaps: NDArray[Any]) -> pl.Series:
    """The set bits of each, ascending, joined by commas; null if there is none."""
    return _distinct(bitmaps, lambda maps: [_bits_of(int(bits)) for bits in maps])


def _distinct(values: NDArray[Any], shown: Callable[[NDArray[Any]], list[Any]]) -> pl.Series:
    """Every value as shown, each distinct one only once."""
    present, where = np.unique(values, return_inverse=True)
    return pl.Series(shown(present), dtype=pl.String).gather(where)


def _bits_of(bitmap: int) -> str | None:
    """The set bits, ascending, joined by commas; None if there is none."""
    return ",".join(str(bit) for bit in range(32) if bitmap >> bit & 1) or None
