"""Many windows of alpha along one text, bit-parallel: a vector lane a window.

    lanes      64 windows, the same symbol of the text for all; so the masks of a symbol are a row
    of
               a table, and rows of 64 words of 32 bits are what the compiler makes vectors of
    rows       a window stands at the bottom of its 32 * words rows: its last row is the top bit of
    the
               last word, whatever its length, and its difference is the carry that comes out there
    free rows  those above it match every symbol (all ones in the masks, 0 in vp), so that D is 0
    there

vp, vn, ph, mh as in ``hook``. What is kept of D's last row is its minimum over tiles of TILE
columns. Operations: 16 for 32 rows of all lanes and a symbol, 4 for the score: 130 G cells a
second a thread seen, with 256-bit vectors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.hook import match_bits, reaches
from streamer.batch.primer.problem import Alpha, Codes
from streamer.batch.primer.text import SEPARATOR
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

LANES = 64
TILE = 64
SEGMENT = 1 << 20
"""Columns of a task at most: its minima take a word of 16 bits for each tile and lane."""

_FAR = np.int16(0x7FFF)
_ALL = np.uint32(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _masks(codes, firsts, ends, words):
    """uint32[5, words, LANES]: the rows that match a symbol; those of a gap are the free ones."""
    masks = np.zeros((5, words, LANES), dtype=np.uint32)
    for lane in range(LANES):
        # lanes that are not used match everything and are not looked at
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
    """The least D of each lane's last row in every tile of text[first:stop], from ``begin`` on."""
    words = masks.shape[1]
    vp = np.empty((words, LANES), dtype=np.uint32)
    vn = np.empty((words, LANES), dtype=np.uint32)
    carry_p = np.zeros(LANES, dtype=np.uint32)
    carry_n = np.zeros(LANES, dtype=np.uint32)
    score = np.zeros(LANES, dtype=np.int32)
    least = np.full(LANES, np.int32(_FAR), dtype=np.int32)
    _begin(masks, firsts, ends, vp, vn, score)
    for j in range(begin, stop):
        symbol = text[j]
        if symbol == SEPARATOR:
            _begin(masks, firsts, ends, vp, vn, score)
        else:
            eqs = masks[symbol, 0]
            ps = vp[0]
            ns = vn[0]
            for lane in range(LANES):
                eq = eqs[lane]
                p = ps[lane]
                n = ns[lane]
                xv = np.uint32(eq | n)
                xh = np.uint32(np.uint32(np.uint32(np.uint32(eq & p) + p) ^ p) | eq)
                ph = np.uint32(n | np.uint32(~np.uint32(xh | p)))
                mh = np.uint32(p & xh)
                carry_p[lane] = np.uint32(ph >> np.uint32(31))
                carry_n[lane] = np.uint32(mh >> np.uint32(31))
                ph = np.uint32(ph << np.uint32(1))
                mh = np.uint32(mh << np.uint32(1))
                ps[lane] = np.uint32(mh | np.uint32(~np.uint32(xv | ph)))
                ns[lane] = np.uint32(ph & xv)
            for w in range(1, words):
                eqs = masks[symbol, w]
                ps = vp[w]
                ns = vn[w]
                for lane in range(LANES):
                    eq = eqs[lane]
                    p = ps[lane]
                    n = ns[lane]
                    in_p = carry_p[lane]
                    in_n = carry_n[lane]
                    xv = np.uint32(eq | n)
                    eq = np.uint32(eq | in_n)
                    xh = np.uint32(np.uint32(np.uint32(np.uint32(eq & p) + p) ^ p) | eq)
                    ph = np.uint32(n | np.uint32(~np.uint32(xh | p)))
                    mh = np.uint32(p & xh)
                    carry_p[lane] = np.uint32(ph >> np.uint32(31))
                    carry_n[lane] = np.uint32(mh >> np.uint32(31))
                    ph = np.uint32(np.uint32(ph << np.uint32(1)) | in_p)
                    mh = np.uint32(np.uint32(mh << np.uint32(1)) | in_n)
                    ps[lane] = np.uint32(mh | np.uint32(~np.uint32(xv | ph)))
                    ns[lane] = np.uint32(ph & xv)
            for lane in range(LANES):
                new = np.int32(score[lane] + np.int32(carry_p[lane]) - np.int32(carry_n[lane]))
                score[lane] = new
                least[lane] = min(least[lane], new)
        if j >= first and ((j + 1 - first) % TILE == 0 or j + 1 == stop):
            row = lowest[(j - first) // TILE]
            for lane in range(LANES):
                row[lane] = np.int16(least[lane])
                least[lane] = np.int32(_FAR)
        elif j == first - 1:
            for lane in range(LANES):
                least[lane] = np.int32(_FAR)


@njit(cache=True, nogil=True)
def _runs(lowest, limit, used, first, stop, lanes, froms, untils, slacks):
    """Maximal runs of tiles at or below ``limit``, lane by lane; returns their number."""
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


def _hits_of(
    text: Codes, alpha: Alpha, firsts: NDArray[np.int64], ends: NDArray[np.int64], k: int,
    span: tuple[int, int],
) -> tuple[NDArray[np.int64], ...]:  # fmt: skip
    """Lanes and columns of hits of at most LANES windows in one span of the text."""
    lowest, _ = _minima(text, alpha, firsts, ends, k, span)
    room = 1024
    while True:
        columns = np.empty((4, room), dtype=np.int64)
        found = _runs(lowest, k - 1, firsts.size, *span, *columns)
        if found <= room:
            return tuple(column[:found] for column in columns)
        room = found


def _minima(
    text: Codes, alpha: Alpha, firsts: NDArray[np.int64], ends: NDArray[np.int64], k: int,
    span: tuple[int, int],
) -> tuple[NDArray[np.int16], int]:  # fmt: skip
    longest = int((ends - firsts).max())
    masks = _masks(alpha.codes, firsts, ends, -(-longest // 32))
    first, stop = span
    lowest = np.empty((-(-(stop - first) // TILE), LANES), dtype=np.int16)
    begin = max(0, first - longest - k)
    _scan(text, begin, first, stop, masks, firsts, ends, lowest)
    return lowest, first


def _spans(size: int, groups: int, longest: int, k: int, threads: int) -> list[tuple[int, int]]:
    """The text in spans for tasks: enough for the threads, not so short that overlaps cost much."""
    wanted = max(-(-size // SEGMENT), -(-2 * threads // groups) if groups < 4 * threads else 1)
    return split_range(0, size, min(wanted, max(1, size // (8 * (longest + k)))), align=TILE)


def hits(
    alpha: Alpha, text: Codes, firsts: NDArray[np.int64], ends: NDArray[np.int64], k: int,
    threads: int,
) -> tuple[NDArray[np.int64], ...]:  # fmt: skip
    """Where windows alpha[firsts:ends] match within k - 1 differences: window, from, until, slack.

    int64 each. A match ends in text[from:until], columns of whole tiles, and the nearest there has
    k - 1 - slack differences.
    """
    order = np.argsort(ends - firsts, kind="stable")
    groups = [order[at : at + LANES] for at in range(0, order.size, LANES)]
    longest = int((ends - firsts).max())
    spans = _spans(text.size, len(groups), longest, k, threads)
    tasks: list[Any] = [
        partial(_hits_of, text, alpha, firsts[group], ends[group], k, span)
        for group in groups
        for span in spans
    ]
    found = run_all(tasks, threads)
    windows = [
        group[found[i * len(spans) + s][0]]
        for i, group in enumerate(groups)
        for s in range(len(spans))
    ]
    rest = (np.concatenate([columns[i] for columns in found]) for i in (1, 2, 3))
    return np.concatenate(windows), *rest


def best(
    alpha: Alpha, text: Codes, firsts: NDArray[np.int64], ends: NDArray[np.int64], k: int,
    threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """For each window alpha[firsts:ends] the tile where it comes closest: from, until."""
    groups = split_range(0, firsts.size, -(-firsts.size // LANES))
    spans = _spans(text.size, len(groups), int((ends - firsts).max()), k, threads)

    def task(group: tuple[int, int], span: tuple[int, int]) -> tuple[NDArray[Any], ...]:
        low, first = _minima(text, alpha, firsts[slice(*group)], ends[slice(*group)], k, span)
        tile = low[:, : group[1] - group[0]].argmin(axis=0)
        return first + TILE * tile, low[tile, np.arange(tile.size)]

    found = run_all([partial(task, group, span) for group in groups for span in spans], threads)
    where = np.zeros(firsts.size, dtype=np.int64)
    distance = np.full(firsts.size, int(_FAR), dtype=np.int64)
    for i, (tiles, lows) in enumerate(found):
        group = slice(*groups[i // len(spans)])
        nearer = lows < distance[group]
        where[group] = np.where(nearer, tiles, where[group])
        distance[group] = np.where(nearer, lows, distance[group])
    return where, np.minimum(where + TILE, text.size)


def least_differences(
    alpha: Alpha, text: Codes, firsts: NDArray[np.int64], ends: NDArray[np.int64], threads: int
) -> NDArray[np.int64]:
    """The least differences of each window alpha[firsts:ends] from a substring of the text."""
    groups = split_range(0, firsts.size, -(-firsts.size // LANES))
    longest = int((ends - firsts).max())
    spans = _spans(text.size, len(groups), longest, longest, threads)

    def task(group: tuple[int, int], span: tuple[int, int]) -> NDArray[np.int16]:
        low, _ = _minima(text, alpha, firsts[slice(*group)], ends[slice(*group)], longest, span)
        return low.min(axis=0)[: group[1] - group[0]]

    found = run_all([partial(task, group, span) for group in groups for span in spans], threads)
    least = ends - firsts
    for i, low in enumerate(found):
        group = slice(*groups[i // len(spans)])
        least[group] = np.minimum(least[group], low)
    return least


class Cores:
    """The CPU's cores and one text, as ``windows.Backend``."""

    extension_cost = 6.0

    def __init__(self, alpha: Alpha, text: Codes, k: int, threads: int) -> None:
        self._alpha = alpha
        self._text = text
        self._k = k
        self._threads = threads
        self._bits = match_bits(alpha.codes)
        self.width = LANES if text.size >= threads << 16 else LANES * threads

    def hits(self, firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> Any:
        """Where windows match: ``hits``."""
        return hits(self._alpha, self._text, firsts, ends, self._k, self._threads)

    def best(self, firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> Any:
        """Where windows come closest: ``best``."""
        return best(self._alpha, self._text, firsts, ends, self._k, self._threads)

    def reaches(self, tasks: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
        """How far starts reach near hits: ``hook.reaches``."""
        return reaches(self._alpha, self._bits, self._text, self._k, tasks, self._threads)
