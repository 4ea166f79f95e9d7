"""What ``streamer filter`` does once its options are checked: records in, records out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cli import choices, cost_model
from streamer.cli.choices import say
from streamer.cli.profile import profiled
from streamer.cli.record_output import RecordOutput
from streamer.cli.streams import progress
from streamer.device_choice import choose_device
from streamer.errors import DataError, ReaderGoneError, StreamerError, UsageError, warn
from streamer.matching.assigning import assigned, assigned_reads
from streamer.matching.matcher import StreamMatcher, load_dictionary
from streamer.matching.reports import Assignment
from streamer.matching.spec import MatchSpec
from streamer.matching.target_counts import FilterCounts, Filtered
from streamer.output.output_file import ALIGNMENTS, OutputFiles, check_record_output, suffix_of
from streamer.sequences.files import (
    BATCH_READS,
    at_once,
    read_batches,
    readers_of,
    runs_of_files,
    work_on_records,
)
from streamer.sequences.read_batch import PackedNames
from streamer.sequences.record_buffer import (
    BOTH,
    FIRSTS,
    LASTS,
    NO_MARKS,
    RecordForm,
    RecordText,
    TextPiece,
    first_apart,
    taken,
)
from streamer.sequences.sam import is_paired, skips_records
from streamer.sequences.source import shown_name, size_of_files
from trie.cpu.compiling import compile_notice
from trie.cpu.forks import CAN_FORK
from trie.cpu.team import Done, Part, Team, results_of
from trie.cpu.threads import usable_cores
from trie.new_file import in_place

R = TypeVar("R")

_OTHERS = (
    ".arrow", ".parquet", ".tsv", ".csv", ".json", ".jsonl", ".zip", ".lz4", ".lzma", ".br", ".z",
)  # fmt: skip
"""Suffixes of formats that are not written."""

_PAIRS = 1 << 13
"""Records in a batch of pairs, whose files are read by the number of records."""

_ENDLESS = 1 << 62


class Pieces(NamedTuple):
    """Records to match: of one file, or those of R1 and R2."""

    pieces: tuple[TextPiece, ...]
    form: RecordForm


class Chosen(NamedTuple):
    """The bytes for each output, and what to count. odd: warnings, each with its kind."""

    form: RecordForm
    outputs: list[Any]
    counted: list[Filtered]
    odd: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FilterRun:
    """What is done with the files of one sample; its name is that of the table, if there is one.

    keep: whether to write the reads on target or the others. pairs: files come as R1 R2.
    interleaved: mates follow each other in each file; None: as the names tell. together: the
    windows of both reads decide about a pair; None: if there are pairs. output2, removed2: for the
    reads R2. level: of the compression. rename: whether numbers replace the names. of_host: whether
    targets that are counted apart are named. context: barcodes are counted.
    """

    reads: list[str]
    spec: MatchSpec
    keep: bool
    rule: Assignment
    pairs: bool
    interleaved: bool | None
    together: bool | None
    output: str | None
    output2: str | None
    removed: str | None
    removed2: str | None
    summary: str | None
    level: int | None
    rename: bool
    of_host: bool
    sample: str | None = None
    context: bool = False

    @property
    def mates(self) -> bool:
        """Whether reads come in pairs."""
        return self.pairs or bool(self.interleaved)

    @property
    def outputs(self) -> list[str]:
        """The files of records, if they are named."""
        named = self.output, self.output2, self.removed, self.removed2
        return [path for path in named if path is not None]

    def check_outputs(self) -> bool:
        """UsageError for an output that is not possible; return whether any is compressed."""
        for path in self.outputs:
            if suffix_of(path) in _OTHERS:
                raise UsageError(
                    f"{path}: FASTQ, FASTA, SAM, BAM and CRAM are written, not {suffix_of(path)}: "
                    "rename it"
                )
            if self.rename and suffix_of(path) in ALIGNMENTS:
                raise UsageError(f"--rename: {path}: only FASTQ and FASTA are renamed")
        compressed = [check_record_output(path, self.level) for path in self.outputs]
        return any(compressed)

    def settled(self, quiet: bool) -> FilterRun:
        """Check the files, and the names where these tell whether mates follow each other."""
        run = self
        if self.removed2 is not None and self.removed is None:
            raise UsageError("--removed2 needs --removed")
        if self.sample is not None:
            choices.check_files(self.reads, None, {name: name for name in self.outputs})
        if self.pairs:
            choices.check_different(self.reads)
        elif self.interleaved is None:
            run = replace(self, interleaved=_is_interleaved(self.reads))
            if run.interleaved and not quiet:
                say(
                    "mates follow each other, by the first names: pairs are kept together "
                    "(--no-interleaved: each read is filtered alone)"
                )
        if not run.mates:
            for option in "output2", "removed2":
                if getattr(self, option) is not None:
                    raise UsageError(f"--{option} needs --pairs or --interleaved")
            if self.together:
                raise UsageError("--pair-rule together needs --pairs or --interleaved")
        return run if run.together is not None else replace(run, together=run.mates)

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
            "pairs": self.mates,
        } | ({"pair_rule": "together"} if self.together else {})


class _Outputs:
    """The outputs of a run: of the chosen records, then of the others; one or two of each."""

    def __init__(self, run: FilterRun, files: OutputFiles) -> None:
        self._kept = [*_opened(run, files, run.output, run.output2)]
        self._removed = []
        if run.removed is not None:
            self._removed = [*_opened(run, files, run.removed, run.removed2)]
        self._interleaved = run.interleaved
        self.all = self._kept + self._removed

    def prepared(
        self, texts: Sequence[RecordText], let_out: NDArray[np.bool_], form: RecordForm
    ) -> list[Any]:
        """Return the bytes for each output, in the order of ``all``."""
        data = []
        for outputs, mask in ((self._kept, let_out), (self._removed, ~let_out)):
            for at, output in enumerate(outputs):
                if len(outputs) == 1:
                    data.append(output.prepared(texts, mask, form))
                elif self._interleaved:
                    own = np.arange(mask.size) % 2 == at
                    data.append(output.prepared(texts, mask & own, form))
                else:
                    data.append(output.prepared([texts[at]], mask, form))
        return data


def _opened(
    run: FilterRun, files: OutputFiles, first: str | None, last: str | None
) -> Iterator[RecordOutput]:
    """The output of all records, or that of R1 and that of R2."""
    single = BOTH if run.mates else NO_MARKS
    yield RecordOutput(
        files, first, run.level, (FIRSTS if last else single) if run.rename else None
    )
    if last is not None:
        yield RecordOutput(files, last, run.level, LASTS if run.rename else None)


@contextmanager
def matcher_of(run: FilterRun, reads: Sequence[str], quiet: bool) -> Iterator[StreamMatcher]:
    """The matcher of all runs, with its dictionary. reads: all files, as far as they are known."""
    notice = None if quiet else say
    device = choose_device(
        run.spec.device, report=notice, cost=partial(cost_model.matching, reads, run.spec),
        threads=run.spec.threads, gpus=1,
    )  # fmt: skip
    on_fallback = say if run.spec.device == "auto" else None
    spec = replace(run.spec, device=device)
    with compile_notice(quiet=quiet):
        with Team(spec.threads or usable_cores()) as team:
            dictionary = load_dictionary(spec, on_notice=notice, team=team)
            matcher = StreamMatcher(dictionary, spec, on_fallback=on_fallback)
        targets, sources = len(dictionary.targets.names), len(spec.sources)
        if run.of_host and targets > sources and not quiet:
            say(
                f"the host has {targets:,} targets, which are counted apart: --target-by file "
                "makes one of them, also with `streamer index`"
            )
        with closing(matcher):
            yield matcher


def filter_files(runs: Sequence[FilterRun], *, quiet: bool, profile: bool) -> None:
    """Write the chosen records and the summary; the files appear once everything is read.

    Samples are filtered one after the other; StreamerError if one could not be.
    """
    first = runs[0] if runs[0].sample else runs[0].settled(quiet)
    with matcher_of(first, [path for run in runs for path in run.reads], quiet) as matcher:
        if not first.sample:
            counts = filter_one(first, matcher, quiet=quiet, profile=profile)
            _tell(counts, "", quiet)
            return
        failed: list[str] = []
        told: dict[str, tuple[FilterRun, FilterCounts]] = {}
        for run in runs:
            assert run.sample is not None
            try:
                # how mates were told is said once
                settled = run.settled(quiet or any(one.interleaved for one, _ in told.values()))
                own = replace(settled, summary=None, context=run.summary is not None)
                told[run.sample] = own, filter_one(own, matcher, quiet=quiet, profile=profile)
                _tell(told[run.sample][1], f"{run.sample}: ", quiet)
            except ReaderGoneError:
                raise
            except (StreamerError, OSError) as error:
                failed.append(run.sample)
                choices.say_error(f"{run.sample}: {error}")
    if first.summary is not None:
        with OutputFiles() as files:
            write_summary(files, first.summary, told)
    if failed:
        raise StreamerError(f"{len(failed)} of {len(runs)} samples failed: {', '.join(failed)}")


def _tell(counts: FilterCounts, sample: str, quiet: bool) -> None:
    if not quiet:
        say(f"{sample}{counts}")


def write_summary(
    files: OutputFiles, path: str, told: Mapping[str, tuple[FilterRun, FilterCounts]]
) -> None:
    """Write the summary of each sample, or of the only one, whose name is that of its file.

    Beside a regular file goes one for MultiQC.
    """
    from streamer.reporting.multiqc import filter_table, multiqc_path

    content: dict[str, object] = {"version": __version__}
    parts = {
        name: {"parameters": run.parameters()} | counts.summary()
        for name, (run, counts) in told.items()
    }
    if any(run.sample for run, _ in told.values()) or not told:
        content["samples"] = [{"sample": name} | part for name, part in parts.items()]
    else:
        content |= next(iter(parts.values()))
    files.open(path).write(json.dumps(content, indent=2).encode() + b"\n")
    if not in_place(path):
        totals = {name: counts.totals for name, (_, counts) in told.items()}
        files.open(multiqc_path(path)).write(filter_table(totals).encode())


def filter_one(
    run: FilterRun, matcher: StreamMatcher, *, quiet: bool, profile: bool
) -> FilterCounts:
    """Filter the files of a run; they appear together, with the summary, if it has one."""
    counts = FilterCounts(matcher.dictionary.targets.names)
    with OutputFiles() as files, ExitStack() as threads:
        outputs = _Outputs(run, files)
        for output in outputs.all:
            threads.callback(output.stop)
        with (
            progress("filtering", size_of_files(run.reads), quiet=quiet) as show,
            profiled(profile, run.spec.threads, run.reads) as team,
        ):
            for chosen in _chosen(run, matcher, outputs, team, show):
                for line, kind in chosen.odd:
                    warn(line, kind)
                with team.stages.spent("write"):
                    for filtered in chosen.counted:
                        counts.add(filtered)
                    for output, data in zip(outputs.all, chosen.outputs, strict=True):
                        output.write(data, chosen.form)
                        team.stages.count("write", len(data))
        for output in outputs.all:
            output.end()
        if run.summary is not None:
            name = os.path.basename(shown_name(run.reads[0])).partition(".")[0]
            write_summary(files, run.summary, {name: (run, counts)})
    return counts


def _chosen(
    run: FilterRun,
    matcher: StreamMatcher,
    outputs: _Outputs,
    team: Team,
    on_bytes: Callable[[int], None],
) -> Iterator[Chosen]:
    """The chosen records, batch after batch."""
    inputs = _Inputs(run, team, on_bytes)
    choose = partial(_choice, run, outputs, team)
    if matcher.side_by_side:

        def work(own: Pieces) -> Chosen:
            with team.stages.spent("match"):
                reads = [piece.reads for piece in own.pieces]
                together = bool(run.together)
                return choose((own, assigned_reads(matcher, run.rule, reads, together=together)))

        stages = {"pulls": "parse", "works": "match", "takes": "write"}
        if run.mates:
            pairs = (partial(work, own) for own in _pairs(run, inputs))
            return team.results(pairs, **stages)
        return inputs.checked(team.results(inputs.works(work, forks=CAN_FORK), **stages))
    batches = (
        _pairs(run, inputs)
        if run.mates
        else inputs.checked(results_of(inputs.works(lambda own: own)))
    )
    parsed = team.line(batches, lambda own: own, 2, pulls="parse")
    matched = ((own, matcher.match([one.reads for one in own.pieces])) for own in parsed)
    rule = partial(assigned, matcher, run.rule, together=bool(run.together))
    return team.line(
        matched, lambda both: choose((both[0], rule(both[1]))), 2,
        pulls="match", works="format", takes="write",
    )  # fmt: skip


def _choice(
    run: FilterRun,
    outputs: _Outputs,
    team: Team,
    decided: tuple[Pieces, list[NDArray[np.int32]]],
) -> Chosen:
    """The chosen records of a batch, by the targets of its reads, or of its pairs."""
    with team.stages.spent("format"):
        (pieces, form), targets = decided
        if run.together:
            targets = [targets[0].repeat(2)] if run.interleaved else targets * 2
        on_target = (targets[0] >= 0) | (targets[-1] >= 0)
        if run.interleaved:
            on_target = on_target.reshape(-1, 2).any(axis=1).repeat(2)
        let_out = on_target == run.keep
        texts, counted = [], []
        for piece, each in zip(pieces, targets, strict=True):
            assert piece.text is not None
            texts.append(piece.text)
            barcodes = None if piece.reads.context is None else piece.reads.context.barcode
            counted.append(Filtered(each, let_out, piece.reads.offsets, barcodes))
        odd = [*_odd(run, pieces[0], form)]
        return Chosen(form, outputs.prepared(texts, let_out, form), counted, odd)


def _odd(run: FilterRun, piece: TextPiece, form: RecordForm) -> Iterator[tuple[str, str]]:
    """Warnings about records that the user may expect to be treated in another way."""
    assert piece.text is not None
    if form.aligned and skips_records(piece.text, form, first=not piece.first):
        problem = "secondary and supplementary records are left out: they repeat parts of reads"
        yield problem, problem
    if run.mates:
        return
    if both := _mates_among(piece.reads.names):
        problem = "pairs in one file are torn: give --interleaved, or R1 and R2 with --pairs"
        yield f"{' and '.join(both)} follow each other: {problem}", problem
    elif form.aligned and len(piece.reads) and is_paired(piece.text, form.name):
        problem = "mates that are not next to each other are torn: sort by name, --interleaved"
        yield f"{piece.reads.names[0]} is a read of a pair: {problem}", problem


def _mates_among(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names, if they are those of mates in any order, as are the next two."""
    some = [names[at] for at in range(min(len(names), 4))]
    for one, other in zip(some[::2], some[1::2], strict=False):
        numbered = one[-1:] + other[-1:] in ("12", "21") and not one[-2:-1].isalnum()
        if one != other and not (numbered and one[:-1] == other[:-1]):
            return None
    return (some[0], some[1]) if len(some) > 1 else None


def _is_interleaved(paths: Sequence[str]) -> bool:
    """Whether the names that begin each file are those of mates; False for what cannot be seen."""
    seen = [path for path in paths if size_of_files([path])]
    for path in seen:
        # a team of one starts no thread
        with Team(1) as team, closing(read_batches([path], batch_reads=4, team=team)) as batches:
            both = _mates_among(next((batch.names for batch in batches), []))
            if both is None or (both[0] != both[1] and both[0].endswith("2")):
                return False
    return bool(seen)


_Tagged = tuple[str, RecordForm, R]
"""A result, with the file and the form of its records."""


class _Inputs:
    """The files, and how much of each has been read."""

    def __init__(self, run: FilterRun, team: Team, on_bytes: Callable[[int], None]) -> None:
        self._team = team
        self._paths = run.reads
        self._context = run.context or run.summary is not None
        self._on_bytes = on_bytes
        self._done = [0] * len(run.reads)
        self._form: RecordForm | None = None

    def works(
        self, work: Callable[[Pieces], R], *, forks: bool = False
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

    def by_number(self, index: int, number: int) -> Generator[Pieces]:
        """The records of one file, ``number`` at a time."""
        limits = {"batch_bases": _ENDLESS, "batch_reads": number, "full": True}
        count = partial(self._count, index)
        works = self._works(self._paths[index], lambda own: own, self._team, count, **limits)
        return self.checked(results_of(works))

    def _works(
        self,
        path: str,
        work: Callable[[Pieces], R],
        team: Team,
        count: Callable[[int], None],
        **limits: Any,
    ) -> Iterator[Part[_Tagged[R]]]:
        def tagged(piece: TextPiece, form: RecordForm) -> _Tagged[R]:
            return path, form, work(Pieces((piece,), form))

        return work_on_records(
            path, tagged, on_bytes=count, context=self._context, team=team, **limits
        )

    def checked(self, results: Iterable[_Tagged[R]]) -> Generator[R]:
        """The results alone; DataError if a file's format differs from those before it."""
        for path, form, result in results:
            first = self._form = self._form or form
            if form.name != first.name:
                raise DataError(
                    f"is {form.name}, the files before it are {first.name}: give files of one "
                    "format, and each file of the dictionary with its own -d",
                    file=shown_name(path),
                )
            if form.header != first.header:
                problem = "its header is not that of the files before it: join them, samtools merge"
                raise DataError(problem, file=shown_name(path))
            yield result

    def _count(self, index: int, size: int) -> None:
        self._done[index] = size
        self._on_bytes(sum(self._done))


def _pairs(run: FilterRun, inputs: _Inputs) -> Iterator[Pieces]:
    """Records of whole pairs; DataError if two reads are not mates."""
    if run.interleaved:
        for index, path in enumerate(run.reads):
            with closing(inputs.by_number(index, 2 * _PAIRS)) as file:
                yield from _checked_mates(shown_name(path), file)
        return
    for index in range(0, len(run.reads), 2):
        paths = [shown_name(path) for path in run.reads[index : index + 2]]
        with (
            closing(inputs.by_number(index, _PAIRS)) as first,
            closing(inputs.by_number(index + 1, _PAIRS)) as last,
        ):
            yield from _mates(paths, (first, last))


def _checked_mates(path: str, file: Iterator[Pieces]) -> Iterator[Pieces]:
    """The records of a file in which mates follow each other."""
    before = 0
    for own in file:
        (piece,) = own.pieces
        _check_mates((piece,), before, [path])
        before += len(piece.reads)
        if before % 2:
            raise DataError(
                "has no mate after it: " + _APART,
                file=path, record=before, name=piece.reads.names[len(piece.reads) - 1],
            )  # fmt: skip
        yield own


def _mates(paths: Sequence[str], files: Sequence[Iterator[Pieces]]) -> Iterator[Pieces]:
    """Records of R1 and of R2, of both the same number."""
    before = 0
    while (found := tuple(next(file, None) for file in files)) != (None, None):
        both = tuple(own.pieces[0] for own in found if own is not None)
        if len(both) == 2:
            _check_mates(both, before, paths)
        sizes = [0 if own is None else len(own.pieces[0].reads) for own in found]
        if sizes[0] != sizes[1]:
            short = int(sizes[0] > sizes[1])
            next(files[short], None)  # raises if the file is faulty there
            raise DataError(
                f"the file ends after {before + sizes[short]} records, {paths[1 - short]} has "
                f"more: give the two files of the same pairs",
                file=paths[short],
            )
        before += sizes[0]
        yield Pieces(both, next(own.form for own in found if own is not None))


_APART = "mates must follow each other (--no-interleaved: each read is filtered alone)"


def _check_mates(pieces: tuple[TextPiece, ...], before: int, paths: Sequence[str]) -> None:
    """DataError for the first two reads that are not mates; ``before``: records read earlier.

    pieces: of R1 and R2, or one, of an interleaved file.
    """
    names, others = pieces[0].reads.names, pieces[-1].reads.names
    assert isinstance(names, PackedNames)
    assert isinstance(others, PackedNames)
    if not before and len(names) >= 3 - len(pieces):
        _check_copy(pieces, paths)
    step = 3 - len(pieces)
    at = first_apart(names, others, step)
    if at < 0:
        return
    first, last = step * at, step * at + step - 1
    mate = f"record {before + first + 1} ({names[first]})"
    problem = f"the name is not that of the other read of the pair, {mate}"
    raise DataError(
        f"{problem}: {_APART}" if step == 2 else f"{problem} of {paths[0]}",
        file=paths[-1],
        record=before + last + 1,
        name=others[last],
    )


_MATE = re.compile(rb"[@>](?:\S*/| *\S+\s+)([12])(?:\s|$|:[YN]:)")
"""The number of a read in its pair: NAME/1, or NAME 1:N:0:..."""


def _check_copy(pieces: tuple[TextPiece, ...], paths: Sequence[str]) -> None:
    """DataError if the first two mates are not R1 and R2, or if two files have the same records."""
    headers = []
    for text, starts, stops in (piece.text.between(0, 1) for piece in pieces if piece.text):
        rows = zip(starts[: 3 - len(pieces)].tolist(), stops.tolist(), strict=False)
        headers += [bytes(text[a:b]) for a, b in rows]
    mates = [found[1].decode() for header in headers if (found := _MATE.match(header))]
    problem = None
    if len(mates) == 2 and mates != ["1", "2"]:
        here = "record 1" if len(pieces) == 1 else paths[0]
        problem = f"has R{mates[1]} of the pairs, and {here} has R{mates[0]}"
    elif len(pieces) == 2 and pieces[0].reads.symbols:
        texts = [piece.text for piece in pieces if piece.text]
        if len({taken([text], _all(text)).tobytes() for text in texts}) == 1:
            problem = f"has the records of {paths[0]}"
    if problem is not None:
        raise DataError(f"{problem}: give R1 and R2 of each pair", file=paths[-1])


def _all(text: RecordText) -> NDArray[np.bool_]:
    return np.ones(len(text.places), np.bool_)
