"""Where reads come from: channel, start time, run, barcode and sample.

For each of them, the first source with a valid value wins:

    channel      the tag ch, or the header's ch
    start_time   st, start_time
    run          runid, or the run of the read group
    barcode      BC, barcode, SM if that is a barcode; the suffix of the read group; the folder
    sample       SM if that is no barcode; LB, sample_id; SM

Dorado and MinKNOW put the barcode into SM and the sample ID into LB (their SAM specification).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.context_kernels import (
    BARCODE,
    BLANK,
    FIELDS,
    GROUP,
    LIBRARY,
    RUN,
    SAMPLE,
    TAB,
    TIME_BYTES,
    find_fields,
    find_tags,
    tell_apart,
)
from trie.cpu import array_pool

_NAME = "barcode[0-9]+|unclassified"
_BARCODE_NAME = re.compile(_NAME)
# <run>_<model>_<kit>_barcode04; kit names contain no underscore
_SUFFIX = re.compile(rf"[_-]({_NAME})$")
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
    def of_headers(
        cls, text: NDArray[np.uint8], firsts: NDArray[np.int64], stops: NDArray[np.int64], path: str
    ) -> ReadContext:
        """Parse header lines text[firsts[i]:stops[i]], without @ and line end, of one file."""
        found = _room(firsts.size)
        find_fields(text, firsts, stops, BLANK, *found)
        return cls._of_fields(text, *found, path, {})

    @classmethod
    def of_sam_lines(
        cls,
        text: NDArray[np.uint8],
        firsts: NDArray[np.int64],
        stops: NDArray[np.int64],
        path: str,
        groups: Mapping[str, ReadGroup],
    ) -> ReadContext:
        """Parse SAM records; text[firsts[i]:stops[i]] are the qualities and the tags."""
        found = _room(firsts.size)
        find_fields(text, firsts, stops, TAB, *found)
        return cls._of_fields(text, *found, path, groups)

    @classmethod
    def of_bam_records(
        cls,
        text: NDArray[np.uint8],
        records: NDArray[np.int64],
        path: str,
        groups: Mapping[str, ReadGroup],
    ) -> ReadContext:
        """Parse BAM records text[records[i, 0]:records[i, 1]]; eight readable bytes follow each."""
        found = _room(len(records))
        find_tags(text, records, *found)
        return cls._of_fields(text, *found, path, groups)

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
        return cls(
            channel,
            times.view(f"S{TIME_BYTES}").reshape(-1),
            columns[RUN] | known | group.of(run_of_group),
            columns[BARCODE].of(barcode_of)
            | sample.of(if_barcode)
            | group.of(barcode_of_group)
            | LabelColumn.same(barcode_of_folder(path), channel.size),
            sample.of(lambda name: None if if_barcode(name) else name) | library | sample,
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
    if found := _RUN_ID.match(name):
        return found[1]
    return name.partition("_")[0] if _SUFFIX.search(name) else name


def barcode_of_group(name: str) -> str | None:
    """Return the barcode that ends a read group's ID: ``..._barcode04``."""
    found = _SUFFIX.search(name)
    return found[1] if found else None


def barcode_of(name: str) -> str | None:
    """Strip the kit name from a barcode, as in ``SQK-NBD114-24_barcode04``; ``.`` means none."""
    return None if name == "." else barcode_of_group(name) or name


def barcode_of_folder(path: str) -> str | None:
    """Return the barcode that the file's folder is named after; None for standard input."""
    folder = "" if path == "-" else os.path.basename(os.path.dirname(os.path.abspath(path)))
    return if_barcode(folder)


def if_barcode(name: str) -> str | None:
    """Return the name if it is a barcode name that basecallers use, else None."""
    return name if _BARCODE_NAME.fullmatch(name) else None
