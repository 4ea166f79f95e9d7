"""The k-difference primer problem as data: the starts of alpha, and how far each is matched.

The *reach* of a start r is the exclusive end of the longest prefix of alpha[r:] known to be within
k - 1 differences of a substring of beta. It begins at r + k - 1 (the empty substring) and grows
with the texts of beta. Within a record, reaches never decrease from start to start: a match without
its first symbol is still a match. The solution at r ends one symbol after its final reach, if the
record is that long.

Beta is cut into pieces that fit in memory, without losing a substring that matters. A prefix of
alpha within k - 1 differences of a substring of beta has at most len(alpha) symbols, so the
substring has at most len(alpha) + k - 1. Long records are cut into pieces that overlap by that
much; short ones share a chunk. Memory holds one record and one chunk, whatever the size of beta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.records import Codes, reverse_complement
from streamer.errors import UsageError

Columns = NDArray[np.int64]

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
    offsets: Columns
    ends: Columns

    @classmethod
    def of(cls, records: Sequence[Codes]) -> Alpha:
        """Join records; some may be empty."""
        sizes = np.array([record.size for record in records], dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
        codes = np.concatenate([np.empty(0, dtype=np.uint8), *records])
        return cls(codes, offsets, np.repeat(offsets[1:], sizes))

    def bounds(self) -> list[tuple[int, int]]:
        """Return begin and end of each record."""
        offsets = self.offsets.tolist()
        return list(zip(offsets[:-1], offsets[1:], strict=True))

    def longest(self) -> int:
        """The length of the longest record."""
        return int(np.diff(self.offsets).max(initial=0))

    def solvable(self, k: int) -> int:
        """``k``, or if no record is so long, and there is no solution, the least that is longer.

        UsageError for one below 1, and above MAX_K for records that are so long.
        """
        longest = self.longest()
        if k < 1 or MAX_K < k <= longest:
            raise UsageError(f"k is {k}, it must lie in 1..{MAX_K}")
        return min(k, longest + 1)

    def first_reaches(self, k: int) -> Columns:
        """Return the initial reaches, for the empty substring of beta alone: int64[m]."""
        return np.minimum(np.arange(self.codes.size) + (k - 1), self.ends)

    def raise_later(self, reach: Columns) -> None:
        """Raise every reach to at least that of the start before it in the same record."""
        # ends grow with the records, so a record's reaches never pass the next one's first
        np.maximum.accumulate(reach, out=reach)

    def part(self, first: int, stop: int) -> Alpha:
        """Return the symbols from ``first`` to the end of the record that holds ``stop`` - 1.

        For the starts first..stop, this is equivalent to alpha.
        """
        end = int(self.ends[stop - 1])
        inside = self.offsets[(self.offsets > first) & (self.offsets <= end)]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), inside - first])
        return Alpha(self.codes[first:end], offsets, self.ends[first:end] - first)

    def rows(self, reach: Columns) -> NDArray[np.void]:
        """Return the solutions (FIELDS) for final reaches, ordered by record and start."""
        starts = np.flatnonzero(reach < self.ends)
        record = np.searchsorted(self.offsets, starts, side="right") - 1
        begin = self.offsets[record]
        rows = np.empty(starts.size, dtype=FIELDS)
        rows["alpha"] = record
        rows["start"] = starts - begin
        rows["end"] = reach[starts] + 1 - begin
        rows["length"] = rows["end"] - rows["start"]
        return rows


SEPARATOR = 5  # follows each record of a joined text; no substring contains it
CHUNK_SYMBOLS = 1 << 26


def piece_symbols(overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS) -> int:
    """Return the length of the pieces of a long record."""
    longest = max(limit, 4 * overlap)
    return longest // 2 if both else longest


def chunks(
    records: Iterable[Codes], overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS
) -> Iterator[list[Codes]]:
    """Yield pieces of records, in lists of at most ``limit`` symbols, including separators.

    A piece has at least four times the overlap; smaller limits are raised. With ``both``, each
    piece is followed by its reverse complement. Empty records are skipped.
    """
    longest = max(limit, 4 * overlap)
    size = piece_symbols(overlap, both=both, limit=limit)
    chunk: list[Codes] = []
    room = longest
    for record in records:
        for piece in _pieces(record, overlap, size):
            for oriented in (piece, reverse_complement(piece)) if both else (piece,):
                if chunk and oriented.size + 1 > room:
                    yield chunk
                    chunk, room = [], longest
                chunk.append(oriented)
                room -= oriented.size + 1
    if chunk:
        yield chunk


def _pieces(record: Codes, overlap: int, longest: int) -> Iterator[Codes]:
    first = 0
    while first < record.size:
        yield record[first : first + longest]
        if first + longest >= record.size:
            return
        first += longest - overlap


def joined(pieces: list[Codes]) -> Codes:
    """Join the pieces into one text, with SEPARATOR after each."""
    end = np.array([SEPARATOR], dtype=np.uint8)
    return np.concatenate([part for piece in pieces for part in (piece, end)])
