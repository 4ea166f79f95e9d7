"""Cut texts into blocks of bounded size, so that memory does not grow with the texts.

A block holds consecutive records, separated by k + 1 gap codes: no alignment with at most k edits
crosses them, and one that begins in them could begin at the record's first symbol for the same
cost. A record that does not fit continues in the next block, which repeats the ``reach`` symbols
before the cut: a distance <= k at an end depends on no more (WsPASM paper, equation 1, with row 0
all zero).
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
