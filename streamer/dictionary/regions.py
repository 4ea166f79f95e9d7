"""Regions of a reference (BED) as targets: each becomes a record of the bases it spans.

BED lines hold the record's name, start (from 0), end (exclusive), and optionally a name (``.``
means none), separated by tabs. Lines that begin with #, track or browser are ignored. With
``amplicons`` the lines are primers, as in ARTIC schemes: NAME_LEFT and NAME_RIGHT, possibly with a
suffix (_alt1, _2), and a region spans all primers of a NAME.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from xopen import xopen

from streamer.errors import DataError
from streamer.sequences.files import read_letters

_PRIMER = re.compile(r"(.+)_(LEFT|RIGHT)(?:_\w+)?")


class Region(NamedTuple):
    """A part of a reference record, 0-based and half-open. line: its line in the BED file."""

    record: str
    start: int
    end: int
    name: str
    line: int


def regions_of(path: str, *, amplicons: bool = False) -> list[Region]:
    """Read the regions of a BED file, plain or compressed; DataError names a faulty line."""
    regions = [_region(path, n, line) for n, line in enumerate(_lines(path), 1) if _says(line)]
    regions = _amplicons(path, regions) if amplicons else regions
    lines: dict[str, int] = {}
    for region in regions:
        if (line := lines.setdefault(region.name, region.line)) != region.line:
            raise _fault(path, region.line, f"the name {region.name} is that of line {line}, too")
    if not regions:
        raise DataError("has no regions", file=path)
    return regions


def records_of(
    path: str, reference: str, *, amplicons: bool = False
) -> Iterator[tuple[str, str, Region]]:
    """Yield (name, letters, region) of each; DataError names the line of one out of bounds."""
    regions = regions_of(path, amplicons=amplicons)
    records: dict[str, str] = {}
    twice = set()
    for name, letters_of_record in read_letters(reference):
        if records.setdefault(name, letters_of_record) is not letters_of_record:
            twice.add(name)
    for region in regions:
        letters = records.get(region.record)
        if region.record in twice:
            raise _fault(path, region.line, f"{reference} has two records {region.record}")
        if letters is None:
            raise _fault(path, region.line, f"{reference} has no record {region.record}")
        if region.end > len(letters):
            raise _fault(
                path, region.line, f"ends at {region.end}, {region.record} has {len(letters)} bases"
            )
        yield region.name, letters[region.start : region.end], region


def _lines(path: str) -> list[str]:
    try:
        # in this process: errors of a child process would have no type
        with xopen(path, encoding="utf-8-sig", threads=0) as file:
            return [*file]
    except UnicodeDecodeError:
        problem = "not BED: it is not UTF-8 text"
    except EOFError:
        problem = "the compressed stream is truncated"
    except Exception as error:  # decompressors have exception types of their own
        if isinstance(error, OSError) and error.errno is not None:
            raise
        problem = f"cannot be read: {error}"
    raise DataError(problem, file=path)


def _says(line: str) -> bool:
    words = line.split(None, 1)
    return bool(words) and not line.startswith("#") and words[0] not in ("track", "browser")


def _region(path: str, number: int, line: str) -> Region:
    record, start, end, *more = [*line.rstrip("\r\n").split("\t"), "", ""]
    if not all(re.fullmatch("[0-9]{1,15}", place) for place in (start, end)):
        raise _fault(path, number, "not BED: name, start and end between tabs")
    if int(start) >= int(end):
        raise _fault(path, number, f"the start, {start}, is not before the end, {end}")
    name = more[0].strip()
    name = f"{record}:{start}-{end}" if name in ("", ".") else name
    if name.split() != [name] or not name.isprintable():
        raise _fault(path, number, "the name has blanks, or characters that are not printable")
    return Region(record, int(start), int(end), name, number)


def _amplicons(path: str, primers: list[Region]) -> list[Region]:
    amplicons: dict[str, Region] = {}
    sides: dict[str, set[str]] = {}
    for primer in primers:
        parts = _PRIMER.fullmatch(primer.name)
        if parts is None:
            raise _fault(path, primer.line, f"{primer.name} is neither NAME_LEFT nor NAME_RIGHT")
        name = parts[1]
        sides.setdefault(name, set()).add(parts[2])
        before = amplicons.setdefault(name, primer._replace(name=name))
        if before.record != primer.record:
            raise _fault(path, primer.line, f"{name} is on {before.record}, too")
        start, end = min(before.start, primer.start), max(before.end, primer.end)
        amplicons[name] = before._replace(start=start, end=end)
    for name, both in sides.items():
        if len(both) < 2:
            (side,) = both
            raise _fault(path, amplicons[name].line, f"{name} has only primers of one side, {side}")
    return [*amplicons.values()]


def _fault(path: str, line: int, problem: str) -> DataError:
    return DataError(f"line {line}: {problem}", file=path)
