"""A dot plot of the blocks that two sequences have in common, as PNG or SVG."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Matching
from streamer.batch.plots import drawn

FORMATS = (".png", ".svg")
MOST_LINES = 20_000
"""Up to this many blocks are drawn as lines; else pairs are counted in PIXELS^2 squares."""

PIXELS = 1_000


def plot(path: str, found: Matching, names: tuple[str, str], blocks: NDArray[np.void]) -> bytes:
    """Draw ``blocks`` (of ``Matching.blocks``) with the first sequence from left to right.

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
