"""The tables of the page: what is in a row, which columns there is room for, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from streamer.terminal.wording import bar, count, duration, plain, seconds, share, short

Fields = Mapping[str, Any]
Values = Sequence[Any]

NO_TARGET = ". (no target)"
"""The row of the reads that are on no target."""

LEAST_NAME = 12
"""Cells of the first column, where there is room for more than one."""

_BAR = 12


@dataclass(frozen=True, slots=True)
class Heading:
    """One column. shown: a value as text. least: the width of a page that has this column.

    number: it stands at the right, and the largest comes first.
    """

    name: str
    shown: Callable[[Any], str] = count
    least: int = 0
    number: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """One table. rows: of the fields that ``RunModel.everything`` has, values in order of headings.

    needs: the topic without which there is nothing, and why there is not. order: the column that
    rows are sorted by at first; ``descending``: the largest first.
    """

    name: str
    headings: tuple[Heading, ...]
    rows: Callable[[Fields], Iterable[Values]]
    order: int
    descending: bool = True
    needs: tuple[str, str] = "", ""

    def missing(self, fields: Fields) -> str:
        """Why there are no rows, empty if there may be some."""
        topic, why = self.needs
        published = (fields.get("status") or {}).get("published")
        return why if topic and published is not None and f"{topic}." not in published else ""

    def sorted_rows(self, fields: Fields, order: int, *, descending: bool) -> list[Values]:
        """The rows in the order of a column; those without a value are the last."""
        rows = list(self.rows(fields))
        known = [row for row in rows if row[order] is not None]
        known.sort(key=lambda row: row[order], reverse=descending)
        return known + [row for row in rows if row[order] is None]

    def visible(self, width: int) -> list[int]:
        """The headings that a page of this width has."""
        return [at for at, heading in enumerate(self.headings) if heading.least <= width]


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table that fits a page: titles and cells of each column, and its width in cells."""

    titles: list[Text]
    widths: list[int]
    rows: list[list[Text]]


def laid(
    listing: Listing, fields: Fields, width: int, order: int, *, descending: bool, padding: int = 2
) -> FittedTable:
    """The table in so many cells; padding: cells beside each column."""
    chosen = listing.visible(width)
    values = listing.sorted_rows(fields, order, descending=descending)
    columns = []
    for at in chosen:
        heading = listing.headings[at]
        mark = ("▼" if descending else "▲") if at == order else " "
        title = f"{heading.name} {mark}" if heading.number else f"{heading.name}{mark.strip()}"
        columns.append([title.rstrip(), *(heading.shown(row[at]) for row in values)])
    widths = [max(map(cell_len, column)) for column in columns]
    # the first column has the names: it takes what the others leave
    left = width - sum(widths[1:]) - padding * len(widths)
    widths[0] = max(min(LEAST_NAME, width - padding), left)
    cells = []
    for at, column, room in zip(chosen, columns, widths, strict=True):
        number = listing.headings[at].number
        cells.append([_cell(text, room, number=number) for text in column])
    lines = [list(line) for line in zip(*cells, strict=True)]
    return FittedTable(lines[0], widths, lines[1:])


def _cell(text: str, room: int, *, number: bool) -> Text:
    made = Text(text, justify="right" if number else "left", no_wrap=True)
    made.truncate(room, overflow="ellipsis")
    return made


# ---- targets and barcodes ----------------------------------------------------------------------


def _targets(fields: Fields) -> Iterable[Values]:
    rows = fields.get("rows") or {}
    marks = _marks(rows)
    for target, reads, bases, matches, _, _, breadth, depth in rows.get("targets", ()):
        yield target, reads, bases, matches, breadth, depth, marks.get(target)
    if (unassigned := rows.get("unassigned")) is not None:
        yield NO_TARGET, unassigned[1], unassigned[2], None, None, None, None


def _marks(rows: Fields) -> dict[str, tuple[int, int]]:
    """Of each target of the heat map, in how many barcodes there is enough of it, and of how many.

    Empty if nothing is ever enough.
    """
    lines = rows.get("map", ())
    if rows.get("enough") is None or not lines:
        return {}
    return {
        target: (sum(cells[at][3] for _, cells in lines), len(lines))
        for at, target in enumerate(rows.get("map_targets", ()))
    }


def _barcodes(fields: Fields) -> Iterable[Values]:
    rows = fields.get("rows") or {}
    enough = rows.get("enough")
    marks = {barcode: (n, groups) for barcode, n, groups in enough["rows"]} if enough else {}
    for barcode, reads, bases, assigned, targets in rows.get("barcodes", ()):
        mark, groups = marks.get(barcode, (None, []))
        watched = None if mark is None or enough is None else (mark, enough["watched"])
        percent = 100 * assigned / reads if reads else None
        yield barcode, reads, bases, percent, targets, watched, ", ".join(groups) or None


def _of(mark: tuple[int, int] | None) -> str:
    return "." if mark is None else f"{count(mark[0])} of {count(mark[1])}"


def _decimals(value: float | None) -> str:
    return "." if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "." if value is None else f"{value:.1f} %"


_UNCOUNTED = "Nothing is counted: the daemon needs answers.targets = true."

TARGETS = Listing(
    "Targets",
    (
        Heading("target", plain, number=False),
        Heading("reads"),
        Heading("bases", short, least=66),
        Heading("matches", least=76),
        Heading("breadth", _decimals),
        Heading("depth", _decimals),
        Heading("enough", _of),
    ),
    _targets,
    order=1,
    needs=("targets", _UNCOUNTED),
)

BARCODES = Listing(
    "Barcodes",
    (
        Heading("barcode", plain, number=False),
        Heading("reads"),
        Heading("bases", short),
        Heading("on target", _percent),
        Heading("targets", least=70),
        Heading("enough", _of),
        Heading("groups", plain, least=90, number=False),
    ),
    _barcodes,
    order=0,
    descending=False,
    needs=("barcodes", _UNCOUNTED),
)


# ---- producers, latency, novelty ---------------------------------------------------------------


def _producers(fields: Fields) -> Iterable[Values]:
    for name, batches, reads, bases, last in fields.get("producers", ()):
        yield name, reads, bases, batches, max(0.0, fields["now"] - last)


PRODUCERS = Listing(
    "Producers",
    (
        Heading("producer", plain, number=False),
        Heading("reads"),
        Heading("bases", short),
        Heading("batches", least=70),
        Heading("last batch", lambda value: f"{duration(value)} ago"),
    ),
    _producers,
    order=4,
    descending=False,
)


def _latency(fields: Fields) -> Iterable[Values]:
    """The histogram of durations, from the first bucket with a batch to the last."""
    durations = (fields.get("status") or {}).get("durations")
    if not durations or not any(durations["counts"]):
        return
    counts = durations["counts"]
    bounds = [*durations["bounds"], float("inf")]
    filled = [at for at, number in enumerate(counts) if number]
    whole, below = sum(counts), sum(counts[: filled[0]])
    for at in range(filled[0], filled[-1] + 1):
        below += counts[at]
        yield bounds[at], counts[at], counts[at] / whole, below / whole


def _bound(value: float) -> str:
    return "more" if value == float("inf") else f"up to {seconds(value)}"


LATENCY = Listing(
    "Latency",
    (
        Heading("seconds to publish", _bound, number=False),
        Heading("batches"),
        Heading("share", lambda part: f"{share(part, 1).rjust(7)} {bar(part, _BAR)}"),
        Heading("so far", lambda part: share(part, 1)),
    ),
    _latency,
    order=0,
    descending=False,
)


def _novelty(fields: Fields) -> Iterable[Values]:
    before: Values = 0, 0, 0
    for reads, bases, kmers, *_ in fields.get("novelty") or ():
        new = kmers - before[2]
        yield reads, bases, kmers, new, 1000 * new / max(bases - before[1], 1)
        before = reads, bases, kmers


NOVELTY = Listing(
    "Novelty",
    (
        Heading("reads", number=False),
        Heading("bases"),
        Heading("k-mers"),
        Heading("new", least=70),
        Heading("new a 1,000 bases", _decimals),
    ),
    _novelty,
    order=1,
    needs=("novelty", "The dictionary learns nothing: the daemon needs dictionary.mode = grow."),
)

LISTINGS = (TARGETS, BARCODES, PRODUCERS, LATENCY, NOVELTY)
