"""Cut texts into blocks of bounded size, so that memory does not grow with the texts.

A block holds consecutive records, separated by k + 1 gap codes: no alignment with at most k edits
crosses them, and one that begins in them could begin at the record's first symbol for the same
cost. A record that does not fit continues in the next block, which repeats the ``reach`` symbols
before the cut: a distance <= k at an end depends on no more (WsPASM paper, equation 1, with row 0
all zero). Hits of a block are sorted here, before they are attributed to records and patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.records import Letters
from streamer.sequences.record_buffer import TextPiece
from trie.codes import GAP, as_letters, encode
from trie.cpu.jit import njit

Symbols = NDArray[np.uint8]

JOINED_LETTERS = 1 << 22  # approximate letters up to which short texts are joined
_GAP_LETTER = ord("N")


@dataclass(frozen=True, slots=True)
class Texts:
    """Symbols of consecutive records, with ``between`` gaps between two.

    symbols: uint8, base codes or, with ``letters``, unchecked letters. Record i begins at
    offsets[i]; the gaps after it end at offsets[i + 1]. The first record has the number ``first``
    and begins here with its symbol ``start``; its first ``again`` symbols here are repeated.
    ``continues``: the last record continues in the next texts.
    """

    symbols: Symbols
    offsets: NDArray[np.int64]
    letters: bool = False
    between: int = 0
    first: int = 0
    start: int = 0
    again: int = 0
    continues: bool = False


def of_pieces(pieces: Iterable[TextPiece]) -> Iterator[Texts]:
    """Yield base codes of records, which may have been cut."""
    for piece in pieces:
        yield Texts(
            piece.reads.bases, piece.reads.offsets, first=piece.first, start=piece.start,
            again=piece.again, continues=piece.continues,
        )  # fmt: skip


def of_letters(letters: Sequence[Letters], between: int) -> Iterator[Texts]:
    """Yield texts in memory: short ones joined, others as they are."""
    lengths = np.fromiter(map(len, letters), np.int64, len(letters))
    long = lengths >= JOINED_LETTERS
    group = np.cumsum(np.where(long, 0, lengths)) // JOINED_LETTERS
    cut = (group[1:] != group[:-1]) | long[1:] | long[:-1]
    cuts = [0, *(np.flatnonzero(cut) + 1).tolist(), lengths.size]
    gap = bytes([_GAP_LETTER]) * between
    for low, high in pairwise(cuts):
        part = letters[low:high]
        if part:
            symbols = as_letters(part[0] if len(part) == 1 else gap.join(map(_buffer, part)))
            offsets = np.concatenate([[0], np.cumsum(lengths[low:high] + between)])
            yield Texts(symbols, offsets, letters=True, between=between, first=low)


def _buffer(letters: Letters) -> Any:
    """Convert letters to a form that ``bytes.join`` accepts."""
    return letters if isinstance(letters, bytes) else as_letters(letters)


@dataclass(frozen=True, slots=True)
class Block:
    """Symbols to search, and the records they belong to.

    symbols: uint8[n], base codes or, with ``letters``, letters. Piece i, int64 each: symbols
    starts[i] to stops[i] of the block are those of record records[i] from offsets[i] on. Ends up to
    ``lead`` belong to the previous block. ``continues``: the last piece's record continues in the
    next block.
    """

    symbols: Symbols
    letters: bool
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    records: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lead: int
    continues: bool

    @property
    def first(self) -> int:
        """The number of the first record, 0 if there are only gaps. No earlier one can follow."""
        return int(self.records[0]) if self.records.size else 0

    @property
    def ends(self) -> int:
        """The number of ends beyond the lead."""
        return self.symbols.size - self.lead

    def codes(self) -> Symbols:
        """Return base codes of all symbols; raise InvalidBaseError for a letter that is not DNA."""
        return encode(self.symbols) if self.letters else self.symbols

    def cut(self, ends: int, reach: int) -> tuple[Block, Block]:
        """Split off the first ``ends`` ends; the rest begins ``reach`` symbols before the cut."""
        at = self.lead + ends
        again = max(0, at - reach)
        return self._part(0, at, self.lead), self._part(again, self.symbols.size, at - again)

    def _part(self, start: int, stop: int, lead: int) -> Block:
        inside = (self.stops > start) & (self.starts < stop)
        first = np.maximum(self.starts[inside], start)
        cut = stop < self.symbols.size and bool((self.stops[inside][-1:] > stop).any())
        offsets: NDArray[np.int64] = self.offsets[inside] + first - self.starts[inside]
        return Block(
            self.symbols[start:stop],
            self.letters,
            first - start,
            np.minimum(self.stops[inside], stop) - start,
            self.records[inside],
            offsets,
            lead,
            cut if stop < self.symbols.size else self.continues,
        )


def blocks(texts: Iterable[Texts], k: int, reach: int, size: int) -> Iterator[Block]:
    """Yield all symbols, in order, in blocks of up to about ``size`` symbols.

    Where a record continues in the next texts, up to ``reach`` symbols are repeated. An empty
    record has no piece.
    """
    for part in texts:
        lengths = np.diff(part.offsets) - part.between
        record = 0
        while record < lengths.size:
            # as many whole records as fit, or part of one
            room = np.cumsum(lengths[record:] + (k + 1))
            room[0] = 0
            count = int(np.searchsorted(room, size, side="right"))
            for block in _joined(part, record, record + count, k):
                rest = block
                while rest.ends > size:
                    first, rest = rest.cut(size, reach)
                    yield first
                yield rest
            record += count


def _joined(part: Texts, low: int, high: int, k: int) -> Iterator[Block]:
    """Yield the records low..high as a block, if they have new ends."""
    bounds = part.offsets[low : high + 1]
    lengths = np.diff(bounds) - part.between
    lead = part.again if low == 0 else 0
    offsets = np.zeros(high - low, dtype=np.int64)
    offsets[0] = part.start if low == 0 else 0
    if high - low == 1 or part.between > k:
        starts = bounds[:-1] - bounds[0]
        symbols = part.symbols[bounds[0] : bounds[-1] - part.between]
    else:
        starts = np.cumsum(lengths + (k + 1)) - (lengths + (k + 1))
        gap = _GAP_LETTER if part.letters else GAP
        symbols = np.full(int(starts[-1] + lengths[-1]), gap, dtype=np.uint8)
        _spread(part.symbols, bounds, lengths, starts, symbols)
    full = lengths > 0
    # without new ends there is nothing to find, and an open run stays open
    if symbols.size > lead and full.any():
        yield Block(
            symbols,
            part.letters,
            starts[full],
            (starts + lengths)[full],
            (part.first + np.arange(low, high))[full],
            offsets[full],
            lead=lead,
            continues=part.continues and high == part.offsets.size - 1 and bool(full[-1]),
        )


@njit(cache=True, nogil=True)
def _spread(joined, offsets, lengths, starts, symbols):
    for read in range(starts.size):
        source = offsets[read]
        target = starts[read]
        for i in range(lengths[read]):
            symbols[target + i] = joined[source + i]


NO_LIMIT = 1 << 62

_SPARSE = 32  # with up to one hit per this many ends, hits are sorted; with more, ends are counted


class TooManyError(Exception):
    """More hits in a block than the limit: it must be cut."""


@dataclass(frozen=True, slots=True)
class EndsFound:
    """Hits of a block, by end, then by search.

    ends: int64, the number of block symbols before the end. distances, searches: int32.
    """

    ends: NDArray[np.int64]
    distances: NDArray[np.int32]
    searches: NDArray[np.int32]

    def __len__(self) -> int:
        return self.ends.size

    def at(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> EndsFound:
        """Return the hits at those places."""
        return EndsFound(self.ends[places], self.distances[places], self.searches[places])


def repeated(value: np.generic, size: int) -> NDArray[Any]:
    """Return one value as a read-only array (np.broadcast_to takes ten times as long)."""
    array: NDArray[Any] = np.ndarray((size,), value.dtype, np.array([value]), 0, (0,))
    array.flags.writeable = False
    return array


def joined(parts: Sequence[EndsFound]) -> EndsFound:
    """Concatenate parts."""
    if len(parts) == 1:
        return parts[0]
    return EndsFound(
        np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.distances for part in parts)]),
        _joined_searches([part.searches for part in parts if len(part)]),
    )


def _joined_searches(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Join search numbers; one value for all hits if there is only one search."""
    if parts and all(part.strides == (0,) and part[0] == parts[0][0] for part in parts):
        return repeated(parts[0][0], sum(part.size for part in parts))
    return np.concatenate([np.empty(0, np.int32), *parts])


def in_order(hits: EndsFound, low: int, high: int) -> EndsFound:
    """Sort hits that come search by search, with ends ascending and low < end <= high."""
    if len(hits) == 0 or hits.searches[0] == hits.searches[-1]:
        return hits
    if len(hits) * _SPARSE < high - low:
        return hits.at(np.argsort(hits.ends, kind="stable"))
    return EndsFound(*_counted(hits.ends, hits.distances, hits.searches, low, high))


@njit(cache=True, nogil=True)
def _counted(ends, distances, searches, low, high):
    """Counting sort by end, stable: count the hits of each end, then place every hit."""
    next_of = np.zeros(high - low + 1, np.int64)
    for i in range(ends.size):
        next_of[ends[i] - low] += 1
    total = 0
    for end in range(next_of.size):
        count = next_of[end]
        next_of[end] = total
        total += count
    new_ends = np.empty_like(ends)
    new_distances = np.empty_like(distances)
    new_searches = np.empty_like(searches)
    for i in range(ends.size):
        place = next_of[ends[i] - low]
        next_of[ends[i] - low] = place + 1
        new_ends[place] = ends[i]
        new_distances[place] = distances[i]
        new_searches[place] = searches[i]
    return new_ends, new_distances, new_searches


@njit(cache=True, nogil=True)
def merge_runs(ends, distances, searches, bounds):
    """Sort by end hits that come in runs, one per search, each sorted by end.

    bounds int64[runs + 1], ascending: run i is bounds[i] to bounds[i + 1]; overwritten. Neighbours
    are merged until one run is left, alternating between two buffers, without a branch on the
    comparison.
    """
    first, stop = bounds[0], bounds[-1]
    size = stop - first
    source = (ends[first:stop], distances[first:stop], searches[first:stop])
    target = (np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int32))
    runs = bounds.size - 1
    bounds -= first
    swapped = False
    while runs > 1:
        for i in range(0, runs, 2):
            _merge_two(source, target, bounds[i], bounds[i + 1], bounds[min(i + 2, runs)])
            bounds[i // 2] = bounds[i]
        runs = (runs + 1) // 2
        bounds[runs] = size
        source, target = target, source
        swapped = not swapped
    if swapped:
        target[0][:] = source[0]
        target[1][:] = source[1]
        target[2][:] = source[2]


@njit(cache=True, nogil=True)
def _merge_two(source, target, left, right, stop):
    """Merge source[left:right] and source[right:stop] into target[left:stop], stably."""
    ends, distances, searches = source
    new_ends, new_distances, new_searches = target
    middle = right
    to = left
    while left < middle and right < stop:
        later = ends[right] < ends[left]
        place = right if later else left
        new_ends[to] = ends[place]
        new_distances[to] = distances[place]
        new_searches[to] = searches[place]
        right += later
        left += not later
        to += 1
    if left == middle:
        left, middle = right, stop
    for place in range(left, middle):
        new_ends[to] = ends[place]
        new_distances[to] = distances[place]
        new_searches[to] = searches[place]
        to += 1
