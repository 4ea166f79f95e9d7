"""Records being read: names and codes in columns that parsers fill, and their text if it is kept.

A kernel takes records until the buffer is full; the one it stops at is parsed again for its error
(``RecordParser``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.errors import DataError
from streamer.sequences.raw_file import BLOCK_BYTES, ROOM_BYTES, FormatError, Text
from streamer.sequences.read_batch import COUNT_BYTES, PackedNames, ReadBatch, bad_name, put_name
from streamer.sequences.record_limit import most_bases, most_text, over_limit
from trie.codes import InvalidBaseError, encode, shown_byte
from trie.cpu import array_pool
from trie.cpu.intrinsics import prefetch
from trie.cpu.jit import inner, njit
from trie.cpu.vectors import SLACK, copy_line

_AHEAD = 16  # records whose cache lines are prefetched


class Span(NamedTuple):
    """Parsed text[begin:stop], with the records up to number ``end`` that no earlier span has."""

    text: NDArray[np.uint8]
    begin: int
    stop: int
    end: int


class RecordText(NamedTuple):
    """Records in the blocks of text they were parsed from, none spread over two.

    spans: in order; SLACK bytes after each can be read (``trie.cpu.vectors``). places:
    int64[records, 3]: where in its span's text each record begins, its first line ends, and the
    record ends. The line end belongs to the record, not to its first line.
    """

    spans: Sequence[Span]
    places: NDArray[np.int64]

    def joined(self) -> RecordText:
        """Join the spans into one that begins with the first; copied if there are several."""
        if len(self.spans) == 1:
            return self
        text = np.concatenate(
            (*(span.text[span.begin : span.stop] for span in self.spans), np.zeros(SLACK, np.uint8))
        )
        places = self.places.copy()
        first = size = 0
        for span in self.spans:
            places[first : span.end] += size - span.begin
            first, size = span.end, size + span.stop - span.begin
        return RecordText([Span(text, 0, size, len(places))], places)

    def between(
        self, begin: int, end: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return the bytes of each record from one of its ``places`` up to another.

        A text, and where each begins and ends in it; they are copied if there are several spans.
        """
        # contiguous: kernels would be compiled once more for a column
        firsts, stops = (np.ascontiguousarray(self.places[:, place]) for place in (begin, end))
        if len(self.spans) == 1:
            return self.spans[0].text, firsts, stops
        ends = np.cumsum(stops - firsts)
        out = array_pool.empty((int(ends[-1]) if ends.size else 0) + SLACK, np.uint8)
        first = 0
        for span in self.spans:
            _copy_between(span.text, self.places, begin, end, first, span.end, ends, out)
            first = span.end
        return out, ends - (stops - firsts), ends


class RecordForm(NamedTuple):
    """The format of the records of a file: FASTA, FASTQ, SAM (also for CRAM) or BAM.

    header: what precedes the records in SAM or BAM.
    """

    name: str
    header: bytes = b""

    @property
    def aligned(self) -> bool:
        """Whether they are alignments, or unaligned reads in such a format."""
        return self.name in ("SAM", "BAM")


def taken(parts: Sequence[RecordText], chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the chosen records, uint8; those of several parts alternate."""
    ends = np.empty((len(parts), chosen.size), np.int64)
    out = array_pool.empty(_ends(tuple(part.places for part in parts), chosen, ends), np.uint8)
    for part, own in zip(parts, ends, strict=True):
        first = 0
        for span in part.spans:
            _copy(span.text, part.places, chosen, first, span.end, own, out)
            first = span.end
    return out


NO_MARKS, FIRSTS, LASTS, BOTH = range(4)
"""What follows numbers that replace names: nothing, /1, /2, or both in turn."""

_LINE_END, _CARRIAGE = 0x0A, 0x0D
_DIGITS = 24  # bytes of a number with its mark, at most


def numbered(data: Any, fastq: bool, written: int, marks: int) -> tuple[NDArray[np.uint8], int]:
    """Return records named by numbers, and how many there are with the ``written`` ones."""
    text = np.frombuffer(data, np.uint8)
    out = np.empty(text.size + _DIGITS * int(np.count_nonzero(text == _LINE_END)), np.uint8)
    size, written = _number(text, fastq, written, marks, out)
    return out[:size], written


@njit(cache=True, nogil=True)
def _number(text, fastq, written, marks, out):
    to = 0
    line = 0
    at = 0
    while at < text.size:
        end = at
        while text[end] != _LINE_END:
            end += 1
        header = line % 4 == 0 if fastq else text[at] == ord(">")
        if header:
            number = (written // 2 if marks == BOTH else written) + 1
            out[to] = text[at]
            to += 1
            digits = 1
            while number // 10**digits:
                digits += 1
            for digit in range(digits - 1, -1, -1):
                out[to] = 0x30 + number // 10**digit % 10
                to += 1
            if marks != NO_MARKS:
                out[to] = ord("/")
                last = written % 2 == 1 if marks == BOTH else marks == LASTS
                out[to + 1] = 0x32 if last else 0x31
                to += 2
            written += 1
        elif fastq and line % 4 == 2:
            out[to] = text[at]
            to += 1
        if header or (fastq and line % 4 == 2):
            at = end - (end > at and text[end - 1] == _CARRIAGE)
        while at <= end:
            out[to] = text[at]
            to += 1
            at += 1
        line += 1
    return to, written


def first_apart(names: PackedNames, other: PackedNames, step: int = 1) -> int:
    """Return the first pair whose names are not those of mates; -1 if there is none.

    Mates have the same name, or names that end in /1 and /2; any ASCII character other than a
    letter or digit may replace the slash. The shorter sequence ends the comparison. step: 2 if both
    are the names of one file, in which mates follow each other.
    """
    return int(_first_apart(names.memory, names.bounds, other.memory, other.bounds, step))


@njit(cache=True, nogil=True)
def _first_apart(names, bounds, mates, mate_bounds, step):
    for place in range(min(len(bounds), len(mate_bounds)) // step):
        first, stop = bounds[step * place]
        mate, mate_stop = mate_bounds[step * place + step - 1]
        length = stop - first
        same = length == mate_stop - mate
        for i in range(length - 1):
            same = same and names[first + i] == mates[mate + i]
        if same and length and names[stop - 1] != mates[mate_stop - 1]:
            same = (
                length > 1
                and names[stop - 1] == 0x31
                and mates[mate_stop - 1] == 0x32
                and _is_mark(names[stop - 2])
            )
        if not same:
            return place
    return -1


@njit(cache=True, nogil=True)
def _is_mark(byte):
    """Return whether a byte is ASCII, but neither a letter nor a digit."""
    letter = 0x61 <= byte | 0x20 <= 0x7A
    return not letter and not 0x30 <= byte <= 0x39 and byte < 0x80


# keeps the GIL: releasing it takes longer than one step per record
@njit(cache=True)
def _ends(places, chosen, ends):
    """Compute where the chosen records end, interleaving parts: int64[parts, records].

    Returns where the last one ends.
    """
    end = np.int64(0)
    for record in range(chosen.size):
        for part in range(len(places)):
            if chosen[record]:
                end += places[part][record, 2] - places[part][record, 0]
            ends[part, record] = end
    return end


@njit(cache=True, nogil=True)
def _copy_between(text, places, begin, end, first, stop, ends, out):
    """Copy those parts of the records from ``first`` up to ``stop`` so that they end at ``ends``.

    What is written beyond one is overwritten by the next.
    """
    for record in range(first, stop):
        later = places[min(record + _AHEAD, stop - 1), begin]
        prefetch(text, later)
        prefetch(text, later + SLACK - 1)
        to = ends[record] - places[record, end]
        for at in range(places[record, begin], places[record, end], SLACK):
            copy_line(text, at, out, to + at)


@njit(cache=True, nogil=True)
def _copy(text, places, chosen, first, end, ends, out):
    """Copy the chosen records from ``first`` up to ``end`` so that they end at ``ends``."""
    for record in range(first, end):
        if not chosen[record]:
            continue
        begin, stop = places[record, 0], places[record, 2]
        to = ends[record] - stop
        if stop - begin < SLACK:
            for at in range(begin, stop):
                out[to + at] = text[at]
            continue
        last = stop - SLACK
        for at in range(begin, last, SLACK):
            copy_line(text, at, out, to + at)
        copy_line(text, last, out, to + last)


FILLED, RECORDS, NAMED, ODD, ENOUGH, MOST = range(6)
"""Indices into the state of a ``RecordBuffer``; see its ``columns``."""

MORE, FULL, CUT, FAULT, ROOM = range(5)
"""Why a parser stops: it needs more text; the buffer is full, at or within a record; a fault; the
buffer's columns need more room.
"""


GROWTH = 8
"""Full codes grow by an eighth of their memory; the kernel remaps pages and copies no bytes."""

_ENDLESS = 1 << 62
_LARGEST = 1 << 25  # codes reserved at first, at most
_BEYOND = ROOM_BYTES + BLOCK_BYTES + SLACK  # spare codes that a parser may need
_RECORD_BYTES = 2  # bytes of text per record, at least


_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Records of a file; the first may continue the previous piece, the last may go on in the next.

    first: the number of the first record, from 0. start: its symbols before this piece. again: how
    many leading symbols of this piece repeat the previous one. continues: the last record goes on
    in the next piece. text: the records verbatim, if the buffer keeps them.
    """

    reads: ReadBatch
    first: int = 0
    start: int = 0
    again: int = 0
    continues: bool = False
    text: RecordText | None = None


Columns = tuple[
    NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64],
    NDArray[np.int64],
]  # fmt: skip


class RecordBuffer:
    """Collects records, or parts of them, until they fill a ``TextPiece``.

    shown: the file's name in errors. size, records: how many new symbols and records fill a piece.
    letters: store letters instead of codes. keeps_text: pieces, which are then never cut, carry the
    text of their records. first: the number of the first record, from 0. beyond: spare room for
    symbols of a text beyond those that fill a piece.
    """

    def __init__(
        self,
        shown: str,
        size: int,
        records: int,
        *,
        letters: bool = False,
        keeps_text: bool = False,
        first: int = 0,
        beyond: int = _BEYOND,
    ) -> None:
        self.letters = letters
        self._keeps_text = keeps_text
        self._shown = shown
        self._size = min(size, _ENDLESS)
        self._beyond = beyond
        self._state = np.zeros(6, dtype=np.int64)
        self._state[MOST] = min(records, _ENDLESS)
        self._first, self._start = first, 0
        self._names = np.empty(COUNT_BYTES, dtype=np.uint8)
        self._bounds, self._places = np.empty((0, 2), np.int64), np.empty((0, 3), np.int64)
        self._begin(np.empty(0, dtype=np.uint8))

    def _begin(self, codes: NDArray[np.uint8], name: tuple[int, int] | None = None) -> None:
        """Begin a piece, with the last codes of the record that goes on, and where its name is.

        It has room for as many names and records as the previous piece had, and of codes, if only
        records fill a piece, for a few more: larger arrays would drive all others out of the pool.
        """
        before = self._names
        self._again = codes.size
        size, filled = min(self._size, _LARGEST), int(self._state[FILLED])
        if self._size == _ENDLESS and filled:
            size = min(filled + filled // GROWTH, size)
        room = codes.size + size + self._beyond
        self._codes = array_pool.empty(room, np.uint8)
        self._codes[: codes.size] = codes
        self._names = array_pool.empty(before.size, np.uint8)
        self._bounds, self._places = _as_long(self._bounds), _as_long(self._places)
        self._starts = array_pool.empty(len(self._bounds) + 1, np.int64)
        self._starts[0] = 0
        self._spans: list[Span] = []
        self._state[:MOST] = codes.size, 0, COUNT_BYTES, 0, codes.size + self._size
        if name:
            _add_alone(before, *name, *self.columns(name[1] - name[0])[:-1])
            self._starts[0] = 0

    @property
    def records(self) -> int:
        """The number of records begun so far, in all pieces."""
        return self._first + int(self._state[RECORDS])

    @property
    def waiting(self) -> int:
        """The number of records buffered for the next piece."""
        return int(self._state[RECORDS])

    def like(self, size: int) -> RecordBuffer:
        """Return an empty buffer for records of the same file, with pieces of ``size`` symbols."""
        return RecordBuffer(
            self._shown,
            min(size, self._size),
            int(self._state[MOST]),
            keeps_text=self._keeps_text,
            beyond=ROOM_BYTES // 2 + SLACK,
        )

    def pass_by(self, records: int) -> None:
        """Count records that other buffers made by ``like`` have taken."""
        self._first += records

    def columns(self, size: int, *, likely: bool = False) -> Columns:
        """Return the columns, with room for what ``size`` bytes of text can hold.

        likely: reserve only what FASTQ typically needs; its parser asks again. state: int64[6]: the
        numbers of codes (FILLED), of RECORDS and of bytes of names (NAMED); ODD: nonzero if a name
        is not printable ASCII; how many codes (ENOUGH) and records (MOST) fill a piece. starts:
        int64, where each record begins in codes: uint8. names: uint8, and bounds: int64[:, 2], as
        in ``put_name``. places: as in ``place_record``.
        """
        filled, records, named, *_, most = self._state.tolist()
        symbols, letters, more = size, size + size // 64, size // _RECORD_BYTES
        if likely:
            symbols, letters, more = size // 2, size // 8, size // 128
        if (need := filled + symbols + SLACK) > self._codes.size:
            need = max(need, filled + filled // GROWTH)
            if self._codes.base is not None:
                own = np.empty(need, dtype=np.uint8)
                own[:filled] = self._codes[:filled]
                self._codes = own
            else:
                self._codes.resize(need, refcheck=False)
        if (need := named + letters + COUNT_BYTES + SLACK) > self._names.size:
            self._names = _larger(self._names, max(need, 2 * named), named)
        if (need := min(most, records + more + 1)) > len(self._bounds):
            need = max(need, 2 * records)
            self._bounds = _larger(self._bounds, need, records)
            self._starts = _larger(self._starts, need + 1, records)
            if self._keeps_text:
                self._places = _larger(self._places, need, records)
        columns = self._state, self._codes, self._starts, self._names, self._bounds
        return *columns, self._places

    def check_sizes(self) -> None:
        """Raise DataError for the first record over the limit; the last may be incomplete."""
        filled, records, *_ = self._state.tolist()
        if filled > most_bases():
            sizes = np.diff(self._starts[:records], append=filled)
            for record in np.flatnonzero(sizes > most_bases())[:1].tolist():
                raise self.too_long(record, self._name(record))

    def too_long(self, record: int, name: str = "") -> DataError:
        """Return the error for a record over the limit; ``record``: its number in this piece."""
        number = self._first + record + 1
        known = name if name.isprintable() else None
        return DataError(over_limit(), file=self._shown, record=number, name=known)

    def keep(self, text: NDArray[np.uint8], begin: int, stop: int) -> None:
        """Keep text[begin:stop], which a parser has taken; it must not change any more."""
        if self._keeps_text and (begin < stop or not self._spans):
            self._spans.append(Span(text, begin, stop, int(self._state[RECORDS])))

    def _kept(self, records: int) -> RecordText | None:
        if not self._keeps_text:
            return None
        placed = self._spans[-1].end if self._spans else 0
        places = self._places[:placed]
        if (places[:, 2] == places[:, 0]).any():
            return _ended(RecordText(self._spans, places).joined(), records)
        # some of the last records may have been dropped
        spans = [span._replace(end=min(span.end, records)) for span in self._spans]
        return RecordText(spans, _fitted(self._places, records))

    def piece(self, overlap: int | None = None, *, last: bool = False) -> TextPiece:
        """Return everything buffered; raise DataError for the first record with an invalid name.

        overlap: the last record goes on, and the next piece repeats that many of its symbols. last:
        there is no next piece.
        """
        filled, records, named, odd, *_ = self._state.tolist()
        if odd:
            self._check_names(records)
        codes = _fitted(self._codes, filled)
        self._starts[records] = filled
        offsets = _fitted(self._starts, records + 1)
        bounds = _fitted(self._bounds, records)
        names = PackedNames.in_memory(_fitted(self._names, named), named, bounds)
        reads = ReadBatch(names, offsets, codes)
        kept, cut = self._kept(records), overlap is not None
        made = TextPiece(reads, self._first, self._start, self._again, cut, kept)
        if last:
            return made
        if overlap is None:
            self._first += records
            self._start = 0
            self._begin(codes[:0])
        else:
            begin = int(offsets[-2])
            repeated = min(overlap, filled - begin)
            before = self._start if records == 1 else 0
            self._first += records - 1
            self._start = before + filled - repeated - begin
            first, stop = bounds[-1].tolist()
            self._begin(codes[filled - repeated :], (first, stop))
        return made

    def before(self, error: DataError) -> tuple[TextPiece, DataError]:
        """Return the buffered records before a faulty one, and the first error there is."""
        while True:
            self._drop(max(0, (error.record or 1) - 1 - self._first))
            try:
                return self.piece(), error
            except DataError as earlier:
                error = earlier

    def bad_letter(self, byte: int, position: int, name: str | None = None) -> DataError:
        """Return the error for a bad byte in the next record, or in the last if ``name`` is None.

        position: of the byte in the record, from 0; without a name, after the record's last code.
        """
        number = self.records + 1
        if name is None:
            records = int(self._state[RECORDS])
            number, name = self.records, self._name(records - 1)
            position += int(self._state[FILLED] - self._starts[records - 1])
            position += self._start if records == 1 else 0
        return DataError(
            f"{shown_byte(byte)} is not a base",
            file=self._shown,
            record=number,
            name=name if name.isprintable() else None,
            position=position + 1,
        )

    def _name(self, record: int) -> str:
        """Return the name of a buffered record; bytes that are not UTF-8 become surrogates."""
        first, stop = self._bounds[record].tolist()
        return self._names[first:stop].tobytes().decode("utf-8", "surrogateescape")

    def _check_names(self, records: int) -> None:
        if bad := bad_name([self._name(record) for record in range(records)]):
            raise DataError(bad[1], file=self._shown, record=self._first + bad[0] + 1)

    def _drop(self, record: int) -> None:
        """Drop that buffered record and everything after it."""
        if record < self._state[RECORDS]:
            named = self._bounds[record - 1, 1] if record else COUNT_BYTES
            self._state[: NAMED + 1] = self._starts[record], record, named


def _as_long(array: NDArray[_T], size: int = -1) -> NDArray[_T]:
    """Allocate an array of the same shape, or with ``size`` rows."""
    shape = (len(array) if size < 0 else size), *array.shape[1:]
    return array_pool.empty(math.prod(shape), array.dtype).reshape(shape)


def _larger(array: NDArray[_T], size: int, used: int) -> NDArray[_T]:
    longer = _as_long(array, size)
    longer[:used] = array[:used]
    return longer


def _fitted(array: NDArray[_T], size: int) -> NDArray[_T]:
    """Return the first elements, copied if the rest would waste more memory than they take."""
    return array[:size].copy() if 4 * size < len(array) else array[:size]


def _ended(text: RecordText, records: int) -> RecordText:
    """Return the first records of one span; the last of them may go on in the next."""
    span, places = text.spans[0], text.places[:records].copy()
    # the last one goes on in the record that was dropped
    stop = span.stop if records == span.end else int(text.places[records, 0])
    lasting = places[:, 2] == places[:, 0]
    places[lasting, 2] = np.append(places[1:, 0], stop)[lasting]
    if records and stop == span.stop and lasting[-1] and span.text[stop - 1] not in b"\r\n":
        # the file ends within a line
        span.text[stop] = ord("\n")
        places[-1, 2] += 1
    return RecordText([span._replace(end=records)], places)


@inner
def place_record(state, places, begin, line, end):
    """Note that the last record is text[begin:end] and its first line text[begin:line].

    Does nothing unless ``places`` are kept. A record that ends where it begins goes on in the next
    one.
    """
    if len(places):
        record = state[RECORDS] - 1
        places[record, 0] = begin
        places[record, 1] = line
        places[record, 2] = end


@inner
def add_record(text, first, stop, state, codes, starts, names, bounds):
    """Begin a record named by the first word of text[first:stop]."""
    record = state[RECORDS]
    begin, end, odd = put_name(text, first, stop, names, state[NAMED])
    bounds[record, 0] = begin
    bounds[record, 1] = end
    starts[record] = state[FILLED]
    state[NAMED] = end
    state[ODD] |= odd
    state[RECORDS] = record + 1


@njit(cache=True, nogil=True)
def _add_alone(text, first, stop, state, codes, starts, names, bounds):
    """``add_record``, callable from Python."""
    add_record(text, first, stop, state, codes, starts, names, bounds)


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
        raise AssertionError(f"a valid record was refused: {name}")
