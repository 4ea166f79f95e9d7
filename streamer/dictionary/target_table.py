"""Tables that name the targets of a dictionary: source, target and perhaps group."""

from __future__ import annotations

from typing import NamedTuple

from streamer.errors import DataError


class TargetTable(NamedTuple):
    """targets: the target of each source, a record or a file. groups: that of each target."""

    targets: dict[str, str]
    groups: dict[str, str]


def read_targets(path: str) -> TargetTable:
    """Read a TSV file; DataError with the line of a fault."""
    table = TargetTable({}, {})
    with open(path, encoding="utf-8") as file:
        header = file.readline().rstrip("\r\n").lstrip("#").split("\t")
        if header[:2] != ["source", "target"] or header[2:] not in ([], ["group"]):
            raise DataError(
                "line 1: the columns are source, target and, if wanted, group", file=path
            )
        for number, line in enumerate(file, 2):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            if len(cells) != len(header) or not cells[0] or not cells[1]:
                raise DataError(f"line {number}: needs {len(header)} cells", file=path)
            for names, key, value in zip(table, cells, cells[1:], strict=False):
                if names.setdefault(key, value) != value:
                    what = "targets" if names is table.targets else "groups"
                    raise DataError(f"line {number}: {key} has two {what}", file=path)
    return table
