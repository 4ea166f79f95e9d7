"""Read an open file of rows as the report that its columns identify."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from streamer.reporting.collection import AnyReport
from streamer.reporting.coverage_report import COVERAGE, read_coverage
from streamer.reporting.novelty_report import NOVELTY, read_novelty
from streamer.reporting.read_report import READS, read_reads
from streamer.reporting.row_files import RowFile
from streamer.reporting.target_report import TARGETS, TARGETS_BY_BARCODE, read_targets

_READERS: dict[str, Callable[[RowFile], AnyReport]] = {
    "targets": read_targets,
    "coverage": read_coverage,
    "reads": read_reads,
    "novelty": read_novelty,
}
_KINDS = (TARGETS, TARGETS_BY_BARCODE, COVERAGE, READS, NOVELTY)


class ReadRows(NamedTuple):
    """The report, its name in ``match --report``, and the text's lines and bytes."""

    report: AnyReport
    kind: str
    lines: int
    bytes: int


def read_report(
    file: BinaryIO, name: str, on_bytes: Callable[[int], None] = lambda _: None
) -> ReadRows:
    """Read all of a file; ``RowError`` names the file as ``name``. on_bytes: as in ``RowFile``."""
    rows = RowFile(file, name, _KINDS, on_bytes)
    report = _READERS[rows.kind.name](rows)
    return ReadRows(report, rows.kind.name, rows.line, rows.bytes)
