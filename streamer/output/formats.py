"""The format of rows: as asked for, or by the name of the file."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from streamer.errors import UsageError
from streamer.output.output_file import suffix_of

LineFormat = Literal["tsv", "jsonl"]
RowsFormat = Literal["tsv", "jsonl", "arrow", "parquet"]

_FORMATS: dict[str, RowsFormat] = {
    "": "tsv", ".tsv": "tsv", ".txt": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".arrow": "arrow", ".parquet": "parquet",
}  # fmt: skip
"""The format of a file by its suffix, before that of a compression."""


def rows_format(given: RowsFormat | None, path: str | None) -> RowsFormat:
    """Return the format ``given``, or that of the suffix of a name.

    Raises UsageError for an unknown suffix, and if a package for the format is missing.
    """
    format_ = given or _FORMATS.get(suffix_of(path))
    if format_ is None:
        known = ", ".join(filter(None, _FORMATS))
        raise UsageError(
            f"{path}: {suffix_of(path)} is none of {known}: rename it or give --format"
        )
    if format_ in ("arrow", "parquet"):
        check_arrow()
    return format_


def line_format(format_: RowsFormat, what: str) -> LineFormat:
    """Return a format of lines; UsageError for another one. what: needs lines."""
    if format_ in ("tsv", "jsonl"):
        return format_
    raise UsageError(f"{what}: its rows are lines, --format tsv or jsonl")


def check_arrow() -> None:
    """Raise UsageError if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise UsageError("Arrow and Parquet need pyarrow: pip install 'kmer-streamer[arrow]'")
