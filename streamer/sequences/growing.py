"""Read the whole records of a FASTQ file that is still being written, from a given offset on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streamer.errors import DataError
from streamer.sequences.context import ReadContext
from streamer.sequences.fastq import LINES, FastqParser, warn_of_plus
from streamer.sequences.filling import FULL
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import RecordBuffer, TextPiece
from streamer.sequences.text_window import (
    AT,
    BLOCK_BYTES,
    LINE,
    PLUS,
    FormatError,
    Text,
    TextBlock,
    new_block,
)


class WholeRecords:
    """The records of plain FASTQ in ``file``, which is open for reading, from byte ``offset`` on.

    Iterating yields batches with their context, and raises DataError for a faulty record once all
    before it have been yielded. Afterwards ``offset`` is the end of the last whole record, and
    ``rest`` the number of bytes after it. records: how many precede ``offset``. last: the file is
    complete, so its last line needs no line end; if ``rest`` is nonzero all the same, ``problem``
    says what is wrong with it.
    """

    def __init__(
        self,
        path: str,
        file: Any,
        offset: int,
        records: int,
        *,
        last: bool,
        batch_bases: int,
        batch_reads: int,
    ) -> None:
        self.offset = offset
        self.rest = 0
        self.problem: DataError | None = None
        self._path = path
        self._file = file
        self._last = last
        self._buffer = RecordBuffer(path, batch_bases, batch_reads, keeps_text=True, first=records)

    def __iter__(self) -> Iterator[ReadBatch]:
        """Iterate; only once."""
        self._file.seek(self.offset)
        text = Text(self._blocks())
        text.place[LINE] = LINES * self._buffer.records + 1
        parser = FastqParser(text)
        buffer, fault = self._buffer, None
        try:
            while not text.ended:
                while self._parse(parser, text) == FULL:
                    yield self._with_context(buffer.piece())
                text.more()
            self.rest = len(text)
            if self.rest and self._last:
                try:
                    self._parse(parser, text)
                    self.rest = 0
                except DataError as error:
                    self.problem = error
            self.offset -= self.rest
            last = buffer.piece()
        except DataError as error:
            last, fault = buffer.before(error)
        if len(last.reads):
            yield self._with_context(last)
        if fault is not None:
            raise fault

    def _with_context(self, piece: TextPiece) -> ReadBatch:
        assert piece.text is not None
        text, firsts, stops = piece.text.between(0, 1)
        context = ReadContext.of_headers(text, firsts + 1, stops, self._path)
        return replace(piece.reads, context=context)

    def _parse(self, parser: FastqParser, text: Text) -> int:
        begin = int(text.place[AT])
        try:
            return parser.parse(self._buffer, cut=False)
        except FormatError as error:
            name = error.name if error.name and error.name.isprintable() else None
            record = self._buffer.records + 1
            raise DataError(str(error), file=self._path, record=record, name=name) from None
        finally:
            self._buffer.keep(text.array, begin, int(text.place[AT]))
            warn_of_plus(self._path, int(text.place[PLUS]))

    def _blocks(self) -> Iterator[TextBlock]:
        while True:
            block = new_block(BLOCK_BYTES)
            size = self._file.readinto(block.array.data[block.first : block.stop])
            if not size:
                return
            self.offset += size
            yield block._replace(stop=block.first + size)
