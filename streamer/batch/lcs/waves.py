"""Passes on the cores of a CPU: each pass cut into lots of rows and stretches of columns.

A lot may take a stretch once it has taken the one before and the lot before it has taken this one.
So the tiles of an anti-diagonal can run at once, those of all passes together.

    columns ->   0 1 2 3        the number: the wave in which a tile runs
    lot 0        0 1 2 3
    lot 1        1 2 3 4
    lot 2        2 3 4 5
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Numbers, Passes, Splits, best_cut, grown
from streamer.batch.lcs.symbols import Pair
from trie.parallel import run_all

LOTS = 8
"""Lots of rows, and stretches of columns, for each thread in a pass that is cut: waves end
unevenly."""

CUT_FROM = 1 << 28
"""Cells from which a pass is cut for several threads."""

LEAST_STRETCH = 1024
"""Columns of a stretch at least, however many threads there are: a shorter one costs more to start
than it takes."""

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
        parts = LOTS * self._threads
        sweeps = [self._make(passes, int(i), parts) for i in which]
        stretches = np.clip(passes.columns // LEAST_STRETCH, 1, parts)
        cuts = [_stretches(passes, int(i), int(stretches[i])) for i in which]
        waves = max((s.parts + len(c) - 1 for s, c in zip(sweeps, cuts, strict=True)), default=0)
        for wave in range(waves):
            tasks = []
            for i, sweep, cut in zip(which, sweeps, cuts, strict=True):
                for part in range(max(0, wave - len(cut) + 1), min(wave + 1, sweep.parts)):
                    first, stop, at = cut[wave - part]
                    cells = int(passes.rows[i]) * (stop - first) // sweep.parts
                    tasks.append(partial(self._tile, sweep, part, first, stop, at, cells))
            run_all(tasks, self._threads)

    def _tile(
        self, sweep: Sweep, part: int, first: int, stop: int, at: int | None, cells: int
    ) -> None:
        sweep.run(part, first, stop)
        if at is not None:
            sweep.export(part, self._pool, at)
        self._on_cells(cells)

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
