"""HTML and SVG as text, escaped so that no data can become markup: tables and figures of a page.

A frame with axes is an inline SVG that fits any width. It has no viewBox: horizontal positions are
percentages, so text keeps its size. Curves are in a nested SVG that is stretched, 1000 units in
either direction.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np

from streamer.reporting import reports

_VOID = {"meta", "col", "br"}


class Markup(str):
    """Text that is HTML already; any other text is escaped."""

    __slots__ = ()


Child = str | int | None


def tag(name: str, /, *children: Child, **attributes: str | int | float | None) -> Markup:
    """Return an element. None is omitted; ``class_`` is class, ``aria_label`` is aria-label."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{text(str(value))}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Concatenate children."""
    return Markup("".join(child if isinstance(child, Markup) else text(child)
                          for child in children if child is not None))  # fmt: skip


def text(value: Child) -> Markup:
    """Escape text; U+FFFD replaces characters that are unprintable or reverse text direction."""
    shown = str(value)
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)
    return Markup(escape(shown))


def table(
    head: list[Child],
    rows: list[list[Child]],
    *,
    caption: str,
    numbers_from: int = 1,
    text_from: int = 1 << 30,
    class_: str | None = None,
) -> Markup:
    """A table; columns from ``numbers_from`` on are aligned as numbers, the first is a heading.

    text_from: columns from here on are text again. With class_ each cell also has the name of its
    column, which page.css shows where the page is narrow.
    """
    kinds = ["n" if numbers_from <= at < text_from else None for at in range(len(head))]
    heads = [tag("th", cell, scope="col", class_=kind)
             for cell, kind in zip(head, kinds, strict=True)]  # fmt: skip
    body = []
    for first, *rest in rows:
        cells = [tag("td", cell, class_=kind, data_label=label if class_ else None)
                 for cell, kind, label in zip(rest, kinds[1:], head[1:], strict=True)]  # fmt: skip
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)),
            tag("tbody", *body), class_=class_),
        class_="scroll", tabindex=0, role="region", aria_label=caption,
    )  # fmt: skip


Tick = tuple[float, str]
"""A tick: position from 0 to 1, and label."""


def place(share: float) -> str:
    """Return a horizontal position in a frame."""
    return f"{100 * share:.3f}%"


def plot(
    identity: str,
    title: str,
    description: str,
    body: Markup,
    *,
    height: int,
    across: Sequence[Tick] = (),
    up: Sequence[Tick] = (),
    titles: tuple[str, str] = ("", ""),
) -> Markup:
    """Draw axes around ``body``, which is drawn from (0, 0) to (100 %, height).

    identity: unique id of this figure on the page. title, description: for screen readers. titles:
    of the axis across and of the one upwards.
    """
    lines, labels = [], []
    if titles[0]:
        labels.append(tag("text", titles[0], x="50%", y=height + 36, text_anchor="middle"))
        labels.append(tag("text", titles[1], x=-40, y=-8))
    for share, label in up:
        y = round(height * (1 - share), 1)
        lines.append(tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
        labels.append(tag("text", label, x=-8, y=y + 4, text_anchor="end"))
    for share, label in across:
        anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        lines.append(
            tag("line", x1=place(share), x2=place(share), y1=height, y2=height + 4, class_="tick")
        )
        labels.append(tag("text", label, x=place(share), y=height + 18, text_anchor=anchor))
    svg = tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-desc"),
        *lines, body,
        tag("line", x1=0, x2="100%", y1=height, y2=height, class_="axis"),
        tag("g", *labels, class_="labels", aria_hidden="true"),
        role="img", aria_labelledby=f"{identity}-title {identity}-desc",
        width="100%", height=height + (42 if titles[0] else 24),
        xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
    return tag("div", svg, class_="frame" if up else "frame bare")


def stretched(*paths: Markup, height: int) -> Markup:
    """Stretch paths in a square of 1000 units over a whole frame of this height."""
    return tag(
        "svg", *paths, viewBox="0 0 1000 1000", preserveAspectRatio="none",
        width="100%", height=height,
    )  # fmt: skip


def outline(points: Iterable[tuple[float, float]]) -> str:
    """Return the ``d`` attribute of a line through points from 0 to 1, y upwards."""
    words = [f"{1000 * x:.1f} {1000 * (1 - y):.1f}" for x, y in points]
    return "M" + "L".join(words) if words else ""


def figure(caption: str, drawing: Markup, *below: Markup) -> Markup:
    """Return a drawing with its caption, and ``below`` beneath it."""
    return tag("figure", tag("figcaption", caption), drawing, *below)


def folded(label: str, *inside: Markup) -> Markup:
    """Return a collapsible element."""
    return tag("details", tag("summary", label), *inside)


_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
    """Format with at most four characters and a unit: 950, 1.2 k, 48.5 M."""
    for size, unit in _UNITS:
        # otherwise 999,950 would be 1000.0 k
        if value >= size * 0.9995:
            return f"{_three(value / size)} {unit}"
    return _three(value)


def _three(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def counted(value: int) -> str:
    """Format in full up to six digits."""
    return f"{value:,}" if value < 1_000_000 else short(value)


def percent(part: float, whole: float) -> str:
    """Format as percent with one decimal; 0 and 100 only where they are exact."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %"


def ratio(value: float | None) -> str:
    """Format with four decimals, as in rows."""
    return "–" if value is None else f"{value:,.4f}"


def ticks(most: float, count: int = 4) -> list[float]:
    """Return about ``count`` round numbers up to ``most``, and 0."""
    if most <= 0:
        return [0.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    return [at * step for at in range(int(most / step * 1.0001) + 1)]


_TRACK_HEIGHT, _STRIP = 96, 12


def coverage_tracks(
    report: reports.CoverageReport, identity: str, shown: Callable[[str], str]
) -> Markup:
    """Draw a track per selected target, with its table; shown: the name of a barcode."""
    tracks = [
        _track(bins, ", ".join([bins.name[0], *map(shown, bins.name[1:])]), f"{identity}-{at}")
        for at, bins in enumerate(report.drawn)
    ]
    return tag("div", *tracks, class_="tracks")


def _track(bins: reports.TargetBins, name: str, identity: str) -> Markup:
    length = int(bins.end[-1]) if bins.end.size else 0
    whole = max(1, length)
    kmers, seen, matches = (int(values.sum()) for values in bins[3:])
    depths = [m / k if k else 0.0 for m, k in zip(bins.matches.tolist(), bins.kmers.tolist(),
                                                   strict=True)]  # fmt: skip
    most = max([*depths, 0.0]) or 1.0
    starts, ends = bins.start.tolist(), bins.end.tolist()
    steps: list[tuple[float, float]] = [(0.0, 0.0)]
    last = bins.last
    for start, end, depth in zip(starts, ends, depths, strict=True):
        if start < last:
            steps += [(start / whole, depth / most), (min(end, last) / whole, depth / most)]
    steps.append((last / whole, 0.0))
    area = stretched(
        tag("path", d=outline(steps) + "Z", class_="area"),
        tag("path", d=outline(steps[1:-1]), class_="line"),
        height=_TRACK_HEIGHT,
    )
    strip = [
        tag("rect", tag("title", f"{start:,} to {end:,}: {s:,} of {k:,} k-mers seen"),
            x=place(start / whole), width=place((end - start) / whole), y=_TRACK_HEIGHT + 3,
            height=_STRIP, fill_opacity=round(0.08 + 0.62 * s / k, 3) if k else 0, class_="seen")
        for start, end, s, k in zip(starts, ends, bins.seen.tolist(), bins.kmers.tolist(),
                                    strict=True)
    ]  # fmt: skip
    breadth = round(seen / kmers, 4) if kmers else None
    depth = round(matches / kmers, 4) if kmers else None
    facts = f"breadth {ratio(breadth)}, depth {ratio(depth)}, {length:,} bases"
    drawing = plot(
        identity, f"Coverage along {name}",
        f"Depth in {len(starts)} bins, {max([*depths, 0.0]):,.2f} at most; {facts}. "
        "The table below has the numbers.",
        joined(area, tag("g", *strip, class_="strip")), height=_TRACK_HEIGHT + 3 + _STRIP,
        across=[(value / whole, short(value)) for value in ticks(length, 3)],
        up=_up(most), titles=("position in bases", "depth"),
    )  # fmt: skip
    head: list[Child] = ["Start", "End", "K-mers", "Seen", "Matches", "Depth"]
    rows: list[list[Child]] = [
        [*(f"{value:,}" for value in row), f"{depth:,.2f}"]
        for row, depth in zip(zip(*(v.tolist() for v in bins[1:]), strict=True), depths,
                              strict=True)
    ]  # fmt: skip
    return tag(
        "figure", tag("figcaption", tag("strong", name), tag("span", f" {facts}")), drawing,
        folded("Table of bins", table(head, rows, caption=f"Coverage along {name}",
                                      numbers_from=0)),
    )  # fmt: skip


def _up(most: float) -> list[tuple[float, str]]:
    """Return the depth labels; the strip below takes part of the height."""
    height = _TRACK_HEIGHT + 3 + _STRIP
    return [((height - _TRACK_HEIGHT * (1 - value / most)) / height, short(value))
            for value in ticks(most, 2)]  # fmt: skip


DRAWN_CELLS, DRAWN_BARCODES = 12_000, 100
_CELL, _ROW = 36, 24
_LETTERS = 26
_TOP = 132
_LETTER = 7  # typical width of a letter
_FRAMES = {"more needed": "wanted", "not detected": "missing"}


def drawn_pairs(report: reports.TargetReport) -> tuple[list[int], list[str | None]]:
    """Return the targets (indices, in panel order) and barcodes of the heat map.

    Of too many, those targets stay that most samples lack.
    """
    barcodes = report.barcodes[:DRAWN_BARCODES]
    most = DRAWN_CELLS // max(1, len(barcodes))
    if len(report.names) <= most:
        return [*range(len(report.names))], barcodes
    has = Counter(name for barcode in barcodes for name in report.having(barcode, "detected", None))
    counts = [has[name] for name in report.names]
    return sorted(np.argsort(counts, kind="stable")[:most].tolist()), barcodes


def heat_map(
    report: reports.TargetReport, targets: list[int], barcodes: list[str | None], identity: str
) -> Markup:
    """Draw targets as rows, in panel order, and samples as columns."""
    columns = {barcode: report.groups[barcode].T.tolist() for barcode in barcodes}
    names = [_cut(report.names[target], _LETTERS) for target in targets]
    before = 16 + _LETTER * max(map(len, names))
    cells, labels = [], []
    for x, barcode in enumerate(barcodes):
        x_name = before + x * _CELL + _CELL / 2 + 4
        sample = report.sheet.samples.get(barcode or "")
        name = _cut(sample.name if sample else barcode or "none", 18)
        shown = tag("text", name, x=x_name, y=_TOP - 8,
                    transform=f"rotate(-60 {x_name} {_TOP - 8})")  # fmt: skip
        labels.append(shown)
    for y, target in enumerate(targets):
        labels.append(
            tag("text", names[y], x=before - 8, y=_TOP + y * _ROW + 16, text_anchor="end")
        )
        for x, barcode in enumerate(barcodes):
            place = before + x * _CELL, _TOP + y * _ROW
            verdict = report.verdicts[barcode][target] if report.verdicts else None
            name = f"{report.names[target]}, {report.sheet.shown(barcode)}"
            cells.append(_cell(place, name, columns[barcode][target], verdict))
    width, height = before + _CELL * len(barcodes) + 64, _TOP + _ROW * len(targets) + 4
    svg = tag(
        "svg",
        tag("title", "Breadth of targets by barcode", id=f"{identity}-title"),
        tag("desc", f"A row for each of {len(targets)} targets, a column for each of "
            f"{len(barcodes)} barcodes; the darker, the more of the target was seen. "
            "The table below has the numbers.", id=f"{identity}-desc"),
        tag("g", *cells), tag("g", *labels, class_="labels", aria_hidden="true"),
        role="img", aria_labelledby=f"{identity}-title {identity}-desc", class_="heatmap",
        width=width, height=height, viewBox=f"0 0 {width} {height}",
        xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
    swatches = [
        joined(tag("span", tag("i", style=f"opacity:{_shade(share)}"), class_="swatch heat"),
               f" {share:.0%}   ")
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]  # fmt: skip
    scroll = tag("div", svg, class_="scroll", tabindex=0, role="region",
                 aria_label="Heat map of breadth")  # fmt: skip
    return joined(scroll, tag("p", "Breadth: ", *swatches, class_="legend"))


def _cell(place: tuple[int, int], name: str, counts: list[int], verdict: str | None) -> Markup:
    x, top = place
    reads, _, matches, kmers, seen = counts
    share = seen / kmers if kmers else 0
    depth = ratio(matches / kmers) if kmers else "–"
    label = f"{name}: breadth {ratio(share) if kmers else '–'}, depth {depth}, {reads:,} reads"
    label += f", {verdict}" if verdict else ""
    box = {"x": x + 1, "y": top + 1, "width": _CELL - 2, "height": _ROW - 2, "rx": 3}
    parts = [tag("title", label), tag("rect", **box, class_="cell")]
    if seen:
        # without a read there is no colour: neighbours may share the k-mers
        shade = _shade(share) if reads else 0
        parts.append(tag("rect", **box, class_="seen", fill_opacity=shade))
        parts.append(tag("text", _share(share), x=x + _CELL / 2, y=top + 16,
                         text_anchor="middle"))  # fmt: skip
    if verdict in _FRAMES:
        parts.append(tag("rect", **box, class_=f"frame-{_FRAMES[verdict]}"))
    return tag("g", *parts)


def _shade(share: float) -> float:
    """Return a shade on which text remains legible."""
    return round(0.6 * share, 3)


def _share(share: float) -> str:
    """Format as percent; 0 and 100 only where they are exact."""
    whole = 100 * share
    if 0 < whole < 1:
        return "< 1"
    return "99" if 99 < whole < 100 else f"{whole:.0f}"


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else name[: letters - 1] + "…"


BINS_AN_OCTAVE = 4
_LENGTHS_HEIGHT = 220


def bin_of(length: int) -> int:
    """Return the number of a length's bin; length 0 is in bin -1."""
    if length < 1:
        return -1
    at = int(BINS_AN_OCTAVE * math.log2(length))
    # log2 may be inexact in the last digit
    while length >= first_of(at + 1):
        at += 1
    while length < first_of(at):
        at -= 1
    return at


def first_of(number: int) -> int:
    """Return the least length in a bin; some low bins contain no integer."""
    return math.ceil(2 ** (number / BINS_AN_OCTAVE)) if number >= 0 else 0


def by_bin(counts: reports.LengthCounts) -> dict[int, int]:
    """Count reads by bin number."""
    bins: dict[int, int] = {}
    for length, reads in counts.by_length.items():
        number = bin_of(length)
        bins[number] = bins.get(number, 0) + reads
    return bins


def length_figure(report: reports.ReadsReport, identity: str) -> Markup:
    """Draw the figure with its table; there must be reads."""
    every = report.all
    on, off = by_bin(report.on), by_bin(report.off)
    first, last = min(on.keys() | off.keys()), max(on.keys() | off.keys())
    bins = range(first, last + 1)
    most = max(on.get(at, 0) + off.get(at, 0) for at in bins)
    width = 1 / len(bins)
    bars = []
    for at in bins:
        below = 0.0
        for kind, reads in (("on", on.get(at, 0)), ("off", off.get(at, 0))):
            if reads:
                height = _LENGTHS_HEIGHT * reads / most
                label = f"{_range(at)} bases: {reads:,} reads {_WORDS[kind]}"
                bars.append(_bar(at - first, width, below, height, kind, label))
                below += height
    n50 = every.n50
    share = (bin_of(n50) - first + 0.5) * width
    mark = joined(
        tag("line", x1=place(share), x2=place(share), y1=0, y2=_LENGTHS_HEIGHT, class_="mark"),
        tag("text", f"N50 {n50:,}", x=place(share), y=-6, class_="label",
            text_anchor="start" if share < 0.5 else "end"),
    )  # fmt: skip
    lengths = f"{every.middle():,} bases at the median, {every.longest:,} at most"
    drawing = plot(
        identity, "Reads by length",
        f"Histogram of {every.reads:,} reads: N50 {n50:,}, {lengths}. "
        "The table below has the numbers.",
        joined(*bars, mark), height=_LENGTHS_HEIGHT, across=_across(first, len(bins)),
        up=[(value / most, short(value)) for value in ticks(most) if value == int(value)],
        titles=("length in bases", "reads"),
    )  # fmt: skip
    head: list[Child] = ["Length in bases", "Reads on a target", "Other reads"]
    rows: list[list[Child]] = [
        [_range(at), f"{on.get(at, 0):,}", f"{off.get(at, 0):,}"]
        for at in bins if on.get(at) or off.get(at)
    ]  # fmt: skip
    legend = tag("p", *(joined(tag("span", class_=f"swatch {kind}"), f" {_WORDS[kind]}   ")
                        for kind in ("on", "off")), class_="legend")  # fmt: skip
    return figure(
        "Reads by length", drawing, legend,
        folded("Table of lengths", table(head, rows, caption="Reads by length")),
    )  # fmt: skip


_WORDS = {"on": "on a target", "off": "unassigned"}


def _bar(at: int, width: float, below: float, height: float, kind: str, label: str) -> Markup:
    return tag(
        "rect", tag("title", label), x=place((at + 0.06) * width), width=place(0.88 * width),
        y=round(_LENGTHS_HEIGHT - below - height, 2), height=round(height, 2), class_=f"bar {kind}",
    )  # fmt: skip


def _range(at: int) -> str:
    first, last = first_of(at), first_of(at + 1) - 1
    return f"{max(0, first):,}" if last <= first else f"{first:,} to {last:,}"


def _across(first: int, bins: int) -> list[tuple[float, str]]:
    """Return labels within the bins, at powers of ten, or of two if there are few."""
    for base, least in ((10, 2), (4, 2), (2, 1)):
        places = [(BINS_AN_OCTAVE * math.log2(v) - first) / bins for v in _powers(base)]
        ticks = [(share, short(value))
                 for share, value in zip(places, _powers(base), strict=True)
                 if 0 <= share <= 1]  # fmt: skip
        if len(ticks) >= least:
            return _spread(ticks)
    return []


def _powers(base: int) -> Iterable[int]:
    return [base**at for at in range(round(math.log(1e9, base)) + 1)]


def _spread(ticks: list[tuple[float, str]], most: int = 6) -> list[tuple[float, str]]:
    step = -(-len(ticks) // most)
    return ticks[::step]


_NOVELTY_HEIGHT = 220
_ROWS = 32


def novelty_figure(report: reports.NoveltyReport, identity: str) -> Markup:
    """Draw the figure with its table; nothing without points."""
    points = report.points
    if not points or not points[-1].bases:
        return Markup("")
    end = points[-1]
    most = max(1, end.kmers)
    curve = [(0.0, 0.0), *((p.bases / end.bases, p.kmers / most) for p in points)]
    line = outline(curve)
    body = stretched(
        tag("path", d=f"{line}L1000 1000Z", class_="area"),
        tag("path", d=line, class_="line"),
        height=_NOVELTY_HEIGHT,
    )
    recent = _recent(points)
    description = (
        f"The curve rises to {end.kmers:,} k-mers in {end.bases:,} bases; of the last tenth of the "
        f"bases {recent} brought a new k-mer. The table below has the numbers."
    )
    drawing = plot(
        identity, "New k-mers against bases", description, body, height=_NOVELTY_HEIGHT,
        across=[(value / end.bases, short(value)) for value in ticks(end.bases)],
        up=[(value / most, short(value)) for value in ticks(most)],
        titles=("bases so far", "k-mers"),
    )  # fmt: skip
    head: list[Child] = ["Bases so far", "Reads", "K-mers", "New since the row before"]
    shown = _spread_points(points)
    before = [0, *(point.kmers for point in shown)]
    rows: list[list[Child]] = [
        [f"{p.bases:,}", f"{p.reads:,}", f"{p.kmers:,}", f"{p.kmers - was:,}"]
        for p, was in zip(shown, before, strict=False)
    ]
    note = f"Of the last tenth of the bases, {recent} brought a new k-mer."
    return figure(
        "New k-mers against bases", drawing, joined(tag("p", note)),
        folded("Table of the curve", table(head, rows, caption="Novelty curve")),
    )  # fmt: skip


def _recent(points: list[reports.CurvePoint]) -> str:
    """Return the share of new k-mers in the last tenth of the bases."""
    end = points[-1]
    before = reports.CurvePoint(0, 0, 0, 0)
    for point in points:
        if point.bases <= 0.9 * end.bases:
            before = point
    return percent(end.kmers - before.kmers, end.bases - before.bases)


def _spread_points(points: list[reports.CurvePoint]) -> list[reports.CurvePoint]:
    step = -(-len(points) // _ROWS)
    return points[::-1][::step][::-1]


SHOWN_TARGETS, SHOWN_PAIRS = 200, 2000


def target_table(report: reports.TargetReport, caption: str) -> Markup:
    """Return the targets with the most reads, the others in one row, and the unassigned reads."""
    lines = [*report.lines()]
    *targets, unassigned = lines
    total = report.reads
    ranked = report.ranked()
    if len(ranked) <= SHOWN_TARGETS:
        ranked = sorted(ranked)
    verdicts = report.verdicts.get(None)
    head: list[Child] = [
        "Target", "Reads", "of reads", "Bases", "Breadth", "Depth", "K-mers seen", "K-mers",
        "Matches", *(["Verdict"] if verdicts else []),
    ]  # fmt: skip
    empty = [""] * (len(head) - 4)
    rows: list[list[Child]] = []
    for at in ranked[:SHOWN_TARGETS]:
        line = targets[at]
        rows.append([
            line.target, f"{line.reads:,}", percent(line.reads, total), f"{line.bases:,}",
            joined(breadth_bar(line.breadth), ratio(line.breadth)), ratio(line.depth),
            f"{line.seen:,}", f"{line.kmers:,}", f"{line.matches:,}",
            *([verdicts[at] or "–"] if verdicts else []),
        ])  # fmt: skip
    rest = [targets[at] for at in ranked[SHOWN_TARGETS:]]
    if rest:
        reads, bases = sum(line.reads for line in rest), sum(line.bases for line in rest)
        rows.append([f"{len(rest):,} other targets", f"{reads:,}", percent(reads, total),
                     f"{bases:,}", *empty])  # fmt: skip
    rows.append(["unassigned", f"{unassigned.reads:,}", percent(unassigned.reads, total),
                 f"{unassigned.bases:,}", *empty])  # fmt: skip
    return table(head, rows, caption=caption)


_NAMED = 100


def missing_table(report: reports.TargetReport, where: str) -> Markup:
    """Return a row per sample: what it has, and the names of what it lacks, the most lacking first.

    Samples are the barcodes of the sheet, if there is one. Negative controls stand last.
    """
    judged = bool(report.verdicts)
    head: list[Child] = ["Sample", "Reads", "Detected" if judged else "With reads"]
    head += ["More needed", "Not detected"] if judged else ["Without a read"]
    rows: list[tuple[bool, int, int, list[Child]]] = []
    for barcode in report.barcodes:
        samples = report.sheet.samples or report.groups.keys() - {None, "unclassified"}
        if report.by_barcode and barcode not in samples:
            continue
        detected = report.having(barcode, "detected")
        have = f"{len(detected):,} of {len(report.names):,}"
        if judged and detected:
            have += f": {_names(detected)}"
        more, none = (report.having(barcode, each) for each in ("more needed", "not detected"))
        if not (judged or none):
            continue
        lists = [_names(each) for each in ([more, none] if judged else [none])]
        control = report.control(barcode)
        name = joined(
            report.sheet.shown(barcode) if report.by_barcode else "all reads",
            tag("small", f" {control} control") if control else None,
        )
        reads = int(report.groups[barcode][0].sum())
        row: list[Child] = [name, f"{reads:,}", have, *lists]
        rows.append((control == "negative", len(detected), reads, row))
    if not rows:
        return tag("p", f"Every sample has reads of every target{where}.")
    rows.sort(key=lambda row: row[:3])
    caption = f"What is missing{where}, by sample, the most first"
    return table(head, [row for *_, row in rows], caption=caption, text_from=2, class_="names")


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) + rest) or "–"


def barcode_table(report: reports.TargetReport) -> Markup:
    """Return one row per barcode, with all its reads."""
    head: list[Child] = ["Barcode", "Reads", "Bases", "On a target", "Targets with reads"]
    rows: list[list[Child]] = []
    for barcode in report.barcodes:
        reads, bases, *_ = counts = report.groups[barcode]
        on = int(reads[:-1].sum())
        rows.append([
            report.sheet.shown(barcode), f"{int(reads.sum()):,}", f"{int(bases.sum()):,}",
            percent(on, int(reads.sum())), f"{int((counts[0, :-1] > 0).sum()):,}",
        ])  # fmt: skip
    return table(head, rows, caption="Reads by barcode")


def pair_table(report: reports.TargetReport) -> Markup:
    """Return a row per pair of barcode and target: all that are judged, else what was seen."""
    head: list[Child] = ["Barcode", "Target", "Reads", "Bases", "Breadth", "Depth", "K-mers seen"]
    head += ["Verdict"] if report.verdicts else []
    rows: list[list[Child]] = []
    further = reads_left = 0
    pairs = (len(report.names) + 1) * len(report.groups)
    every = bool(report.verdicts) and pairs <= SHOWN_PAIRS
    for barcode in report.barcodes:
        verdicts = [*report.verdicts.get(barcode, [None] * len(report.names)), None]
        for line, verdict in zip(report.lines(barcode), verdicts, strict=True):
            if not (every or line.reads or line.seen):
                continue
            if len(rows) == SHOWN_PAIRS:
                further, reads_left = further + 1, reads_left + line.reads
                continue
            known = line.target is not None
            rows.append([
                report.sheet.shown(barcode), line.target if known else "unassigned",
                f"{line.reads:,}", f"{line.bases:,}",
                *([ratio(line.breadth), ratio(line.depth), f"{line.seen:,}"] if known
                  else [""] * 3),
                *([verdict or ""] if report.verdicts else []),
            ])  # fmt: skip
    if further:
        rows.append([f"{further:,} more", "", f"{reads_left:,}", *[""] * (len(head) - 3)])
    what = "" if every else ", where anything was seen"
    return table(head, rows, caption=f"Targets by barcode{what}", numbers_from=2)


def breadth_bar(breadth: float | None) -> Markup:
    """Return a bar as long as the share seen, next to the number."""
    if breadth is None:
        return Markup("")
    return tag(
        "svg",
        joined(tag("rect", width="100%", height=8, rx=2, class_="cell"),
               tag("rect", width=f"{100 * breadth:.2f}%", height=8, rx=2, class_="bar on")),
        width=96, height=8, aria_hidden="true", class_="inline",
    )  # fmt: skip
