"""Windows shared by consecutive starts: found by a scan, settled near the hits.

If start r can reach beyond e, then alpha[r:e+1] matches, and so does every window inside it. So one
window decides many starts: with e the known reach of start f, the match of any start in f..a that
reaches beyond e contains the window alpha[a:e+1]. If that has no match within k - 1 differences,
all of them are settled; if it has, their reaches are found near it.

1. sample   the nearest place of the windows of some starts, and the reaches near it
2. rounds   alpha in stretches, side by side. Each has a block of starts f..a, f the first that is
            not settled, a = reach(f) + 1 - W: all windows are W symbols long
3. scan     the windows of a round along the text (``window_scan``, or a filter)
4. settle   the starts of blocks with hits: reaches never fall from start to start, so a start below
            one that reaches no further than already known needs no look; bisection does the rest
5. balance  larger blocks save scans, shorter windows have more hits: W moves to where the work at
            hits is about two thirds of the scan's

Every step is exact whatever the bounds; bad bounds only make it slow. Later texts benefit from the
reaches of earlier ones. On random DNA (43,606 x 241,494, k = 100, median prefix 226) blocks have 8
starts.
"""

from dataclasses import dataclass

import numpy as np

from streamer.batch.primer.cpu_text import EXTENSION_COST, BlockHits, CpuText
from streamer.batch.primer.problem import Alpha, Columns
from trie.cpu.jit import njit

SAMPLE = 64  # starts for the first guess
BALANCE = 0.7  # ratio of the work at hits to the scan's at which W stays unchanged
RATE = 0.7  # approximate decrease of the natural logarithm of the hits per symbol of W
SETUP = 10_000  # cost of starting at a hit, in cells
MOST_STARTS = 1 << 12  # most starts per block
STRETCHES = 4  # stretches per window that keeps the cores busy, so that few idle at the end

SHORTEST = 32
"""Starts per stretch; the bound of the first one costs a scan and is worse than the others'."""


@dataclass
class Plan:
    """State from earlier texts: the best window length, 0 before the first."""

    window: int = 0


def improve(text: CpuText, reach: Columns, plan: Plan) -> None:
    """Raise the reaches by a text."""
    alpha, width = text.alpha, text.width
    at, stop = stretches(alpha, reach, width)
    if plan.window == 0 and at.size:
        plan.window = _sample(text, reach, at)
    # for each stretch, where its starts reached furthest so far: the window's end and a hit
    place = np.zeros((4, at.size), dtype=np.int64)
    while True:
        unfinished = at < stop
        at, stop, place = at[unfinished], stop[unfinished], place[:, unfinished]
        _follow(text, reach, at[:width], place[:, :width])
        unfinished = reach[at] < alpha.ends[at]
        at, stop, place = at[unfinished], stop[unfinished], place[:, unfinished]
        if at.size == 0:
            return
        first, last = at[:width], stop[:width] - 1
        beyond = reach[first] + 1
        anchor = np.maximum(first, beyond - plan.window)
        anchor = np.minimum(anchor, np.minimum(last, first + MOST_STARTS - 1))
        end = np.minimum(beyond, anchor + plan.window)
        # the first start of a block may have been raised by hits before it
        _raise(reach, alpha.ends, first, anchor)
        hits = text.hits(anchor, end)
        spent, reached = settle(text, reach, np.stack([first, anchor, end]), hits)
        best = reached == reach[anchor[hits.window]]
        place[:, hits.window[best]] = np.stack([end[hits.window], *hits[1:]])[:, best]
        at[:width] = anchor + 1
        scanned = text.codes.size * 32 * int((-(-(end - anchor) // 32)).sum())
        work = (spent * EXTENSION_COST + scanned / 64) / (BALANCE * scanned)
        plan.window = balanced(plan.window, work, RATE, text.k)


def balanced(window: int, work: float, rate: float, k: int) -> int:
    """Return a window length for which ``work``, the relative work at hits, is closer to 1.

    rate: how fast the logarithm of the hits falls with the length.
    """
    change = round(np.log(work) / rate)
    return max(1, min(window + max(-4, min(4, change)), 3 * k + 64))


def blocks(at: Columns, stop: Columns, reach: Columns, ends: Columns, window: int) -> Columns:
    """Return first, anchor, end of all blocks of the stretches at..stop - 1, by the current bounds.

    int64[3, blocks].
    """
    out = np.empty((3, int(np.maximum(stop - at, 0).sum())), dtype=np.int64)
    count = _blocks(at, stop, reach, ends, window, out)
    return out[:, :count]


@njit(cache=True, nogil=True)
def _blocks(at, stop, reach, ends, window, out):
    count = 0
    for i in range(at.size):
        r = at[i]
        while r < stop[i] and reach[r] < ends[r]:
            beyond = reach[r] + 1
            anchor = min(max(r, beyond - window), min(stop[i], r + MOST_STARTS) - 1)
            out[0, count] = r
            out[1, count] = anchor
            out[2, count] = min(beyond, anchor + window)
            count += 1
            r = anchor + 1
    return count


def _follow(text: CpuText, reach: Columns, at: Columns, place: Columns) -> None:
    """Bound starts by the places where the starts before them reached furthest."""
    near = np.flatnonzero(place[0] > at)
    if near.size:
        start = at[near]
        end, *hit = place[:, near]
        reach[start] = text.reaches(start, reach[start], end, BlockHits(near, *hit))
        _raise(reach, text.alpha.ends, start, start)


def stretches(alpha: Alpha, reach: Columns, width: int) -> tuple[Columns, Columns]:
    """Return first start and end of stretches, within records, of starts that may have solutions.

    After a start whose reach is the end of its record, there are no solutions.
    """
    sizes = np.diff(alpha.offsets)
    begins = alpha.offsets[:-1]
    solvable = np.add.reduceat(
        np.append(reach < alpha.ends, False).astype(np.int64), begins
    ) if begins.size else sizes  # fmt: skip
    solvable = np.where(sizes > 0, solvable, 0)
    length = max(SHORTEST, -(-int(solvable.sum()) // (STRETCHES * width)))
    parts = -(-solvable // length)
    number = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    at = np.repeat(begins, parts) + length * number
    return at, np.minimum(at + length, np.repeat(begins + solvable, parts))


def settle(text: CpuText, reach: Columns, blocks: Columns, hits: BlockHits) -> tuple[int, Columns]:
    """Raise the reaches of the starts of blocks by the hits of their windows.

    blocks: int64[3, windows], first, anchor, end: a window is alpha[anchor:end] and decides the
    starts first..anchor. Returns approximately the cells computed, and the reach of each hit's
    anchor.
    """
    ends = text.alpha.ends
    first, anchor, window_end = blocks[:, hits.window]
    if first.size == 0:
        return 0, first
    spent = 0

    def extend(near: Columns, start: Columns, floor: Columns) -> Columns:
        nonlocal spent
        hit = BlockHits(*(column[near] for column in hits))
        reached = text.reaches(start, floor, window_end[near], hit)
        rows = reached - start
        cells = (rows + 64) * (rows + 2 * text.k + hit.end - hit.begin)
        spent += int(cells.sum()) + SETUP * start.size
        np.maximum.at(reach, start, reached)
        return reached

    begins, where = np.unique(first, return_index=True)
    lasts = anchor[where]
    near, low, high = np.arange(first.size), first, anchor
    at_anchor = at_high = extend(near, high, reach[low])
    for _ in range(2):
        _raise(reach, ends, begins, lasts)
        # this place can only raise starts whose reach is below that of the start above
        high = np.minimum(high, np.searchsorted(reach, at_high) - 1)
        alive = high >= low
        near, low, high = near[alive], low[alive], high[alive]
        at_high = extend(near, high, reach[low])
    at_low = extend(near, low, reach[low])
    while True:
        # a start in between reaches no further than the higher one, and at least as far as the
        # lower
        alive = (at_high > np.maximum(at_low, reach[low])) & (high - low > 1)
        if not alive.any():
            break
        near, low, high = near[alive], low[alive], high[alive]
        at_low, at_high = at_low[alive], at_high[alive]
        middle = (low + high) // 2
        at_middle = extend(near, middle, at_low)
        near = np.concatenate([near, near])
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        at_low = np.concatenate([at_low, at_middle])
        at_high = np.concatenate([at_middle, at_high])
    _raise(reach, ends, begins, lasts)
    return spent, at_anchor


@njit(cache=True, nogil=True)
def _raise(reach, ends, firsts, lasts):
    """Make reaches nondecreasing from first to last of each block, and after it."""
    for i in range(firsts.size):
        r = firsts[i]
        end = ends[r]
        while r + 1 < end and (r < lasts[i] or reach[r + 1] < reach[r]):
            reach[r + 1] = max(reach[r + 1], reach[r])
            r += 1


def _sample(text: CpuText, reach: Columns, starts: Columns) -> int:
    """Raise reaches near the closest places of windows; return a first window length."""
    k = text.k
    most = 3 * k + 64
    length = min(most, 2 * (k - 1) + max(1, int(np.log2(text.codes.size + 4) / 2)))
    some = starts[np.linspace(0, starts.size - 1, min(SAMPLE, starts.size)).astype(np.int64)]
    for _ in range(3):
        _near_best(text, reach, some, length)
        seen = min(most, int(np.median(reach[some] + 1 - some)))
        settled = abs(seen - length) <= max(1, length // 50)
        length = max(1, seen)
        if settled:
            break
    if starts.size > some.size:
        _near_best(text, reach, starts, length)
    return max(1, length - 4)


def _near_best(text: CpuText, reach: Columns, starts: Columns, length: int) -> None:
    """Bound starts by the closest places of the windows that begin there."""
    ends = np.minimum(starts + length, text.alpha.ends[starts])
    begin, end, _ = text.nearest(starts, ends)
    hits = BlockHits(np.arange(starts.size), begin, end, np.full(starts.size, text.k))
    settle(text, reach, np.stack([starts, starts, ends]), hits)
