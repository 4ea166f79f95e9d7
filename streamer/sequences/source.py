"""Open a sequence file, decompress it, recognize it by content, and fill record buffers.

``streamer.sequences.decompression`` makes blocks of text ahead of the parser, which is ``fastq``,
``fasta`` or ``sam``, for SAM, BAM and CRAM.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, Protocol, TypeVar

from streamer.errors import DataError
from streamer.sequences import raw_file, sam
from streamer.sequences.bgzf import Watched
from streamer.sequences.context import ReadContext, ReadGroup, read_groups
from streamer.sequences.decompression import counted, text_blocks
from streamer.sequences.fasta import FastaParser
from streamer.sequences.fastq import FastqParser, warn_of_plus
from streamer.sequences.record_buffer import (
    FULL,
    MORE,
    RecordBuffer,
    RecordForm,
    RecordText,
    TextPiece,
)
from streamer.sequences.side_by_side import (
    LEAST_THREADS,
    CannotReadError,
    Parsed,
    Worked,
    file_regions,
    parsed,
    regions,
    unparsed,
)
from trie.cpu.forks import forked
from trie.cpu.team import Team

R = TypeVar("R")

STDIN = "-"

FORK_THREADS = 6
"""The fewest threads that processes replace: fewer hardly wait for each other."""

FORK_BYTES = 1 << 28
"""The smallest file for which processes pay."""

shown_from = ""
"""The prefix omitted from input names in messages; set by the process of a job."""


def shown_name(path: str) -> str:
    """Return the name of an input for messages."""
    return "<stdin>" if path == STDIN else path.removeprefix(shown_from)


def size_of_files(paths: Iterable[str]) -> int | None:
    """Return the total size in bytes; None if a file has no size (a pipe, standard input)."""
    total = 0
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def is_fasta(path: str) -> bool:
    """Return whether a file begins as FASTA does; False if it cannot be read."""
    with ExitStack() as stack:
        return SequenceSource(path, stack).fasta


class RemoteReaders(Protocol):
    """Remote workers that read files themselves.

    readers: how many read whole small files at the same time; 0: none.
    """

    readers: int

    def whole(self, paths: list[str]) -> Generator[list[Any] | None]:
        """Yield the results of all batches of each file, in order; None if it must be read here."""

    def parsed(self, path: str, file: raw_file.FileRegion) -> Generator[Parsed[Any]]:
        """Yield the regions of an entire uncompressed FASTQ file, in order, with the work done."""


class Parser(Protocol):
    """Parses the records of a text, in order."""

    begins_records: bool
    """Whether a record counts once it has begun, rather than once it is complete."""

    def parse(self, buffer: RecordBuffer, *, cut: bool) -> int:
        """Take records until the buffer is full (FULL, or CUT within one) or the text ends (MORE).

        Raises FormatError or DataError for a fault, once all records before it are in the buffer.
        """


class SequenceSource:
    """One input, read from ``opened`` if given; ``stack`` closes what is opened here.

    team: decompresses ahead of the parser; without one a thread does. flush_seconds: about the
    longest time that a record from a pipe waits for others to fill a buffer. full: fill one buffer
    after the other completely, instead of ending one with each region. forks: regions of large
    uncompressed FASTQ files may be parsed, and their records be worked on, in forked processes.
    remote_readers: parses such regions instead of the team.
    """

    def __init__(
        self,
        path: str,
        stack: ExitStack,
        opened: BinaryIO | None = None,
        *,
        team: Team | None = None,
        flush_seconds: float | None = None,
        full: bool = False,
        forks: bool = False,
        remote_readers: RemoteReaders | None = None,
    ) -> None:
        self._path = path
        self._shown = shown_name(path)
        self._stack = stack
        self._opened = opened
        self._team = team
        self._raw: raw_file.RawFile | None = None
        # the entire file, if its regions are parsed in parallel
        self._plain: raw_file.FileRegion | None = None
        self._watched: Watched | None = None
        self._text: raw_file.Text | None = None
        self._parser: Parser | None = None
        self._groups: dict[str, ReadGroup] = {}
        self._header = b""
        self._full = full
        self._forks = forks
        self._remote_readers = None if opened is not None or path == STDIN else remote_readers
        self._flush_seconds = flush_seconds
        self._flush_at: float | None = None

    @property
    def alignments(self) -> bool:
        """Whether the file is SAM, BAM or CRAM, as far as is known yet."""
        return isinstance(self._parser, (sam.BamParser, sam.SamParser))

    @property
    def fasta(self) -> bool:
        """Whether the file is FASTA; False if it cannot be read."""
        try:
            self._open(RecordBuffer(self._shown, 0, 0))
        except DataError:
            return False
        return isinstance(self._parser, FastaParser)

    @property
    def form(self) -> RecordForm:
        """The format of the records, with the header that ``read_header`` took."""
        if isinstance(self._parser, FastaParser):
            return RecordForm("FASTA")
        if not self.alignments:
            return RecordForm("FASTQ")
        return RecordForm("BAM" if isinstance(self._parser, sam.BamParser) else "SAM", self._header)

    def read_header(self, first: RecordText) -> None:
        """Take what precedes the first records of SAM and BAM, and its read groups."""
        if self.alignments:
            (span,), places = first.joined()
            stop = places[0, 0] if len(places) else span.stop
            before = span.text[span.begin : stop].tobytes()
            binary = isinstance(self._parser, sam.BamParser)
            self._header, text = (sam.bam_header if binary else sam.sam_header)(before)
            self._groups = read_groups(text)

    def context(self, records: RecordText) -> ReadContext:
        """Return the context of records read, in any thread, after ``read_header``."""
        if not self.alignments:
            text, firsts, stops = records.between(0, 1)
            return ReadContext.of_lines(text, firsts + 1, stops, self._path)
        if isinstance(self._parser, sam.BamParser):
            (span,), places = records.joined()
            return ReadContext.of_bam_records(span.text, places[:, ::2], self._path, self._groups)
        return ReadContext.of_lines(*records.between(1, 2), self._path, self._groups)

    def bytes_read(self) -> int:
        """Return how many (compressed) bytes of the file have been read."""
        return 0 if self._raw is None else self._raw.bytes_read

    def fill(self, buffer: RecordBuffer, *, cut: bool = False) -> int:
        """Read records into the buffer until it is FULL, CUT within one, or the file ends (MORE).

        Raises DataError for what cannot be read, once all before it is in the buffer.
        """
        try:
            text = self._open(buffer)
            while self._parser is not None:
                begin = int(text.place[raw_file.AT])
                try:
                    stop = self._parser.parse(buffer, cut=cut)
                finally:
                    buffer.keep(text.array, begin, int(text.place[raw_file.AT]))
                    warn_of_plus(self._shown, int(text.place[raw_file.PLUS]))
                if stop != MORE or text.ended:
                    return stop
                if self._is_due(buffer):
                    return FULL
                with self._reading(buffer):
                    text.more()
        except raw_file.FormatError as error:
            record = max(1, self._record(buffer))
            known = error.name if error.name and error.name.isprintable() else None
            raise DataError(str(error), file=self._shown, record=record, name=known) from None
        return MORE

    def side_by_side(
        self, buffer: RecordBuffer, work: Callable[[TextPiece], R]
    ) -> Iterator[Worked[R]]:
        """Yield the work on pieces of whole records, as long as they can be parsed in parallel.

        ``fill`` continues after them. buffer: empty; afterwards it knows how many records there
        were. Raises DataError as ``fill`` does.
        """
        text, team, plain = self._open(buffer), self._team, self._plain
        if not isinstance(self._parser, FastqParser):
            return
        line: Any
        if plain is not None and self._remote_readers is not None:
            line = self._remote_readers.parsed(self._path, plain)
        elif team is not None and self._large:
            line = self._by_team(team, text, buffer, work)
        else:
            return
        self._stack.callback(line.close)
        lines, at = 1, 0 if plain is None else plain.first
        while True:
            try:
                done = next(line, None)
            except CannotReadError as error:
                with self._reading(buffer):
                    raise error.cause from None
            if done is None or done.worked is None:
                break
            if plain is not None:
                at = done.region.stop
                self._has_read(at)
            for worked in done.worked:
                buffer.pass_by(worked.records)
                yield worked
            warn_of_plus(self._shown, done.plus and lines - 1 + done.plus)
            lines += done.lines
        if plain is None:
            blocks = unparsed(done, line, text.blocks)
        else:
            line.close()
            if done is not None and isinstance(done.region, raw_file.TextBlock):
                again = done.region.stop - done.region.first
                blocks = unparsed(done, iter(()), self._from(at + again))
            else:
                blocks = self._from(at)
        self._text = raw_file.Text(blocks)
        self._text.place[raw_file.LINE] = lines
        self._parser = FastqParser(self._text)

    def _by_team(
        self, team: Team, text: raw_file.Text, buffer: RecordBuffer, work: Callable[[TextPiece], R]
    ) -> Iterator[Parsed[R]]:
        def parse(region: raw_file.TextBlock | raw_file.FileRegion) -> Parsed[R]:
            return parsed(region, _like(buffer, raw_file.REGION_BYTES), work, team.stages)

        parts: Iterator[raw_file.TextBlock | raw_file.FileRegion] = regions(text)
        if self._plain is not None:
            team.stages.shared.add("read")
            size = self._plain.stop - self._plain.first
            if self._forks and team.threads >= FORK_THREADS and size >= FORK_BYTES:
                return _by_processes(self._plain, team, buffer, work)
            parts = file_regions(self._plain, raw_file.REGION_BYTES)
        # the consumer may work on a region itself while all others finish one each
        return team.line(parts, parse, 2 * team.threads + 2, pulls="parse", works="parse")

    def _open(self, buffer: RecordBuffer) -> raw_file.Text:
        """Return the text of the file, opened and recognized on the first call."""
        if self._text is None:
            with self._reading(buffer):
                self._text = raw_file.Text(self._blocks())
                self._parser = self._recognized(self._text)
        return self._text

    @property
    def _large(self) -> bool:
        """Whether its text comes in blocks large enough to parse in parallel."""
        threads = 1 if self._team is None or self._full else self._team.threads
        return threads >= LEAST_THREADS and self._raw is not None and self._raw.regular

    def _is_due(self, buffer: RecordBuffer) -> bool:
        """Whether buffered whole records from a pipe have waited long enough."""
        assert self._parser is not None
        if self._flush_seconds is None or self._parser.begins_records or not buffer.waiting:
            self._flush_at = None
            return False
        now = time.monotonic()
        self._flush_at = self._flush_at or now + self._flush_seconds
        if now < self._flush_at:
            return False
        self._flush_at = None
        return True

    @contextmanager
    def _reading(self, buffer: RecordBuffer) -> Iterator[None]:
        try:
            yield
        except _READ_ERRORS as error:
            problem = _PROBLEMS.get(type(error)) or (
                f"cannot be read: {str(error) or type(error).__name__}"
            )
            record = self._record(buffer) or None
            raise DataError(problem, file=self._shown, record=record) from None

    def _record(self, buffer: RecordBuffer) -> int:
        if self._parser is None:
            # a lone @ may begin FASTQ or SAM
            return int(self._text is not None and self._text.start().lstrip() == b"@")
        return buffer.records + (not self._parser.begins_records)

    def _recognized(self, text: raw_file.Text) -> Parser | None:
        """Return the parser for the format; None for an empty file."""
        # a pipe may deliver the first bytes one by one
        while True:
            if text.start(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
                text.place[raw_file.AT] += len(codecs.BOM_UTF8)
            start = text.start().lstrip()[: sam.MOST_START]
            known = start[:1] in (b">", b"#", b"@") or len(start) >= raw_file.LONGEST_MAGIC
            if (known and not sam.may_begin_sam(start)) or text.ended:
                break
            text.more()
        if encoding := wide_encoding(text.start(4)):
            problem = f"is {encoding} text: convert it with iconv -f {encoding} -t UTF-8"
            raise DataError(problem, file=self._shown)
        if start[:1] in (b">", b"#"):
            return FastaParser(text)
        if sam.begins_sam(start):
            return sam.SamParser(text)
        if start[:1] == b"@":
            return FastqParser(text)
        if start.startswith(sam.BAM_MAGIC):
            return sam.BamParser(text, self._lacks_end)
        if start.startswith(b"PK\x03\x04"):
            raise DataError("is a ZIP archive: unzip it", file=self._shown)
        if start:
            raise DataError("not a FASTA, FASTQ, SAM, BAM or CRAM file", file=self._shown)
        return None

    def _blocks(self) -> Iterator[raw_file.TextBlock]:
        """Yield the decompressed text, read by a thread a few blocks ahead."""
        file: Any
        if self._opened is not None:
            file = self._opened
        elif self._path == STDIN:
            file = sys.stdin.buffer
        else:
            file = self._stack.enter_context(open(self._path, "rb"))
        self._raw = raw = raw_file.RawFile(file)
        if raw.regular:
            self._flush_seconds = None
        fastq = raw.magic.startswith(b"@") and not sam.may_begin_sam(raw.magic)
        if (self._large or self._remote_readers) and fastq and (extent := raw.extent):
            self._plain = raw_file.FileRegion(*extent)
            return self._from(self._plain.first)
        pause = None if self._flush_seconds is None else raw_file.new_block(0)
        blocks, self._watched = text_blocks(
            raw, self._stack, self._team, shown=self._shown, pause=pause,
            size=raw_file.REGION_BYTES if self._large else raw_file.BLOCK_BYTES,
        )  # fmt: skip
        self._stack.callback(blocks.close)
        return iter(blocks)

    def _from(self, at: int) -> Iterator[raw_file.TextBlock]:
        """Yield an uncompressed file from a place on, including what is appended meanwhile."""
        assert self._raw is not None
        self._has_read(at)
        self._raw.go_to(at)
        blocks = raw_file.plain_blocks(self._raw, raw_file.BLOCK_BYTES)
        yield from blocks if self._team is None else counted(blocks, self._team, "read")

    def _has_read(self, stop: int) -> None:
        """Note that an uncompressed file has been read up to ``stop``."""
        assert self._plain is not None
        assert self._raw is not None
        size = stop - self._plain.first
        if self._team is not None:
            self._team.stages.count("read", size - self._raw.bytes_read)
        self._raw.bytes_read = size

    def _lacks_end(self) -> bool:
        return self._watched is not None and self._watched.lacks_end_block()


def _by_processes(
    file: raw_file.FileRegion, team: Team, buffer: RecordBuffer, work: Callable[[TextPiece], R]
) -> Iterator[Parsed[R]]:
    # smaller than for threads, since nobody waits for the GIL
    size = raw_file.REGION_BYTES // 2
    here = os.getpid()

    def parse(region: raw_file.FileRegion) -> Iterator[Parsed[R]]:
        # what ends a forked process is found, and raised, when this one parses the region
        mapped = os.getpid() != here
        yield parsed(region, _like(buffer, size), work, team.stages, mapped=mapped)

    parts = file_regions(file, size)
    return forked(parts, parse, team.threads, team.stages, works="parse", takes="write")


def _like(buffer: RecordBuffer, size: int) -> RecordBuffer:
    """Return an empty buffer like this one for a region of so many bytes."""
    return buffer.like(size // 2)  # letters; the other half are qualities


def _read_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that decompressors raise for damaged content."""
    import lzma
    import zlib

    errors: list[Any] = [EOFError, OSError, ValueError, zlib.error, lzma.LZMAError]
    try:
        from isal.isal_zlib import error as isal_error

        errors.append(isal_error)
    except ImportError:
        pass
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError
    else:
        from backports.zstd import ZstdError
    errors.append(ZstdError)
    return tuple(errors)


_READ_ERRORS = _read_errors()

_WIDE = (
    # that of UTF-16LE begins that of UTF-32LE
    (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"),
)  # fmt: skip


def wide_encoding(start: bytes) -> str | None:
    """Return the encoding, for iconv, of FASTA or FASTQ that starts so; None for one byte a letter.

    start: the first four bytes. Without a mark, iconv needs the order of bytes.
    """
    for mark, encoding in _WIDE:
        if start.startswith(mark):
            return encoding
    for encoding in "UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE":
        if start.startswith((">".encode(encoding), "@".encode(encoding))):
            return encoding
    return None


_PROBLEMS: dict[type, str] = {
    EOFError: "the compressed stream is truncated, or other bytes follow it",
    FileNotFoundError: "no such file",
    IsADirectoryError: "is a directory, not a sequence file",
    PermissionError: "permission denied",
}
