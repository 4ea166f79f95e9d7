"""Rows for users: TSV or one JSON object a line, or Arrow and Parquet (``arrow_rows``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamer.errors import StreamerError
from streamer.output.formats import RowsFormat
from streamer.output.output_file import OutputFile
from streamer.output.text_table import Format, Table
from trie.new_file import WithCommit


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


def open_rows(path: str | None, format_: RowsFormat, columns: Sequence[str]) -> Rows:
    """Open a writer of rows in a format."""
    if format_ in ("tsv", "jsonl"):
        return RowWriter(path, format_, columns)
    # importing pyarrow takes a tenth of a second: only when it is used
    from streamer.output.arrow_rows import ArrowWriter

    return ArrowWriter(path, columns, parquet=format_ == "parquet")


class RowWriter(Rows):
    """Writes tables with the given columns, one after another, to a file or standard output.

    path: None or ``-`` is standard output; a file appears once all rows are in it (``OutputFile``).
    TSV: one header line that begins with ``#``, directly followed by the first name; ``.`` is null.
    keep: rows before an error or an interrupt are a result, because they cannot be reproduced;
    otherwise they go to standard output only, and a file stays as it was.
    """

    def __init__(
        self, path: str | None, format_: Format, columns: Sequence[str], *, keep: bool = False
    ) -> None:
        self._format = format_
        self._keep = keep
        self._file = OutputFile(path, verb="cannot write rows", live=keep)
        if format_ == "tsv":
            self.put(("#" + "\t".join(columns) + "\n").encode())

    def write(self, table: Table) -> None:
        """Write the rows of a table."""
        for lines in self.formatted([table]):
            self.put(lines)

    def formatted(self, tables: Iterable[Table]) -> Iterator[memoryview]:
        """Yield the rows of tables in portions for ``put``; thread-safe."""
        for table in tables:
            yield from table.formatted(self._format)

    def put(self, data: bytes | memoryview) -> None:
        """Write formatted rows."""
        try:
            self._file.write(data)
        except StreamerError:
            self._keep = False
            self._file.discard()
            raise

    def commit(self) -> None:
        """Finish the file and put it in its place."""
        self._file.commit()

    def discard(self) -> None:
        """Keep the rows if they are a result; else leave the place as it was."""
        if self._keep:
            self._file.commit()
        else:
            self._file.discard()
