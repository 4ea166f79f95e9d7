"""The default: find windows through pieces with at most one error, where that is cheaper.

No match is lost (pigeonhole, ``shapes``). A pass over the text looks up every position in a table
of pieces (``seed_table``) and verifies the windows of those found (``_verify``, one word of rows).

A text is searched in growing spans: prefixes grow too, and a table of longer pieces has fewer
candidates. The first span, and texts for which no table pays, go to ``shared_windows``.

Operations: a look-up per symbol, and 25 per column of a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer import shared_windows
from streamer.batch.primer.beta_pieces import SEPARATOR
from streamer.batch.primer.cpu_text import BlockHits, CpuText
from streamer.batch.primer.myers import horizontal, vertical
from streamer.batch.primer.problem import Columns
from streamer.batch.primer.seed_table import SeedTable, table_of
from streamer.batch.primer.shapes import MOST_WINDOWS, CutCosts, cuttable, shape_for
from streamer.batch.primer.shared_windows import blocks, settle, stretches
from streamer.batch.primer.window_scan import TILE
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

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
        if cuttable(text.k):
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
    left = np.flatnonzero((np.cumsum(covered)[:-1] == 0) & (reach < ends))
    if left.size:
        others = blocks(left, left + 1, reach, ends, rows)
        settle(text, reach, others, text.hits(others[1], others[2]))


def find(text: CpuText, table: SeedTable) -> BlockHits:
    """Find the hits of the table's windows in a text."""
    codes = text.codes

    def task(span: tuple[int, int]) -> NDArray[np.uint64]:
        room, shape = 4096, table.shape
        while True:
            keys = np.empty(room, dtype=np.uint64)
            found = _pass(
                codes, *span, table.masks, shape.window, shape.symbols, text.k, table.begins,
                table.entries, keys,
            )  # fmt: skip
            if found <= room:
                return np.unique(keys[:found])
            room = found

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
