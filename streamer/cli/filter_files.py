"""What ``streamer filter`` does once its options are checked: records in, records out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cli import cost_model
from streamer.cli.choices import say
from streamer.cli.profile import profiled
from streamer.cli.streams import progress
from streamer.device_choice import choose_device
from streamer.dictionary.target_sets import TargetSets
from streamer.errors import DataError, warn
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.matching.result import BatchResult
from streamer.matching.spec import MatchSpec
from streamer.matching.starting import load_dictionary
from streamer.matching.target_counts import FilterCounts, Filtered
from streamer.matching.target_kernels import chosen_reads
from streamer.output.output_file import OutputFiles
from streamer.sequences.files import (
    BATCH_READS,
    at_once,
    readers_of,
    runs_of_files,
    work_on_records,
)
from streamer.sequences.read_batch import PackedNames
from streamer.sequences.record_buffer import RecordText, TextPiece, first_apart, taken
from streamer.sequences.source import shown_name, size_of_files
from trie.cpu.compiling import compile_notice
from trie.cpu.forks import CAN_FORK
from trie.cpu.team import Done, Part, Team, results_of
from trie.cpu.threads import usable_cores

R = TypeVar("R")

_PAIRS = 1 << 13
"""Records in a batch of pairs, whose files are read by the number of records."""

_ENDLESS = 1 << 62


class Chosen(NamedTuple):
    """The bytes for each output, and what to count.

    mates: the names of two reads of one pair that follow each other, although there are no pairs.
    """

    outputs: list[NDArray[np.uint8]]
    counted: list[Filtered]
    mates: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class FilterRun:
    """The options of the command. keep: whether to write the reads on target or the others."""

    reads: list[str]
    spec: MatchSpec
    keep: bool
    rule: Assignment
    pairs: bool
    output: str | None
    output2: str | None
    summary: str | None

    def parameters(self) -> dict[str, object]:
        """The parameters in the form of the summary."""
        return {
            "reads": self.reads,
            "dictionary": list(self.spec.sources),
            "k": self.spec.k,
            "strands": self.spec.strands,
            "action": "keep" if self.keep else "deplete",
            "min_windows": self.rule.min_windows,
            "min_fraction": self.rule.min_fraction,
            "pairs": self.pairs,
        }


def filter_files(run: FilterRun, *, quiet: bool, profile: bool) -> None:
    """Write the chosen records and the summary; the files appear once everything is read."""
    notice = None if quiet else say
    work = cost_model.matching(run.reads, None)
    device = choose_device(
        run.spec.device, report=notice, cost=work, threads=run.spec.threads, gpus=1
    )
    on_fallback = say if run.spec.device == "auto" else None
    spec = replace(run.spec, device=device)
    with compile_notice(quiet=quiet):
        with Team(spec.threads or usable_cores()) as team:
            dictionary = load_dictionary(spec, on_notice=notice, team=team)
            matcher = StreamMatcher(dictionary, spec, on_fallback=on_fallback)
        counts = FilterCounts(matcher.dictionary.targets.names)
        with closing(matcher), OutputFiles() as outputs:
            names = [run.output] if run.output2 is None else [run.output, run.output2]
            files = [outputs.open(name) for name in names]
            with (
                progress("filtering", size_of_files(run.reads), quiet=quiet) as show,
                profiled(profile, run.spec.threads, run.reads) as team,
            ):
                for chosen in _chosen(run, matcher, team, show):
                    if chosen.mates is not None:
                        both = " and ".join(chosen.mates)
                        problem = "pairs in one file are torn: give R1 and R2 with --pairs"
                        warn(f"{both} follow each other: {problem}", problem)
                    with team.stages.spent("write"):
                        for filtered in chosen.counted:
                            counts.add(filtered)
                        for file, part in zip(files, chosen.outputs, strict=True):
                            file.write(part.data)
                            team.stages.count("write", part.size)
            if run.summary is not None:
                told = {"version": __version__, "parameters": run.parameters()} | counts.summary()
                outputs.open(run.summary).write(json.dumps(told, indent=2).encode() + b"\n")
    if notice is not None:
        totals = counts.totals
        notice(
            f"{totals['reads_out']:,} of {totals['reads_in']:,} reads and "
            f"{totals['bases_out']:,} of {totals['bases_in']:,} bases written"
        )


def _chosen(
    run: FilterRun,
    matcher: StreamMatcher,
    team: Team,
    on_bytes: Callable[[int], None],
) -> Iterator[Chosen]:
    """The chosen records, batch after batch."""
    inputs = _Inputs(run, team, on_bytes)
    choose = partial(_choice, run, matcher.dictionary.targets, team)
    if matcher.side_by_side:

        def work(*pieces: TextPiece) -> Chosen:
            with team.stages.spent("match"):
                return choose((pieces, [matcher.match_alone(one.reads) for one in pieces]))

        stages = {"pulls": "parse", "works": "match", "takes": "write"}
        if run.pairs:
            pairs = (partial(work, *pieces) for pieces in _pairs(run, inputs))
            return team.results(pairs, **stages)
        return inputs.checked(team.results(inputs.works(work, forks=CAN_FORK), **stages))
    batches = (
        _pairs(run, inputs)
        if run.pairs
        else inputs.checked(results_of(inputs.works(lambda piece: (piece,))))
    )
    parsed = team.line(batches, lambda pieces: pieces, 2, pulls="parse")
    matched = ((pieces, matcher.match_all([one.reads for one in pieces])) for pieces in parsed)
    return team.line(matched, choose, 2, pulls="match", works="format", takes="write")


def _choice(
    run: FilterRun,
    targets: TargetSets,
    team: Team,
    matched: tuple[tuple[TextPiece, ...], list[BatchResult]],
) -> Chosen:
    """The chosen records of a batch."""
    with team.stages.spent("format"):
        pieces, results = matched
        assigned = [run.rule.targets_of(result, targets) for result in results]
        let_out = chosen_reads(assigned[0], assigned[-1], run.keep)
        texts, counted = [], []
        for piece, each in zip(pieces, assigned, strict=True):
            assert piece.text is not None
            texts.append(piece.text)
            barcodes = None if piece.reads.context is None else piece.reads.context.barcode
            counted.append(Filtered(each, let_out, piece.reads.offsets, barcodes))
        if run.output2 is None:
            mates = None if run.pairs else _mates_among(pieces[0].reads.names)
            return Chosen([taken(texts, let_out)], counted, mates)
        return Chosen([taken([text], let_out) for text in texts], counted)


def _mates_among(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names, if they are those of mates (``first_apart``), as are the next two."""
    some = [names[at] for at in range(min(len(names), 4))]
    for one, other in zip(some[::2], some[1::2], strict=False):
        numbered = one[-1:] == "1" and other[-1:] == "2" and not one[-2:-1].isalnum()
        if one != other and not (numbered and one[:-1] == other[:-1]):
            return None
    return (some[0], some[1]) if len(some) > 1 else None


_Tagged = tuple[str, bool, R]
"""A result, with the file and whether that is FASTQ."""


class _Inputs:
    """The files, and how much of each has been read."""

    def __init__(self, run: FilterRun, team: Team, on_bytes: Callable[[int], None]) -> None:
        self._team = team
        self._paths = run.reads
        self._context = run.summary is not None
        self._on_bytes = on_bytes
        self._done = [0] * len(run.reads)
        self._format = ""

    def works(
        self, work: Callable[[TextPiece], R], *, forks: bool = False
    ) -> Iterator[Part[_Tagged[R]]]:
        """The work on the records of all files; with ``forks``, of small ones in processes."""

        def alone(path: str, team: Team, count: Callable[[int], None]) -> Iterator[_Tagged[R]]:
            return results_of(self._works(path, work, team, count, batch_reads=BATCH_READS))

        index = 0
        for run in runs_of_files(self._paths, readers_of(self._team if forks else None)):
            count = partial(self._count, index)
            if len(run) == 1:
                yield from self._works(run[0], work, self._team, count, batch_reads=BATCH_READS)
            else:
                for size, result in at_once(run, alone, self._team, forks=True):
                    count(size)
                    yield Done(result)
            index += len(run)

    def by_number(self, index: int) -> Generator[TextPiece]:
        """The records of one file, the same number at a time."""
        limits = {"batch_bases": _ENDLESS, "batch_reads": _PAIRS, "full": True}
        count = partial(self._count, index)
        works = self._works(self._paths[index], lambda piece: piece, self._team, count, **limits)
        return self.checked(results_of(works))

    def _works(
        self,
        path: str,
        work: Callable[[TextPiece], R],
        team: Team,
        count: Callable[[int], None],
        **limits: Any,
    ) -> Iterator[Part[_Tagged[R]]]:
        def tagged(piece: TextPiece) -> _Tagged[R]:
            assert piece.text is not None
            return path, piece.text.fastq, work(piece)

        return work_on_records(
            path, tagged, on_bytes=count, context=self._context, team=team, **limits
        )

    def checked(self, results: Iterable[_Tagged[R]]) -> Generator[R]:
        """The results alone; DataError if a file's format differs from those before it."""
        for path, fastq, result in results:
            format_ = "FASTQ" if fastq else "FASTA"
            self._format = self._format or format_
            if format_ != self._format:
                raise DataError(
                    f"is {format_}, the files before it are {self._format}: give files of one "
                    "format, and each file of the dictionary with its own -d",
                    file=shown_name(path),
                )
            yield result

    def _count(self, index: int, size: int) -> None:
        self._done[index] = size
        self._on_bytes(sum(self._done))


def _pairs(run: FilterRun, inputs: _Inputs) -> Iterator[tuple[TextPiece, ...]]:
    """Pieces of two files with equally many reads; DataError if two reads are not mates."""
    for index in range(0, len(run.reads), 2):
        paths = [shown_name(path) for path in run.reads[index : index + 2]]
        with (
            closing(inputs.by_number(index)) as first,
            closing(inputs.by_number(index + 1)) as last,
        ):
            yield from _mates(paths, (first, last))


def _mates(
    paths: Sequence[str], files: Sequence[Iterator[TextPiece]]
) -> Iterator[tuple[TextPiece, ...]]:
    before = 0
    while (pieces := tuple(next(file, None) for file in files)) != (None, None):
        both = tuple(piece for piece in pieces if piece is not None)
        if len(both) == 2:
            _check_mates(both, before, paths)
        sizes = [0 if piece is None else len(piece.reads) for piece in pieces]
        if sizes[0] != sizes[1]:
            short = int(sizes[0] > sizes[1])
            next(files[short], None)  # raises if the file is faulty there
            raise DataError(
                f"the file ends after {before + sizes[short]} records, {paths[1 - short]} has "
                f"more: give the two files of the same pairs",
                file=paths[short],
            )
        before += sizes[0]
        yield both


def _check_mates(pieces: tuple[TextPiece, ...], before: int, paths: Sequence[str]) -> None:
    """DataError for the first two reads that are not mates; ``before``: pairs read earlier."""
    names = [piece.reads.names for piece in pieces]
    assert isinstance(names[0], PackedNames)
    assert isinstance(names[1], PackedNames)
    if not before:
        _check_copy(pieces, paths)
    at = first_apart(names[0], names[1])
    if at >= 0:
        number = before + at + 1
        mate = f"record {number} ({names[0][at]}) of {paths[0]}"
        raise DataError(
            f"the name is not that of the other read of the pair, {mate}",
            file=paths[1],
            record=number,
            name=names[1][at],
        )


_MATE = re.compile(rb"[@>](?:\S*/| *\S+\s+)([12])(?:\s|$|:[YN]:)")
"""The number of a read in its pair: NAME/1, or NAME 1:N:0:..."""


def _check_copy(pieces: tuple[TextPiece, ...], paths: Sequence[str]) -> None:
    """DataError if the first reads of two files are not R1 and R2, or those of one file."""
    texts = [piece.text for piece in pieces if piece.text is not None]
    headers = [bytes(text[a:b]) for text, (a, *_), (b, *_) in (one.between(0, 1) for one in texts)]
    mates = [found[1].decode() for header in headers if (found := _MATE.match(header))]
    problem = None
    if len(mates) == 2 and mates != ["1", "2"]:
        problem = f"has R{mates[1]} of the pairs, and {paths[0]} has R{mates[0]}"
    elif (
        pieces[0].reads.symbols
        and len({taken([text], _all(text)).tobytes() for text in texts}) == 1
    ):
        problem = f"has the records of {paths[0]}"
    if problem is not None:
        problem += ": give R1 and R2 of each pair"
        raise DataError(problem, file=paths[1])


def _all(text: RecordText) -> NDArray[np.bool_]:
    return np.ones(len(text.places), np.bool_)
