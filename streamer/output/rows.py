"""Rows for users: TSV or one JSON object a line, formatted in bulk by polars."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Sequence
from typing import Literal

import polars as pl

from streamer.errors import StreamerError
from streamer.output.output_file import OutputFile
from trie.cpu import memory_limit

Format = Literal["tsv", "jsonl"]

TABLE_BYTES = 48 << 20
"""What polars may need beside a table and its text; it aborts the process if it gets less."""


def _take_interrupts_back() -> None:
    """Restore Python's SIGINT handler.

    polars replaces it when it is imported, and loses a signal that comes as one of its computations
    ends.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


_take_interrupts_back()


class RowWriter:
    """Writes tables with the given columns, one after another, to a file or standard output.

    path: None or ``-`` is standard output; a file appears once all rows are in it
    (``OutputFile``). TSV: one header line, ``#`` directly before its first name; ``.`` is null.
    keep: the rows before an error or an interrupt are a result, since they cannot be had again;
    else they go to standard output only, and a file stays as it was.
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
