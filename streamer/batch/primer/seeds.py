"""The default: windows found through pieces with at most one error, where that is cheaper.

Nothing is lost (pigeonhole, ``shapes``). What a text may hold where a piece of q symbols has at
most one error are these q symbols, from its begin on:

    the piece, or with one symbol changed                   1 + 3 q
    without one symbol, and any symbol behind               at most 4 q
    with a symbol put in, its last symbol pushed out        at most 4 q

A table gives for each of the 4**q codes the pieces that it may stand for; a pass over the text
looks every position up and verifies the windows of the pieces (``_verify``, one word of rows). A
gap of the text costs the piece's one error, whatever letter it is taken for, so it is looked up as
any, and so is what stands behind a record. A gap of alpha is the error of its piece; with two a
piece matches nothing.

A text is looked at in spans that grow with what has been seen: prefixes grow too, and a table of
longer pieces has fewer candidates. The first span, and texts for which no table pays, go to
``windows``.

Operations: a look-up a symbol, and 25 for each column of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer import windows
from streamer.batch.primer.problem import Alpha, Codes
from streamer.batch.primer.scan import TILE
from streamer.batch.primer.shapes import CutCosts, CutShape, cuttable, shape_for
from streamer.batch.primer.text import SEPARATOR
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

Columns = NDArray[np.int64]
Hits = tuple[Columns, Columns, Columns, Columns]

SEGMENT = 1 << 18

COSTS = CutCosts(scanned=0.35, candidate=5, found=40, shared=3)
"""Nanoseconds of a thread, roughly."""


@dataclass(frozen=True, slots=True)
class SeedTable:
    """Pieces by code: begins int64[4**q + 1]; entries uint32, window * 16 + piece.

    masks: uint64[windows, 6], the rows of a window that match a symbol.
    """

    shape: CutShape
    begins: Columns
    entries: NDArray[np.uint32]
    masks: NDArray[np.uint64]


def table_of(codes: Codes, firsts: Columns, shape: CutShape) -> SeedTable:
    """The table of windows that begin at ``firsts``, each ``shape.window`` symbols long."""
    keys = _variants(codes, firsts, shape.pieces, shape.symbols, shape.errors)
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if keys.size else keys
    code = keys >> np.uint64(32)
    counts = np.bincount(code.astype(np.int64), minlength=4**shape.symbols)
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    entries = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return SeedTable(shape, begins, entries, _masks(codes, firsts, shape.window))


@njit(cache=True, nogil=True)
def _masks(codes, firsts, rows):
    """uint64[windows, 6]: the rows that match a symbol; none match a gap or a separator."""
    masks = np.zeros((firsts.size, 6), dtype=np.uint64)
    for window in range(firsts.size):
        for row in range(rows):
            symbol = codes[firsts[window] + row]
            if symbol != GAP:
                masks[window, symbol] |= np.uint64(1) << np.uint64(row)
    return masks


@njit(cache=True, nogil=True)
def _variants(codes, firsts, pieces, q, errors):
    """Keys code << 32 | window << 4 | piece of all that a text may hold, with repeats."""
    room = 1 + (11 * q if errors else 0)
    keys = np.empty(firsts.size * pieces * room, dtype=np.uint64)
    count = 0
    for window in range(firsts.size):
        for piece in range(pieces):
            at = firsts[window] + piece * q
            gaps = 0
            where = -1
            code = np.uint64(0)
            for i in range(q):
                symbol = codes[at + i]
                if symbol == GAP:
                    gaps += 1
                    where = i
                code = (code << np.uint64(2)) | np.uint64(symbol & 3)
            if gaps > errors:
                continue
            entry = np.uint64(window * 16 + piece)
            if gaps == 0:
                keys[count] = (code << np.uint64(32)) | entry
                count += 1
            if errors == 0:
                continue
            for i in range(q):
                if gaps == 1 and i != where:
                    continue
                right = np.uint64(2 * (q - 1 - i))
                low = code & ((np.uint64(1) << right) - np.uint64(1))
                high = code >> (right + np.uint64(2))
                own = (code >> right) & np.uint64(3)
                for letter in range(4):
                    x = np.uint64(letter)
                    if x != own or gaps == 1:
                        changed = (((high << np.uint64(2)) | x) << right) | low
                        keys[count] = (changed << np.uint64(32)) | entry
                        count += 1
                    left_out = (high << (right + np.uint64(2))) | (low << np.uint64(2)) | x
                    keys[count] = (left_out << np.uint64(32)) | entry
                    count += 1
                    if gaps == 0:
                        tail = ((own << right) | low) >> np.uint64(2)
                        put_in = (((high << np.uint64(2)) | x) << right) | tail
                        keys[count] = (put_in << np.uint64(32)) | entry
                        count += 1
    return keys[:count]


@njit(cache=True, nogil=True)
def _verify(masks, rows, text, begin, stop, k, window, keys, count):
    """Write a key for each tile where the window matches within k - 1 in text[begin:stop]."""
    one = np.uint64(1)
    top = np.uint64(rows - 1)
    vp = (one << np.uint64(rows)) - one
    vn = np.uint64(0)
    score = rows
    written = -1
    for j in range(begin, stop):
        symbol = text[j]
        if symbol == SEPARATOR:
            vp = (one << np.uint64(rows)) - one
            vn = np.uint64(0)
            score = rows
            continue
        eq = masks[window, symbol]
        xv = eq | vn
        xh = (((eq & vp) + vp) ^ vp) | eq
        ph = vn | ~(xh | vp)
        mh = vp & xh
        score += np.int64((ph >> top) & one) - np.int64((mh >> top) & one)
        ph = ph << one
        mh = mh << one
        vp = mh | ~(xv | ph)
        vn = ph & xv
        if score < k:
            tile = j // TILE
            slack = np.uint64(k - 1 - score)
            if tile != written:
                written = tile
                if count < keys.size:
                    keys[count] = (np.uint64(window) << np.uint64(40)) | (
                        np.uint64(tile) << np.uint64(12)
                    )
                count += 1
            if count <= keys.size:
                last = keys[count - 1]
                keys[count - 1] = (last >> np.uint64(12) << np.uint64(12)) | max(
                    last & np.uint64(0xFFF), slack
                )
    return count


@njit(cache=True, nogil=True)
def _pass(text, first, stop, masks, rows, q, k, begins, entries, keys):
    """Look up text[first:stop], verify candidates; how many keys, written while there is room."""
    mask = (np.int64(1) << (2 * q)) - 1
    code = np.int64(0)
    count = 0
    for j in range(first, min(first + q - 1, text.size)):
        code = (code << 2) | (text[j] & 3)
    for j in range(first, stop):
        ahead = j + q - 1
        code = ((code << 2) | (text[ahead] & 3 if ahead < text.size else 0)) & mask
        for at in range(begins[code], begins[code + 1]):
            entry = np.int64(entries[at])
            window = entry >> 4
            begin = j - (entry & 15) * q - (k - 1)
            count = _verify(
                masks, rows, text, max(begin, 0), min(begin + rows + 2 * (k - 1), text.size), k,
                window, keys, count,
            )  # fmt: skip
    return count


def runs(keys: NDArray[np.uint64], size: int) -> tuple[Columns, Columns, Columns, Columns]:
    """Keys window << 40 | tile << 12 | slack as hits (``scan.hits``), adjacent tiles as one."""
    if keys.size == 0:
        none = np.empty(0, dtype=np.int64)
        return none, none, none, none
    ordered = np.sort(keys).astype(np.int64)
    tiles = ordered >> 12
    begins = np.flatnonzero(np.diff(tiles, prepend=-2) > 1)
    slack = np.maximum.reduceat(ordered & 0xFFF, begins)
    first, last = tiles[begins], tiles[np.append(begins[1:], tiles.size) - 1]
    column = (1 << 28) - 1
    until = np.minimum(TILE * ((last & column) + 1), size)
    return first >> 28, TILE * (first & column), until, slack


BEGINNING = 1 << 18
"""Columns that ``windows`` looks at first: all starts then have bounds."""

GROWTH = 3
"""Columns that are looked at with one table, for each that was seen before it was made."""


class Finder(Protocol):
    """What looks pieces up in one text: cores or a card."""

    def find(self, table: SeedTable, k: int) -> Hits:
        """The hits of the table's windows, as ``scan.hits``."""


@dataclass
class Kept:
    """What one text leaves for the next: columns seen, and when the table was made."""

    seen: int = 0
    made: int = 0
    first: Columns = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    anchor: Columns = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    table: SeedTable | None = None
    plan: windows.Plan = field(default_factory=windows.Plan)


def improve(
    alpha: Alpha, text: Codes, k: int, reach: Columns, kept: Kept,
    backend_of: Callable[[Codes], windows.Backend], finder_of: Callable[[Codes], Finder],
) -> None:  # fmt: skip
    """Raise the reaches by a text, in spans that grow with what has been seen.

    The first span goes to ``windows``, and what follows too where no shape is worth it.
    """
    overlap = alpha.longest() + k
    first = 0
    while first < text.size:
        stop = text.size
        if cuttable(k):
            if kept.seen and kept.seen >= (1 + GROWTH) * kept.made:
                _make(alpha, k, reach, kept)
            if kept.seen == 0:
                stop = min(stop, first + BEGINNING)
            elif kept.table is not None:
                stop = min(stop, first + (1 + GROWTH) * kept.made - kept.seen)
        # a match that ends in first:stop begins in here
        part = text[max(0, first - overlap) : stop]
        if kept.table is None:
            windows.improve(alpha, part.size, k, reach, backend_of(part), kept.plan)
        else:
            _look(alpha, part, k, reach, kept, backend_of(part), finder_of(part))
        kept.seen += stop - first
        first = stop


def _make(alpha: Alpha, k: int, reach: Columns, kept: Kept) -> None:
    """Make the table by the reaches there are, if there is a shape that is worth it."""
    kept.made, kept.table = kept.seen, None
    starts = np.flatnonzero(reach < alpha.ends)
    shape = shape_for(k, reach[starts] - starts, COSTS)
    if shape is not None:
        at, stop = windows.stretches(alpha, reach, 1)
        first, anchor, end = windows.blocks(at, stop, reach, alpha.ends, shape.window)
        whole = end - anchor == shape.window
        kept.first, kept.anchor = first[whole], anchor[whole]
        kept.table = table_of(alpha.codes, kept.anchor, shape)


def _look(
    alpha: Alpha, text: Codes, k: int, reach: Columns, kept: Kept, backend: windows.Backend,
    finder: Finder,
) -> None:  # fmt: skip
    """The windows of the table by their pieces, those of the starts that it lacks by a scan."""
    assert kept.table is not None
    end = kept.anchor + kept.table.shape.window
    hits = finder.find(kept.table, k)
    windows.look_at(alpha, k, reach, backend, kept.plan, kept.first, kept.anchor, end, hits)
    # starts in no block of the table: their prefixes were shorter than its windows
    covered = np.zeros(reach.size + 1, dtype=np.int64)
    np.add.at(covered, kept.first, 1)
    np.add.at(covered, kept.anchor + 1, -1)
    left = np.flatnonzero((np.cumsum(covered)[:-1] == 0) & (reach < alpha.ends))
    if left.size:
        rows = kept.table.shape.window
        first, anchor, end = windows.blocks(left, left + 1, reach, alpha.ends, rows)
        hits = backend.hits(anchor, end)
        windows.look_at(alpha, k, reach, backend, kept.plan, first, anchor, end, hits)


class OnCores:
    """Looks pieces up on the CPU's cores."""

    def __init__(self, text: Codes, threads: int) -> None:
        self._text = text
        self._threads = threads

    def find(self, table: SeedTable, k: int) -> Hits:
        """As ``Finder.find``."""
        spans = split_range(0, self._text.size, -(-self._text.size // SEGMENT))

        def task(span: tuple[int, int]) -> NDArray[np.uint64]:
            room, shape = 4096, table.shape
            while True:
                keys = np.empty(room, dtype=np.uint64)
                found = _pass(
                    self._text, *span, table.masks, shape.window, shape.symbols, k, table.begins,
                    table.entries, keys,
                )  # fmt: skip
                if found <= room:
                    return np.unique(keys[:found])
                room = found

        keys = run_all([partial(task, span) for span in spans], self._threads)
        return runs(np.concatenate(keys), self._text.size)
