"""Spans: consecutive chunks that are matched together, and the snapshot that each of them sees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamer.matching.chunks import chunk_bounds
from streamer.matching.engine import LONG_SPAN, Span
from streamer.matching.tree_worker import VersionedSnapshot

# chunks smaller than this share a snapshot: swapping one in costs more than matching them
SHORT_SPAN = 65_536


def spans_of(
    offsets: NDArray[np.int64],
    k: int,
    chunk: int,
    seed_end: int,
    *,
    aging: bool,
    halvings: int = 0,
) -> list[Span]:
    """The spans of a batch; the windows inside its first ``seed_end`` symbols are seeds.

    aging: the snapshot grows old within the batch, so that spans are kept short. halvings: of the
    longest spans, for a GPU with little memory.
    """
    longest = max(1, LONG_SPAN >> halvings)
    total = int(offsets[-1])
    spans: list[Span] = []
    begin = 0
    if seed_end:
        seeds = chunk_bounds(offsets, k, chunk, 0, seed_end)
        spans += [(True, part) for part in _grouped(seeds, longest)]
        if seed_end == total:
            return spans
        read_start = int(offsets[np.searchsorted(offsets, seed_end, side="right") - 1])
        begin = max(seed_end - k + 1, read_start)
    chunks = chunk_bounds(offsets, k, chunk, begin)
    if not len(chunks):
        return spans
    return spans + [(False, part) for part in _grouped(chunks, SHORT_SPAN if aging else longest)]


def _grouped(chunks: NDArray[np.int64], span: int) -> list[NDArray[np.int64]]:
    """Consecutive chunks of at least ``span`` symbols together."""
    group = np.concatenate(([0], np.cumsum(chunks[:, 1] - chunks[:, 0])[:-1])) // span
    return np.split(chunks, np.flatnonzero(np.diff(group)) + 1)


class SpanViews:
    """The snapshots that the spans of a batch are matched with, by number.

    While the dictionary grows a span sees the snapshot in use after the last but one before it,
    which is what two streams can have: so an engine that knows more sees no more. On a fixed
    dictionary seeds see what was there before the batch, the other spans all of it.
    """

    def __init__(
        self,
        first: VersionedSnapshot | None,
        seeds: int,
        whole: Callable[[], VersionedSnapshot] | None,
    ) -> None:
        self._after: list[VersionedSnapshot | None] = [first]
        self._seeds = seeds
        self._whole = whole

    def told(self, current: VersionedSnapshot) -> None:
        """Another span has been told of; the snapshot in use now."""
        if self._whole is None:
            self._after.append(current)
            self._after[:-3] = [None] * len(self._after[:-3])

    def of(self, span: int) -> VersionedSnapshot:
        """The snapshot of a span."""
        if self._whole is not None and span >= self._seeds:
            return self._whole()
        seen = 0 if self._whole is not None else max(span - 1, 0)
        found = self._after[min(seen, len(self._after) - 1)]
        assert found is not None
        return found
