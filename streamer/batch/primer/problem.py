"""The k-difference primer problem as data: starts of alpha, and how far each has been matched.

For a start r, its *reach* is the exclusive end of the longest prefix of alpha[r:] known to be
within k - 1 differences of a substring of beta. It starts at r + k - 1 (the empty substring) and
only grows as texts of beta are looked at; a record's reaches never fall from one start to the
next, since what is left of a match without its first symbol is a match. The solution at r ends one
symbol behind the final reach, if alpha goes on that far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]

FIELDS = [("alpha", np.int32), ("start", np.int64), ("end", np.int64), ("length", np.int64)]
"""The fields of a result row: record of alpha, half-open interval, its length."""

MAX_K = 1000


@dataclass(frozen=True, slots=True)
class Alpha:
    """The records of alpha, one after another.

    codes: uint8[m], 4 is a gap. offsets: int64[records + 1]. ends: int64[m], the end of the record
    that holds each start.
    """

    codes: Codes
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, records: Sequence[Codes]) -> Alpha:
        """Join records, empty ones too."""
        sizes = np.array([record.size for record in records], dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
        codes = np.concatenate([np.empty(0, dtype=np.uint8), *records])
        return cls(codes, offsets, np.repeat(offsets[1:], sizes))

    def longest(self) -> int:
        """The length of the longest record."""
        return int(np.diff(self.offsets).max(initial=0))

    def first_reaches(self, k: int) -> NDArray[np.int64]:
        """What the empty substring of beta alone gives: int64[m]."""
        return np.minimum(np.arange(self.codes.size) + (k - 1), self.ends)

    def raise_later(self, reach: NDArray[np.int64]) -> None:
        """Let every reach be at least that of the start before it in the same record."""
        # ends grow with the records, so a record's reaches never pass the next one's first
        np.maximum.accumulate(reach, out=reach)

    def rows(self, reach: NDArray[np.int64]) -> NDArray[np.void]:
        """The solutions (FIELDS) of final reaches, in order of records and starts."""
        starts = np.flatnonzero(reach < self.ends)
        record = np.searchsorted(self.offsets, starts, side="right") - 1
        begin = self.offsets[record]
        found = np.empty(starts.size, dtype=FIELDS)
        found["alpha"] = record
        found["start"] = starts - begin
        found["end"] = reach[starts] + 1 - begin
        found["length"] = found["end"] - found["start"]
        return found
