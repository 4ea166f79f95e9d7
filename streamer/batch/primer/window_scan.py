"""Scan one text for many windows of alpha, bit-parallel: one vector lane per window.

    lanes      64 windows see the same symbol of the text, so a symbol's masks are a row of a table;
               the compiler turns rows of 64 words of 32 bits into vectors
    rows       a window is aligned to the bottom of its 32 * words rows: its last row is the top bit
               of the last word, whatever its length, and its difference is the carry out of there
    free rows  those above match every symbol (all ones in the masks, 0 in vp), so D is 0 there

vp, vn, ph, mh as in ``hook``. Only the minimum of D's last row over each tile of TILE columns is
stored. Operations: 16 per symbol and 32 rows of all lanes, 4 for the score: measured at 130 G cells
per second and thread, with 256-bit vectors.

Myers' bit-vectors: from a word's vertical differences in a column of D to the next column's.

p, n      vertical differences +1 and -1 between a row and the one above it
eq        rows whose symbol is the text's, and row 0 of a word into which -1 comes from above
ph, mh    horizontal differences +1 and -1 of the rows; their top bits go on to the next word
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.problem import SEPARATOR, Columns
from streamer.batch.records import Codes
from trie.codes import GAP
from trie.cpu.jit import njit


@njit(cache=True, nogil=True, inline="always")
def horizontal(p, n, eq):
    """Return ph and mh of a uint64 word."""
    xh = (((eq & p) + p) ^ p) | eq
    return n | ~(xh | p), p & xh


@njit(cache=True, nogil=True, inline="always")
def vertical(xv, ph, mh, in_p, in_n):
    """P and n of a uint64 word in the next column; xv is eq | n; in_p, in_n are from above."""
    ph = (ph << np.uint64(1)) | in_p
    mh = (mh << np.uint64(1)) | in_n
    return mh | ~(xv | ph), ph & xv


@njit(cache=True, nogil=True, inline="always")
def next_column_32(p, n, eq, in_p, in_n):
    """Return p, n and the carries of a uint32 word, cast back after every operation."""
    xv = np.uint32(eq | n)
    eq = np.uint32(eq | in_n)
    xh = np.uint32(np.uint32(np.uint32(np.uint32(eq & p) + p) ^ p) | eq)
    ph = np.uint32(n | np.uint32(~np.uint32(xh | p)))
    mh = np.uint32(p & xh)
    out_p = np.uint32(ph >> np.uint32(31))
    out_n = np.uint32(mh >> np.uint32(31))
    ph = np.uint32(np.uint32(ph << np.uint32(1)) | in_p)
    mh = np.uint32(np.uint32(mh << np.uint32(1)) | in_n)
    return np.uint32(mh | np.uint32(~np.uint32(xv | ph))), np.uint32(ph & xv), out_p, out_n


LANES = 64
TILE = 64

FAR = np.int16(0x7FFF)


@njit(cache=True, nogil=True)
def _masks(codes, firsts, ends, words):
    """Return uint32[5, words, LANES]: the rows that match each symbol; for a gap, the free ones."""
    masks = np.zeros((5, words, LANES), dtype=np.uint32)
    for lane in range(LANES):
        # unused lanes match everything; their results are ignored
        free = 32 * words - (ends[lane] - firsts[lane] if lane < firsts.size else 0)
        for row in range(32 * words):
            bit = np.uint32(np.uint32(1) << np.uint32(row & 31))
            if row < free:
                for c in range(5):
                    masks[c, row >> 5, lane] |= bit
            else:
                symbol = codes[firsts[lane] + row - free]
                if symbol != GAP:
                    masks[symbol, row >> 5, lane] |= bit
    return masks


@njit(cache=True, nogil=True)
def _begin(masks, firsts, ends, vp, vn, score):
    words = masks.shape[1]
    for w in range(words):
        for lane in range(LANES):
            vp[w, lane] = np.uint32(~masks[GAP, w, lane])
            vn[w, lane] = np.uint32(0)
    for lane in range(firsts.size):
        score[lane] = ends[lane] - firsts[lane]


@njit(cache=True, nogil=True)
def _scan(text, begin, first, stop, masks, firsts, ends, lowest):
    """Compute the least D of each lane's last row per tile of text[first:stop], from ``begin``."""
    words = masks.shape[1]
    vp = np.empty((words, LANES), dtype=np.uint32)
    vn = np.empty((words, LANES), dtype=np.uint32)
    carry_p = np.zeros(LANES, dtype=np.uint32)
    carry_n = np.zeros(LANES, dtype=np.uint32)
    score = np.zeros(LANES, dtype=np.int32)
    least = np.full(LANES, np.int32(FAR), dtype=np.int32)
    _begin(masks, firsts, ends, vp, vn, score)
    for j in range(begin, stop):
        symbol = text[j]
        if symbol == SEPARATOR:
            _begin(masks, firsts, ends, vp, vn, score)
        else:
            eqs = masks[symbol, 0]
            ps = vp[0]
            ns = vn[0]
            zero = np.uint32(0)
            for lane in range(LANES):
                ps[lane], ns[lane], carry_p[lane], carry_n[lane] = next_column_32(
                    ps[lane], ns[lane], eqs[lane], zero, zero
                )
            for w in range(1, words):
                eqs = masks[symbol, w]
                ps = vp[w]
                ns = vn[w]
                for lane in range(LANES):
                    ps[lane], ns[lane], carry_p[lane], carry_n[lane] = next_column_32(
                        ps[lane], ns[lane], eqs[lane], carry_p[lane], carry_n[lane]
                    )
            for lane in range(LANES):
                new = np.int32(score[lane] + np.int32(carry_p[lane]) - np.int32(carry_n[lane]))
                score[lane] = new
                least[lane] = min(least[lane], new)
        if j >= first and ((j + 1 - first) % TILE == 0 or j + 1 == stop):
            row = lowest[(j - first) // TILE]
            for lane in range(LANES):
                row[lane] = np.int16(least[lane])
                least[lane] = np.int32(FAR)
        elif j == first - 1:
            for lane in range(LANES):
                least[lane] = np.int32(FAR)


@njit(cache=True, nogil=True)
def _runs(lowest, limit, used, first, stop, lanes, froms, untils, slacks):
    """Write maximal runs of tiles at or below ``limit`` while there is room; return the count."""
    count = 0
    open_ = np.full(LANES, -1, dtype=np.int64)
    slack = np.zeros(LANES, dtype=np.int64)
    tiles = lowest.shape[0]
    for tile in range(tiles + 1):
        for lane in range(used):
            hit = tile < tiles and lowest[tile, lane] <= limit
            if hit:
                if open_[lane] < 0:
                    open_[lane] = first + tile * TILE
                    slack[lane] = 0
                slack[lane] = max(slack[lane], limit - lowest[tile, lane])
            elif open_[lane] >= 0:
                if count < lanes.size:
                    lanes[count] = lane
                    froms[count] = open_[lane]
                    untils[count] = min(stop, first + tile * TILE)
                    slacks[count] = slack[lane]
                count += 1
                open_[lane] = -1
    return count


def minima(
    text: Codes, codes: Codes, firsts: Columns, ends: Columns, k: int, span: tuple[int, int]
) -> NDArray[np.int16]:
    """Return the least D of the last row of windows codes[firsts:ends] in each tile of a span.

    At most LANES windows; int16[tiles, LANES]. Exact where it is below k.
    """
    longest = int((ends - firsts).max())
    masks = _masks(codes, firsts, ends, -(-longest // 32))
    first, stop = span
    lowest = np.empty((-(-(stop - first) // TILE), LANES), dtype=np.int16)
    begin = max(0, first - longest - k)
    _scan(text, begin, first, stop, masks, firsts, ends, lowest)
    return lowest


def runs_of_hits(
    lowest: NDArray[np.int16], limit: int, windows: int, span: tuple[int, int]
) -> NDArray[np.int64]:
    """int64[4, runs]: lane, from, until, slack of each run of tiles at or below ``limit``."""
    room = 1024
    while True:
        columns = np.empty((4, room), dtype=np.int64)
        found = _runs(lowest, limit, windows, *span, *columns)
        if found <= room:
            return columns[:, :found]
        room = found
