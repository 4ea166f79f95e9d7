"""Draw records of alpha: the shortest solution along each, and primers below."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.plots import drawn
from streamer.errors import DataError
from streamer.sequences.source import shown_name

FORMATS = (".png", ".svg", ".pdf")

MOST_TRACKS = 100  # records in one picture; matplotlib refuses 65,536 pixels, 170 records


@dataclass(frozen=True, slots=True)
class Bar:
    """A primer to draw: its interval, strand, and a label (such as its differences)."""

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


def check_tracks(path: str, records: int) -> None:
    """Raise DataError if alpha has more records than fit in a picture."""
    if records > MOST_TRACKS:
        raise DataError(
            f"holds {records} records, --plot has room for {MOST_TRACKS}", file=shown_name(path)
        )


def plot(tracks: Sequence[Track], path: str, *, k: int) -> bytes:
    """Draw the tracks, one below the other, in the format given by the suffix of ``path``."""
    from matplotlib.figure import Figure

    rows = max(1, len(tracks))
    figure = Figure(figsize=(12, 3.2 * rows), layout="tight")
    axes = figure.subplots(rows, 1, squeeze=False)
    for axis, track in zip(axes[:, 0], tracks, strict=False):
        _draw(axis, track, k)
    return drawn(figure, path, 120)


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
