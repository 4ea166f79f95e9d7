"""Reports with names of reads, events and targets instead of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.matching.reports import Columns
from streamer.output.text_table import Column, Labels, Lookup, NameLists, Table, distinct
from trie.codes import decode_kmers
from trie.strands import SIGNS
from trie.windows import NO_SET

_FEW_SETS = 500  # name these sets once, not per batch

STRAND_NAMES = Labels(SIGNS)
EVENT_NAMES = Labels(["none", "match", "mismatch"])


class Ratio(float):
    """A ratio: four decimals in TSV, an ordinary number in JSON."""

    def __str__(self) -> str:
        return f"{self:.4f}"


class ReportTables:
    """Replaces indices in report columns by names. k: of the codes in a column ``kmer``."""

    def __init__(self, targets: TargetSets, k: int = 0) -> None:
        self._targets = targets
        self._named: dict[str, Callable[[NDArray[Any]], Column]] = {
            "event": EVENT_NAMES.gather,
            "target": self._target_names,
            "best_target": Labels(targets.names).gather,
            "strand": STRAND_NAMES.gather,
            "kmer": lambda codes: distinct(codes, lambda codes: decode_kmers(codes, k)),
            "distances": bit_lists,
            "depths": bit_lists,
        }

    def table(self, columns: Columns, names: Sequence[str]) -> Table:
        """Return the rows as users see them; ``names``: of the batch's reads."""
        named = self._named | {"read": Labels(names).gather}
        return Table(
            {
                name: named[name](values) if name in named else values
                for name, values in columns.items()
            }
        )

    def _target_names(self, sets: NDArray[Any]) -> Column:
        if len(self._targets) > _FEW_SETS:
            return distinct(sets, lambda ids: [*map(self._targets.shown, ids.tolist())], NameLists)
        return self._set_names.gather(np.minimum(sets, len(self._targets)))

    @cached_property
    def _set_names(self) -> Labels:
        """Return the names of all sets, followed by that of no set."""
        return NameLists([*map(self._targets.shown, [*range(len(self._targets)), int(NO_SET)])])


def bit_lists(bitmaps: NDArray[Any]) -> Lookup:
    """Return the set bits of each bitmap, ascending, joined by commas; null if there are none."""
    return distinct(bitmaps, lambda maps: [_bits_of(int(bits)) for bits in maps])


def _bits_of(bitmap: int) -> str | None:
    """Return the set bits, ascending, joined by commas; None if there are none."""
    return ",".join(str(bit) for bit in range(32) if bitmap >> bit & 1) or None
