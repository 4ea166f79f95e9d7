"""Where reads come from: channel, start time, run, barcode and sample.

For each of them, the first source with a valid value wins:

    channel      the tag ch, or the header's ch
    start_time   st, start_time
    run          runid, or the run of the read group
    barcode      BC, barcode, SM if that is a barcode; the suffix of the read group; the folder;
                 the file's name. "unclassified" is taken only if no source has another one
    sample       SM if that is no barcode; LB, sample_id; SM; the file's name as bcl-convert has it

    @read7 runid=8f3c ch=12 start_time=2024-02-22T15:52:51Z barcode=barcode04 sample_id=two
    @read8<TAB>ch:i:12<TAB>st:Z:2025-01-06T10:06:36.778+00:00<TAB>RG:Z:8f3c_hac@v5.0.0_barcode04

Guppy and older MinKNOW write the first form (key=value); Dorado, and MinKNOW since 26.01, the
second (SAM tags; nanoporetech.github.io/ont-output-specifications), with the barcode in SM and the
sample ID in LB. Kernels find the fields, which are separated by blanks or tabs, in any order. If a
field is repeated, the first one counts; for channel and time, the first valid one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit

RUN, GROUP, BARCODE, SAMPLE, LIBRARY = range(5)
"""The text fields of a read: runid, RG, barcode or BC, SM, sample_id or LB."""

FIELDS: Final = 5
BLANK, TAB = 0x20, 0x09
TIME_BYTES: Final = 35
"""Bytes of the longest time, 2025-01-06T10:06:36.123456789+00:00."""

_MOST: Final = 0x7FFFFFFF
_PLUS, _MINUS, _DOT, _ZERO, _COLON, _T = 0x2B, 0x2D, 0x2E, 0x30, 0x3A, 0x54


def _word(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


_CH, _CH_TAG = _word("ch="), _word("ch:i:")
_TIME, _TIME_TAG = _word("start_time="), _word("st:Z:")
_RUN, _GROUP_TAG = _word("runid="), _word("RG:Z:")
_BARCODE, _BARCODE_TAG = _word("barcode="), _word("BC:Z:")
_SAMPLE_TAG, _LIBRARY_TAG = _word("SM:Z:"), _word("LB:Z:")
_LIBRARY, _LIBRARY_OLD = _word("sample_id="), _word("sampleid=")
_SHAPE = _word("0000-00-00T00:00:00")
_DAYS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@njit(cache=True, nogil=True)
def find_fields(text, firsts, stops, blank, channels, times, spans):
    """Find the fields of lines text[firsts[i]:stops[i]], after the first word.

    blank: the byte that separates words besides a tab; SAM tags may contain blanks. channels:
    int32, initially -1. times: uint8[lines, TIME_BYTES], initially zero; a time without an offset
    gets a Z. spans: int64[FIELDS, lines, 2], initially zero, where each text begins and ends.
    """
    for line in range(firsts.size):
        stop = stops[line]
        at = _end_of_word(text, _next_word(text, firsts[line], stop, blank), stop, blank)
        while True:
            at = _next_word(text, at, stop, blank)
            if at >= stop:
                break
            end = _end_of_word(text, at, stop, blank)
            _take_field(text, at, end, channels, times, spans, line)
            at = end


@njit(cache=True, nogil=True)
def _next_word(text, at, stop, blank):
    while at < stop and (text[at] == blank or text[at] == TAB):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _end_of_word(text, at, stop, blank):
    while at < stop and text[at] != blank and text[at] != TAB:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _behind(text, at, end, word):
    """Return where the value after a word begins; ``end`` if the word differs or ends there."""
    if end - at <= word.size:
        return end
    for i in range(word.size):
        if text[at + i] != word[i]:
            return end
    return at + word.size


@njit(cache=True, nogil=True)
def _take_field(text, at, end, channels, times, spans, line):
    begin = min(_behind(text, at, end, _CH), _behind(text, at, end, _CH_TAG))
    if begin < end:
        if channels[line] < 0:
            channels[line] = number_at(text, begin, end)
        return
    begin = min(_behind(text, at, end, _TIME), _behind(text, at, end, _TIME_TAG))
    if begin < end:
        if times[line, 0] == 0:
            take_time(text, begin, end, times[line])
        return
    field = RUN
    begin = _behind(text, at, end, _RUN)
    if begin == end:
        field = GROUP
        begin = _behind(text, at, end, _GROUP_TAG)
    if begin == end:
        field = BARCODE
        begin = min(_behind(text, at, end, _BARCODE), _behind(text, at, end, _BARCODE_TAG))
    if begin == end:
        field = SAMPLE
        begin = _behind(text, at, end, _SAMPLE_TAG)
    if begin == end:
        field = LIBRARY
        begin = min(_behind(text, at, end, _LIBRARY), _behind(text, at, end, _LIBRARY_TAG))
        begin = min(begin, _behind(text, at, end, _LIBRARY_OLD))
    if begin < end and spans[field, line, 1] == 0:
        spans[field, line, 0] = begin
        spans[field, line, 1] = end


@njit(cache=True, nogil=True)
def find_tags(text, records, channels, times, spans):
    """Like ``find_fields``, for the tags of BAM records text[records[i, 0]:records[i, 1]].

    The records' lengths are valid; tags after one that does not fit are ignored (SAM specification
    4.2.4).
    """
    for record in range(len(records)):
        body = records[record, 0] + 4
        stop = records[record, 1]
        letters = _signed(text, body + 16, 4)
        cigar = np.int64(text[body + 12]) | np.int64(text[body + 13]) << 8
        at = body + 32 + np.int64(text[body + 8]) + 4 * cigar + (letters + 1) // 2 + letters
        while stop - at > 3:
            kind = text[at + 2]
            begin = at + 3
            end = _value_end(text, begin, stop, kind)
            if end > stop:
                break
            _take_tag(text, at, begin, end, kind, channels, times, spans, record)
            at = end


@njit(cache=True, nogil=True)
def _signed(text, at, size):
    """Decode a little-endian two's complement number of ``size`` bytes."""
    shift = np.uint64(64 - 8 * size)
    return np.int64(np.uint64(word_at(text, at)) << shift) >> np.int64(shift)


@njit(cache=True, nogil=True)
def _size_of(kind):
    """Return the size of a value of that type in bytes; 0 for a text, -1 if the type is unknown."""
    if kind in (0x41, 0x43, 0x63):  # A C c
        return 1
    if kind in (0x53, 0x73):  # S s
        return 2
    if kind in (0x49, 0x69, 0x66):  # I i f
        return 4
    return 0 if kind in (0x5A, 0x48) else -1  # Z H


@njit(cache=True, nogil=True)
def _value_end(text, begin, stop, kind):
    """Return where a tag's value ends; beyond ``stop`` if it does not fit."""
    if kind == 0x42:  # B: a type and a number of values
        if stop - begin < 5:
            return stop + 1
        size, count = _size_of(text[begin]), _signed(text, begin + 1, 4)
        return begin + 5 + size * count if size > 0 and count >= 0 else stop + 1
    size = _size_of(kind)
    if size:
        return begin + size if size > 0 else stop + 1
    while begin < stop and text[begin] != 0:
        begin += 1
    return begin + 1


@njit(cache=True, nogil=True)
def _take_tag(text, at, begin, end, kind, channels, times, spans, record):
    if text[at] == _CH_TAG[0] and text[at + 1] == _CH_TAG[1] and channels[record] < 0:
        size = end - begin
        if kind in (0x43, 0x53, 0x49):  # unsigned
            number = _signed(text, begin, size) & ((np.int64(1) << (8 * size)) - 1)
        elif kind in (0x63, 0x73, 0x69):
            number = _signed(text, begin, size)
        else:
            return
        channels[record] = number if 0 <= number <= _MOST else -1
    elif kind == 0x5A:
        end -= 1
        if text[at] == _TIME_TAG[0] and text[at + 1] == _TIME_TAG[1]:
            if times[record, 0] == 0:
                take_time(text, begin, end, times[record])
            return
        field = -1
        for own, tag in ((GROUP, _GROUP_TAG), (BARCODE, _BARCODE_TAG),
                         (SAMPLE, _SAMPLE_TAG), (LIBRARY, _LIBRARY_TAG)):  # fmt: skip
            if text[at] == tag[0] and text[at + 1] == tag[1]:
                field = own
        if field >= 0 and begin < end and spans[field, record, 1] == 0:
            spans[field, record, 0] = begin
            spans[field, record, 1] = end


@njit(cache=True, nogil=True)
def number_at(text, begin, end):
    """Parse text[begin:end] as a number from 0 to 2^31 - 1; -1 if it is not one."""
    value = np.int64(0)
    for at in range(begin, end):
        digit = np.int64(text[at]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        value = 10 * value + digit
        if value > _MOST:
            return -1
    return value if end > begin else -1


@njit(cache=True, nogil=True)
def take_time(text, begin, end, time):
    """Copy an RFC 3339 time, whose offset may be missing; ``time`` stays zero if it is invalid."""
    at = begin + _SHAPE.size
    if at > end:
        return
    for i in range(_SHAPE.size):
        letter, wanted = text[begin + i], _SHAPE[i]
        if wanted == _ZERO:
            if letter < _ZERO or letter > _ZERO + 9:
                return
        elif letter != wanted and (wanted != _T or letter != _T | 0x20):  # T may be t
            return
    year, month = number_at(text, begin, begin + 4), number_at(text, begin + 5, begin + 7)
    day = number_at(text, begin + 8, begin + 10)
    if month < 1 or month > 12 or day < 1 or day > _DAYS[month - 1]:
        return
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2 and day == 29 and not leap:
        return
    hour, minute = number_at(text, begin + 11, begin + 13), number_at(text, begin + 14, begin + 16)
    if hour > 23 or minute > 59 or number_at(text, begin + 17, begin + 19) > 60:
        return
    if at < end and text[at] == _DOT:
        digits = at + 1
        at = digits
        while at < end and _ZERO <= text[at] <= _ZERO + 9:
            at += 1
        if at == digits or at > digits + 9:
            return
    zone = end - at
    if zone == 6:
        if (text[at] != _PLUS and text[at] != _MINUS) or text[at + 3] != _COLON:
            return
        hours, minutes = number_at(text, at + 1, at + 3), number_at(text, at + 4, at + 6)
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
            return
    elif zone == 1:
        if text[at] | 0x20 != 0x7A:  # z
            return
    elif zone != 0:
        return
    for i in range(end - begin):
        time[i] = text[begin + i]
    if zone == 0:
        time[end - begin] = 0x5A  # Z


@njit(cache=True, nogil=True)
def check_times(texts, times):
    """Copy times to uint8[reads, width], zero-padded; return the first invalid one, or -1."""
    for read in range(len(texts)):
        end = texts.shape[1]
        while end > 0 and texts[read, end - 1] == 0:
            end -= 1
        if end > 0:
            take_time(texts[read], 0, end, times[read])
            if times[read, 0] == 0:
                return read
    return -1


@njit(cache=True, nogil=True)
def tell_apart(text, spans, numbers):
    """Number the distinct texts text[spans[i, 0]:spans[i, 1]] in order of first appearance.

    spans: int64[n, 2]. numbers: int32[n], -1 for an empty text. Returns the index of the first text
    with each number, int64. A text is compared with its predecessor first, since most are equal.
    """
    firsts = np.empty(16, dtype=np.int64)
    table = np.full(64, -1, dtype=np.int64)
    count = 0
    before = -1
    for i in range(len(spans)):
        if spans[i, 0] == spans[i, 1]:
            numbers[i] = -1
            continue
        if before >= 0 and _equal(text, spans, i, firsts[before]):
            numbers[i] = before
            continue
        if 2 * (count + 1) > table.size:
            firsts = np.concatenate((firsts, firsts))
            table = np.full(2 * table.size, -1, dtype=np.int64)
            for line in range(count):
                table[_place(text, spans, firsts[line], firsts, table)] = line
        at = _place(text, spans, i, firsts, table)
        if table[at] < 0:
            if count == firsts.size:
                firsts = np.concatenate((firsts, firsts))
            table[at] = count
            firsts[count] = i
            count += 1
        before = table[at]
        numbers[i] = before
    return firsts[:count].copy()


@njit(cache=True, nogil=True)
def _place(text, spans, i, firsts, table):
    """Return the table slot of an equal text, or a free slot for it."""
    h = np.uint64(0xCBF29CE484222325)  # FNV-1a
    for at in range(spans[i, 0], spans[i, 1]):
        h = (h ^ np.uint64(text[at])) * np.uint64(0x100000001B3)
    place = np.int64(h >> np.uint64(20)) & (table.size - 1)
    while table[place] >= 0 and not _equal(text, spans, i, firsts[table[place]]):
        place = (place + 1) & (table.size - 1)
    return place


@njit(cache=True, nogil=True)
def _equal(text, spans, first, other):
    length = spans[first, 1] - spans[first, 0]
    if spans[other, 1] - spans[other, 0] != length:
        return False
    for i in range(length):
        if text[spans[first, 0] + i] != text[spans[other, 0] + i]:
            return False
    return True


_NAME = "barcode[0-9]+|unclassified"
_BARCODE_NAME = re.compile(_NAME)
# <run>_<model>_<kit>_barcode04; kit names contain no underscore
_SUFFIX = re.compile(rf"[_-]({_NAME})$")
_IN_FILE_NAME = re.compile(rf"(?:^|_)({_NAME})(?=[_.]|$)")
_OF_ILLUMINA = re.compile(r"(.+)_S[0-9]+(?:_L[0-9]{3})?_[RI][0-9]_[0-9]{3}\.")
_UNCLASSIFIED = "unclassified"
_RUN_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{40})(?:_|$)")


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label per read: ``labels[index[i]]``, or none where ``index`` (int32) is -1."""

    labels: Sequence[str]
    index: NDArray[np.int32]

    def of(self, function: Callable[[str], str | None]) -> LabelColumn:
        """Replace each label by ``function(label)``; None removes it."""
        made = [function(label) for label in self.labels]
        labels = list(dict.fromkeys(label for label in made if label is not None))
        if labels == self.labels:
            return self
        places = {label: place for place, label in enumerate(labels)}
        numbers = [-1 if label is None else places[label] for label in made]
        # the last element serves index -1
        return LabelColumn(labels, np.array([*numbers, -1], dtype=np.int32)[self.index])

    def __or__(self, other: LabelColumn) -> LabelColumn:
        """Take labels from this column, and from the other one where this one has none."""
        if not (self.labels and other.labels):
            return self if self.labels else other
        second = np.where(other.index < 0, -1, other.index + len(self.labels))
        index = np.where(self.index < 0, second, self.index).astype(np.int32)
        return LabelColumn([*self.labels, *other.labels], index).of(lambda label: label)

    def used(self) -> LabelColumn:
        """Drop labels that no read has."""
        there, index = np.unique(self.index[self.index >= 0], return_inverse=True)
        numbers = np.full(self.index.size, -1, np.int32)
        numbers[self.index >= 0] = index
        return LabelColumn([self.labels[at] for at in there.tolist()], numbers)

    def texts(self) -> list[str | None]:
        """The label of each read."""
        return [None if at < 0 else self.labels[at] for at in self.index.tolist()]

    @classmethod
    def same(cls, label: str | None, reads: int) -> LabelColumn:
        """One label for all reads."""
        labels = [] if label is None else [label]
        return cls(labels, np.full(reads, len(labels) - 1, dtype=np.int32))


def label_order(label: str | None) -> str:
    """The key by which labels are sorted: as they are written, None as ``.``."""
    return label or "."


def read_groups(header: bytes) -> dict[str, ReadGroup]:
    """Return the read groups of a SAM header, by ID."""
    groups = {}
    for line in header.decode("utf-8", "replace").splitlines():
        kind, *words = line.split("\t")
        fields = {word[:2]: word[3:] for word in words if word[2:3] == ":"}
        if kind == "@RG" and "ID" in fields:
            run = re.search(r"(?:^|\s)runid=(\S+)", fields.get("DS", ""))
            sample, library = fields.get("SM"), fields.get("LB")
            groups[fields["ID"]] = ReadGroup(run[1] if run else None, sample, library)
    return groups


class ReadGroup(NamedTuple):
    """A read group (@RG) in a SAM header; fields that are absent are None."""

    run: str | None = None
    sample: str | None = None
    library: str | None = None


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The context of reads, in columns.

    channel: int32, -1 if unknown. start_time: bytes, in RFC 3339 format, empty if unknown.
    """

    channel: NDArray[np.int32]
    start_time: NDArray[np.bytes_]
    run: LabelColumn
    barcode: LabelColumn
    sample: LabelColumn

    def part(self, start: int, stop: int) -> ReadContext:
        """The context of reads ``start`` to ``stop``, exclusive."""
        columns = (
            LabelColumn(column.labels, column.index[start:stop]).used()
            for column in (self.run, self.barcode, self.sample)
        )
        return ReadContext(self.channel[start:stop], self.start_time[start:stop], *columns)

    @classmethod
    def of_lines(
        cls,
        text: NDArray[np.uint8],
        firsts: NDArray[np.int64],
        stops: NDArray[np.int64],
        path: str,
        groups: Mapping[str, ReadGroup] | None = None,
    ) -> ReadContext:
        """Parse header lines text[firsts[i]:stops[i]], without @ and line end, of one file.

        groups: those of a SAM file, of whose records these are the qualities and the tags.
        """
        fields = _room(firsts.size)
        find_fields(text, firsts, stops, BLANK if groups is None else TAB, *fields)
        return cls._of_fields(text, *fields, path, groups or {})

    @classmethod
    def of_bam_records(
        cls,
        text: NDArray[np.uint8],
        records: NDArray[np.int64],
        path: str,
        groups: Mapping[str, ReadGroup],
    ) -> ReadContext:
        """Parse BAM records text[records[i, 0]:records[i, 1]]; eight readable bytes follow each."""
        tags = _room(len(records))
        find_tags(text, records, *tags)
        return cls._of_fields(text, *tags, path, groups)

    @classmethod
    def _of_fields(
        cls,
        text: NDArray[np.uint8],
        channel: NDArray[np.int32],
        times: NDArray[np.uint8],
        spans: NDArray[np.int64],
        path: str,
        groups: Mapping[str, ReadGroup],
    ) -> ReadContext:
        """Build it from ``find_fields``' output; groups: the header's read groups, by ID."""
        columns = [_column(text, of_field) for of_field in spans]
        group = columns[GROUP]
        known = group.of(lambda name: groups[name].sample if name in groups else None)
        sample = columns[SAMPLE] | known
        known = group.of(lambda name: groups[name].library if name in groups else None)
        library = columns[LIBRARY] | known
        known = group.of(lambda name: groups[name].run if name in groups else None)
        barcodes = [
            columns[BARCODE].of(barcode_of),
            sample.of(if_barcode),
            group.of(barcode_of_group),
            LabelColumn.same(barcode_of_folder(path), channel.size),
            LabelColumn.same(barcode_of_file(path), channel.size),
        ]
        if any(_UNCLASSIFIED in column.labels for column in barcodes):
            named = [column.of(lambda name: None if name == _UNCLASSIFIED else name)
                     for column in barcodes]  # fmt: skip
            barcodes = [*named, *barcodes]
        return cls(
            channel,
            times.view(f"S{TIME_BYTES}").reshape(-1),
            columns[RUN] | known | group.of(run_of_group),
            reduce(or_, barcodes),
            sample.of(lambda name: None if if_barcode(name) else name)
            | library
            | sample
            | LabelColumn.same(sample_of_file(path), channel.size),
        )


def _room(reads: int) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.int64]]:
    """Return the output arrays of ``find_fields``, without any field."""
    channels = np.full(reads, -1, np.int32)
    times = array_pool.empty(reads * TIME_BYTES, np.uint8).reshape(reads, TIME_BYTES)
    spans = array_pool.empty(FIELDS * reads * 2, np.int64).reshape(FIELDS, reads, 2)
    times.fill(0)
    spans.fill(0)
    return channels, times, spans


def _column(text: NDArray[np.uint8], spans: NDArray[np.int64]) -> LabelColumn:
    """The labels that are printable UTF-8; any other would corrupt tables."""
    if not spans[:, 1].any():
        return LabelColumn.same(None, len(spans))
    index = np.empty(len(spans), np.int32)
    firsts = tell_apart(text, spans, index)
    labels = [
        text[begin:end].tobytes().decode("utf-8", "surrogateescape")
        for begin, end in spans[firsts].tolist()
    ]
    return LabelColumn(labels, index).of(lambda label: label if label.isprintable() else None)


def run_of_group(name: str) -> str:
    """Return the run in a read group's ID: its first part in Dorado's format, else the whole ID."""
    if match := _RUN_ID.match(name):
        return match[1]
    return name.partition("_")[0] if _SUFFIX.search(name) else name


def barcode_of_group(name: str) -> str | None:
    """Return the barcode that ends a read group's ID: ``..._barcode04``."""
    match = _SUFFIX.search(name)
    return match[1] if match else None


def barcode_of(name: str) -> str | None:
    """Strip the kit name from a barcode, as in ``SQK-NBD114-24_barcode04``; ``.`` means none."""
    return None if name == "." else barcode_of_group(name) or name


def barcode_of_folder(path: str) -> str | None:
    """Return the barcode that the file's folder is named after; None for standard input."""
    folder = "" if path == "-" else os.path.basename(os.path.dirname(os.path.abspath(path)))
    return if_barcode(folder)


def barcode_of_file(path: str) -> str | None:
    """Return the barcode in a file's name: ``FAX_pass_barcode04_8f3c_0.fastq.gz``; the last one."""
    names = _IN_FILE_NAME.findall(os.path.basename(path))
    return names[-1] if names else None


def sample_of_file(path: str) -> str | None:
    """Return the sample in the name of a file of bcl-convert: ``NAME_S1_L001_R1_001.fastq.gz``."""
    match = _OF_ILLUMINA.match(os.path.basename(path))
    return match[1] if match and match[1].isprintable() else None


def if_barcode(name: str) -> str | None:
    """Return the name if it is a barcode name that basecallers use, else None."""
    return name if _BARCODE_NAME.fullmatch(name) else None
