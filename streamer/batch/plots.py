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
from streamer.batch.records import Codes
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
_SHUFFLED, _SHUFFLES = 20_000, 5


def by_chance(a: Codes, b: Codes, symbols: int) -> int:
    """Return how long the longest block is if only chance makes blocks: with ``b`` shuffled.

    Of longer sequences a part is shuffled, and the tail of its lengths, a geometric one, goes on.
    """
    from streamer.batch.choice import choose
    from streamer.batch.lcs import METHODS
    from streamer.batch.lcs.solve import matching_of

    rng, choice = np.random.default_rng(1), choose(METHODS, "adaptive", None, "cpu")
    lengths = np.zeros(0, np.int64)
    for _ in range(_SHUFFLES):
        first, other = (rng.permutation(letters)[:_SHUFFLED] for letters in (a, b))
        blocks = matching_of(first, other, symbols, choice, 1).blocks()
        lengths = np.append(lengths, blocks["length"])
    if not lengths.size:
        return 0
    goes_on = 1 - lengths.size / lengths.sum()
    more = max(1.0, min(a.size, b.size) / _SHUFFLED)
    return int(lengths.max() + (np.log(more) / -np.log(goes_on) if goes_on else 0))


def dot_plot(
    path: str, pairs: Matching, names: tuple[str, str], blocks: NDArray[np.void], chance: int
) -> bytes:
    """Draw ``blocks`` (of ``Matching.blocks``), the first sequence from left to right.

    chance: those up to this length are left out, as shuffled sequences have them, too. Returns the
    picture in the format given by the suffix of ``path``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 8), layout="constrained")
    axes = figure.add_subplot()
    width, height = max(pairs.in_a.size, 1), max(pairs.in_b.size, 1)
    blocks = blocks[blocks["length"] > chance]
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
    axes.set_xlabel(f"{names[0]}: position, of {pairs.in_a.size:,}")
    axes.set_ylabel(f"{names[1]}: position, of {pairs.in_b.size:,}")
    axes.set_title(
        f"longest common subsequence: {len(pairs):,}\n"
        f"identity {pairs.identity():.2%} of the longer, {pairs.column_identity():.2%} of columns\n"
        f"{blocks.size:,} blocks longer than {chance:,}, the most that shuffled sequences share"
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
    """A primer to draw: its interval, strand, and a label: its differences, or its pair."""

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
    figure = Figure(figsize=(12, 3.6 * rows), layout="tight")
    for axes, track in zip(figure.subfigures(rows, 1, squeeze=False)[:, 0], tracks, strict=False):
        lanes = [
            (f"{label} {strand}", colour, [bar for bar in bars if bar.strand == strand])
            for bars, colour, label in (
                (track.chosen, "tab:orange", "chosen"), (track.known, "tab:green", "known"),
            )
            for strand in ("+", "-") if bars
        ]  # fmt: skip
        above, below = axes.subplots(2, 1, sharex=True, height_ratios=[6, 1 + len(lanes)])
        _draw_track(above, track, k)
        below.set_visible(bool(lanes))
        _draw_lanes(below, lanes, track.lengths.size)
        lowest = below if lanes else above
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("position (bases)")
    return drawn(figure, path, 120)


def _draw_track(axis: Any, track: Track, k: int) -> None:
    solved = np.where(track.lengths > 0, track.lengths.astype(float), np.nan)
    axis.plot(np.arange(solved.size), solved, linewidth=0.6, color="tab:blue")
    axis.set_xlim(0, max(1, track.lengths.size))
    axis.set_yscale("log")
    axis.set_ylim(1, 2 * max(5, int(track.lengths.max(initial=0))))
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.set_ylabel("shortest length (bases)")
    axis.set_title(f"{track.name}: shortest substrings with {k} differences or more", fontsize=10)


def _draw_lanes(axis: Any, lanes: Sequence[tuple[str, str, list[Bar]]], size: int) -> None:
    """Draw the bars of each lane, and a line from one primer of a pair to the other."""
    ends: dict[str, list[tuple[float, int]]] = {}
    for at, (label, colour, bars) in enumerate(lanes):
        for bar in bars:
            middle = (bar.start + bar.end) / 2
            # of a whole genome, a primer must stay visible
            half = max(bar.end - bar.start, size / 300) / 2
            axis.hlines(at, middle - half, middle + half, linewidth=5, color=colour)
            if bar.text:
                axis.text(middle, at - 0.3, bar.text, fontsize=6, ha="center")
            if bar.text and label.startswith("chosen"):
                ends.setdefault(bar.text, []).append((middle, at))
    for pair in ends.values():
        axis.plot(*zip(*pair, strict=True), linewidth=0.8, color="tab:orange")
    axis.set_yticks(range(len(lanes)), [label for label, *_ in lanes])
    axis.set_ylim(len(lanes) - 0.5, -0.9)
