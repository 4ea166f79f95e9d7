"""The two reports: every end, or the best of each maximal run of adjacent ends.

Of the best ends of a search that overlap, only the nearest is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.alignment import align
from streamer.batch.asm.blocks import Block, EndsFound, repeated
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.hits import NO_START, Hits
from trie.codes import encode
from trie.overlaps import disjoint

_BEHIND_ALL = 1 << 62


def _pieces(block: Block, hits: EndsFound) -> tuple[EndsFound, NDArray[np.int64]]:
    """The hits that end in a piece, not in the gaps between pieces, and the piece of each."""
    low = np.searchsorted(hits.ends, block.starts, side="right")
    high = np.searchsorted(hits.ends, block.stops, side="right")
    counts = high - low
    if int(counts.sum()) == len(hits):
        inside = hits
    else:
        change = np.zeros(len(hits) + 1, dtype=np.int8)
        np.add.at(change, low, 1)
        np.add.at(change, high, -1)
        inside = hits.at(np.cumsum(change[:-1]).astype(bool))
    if block.starts.size == 1:
        return inside, repeated(np.int64(0), len(inside))
    return inside, np.repeat(np.arange(counts.size), counts)


def _picked(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """Return values[places]; a single value for all stays a single value."""
    if places.size and places.strides == (0,):
        return repeated(values[places[0]], places.size)
    return values[places]


def every_end(block: Block, hits: EndsFound, searches: Searches) -> Hits:
    """Return a row for every end, without start."""
    hits, piece = _pieces(block, hits)
    shift = block.offsets - block.starts
    return Hits(
        text=_picked(block.records.astype(np.int32), piece),
        start=repeated(np.int64(NO_START), len(hits)),
        end=hits.ends + _picked(shift, piece) if shift.any() else hits.ends,
        distance=hits.distances,
        strand=_picked(searches.strand, hits.searches),
        pattern=_picked(searches.pattern, hits.searches),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with positions in records; columns of equal length.

    In columns, because NumPy zeroes arrays with object fields, which takes a quarter of a search.
    """

    text: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    distance: NDArray[np.int32]
    search: NDArray[np.int32]
    cigar: NDArray[np.object_]

    def at(self, places: Any) -> _Rows:
        columns: list[Any] = [getattr(self, name)[places] for name in self.__slots__]
        return _Rows(*columns)

    @classmethod
    def nothing(cls) -> _Rows:
        kinds = (np.int64, np.int64, np.int64, np.int32, np.int32, np.object_)
        columns: list[Any] = [np.empty(0, dtype=kind) for kind in kinds]
        return cls(*columns)

    @classmethod
    def joined(cls, parts: list[_Rows]) -> _Rows:
        columns: list[Any] = [
            np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__
        ]
        return cls(*columns)


@dataclass(frozen=True, slots=True)
class BlockRuns:
    """The best end of each run of a block, before runs of several blocks are joined.

    first: the number of its first record. known: the first text and end that later blocks may have
    hits at. begun: the row of each search whose run may have begun in the previous block. going:
    bool, the runs that may continue in the next block.
    """

    first: int
    known: tuple[int, int]
    rows: _Rows
    begun: dict[int, int]
    going: NDArray[np.bool_]


def runs_of(block: Block, hits: EndsFound, searches: Searches) -> BlockRuns:
    """Return the runs of a block, with the alignments of their best ends."""
    hits, piece = _pieces(block, hits)
    order = np.argsort(hits.searches, kind="stable")
    hits, piece = hits.at(order), piece[order]
    new = np.ones(len(hits), dtype=bool)
    new[1:] = (np.diff(hits.ends) != 1) | (np.diff(hits.searches) != 0)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(hits))[: first.size] - 1
    best = _least(hits.distances, first)
    # an open run continues if a run begins at the block's first end
    begun = {
        int(hits.searches[at]): i
        for i, at in enumerate(first.tolist())
        if hits.ends[at] == block.lead + 1 and block.lead
    }
    going = (hits.ends[last] == block.symbols.size) & block.continues
    rows = _aligned(block, hits.at(best), piece[best], searches)
    known = (_BEHIND_ALL, 0)
    if block.continues:
        stop = block.offsets[-1] + block.stops[-1] - block.starts[-1]
        known = (int(block.records[-1]), int(stop) + 1)
    return BlockRuns(block.first, known, rows, begun, going)


class BestEnds:
    """Finds the best of each run, block by block: a run may continue in the next block.

    Rows of a block wait while an open run may have its best end before theirs, and while a hit
    behind them may decide which of those that overlap stay.
    """

    def __init__(self, searches: Searches) -> None:
        self._searches = searches
        self._open = _Rows.nothing()
        # a heap of row blocks keyed by text and end of the first row, and a serial number: an open
        # run may last a whole record, and waiting rows are not examined each time
        self._waiting: list[tuple[int, int, int, _Rows]] = []
        self._number = 0
        self._disjoint = _DisjointHits(searches)

    def add(self, block: BlockRuns) -> Hits:
        """Return the rows that are final once the next block has been searched."""
        rows = block.rows
        done = [rows]
        for i in range(self._open.text.size):
            row = self._open.at(slice(i, i + 1))
            run = block.begun.get(int(row.search[0]))
            if run is None:
                done.append(row)
            elif row.distance[0] <= rows.distance[run]:
                for name in row.__slots__:
                    getattr(rows, name)[run] = getattr(row, name)[0]
        done[0] = rows.at(~block.going)
        self._open = rows.at(block.going)
        self._wait(_in_order(_Rows.joined(done)))
        return self._certain(block.known)

    def finish(self) -> Hits:
        """Return the rows that waited for the last block."""
        self._wait(_in_order(self._open))
        self._open = _Rows.nothing()
        return self._certain((_BEHIND_ALL, 0))

    def _wait(self, rows: _Rows) -> None:
        if rows.text.size:
            self._number += 1
            heappush(self._waiting, (int(rows.text[0]), int(rows.end[0]), self._number, rows))

    def _certain(self, known: tuple[int, int]) -> Hits:
        """Return the rows before all open runs; only the last record, which continues, has any."""
        text, end = known
        if self._open.text.size:
            text, end = int(self._open.text[0]), int(self._open.end.min())
        early = []
        while self._waiting and self._waiting[0][:2] < (text, end):
            rows = heappop(self._waiting)[-1]
            begin, stop = np.searchsorted(rows.text, [text, text + 1])
            count = int(begin + np.searchsorted(rows.end[begin:stop], end))
            early.append(rows.at(slice(count)))
            self._wait(rows.at(slice(count, None)))
        rows = early[0] if len(early) == 1 else _in_order(_Rows.joined([_Rows.nothing(), *early]))
        rows = self._disjoint.add(rows, text, end)
        return Hits(
            text=rows.text.astype(np.int32),
            start=rows.start,
            end=rows.end,
            distance=rows.distance,
            strand=self._searches.strand[rows.search],
            pattern=self._searches.pattern[rows.search],
            cigar=rows.cigar.tolist(),
        )


class _DisjointHits:
    """Drops each hit that overlaps a better one of its search: of less distance, then less end.

    Whether a hit stays depends on the better ones that overlap it, and so on. Each step ahead is
    shorter than ``reach`` and to less distance, so k steps bound how long a hit waits.
    """

    def __init__(self, searches: Searches) -> None:
        self._reach = searches.reach
        self._ahead = searches.k * searches.reach
        # rows returned that later ones may overlap, then all that wait
        self._returned = 0
        self._rows = _Rows.nothing()

    def add(self, rows: _Rows, text: int, end: int) -> _Rows:
        """Return the rows that stay, in order; all hits before ``end`` in ``text`` are known."""
        if self._rows.text.size:
            rows = _Rows.joined([self._rows, rows])
        keys = [rows.text, rows.search.astype(np.int64)]
        stays = disjoint(keys, rows.start, rows.end, rows.distance, self._reach)
        settled = (rows.text < text) | (rows.end + self._ahead < end)
        near = (rows.text == text) & (rows.end + self._ahead + self._reach >= end)
        final = rows.at((settled & stays)[self._returned :].nonzero()[0] + self._returned)
        before, waiting = rows.at(settled & stays & near), rows.at(~settled)
        self._returned = before.text.size
        self._rows = _Rows.joined([before, waiting])
        return final


def _in_order(rows: _Rows) -> _Rows:
    return rows.at(np.lexsort((rows.search, rows.end, rows.text)))


def _aligned(block: Block, hits: EndsFound, piece: NDArray[np.int64], searches: Searches) -> _Rows:
    if len(hits) == 0:
        return _Rows.nothing()
    codes, begins, shift = _before(block, block.starts[piece], hits.ends, searches.reach)
    starts, cigars = align(
        codes, begins - shift, hits.ends - shift, hits.distances, hits.searches,
        searches.joined_masks, searches.offsets,
    )  # fmt: skip
    starts += shift
    shift = (block.offsets - block.starts)[piece]
    texts = np.empty(len(cigars), dtype=np.object_)
    texts[:] = cigars
    return _Rows(
        block.records[piece],
        starts + shift,
        hits.ends + shift,
        hits.distances.astype(np.int32),
        hits.searches.astype(np.int32),
        texts,
    )


def _before(
    block: Block, begins: NDArray[np.int64], ends: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return base codes of up to ``reach`` symbols before each end, not before ``begins``.

    Also returns where they begin in the block, and the offset of each from its place in these
    codes.
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
    """Return the first place of the least distance in each run; runs begin at ``first``."""
    if first.size == 0:
        return first
    places = np.arange(distances.size, dtype=np.int64)
    return np.minimum.reduceat(distances.astype(np.int64) << 40 | places, first) & ((1 << 40) - 1)
