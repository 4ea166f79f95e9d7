"""``streamer.Matcher``: exact matching from Python, reads in and structured arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import choose_device
from streamer.dictionary.targets import Dictionary
from streamer.errors import DataError, UsageError, check_choice
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import REPORTS, Assignment, Columns, intervals, reads, windows
from streamer.matching.result import BatchResult
from streamer.matching.spec import DEVICES, MODES, Device, Mode
from streamer.matching.target_counts import TargetCounts
from streamer.output.output_file import check_arrow
from streamer.sequences.files import BATCH_BASES
from streamer.sequences.read_batch import BadReadError, ReadBatch, bad_name
from trie.codes import as_letters, check_distance, decode_kmers
from trie.strands import SIGNS
from trie.windows import NO_SET

Reads = Iterable[tuple[str, bytes | str | NDArray[np.uint8]]]

_EVENTS = np.array(["none", "match", "mismatch"])
_RATIO_DIGITS = 4


class Matcher:
    """Matches reads against a dictionary, as ``streamer match`` does.

    mode: ``frozen``, or ``grow``, which adds every mismatched k-mer immediately. seed_bases: the
    windows inside the first ``seed_bases`` bases are added first. max_kmers: stop adding at this
    number of k-mers; 0 means no limit. device: ``auto``, ``cpu`` or ``cuda``. threads: CPU threads,
    None for all. UsageError for an unknown mode or device.

    A matcher that adds k-mers treats successive calls of ``match`` as one stream.

    >>> from streamer import Dictionary, Matcher
    >>> dictionary = Dictionary.from_files(["lambda.fa.gz"], 21)
    >>> matcher = Matcher(dictionary, mode="grow")
    >>> first = matcher.match([("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT" + "C" * 30)])
    >>> again = matcher.match([("read2", b"CGCTATTTAT" + b"C" * 30)])
    >>> first.reads()["mismatches"], again.reads()["mismatches"]
    (array([21]), array([0]))
    >>> matcher.close()  # or use it in a with statement
    """

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        mode: Mode = "frozen",
        seed_bases: int = 0,
        max_kmers: int = 0,
        device: Device = "auto",
        threads: int | None = None,
    ) -> None:
        check_choice("mode", mode, MODES)
        check_choice("device", device, DEVICES)
        self.dictionary = dictionary
        self._options: dict[str, Any] = {
            "mode": mode,
            "seed_bases": seed_bases,
            "max_kmers": max_kmers,
            "device": choose_device(device, option="device"),
            "threads": threads or 0,
        }
        self._changes = mode == "grow" or seed_bases > 0
        # a changing dictionary must be counted as it is matched; a fixed one can be matched again
        self._matcher = self._new(counted=self._changes)

    def match(self, reads: Reads) -> Matches:
        """Match (name, letters) pairs; DataError names the first read with an invalid letter."""
        depths = self._changes and not self._matcher.depths_refused
        matched = [
            result
            for batch in _batches(reads)
            for result in self._matcher.match([batch], depths=depths)
        ]
        return Matches(matched, self)

    def near(
        self,
        reads: Reads,
        distance: int,
        *,
        report: Literal["all", "best"] = "all",
        strands: Literal["forward", "both"] = "both",
    ) -> NDArray[np.void]:
        """Find k-mers within 0 to 4 edits in (name, letters) pairs, as ``match --distance`` does.

        Return a row per end of a read, or with ``best`` per cluster of ends. Columns: read (index
        of the pair), start, end, distance, strand (``+`` or ``-``), kmer, target (index into
        ``dictionary.targets``). The dictionary must have its k-mers as they stand in the records,
        and does not grow here; UsageError otherwise. ValueError for a distance out of range.

        >>> from streamer import Dictionary, Matcher
        >>> barcodes = Dictionary.from_files(["ont_native_barcodes_24.fa.gz"], 24, as_stored=True)
        >>> read = ("read1", "GGTG" + "CACAAAGACACCGCAACTTTCTT" + "CAGCACCT")
        >>> row = Matcher(barcodes).near([read], 2, report="best")[0]
        >>> barcodes.targets.label(row["target"]), row["distance"].item(), row["strand"].item()
        ('NB01', 1, '+')
        """
        check_choice("report", report, ("all", "best"))
        if self.dictionary.strands != "forward":
            raise UsageError("matches within a distance need a dictionary made with as_stored=True")
        k = self.dictionary.k
        check_distance(distance, k)
        matcher = StreamMatcher.of(
            self.dictionary, exact=False, distance=distance, strands=strands, on_fallback=None,
            device=self._options["device"], threads=self._options["threads"],
        )  # fmt: skip
        parts, before = [], 0
        with closing(matcher):
            for batch in _batches(reads):
                (result,) = matcher.match([batch])
                (columns,) = REPORTS[report].rows(result, matcher.stored.targets)
                parts.append(columns | {"read": columns["read"] + before})
                before += len(batch)
        rows = _joined(parts)
        rows["strand"] = np.array(SIGNS)[rows["strand"]]
        rows["kmer"] = np.array(decode_kmers(rows["kmer"], k), dtype=f"U{k}")
        return _structured(rows)

    def _new(self, *, counted: bool) -> StreamMatcher:
        return StreamMatcher.of(self.dictionary, counted=counted, **self._options)

    def _counter(self) -> tuple[StreamMatcher, Callable[[BatchResult], BatchResult]]:
        """Return a matcher that can count by target, and a function that makes its results."""
        if self._changes:
            return self._matcher, lambda result: result
        matcher = self._new(counted=True)
        return matcher, lambda result: matcher.match([result.batch])[0]

    def _with_depths(self, result: BatchResult) -> BatchResult:
        if self._changes:
            return result
        return self._matcher.match([result.batch], depths=True)[0]

    def close(self) -> None:
        """Stop the background work of a matcher that adds k-mers."""
        self._matcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Matches:
    """The matches in reads, as structured arrays with the columns of ``match``'s reports.

    names: read names; the field ``read`` indexes them. targets: the dictionary's targets;
    ``best_target``, and ``target`` in ``targets()``, index them. An index of -1 means none.

    >>> from streamer import Dictionary, Matcher
    >>> dictionary = Dictionary.from_files(["lambda.fa.gz"], 21)
    >>> read = ("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT" + "C" * 30)
    >>> found = Matcher(dictionary).match([read])
    >>> for row in found.intervals():
    ...     print(found.names[row["read"]], row["start"], row["end"], row["event"])
    read1 0 32 match
    read1 12 62 mismatch
    >>> found.reads()["matches"]
    array([12])
    >>> found.windows()["depth"][11:15]
    array([21, 12, 20, 19], dtype=uint8)
    >>> found.labels()[0]
    'gi|9626243|ref|NC_001416.1|'
    >>> row = found.targets(min_windows=5)[0]
    >>> found.target_names[row["target"]], row["reads"].item(), row["breadth"].item()
    ('gi|9626243|ref|NC_001416.1|', 1, 0.0002)
    """

    def __init__(self, results: list[BatchResult], matcher: Matcher) -> None:
        self.names = [name for result in results for name in result.batch.names]
        self._results = results
        self._matcher = matcher
        self._sets = matcher.dictionary.targets
        self.target_names = list(self._sets.names)

    def labels(self) -> list[str]:
        """Return each target set's names, joined by ``;``; a window's ``target`` indexes them."""
        return [self._sets.label(index) or "" for index in range(len(self._sets))]

    def windows(self) -> NDArray[np.void]:
        """Return a row per window without a gap code.

        Columns: read, start, event, depth, target (index into ``labels``).
        """
        return self._joined(lambda result: windows(self._matcher._with_depths(result)))

    def intervals(self) -> NDArray[np.void]:
        """Return a row per maximal run of windows with one event and target set.

        Columns: read, start, end, event, windows, target (index into ``labels``).
        """
        return self._joined(intervals)

    def reads(self) -> NDArray[np.void]:
        """Return a row per read.

        Columns: read, length, windows, matches, mismatches, skipped, best_target.
        """
        return self._joined(lambda result: reads(result, self._sets))

    def targets(self, *, min_windows: int = 1, min_fraction: float = 0.0) -> NDArray[np.void]:
        """Return a row per target in file order, then one (-1) for the unassigned reads.

        Columns: target, reads, bases, matches, kmers, seen, breadth, depth; the last two are NaN
        where there are no k-mers.
        """
        matcher, counted = self._matcher._counter()
        counts = TargetCounts(matcher, Assignment(min_windows, min_fraction))
        for result in self._results:
            counts.add(counted(result))
        columns = counts.columns()
        kmers = np.where(columns["kmers"] > 0, columns["kmers"], np.nan)
        for name, part in (("breadth", "seen"), ("depth", "matches")):
            columns[name] = np.round(columns[part] / kmers, _RATIO_DIGITS)
        return _structured(columns)

    def to_arrow(
        self,
        report: Literal["windows", "intervals", "reads", "targets"] = "intervals",
        *,
        min_windows: int = 1,
        min_fraction: float = 0.0,
    ) -> Any:
        """Return a ``pyarrow.Table`` with the rows of ``match --report``, for data frames.

        It has names in the place of indices, and lists where a window has several targets.
        min_windows, min_fraction: for ``targets``. UsageError without pyarrow.

        >>> from streamer import Dictionary, Matcher
        >>> dictionary = Dictionary.from_files(["lambda.fa.gz"], 21)
        >>> read = ("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT" + "C" * 30)
        >>> found = Matcher(dictionary).match([read]).to_arrow()
        >>> found.column_names
        ['read', 'start', 'end', 'event', 'windows', 'target']
        >>> found.to_pylist()[0]["target"]
        ['gi|9626243|ref|NC_001416.1|']
        """
        check_choice("report", report, ("windows", "intervals", "reads", "targets"))
        check_arrow()
        from streamer.matching.running_report import Answer, RowAnswer, TargetAnswer
        from streamer.output.arrow_rows import arrow_table

        answer: Answer
        counted: Callable[[BatchResult], BatchResult]
        if report == "targets":
            counting, counted = self._matcher._counter()
            answer = TargetAnswer(counting, Assignment(min_windows, min_fraction), None)
        else:
            answer = RowAnswer(REPORTS[report], self._sets, self._matcher.dictionary.k)
            counted = self._matcher._with_depths if answer.depths else lambda result: result
        tables = [table for each in self._results for table in answer.after(counted(each))]
        return arrow_table(answer.columns, [*tables, *answer.last()])

    def _joined(self, rows: Callable[[BatchResult], Columns]) -> NDArray[np.void]:
        """Join the rows of all results; ``read`` continues from one result to the next."""
        parts: list[Columns] = []
        before = 0
        for result in self._results:
            columns = rows(result)
            columns["read"] = columns["read"] + before
            before += len(result.batch)
            parts.append(columns)
        joined = _joined(parts)
        if "event" in joined:
            joined["event"] = _EVENTS[joined["event"]]
        return _structured(joined)


def _joined(parts: list[Columns]) -> Columns:
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if "target" in joined:
        target = joined["target"]
        joined["target"] = np.where(target == NO_SET, -1, target.astype(np.int64))
    return joined


def _structured(columns: Columns) -> NDArray[np.void]:
    rows = np.empty(
        next(iter(columns.values())).size, [(name, each.dtype) for name, each in columns.items()]
    )
    for name, each in columns.items():
        rows[name] = each
    return rows


def _batches(reads: Reads) -> Iterator[ReadBatch]:
    """Yield the reads in batches of a bounded size; at least one, which may be empty."""
    names: list[str] = []
    letters: list[NDArray[np.uint8]] = []
    bases = before = 0
    for name, sequence in reads:
        names.append(name)
        letters.append(as_letters(sequence))
        bases += letters[-1].size
        if bases >= BATCH_BASES:
            yield _batch(names, letters, before)
            before += len(names)
            names, letters, bases = [], [], 0
    if names or not before:
        yield _batch(names, letters, before)


def _batch(names: list[str], letters: list[NDArray[np.uint8]], before: int) -> ReadBatch:
    offsets = np.zeros(len(names) + 1, np.int64)
    np.cumsum([each.size for each in letters], out=offsets[1:])
    if (bad := bad_name(names)) is not None:
        index, problem = bad
        raise DataError(problem, file="reads", record=before + index + 1)
    try:
        return ReadBatch.from_letters(
            names, offsets, np.concatenate([np.zeros(0, np.uint8), *letters])
        )
    except BadReadError as error:
        raise DataError(
            str(error), file="reads", record=before + error.index + 1,
            name=names[error.index], position=error.position + 1,
        ) from None  # fmt: skip
