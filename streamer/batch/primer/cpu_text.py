"""Search windows in a text of beta on the CPU's cores, and extend starts near the hits.

A start is extended near a place bit-parallel. Myers' bit-vectors (64 rows per word, row 1 in bit 0)
advance along the text with row 0 all zeros, so a match may begin anywhere. The hook row h is one
above the longest prefix known to be within k - 1 differences. Only its value is stored, updated by
its horizontal difference at every symbol; when it falls to k - 1, h rises and the vertical
difference of the next row is added. At the end of the text the reach is r + h - 1.

    vp, vn    bit i-1: D[i, j] - D[i-1, j] is +1, is -1
    ph, mh    bit i-1: D[i, j] - D[i, j-1] is +1, is -1

Operations: 17 per 64 rows and symbol, on the words up to the hook and one more. Once a match is so
long that k columns of all diagonals are less work, it is followed along its diagonals
(``paper.alternative_longest_prefix``).

Windows of alpha are scanned for bit-parallel too, one vector lane per window:

    lanes      64 windows see the same symbol of the text, so a symbol's masks are a row of a table;
               the compiler turns rows of 64 words of 32 bits into vectors
    rows       a window is aligned to the bottom of its 32 * words rows: its last row is the top bit
               of the last word, whatever its length, and its difference is the carry out of there
    sets       a window's symbol above SET is a set of bases, which it matches: SET | bits 3-0
    free rows  those above match every symbol (all ones in the masks, 0 in vp), so D is 0 there

Only the minimum of D's last row over each tile of TILE columns is stored. Operations: 16 per symbol
and 32 rows of all lanes, 4 for the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.paper import alternative_longest_prefix as longest_prefix
from streamer.batch.primer.problem import SEPARATOR, Alpha, Columns
from streamer.batch.records import Codes
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


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
SET: Final = np.uint8(16)

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
                if symbol >= SET:
                    for c in range(4):
                        if symbol >> c & 1:
                            masks[c, row >> 5, lane] |= bit
                elif symbol != GAP:
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
        count = _runs(lowest, limit, windows, *span, *columns)
        if count <= room:
            return columns[:, :count]
        room = count


WORD = 64
LONG = 512  # rows from which a match may be followed along diagonals
DIAGONAL_CELL = 512.0  # the cost of a cell along diagonals, in rows of a column
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def match_bits(codes: Codes) -> NDArray[np.uint64]:
    """uint64[4, words]: bit i of row c is set where symbol i is c; a gap has no bit in any row."""
    words = codes.size // WORD + 2
    bits = np.zeros((4, words * WORD), dtype=np.uint8)
    for code in range(4):
        bits[code, : codes.size] = codes == code
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _bit(words, row):
    """Return the bit of a row (from 1 on)."""
    at = row - 1
    return np.int64((words[at >> 6] >> np.uint64(at & 63)) & np.uint64(1))


@njit(cache=True, nogil=True)
def _along_diagonals(codes, end, text, r, k, from_, until, floor, scratch):
    """Return the reach of matches that begin in text[from_:until], record by record of the text."""
    best = floor
    at = from_
    while at < until:
        if text[at] == SEPARATOR:
            at += 1
            continue
        stop = at
        longest = at + (end - r) + k + (until - at)
        while stop < text.size and stop < longest and text[stop] != SEPARATOR:
            stop += 1
        diagonals = min(stop, until) - at + k
        diagonals = min(diagonals, stop - at)
        if scratch.size < diagonals + k + 3:
            scratch = np.empty(diagonals + k + 3, dtype=np.int32)
        counts = np.zeros(1, dtype=np.int64)
        never = np.zeros(1, dtype=np.uint8)
        c = longest_prefix(codes[r:end], text[at:stop], k, scratch, counts, never, diagonals)
        best = max(best, r + c)
        if best >= end:
            break
        at = stop
    return best


@njit(cache=True, nogil=True)
def reach_near(codes, bits, end, r, floor, text, from_, until, core_end, slack, k, scratch):
    """The reach of start r by matches whose part alpha[r:core_end] ends in text[from_:until].

    That part has at least k - 1 - slack differences, so its continuation in the text is at most
    ``slack`` symbols longer than in alpha. The result is at least ``floor`` (r <= floor <= end, the
    record's end). ``scratch`` is int32[] of any size.
    """
    if floor >= end:
        return floor
    n = text.size
    begin = max(0, from_ - (core_end - r) - k)
    height = max(LONG, int(np.sqrt(DIAGONAL_CELL * float(k) * (until - from_ + 3 * k))))
    h = floor + 1 - r
    words = (h - 1) // WORD + 2
    while True:
        if h > height:
            last = min(n, until - (core_end - r) + k)
            return _along_diagonals(codes, end, text, r, k, begin, last, r + h - 1, scratch)
        peq = np.zeros((6, words), dtype=np.uint64)
        for w in range(words):
            at = (r >> 6) + w
            low = np.uint64(r & 63)
            if at < bits.shape[1]:
                for c in range(4):
                    peq[c, w] = bits[c, at] >> low
                    if low != 0 and at + 1 < bits.shape[1]:
                        peq[c, w] |= bits[c, at + 1] << (np.uint64(64) - low)
        vp = np.full(words, _ONES, dtype=np.uint64)
        vn = np.zeros(words, dtype=np.uint64)
        score = np.int64(h)
        outgrown = False
        j = begin
        while j < min(n, until + (r + h - core_end) + slack):
            c = text[j]
            j += 1
            if c == SEPARATOR:
                vp[:] = _ONES
                vn[:] = np.uint64(0)
                score = np.int64(h)
                continue
            hook = (h - 1) >> 6
            shift = np.uint64((h - 1) & 63)
            carry_p = np.uint64(0)
            carry_n = np.uint64(0)
            for w in range(words):
                p = vp[w]
                nn = vn[w]
                eq = peq[c, w]
                xv = eq | nn
                eq |= carry_n
                ph, mh = horizontal(p, nn, eq)
                if w == hook:
                    score += np.int64((ph >> shift) & np.uint64(1))
                    score -= np.int64((mh >> shift) & np.uint64(1))
                vp[w], vn[w] = vertical(xv, ph, mh, carry_p, carry_n)
                carry_p = ph >> np.uint64(63)
                carry_n = mh >> np.uint64(63)
            while score < k:
                h += 1
                if r + h > end:
                    return end
                if h > WORD * words:
                    outgrown = True
                    break
                score += _bit(vp, h) - _bit(vn, h)
            if outgrown:
                break
        if not outgrown:
            return r + h - 1
        words *= 2


@njit(cache=True, nogil=True)
def reach_all(codes, bits, ends, text, k, starts, floors, core_ends, froms, untils, slacks, out):
    """Call ``reach_near`` for many starts; ``starts`` and what follows are int64[t]."""
    scratch = np.empty(0, dtype=np.int32)
    for i in range(starts.size):
        r = starts[i]
        out[i] = reach_near(
            codes, bits, ends[r], r, floors[i], text, froms[i], untils[i], core_ends[i], slacks[i],
            k, scratch,
        )  # fmt: skip


SEGMENT = 1 << 20
"""The most columns per task; its minima take 16 bits per tile and lane."""

EXTENSION_COST = 6.0  # cost of a column of ``reaches`` relative to one of ``hits``, for equal rows


class BlockHits(NamedTuple):
    """Where windows match within k - 1 differences, int64 each.

    A match ends in text[begin:end]; the best one there has k - 1 - slack differences.
    """

    window: Columns
    begin: Columns
    end: Columns
    slack: Columns


@dataclass(frozen=True)
class CpuText:
    """One text, the alpha to compare with it, and the threads that search it.

    Windows are alpha[firsts:ends], int64[windows] each.
    """

    alpha: Alpha
    codes: Codes
    k: int
    threads: int

    @cached_property
    def _bits(self) -> NDArray[np.uint64]:
        return match_bits(self.alpha.codes)

    @property
    def width(self) -> int:
        """The number of windows that keep all cores busy."""
        return LANES if self.codes.size >= self.threads << 16 else LANES * self.threads

    def part(self, first: int, stop: int) -> CpuText:
        """Return some columns of the text."""
        return CpuText(self.alpha, self.codes[first:stop], self.k, self.threads)

    def hits(self, firsts: Columns, ends: Columns) -> BlockHits:
        """Find where the windows match, in columns of whole tiles."""

        def runs(lowest: NDArray[np.int16], count: int, span: tuple[int, int]) -> Columns:
            return runs_of_hits(lowest, self.k - 1, count, span)

        parts = [
            (group[lanes], *rest) for group, (lanes, *rest) in self._scanned(firsts, ends, runs)
        ]
        return BlockHits(*map(np.concatenate, zip(*parts, strict=True)))

    def nearest(self, firsts: Columns, ends: Columns) -> tuple[Columns, Columns, Columns]:
        """Find the tile (from, until) where each window is closest, and its differences there."""

        def least(lowest: NDArray[np.int16], count: int, span: tuple[int, int]) -> Any:
            tile = lowest[:, :count].argmin(axis=0)
            return span[0] + TILE * tile, lowest[tile, np.arange(count)]

        where = np.zeros(firsts.size, dtype=np.int64)
        distance = np.full(firsts.size, int(FAR), dtype=np.int64)
        for group, (tiles, lows) in self._scanned(firsts, ends, least):
            nearer = lows < distance[group]
            where[group[nearer]] = tiles[nearer]
            distance[group[nearer]] = lows[nearer]
        return where, np.minimum(where + TILE, self.codes.size), distance

    def _scanned(
        self,
        firsts: Columns,
        ends: Columns,
        look: Callable[[NDArray[np.int16], int, tuple[int, int]], Any],
    ) -> Iterator[tuple[Columns, Any]]:
        """Call ``look`` on minima of LANES windows in a span, for all windows and the whole text.

        Windows of similar length are grouped.
        """
        order = np.argsort(ends - firsts, kind="stable")
        groups = [order[at : at + LANES] for at in range(0, order.size, LANES)]
        spans = self._spans(len(groups), int((ends - firsts).max()))

        def task(group: Columns, span: tuple[int, int]) -> Any:
            lowest = minima(self.codes, self.alpha.codes, firsts[group], ends[group], self.k, span)
            return look(lowest, group.size, span)

        pairs = [(group, span) for group in groups for span in spans]
        scanned = run_all([partial(task, group, span) for group, span in pairs], self.threads)
        return zip((group for group, _ in pairs), scanned, strict=True)

    def _spans(self, groups: int, longest: int) -> list[tuple[int, int]]:
        """Split the text into spans: enough for the threads, but long beside their overlaps."""
        size, threads = self.codes.size, self.threads
        wanted = max(-(-size // SEGMENT), -(-2 * threads // groups) if groups < 4 * threads else 1)
        most = max(1, size // (8 * (longest + self.k)))
        return split_range(0, size, min(wanted, most), align=TILE)

    def reaches(self, starts: Columns, floors: Columns, ends: Columns, near: BlockHits) -> Columns:
        """The reaches of starts by windows alpha[:ends] near hits; see ``hook.reach_near``."""
        out = np.empty(starts.size, dtype=np.int64)
        columns = (starts, floors, ends, near.begin, near.end, near.slack)
        parts = 8 * self.threads if out.size > 64 else self.threads
        parts = max(parts, int((near.end - near.begin).sum()) >> 28)
        tasks: list[Callable[[], None]] = [
            partial(
                reach_all, self.alpha.codes, self._bits, self.alpha.ends, self.codes, self.k,
                *(column[first:last] for column in columns), out[first:last],
            )
            for first, last in split_range(0, out.size, parts)
        ]  # fmt: skip
        run_all(tasks, self.threads)
        return out

    def raise_everywhere(self, reach: Columns) -> None:
        """Search the whole text for every start: the plain bit-parallel solution (``hook-row``)."""
        starts = np.flatnonzero(reach < self.alpha.ends)
        for block in range(0, starts.size, 1024):
            r = starts[block : block + 1024]
            r = r[reach[r] < self.alpha.ends[r]]
            zeros = np.zeros(r.size, dtype=np.int64)
            text = BlockHits(zeros, zeros, zeros + self.codes.size, zeros + self.k)
            reach[r] = self.reaches(r, reach[r], r, text)
            self.alpha.raise_later(reach)
