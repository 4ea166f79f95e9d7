"""Read FASTA, FASTQ, SAM, BAM and CRAM files as batches of reads, or as pieces of records.

Format and compression (gzip, bzip2, xz, zstd or none) are recognized by content; ``-`` is standard
input (``streamer.sequences.source``). This module adds batching, and errors that name file, record
and position. Letters become codes, one byte each, a few megabytes at a time.

A large team reads small files, as sequencers write them, at the same time, each in a thread or
process of its own: they are compressed, so threads would wait for the one that decompresses.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from glob import glob, has_magic
from itertools import chain, groupby
from typing import BinaryIO, TypedDict, TypeVar, Unpack

from streamer.dictionary.target_sets import first_names
from streamer.errors import DataError, StreamerError
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import CUT, MORE, RecordBuffer, RecordForm, TextPiece
from streamer.sequences.source import (
    FORK_THREADS,
    STDIN,
    RemoteReaders,
    SequenceSource,
    shown_name,
    size_of_files,
)
from trie.cpu.forks import forked
from trie.cpu.team import Done, Part, Team, results_of
from trie.index.index_file import is_index

R = TypeVar("R")

_SEQUENCES = (
    ".fa", ".fasta", ".fna", ".ffn", ".frn", ".fas", ".fsa", ".mfa", ".fq", ".fastq",
    ".sam", ".bam", ".cram",
)  # fmt: skip
COMPRESSED = (".gz", ".bgz", ".bz2", ".xz", ".zst")
"""The suffixes of sequence files in folders of references."""

SMALL_BYTES = 1 << 26
"""The largest such file: nobody helps with the last one, and results of a thread wait in memory."""


def readers_of(team: Team | None) -> int:
    """How many files a team should read at the same time; 0: one after the other."""
    return 0 if team is None or team.threads < FORK_THREADS else team.threads


def runs_of_files(paths: Iterable[str], readers: int) -> Iterator[list[str]]:
    """Yield files that ``readers`` threads or workers read at once, or single ones they share."""
    if not readers:
        yield from ([path] for path in paths)
        return
    for small, run in groupby(paths, _is_small):
        files = list(run)
        if small and 2 * len(files) >= readers:
            yield files
        else:
            yield from ([path] for path in files)


def _is_small(path: str) -> bool:
    size = None if path == STDIN else size_of_files([path])
    return size is not None and size <= SMALL_BYTES


def at_once(
    paths: list[str],
    works_on: Callable[[str, Team, Callable[[int], None]], Iterator[R]],
    team: Team,
    *,
    forks: bool,
) -> Iterator[tuple[int, R]]:
    """Yield the results of the work on the files, in order, with the bytes read so far.

    works_on: yields the results of a file, made by a team of one, and calls a function with the
    bytes read. forks: in processes, where the work has no effect but its results; else in threads,
    where those of a whole file are kept in memory.
    """

    def work_on_file(number: int) -> Iterator[tuple[int, int, R]]:
        read = deque([0], maxlen=1)
        with Team(1, stages=team.stages) as alone:
            for result in works_on(paths[number], alone, read.append):
                yield number, read[0], result

    team.stages.shared |= {"read", "decompress"}
    numbers = range(len(paths))
    results: Iterable[tuple[int, int, R]]
    if forks:
        results = forked(
            numbers, work_on_file, team.threads, team.stages, works="parse", takes="write"
        )
    else:
        whole = team.line(
            numbers, lambda number: [*work_on_file(number)], team.threads + 2, works="parse"
        )
        results = chain.from_iterable(whole)
    before, last = 0, (0, 0)
    for number, size, result in results:
        if number != last[0]:
            before += last[1]
        last = number, size
        yield before + size, result


BATCH_BASES = 4_000_000
BATCH_READS = 100_000
PIECE_BASES = 1 << 24  # approximate new symbols per piece; several pieces are in memory at once


class BatchOptions(TypedDict, total=False):
    """The options of ``read_batches``, all optional."""

    batch_bases: int
    batch_reads: int
    on_bytes: Callable[[int], None] | None
    opened: BinaryIO | None
    context: bool
    flush_seconds: float | None
    team: Team | None
    full: bool


def read_batches(paths: Iterable[str], **options: Unpack[BatchOptions]) -> Generator[ReadBatch]:
    """Yield all reads of the files, in order, in batches that end at ``batch_bases`` bases.

    A batch holds reads of one file only, so that its errors can be located, and at most
    ``batch_reads``. The reads before a faulty record are yielded before DataError is raised, so
    nothing that was read is lost. ``on_bytes`` is called with the number of (compressed) bytes read
    from the files so far. opened: read this instead of the file at the only path; it stays open.
    context: give each batch its context. flush_seconds: about the longest time that a record from a
    pipe waits for others; the batch ends then (not for FASTA, whose records have no end mark).
    team: decompresses ahead, and parses in parallel if it has enough threads; batches may then end
    earlier, unless ``full``, which makes them the same for any number of threads.
    """
    return results_of(work_on_batches(paths, lambda batch: batch, **options))


def work_on_batches(
    paths: Iterable[str],
    work: Callable[[ReadBatch], R],
    *,
    batch_bases: int = BATCH_BASES,
    batch_reads: int = BATCH_READS,
    on_bytes: Callable[[int], None] | None = None,
    opened: BinaryIO | None = None,
    context: bool = False,
    flush_seconds: float | None = None,
    team: Team | None = None,
    full: bool = False,
    forks: bool = False,
    small: bool = False,
    remote_readers: RemoteReaders | None = None,
) -> Iterator[Part[R]]:
    """Yield the batches of ``read_batches`` as calls that do the work on them, in any thread.

    Where a team parses in parallel, the thread that parsed a batch has done the work on it,
    possibly also on batches after a faulty record. forks: a large team may use forked processes, as
    the work has no effect but its result, which can be pickled. small: it may read many files at
    the same time, since the results take hardly any memory. remote_readers: workers that read and
    do the work instead; their results are used.
    """

    def parts_of(path: str, alone: Team | None, count: Callable[[int], None]) -> Iterator[Part[R]]:
        return work_on_batches(
            [path], work, batch_bases=batch_bases, batch_reads=batch_reads, on_bytes=count,
            context=context, team=alone, full=full, remote_readers=remote_readers,
        )  # fmt: skip

    def works_on(path: str, alone: Team, count: Callable[[int], None]) -> Iterator[R]:
        return results_of(parts_of(path, alone, count))

    done = 0

    def has_read(size: int) -> None:
        """Count the bytes read after the ``done`` ones."""
        if on_bytes is not None:
            on_bytes(done + size)

    readers = readers_of(team if forks or small else None)
    if remote_readers is not None:
        readers = remote_readers.readers
    for path, *others in runs_of_files(paths, readers):
        if remote_readers is not None and others:
            files = [path, *others]
            with closing(remote_readers.whole(files)) as whole:
                for file, results in zip(files, whole, strict=True):
                    if results is None:
                        yield from parts_of(file, None, has_read)
                    else:
                        yield from map(Done, results)
                    done += size_of_files([file]) or 0
                    has_read(0)
            continue
        if team is not None and others:
            for size, result in at_once([path, *others], works_on, team, forks=forks):
                has_read(size)
                yield Done(result)
            done += size_of_files([path, *others]) or 0
            continue
        with ExitStack() as stack:
            source = SequenceSource(
                path, stack, opened, team=team, flush_seconds=flush_seconds, full=full,
                forks=forks, remote_readers=remote_readers,
            )  # fmt: skip
            buffer = RecordBuffer(shown_name(path), batch_bases, batch_reads, keeps_text=context)

            def on_reads(piece: TextPiece, source: SequenceSource = source) -> R:
                return work((_with_context(piece, source) if context else piece).reads)

            for made in _works(source, buffer, on_reads, team):
                has_read(source.bytes_read())
                yield made
            done += source.bytes_read()
        has_read(0)


def work_on_records(
    path: str,
    work: Callable[[TextPiece, RecordForm], R],
    *,
    batch_bases: int = BATCH_BASES,
    batch_reads: int = BATCH_READS,
    on_bytes: Callable[[int], None] | None = None,
    context: bool = False,
    team: Team | None = None,
    full: bool = False,
) -> Iterator[Part[R]]:
    """Yield the records of a file with their text and its form, like ``work_on_batches``.

    A file of alignments yields a piece even if it has only a header.
    """
    with ExitStack() as stack:
        source = SequenceSource(path, stack, team=team, full=full)
        buffer = RecordBuffer(shown_name(path), batch_bases, batch_reads, keeps_text=True)

        def on_piece(piece: TextPiece) -> R:
            return work(_with_context(piece, source) if context else piece, source.form)

        for made in _works(source, buffer, on_piece, team, empty=True):
            if on_bytes is not None:
                on_bytes(source.bytes_read())
            yield made


def _works(
    source: SequenceSource,
    buffer: RecordBuffer,
    work: Callable[[TextPiece], R],
    team: Team | None,
    *,
    empty: bool = False,
) -> Iterator[Part[R]]:
    """Yield the work on each piece of whole records, done or still to be done.

    empty: also on the only piece of alignments without a record.
    """
    for worked in source.side_by_side(buffer, work):
        if team is not None:
            team.stages.count("parse", worked.symbols)
        yield Done(worked.result)
    for number, piece in enumerate(_pieces(source, buffer, empty=empty)):
        if not number and piece.text is not None:
            source.read_header(piece.text)
        if team is not None:
            team.stages.count("parse", piece.reads.symbols)
        yield partial(work, piece)


def _with_context(piece: TextPiece, source: SequenceSource) -> TextPiece:
    """Add the context of its reads to a piece that has their text."""
    assert piece.text is not None
    return replace(piece, reads=replace(piece.reads, context=source.context(piece.text)))


def read_pieces(
    path: str,
    overlap: int,
    *,
    size: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
    team: Team | None = None,
) -> Iterator[TextPiece]:
    """Yield the records of a file in pieces of about ``size`` symbols, however long a record is.

    size: None means PIECE_BASES. overlap: how many symbols before a cut the next piece repeats.
    Errors, ``on_bytes`` and ``team`` are as above; if a record that was cut is faulty, its part
    before the fault has been yielded.
    """
    size = size or PIECE_BASES
    with ExitStack() as stack:
        source = SequenceSource(path, stack, team=team)
        for piece in _pieces(source, RecordBuffer(shown_name(path), size, BATCH_READS), overlap):
            if on_bytes is not None:
                on_bytes(source.bytes_read())
            yield piece
        if on_bytes is not None:
            on_bytes(source.bytes_read())


def _pieces(
    source: SequenceSource, buffer: RecordBuffer, overlap: int | None = None, *, empty: bool = False
) -> Iterator[TextPiece]:
    """Yield the records in pieces; whole ones without ``overlap``. empty: as in ``_works``."""
    try:
        while (stop := source.fill(buffer, cut=overlap is not None)) != MORE:
            yield buffer.piece(overlap if stop == CUT else None)
        last = buffer.piece()
    except DataError as error:
        last, first_error = buffer.before(error)
        if len(last.reads):
            yield last
        raise first_error from None
    if len(last.reads) or (empty and source.alignments and not buffer.records):
        yield last


def read_letters(path: str) -> Iterator[tuple[str, str]]:
    """Yield (first word of the header, letters verbatim) of every record; DataError as above."""
    with ExitStack() as stack:
        buffer = RecordBuffer(shown_name(path), BATCH_BASES, BATCH_READS, letters=True)
        for piece in _pieces(SequenceSource(path, stack), buffer):
            letters, offsets = piece.reads.bases.tobytes(), piece.reads.offsets.tolist()
            for name, first, stop in zip(piece.reads.names, offsets, offsets[1:], strict=False):
                yield name, letters[first:stop].decode("latin-1")


def check_exist(paths: Iterable[str]) -> None:
    """Raise DataError for the first missing input, before work starts on the others."""
    for path in paths:
        if path != STDIN and not os.path.exists(path):
            raise DataError("no such file", file=shown_name(path))


def reference_files(
    paths: Iterable[str], on_notice: Callable[[str], None] | None = None
) -> list[str]:
    """Replace patterns by the files that they match, and folders by their files, by name.

    Of a folder these are sequence files, by their suffixes, and indexes. A file is no pattern
    whatever its name, and is taken once, but for those that are named. on_notice: called with one
    line about what of folders is not taken. StreamerError for a pattern or folder without a
    file.
    """
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            matched = [path]
        elif path != STDIN and has_magic(path) and not os.path.lexists(path):
            matched = sorted(glob(path, recursive=True))
        else:
            files.append(path)
            continue
        some, passed = list[str](), list[str]()
        for place in matched:
            if not os.path.isdir(place):
                some.append(place)
                continue
            for file in sorted(os.path.join(place, name) for name in os.listdir(place)):
                if not os.path.basename(file).startswith("."):
                    taken = split_suffix(file)[1] in _SEQUENCES or is_index(file)
                    (some if taken and os.path.isfile(file) else passed).append(file)
        if not some:
            why = "has no FASTA, FASTQ, SAM, BAM or CRAM file, and no index"
            raise StreamerError(f"{path}: {why if matched else 'no such file'}")
        known = {*files}
        files += [file for file in dict.fromkeys(some) if file not in known]
        if passed and on_notice is not None:
            on_notice(
                f"warning: {path}: {len(passed):,} of its files and folders are not read, being no "
                f"sequences by name: {first_names([os.path.basename(file) for file in passed])}"
            )
    return files


def split_suffix(name: str) -> tuple[str, str]:
    """Return a name in lower case, cut before the suffix of what it holds, perhaps compressed."""
    stem, suffix = os.path.splitext(name.lower())
    return os.path.splitext(stem) if suffix in COMPRESSED else (stem, suffix)
