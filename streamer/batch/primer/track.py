"""A picture of a record of alpha: the shortest solution along it, and primers below."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.errors import DataError, StreamerError, UsageError

FORMATS = (".png", ".svg", ".pdf")

MOST_TRACKS = 100
"""Records in one picture; matplotlib makes none of 65,536 pixels, 170 records."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A primer to draw: its interval, strand, and a text (its differences, say)."""

    start: int
    end: int
    strand: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """A record: name, its length, the shortest solution's length at each start (0: none)."""

    name: str
    lengths: NDArray[np.int64]
    chosen: Sequence[Bar] = ()
    known: Sequence[Bar] = ()


def check_plot(path: str) -> None:
    """UsageError for a name that says no format; StreamerError where matplotlib lacks."""
    if not path.lower().endswith(FORMATS):
        message = f"--plot {path}: the name must end in {', '.join(FORMATS)}"
        raise UsageError(message)
    _pyplot()


def check_tracks(path: str, records: int) -> None:
    """DataError for more records of alpha than a picture has room for."""
    if records > MOST_TRACKS:
        problem = f"holds {records} records, --plot has room for {MOST_TRACKS}"
        raise DataError(problem, file=path)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        message = "plots need matplotlib: pip install 'kmer-streamer[primer]'"
        raise StreamerError(message) from None
    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot(tracks: Sequence[Track], path: str, *, k: int) -> bytes:
    """A picture of the tracks, one below the other; its format is that of the name ``path``."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        max(1, len(tracks)), 1, figsize=(12, 3.2 * max(1, len(tracks))), squeeze=False
    )
    for axis, track in zip(axes[:, 0], tracks, strict=False):
        _draw(axis, track, k)
    figure.tight_layout()
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=os.path.splitext(path)[1][1:].lower(), dpi=120)
    finally:
        pyplot.close(figure)
    return picture.getvalue()


def _draw(axis: Any, track: Track, k: int) -> None:
    solved = np.where(track.lengths > 0, track.lengths.astype(float), np.nan)
    axis.plot(np.arange(solved.size), solved, linewidth=0.6, color="tab:blue")
    highest = float(np.nanmax(solved)) if (track.lengths > 0).any() else 1.0
    rows = ((track.chosen, "tab:orange", "chosen"), (track.known, "tab:green", "known"))
    for depth, (bars, colour, label) in enumerate(rows, 1):
        for strand, offset in (("+", 0.0), ("-", 0.07)):
            some = [bar for bar in bars if bar.strand == strand]
            y = -(0.16 * depth + offset) * highest
            axis.hlines(
                [y] * len(some), [bar.start for bar in some], [bar.end for bar in some],
                linewidth=4, color=colour, label=label if strand == "+" and bars else None,
            )  # fmt: skip
            for bar in some:
                if bar.text:
                    axis.text((bar.start + bar.end) / 2, y, bar.text, fontsize=5, ha="center")
    axis.set_xlim(0, max(1, track.lengths.size))
    axis.set_ylabel("shortest length")
    axis.set_title(f"{track.name}: shortest substrings with {k} differences or more", fontsize=10)
    if track.chosen or track.known:
        axis.legend(fontsize=7, loc="upper right")
