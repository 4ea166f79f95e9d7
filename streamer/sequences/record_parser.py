"""The base of parsers: a kernel takes records, the one it stops at is read again for its error.

For formats whose records count once they are complete; ``SequenceSource`` calls ``parse``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamer.errors import DataError
from streamer.sequences.filling import FAULT
from streamer.sequences.record_buffer import RecordBuffer
from streamer.sequences.record_limit import most_text
from streamer.sequences.text_window import FormatError, Text
from trie.codes import InvalidBaseError, encode


class RecordParser(ABC):
    """Parses the records of a text."""

    begins_records = False
    """Whether a record counts once it has begun, rather than once it is complete."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def parse(self, buffer: RecordBuffer, *, cut: bool) -> int:
        """Take records until the buffer is FULL or the text ends (MORE).

        Raises FormatError or DataError for a faulty record, once all before it are in the buffer.
        """
        stop = self._take_records(buffer)
        buffer.check_sizes()
        if stop == FAULT:
            raise self._fault(buffer)
        if len(self._text) > most_text():
            raise buffer.too_long(buffer.waiting)
        return int(stop)

    @abstractmethod
    def _take_records(self, buffer: RecordBuffer) -> int:
        """Take records; return FULL, MORE, or FAULT before a faulty one."""

    @abstractmethod
    def _faulty(self) -> tuple[str, bytes]:
        """Parse name and letters of the record at the start of the text, or raise FormatError."""

    def _fault(self, buffer: RecordBuffer) -> FormatError | DataError:
        """Return the error in the record at the start of the text."""
        try:
            name, letters = self._faulty()
            encode(letters)
        except FormatError as error:
            return error
        except InvalidBaseError as error:
            return buffer.bad_letter(error.byte, error.position, name)
        message = f"a valid record was refused: {name}"
        raise AssertionError(message)
