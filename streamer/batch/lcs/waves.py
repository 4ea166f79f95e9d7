"""Passes on the cores of a CPU: each pass cut into lots of rows and stretches of columns.

A lot may take a stretch once it has taken the one before and the lot before it has taken this one:

    columns ->   0 1 2 3        the number: the earliest a tile can run, where every tile takes
    lot 0        0 1 2 3        equally long
    lot 1        1 2 3 4

Threads take any tile that may run, of all passes together; nothing else holds them up. Lots are
few, since each makes the columns' symbols ready for itself, and stretches many, since the first and
the last of them leave threads idle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Numbers, Passes, Splits, best_cut, grown
from streamer.batch.lcs.symbols import Pair
from trie.cpu.threads import run_all

LOTS = 2
"""Lots of rows for each thread, of all passes together that are cut: with one a thread that is held
up would hold up the others."""

STRETCHES = 32
"""Stretches of columns for each lot of a pass, at most."""

TILE_CELLS = 1 << 28
"""Cells of a tile at least, half a millisecond: Python starts one in a twentieth of that."""

CUT_FROM = 1 << 28
"""Cells from which a pass is cut for several threads."""

LEAST_STRETCH = 1024
"""Columns of a stretch at least: a shorter one costs more to start than it takes."""

SHOWN_CELLS = 1 << 33
MOST_SHOWN = 100
"""A pass on one thread tells how far it is after so many cells, at most so many times."""


class Sweep(Protocol):
    """A pass in the making: ``SystolicSweep`` or ``BitParallelSweep``."""

    parts: int

    def run(self, part: int, first: int, stop: int) -> None:
        """Let a lot of rows take the columns [first, stop)."""

    def export(self, part: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write a lot's bits into the result at pool word ``at``."""


class Waves:
    """Runs passes with one kind of sweep on ``threads`` threads (a ``Processor``)."""

    def __init__(
        self,
        pair: Pair,
        sweep: Callable[[Pair, int, int, int, int, bool, int], Sweep],
        threads: int,
        on_cells: Callable[[int], None] | None = None,
    ) -> None:
        self._pair = pair
        self._sweep = sweep
        self._threads = threads
        self._on_cells = on_cells or (lambda cells: None)
        self._pool = np.zeros(0, dtype=np.uint32)

    def reserve(self, words: int) -> None:
        """Make the pool hold so many words; what it holds is kept."""
        self._pool = grown(self._pool, words)

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        cells = passes.rows * passes.columns
        together = len(passes) >= 2 * self._threads or self._threads == 1
        large = (cells >= CUT_FROM) & (not together)
        small = np.flatnonzero(~large)
        # the largest first, so that none is left for the end
        small = small[np.argsort(-cells[small])]
        run_all([partial(self._alone, passes, int(i)) for i in small], self._threads)
        self._in_waves(passes, np.flatnonzero(large))

    def _make(self, passes: Passes, i: int, parts: int) -> Sweep:
        return self._sweep(
            self._pair,
            int(passes.row[i]),
            int(passes.rows[i]),
            int(passes.column[i]),
            int(passes.columns[i]),
            bool(passes.backward[i]),
            parts,
        )

    def _alone(self, passes: Passes, i: int) -> None:
        sweep = self._make(passes, i, 1)
        # cut only to tell how far it is, and to be interrupted
        shown = int(passes.rows[i] * passes.columns[i]) // SHOWN_CELLS
        for first, stop, at in _stretches(passes, i, max(1, min(shown, MOST_SHOWN))):
            sweep.run(0, first, stop)
            if at is not None:
                sweep.export(0, self._pool, at)
            self._on_cells(int(passes.rows[i]) * (stop - first))

    def _in_waves(self, passes: Passes, which: Numbers) -> None:
        if not which.size:
            return
        each = -(-self._threads // which.size)
        chains = []
        for i in map(int, which):
            tiles = max(1, int(passes.rows[i] * passes.columns[i]) // TILE_CELLS)
            # more lots where they leave enough stretches for threads to begin and end one by one
            lots = LOTS * each if tiles >= 4 * (LOTS * each) ** 2 else min(each, tiles)
            sweep = self._make(passes, i, lots)
            most = min(tiles // sweep.parts, int(passes.columns[i]) // LEAST_STRETCH)
            cut = _stretches(passes, i, max(1, min(STRETCHES * sweep.parts, most)))
            rows = int(passes.rows[i]) // sweep.parts
            chains.append(
                Chain(
                    [
                        [partial(self._tile, sweep, part, *stretch, rows) for stretch in cut]
                        for part in range(sweep.parts)
                    ]
                )
            )
        crew = Crew(chains)
        run_all([crew.work] * self._threads, self._threads)

    def _tile(
        self, sweep: Sweep, part: int, first: int, stop: int, at: int | None, rows: int
    ) -> None:
        sweep.run(part, first, stop)
        if at is not None:
            sweep.export(part, self._pool, at)
        self._on_cells(rows * (stop - first))

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """The first row at which each table is best cut, and the length of its subsequence."""
        tasks = [
            partial(best_cut, self._pool, int(first), int(last), int(rows))
            for first, last, rows in zip(splits.first, splits.last, splits.rows, strict=True)
        ]
        found = np.array(run_all(tasks, self._threads), dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @property
    def pool(self) -> NDArray[np.uint32]:
        """The results."""
        return self._pool


class Chain:
    """The tiles of a pass by lot and stretch, and how many of each lot have been run."""

    def __init__(self, tiles: Sequence[Sequence[Callable[[], None]]]) -> None:
        self.tiles = tiles
        self.done = [0] * len(tiles)

    def ready(self, lot: int) -> bool:
        """Whether the lot's next tile may run, if none of the lot does."""
        at = self.done[lot]
        return at < len(self.tiles[lot]) and (lot == 0 or self.done[lot - 1] > at)


class Crew:
    """Threads that run the tiles of all chains, each as soon as it may."""

    def __init__(self, chains: list[Chain]) -> None:
        self._changed = threading.Condition()
        self._waiting = deque((chain, 0) for chain in chains)
        self._left = sum(len(tiles) for chain in chains for tiles in chain.tiles)

    def work(self) -> None:
        """Run tiles until none is left; the first exception ends all threads, after their tiles."""
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
            # the lot below has been held up if it has done one less
            below = lot + 1
            if below < len(chain.done) and chain.done[below] == chain.done[lot] - 1:
                self._waiting.append((chain, below))
            if self._left <= 0:
                self._changed.notify_all()
            else:
                # this thread takes one itself
                self._changed.notify(len(self._waiting) - before - 1)


def _stretches(passes: Passes, i: int, parts: int) -> list[tuple[int, int, int | None]]:
    """(first column, the one behind the last, pool word of the result kept there or None)."""
    marks = {
        int(mark): int(passes.at[i] + number * passes.stride[i])
        for number, mark in enumerate(passes.marks[i])
        if mark
    }
    columns = int(passes.columns[i])
    cuts = sorted({columns * part // parts for part in range(1, parts + 1)} | set(marks) - {0})
    return [
        (first, stop, marks.get(stop))
        for first, stop in zip([0, *cuts], cuts, strict=False)
        if stop > first
    ]
