"""Rows for users: TSV or one JSON object a line, or Arrow and Parquet (``arrow_rows``).

The columns of the rows of ``match`` are defined in ``streamer.matching.reports``.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from streamer.errors import StreamerError
from streamer.output.output_file import OutputFile, RowsFormat
from streamer.output.text_table import Format, Rows, Table


class Provenance(NamedTuple):
    """How rows are made (command, version, k, sources), and how TSV shows that and its columns."""

    facts: Mapping[str, str] = MappingProxyType({})
    comments: bool = False
    plain_header: bool = False


_UNKNOWN = Provenance()
PROVENANCE = ContextVar("PROVENANCE", default=_UNKNOWN)
"""Of the rows that the current command writes."""


def time_now() -> str:
    """Return the time, or SOURCE_DATE_EPOCH, so that what names it can be reproduced exactly."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return f"{when:%Y-%m-%d %H:%M} UTC"


def open_rows(path: str | None, format_: RowsFormat, columns: Sequence[str]) -> Rows:
    """Open a writer of rows in a format."""
    provenance = PROVENANCE.get()
    if format_ in ("tsv", "jsonl"):
        return RowWriter(path, format_, columns, provenance=provenance)
    # importing pyarrow takes a tenth of a second: only when it is used
    from streamer.output.arrow_rows import ArrowWriter

    return ArrowWriter(path, columns, parquet=format_ == "parquet", facts=provenance.facts)


class RowWriter(Rows):
    """Writes tables with the given columns, one after another, to a file or standard output.

    path: None or ``-`` is standard output; a file appears once all rows are in it (``OutputFile``).
    TSV: one header line that begins with ``#``, directly followed by the first name, or as
    ``provenance`` says; ``.`` is null.
    keep: rows before an error or an interrupt are a result, because they cannot be reproduced;
    otherwise they go to standard output only, and a file stays as it was.
    """

    def __init__(
        self, path: str | None, format_: Format, columns: Sequence[str], *, keep: bool = False,
        provenance: Provenance = _UNKNOWN,
    ) -> None:  # fmt: skip
        self._format = format_
        self._keep = keep
        self._file = OutputFile(path, verb="cannot write rows", live=keep)
        if format_ == "tsv":
            facts = provenance.facts.items() if provenance.comments else ()
            lines = [f"## {key}: {' '.join(value.split())}\n" for key, value in facts]
            lines += ["" if provenance.plain_header else "#", "\t".join(columns), "\n"]
            self.put("".join(lines).encode(errors="surrogateescape"))

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
