"""Whether a series of samples grows: a line through means of blocks, with its confidence interval.

Samples of one process are autocorrelated: memory hardly changes within a second, and the disk use
of a journal is a sawtooth. Least squares over the samples would treat them as independent and be
far too confident. So the time is cut into ``BLOCKS`` blocks, and a line is fitted to the means of
the blocks, which are nearly independent if blocks are long compared with the correlation time
(batch means). If their residuals are still correlated (lag-1 correlation r > 0), the error is
multiplied by sqrt((1 + r) / (1 - r)), as for a first-order autoregression. The interval is
Student's, with BLOCKS - 2 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

BLOCKS = 12
WARM_UP = 0.25
"""The share of the time that is left out, while pools, caches and the journal fill up."""
SHORTEST = 900.0
"""Seconds after the warm-up from which slopes are judged; in shorter runs they are only shown."""

# quantile 0.995 of Student's distribution with BLOCKS - 2 degrees of freedom: several are judged
_QUANTILE = 3.1693

BOUNDS: Mapping[str, float] = {
    "daemon_mb": 20.0,
    "children_mb": 20.0,
    "descriptors": 4.0,
    "disk_mb": 40.0,
    "p50_ms": 5.0,
    "p99_ms": 50.0,
}
"""For each judged column, the allowed growth an hour: less would not be noticed in a day."""


class Slope(NamedTuple):
    """A column's slope an hour, and half the width of its 99 % interval."""

    mean: float
    slope: float
    half: float

    def grows(self, bound: float) -> bool:
        """Whether even the lower end of the interval is above a bound."""
        return self.slope - self.half > bound


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope | None:
    """The slope of ``values`` an hour; None if a block has fewer than two samples.

    seconds: ascending; samples in the first ``WARM_UP`` of the time are left out, and so are NaNs.
    """
    times, found = np.asarray(seconds, float), np.asarray(values, float)
    if len(times) == 0:
        return None
    kept = (times >= times[0] + WARM_UP * (times[-1] - times[0])) & np.isfinite(found)
    times, found = times[kept] / 3600, found[kept]
    if len(times) < 2 * BLOCKS:
        return None
    edges = np.linspace(times[0], times[-1], BLOCKS + 1)[1:-1]
    block = np.searchsorted(edges, times, side="right")
    counts = np.bincount(block, minlength=BLOCKS)
    if counts.min() < 2:
        return None
    x = np.bincount(block, times, BLOCKS) / counts
    y = np.bincount(block, found, BLOCKS) / counts
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    squares = float(residuals @ residuals)
    error = (squares / (BLOCKS - 2) / float(centred @ centred)) ** 0.5
    follows = float(residuals[1:] @ residuals[:-1]) / squares if squares > 1e-18 else 0.0
    follows = min(max(follows, 0.0), 0.9)
    error *= ((1 + follows) / (1 - follows)) ** 0.5
    return Slope(float(found.mean()), slope, _QUANTILE * error)


def slopes_of(rows: Sequence[Mapping[str, float]]) -> dict[str, Slope | None]:
    """The slope of each column of ``BOUNDS``; rows have ``seconds``, too."""
    seconds = [row["seconds"] for row in rows]
    return {name: slope_of(seconds, [row[name] for row in rows]) for name in BOUNDS}


def is_long_enough(rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether slopes are judged."""
    return bool(rows) and (1 - WARM_UP) * (rows[-1]["seconds"] - rows[0]["seconds"]) >= SHORTEST


def table(slopes: Mapping[str, Slope | None], *, judged: bool) -> tuple[str, list[str]]:
    """Lines for people, and the columns that grow."""
    lines = ["| series | mean | slope an hour, 99 % interval | bound an hour | verdict |"]
    lines.append("| -- | -- | -- | -- | -- |")
    growing = []
    for name, slope in slopes.items():
        if slope is None:
            lines.append(f"| {name} | | too few samples | {BOUNDS[name]:g} | not judged |")
            continue
        verdict = "not judged" if not judged else "holds"
        if judged and slope.grows(BOUNDS[name]):
            verdict = "grows"
            growing.append(name)
        interval = f"{slope.slope:+.2f} ± {slope.half:.2f}"
        lines.append(f"| {name} | {slope.mean:.2f} | {interval} | {BOUNDS[name]:g} | {verdict} |")
    return "\n".join(lines), growing
