"""Search windows in a text of beta on the CPU's cores, and extend starts near the hits.

Extend one start near one place of a text, bit-parallel: follow a row that only rises.

Myers' bit-vectors (64 rows per word, row 1 in bit 0) advance along the text with row 0 all zeros,
so a match may begin anywhere. The hook row h is one above the longest prefix known to be within k -
1 differences. Only its value is stored, updated by its horizontal difference at every symbol; when
it falls to k - 1, h rises and the vertical difference of the next row is added. At the end of the
text the reach is r + h - 1: one pass, no cells, no search.

    vp, vn    bit i-1: D[i, j] - D[i-1, j] is +1, is -1
    ph, mh    bit i-1: D[i, j] - D[i, j-1] is +1, is -1

Operations: 17 per 64 rows and symbol, on the words up to the hook and one more. Once a match is so
long that k columns of all diagonals are less work, it is followed along its diagonals
(``alternative``): work then grows with k * k, not with the square of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.paper import alternative_longest_prefix as longest_prefix
from streamer.batch.primer.problem import SEPARATOR, Alpha, Columns
from streamer.batch.primer.window_scan import (
    FAR,
    LANES,
    TILE,
    horizontal,
    minima,
    runs_of_hits,
    vertical,
)
from streamer.batch.records import Codes
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

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

        found = [
            (group[lanes], *rest) for group, (lanes, *rest) in self._scanned(firsts, ends, runs)
        ]
        return BlockHits(*map(np.concatenate, zip(*found, strict=True)))

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
        found = run_all([partial(task, group, span) for group, span in pairs], self.threads)
        return zip((group for group, _ in pairs), found, strict=True)

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
