"""Tables that name the targets of a dictionary: source, target and perhaps group."""

from __future__ import annotations

from collections.abc import Callable

from streamer.errors import DataError


def read_targets(path: str, on_notice: Callable[[str], object] | None = None) -> dict[str, str]:
    """The target of each source in a TSV file; DataError with the line of a fault.

    on_notice: gets a line if there are groups, which an index does not keep.
    """
    targets: dict[str, str] = {}
    with open(path, encoding="utf-8") as file:
        header = file.readline().rstrip("\r\n").lstrip("#").split("\t")
        if header[:2] != ["source", "target"] or header[2:] not in ([], ["group"]):
            raise DataError(
                "line 1: the columns are source, target and, if wanted, group", file=path
            )
        if header[2:] and on_notice is not None:
            on_notice(f"{path}: the column group is ignored: an index keeps targets only")
        for number, line in enumerate(file, 2):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            if len(cells) != len(header) or not cells[0] or not cells[1]:
                raise DataError(f"line {number}: needs {len(header)} cells", file=path)
            if targets.setdefault(cells[0], cells[1]) != cells[1]:
                raise DataError(f"line {number}: {cells[0]} has two targets", file=path)
    return targets
