"""Rows for users: tab-separated or one JSON object a line, written in bulk by polars."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamer.dictionary.targets import TargetSets
from streamer.errors import StreamerError
from streamer.matching.reports import Columns
from streamer.output_file import OutputFile
from trie.codes import decode_kmers
from trie.cpu import memory_limit

Format = Literal["tsv", "jsonl"]

TABLE_BYTES = 48 << 20
"""What polars may need beside a table and its text; it aborts the process where it gets less."""

STRAND_NAMES = pl.Series(["+", "-"])
EVENT_NAMES = pl.Series(["none", "match", "mismatch"])


class RowWriter:
    """Writes tables with the given columns, one after another, to a file or standard output.

    path: None or ``-`` is standard output; a file appears once all rows are in it
    (``OutputFile``). TSV: one header line, ``#`` directly before its first name; ``.`` is null.
    keep: the rows before an error or an interrupt are the result, since nobody can ask for them
    again; else they go to standard output only, and a file stays as it was.
    """

    def __init__(
        self, path: str | None, format_: Format, columns: Sequence[str], *, keep: bool = False
    ) -> None:
        self._format = format_
        self._keep = keep
        self._file = OutputFile(path, verb="cannot write rows", live=keep)
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
        try:
            self._file.write(data)
        except StreamerError:
            self._keep = False
            self._file.discard()
            raise

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._keep:
            self._file.commit()
        else:
            self._file.discard()


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
