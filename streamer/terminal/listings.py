"""The page of a terminal: an overview of state, speed, queues and faults, and tables.

A table has a row for each target, barcode, producer or the like, the columns that there is room
for, and an order. Numbers, sizes, times, bars and curves are text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_UNITS = "", " k", " M", " G", " T", " P", " E"

NONE = "."
"""What stands for no value, as in all tables of the program."""


def plain(name: str | None) -> str:
    """A name as text that cannot steer the terminal."""
    if name is None:
        return NONE
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def count(value: float | None) -> str:
    """An integer with separators."""
    return NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Three or four digits with a unit of a thousand: 999, 1.23 k, 45.6 M."""
    if value is None:
        return NONE
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    digits = 0 if not unit or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}{unit}"


def size(value: float) -> str:
    """Bytes: 12 B, 1.23 MB."""
    text = short(value)
    return f"{text}B" if " " in text else f"{text} B"


def seconds(value: float | None) -> str:
    """A short time: 0.42 ms, 12 ms, 3.4 s."""
    if value is None:
        return NONE
    value *= 1000
    if value < 1000:
        return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"
    return f"{value / 1000:.3g} s"


def duration(value: float) -> str:
    """A long time: 42 s, 12 min, 3 h 5 min, 2 d 4 h."""
    whole = int(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def share(part: float | None, whole: float | None) -> str:
    """A percentage."""
    return f"{100 * part / whole:.1f} %" if part is not None and whole else NONE


def bar(part: float, width: int) -> str:
    """A bar of up to ``width`` cells for a share from 0 to 1, in eighths of a cell."""
    eighths = round(8 * width * min(max(part, 0.0), 1.0))
    if part > 0:
        # something is not nothing
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def curve(values: Iterable[float | None], width: int) -> str:
    """The last ``width`` values as columns, the largest of these as the highest; None is a gap."""
    last = list(values)[-width:] if width > 0 else []
    most = max((value for value in last if value is not None), default=0.0)
    return "".join(
        " " if value is None else _LEVELS[min(int(8 * value / most), 7) if most > 0 else 0]
        for value in last
    )


def rates(times: Sequence[float], counts: Sequence[float]) -> list[float | None]:
    """How fast counts rise, a second, between each two of their times."""
    rates: list[float | None] = []
    for at in range(1, len(times)):
        passed = times[at] - times[at - 1]
        rise = counts[at] - counts[at - 1]
        # counts of another daemon begin anew
        rates.append(rise / passed if passed > 0 and rise >= 0 else None)
    return rates


Fields = Mapping[str, Any]
Values = Sequence[Any]

NO_TARGET = ". (unassigned)"
"""The row of the unassigned reads."""

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
    rest = width - sum(widths[1:]) - padding * len(widths)
    widths[0] = max(min(LEAST_NAME, width - padding), rest)
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
    if rows.get("rule") is None or not lines:
        return {}
    return {
        target: (sum(cells[at][3] for _, cells in lines), len(lines))
        for at, target in enumerate(rows.get("map_targets", ()))
    }


def _samples(fields: Fields) -> Iterable[Values]:
    for row in (fields.get("rows") or {}).get("samples", ()):
        barcode, name, control, reads, bases, targets, seen, more, none, known, whole, wait = row
        shown = name if name == barcode else f"{name} ({barcode})"
        shown = f"{shown}, {control} control" if control else shown
        percent = 100 * known / reads if reads else None
        yield (shown, more, none, seen, wait, reads, bases, percent, targets,
               ", ".join(whole) or None)  # fmt: skip


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

SAMPLES = Listing(
    "Samples",
    (
        Heading("sample", plain, number=False),
        Heading("more needed"),
        Heading("not detected"),
        Heading("detected", least=70),
        Heading("enough in", lambda value: NONE if value is None else duration(value), least=84),
        Heading("reads"),
        Heading("bases", short, least=96),
        Heading("on target", _percent, least=110),
        Heading("with reads", least=124),
        Heading("groups", plain, least=140, number=False),
    ),
    _samples,
    order=1,
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

LISTINGS = (TARGETS, SAMPLES, PRODUCERS, LATENCY, NOVELTY)


# the colours of the terminal itself, such as are read on light and on dark
_LABEL, _VALUE, _RATE, _LATENCY, _WRONG = "dim", "bold", "green", "magenta", "bold red"
_GAP = "  "
_OVERVIEW_BAR = 8
_LEAST_CURVE = 10


def overview(fields: Fields, width: int) -> Text:
    """Lines of at most ``width`` cells, for what ``RunModel.everything`` has."""
    status: Fields = fields.get("status") or {}
    if "totals" not in status:
        waiting = str(fields.get("problem") or "waiting for the daemon")
        return Text("\n").join(_wrong(waiting, width))
    lines = [
        *_flow(_state(status, (fields.get("rows") or {}).get("run")), width),
        *_flow(_sums(status["totals"]), width),
        *_speeds(fields["history"], width),
        *_flow([*_queues(status), *_cards(status)], width),
        *_novelty_curve(fields.get("novelty") or (), width),
        *(line for warning in _warnings(fields, status) for line in _wrong(warning, width)),
    ]
    return Text("\n").join(lines)


def _state(status: Fields, run: str | None) -> Iterable[Text]:
    if run:
        yield _part("run", plain(run))
    state = str(status["state"])
    yield Text.assemble((state, _VALUE if state == "running" else _WRONG))
    yield _part("up", duration(status["uptime_seconds"]))
    of = status["dictionary"]
    yield _part(f"k={of['k']}", str(of["mode"]))
    yield _part("targets", count(of["targets"]))
    yield _part("k-mers", count(of["kmers"]))
    yield _part("version", str(of["version"]))


def _sums(totals: Fields) -> Iterable[Text]:
    yield _part("reads", count(totals["reads"]))
    yield _part("bases", short(totals["bases"]))
    yield _part("matched", share(totals["matches"], totals["windows"]))
    yield _part("on target", share(totals["reads_on_target"], totals["reads"]))


def _speeds(points: Sequence[Sequence[Any]], width: int) -> list[Text]:
    """Throughput and latency, each with a curve over the last points of the history."""
    times = [point[0] for point in points]
    reads = rates(times, [point[1] for point in points])
    bases = rates(times, [point[2] for point in points])
    tails = [point[5] for point in points]
    last = points[-1] if points else (0, 0, 0, 0, None, None)
    speeds = [
        _part("reads/s", short(reads[-1] if reads else None).rjust(6)),
        _part("bases/s", short(bases[-1] if bases else None).rjust(6)),
    ]
    late = [
        _part("latency p50", seconds(last[4]).rjust(7)),
        _part("p99", seconds(last[5]).rjust(7)),
    ]
    return [
        _with_curve(speeds, bases, _RATE, width),
        _with_curve(late, tails, _LATENCY, width),
    ]


def _with_curve(
    parts: Sequence[Text], values: Sequence[float | None], style: str, width: int
) -> Text:
    line = Text(_GAP).join(parts)
    room = width - line.cell_len - len(_GAP)
    if room >= _LEAST_CURVE:
        line.append(_GAP).append(curve(values, room), style)
    line.truncate(width)
    return line


def _queues(status: Fields) -> Iterable[Text]:
    queue = status["queue"]
    yield _part("queue", f"{count(queue['batches'])} batches")
    yield _level("ingest", queue["bytes"], queue["limit_bytes"])
    undurable = status["undurable"]
    if status["durability"] != "none":
        waits = f", {undurable['age_seconds']:.1f} s" if undurable["batches"] else ""
        yield _part("undurable", f"{count(undurable['batches'])} batches{waits}")
    if feed := status.get("feed"):
        yield _level("feed", feed["bytes"], feed["limit_bytes"])
        yield _part("drops", count(feed["slow"]), _WRONG if feed["slow"] else _VALUE)
    yield _part("refused", count(status["refused"]), _WRONG if status["refused"] else _VALUE)
    yield _part("producers", f"{status['producers']['active']} active")


def _cards(status: Fields) -> Iterable[Text]:
    for number, memory in sorted((status.get("gpus") or {}).items()):
        yield _level(f"GPU {number}", memory["used_bytes"], memory["size_bytes"])


def _novelty_curve(points: Sequence[Sequence[Any]], width: int) -> list[Text]:
    """The share of new k-mers, over the bases so far."""
    news = [
        1000 * (point[2] - before[2]) / max(point[1] - before[1], 1)
        for before, point in zip([(0, 0, 0), *points], points, strict=False)
    ]
    if not news:
        return []
    parts = [_part("new k-mers", f"{short(points[-1][2])}, {news[-1]:.2f} a 1,000 bases")]
    return [_with_curve(parts, news, _RATE, width)]


def _warnings(fields: Fields, status: Fields) -> Iterable[str]:
    if fields.get("problem"):
        yield str(fields["problem"])
    for stage, stuck in (status.get("stuck") or {}).items():
        waited = f"no progress for {stuck['seconds']:.0f} s"
        yield f"stuck: {stage}: {waited}, waits for {stuck['waits_for']}"
    if status["dictionary"]["limited"]:
        yield "the dictionary is at its limit"
    if revision := status.get("revision"):
        batches = count(revision["batches"])
        yield f"revision to version {revision['version']}: {batches} batches left"
    yield from (fields.get("rows") or {}).get("alarms", ())
    if fields.get("gaps"):
        yield f"messages of the feed missed: {count(fields['gaps'])} gaps"


def _wrong(warning: str, width: int) -> list[Text]:
    text = plain(warning)
    parts = [text[at : at + width] for at in range(0, len(text), width)]
    return [Text.assemble((part, _WRONG)) for part in parts]


def _part(label: str, value: str, style: str = _VALUE) -> Text:
    return Text.assemble((f"{label} ", _LABEL), (value, style))


def _level(label: str, part: int, whole: int) -> Text:
    """How much of a limit is in use."""
    style = _WRONG if whole and part >= 0.9 * whole else _VALUE
    made = _part(label, f"{size(part)} of {size(whole)}" if whole else size(part), style)
    if whole:
        made.append(" ▕", _LABEL).append(bar(part / whole, _OVERVIEW_BAR), _RATE).append(
            "▏", _LABEL
        )
    return made


def _flow(parts: Iterable[Text], width: int) -> list[Text]:
    """Parts one after the other, on as many lines as they need."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(_GAP) + part.cell_len <= width:
            lines[-1].append(_GAP).append_text(part)
        else:
            part = part.copy()
            part.truncate(width)
            lines.append(part)
    return lines
