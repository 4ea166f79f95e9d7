"""A parser of one format: a kernel takes records; the one it stops at is read again for its fault.

The base of those that count a record once it is whole; ``parse`` is what ``SequenceSource`` calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamer.errors import DataError
from streamer.sequences.filling import FAULT
from streamer.sequences.record_buffer import RecordBuffer
from streamer.sequences.text_window import FormatError, Text
from trie.codes import InvalidBaseError, encode


class RecordParser(ABC):
    """Takes the records of a text."""

    begins_records = False
    """Whether a record is counted once it has begun, or once it is whole."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def parse(self, buffer: RecordBuffer, *, cut: bool) -> int:
        """Take records until the buffer is FULL or the text ends (MORE).

        FormatError or DataError for a faulty record, once all before it are in the buffer.
        """
        stop = self._take_records(buffer)
        if stop == FAULT:
            raise self._fault(buffer)
        return int(stop)

    @abstractmethod
    def _take_records(self, buffer: RecordBuffer) -> int:
        """Take records; FULL, MORE, or FAULT in front of a faulty one."""

    @abstractmethod
    def _faulty(self) -> tuple[str, bytes]:
        """Name and letters of the record that the text begins with; FormatError for a fault."""

    def _fault(self, buffer: RecordBuffer) -> FormatError | DataError:
        """What is wrong with the record that the text begins with."""
        try:
            name, letters = self._faulty()
            encode(letters)
        except FormatError as error:
            return error
        except InvalidBaseError as error:
            return buffer.bad_letter(error.byte, error.position, name)
        message = f"a valid record was refused: {name}"
        raise AssertionError(message)
