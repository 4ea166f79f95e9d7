"""The plugin: the interface that readfish requires of an aligner (its ``plugins/abc.py``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from readfish._loggers import setup_logger
from readfish.plugins.abc import AlignerABC

from streamer.dictionary.target_sets import check_kmers, first_names, unknown_names
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.matching.result import BatchResult
from streamer.matching.target_counts import numbers_of
from streamer.sequences.read_batch import ReadBatch, offsets_of
from trie.codes import INVALID, LETTER_TO_CODE
from trie.cpu.threads import usable_cores
from trie.index.reference_text import codes_at_places
from trie.windows import NO_SET, codes_at

if TYPE_CHECKING:
    from readfish._config import Barcode, Region, _Condition
    from readfish.plugins.utils import Result

_EVERY = 16
_AS_LETTERS = (
    np.where(LETTER_TO_CODE == INVALID, ord("N"), np.arange(256)).astype(np.uint8).tobytes()
)


class Hit(NamedTuple):
    """A read lies somewhere on this contig: the alignment fields that readfish uses.

    strand: 1 or -1. r_st, r_en: the whole contig. mlen: windows that match it. blen: windows of the
    read without an ambiguity code.
    """

    ctg: str
    strand: int
    r_st: int
    r_en: int
    mlen: int
    blen: int


class HitFinder:
    """Finds the target and strand of reads with a fixed dictionary; not thread-safe."""

    def __init__(self, dictionary: Dictionary, rule: Assignment, threads: int) -> None:
        self._rule = rule
        self._matcher = StreamMatcher.of(dictionary, counted=True, device="cpu", threads=threads)
        self._names = dictionary.targets.names
        assert dictionary.lengths is not None
        self._lengths = dictionary.lengths.tolist()
        self._index = dictionary.index

    def find(self, sequences: Sequence[str]) -> Iterator[Hit | None]:
        """Yield the hit of each read, None for an unassigned read.

        Bytes that are not IUPAC letters count as N.
        """
        letters = "".join(sequences).encode("latin-1", "replace").translate(_AS_LETTERS)
        names = [""] * len(sequences)
        batch = ReadBatch.from_letters(names, offsets_of(sequences), letters)
        (result,) = self._matcher.match([batch])
        assigned = self._rule.assign(result, self._matcher.dictionary.targets)
        strands = self._strands(result, assigned.target)
        for target, strand, matches, windows in zip(
            assigned.target.tolist(), strands.tolist(), assigned.matches.tolist(),
            assigned.windows.tolist(), strict=True,
        ):  # fmt: skip
            if target < 0:
                yield None
            else:
                length = self._lengths[target]
                yield Hit(self._names[target], strand, 0, length, matches, windows)

    def _strands(self, result: BatchResult, target: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return int64[reads]: 1 or -1, the strand of most of the windows examined.

        A window counts at its k-mer's first place. If no such place lies in the read's own target,
        places in other targets decide.
        """
        numbers = numbers_of(result, self._index)
        starts = np.flatnonzero(numbers != NO_SET)
        # adjacent windows agree, so sample the first of each run and some that follow
        starts = starts[(starts % _EVERY == 0) | (np.diff(starts, prepend=-2) != 1)]
        places = numbers[starts].astype(np.int64)
        here = codes_at(result.batch.bases, starts, result.k)
        there = codes_at_places(self._index.reference.packed, places, result.k)
        votes = np.where(here == there, 1, -1)
        read = np.searchsorted(result.batch.offsets, starts, side="right") - 1
        record = np.searchsorted(self._index.starts, places, side="right") - 1
        own = record == target[read]
        reads = len(result.batch)
        of_own = np.bincount(read[own], votes[own], reads)
        of_all = np.bincount(read, votes, reads)
        return np.where(np.where(of_own != 0, of_own, of_all) < 0, -1, 1)

    def close(self) -> None:
        """Stop the matcher's threads."""
        self._matcher.close()


_Interval = tuple[float, float]


class Aligner(AlignerABC):  # type: ignore[misc]  # readfish has no types
    """Matches exact k-mers of a fixed dictionary instead of aligning; a hit spans a whole contig.

    reference (or fn_idx_in, as in other aligners): a path to FASTA or FASTQ, possibly compressed,
    or a list of paths; each record is a contig. k: 1 to 31. min_windows, min_fraction: a read has a
    hit on its best target if at least this number of its windows match that, and at least this
    share of its windows without an ambiguity code. targets: names to check for in the reference.
    threads: 0 for all cores. debug_log: a file for one line per read.

    Raises StreamerError for an unusable reference, ValueError for other invalid values.

    >>> from types import SimpleNamespace
    >>> from streamer.readfish import Aligner
    >>> aligner = Aligner(reference="lambda.fa.gz", k=21, min_windows=5)
    >>> aligner.validate()
    >>> aligner.initialised
    True
    >>> print(aligner.describe([], {}))
    Using streamer.readfish with lambda.fa.gz: 1 contigs, 48,482 k-mers, k = 21.
    A read has a hit from 5 matching windows on, if they are at least 0.00% of its windows.
    >>> results = [SimpleNamespace(read_id="read1", seq="GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")]
    >>> (mapped,) = aligner.map_reads(results)
    >>> mapped.alignment_data[0].ctg, mapped.alignment_data[0].strand
    ('gi|9626243|ref|NC_001416.1|', 1)
    >>> aligner.disconnect()
    """

    def __init__(
        self,
        debug_log: str | None = None,
        *,
        reference: str | Sequence[str] | None = None,
        fn_idx_in: str | Sequence[str] | None = None,
        k: int = 21,
        min_windows: int = 1,
        min_fraction: float = 0.0,
        targets: Sequence[str] = (),
        threads: int = 0,
    ) -> None:
        sources = [each for each in (reference, fn_idx_in) if each is not None]
        if len(sources) != 1:
            raise ValueError("give the FASTA file of the contigs as reference, or as fn_idx_in")
        if min_windows < 1 or not 0 <= min_fraction <= 1:
            raise ValueError("min_windows is at least 1, min_fraction from 0 to 1")
        self._log = None if debug_log is None else setup_logger(__name__, log_file=debug_log)
        self._paths = [sources[0]] if isinstance(sources[0], str) else [*sources[0]]
        if isinstance(targets, str):
            raise ValueError("targets is a list of names of contigs, not a file")
        self._targets = [*targets]
        self._rule = Assignment(min_windows, min_fraction)
        # why targets of the TOML file are refused; readfish shows them to ``describe`` alone
        self._refused = ""
        warn = logging.getLogger(__name__).warning
        self._dictionary = Dictionary.from_files(self._paths, k, on_notice=warn)
        self.validate()
        self._finder = HitFinder(self._dictionary, self._rule, threads or usable_cores())

    def validate(self) -> None:
        """Raise StreamerError if contig names repeat, or for a target that cannot be matched.

        That is one that is not in the reference, without a k-mer, or an interval of a contig.
        """
        names = self._dictionary.targets.names
        if self._dictionary.lengths is None:
            raise StreamerError(
                "saved dictionaries have no contigs: name the FASTA files as the reference"
            )
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise StreamerError(f"{self._shown}: two records are called {twice}")
        if self._refused:
            raise StreamerError(self._refused)
        self._check(dict.fromkeys(self._targets, ()), "targets of the plugin")

    @property
    def initialised(self) -> bool:
        """Whether no target is refused; the reference is read when the plugin is loaded."""
        return not self._refused

    def describe(self, regions: Sequence[Region], barcodes: Mapping[str, Barcode]) -> str:
        """Describe the reference, and the targets of each condition in it.

        Raises SystemExit, as readfish's own aligners do, for a target that cannot be matched.
        """
        dictionary, rule = self._dictionary, self._rule
        lines = [
            f"Using streamer.readfish with {self._shown}: {len(dictionary.targets.names):,} "
            f"contigs, {dictionary.kmers:,} k-mers, k = {dictionary.k}.",
            f"A read has a hit from {rule.min_windows:,} matching windows on, if they are at least "
            f"{rule.min_fraction:.2%} of its windows.",
        ]
        for kind, conditions in (("region", regions), ("barcode", barcodes.values())):
            for condition in conditions:
                targets = _targets(condition)
                try:
                    if condition.targets.value and not targets:
                        raise StreamerError(
                            f"targets of {kind} {condition.name}: "
                            f"{condition.targets.value} names none"
                        )
                    self._check(targets, f"targets of {kind} {condition.name}")
                except StreamerError as error:
                    self._refused = str(error)
                    raise SystemExit(self._refused) from None
                lines.append(
                    f"{kind.capitalize()} {condition.name}: {len(targets):,} target contigs."
                )
        return "\n".join(lines)

    def map_reads(self, basecall_results: Iterable[Result]) -> Iterator[Result]:
        """Yield each result with ``alignment_data`` set: one hit, or none."""
        results = [*basecall_results]
        hits = self._finder.find([result.seq or "" for result in results])
        for result, hit in zip(results, hits, strict=True):
            result.alignment_data = [] if hit is None else [hit]
            if self._log is not None:
                self._log.debug("%s\t%d\t%s", result.read_id, len(result.seq or ""), hit or "*")
            yield result

    def disconnect(self) -> None:
        """Stop the threads."""
        self._finder.close()

    @property
    def _shown(self) -> str:
        return ", ".join(self._paths)

    def _check(self, targets: Mapping[str, Iterable[_Interval]], whose: str) -> None:
        """Raise StreamerError for contigs that are unknown or without k-mers, and for intervals."""
        known, sizes = self._dictionary.targets, self._dictionary.lengths
        assert sizes is not None
        lengths = dict(zip(known.names, sizes.tolist(), strict=True))
        parts = [
            f"{name},{start:.0f},{end:.0f}"
            for name, intervals in targets.items()
            for start, end in intervals
            if start > 0 or end < lengths.get(name, 0)
        ]
        parts += [name for name in targets if name not in lengths and "," in name]
        if parts:
            raise StreamerError(
                f"{whose}: a hit covers a whole contig, so intervals cannot be matched: "
                f"{first_names(parts)}; cut them out as records (streamer regions), and name these"
            )
        if missing := unknown_names(sorted(targets), known):
            raise StreamerError(f"{whose}: not in {self._shown}: {missing}")
        check_kmers(targets, known, self._dictionary.k, whose)


def _targets(condition: _Condition) -> dict[str, list[_Interval]]:
    """Return the intervals that a condition of the TOML file names as targets, by contig."""
    targets: dict[str, list[_Interval]] = {}
    for by_contig in condition.targets._targets.values():
        for contig, intervals in by_contig.items():
            targets.setdefault(contig, []).extend(intervals)
    return targets
