"""Texts cut into blocks of bounded size, so that memory does not grow with the texts.

A block holds symbols of one record after another, with k + 1 gap codes between two: no alignment of
at most k edits crosses them, and none begins in them that could not begin at the record's first
symbol for the same cost. A record that does not fit goes on in the next block, which repeats the
``reach`` symbols before the cut: a distance <= k at an end depends on no more (WsPASM paper,
equation 1, with row 0 all zero).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.held import Piece
from streamer.reads import ReadBatch
from trie.codes import GAP


@dataclass(frozen=True, slots=True)
class Block:
    """Symbols to search, and whose they are.

    codes: uint8[n], base codes. Piece i, int64 each: symbols starts[i] to stops[i] of the block
    are those of record records[i] from offsets[i] on. Ends up to ``lead`` belong to the block
    before. ``continues``: the last piece's record goes on in the next block.
    """

    codes: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    records: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lead: int
    continues: bool

    def halves(self, reach: int) -> tuple[Block, Block]:
        """The same symbols in two blocks; the second begins ``reach`` symbols before the cut."""
        cut = max(self.lead + 1, (self.lead + self.codes.size + 1) // 2)
        again = max(0, cut - reach)
        return self._part(0, cut, self.lead), self._part(again, self.codes.size, cut - again)

    def _part(self, start: int, stop: int, lead: int) -> Block:
        held = (self.stops > start) & (self.starts < stop)
        first = np.maximum(self.starts[held], start)
        inside = stop < self.codes.size and bool((self.stops[held][-1:] > stop).any())
        offsets: NDArray[np.int64] = self.offsets[held] + first - self.starts[held]
        return Block(
            self.codes[start:stop],
            first - start,
            np.minimum(self.stops[held], stop) - start,
            self.records[held],
            offsets,
            lead,
            inside if stop < self.codes.size else self.continues,
        )


def blocks(pieces: Iterable[Piece], k: int, reach: int, size: int) -> Iterator[Block]:
    """All symbols of the pieces, in order, in blocks of about ``size`` symbols at most.

    Where a record goes on in another piece, ``reach`` symbols (if there are so many) come again.
    """
    for piece in pieces:
        yield from _of_piece(piece, k, reach, size)


def _of_piece(piece: Piece, k: int, reach: int, size: int) -> Iterator[Block]:
    batch = piece.reads
    lengths = batch.lengths
    # records that fill blocks alone
    long = lengths > size
    long[:1] |= piece.again > 0
    long[-1:] |= piece.continues
    read = 0
    while read < len(batch):
        if long[read]:
            yield from _of_long(piece, read, reach, size)
            read += 1
            continue
        # as many whole records as fit
        room = np.cumsum(lengths[read:] + (k + 1))
        room[0] = 0
        count = int(np.searchsorted(room, size, side="right"))
        behind = np.flatnonzero(long[read : read + count])
        count = int(behind[0]) if behind.size else count
        yield from _of_short(batch, read, read + count, piece.first, k)
        read += count


def _of_short(batch: ReadBatch, start: int, stop: int, first: int, k: int) -> Iterator[Block]:
    offsets = batch.offsets[start : stop + 1]
    lengths = np.diff(offsets)
    starts = np.cumsum(lengths + (k + 1)) - (lengths + (k + 1))
    if stop - start == 1:
        codes = batch.bases[offsets[0] : offsets[1]]
    else:
        codes = np.full(int(starts[-1] + lengths[-1]), GAP, dtype=np.uint8)
        _spread(batch.bases, offsets, starts, codes)
    held = lengths > 0
    if held.any():
        yield Block(
            codes,
            starts[held],
            (starts + lengths)[held],
            (first + np.arange(start, stop))[held],
            np.zeros(int(held.sum()), dtype=np.int64),
            lead=0,
            continues=False,
        )


@njit(cache=True, nogil=True)
def _spread(bases, offsets, starts, codes):  # type: ignore[no-untyped-def]
    for read in range(starts.size):
        at = starts[read]
        for i in range(offsets[read], offsets[read + 1]):
            codes[at] = bases[i]
            at += 1


def _of_long(piece: Piece, read: int, reach: int, size: int) -> Iterator[Block]:
    batch = piece.reads
    codes = batch.bases[batch.offsets[read] : batch.offsets[read + 1]]
    start, again = (0, 0) if read else (piece.start, piece.again)
    going = piece.continues and read == len(batch) - 1
    for at in range(again, codes.size, size):
        begin = max(0, at - reach)
        part = codes[begin : at + size]
        yield Block(
            part,
            np.zeros(1, dtype=np.int64),
            np.array([part.size], dtype=np.int64),
            np.array([piece.first + read], dtype=np.int64),
            np.array([start + begin], dtype=np.int64),
            lead=at - begin,
            continues=going or at + size < codes.size,
        )
