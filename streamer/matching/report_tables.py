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
    """Names for the indices in the columns of a report; ``k`` of the codes in a column ``kmer``."""

    def __init__(self, targets: TargetSets, k: int = 0) -> None:
        # -1, no target, picks the null at the end
        target_names = pl.Series([*targets.names, None], dtype=pl.String)
        self._named: dict[str, Callable[[NDArray[Any]], pl.Series]] = {
            "event": EVENT_NAMES.gather,
            "target": lambda sets: distinct(sets, lambda ids: [*map(targets.label, ids.tolist())]),
            "best_target": target_names.gather,
            "strand": STRAND_NAMES.gather,
            "kmer": lambda codes: distinct(codes, lambda codes: decode_kmers(codes, k)),
            "distances": bit_lists,
            "depths": bit_lists,
        }

    def table(self, columns: Columns, names: Sequence[str]) -> pl.DataFrame:
        """The rows as users see them; ``names`` of the batch's reads."""
        reads = pl.Series(names, dtype=pl.String)
        named = self._named | {"read": reads.gather}
        return pl.DataFrame(
            {column: named.get(column, pl.Series)(values) for column, values in columns.items()}
        )


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
