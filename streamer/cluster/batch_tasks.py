"""Tasks of ``asm``, ``hamming``, ``lcs`` and ``primer``.

``asm`` and ``hamming`` search a piece of a text for all patterns. Pieces overlap by the symbols
that an end can depend on, so any text can be cut finely enough for all workers.

``lcs`` sweeps tiles of the passes of Hirschberg's division; the passes of a level run in parallel:

    columns ->    0  1  2     the number: the earliest step at which a tile can run
    rows    0     0  1  2     A tile takes the state of its rows from the tile to its left, and the
            1     1  2  3     carries of its columns from the tile above. Both are references to
                              results of tasks: Ray runs a tile once they are there.

``primer`` searches a chunk of beta for some starts of alpha; the largest reach wins, so chunks can
be searched in any order. A task gets the symbols of alpha after its starts that their prefixes are
likely to need, and more if a prefix reaches the end of those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.batch.asm import AsmSearch
from streamer.batch.asm.blocks import joined, of_pieces
from streamer.batch.asm.hit_reports import BestEnds, BlockRuns, every_end, runs_of
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.choice import Choice
from streamer.batch.hamming import HammingSearch, SearchedText
from streamer.batch.hits import Hits
from streamer.batch.lcs.passes import HostPool, Part, Passes, Waves, stretches
from streamer.batch.lcs.solve import MakeProcessor, processor_of
from streamer.batch.lcs.symbols import OnCells, Pair
from streamer.batch.lcs.systolic import BLOCK, SystolicSweep
from streamer.batch.primer import reaches
from streamer.batch.primer.problem import CHUNK_SYMBOLS, Alpha, Columns, chunks
from streamer.batch.records import Codes, NamedSequence
from streamer.cluster import cluster_tasks
from streamer.cluster.connecting import Cluster, Parts, packed, unpacked
from streamer.output.text_table import Format, Labels
from streamer.sequences.record_buffer import TextPiece
from trie.cpu.team import Team

TASK_SECONDS = 2.0
LEAST_PIECE, MOST_PIECE = 1 << 14, 1 << 23
"""Limits on symbols per task: starting one takes milliseconds, and all its rows are in memory."""

Rows = np.ndarray[Any, np.dtype[np.uint8]]
"""Lines of formatted rows."""


def piece_symbols(seconds_a_base: float, symbols: int | None, workers: int) -> int:
    """Return symbols per piece, a few seconds of a thread at most; ``symbols``: the total."""
    usual = int(min(max(TASK_SECONDS / max(seconds_a_base, 1e-12), LEAST_PIECE), MOST_PIECE))
    return cluster_tasks.part_size(usual, LEAST_PIECE, symbols, workers)


@dataclass(frozen=True)
class _Formatted:
    """The format of rows."""

    names: list[str]
    format_: Format

    def lines(self, parts: Iterable[Hits], texts: Sequence[str]) -> Rows:
        labels = Labels(self.names)
        tables = (table for hits in parts for table in hits.tables(texts, labels))
        lines = [data for table in tables for data in table.formatted(self.format_)]
        return np.frombuffer(b"".join(lines), dtype=np.uint8)


@dataclass
class AsmTask(cluster_tasks.Task):
    """Searches a piece for patterns within an edit distance; ``best``: the best end of each run."""

    wanted: Searches
    choice: Choice
    rows: _Formatted
    best: bool = False

    def prepare(self) -> None:
        """Make the search of this process."""
        self._search = AsmSearch(self.wanted, self.choice, 1, best=self.best)

    def run(self, piece: TextPiece) -> Rows | list[BlockRuns]:
        """Return lines of rows, or the runs of each block."""
        if self.best:
            parts = self._search.ends(of_pieces([piece]))
            return [runs_of(part, joined(ends), self.wanted) for part, ends in parts]
        # names are relative to the piece
        alone = of_pieces([replace(piece, first=0)])
        hits = (
            every_end(part, some, searches=self.wanted)
            for part, ends in self._search.ends(alone)
            for some in ends
        )
        return self.rows.lines(hits, piece.reads.names)


def asm_lines(
    cluster: Cluster, pieces: Iterable[TextPiece], wanted: Searches, choice: Choice,
    names: list[str], format_: Format,
) -> Iterator[Rows]:  # fmt: skip
    """Yield the formatted rows of every end, in order."""
    task = AsmTask(wanted, choice, _Formatted(names, format_))
    return _tasks(cluster, task, choice).in_order(pieces)


def asm_best(
    cluster: Cluster, pieces: Iterable[TextPiece], wanted: Searches, choice: Choice
) -> Iterator[tuple[int, Hits]]:
    """Yield the best end of each run, like ``asm.find``: workers align, this process joins runs."""
    task = AsmTask(wanted, choice, _Formatted([], "tsv"), best=True)
    best = BestEnds(wanted)
    first = 0
    for blocks in _tasks(cluster, task, choice).in_order(pieces):
        for runs in blocks:
            first = runs.first
            yield first, best.add(runs)
    yield first, best.finish()


def _tasks(
    cluster: Cluster, task: cluster_tasks.Task, choice: Choice
) -> cluster_tasks.ClusterTasks:
    return cluster_tasks.ClusterTasks(cluster, task, gpu=choice.device == "cuda")


@dataclass
class HammingTask(cluster_tasks.Task):
    """Searches a piece for patterns within a Hamming distance; fields as of ``HammingSearch``."""

    patterns: list[NamedSequence]
    k: int
    strands: str
    choice: Choice
    free: bool
    rows: _Formatted

    def prepare(self) -> None:
        """Make the search of this process."""
        self._search = HammingSearch(
            self.patterns, self.k, strands=self.strands, choice=self.choice,
            free=self.free, threads=1,
        )  # fmt: skip

    def run(self, piece: TextPiece) -> Rows:
        """Return lines of rows."""
        pieces = self._search.find([SearchedText.of(piece)])
        return self.rows.lines((hits for _, hits in pieces), piece.reads.names)


def hamming_lines(
    cluster: Cluster, pieces: Iterable[TextPiece], patterns: list[NamedSequence], k: int,
    strands: str, choice: Choice, format_: Format, *, free: bool,
) -> Iterator[Rows]:  # fmt: skip
    """Yield the formatted rows in order; arguments as for ``HammingSearch``."""
    rows = _Formatted([pattern.name for pattern in patterns], format_)
    task = HammingTask(patterns, k, strands, choice, free, rows)
    return _tasks(cluster, task, choice).in_order(pieces)


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
    cluster_tasks.check_version(version)
    with Team(1):
        tile = Part(*part)
        sweep = SystolicSweep(unpacked(pair), tile, 1)
        *groups, out = sweep.state
        for group, values in zip(groups, rows or (), strict=rows is not None):
            group[:] = values
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
            num_returns=3, max_retries=cluster_tasks.RETRIES, scheduling_strategy="SPREAD"
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
                words = cluster_tasks.result_of(self._cluster, tile.words, np.asarray)
                if tile.at is not None:
                    self.pool[tile.at : tile.at + words.size] = words
                self._on_cells(tile.cells)
                waiting.popleft()
        finally:
            cluster_tasks.cancel(self._cluster, (tile.words for tile in waiting))

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


PRIMER_TASK_SECONDS = 4.0
PAIR_SECONDS = 6e-12  # of a thread, per symbol of alpha, symbol of beta and difference
LEAST_STARTS = 1 << 10
BEHIND = 1 << 12  # initial symbols of alpha after the starts of a task
GROWTH = 8  # growth factor of these where prefixes continue


Starts = tuple[int, int, int]
"""First start, one past the last, and the end of their record, in the codes of alpha."""


@dataclass
class PrimerTask(cluster_tasks.Task):
    """Finds the reaches of some starts for a chunk of beta."""

    codes: Codes
    k: int
    choice: Choice
    strands: str
    behind: int

    def run(self, part: tuple[Starts, list[Codes]]) -> Columns:
        """Return the reaches: int64."""
        (first, stop, end), beta = part
        behind = self.behind
        while True:
            until = min(end, stop + behind)
            alpha = Alpha.of([self.codes[first:until]])
            reach = reaches(
                alpha, beta, self.k, self.choice, strands=self.strands, threads=1
            )[: stop - first]  # fmt: skip
            # reaches increase with the starts
            if until == end or not reach.size or reach[-1] < until - first:
                return reach + first
            behind *= GROWTH


def starts_of(alpha: Alpha, k: int, symbols: int) -> list[Starts]:
    """Split all starts into parts within a record, each a task with so many symbols of beta."""
    size = max(LEAST_STARTS, int(PRIMER_TASK_SECONDS / (PAIR_SECONDS * k * max(symbols, 1))))
    return [
        (first, min(first + size, end), end)
        for begin, end in alpha.bounds()
        for first in range(begin, end, size)
    ]


def reaches_there(
    cluster: Cluster, alpha: Alpha, beta: Iterable[Codes], k: int, *, choice: Choice, strands: str
) -> Columns:
    """Like ``streamer.batch.primer.reaches``, on a cluster."""
    k = alpha.solvable(k)
    reach = alpha.first_reaches(k)
    if k > alpha.longest():
        deque(beta, maxlen=0)
        return reach
    tasks = _tasks(cluster, PrimerTask(alpha.codes, k, choice, strands, BEHIND), choice)
    parts = (
        (starts, (starts, chunk))
        for chunk in chunks(beta, alpha.longest() + k, both=False, limit=CHUNK_SYMBOLS)
        for starts in starts_of(alpha, k, sum(piece.size for piece in chunk))
    )
    for (first, stop, _), part in tasks.paired(parts):
        np.maximum(reach[first:stop], part, out=reach[first:stop])
    return reach
