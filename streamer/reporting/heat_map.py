"""Targets by barcode: the breadth of each pair as a cell."""

from __future__ import annotations

from streamer.reporting.markup import Markup, joined, tag
from streamer.reporting.quantities import ratio
from streamer.reporting.target_report import TargetReport

DRAWN_TARGETS, DRAWN_BARCODES = 50, 100
_CELL, _ROW = 36, 24
_LETTERS = 26
_TOP = 104
_LETTER = 7  # typical width of a letter


def heat_map(report: TargetReport, identity: str) -> Markup:
    """Draw the targets with the most reads; rows are targets, columns barcodes."""
    barcodes = report.barcodes[:DRAWN_BARCODES]
    ranked = report.ranked()[:DRAWN_TARGETS]
    columns = {barcode: report.groups[barcode].T.tolist() for barcode in barcodes}
    names = [_cut(report.names[target], _LETTERS) for target in ranked]
    before = 16 + _LETTER * max(map(len, names))
    cells, labels = [], []
    for x, barcode in enumerate(barcodes):
        left = before + x * _CELL + _CELL / 2 + 4
        shown = tag("text", _cut(barcode or "none", 14), x=left, y=_TOP - 8,
                    transform=f"rotate(-60 {left} {_TOP - 8})")  # fmt: skip
        labels.append(shown)
    for y, target in enumerate(ranked):
        labels.append(
            tag("text", names[y], x=before - 8, y=_TOP + y * _ROW + 16, text_anchor="end")
        )
        for x, barcode in enumerate(barcodes):
            place = before + x * _CELL, _TOP + y * _ROW
            cells.append(_cell(place, report.names[target], barcode, columns[barcode][target]))
    width = before + _CELL * len(barcodes) + 48
    svg = tag(
        "svg",
        tag("title", "Breadth of targets by barcode", id=f"{identity}-title"),
        tag("desc", f"A row for each of {len(ranked)} targets, a column for each of "
            f"{len(barcodes)} barcodes; the darker, the more of the target was seen. "
            "The table below has the numbers.", id=f"{identity}-desc"),
        tag("g", *cells), tag("g", *labels, class_="labels", aria_hidden="true"),
        role="img", aria_labelledby=f"{identity}-title {identity}-desc",
        width=width, height=_TOP + _ROW * len(ranked) + 4, xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
    swatches = [
        joined(tag("span", tag("i", style=f"opacity:{_shade(share)}"), class_="swatch heat"),
               f" {share:.0%}   ")
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]  # fmt: skip
    scroll = tag("div", svg, class_="scroll", tabindex=0, role="region",
                 aria_label="Heat map of breadth")  # fmt: skip
    return joined(scroll, tag("p", "Breadth: ", *swatches, class_="legend"))


def _cell(place: tuple[int, int], name: str, barcode: str | None, counts: list[int]) -> Markup:
    left, top = place
    reads, _, matches, kmers, seen = counts
    share = seen / kmers if kmers else 0
    depth = ratio(matches / kmers) if kmers else "–"
    label = (f"{name}, {barcode or 'no barcode'}: breadth {ratio(share) if kmers else '–'}, "
             f"depth {depth}, {reads:,} reads")  # fmt: skip
    parts = [
        tag("title", label),
        tag("rect", x=left + 1, y=top + 1, width=_CELL - 2, height=_ROW - 2, rx=3, class_="cell"),
        tag("rect", x=left + 1, y=top + 1, width=_CELL - 2, height=_ROW - 2, rx=3,
            class_="seen", fill_opacity=_shade(share)),
    ]  # fmt: skip
    if seen:
        parts.append(tag("text", _share(share), x=left + _CELL / 2, y=top + 16,
                         text_anchor="middle"))  # fmt: skip
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
