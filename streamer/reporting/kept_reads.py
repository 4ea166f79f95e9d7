"""Compute the same reports from a daemon's journal, by counting its retained reads again.

The journal holds the reads, but neither the dictionary nor counts by target. So, like a starting
daemon, this matches the reads against the dictionary's files. It only reads committed records, so
the daemon may be running.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgpack
import numpy as np

from streamer.daemon.restore import Restored, fingerprint
from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalExpired
from streamer.matching.matcher import StreamMatcher, load_dictionary
from streamer.matching.reports import Assignment
from streamer.matching.reports import reads as read_rows
from streamer.matching.spec import MatchSpec, TargetBy
from streamer.matching.target_counts import CoverageByLabel, TargetCounts
from streamer.reporting import reports
from streamer.sequences.context import LabelColumn, label_order
from streamer.sequences.sample_sheet import SampleSheet

_BASES = 1 << 24  # bases of batches matched together


@dataclass(frozen=True, slots=True)
class Recount:
    """How retained reads are counted.

    sources: the dictionary's files; if empty, those named in the journal. targets: the table of
    their targets, and what is one without it; if empty, as in the journal. bins: per target. sheet:
    by which barcodes are called.
    """

    sources: tuple[str, ...] = ()
    targets: Sequence[str] = ()
    rule: Assignment = field(default_factory=Assignment)
    bins: int = 100
    threads: int = 0
    sheet: SampleSheet | None = None


@dataclass(frozen=True, slots=True)
class KeptReads:
    """The reports from a journal's reads. targets: of all reads, then by barcode if any has one.

    gone: reads that were matched but are no longer retained. facts: names and values for the page.
    """

    targets: list[reports.TargetReport]
    coverage: reports.CoverageReport | None
    reads: reports.ReadsReport
    novelty: reports.NoveltyReport | None
    gone: int
    facts: list[tuple[str, str]]


def is_journal(path: str) -> bool:
    """Return whether the path can only be the folder of a journal."""
    return Path(path).is_dir()


def count_again(
    directory: str, recount: Recount, show: Callable[[int], None] = lambda _: None
) -> KeptReads:
    """Count the retained reads of a journal; raise JournalError if it cannot be read.

    Raises StreamerError if the dictionary does not exist. show: called with the percentage done.
    """
    with closing(JournalReader(directory)) as reader:
        try:
            return _Counting(directory, reader, recount, show).result()
        except JournalExpired as expired:
            raise StreamerError(
                f"{directory}: the daemon has deleted records meanwhile: try again"
            ) from expired


class _Counting:
    def __init__(
        self, directory: str, reader: JournalReader, recount: Recount, show: Callable[[int], None]
    ) -> None:
        self._directory = directory
        self._reader = reader
        self._recount = recount
        self._show = show
        self._spec = spec_of(reader.identity, directory)
        self._known, self._curve_at = _known(reader)
        self._reads = reports.ReadsReport()

    def result(self) -> KeptReads:
        targets, coverage = self._with_dictionary()
        novelty = None
        if self._spec.changes:
            rows = zip(*(v.tolist() for v in self._known.novelty.columns().values()), strict=True)
            novelty = reports.NoveltyReport([reports.CurvePoint(*row) for row in rows])
        gone = self._known.counts["reads"] - self._reads.all.reads
        return KeptReads(targets, coverage, self._reads, novelty, max(0, gone), self._facts())

    def _with_dictionary(self) -> tuple[list[reports.TargetReport], reports.CoverageReport | None]:
        if not (self._known.sources or self._recount.sources):
            if self._known.fingerprint and not self._spec.changes:
                raise self._no_dictionary("the journal does not name the files of its dictionary")
            for batches in self._batches():
                for batch in batches:
                    self._take_stored(batch)
            return [], None
        dictionary = self._dictionary()
        spec = replace(self._spec, mode="frozen", seed_bases=0, distance=None)
        with closing(StreamMatcher(dictionary, spec)) as matcher:
            counts, covered = TargetCounts(matcher, self._recount.rule), CoverageByLabel(matcher)
            for batches in self._batches():
                results = matcher.match([batch.reads for batch in batches], in_stream=False)
                for batch, result in zip(batches, results, strict=True):
                    context = result.batch.context
                    barcodes = LabelColumn.same(None, len(result.batch))
                    if context is not None:
                        barcodes = (self._recount.sheet or SampleSheet()).barcodes(context).used()
                    counts.add(result, barcodes)
                    covered.add(result, barcodes)
                    if self._spec.changes:
                        # k-mers that were new then are known now
                        self._take_stored(batch)
                    else:
                        names = dict(enumerate(matcher.dictionary.targets.names))
                        self._reads.add(read_rows(result, matcher.dictionary.targets), names)
            return _target_reports(counts), self._coverage(covered, counts)

    def _dictionary(self) -> Dictionary:
        sources = self._recount.sources or tuple(self._known.sources)
        table, by = self._recount.targets or self._known.targets or ("", "record")
        by_file: TargetBy = "file" if by == "file" else "record"
        spec = replace(self._spec, sources=sources, targets=table, target_by=by_file)
        try:
            loaded = load_dictionary(spec)
        except (StreamerError, OSError) as error:
            raise self._no_dictionary(str(error)) from error
        if fingerprint(loaded) != self._known.fingerprint:
            names = ", ".join(sources)
            raise self._no_dictionary(f"{names}: not what the kept reads were matched against")
        return loaded

    def _no_dictionary(self, why: str) -> StreamerError:
        return StreamerError(
            f"{self._directory}: {why}: give the dictionary of the daemon with --dictionary"
        )

    def _batches(self) -> Iterator[list[StoredBatch]]:
        """Yield all retained batches, a few at a time."""
        reader, known = self._reader, self._known
        first, head = reader.oldest, reader.head
        some: list[StoredBatch] = []
        bases = 0
        for record in reader.records(first - 1, head):
            if record.kind != BATCH:
                continue
            batch = StoredBatch(record)
            if self._spec.changes and record.at > self._curve_at:
                known.novelty.add(batch.offsets, batch.new_starts)
            some.append(batch)
            bases += int(batch.offsets[-1])
            if bases >= _BASES:
                yield some
                some, bases = [], 0
                self._show(100 * (record.at - first) // (head - first + 1))
        if some:
            yield some

    def _take_stored(self, batch: StoredBatch) -> None:
        content = batch.contents["read"]
        self._reads.add(content.columns(), dict(content.fields["targets"]))

    def _coverage(self, covered: CoverageByLabel, counts: TargetCounts) -> reports.CoverageReport:
        by_barcode = any(label is not None for label in covered.counts)
        report = reports.CoverageReport(by_barcode=by_barcode)
        names, bins = counts.targets.names, self._recount.bins
        for label in sorted(covered.counts, key=label_order):
            at = 0
            for columns in covered.of(label).columns(bins):
                for first in range(0, columns["start"].size, bins):
                    part = {key: values[first : first + bins] for key, values in columns.items()}
                    name = (names[at], label or ".") if by_barcode else (names[at],)
                    report.add_columns(name, part)
                    at += 1
        return report

    def _facts(self) -> list[tuple[str, str]]:
        spec, rule = self._spec, self._recount.rule
        sources = self._recount.sources or self._known.sources
        distance = f"{spec.distance} ({spec.semantics})" if spec.distance else "exact"
        facts = [
            ("k", str(spec.k)), ("mode", spec.mode), ("strands", spec.strands),
            ("distance", distance), ("seeded bases", f"{spec.seed_bases:,}"),
            ("reference", f"{', '.join(map(_file, sources)) or 'none'}"),
            ("version of it", f"{self._known.version:,}"),
            ("records", f"{self._reader.oldest:,} to {self._reader.head:,}"),
            ("stream", self._reader.stream),
        ]  # fmt: skip
        if sources:
            facts.append(("a read is on target from", f"{rule.min_windows:,} windows"))
            facts.append(("and from", f"{rule.min_fraction:g} of its windows"))
        return facts


def spec_of(identity: str, directory: str) -> MatchSpec:
    """Return how the reads of a journal were matched; StreamerError if it does not say."""
    words = dict(word.partition("=")[::2] for word in identity.split())
    try:
        near = words["semantics"] != "exact"
        return MatchSpec.of(
            k=int(words["k"]), mode=words["mode"], strands=words["strands"],
            distance=int(words["distance"]) if near else None,
            semantics=words["semantics"] if near else None,
            seed_bases=int(words["seed_bases"]), counted=True,
        )  # fmt: skip
    except (KeyError, ValueError):
        raise StreamerError(
            f"{directory}: not the journal of a daemon: it says '{identity[:80]}'"
        ) from None


def _known(reader: JournalReader) -> tuple[Restored, int]:
    """The facts of the journal apart from its batches, and up to which record its curve goes."""
    snapshot = reader.snapshot()
    known = Restored(reader.oldest - 1)
    if snapshot is not None and reader.oldest > 1:
        # for records that are no longer retained
        known = Restored.of_snapshot(snapshot.at, msgpack.unpackb(snapshot.meta))
    after = known.at
    known.add(reader.outlines(after))
    return known, after


def _file(path: str) -> str:
    return Path(path).name


def _target_reports(counts: TargetCounts) -> list[reports.TargetReport]:
    """Return the report of all reads, then the one by barcode if any read has one."""
    made = []
    everything = {None: counts.union()}
    labels = [label for label in counts.groups if label is not None]
    by_barcode = {label: counts.columns(label) for label in counts.groups} if labels else {}
    for groups in (everything, by_barcode):
        report = reports.TargetReport(by_barcode=groups is not everything)
        report.names = list(counts.targets.names)
        for label, columns in groups.items():
            report.groups[label] = np.stack([values for name, values in columns.items()
                                             if name != "target"])  # fmt: skip
        if groups:
            made.append(report)
    return made
