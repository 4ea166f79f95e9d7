"""A timeline as a picture: a row for each stream and kind of work, as in thesis Fig. 40 and 41."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu.card.timeline import ROWS, Activity


def draw(timelines: Mapping[str, Sequence[Activity]], path: str | Path) -> None:
    """Draw the timelines (by title) one below the other, on one scale, to ``path``.

    The suffix chooses the format: .svg, .png or .pdf. Raises ImportError without matplotlib, which
    is in the extra ``bench``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.1 + 2.2 * len(timelines)), layout="constrained")
    axes = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (title, bars) in zip(axes, timelines.items(), strict=True):
        there = {(bar.stream, bar.row) for bar in bars}
        rows = [
            (stream, row)
            for stream in sorted({stream for stream, _ in there})
            for row in ROWS
            if (stream, row) in there
        ]
        origin = min((bar.begin for bar in bars), default=0.0)
        for bar in bars:
            axis.barh(
                rows.index((bar.stream, bar.row)),
                max(bar.end - bar.begin, 0.002),
                left=bar.begin - origin,
                height=0.8,
                color=f"C{bar.chunk % 10}",
            )
        names = [f"{'AB'[stream] if stream < 2 else stream} {row}" for stream, row in rows]
        axis.set_yticks(range(len(rows)), names)
        axis.invert_yaxis()
        axis.set_title(title, loc="left")
    axes[-1].set_xlabel("milliseconds; a colour a chunk")
    figure.savefig(path)
