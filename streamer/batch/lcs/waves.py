"""Run passes on the cores of a CPU, each cut into lots of rows and stretches of columns.

A lot may take a stretch once it has finished the previous one, and the previous lot this one:

    columns ->   0 1 2 3        the number: the earliest time a tile can run if all tiles take
    lot 0        0 1 2 3        equally long
    lot 1        1 2 3 4

Threads take any ready tile of any pass; nothing else delays them. Lots are few, because each
prepares the columns' symbols itself; stretches are many, because threads idle during the first and
last ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import HostPool, Part, Passes
from streamer.batch.lcs.symbols import OnCells, Pair
from trie.cpu.threads import run_all

LOTS = 2
"""Lots of rows per thread, over all passes that are cut; with only one, a delayed thread would
delay the others.
"""

STRETCHES = 32  # the most stretches of columns for each lot of a pass

TILE_CELLS = 1 << 28
"""The fewest cells per tile, half a millisecond; Python starts one in a twentieth of that."""

CUT_FROM = 1 << 28  # cells from which a pass is cut for several threads

LEAST_STRETCH = 1024
"""The fewest columns per stretch; a shorter one would cost more to start than to run."""

SHOWN_CELLS = 1 << 33
MOST_SHOWN = 100
"""A pass on one thread reports its progress after this many cells, at most this many times."""

Stretch = tuple[int, int, int | None]
"""First column, one past the last, and the pool word of the result stored there or None."""


class Sweep(Protocol):
    """A pass in progress: ``SystolicSweep`` or ``BitParallelSweep``.

    A lot may take a stretch of columns once the previous lot has.
    """

    lots: int

    def run(self, lot: int, first: int, stop: int) -> None:
        """Advance a lot of rows over the columns [first, stop)."""

    def export(self, lot: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write a lot's bits into the result at pool word ``at``."""


class Waves(HostPool):
    """Runs passes with one kind of sweep on ``threads`` threads (a ``Processor``)."""

    def __init__(
        self, pair: Pair, sweep: Callable[[Pair, Part, int], Sweep], threads: int,
        on_cells: OnCells,
    ) -> None:  # fmt: skip
        super().__init__(threads)
        self._pair = pair
        self._sweep = sweep
        self._on_cells = on_cells

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        parts = list(passes.parts())
        together = len(parts) >= 2 * self._threads or self._threads == 1
        large = [i for i, part in enumerate(parts) if part.cells >= CUT_FROM and not together]
        # largest first, so that none is left for the end
        small = sorted(set(range(len(parts))) - set(large), key=lambda i: -parts[i].cells)
        run_all([partial(self._alone, parts[i], passes, i) for i in small], self._threads)
        if large:
            lots = -(-self._threads // len(large))
            crew = Crew([self._chain(parts[i], passes, i, lots) for i in large])
            run_all([crew.work] * self._threads, self._threads)

    def _alone(self, part: Part, passes: Passes, i: int) -> None:
        sweep = self._sweep(self._pair, part, 1)
        # cut only to report progress and handle interrupts
        shown = max(1, min(part.cells // SHOWN_CELLS, MOST_SHOWN))
        for stretch in stretches(passes, i, shown):
            self._tile(sweep, 0, part.rows, stretch)

    def _chain(self, part: Part, passes: Passes, i: int, each: int) -> Chain:
        tiles = max(1, part.cells // TILE_CELLS)
        # more lots if enough stretches remain for threads to start and finish staggered
        lots = LOTS * each if tiles >= 4 * (LOTS * each) ** 2 else min(each, tiles)
        sweep = self._sweep(self._pair, part, lots)
        most = min(tiles // sweep.lots, part.columns // LEAST_STRETCH)
        cut = stretches(passes, i, max(1, min(STRETCHES * sweep.lots, most)))
        rows = part.rows // sweep.lots
        return Chain(
            [
                [partial(self._tile, sweep, lot, rows, stretch) for stretch in cut]
                for lot in range(sweep.lots)
            ]
        )

    def _tile(self, sweep: Sweep, lot: int, rows: int, stretch: Stretch) -> None:
        first, stop, at = stretch
        sweep.run(lot, first, stop)
        if at is not None:
            sweep.export(lot, self.pool, at)
        self._on_cells(rows * (stop - first))


class Chain:
    """The tiles of a pass by lot and stretch, and how many of each lot have run."""

    def __init__(self, tiles: Sequence[Sequence[Callable[[], None]]]) -> None:
        self.tiles = tiles
        self.done = [0] * len(tiles)

    def ready(self, lot: int) -> bool:
        """Return whether the lot's next tile may run, if none of the lot is running."""
        at = self.done[lot]
        return at < len(self.tiles[lot]) and (lot == 0 or self.done[lot - 1] > at)


class Crew:
    """Threads that run the tiles of all chains, each as soon as possible."""

    def __init__(self, chains: list[Chain]) -> None:
        self._changed = threading.Condition()
        self._waiting = deque((chain, 0) for chain in chains)
        self._left = sum(len(tiles) for chain in chains for tiles in chain.tiles)

    def work(self) -> None:
        """Run tiles until none is left; the first exception stops all threads after their tiles."""
        try:
            while (taken := self._take()) is not None:
                chain, lot = taken
                chain.tiles[lot][chain.done[lot]]()
                self._give_back(chain, lot)
        except BaseException:
            with self._changed:
                self._left = 0
                self._changed.notify_all()
            raise

    def _take(self) -> tuple[Chain, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._left <= 0)
            return self._waiting.popleft() if self._left > 0 else None

    def _give_back(self, chain: Chain, lot: int) -> None:
        with self._changed:
            chain.done[lot] += 1
            self._left -= 1
            before = len(self._waiting)
            if chain.ready(lot):
                self._waiting.append((chain, lot))
            # the next lot was waiting if it has finished one less
            below = lot + 1
            if below < len(chain.done) and chain.done[below] == chain.done[lot] - 1:
                self._waiting.append((chain, below))
            if self._left <= 0:
                self._changed.notify_all()
            else:
                # this thread takes one of them itself
                self._changed.notify(len(self._waiting) - before - 1)


def stretches(passes: Passes, i: int, count: int) -> list[Stretch]:
    """Return about ``count`` stretches of a pass, cut also where it stores results."""
    marks = {
        int(mark): int(passes.at[i] + number * passes.stride[i])
        for number, mark in enumerate(passes.marks[i])
        if mark
    }
    columns = int(passes.columns[i])
    cuts = {columns * part // count for part in range(count + 1)} | set(marks)
    return [(first, stop, marks.get(stop)) for first, stop in pairwise(sorted(cuts))]
