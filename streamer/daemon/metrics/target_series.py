"""Reads by target and barcode, in a bounded number of series.

A time series costs memory wherever it is stored, and a panel may have a million pairs of target
and barcode. A pair gets a series with its first read and keeps it; once the limit is reached,
further pairs are counted together.
"""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[str, str]
"""Target and barcode."""

NONE = "."
OTHER: Pair = ("other", "other")


class TargetSeries:
    """Which pairs have a series: at most ``limit``, plus one for all others together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._own: set[Pair] = set()

    def counts(
        self, rows: Iterable[tuple[str | None, str | None, int]], *, anew: bool = False
    ) -> dict[Pair, int]:
        """Reads by pair. rows: barcode, target, reads. anew: forget which pairs have a series."""
        if anew:
            self._own.clear()
        counts: dict[Pair, int] = {}
        for barcode, target, reads in rows:
            if not reads:
                continue
            pair = target or NONE, barcode or NONE
            if pair not in self._own:
                if len(self._own) < self._limit:
                    self._own.add(pair)
                else:
                    pair = OTHER
            counts[pair] = counts.get(pair, 0) + reads
        return counts
