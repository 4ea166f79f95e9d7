"""All reports given, each with the name of its source; what a file of rows is, its columns say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, TypeVar

from streamer.reporting.kept_reads import KeptReads
from streamer.reporting.reports import (
    COVERAGE,
    COVERAGE_BY,
    NOVELTY,
    READS,
    TARGET_KINDS,
    CoverageReport,
    NoveltyReport,
    ReadsReport,
    RowFile,
    TargetReport,
    read_coverage,
    read_novelty,
    read_reads,
    read_targets,
)

AnyReport = TargetReport | CoverageReport | ReadsReport | NoveltyReport

_R = TypeVar("_R", bound=AnyReport)


@dataclass(frozen=True, slots=True)
class Source:
    """An input file or folder, its kind, and the reports from it. facts: names and values."""

    name: str
    kind: str
    reports: list[AnyReport]
    facts: list[tuple[str, str]] = field(default_factory=list)
    gone: int = 0


@dataclass(frozen=True, slots=True)
class Collection:
    """The content of a page, in the order of its sources. rule: by which verdicts were made."""

    title: str
    sources: list[Source]
    rule: str | None = None

    @property
    def verdict_rule(self) -> str | None:
        """By which verdicts were made, here or when the rows were written; None: not known."""
        facts = [dict(source.facts).get("rule") for source in self.sources]
        return next(filter(None, [self.rule, *facts]), None)

    @property
    def what(self) -> Iterator[str]:
        """Yield the run and the reference, as far as the sources say."""
        pairs = dict.fromkeys(pair for source in self.sources for pair in source.facts)
        for name in ("run", "reference"):
            for words in (value.split() for key, value in pairs if key == name and value):
                rest = f" and {len(words) - 4} more" if words[4:] and name != "run" else ""
                yield f"{name.capitalize()}: {' '.join(words[:4] if rest else words)}{rest}"

    def shown(self, barcode: str) -> str:
        """The sample of a barcode, if a report of targets has a sheet."""
        sheets = [report.sheet for _, report in self.all(TargetReport) if report.sheet.samples]
        return sheets[0].shown(barcode) if sheets else barcode

    def all(self, kind: type[_R]) -> Iterator[tuple[Source, _R]]:
        """Yield the reports of a kind, each with its source."""
        for source in self.sources:
            for report in source.reports:
                if isinstance(report, kind):
                    yield source, report

    def targets(self, *, by_barcode: bool) -> list[tuple[Source, TargetReport]]:
        """Return the target reports, with barcodes or without."""
        return [(source, report) for source, report in self.all(TargetReport)
                if report.by_barcode == by_barcode]  # fmt: skip

    @property
    def alarms(self) -> Iterator[str]:
        """Yield what is wrong with the run, once each."""
        reports = (report for _, report in self.targets(by_barcode=True))
        return iter(dict.fromkeys(line for report in reports for line in report.alarms()))

    @property
    def counted(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, reads and bases of every report that counts all reads of a run."""
        for source in self.sources:
            for report in source.reports:
                if isinstance(report, TargetReport):
                    yield source.name, report.reads, report.bases
                elif isinstance(report, ReadsReport):
                    every = report.all
                    yield source.name, every.reads, every.bases
                elif isinstance(report, NoveltyReport) and report.points:
                    yield source.name, report.points[-1].reads, report.points[-1].bases

    def disagreement(self) -> str | None:
        """Return a warning if two reports count different reads."""
        counts = [*self.counted]
        for other in counts[1:]:
            if other[1:] != counts[0][1:]:
                (name, reads, bases), (name2, reads2, bases2) = counts[0], other
                return (
                    f"{name} has {reads:,} reads of {bases:,} bases, {name2} has {reads2:,} of "
                    f"{bases2:,}: these are not the same reads, or not all of them."
                )
        return None


def of_journal(name: str, kept: KeptReads) -> Source:
    """Return the reports from a journal."""
    rest = (kept.coverage, kept.reads, kept.novelty)
    reports = [*kept.targets, *(report for report in rest if report is not None)]
    return Source(name, "journal", reports, kept.facts, kept.gone)


_READERS: dict[str, Callable[[RowFile], AnyReport]] = {
    "targets": read_targets,
    "coverage": read_coverage,
    "reads": read_reads,
    "novelty": read_novelty,
}
_KINDS = (*TARGET_KINDS, COVERAGE, COVERAGE_BY, READS, NOVELTY)


class ReadRows(NamedTuple):
    """The report, its name in ``match --report``, the text's lines and bytes, and what made it."""

    report: AnyReport
    kind: str
    lines: int
    bytes: int
    facts: dict[str, str]


def read_report(
    file: BinaryIO, name: str, on_bytes: Callable[[int], None] = lambda _: None
) -> ReadRows:
    """Read all of a file; ``RowError`` names the file as ``name``. on_bytes: as in ``RowFile``."""
    rows = RowFile(file, name, _KINDS, on_bytes)
    report = _READERS[rows.kind.name](rows)
    return ReadRows(report, rows.kind.name, rows.line, rows.bytes, rows.facts)
