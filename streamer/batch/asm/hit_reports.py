"""The two reports: every end, or the best of each maximal run of adjacent ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.alignment import align
from streamer.batch.asm.blocks import Block
from streamer.batch.asm.found import EndsFound, repeated
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.hits import NO_START, Hits
from trie.codes import encode


def _pieces(block: Block, found: EndsFound) -> tuple[EndsFound, NDArray[np.int64]]:
    """The hits that end in a piece, not in the gap codes between two, and the piece of each."""
    low = np.searchsorted(found.ends, block.starts, side="right")
    high = np.searchsorted(found.ends, block.stops, side="right")
    counts = high - low
    if int(counts.sum()) == len(found):
        inside = found
    else:
        change = np.zeros(len(found) + 1, dtype=np.int8)
        np.add.at(change, low, 1)
        np.add.at(change, high, -1)
        inside = found.at(np.cumsum(change[:-1]).astype(bool))
    if block.starts.size == 1:
        return inside, repeated(np.int64(0), len(inside))
    return inside, np.repeat(np.arange(counts.size), counts)


def _picked(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """values[places]; one value for all stays one value."""
    if places.size and places.strides == (0,):
        return repeated(values[places[0]], places.size)
    return values[places]


def every_end(block: Block, found: EndsFound, searches: Searches) -> Hits:
    """A row for every end, without start."""
    found, piece = _pieces(block, found)
    shift = block.offsets - block.starts
    return Hits(
        text=_picked(block.records.astype(np.int32), piece),
        start=repeated(np.int64(NO_START), len(found)),
        end=found.ends + _picked(shift, piece) if shift.any() else found.ends,
        distance=found.distances,
        strand=_picked(searches.strand, found.searches),
        pattern=_picked(searches.pattern, found.searches),
    )


_ROW = np.dtype(
    [(name, np.int64) for name in ("text", "start", "end")]
    + [("distance", np.int32), ("search", np.int32), ("cigar", np.object_)]
)
"""A row of ``best``, with positions in the record."""

_Rows = NDArray[np.void]


class BestEnds:
    """Finds the best of each run, block by block: a run may continue in the next block.

    Rows of a block wait while an open run may have its best end before theirs.
    """

    def __init__(self, searches: Searches) -> None:
        self._searches = searches
        self._open = self._waiting = np.empty(0, _ROW)

    def add(self, block: Block, found: EndsFound) -> Hits:
        """The rows that are certain once this block has been searched."""
        found, piece = _pieces(block, found)
        order = np.argsort(found.searches, kind="stable")
        found, piece = found.at(order), piece[order]
        new = np.ones(len(found), dtype=bool)
        new[1:] = (np.diff(found.ends) != 1) | (np.diff(found.searches) != 0)
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(found))[: first.size] - 1
        best = _least(found.distances, first)
        rows = self._aligned(block, found.at(best), piece[best])
        # an open run continues where one begins at the block's first end
        begun = {
            int(found.searches[at]): i
            for i, at in enumerate(first.tolist())
            if found.ends[at] == block.lead + 1 and block.lead
        }
        done = [rows]
        for i, row in enumerate(self._open):
            run = begun.get(int(row["search"]))
            if run is None:
                done.append(self._open[i : i + 1])
            elif row["distance"] <= rows["distance"][run]:
                rows[run] = row
        going = (found.ends[last] == block.symbols.size) & block.continues
        done[0] = rows[~going]
        self._open = rows[going]
        return self._certain(np.concatenate([self._waiting, *done]))

    def finish(self) -> Hits:
        """The rows that waited for the last block."""
        self._open, rows = np.empty(0, _ROW), np.concatenate([self._waiting, self._open])
        return self._certain(rows)

    def _certain(self, rows: _Rows) -> Hits:
        rows = rows[np.lexsort((rows["search"], rows["end"], rows["text"]))]
        count = rows.size
        if self._open.size:
            # only the record that continues has open runs, and it is the last
            earliest = self._open["end"].min()
            early = (rows["text"] < self._open["text"][0]) | (rows["end"] < earliest)
            count = int(early.sum())
        self._waiting, rows = rows[count:], rows[:count]
        return Hits(
            text=rows["text"].astype(np.int32),
            start=rows["start"].copy(),
            end=rows["end"].copy(),
            distance=rows["distance"].copy(),
            strand=self._searches.strand[rows["search"]],
            pattern=self._searches.pattern[rows["search"]],
            cigar=rows["cigar"].tolist(),
        )

    def _aligned(self, block: Block, found: EndsFound, piece: NDArray[np.int64]) -> _Rows:
        rows = np.empty(len(found), _ROW)
        if not rows.size:
            return rows
        codes, begins, shift = _before(block, block.starts[piece], found.ends, self._searches.reach)
        starts, cigars = align(
            codes, begins - shift, found.ends - shift, found.distances, found.searches,
            self._searches.joined_masks, self._searches.offsets,
        )  # fmt: skip
        starts += shift
        shift = (block.offsets - block.starts)[piece]
        rows["text"] = block.records[piece]
        rows["start"], rows["end"] = starts + shift, found.ends + shift
        rows["distance"], rows["search"], rows["cigar"] = found.distances, found.searches, cigars
        return rows


def _before(
    block: Block, begins: NDArray[np.int64], ends: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Base codes of at most ``reach`` symbols before each end, not before ``begins``.

    Also where they begin in the block, and the distance of each from its place among these codes.
    """
    begins = np.maximum(begins, ends - reach)
    sizes = ends - begins
    places = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    if not block.letters or total > block.symbols.size:
        return block.codes(), begins, np.zeros(ends.size, dtype=np.int64)
    needed = np.repeat(begins - places, sizes) + np.arange(total)
    return encode(block.symbols[needed]), begins, begins - places


def _least(distances: NDArray[np.int32], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of the first least distance of each run; runs begin at ``first``."""
    if first.size == 0:
        return first
    places = np.arange(distances.size, dtype=np.int64)
    return np.minimum.reduceat(distances.astype(np.int64) << 40 | places, first) & ((1 << 40) - 1)
