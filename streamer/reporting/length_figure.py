"""Reads by length: a histogram with four bins an octave, and its table."""

from __future__ import annotations

import math
from collections.abc import Iterable

from streamer.reporting.charts import figure, folded, place, plot
from streamer.reporting.markup import Child, Markup, joined, table, tag
from streamer.reporting.quantities import short, ticks
from streamer.reporting.read_report import LengthCounts, ReadsReport

BINS_AN_OCTAVE = 4
_HEIGHT = 220


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


def by_bin(counts: LengthCounts) -> dict[int, int]:
    """Count reads by bin number."""
    found: dict[int, int] = {}
    for length, reads in counts.by_length.items():
        number = bin_of(length)
        found[number] = found.get(number, 0) + reads
    return found


def length_figure(report: ReadsReport, identity: str) -> Markup:
    """Draw the figure with its table; nothing without reads."""
    every = report.all
    if not every.reads:
        return Markup("")
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
                height = _HEIGHT * reads / most
                label = f"{_range(at)} bases: {reads:,} reads {_WORDS[kind]}"
                bars.append(_bar(at - first, width, below, height, kind, label))
                below += height
    n50 = every.n50
    share = (bin_of(n50) - first + 0.5) * width
    mark = joined(
        tag("line", x1=place(share), x2=place(share), y1=0, y2=_HEIGHT, class_="mark"),
        tag("text", f"N50 {n50:,}", x=place(share), y=-6, class_="label",
            text_anchor="start" if share < 0.5 else "end"),
    )  # fmt: skip
    lengths = f"{every.middle():,} bases at the median, {every.longest:,} at most"
    drawing = plot(
        identity, "Reads by length",
        f"Histogram of {every.reads:,} reads: N50 {n50:,}, {lengths}. "
        "The table below has the numbers.",
        joined(*bars, mark), height=_HEIGHT, across=_across(first, len(bins)),
        up=[(value / most, short(value)) for value in ticks(most) if value == int(value)],
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


_WORDS = {"on": "on a target", "off": "on no target"}


def _bar(at: int, width: float, below: float, height: float, kind: str, label: str) -> Markup:
    return tag(
        "rect", tag("title", label), x=place((at + 0.06) * width), width=place(0.88 * width),
        y=round(_HEIGHT - below - height, 2), height=round(height, 2), class_=f"bar {kind}",
    )  # fmt: skip


def _range(at: int) -> str:
    first, last = first_of(at), first_of(at + 1) - 1
    return f"{max(0, first):,}" if last <= first else f"{first:,} to {last:,}"


def _across(first: int, bins: int) -> list[tuple[float, str]]:
    """Return labels within the bins, at powers of ten, or of two if there are few."""
    for base, least in ((10, 2), (4, 2), (2, 1)):
        places = [(BINS_AN_OCTAVE * math.log2(v) - first) / bins for v in _powers(base)]
        found = [(share, short(value))
                 for share, value in zip(places, _powers(base), strict=True)
                 if 0 <= share <= 1]  # fmt: skip
        if len(found) >= least:
            return _spread(found)
    return []


def _powers(base: int) -> Iterable[int]:
    return [base**at for at in range(round(math.log(1e9, base)) + 1)]


def _spread(found: list[tuple[float, str]], most: int = 6) -> list[tuple[float, str]]:
    step = -(-len(found) // most)
    return found[::step]
