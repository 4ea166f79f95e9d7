"""Reports with the names of reads, events and targets in the place of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamer.dictionary.targets import TargetSets
from streamer.matching.reports import Columns
from trie.codes import decode_kmers
from trie.strands import SIGNS

STRAND_NAMES = pl.Series(SIGNS)
EVENT_NAMES = pl.Series(["none", "match", "mismatch"])


class ReportTables:
    """Puts the names of reads, events and targets into a report's columns of indices.

    k: of the codes in a column ``kmer``.
    """

    def __init__(self, targets: TargetSets, k: int = 0) -> None:
        self._targets = targets
        self._k = k
        # -1, no target, picks the null at the end
        self._target_names = pl.Series([*targets.names, None], dtype=pl.String)

    def table(self, columns: Columns, names: Sequence[str]) -> pl.DataFrame:
        """The rows as users see them; ``names`` of the batch's reads."""
        return pl.DataFrame(
            {column: self._named(column, values, names) for column, values in columns.items()}
        )

    def _named(self, column: str, values: NDArray[Any], names: Sequence[str]) -> pl.Series:
        if column == "read":
            return pl.Series(names, dtype=pl.String).gather(values)
        if column == "event":
            return EVENT_NAMES.gather(values)
        if column == "target":
            label = self._targets.label
            return distinct(values, lambda present: [label(int(index)) for index in present])
        if column == "best_target":
            return self._target_names.gather(values)
        if column == "strand":
            return STRAND_NAMES.gather(values)
        if column == "kmer":
            return distinct(values, lambda codes: decode_kmers(codes, self._k))
        if column in ("distances", "depths"):
            return bit_lists(values)
        return pl.Series(values)


def bit_lists(bitmaps: NDArray[Any]) -> pl.Series:
    """The set bits of each, ascending, joined by commas; null if there is none."""
    return distinct(bitmaps, lambda maps: [_bits_of(int(bits)) for bits in maps])


def distinct(values: NDArray[Any], shown: Callable[[NDArray[Any]], list[Any]]) -> pl.Series:
    """Every value as ``shown`` converts it; each distinct one is converted once."""
    present, where = np.unique(values, return_inverse=True)
    return pl.Series(shown(present), dtype=pl.String).gather(where)


def _bits_of(bitmap: int) -> str | None:
    """The set bits, ascending, joined by commas; None if there is none."""
    return ",".join(str(bit) for bit in range(32) if bitmap >> bit & 1) or None
