"""Rows for users: TSV or one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamer.errors import StreamerError
from streamer.output.output_file import OutputFile
from streamer.output.text_table import Format, Table


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
            self.put(("#" + "\t".join(columns) + "\n").encode())

    def write(self, table: Table) -> None:
        """Write the rows of a table."""
        for lines in self.formatted([table]):
            self.put(lines)

    def formatted(self, tables: Iterable[Table]) -> Iterator[memoryview]:
        """The rows of tables as ``put`` takes them, some at a time; of any thread."""
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

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._keep:
            self._file.commit()
        else:
            self._file.discard()
