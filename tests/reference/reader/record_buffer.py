"""Records being read: letters become codes, a byte each, a few megabytes at a time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.errors import DataError
from streamer.sequences.read_batch import ReadBatch, bad_name
from trie.codes import InvalidBaseError, encode, shown_byte

ENCODED_AT_ONCE = 4_000_000
GROWTH = 8
"""The code buffer grows by an eighth. The system remaps pages instead of copying bytes."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Records, of which the first may begin before the piece and the last may continue after it.

    first: the number of the first record, from 0. start: its symbols before this piece. again: how
    many of this piece's first symbols the previous piece also had. continues: the last record
    continues in the next piece.
    """

    reads: ReadBatch
    first: int = 0
    start: int = 0
    again: int = 0
    continues: bool = False


class RecordBuffer:
    """Records, or parts of them, until there are enough for a ``TextPiece``.

    shown: the file's name in errors. size, records: new symbols and records that are enough. room:
    codes to reserve memory for if letters come in several parts.
    """

    def __init__(self, shown: str, size: int, records: int, room: int = 0) -> None:
        self._shown = shown
        self._size = size
        self._records = records
        self._room = room
        self._first = self._start = 0
        self._begin([], np.empty(0, dtype=np.uint8))

    def _begin(self, names: list[str], codes: NDArray[np.uint8]) -> None:
        """Begin a piece, with the last codes of a record that continues, if any."""
        self._names = names
        self._starts = [0] * len(names)
        self._codes = codes
        self._filled = self._again = codes.size
        self._letters: list[bytes] = []
        self._end = codes.size
        self._enough = codes.size + self._size
        self.full = False
        """Whether there is enough for a piece."""

    def add(self, name: str | None, letters: bytes) -> None:
        """Add letters of a new record, or, without a name, of the last one."""
        if name is not None:
            self._names.append(name)
            self._starts.append(self._end)
        self._letters.append(letters)
        self._end += len(letters)
        if self._end - self._filled >= ENCODED_AT_ONCE:
            self._encode()
        self.full = self._end >= self._enough or len(self._names) >= self._records

    def piece(self, overlap: int | None = None) -> TextPiece:
        """Everything buffered; DataError for the first record with a fault.

        overlap: the last record continues, and that many of its symbols are repeated in the next
        piece.
        """
        self._encode()
        if bad := bad_name(self._names):
            raise DataError(bad[1], file=self._shown, record=self._first + bad[0] + 1)
        if self._codes.base is None:
            self._codes.resize(self._filled, refcheck=False)
        codes = self._codes[: self._filled]
        offsets = np.array([*self._starts, codes.size], dtype=np.int64)
        reads = ReadBatch(self._names, offsets, codes)
        made = TextPiece(reads, self._first, self._start, self._again, overlap is not None)
        if overlap is None:
            self._first += len(self._names)
            self._start = 0
            self._begin([], np.empty(0, dtype=np.uint8))
        else:
            repeated = min(overlap, codes.size - self._starts[-1])
            before = self._start if len(self._names) == 1 else 0
            self._first += len(self._names) - 1
            self._start = before + codes.size - repeated - self._starts[-1]
            self._begin(self._names[-1:], codes[codes.size - repeated :])
        return made

    def before(self, error: DataError) -> tuple[TextPiece, DataError]:
        """The buffered records before a faulty one, and the first error."""
        self._drop(max(0, (error.record or 1) - 1 - self._first))
        try:
            return self.piece(), error
        except DataError as earlier:
            return self.before(earlier)

    def _drop(self, record: int) -> None:
        """Drop all buffered records from ``record`` on."""
        if record >= len(self._names):
            return
        size = self._starts[record]
        letters = b"".join(self._letters)[: max(0, size - self._filled)]
        self._filled = min(self._filled, size)
        self._letters = [letters]
        del self._names[record:], self._starts[record:]

    def _encode(self) -> None:
        letters = b"".join(self._letters)
        try:
            codes = encode(letters)
        except InvalidBaseError as error:
            at = self._filled + error.position
            index = bisect_right(self._starts, at) - 1
            position = at - self._starts[index] + (self._start if index == 0 else 0)
            problem = f"{shown_byte(error.byte)} is not a base"
            name = self._names[index]
            raise DataError(
                problem,
                file=self._shown,
                record=self._first + index + 1,
                name=name if name.isprintable() else None,
                position=position + 1,
            ) from None
        self._letters = []
        size = self._filled + codes.size
        if self._filled == 0:
            self._codes = codes
        else:
            if size > self._codes.size:
                room = max(size, self._room, self._codes.size + self._codes.size // GROWTH)
                if self._codes.base is None:
                    self._codes.resize(room, refcheck=False)
                else:
                    old, self._codes = self._codes, np.empty(room, dtype=np.uint8)
                    self._codes[: self._filled] = old[: self._filled]
            self._codes[self._filled : size] = codes
        self._filled = size
