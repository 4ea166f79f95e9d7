"""The part of ``--report novelty`` that a page shows: points of the curve of new k-mers."""

from __future__ import annotations

from typing import NamedTuple

from streamer.matching.novelty import NOVELTY_COLUMNS
from streamer.reporting.row_files import ColumnType, RowFile, RowKind

NOVELTY = RowKind("novelty", tuple(ColumnType(name, "count") for name in NOVELTY_COLUMNS))

MOST_POINTS = 2048


class CurvePoint(NamedTuple):
    """Reads, bases and k-mers so far; new: k-mers since the previous point."""

    reads: int
    bases: int
    kmers: int
    new: int


class NoveltyReport:
    """A novelty curve. points: ascending; the last one is the end of the stream."""

    def __init__(self, points: list[CurvePoint]) -> None:
        self.points = points


def read_novelty(file: RowFile) -> NoveltyReport:
    """Read the report in a file; raise RowError if its points do not increase.

    If there are too many points, every other one is dropped, repeatedly, but never the last.
    """
    points: list[CurvePoint] = []
    last = CurvePoint(0, 0, 0, 0)
    every, count = 1, 0
    for row in file.rows():
        point = CurvePoint(*row)
        for name in ("reads", "bases", "kmers"):
            value, before = getattr(point, name), getattr(last, name)
            if value < before:
                problem = f"{value} is less than {before} in the row before"
                raise file.fault(problem, name)
        if point.new != point.kmers - last.kmers:
            problem = f"{point.new}, but the k-mers rise by {point.kmers - last.kmers}"
            raise file.fault(problem, "new")
        last = point
        count += 1
        if count % every == 0:
            points.append(point)
        if len(points) >= MOST_POINTS:
            points, every = points[1::2], 2 * every
    if count and (not points or points[-1] is not last):
        points.append(last)
    return NoveltyReport(points)
