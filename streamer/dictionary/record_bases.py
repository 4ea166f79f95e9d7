"""The bases of a dictionary's records, kept to locate k-mers in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import bounds_of
from streamer.sequences.record_buffer import TextPiece


class RecordBases(NamedTuple):
    """bases: uint8 codes of all records. offsets: int64[records + 1], where each starts."""

    bases: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class RecordCollector:
    """Collects the pieces of records as they are read, if ``keeps`` is set."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._lengths: list[int] = []
        self._parts: list[NDArray[np.uint8]] = []

    def add(self, piece: TextPiece, first: int) -> None:
        """Add the next piece, whose first record has the number ``first``."""
        if not self._keeps:
            return
        self._parts.append(piece.reads.bases[piece.again :].copy())
        lengths = piece.reads.lengths
        lengths[:1] -= piece.again
        if first < len(self._lengths):
            self._lengths[-1] += int(lengths[0])
            lengths = lengths[1:]
        self._lengths += lengths.tolist()

    def finish(self) -> RecordBases | None:
        """Return all records; None without ``keeps``."""
        if not self._keeps:
            return None
        bases = np.concatenate([np.zeros(0, np.uint8), *self._parts])
        return RecordBases(bases, bounds_of(np.array(self._lengths, dtype=np.int64)))


def joined_records(parts: Sequence[RecordBases | None]) -> RecordBases | None:
    """Join the records of all parts, in order; None if any is None, or there are none."""
    kept = [part for part in parts if part is not None]
    if not kept or len(kept) < len(parts):
        return None
    bases = np.concatenate([part.bases for part in kept])
    lengths = np.concatenate([np.diff(part.offsets) for part in kept])
    return RecordBases(bases, bounds_of(lengths))
