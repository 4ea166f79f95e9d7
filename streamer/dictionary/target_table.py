"""The targets of a dictionary: tables of source, target and perhaps group; files, records.

A source is the name of a record, or a file: its path as given, or the end of it.
"""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamer.dictionary.target_sets import first_names
from streamer.errors import DataError, StreamerError


class TargetTable(NamedTuple):
    """targets: the target of each source, a record or a file. groups: that of each target.

    path: of the table.
    """

    targets: dict[str, str]
    groups: dict[str, str]
    path: str = ""

    def of_files(self, records: Iterable[str], files: Iterable[str]) -> Mapping[str, str]:
        """The target of each file that is a source.

        StreamerError for sources that are neither among the names of records nor files, and for
        one that is the end of several paths.
        """
        known = {*records}
        sources = {_parts(source): source for source in self.targets if source not in known}
        named, used = dict[str, str](), dict[str, str]()
        for file in dict.fromkeys(files):
            parts = _parts(os.path.abspath(file))
            ends = (parts[at:] for at in range(len(parts)))
            whole = file if file in self.targets else None
            source = whole or next((sources[end] for end in ends if end in sources), None)
            if source is None:
                continue
            if used.setdefault(source, file) != file and source != whole:
                several = f"{used[source]} and {file}"
                raise DataError(
                    f"{source} is the end of {several}: give more of it", file=self.path
                )
            named[file] = self.targets[source]
        if unknown := self.targets.keys() - known - used.keys():
            raise StreamerError(
                f"{self.path}: no record or file has the name of a source: "
                f"{first_names(sorted(unknown))}; a record's name ends at the first blank"
            )
        return named


def _parts(path: str) -> tuple[str, ...]:
    """The folders and the name of a path, without those before it that lead up."""
    parts = os.path.normpath(path).split(os.sep)
    return tuple(part for part in parts if part not in ("", os.pardir))


def read_targets(path: str) -> TargetTable:
    """Read a TSV file; DataError with the line of a fault."""
    table = TargetTable({}, {}, path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.rstrip("\r") for line in file.read().split("\n")]
    except UnicodeDecodeError:
        raise DataError("is not UTF-8 text", file=path) from None
    except OSError as error:
        raise DataError((error.strerror or str(error)).lower(), file=path) from None
    header = lines[0].lstrip("#").split("\t")
    if header[:2] != ["source", "target"] or header[2:] not in ([], ["group"]):
        raise DataError("line 1: the columns are source, target and, if wanted, group", file=path)
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if cells == [""]:
            continue
        if len(cells) != len(header) or not cells[0] or not cells[1]:
            raise DataError(f"line {number}: needs {len(header)} cells", file=path)
        for names, key, value in zip(table[:2], cells, cells[1:], strict=False):
            if names.setdefault(key, value) != value:
                what = "targets" if names is table.targets else "groups"
                raise DataError(f"line {number}: {key} has two {what}", file=path)
    if not table.targets:
        raise DataError("names no target", file=path)
    return table
