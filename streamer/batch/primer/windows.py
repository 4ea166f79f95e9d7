"""Windows that consecutive starts share, found by a scan, settled near the hits.

If start r can reach beyond e, then alpha[r:e+1] matches, and so does every window inside it. So one
window answers for many starts: with e the reach known of start f, any of the starts f..a that
reaches beyond e holds the window alpha[a:e+1], and where that has no match within k - 1
differences all of them are settled. Where it has one, the reaches of these starts are found near
it.

1. sample   the nearest place of the windows of some starts, the reaches near it
2. rounds   alpha in stretches, side by side. In each a block of starts f..a, f the first that is
            not settled, a = reach(f) + 1 - W: all windows are W symbols long
3. scan     the windows of a round along the text (``scan``, or a filter)
4. settle   the starts of blocks that were hit: reaches never fall from start to start, so a start
            below one that reaches no further than is known already needs no look, and bisection
            does the rest
5. balance  larger blocks save scans, shorter windows have more hits: W goes where the work at hits
            is about two thirds of the scan's

Every step is exact whatever the bounds are: bad ones only make it slow. Texts that follow profit
from the reaches known so far. On random DNA (43,606 x 241,494, k = 100, median prefix 226) blocks
have 8 starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.problem import Alpha
from trie.cpu.jit import njit

Columns = NDArray[np.int64]
Hits = tuple[Columns, Columns, Columns, Columns]

SAMPLE = 64
"""Starts that a first guess is made from."""

BALANCE = 0.7
"""Work at hits against the scan's, at which W stays as it is."""

RATE = 0.7
"""How fast the logarithm of the hits falls with W (natural logarithm a symbol), roughly."""

SETUP = 10_000
"""What beginning at a hit costs, in cells."""

MOST_STARTS = 1 << 12
"""Starts of a block."""

STRETCHES = 4
"""Stretches for each window that makes the backend busy, so that none is idle long at the end."""

SHORTEST = 32
"""Starts of a stretch: its first start's bound costs a scan, and is not as good as the others'."""


class Backend(Protocol):
    """What does the work on one text (``scan.Cores``)."""

    extension_cost: float
    """A column of ``reaches`` against a column of ``hits``, for equal rows."""

    width: int
    """Windows that it takes to be busy."""

    def hits(self, firsts: Columns, ends: Columns) -> Hits:
        """As ``scan.hits``."""

    def best(self, firsts: Columns, ends: Columns) -> tuple[Columns, Columns]:
        """As ``scan.best``."""

    def reaches(self, tasks: tuple[Columns, ...]) -> Columns:
        """As ``hook.reaches``."""


@dataclass
class Plan:
    """What is learned from the text before: the window length, 0 before the first."""

    window: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """For benchmarks: windows scanned, hits, starts extended."""

    def count(self, what: str, number: int) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + number


def improve(alpha: Alpha, size: int, k: int, reach: Columns, backend: Backend, plan: Plan) -> None:
    """Raise the reaches by what a text of ``size`` columns holds."""
    if size == 0:
        return
    at, stop = stretches(alpha, reach, backend.width)
    if plan.window == 0 and at.size:
        _sample(alpha, size, k, reach, backend, plan, at)
    place = np.zeros((4, at.size), dtype=np.int64)
    while True:
        open_ = at < stop
        at, stop, place = at[open_], stop[open_], place[:, open_]
        _follow(reach, alpha.ends, backend, at[: backend.width], place[:, : backend.width])
        open_ = reach[at] < alpha.ends[at]
        at, stop, place = at[open_], stop[open_], place[:, open_]
        if at.size == 0:
            return
        first, last = at[: backend.width], stop[: backend.width] - 1
        beyond = reach[first] + 1
        anchor = np.maximum(first, beyond - plan.window)
        anchor = np.minimum(anchor, np.minimum(last, first + MOST_STARTS - 1))
        end = np.minimum(beyond, anchor + plan.window)
        # the first start of a block may have been raised by what was found before it
        _raise(reach, alpha.ends, first, anchor)
        window, from_, until, slack = backend.hits(anchor, end)
        spent, reached = settle(
            alpha, k, reach, backend, plan, first[window], anchor[window], end[window], from_,
            until, slack,
        )  # fmt: skip
        held = reached == reach[anchor[window]]
        place[:, window[held]] = np.stack([end[window], from_, until, slack])[:, held]
        plan.count("rounds", 1)
        plan.count("windows", first.size)
        plan.count("hits", window.size)
        at[: backend.width] = anchor + 1
        scanned = size * 32 * int((-(-(end - anchor) // 32)).sum())
        work = (spent * backend.extension_cost + scanned / 64) / (BALANCE * scanned)
        change = round(np.log(work) / RATE)
        plan.window = max(1, min(plan.window + max(-4, min(4, change)), 3 * k + 64))


def look_at(
    alpha: Alpha, k: int, reach: Columns, backend: Backend, plan: Plan, first: Columns,
    anchor: Columns, end: Columns, hits: Hits,
) -> None:  # fmt: skip
    """Settle the blocks first..anchor by the hits of their windows alpha[anchor:end]."""
    window, from_, until, slack = hits
    plan.count("windows", first.size)
    plan.count("hits", window.size)
    settle(
        alpha, k, reach, backend, plan, first[window], anchor[window], end[window], from_, until,
        slack,
    )  # fmt: skip


def blocks(
    at: Columns, stop: Columns, reach: Columns, ends: Columns, window: int
) -> tuple[Columns, Columns, Columns]:
    """All blocks of stretches at..stop - 1, by the bounds there are: first, anchor, end."""
    out = np.empty((3, int(np.maximum(stop - at, 0).sum())), dtype=np.int64)
    count = _blocks(at, stop, reach, ends, window, out)
    return out[0, :count], out[1, :count], out[2, :count]


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


def _follow(reach: Columns, ends: Columns, backend: Backend, at: Columns, place: Columns) -> None:
    """Bounds for starts from the places that the starts before them reached furthest at."""
    near = np.flatnonzero(place[0] > at)
    if near.size:
        start = at[near]
        floor = reach[start]
        reach[start] = backend.reaches((start, floor, *place[:, near]))
        _raise(reach, ends, start, start)


def stretches(alpha: Alpha, reach: Columns, width: int) -> tuple[Columns, Columns]:
    """Stretches of starts within a record that may have solutions: first start and end of each.

    From a start on whose reach is the end of its record there is no solution.
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


def settle(
    alpha: Alpha, k: int, reach: Columns, backend: Backend, plan: Plan, first: Columns,
    anchor: Columns, core_end: Columns, from_: Columns, until: Columns, slack: Columns,
) -> tuple[int, Columns]:  # fmt: skip
    """Find the reaches of starts first..anchor by matches of alpha[anchor:core_end] that were hit.

    Returns the cells that were looked at, roughly, and the reach of each anchor at its hit.
    """
    if first.size == 0:
        return 0, first
    spent = 0

    def extend(start: Columns, floor: Columns) -> Columns:
        nonlocal spent
        plan.count("extensions", start.size)
        found = backend.reaches(
            (start, floor, core_end[near], from_[near], until[near], slack[near])
        )
        rows = found - start
        cells = (rows + 64) * (rows + 2 * k + until[near] - from_[near])
        spent += int(cells.sum()) + SETUP * start.size
        np.maximum.at(reach, start, found)
        return found

    begins, where = np.unique(first, return_index=True)
    lasts = anchor[where]
    near, low, high = np.arange(first.size), first, anchor
    at_anchor = at_high = extend(high, reach[low])
    for _ in range(2):
        _raise(reach, alpha.ends, begins, lasts)
        # those that this place can help: their reach is below that of the start above them
        high = np.minimum(high, np.searchsorted(reach, at_high) - 1)
        alive = high >= low
        near, low, high = near[alive], low[alive], high[alive]
        at_high = extend(high, reach[low])
    at_low = extend(low, reach[low])
    while True:
        # a start between reaches no further than the higher one, and no less than the lower one
        alive = (at_high > np.maximum(at_low, reach[low])) & (high - low > 1)
        if not alive.any():
            break
        near, low, high = near[alive], low[alive], high[alive]
        at_low, at_high = at_low[alive], at_high[alive]
        middle = (low + high) // 2
        near = np.concatenate([near, near])
        both = np.concatenate([low, middle]), np.concatenate([middle, high])
        near = near[: middle.size]
        at_middle = extend(middle, at_low)
        near = np.concatenate([near, near])
        low, high = both
        at_low = np.concatenate([at_low, at_middle])
        at_high = np.concatenate([at_middle, at_high])
    _raise(reach, alpha.ends, begins, lasts)
    return spent, at_anchor


@njit(cache=True, nogil=True)
def _raise(reach, ends, firsts, lasts):
    """Let reaches not fall from first to last, nor behind it, in each block."""
    for i in range(firsts.size):
        r = firsts[i]
        end = ends[r]
        while r + 1 < end and (r < lasts[i] or reach[r + 1] < reach[r]):
            reach[r + 1] = max(reach[r + 1], reach[r])
            r += 1


def _sample(
    alpha: Alpha, size: int, k: int, reach: Columns, backend: Backend, plan: Plan, starts: Columns
) -> None:
    """Lower bounds for starts, and a first window length, from the nearest places of windows."""
    most = 3 * k + 64
    length = min(most, 2 * (k - 1) + max(1, int(np.log2(size + 4) / 2)))
    some = starts[np.linspace(0, starts.size - 1, min(SAMPLE, starts.size)).astype(np.int64)]
    for _ in range(3):
        _near_best(alpha, k, reach, backend, plan, some, length)
        seen = min(most, int(np.median(reach[some] + 1 - some)))
        settled = abs(seen - length) <= max(1, length // 50)
        length = max(1, seen)
        if settled:
            break
    if starts.size > some.size:
        _near_best(alpha, k, reach, backend, plan, starts, length)
    plan.window = max(1, length - 4)


def _near_best(
    alpha: Alpha, k: int, reach: Columns, backend: Backend, plan: Plan, starts: Columns, length: int
) -> None:
    """Bounds for starts from the nearest places of the windows that begin there."""
    ends = np.minimum(starts + length, alpha.ends[starts])
    from_, until = backend.best(starts, ends)
    plan.count("windows", starts.size)
    slack = np.full(starts.size, k)
    settle(alpha, k, reach, backend, plan, starts, starts, ends, from_, until, slack)
