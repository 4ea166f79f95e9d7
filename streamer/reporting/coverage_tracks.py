"""Coverage along each target: depth as an area, breadth as a strip below."""

from __future__ import annotations

from streamer.reporting.charts import folded, outline, place, plot, stretched
from streamer.reporting.coverage_report import CoverageReport, TargetBins
from streamer.reporting.markup import Child, Markup, joined, table, tag
from streamer.reporting.quantities import ratio, short, ticks

_HEIGHT, _STRIP = 96, 12


def coverage_tracks(report: CoverageReport, identity: str) -> Markup:
    """Draw a track per selected target, with its table."""
    tracks = [_track(bins, f"{identity}-{at}") for at, bins in enumerate(report.drawn)]
    return tag("div", *tracks, class_="tracks")


def _track(bins: TargetBins, identity: str) -> Markup:
    length = int(bins.end[-1]) if bins.end.size else 0
    whole = max(1, length)
    kmers, seen, matches = (int(values.sum()) for values in bins[3:])
    depths = [m / k if k else 0.0 for m, k in zip(bins.matches.tolist(), bins.kmers.tolist(),
                                                   strict=True)]  # fmt: skip
    most = max([*depths, 0.0]) or 1.0
    starts, ends = bins.start.tolist(), bins.end.tolist()
    steps: list[tuple[float, float]] = [(0.0, 0.0)]
    for start, end, depth in zip(starts, ends, depths, strict=True):
        steps += [(start / whole, depth / most), (end / whole, depth / most)]
    steps.append((1.0, 0.0))
    area = stretched(
        tag("path", d=outline(steps) + "Z", class_="area"),
        tag("path", d=outline(steps[1:-1]), class_="line"),
        height=_HEIGHT,
    )
    strip = [
        tag("rect", tag("title", f"{start:,} to {end:,}: {s:,} of {k:,} k-mers seen"),
            x=place(start / whole), width=place((end - start) / whole), y=_HEIGHT + 3,
            height=_STRIP, fill_opacity=round(0.08 + 0.62 * s / k, 3) if k else 0, class_="seen")
        for start, end, s, k in zip(starts, ends, bins.seen.tolist(), bins.kmers.tolist(),
                                    strict=True)
    ]  # fmt: skip
    breadth = round(seen / kmers, 4) if kmers else None
    depth = round(matches / kmers, 4) if kmers else None
    facts = f"breadth {ratio(breadth)}, depth {ratio(depth)}, {length:,} bases"
    drawing = plot(
        identity, f"Coverage along {bins.name}",
        f"Depth in {len(starts)} bins, {max([*depths, 0.0]):,.2f} at most; {facts}. "
        "The table below has the numbers.",
        joined(area, tag("g", *strip, class_="strip")), height=_HEIGHT + 3 + _STRIP,
        across=[(value / whole, short(value)) for value in ticks(length, 3)],
        up=_up(most),
    )  # fmt: skip
    head: list[Child] = ["Start", "End", "K-mers", "Seen", "Matches", "Depth"]
    rows: list[list[Child]] = [
        [*(f"{value:,}" for value in row), f"{depth:,.2f}"]
        for row, depth in zip(zip(*(v.tolist() for v in bins[1:]), strict=True), depths,
                              strict=True)
    ]  # fmt: skip
    return tag(
        "figure", tag("figcaption", tag("strong", bins.name), tag("span", f" {facts}")), drawing,
        folded("Table of bins", table(head, rows, caption=f"Coverage along {bins.name}",
                                      numbers_from=0)),
    )  # fmt: skip


def _up(most: float) -> list[tuple[float, str]]:
    """Return the depth labels; the strip below takes part of the height."""
    height = _HEIGHT + 3 + _STRIP
    return [((height - _HEIGHT * (1 - value / most)) / height, short(value))
            for value in ticks(most, 2)]  # fmt: skip
