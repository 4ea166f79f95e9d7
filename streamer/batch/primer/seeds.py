"""The default: find windows through pieces with at most one error, where that is cheaper.

If a window of p pieces matches within k - 1 differences, some piece has at most (k - 1) // p: with
p = k it is exact, with p = (k - 1) // 2 + 1 it has at most one error. So no match is lost. A pass
over the text looks up every position in a table of pieces and verifies the windows of those found
(``_verify``, one word of rows). Longer pieces are rarer in a text; shorter windows are shared by
more starts: ``shape_for`` weighs these against the scan of all windows.

A text is searched in growing spans: prefixes grow too, and a table of longer pieces has fewer
candidates. The first span, and texts for which no table pays, go to ``shared_windows``.

The table lists by code what a text may hold where a piece of a window has at most one error. From
the first column of such a piece of q symbols, the text holds q symbols:

    the piece, or with one symbol changed                   1 + 3 q
    without one symbol, followed by any symbol              at most 4 q
    with a symbol inserted, its last symbol pushed out      at most 4 q

A gap in the text uses up the piece's one error, whatever letter replaces it, so it is looked up
like any letter; so is what follows a record. A gap in alpha is the error of its piece; a piece with
two matches nothing.

Operations: a look-up per symbol, and 25 per column of a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer import shared_windows
from streamer.batch.primer.cpu_text import TILE, BlockHits, CpuText, horizontal, vertical
from streamer.batch.primer.problem import SEPARATOR, Columns
from streamer.batch.primer.shared_windows import blocks, settle, stretches
from streamer.batch.records import Codes
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

MOST_ROWS = 32  # most symbols of a window: one word
SHORTEST = 3  # least symbols of a piece
MOST_SYMBOLS = 12  # most symbols of a piece: a table has 4**12 begins
MOST_WINDOWS = 1 << 24  # most windows of a table: a key has 24 bits for them


@dataclass(frozen=True, slots=True)
class CutShape:
    """Pieces per window, symbols per piece, errors per piece (0 or 1)."""

    pieces: int
    symbols: int
    errors: int

    @property
    def window(self) -> int:
        """The symbols of a window."""
        return self.pieces * self.symbols

    def candidates(self, windows: float) -> float:
        """Return the number of pieces that a column of random text may match."""
        codes = max(1, 9 * self.symbols - 8) if self.errors else 1
        return windows * self.pieces * codes / 4.0**self.symbols


@dataclass(frozen=True, slots=True)
class CutCosts:
    """The costs of a column of text on some machine, in any unit.

    scanned: per window of 32 rows. candidate: per column along which it is verified. found: per
    candidate, before that. shared: starts that share a window of the scan.
    """

    scanned: float
    candidate: float
    found: float
    shared: float


def shape_for(k: int, lengths: NDArray[np.int64], costs: CutCosts) -> CutShape | None:
    """Return the cheapest shape for prefixes of these lengths; None if the scan is cheaper.

    Starts share a window as in ``windows``: n prefixes of length c need n / (c + 2 - window)
    windows. A prefix too short for a window is left to the scan, where it shares none.
    """
    if lengths.size == 0:
        return None
    scan = np.maximum(lengths - np.median(lengths) + costs.shared, 1)
    best, least = None, costs.scanned * float(((lengths // 32 + 1) / scan).sum())
    for errors, pieces in ((0, k), (1, (k - 1) // 2 + 1)):
        for symbols in range(SHORTEST, MOST_SYMBOLS + 1):
            shape = CutShape(pieces, symbols, errors)
            if shape.window > MOST_ROWS:
                break
            whole = lengths + 1 >= shape.window
            windows = float((1 / (lengths[whole] + 2 - shape.window)).sum())
            each = costs.found + costs.candidate * (shape.window + 2 * (k - 1))
            cost = shape.candidates(windows) * each + costs.scanned * int((~whole).sum())
            if cost < least:
                best, least = shape, cost
    return best


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
    """Build the table of windows that begin at ``firsts``, each ``shape.window`` symbols long."""
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
    """Return uint64[windows, 6]: the rows that match a symbol; none match a gap or separator."""
    masks = np.zeros((firsts.size, 6), dtype=np.uint64)
    for window in range(firsts.size):
        for row in range(rows):
            symbol = codes[firsts[window] + row]
            if symbol != GAP:
                masks[window, symbol] |= np.uint64(1) << np.uint64(row)
    return masks


@njit(cache=True, nogil=True)
def _variants(codes, firsts, pieces, q, errors):
    """Return keys code << 32 | window << 4 | piece of all that a text may hold, with repeats."""
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


SEGMENT = 1 << 18  # columns per task

BEGINNING = 1 << 18
"""Columns that ``shared_windows`` searches first, so that all starts have bounds."""

GROWTH = 3  # columns searched with one table, per column seen before it was built
COSTS = CutCosts(scanned=0.35, candidate=5, found=40, shared=3)  # nanoseconds of a thread, roughly


@dataclass
class Seen:
    """State passed from text to text: the columns seen, and the table built after ``made``."""

    seen: int = 0
    made: int = 0
    blocks: Columns = field(default_factory=lambda: np.empty((3, 0), dtype=np.int64))
    table: SeedTable | None = None
    plan: shared_windows.Plan = field(default_factory=shared_windows.Plan)


def improve(text: CpuText, reach: Columns, state: Seen) -> None:
    """Raise the reaches by a text, in growing spans."""
    size = text.codes.size
    overlap = text.alpha.longest() + text.k
    first = 0
    while first < size:
        stop = size
        # whether any window can be cut into pieces for k differences
        if SHORTEST * ((text.k - 1) // 2 + 1) <= MOST_ROWS:
            if state.seen and state.seen >= (1 + GROWTH) * state.made:
                _make_table(text, reach, state)
            if state.seen == 0:
                stop = min(stop, first + BEGINNING)
            elif state.table is not None:
                stop = min(stop, first + (1 + GROWTH) * state.made - state.seen)
        # a match that ends in first:stop begins within this part
        part = text.part(max(0, first - overlap), stop)
        if state.table is None:
            shared_windows.improve(part, reach, state.plan)
        else:
            _look_up(part, reach, state.table, state.blocks)
        state.seen += stop - first
        first = stop


def _make_table(text: CpuText, reach: Columns, state: Seen) -> None:
    """Build the table from the current reaches, if any shape pays."""
    alpha = text.alpha
    state.made, state.table = state.seen, None
    starts = np.flatnonzero(reach < alpha.ends)
    shape = shape_for(text.k, reach[starts] - starts, COSTS)
    if shape is not None:
        some = blocks(*stretches(alpha, reach, 1), reach, alpha.ends, shape.window)
        state.blocks = some[:, some[2] - some[1] == shape.window][:, :MOST_WINDOWS]
        state.table = table_of(alpha.codes, state.blocks[1], shape)


def _look_up(text: CpuText, reach: Columns, table: SeedTable, whole: Columns) -> None:
    """Find the table's windows by their pieces, and those of other starts by a scan.

    whole: the blocks of the table's windows.
    """
    rows, ends = table.shape.window, text.alpha.ends
    settle(text, reach, whole, find(text, table))
    # starts in no block of the table: their prefixes were too short, or there were too many blocks
    covered = np.zeros(reach.size + 1, dtype=np.int64)
    np.add.at(covered, whole[0], 1)
    np.add.at(covered, whole[1] + 1, -1)
    open_ = np.flatnonzero((np.cumsum(covered)[:-1] == 0) & (reach < ends))
    if open_.size:
        others = blocks(open_, open_ + 1, reach, ends, rows)
        settle(text, reach, others, text.hits(others[1], others[2]))


def find(text: CpuText, table: SeedTable) -> BlockHits:
    """Find the hits of the table's windows in a text."""
    codes = text.codes

    def task(span: tuple[int, int]) -> NDArray[np.uint64]:
        room, shape = 4096, table.shape
        while True:
            keys = np.empty(room, dtype=np.uint64)
            count = _pass(
                codes, *span, table.masks, shape.window, shape.symbols, text.k, table.begins,
                table.entries, keys,
            )  # fmt: skip
            if count <= room:
                return np.unique(keys[:count])
            room = count

    spans = split_range(0, codes.size, -(-codes.size // SEGMENT))
    keys = run_all([partial(task, span) for span in spans], text.threads)
    return runs(np.concatenate(keys), codes.size)


def runs(keys: NDArray[np.uint64], size: int) -> BlockHits:
    """Convert keys window << 40 | tile << 12 | slack to hits, merging adjacent tiles."""
    if keys.size == 0:
        return BlockHits(*np.empty((4, 0), dtype=np.int64))
    ordered = np.sort(keys)
    tiles = (ordered >> np.uint64(12)).astype(np.int64)
    begins = np.flatnonzero(np.diff(tiles, prepend=-2) > 1)
    slack = np.maximum.reduceat((ordered & np.uint64(0xFFF)).astype(np.int64), begins)
    first, last = tiles[begins], tiles[np.append(begins[1:], tiles.size) - 1]
    column = (1 << 28) - 1
    until = np.minimum(TILE * ((last & column) + 1), size)
    return BlockHits(first >> 28, TILE * (first & column), until, slack)


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
        ph, mh = horizontal(vp, vn, eq)
        score += np.int64((ph >> top) & one) - np.int64((mh >> top) & one)
        vp, vn = vertical(xv, ph, mh, np.uint64(0), np.uint64(0))
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
    """Look up text[first:stop], verify candidates; return how many keys, written if they fit."""
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
