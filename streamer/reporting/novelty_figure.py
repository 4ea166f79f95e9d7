"""New k-mers against bases, and its table."""

from __future__ import annotations

from streamer.reporting.charts import figure, folded, outline, plot, stretched
from streamer.reporting.markup import Child, Markup, joined, table, tag
from streamer.reporting.novelty_report import CurvePoint, NoveltyReport
from streamer.reporting.quantities import percent, short, ticks

_HEIGHT = 220
_ROWS = 32


def novelty_figure(report: NoveltyReport, identity: str) -> Markup:
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
        height=_HEIGHT,
    )
    recent = _recent(points)
    description = (
        f"The curve rises to {end.kmers:,} k-mers in {end.bases:,} bases; of the last tenth of the "
        f"bases {recent} brought a new k-mer. The table below has the numbers."
    )
    drawing = plot(
        identity, "New k-mers against bases", description, body, height=_HEIGHT,
        across=[(value / end.bases, short(value)) for value in ticks(end.bases)],
        up=[(value / most, short(value)) for value in ticks(most)],
    )  # fmt: skip
    head: list[Child] = ["Bases so far", "Reads", "K-mers", "New since the row before"]
    shown = _spread(points)
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


def _recent(points: list[CurvePoint]) -> str:
    """Return the share of new k-mers in the last tenth of the bases."""
    end = points[-1]
    before = CurvePoint(0, 0, 0, 0)
    for point in points:
        if point.bases <= 0.9 * end.bases:
            before = point
    return percent(end.kmers - before.kmers, end.bases - before.bases)


def _spread(points: list[CurvePoint]) -> list[CurvePoint]:
    step = -(-len(points) // _ROWS)
    return points[::-1][::step][::-1]
