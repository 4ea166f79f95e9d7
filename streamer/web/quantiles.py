"""A quantile of a histogram."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(q: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """As Prometheus estimates it: evenly spread within a bucket; None of an empty histogram.

    bounds: the largest value of each bucket; ``counts`` has one more, of the rest, for which the
    last bound stands.
    """
    rank, below = q * sum(counts), 0
    if not rank > 0:
        return None
    for at, count in enumerate(counts[:-1]):
        if below + count >= rank:
            least = bounds[at - 1] if at else 0.0
            return least + (bounds[at] - least) * (rank - below) / count
        below += count
    return bounds[-1]
