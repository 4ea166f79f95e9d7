"""Tasks of ``lcs``: tiles of the passes of Hirschberg's division.

    columns ->    0  1  2     the number: the earliest step at which a tile can run
    rows    0     0  1  2     A tile takes the state of its rows from the tile to its left, and the
            1     1  2  3     carries of its columns from the tile above. Both are references to
                              results of tasks: Ray runs a tile once they are there.

The passes of a level run in parallel. Small tables are solved in the calling process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.batch.choice import Choice
from streamer.batch.lcs.passes import HostPool, Part, Passes
from streamer.batch.lcs.solve import MakeProcessor, processor_of
from streamer.batch.lcs.symbols import OnCells, Pair
from streamer.batch.lcs.systolic import BLOCK, SystolicSweep
from streamer.batch.lcs.waves import Waves, stretches
from streamer.cluster.cluster_tasks import RETRIES, cancel, check_version, result_of
from streamer.cluster.connecting import Cluster
from streamer.cluster.shared_objects import Parts, packed, unpacked
from trie.cpu.team import Team

TILE_CELLS = 6e11  # two seconds of a thread
FROM_CELLS = 1 << 32
"""Levels with at least this many cells go to the cluster; smaller ones are faster here."""

_WORD = 32

State = list[NDArray[Any]]


def run_tile(
    version: str, pair: Parts, part: tuple[int, int, int, int, bool], rows: State | None,
    carries: State | None, export: bool,
) -> tuple[State, State, NDArray[np.uint32]]:  # fmt: skip
    """On a worker: run a tile of a pass, given the state of its rows and the carries from above.

    None marks the start of the table. Returns both after the tile and, with ``export``, its rows as
    pool words.
    """
    check_version(version)
    with Team(1):
        tile = Part(*part)
        sweep = SystolicSweep(unpacked(pair), tile, 1)
        *groups, out = sweep.state
        for group, given in zip(groups, rows or (), strict=rows is not None):
            group[:] = given
        if carries is not None:
            out[:] = carries[0]
        sweep.run(0, 0, tile.columns)
        words = np.zeros(-(-tile.rows // _WORD) if export else 0, dtype=np.uint32)
        if export:
            sweep.export(0, words, 0)
        return groups, [out], words


@dataclass(frozen=True)
class _Waiting:
    """A running tile: its words go to a place in the pool, or nowhere."""

    words: Any
    at: int | None
    cells: int


class ClusterPasses(HostPool):
    """A ``Processor`` that runs large passes on a cluster, and the others in this process."""

    def __init__(
        self, cluster: Cluster, pair: Pair, threads: int, on_cells: OnCells, here: Waves
    ) -> None:
        super().__init__(threads)
        self._cluster = cluster
        self._here = here
        self._on_cells = on_cells
        self._pair = cluster.ray.put(packed(pair))
        self._remote = cluster.ray.remote(run_tile).options(
            num_returns=3, max_retries=RETRIES, scheduling_strategy="SPREAD"
        )

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        if (passes.rows * passes.columns).sum() < FROM_CELLS:
            self._here.pool = self.pool
            self._here.sweep(passes)
            return
        waiting = deque(
            tile for i, part in enumerate(passes.parts()) for tile in self._tiles(part, passes, i)
        )
        try:
            while waiting:
                tile = waiting[0]
                words = result_of(self._cluster, tile.words, np.asarray)
                if tile.at is not None:
                    self.pool[tile.at : tile.at + words.size] = words
                self._on_cells(tile.cells)
                waiting.popleft()
        finally:
            cancel(self._cluster, (tile.words for tile in waiting))

    def _tiles(self, part: Part, passes: Passes, i: int) -> Iterator[_Waiting]:
        """Submit the tiles of a pass, row by row of tiles."""
        side = int(TILE_CELLS**0.5)
        lots = row_lots(part.rows, max(1, round(part.rows / side)))
        cut = stretches(passes, i, max(1, round(part.columns / side)))
        above: list[Any] = [None] * len(cut)
        for first, stop in lots:
            state = None
            for column, (begin, end, at) in enumerate(cut):
                tile = within(part, first, stop, begin, end)
                state, above[column], words = self._remote.remote(
                    __version__, self._pair, tile, state, above[column], at is not None
                )
                place = None if at is None else at + first // _WORD
                yield _Waiting(words, place, (stop - first) * (end - begin))


def row_lots(rows: int, count: int) -> list[tuple[int, int]]:
    """Split rows into about ``count`` ranges of whole blocks, except for the last."""
    blocks = -(-rows // BLOCK)
    cuts = sorted({BLOCK * (blocks * lot // count) for lot in range(count)} | {rows})
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def within(
    part: Part, first: int, stop: int, begin: int, end: int
) -> tuple[int, int, int, int, bool]:
    """Return the fields for rows [first, stop) and columns [begin, end) of a pass."""
    row = part.row + (part.rows - stop if part.backward else first)
    column = part.column + (part.columns - end if part.backward else begin)
    return row, stop - first, column, end - begin, part.backward


def passes_of(cluster: Cluster) -> MakeProcessor:
    """Return a factory of processors that run large passes on a cluster."""

    def make(pair: Pair, choice: Choice, threads: int, on_cells: OnCells) -> ClusterPasses:
        here = processor_of(pair, choice, threads, on_cells)
        assert isinstance(here, Waves)
        return ClusterPasses(cluster, pair, threads, on_cells, here)

    return make
