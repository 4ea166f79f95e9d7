"""Plots of the batch solvers' results, drawn with matplotlib if it is installed.

**lcs**: a dot plot of the blocks that two sequences have in common.

**primer**: for each record of alpha the shortest solution along it, and primers below.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Matching
from streamer.errors import DataError, StreamerError, UsageError
from streamer.sequences.source import shown_name

DOT_FORMATS = (".png", ".svg")
TRACK_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: str, formats: tuple[str, ...], extra: str) -> None:
    """Raise UsageError for a name with an unknown suffix; StreamerError if matplotlib is missing.

    formats: suffixes, such as ".png". extra: the extra of this package that installs matplotlib.
    """
    if Path(path).suffix.lower() not in formats:
        raise UsageError(f"--plot {path}: the name must end in {', '.join(formats)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise StreamerError(f"plots need matplotlib: pip install '.[{extra}]' in a clone") from None


def drawn(figure: Any, path: str, dpi: int) -> bytes:
    """Return a matplotlib figure in the format given by the suffix of ``path``."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name may have dollar signs
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # characters that the font lacks are drawn as boxes
        warnings.simplefilter("ignore")
        figure.savefig(picture, format=Path(path).suffix[1:].lower(), dpi=dpi)
    return picture.getvalue()


MOST_LINES = 20_000
"""Up to this many blocks are drawn as lines; else pairs are counted in PIXELS^2 squares."""

PIXELS = 1_000


def dot_plot(path: str, found: Matching, names: tuple[str, str], blocks: NDArray[np.void]) -> bytes:
    """Draw ``blocks`` (of ``Matching.blocks``), the first sequence from left to right.

    Returns the picture in the format given by the suffix of ``path``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 8), layout="constrained")
    axes = figure.add_subplot()
    width, height = max(found.in_a.size, 1), max(found.in_b.size, 1)
    if blocks.size <= MOST_LINES:
        _lines(axes, blocks, max(width, height))
    else:
        counts = density(blocks, width, height)
        axes.imshow(
            np.ma.masked_equal(counts, 0), origin="lower", extent=(0, width, 0, height),
            cmap="viridis_r", interpolation="nearest", aspect="auto",
        )  # fmt: skip
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_xlabel(f"{names[0]} ({found.in_a.size:,})")
    axes.set_ylabel(f"{names[1]} ({found.in_b.size:,})")
    axes.set_title(
        f"longest common subsequence: {len(found):,}\n"
        f"identity {found.identity():.2%} of the longer, {found.column_identity():.2%} of columns"
    )
    return drawn(figure, path, 150)


def _lines(axes: Any, blocks: NDArray[np.void], longest: int) -> None:
    from matplotlib.collections import LineCollection

    # a single pair must stay visible
    least = longest / PIXELS
    length = np.maximum(blocks["length"], least)
    ends = np.stack(
        [
            np.stack([blocks["a_start"], blocks["b_start"]], axis=1),
            np.stack([blocks["a_start"] + length, blocks["b_start"] + length], axis=1),
        ],
        axis=1,
    )
    lines: Any = LineCollection
    axes.add_collection(lines(ends, linewidths=1.0, colors="#20508c"))


def density(blocks: NDArray[np.void], width: int, height: int) -> NDArray[np.int64]:
    """Return int64[PIXELS, PIXELS]: pairs in each square; rows are the second sequence."""
    counts = np.zeros((PIXELS, PIXELS), dtype=np.int64)
    # blocks are cut where they enter the next square, to avoid counting pair by pair
    piece = max(1, min(width, height) // PIXELS)
    pieces = -(-blocks["length"] // piece)
    which = np.repeat(np.arange(blocks.size), pieces)
    offset = (np.arange(which.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * piece
    weight = np.minimum(piece, blocks["length"][which] - offset)
    x = (blocks["a_start"][which] + offset) * PIXELS // width
    y = (blocks["b_start"][which] + offset) * PIXELS // height
    np.add.at(counts, (y, x), weight)
    return counts


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


def plot_tracks(tracks: Sequence[Track], path: str, *, k: int) -> bytes:
    """Draw the tracks, one below the other, in the format given by the suffix of ``path``."""
    from matplotlib.figure import Figure

    rows = max(1, len(tracks))
    figure = Figure(figsize=(12, 3.2 * rows), layout="tight")
    axes = figure.subplots(rows, 1, squeeze=False)
    for axis, track in zip(axes[:, 0], tracks, strict=False):
        _draw_track(axis, track, k)
    return drawn(figure, path, 120)


def _draw_track(axis: Any, track: Track, k: int) -> None:
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
