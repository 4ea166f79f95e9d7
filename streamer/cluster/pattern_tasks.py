"""Tasks of ``asm`` and ``hamming``: each searches a piece of a text for all patterns.

Pieces overlap by the symbols that an end can depend on, so any text can be cut finely enough for
all workers, and pattern sets need not be split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamer.batch.asm import searched
from streamer.batch.asm.blocks import of_pieces
from streamer.batch.asm.engines import Cutters
from streamer.batch.asm.found import joined
from streamer.batch.asm.hit_reports import BestEnds, BlockRuns, every_end, runs_of
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.choice import Choice
from streamer.batch.hamming import HammingSearch
from streamer.batch.hits import Hits
from streamer.batch.records import NamedSequence
from streamer.cluster.cluster_tasks import ClusterTasks, Work, part_size
from streamer.cluster.connecting import Cluster
from streamer.output.text_table import Format, Labels
from streamer.sequences.record_buffer import TextPiece

TASK_SECONDS = 2.0
LEAST_PIECE, MOST_PIECE = 1 << 14, 1 << 23
"""Limits on symbols per task: starting one takes milliseconds, and all its rows are in memory."""

Rows = np.ndarray[Any, np.dtype[np.uint8]]
"""Lines of formatted rows."""


def piece_symbols(seconds_a_base: float, symbols: int | None, workers: int) -> int:
    """Return symbols per piece, a few seconds of a thread at most; ``symbols``: the total."""
    usual = int(min(max(TASK_SECONDS / max(seconds_a_base, 1e-12), LEAST_PIECE), MOST_PIECE))
    return part_size(usual, LEAST_PIECE, symbols, workers)


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


@dataclass(frozen=True)
class _Asm:
    wanted: Searches
    choice: Choice
    best: bool
    rows: _Formatted


def _prepared_asm(shared: _Asm) -> tuple[_Asm, Cutters]:
    return shared, Cutters(shared.choice, shared.wanted, 1, best=shared.best)


def _run_asm(prepared: tuple[_Asm, Cutters], piece: TextPiece) -> Rows | list[BlockRuns]:
    shared, cutters = prepared
    if shared.best:
        parts = searched(of_pieces([piece]), shared.wanted, cutters)
        return [runs_of(part, joined(found), shared.wanted) for part, found in parts]
    # names are relative to the piece
    alone = of_pieces([replace(piece, first=0)])
    hits = (
        every_end(part, some, searches=shared.wanted)
        for part, found in searched(alone, shared.wanted, cutters)
        for some in found
    )
    return shared.rows.lines(hits, piece.reads.names)


ASM = Work(_prepared_asm, _run_asm)


def asm_lines(
    cluster: Cluster, pieces: Iterable[TextPiece], wanted: Searches, choice: Choice,
    names: list[str], format_: Format,
) -> Iterator[Rows]:  # fmt: skip
    """Yield the formatted rows of every end, in order."""
    shared = _Asm(wanted, choice, False, _Formatted(names, format_))
    tasks = ClusterTasks(cluster, ASM, shared, gpu=choice.device == "cuda")
    return tasks.in_order(pieces)


def asm_best(
    cluster: Cluster, pieces: Iterable[TextPiece], wanted: Searches, choice: Choice
) -> Iterator[tuple[int, Hits]]:
    """Yield the best end of each run, like ``asm.find``: workers align, this process joins runs."""
    tasks = ClusterTasks(
        cluster, ASM, _Asm(wanted, choice, True, _Formatted([], "tsv")),
        gpu=choice.device == "cuda",
    )  # fmt: skip
    best = BestEnds(wanted)
    first = 0
    for blocks in tasks.in_order(pieces):
        for runs in blocks:
            first = runs.first
            yield first, best.add(runs)
    yield first, best.finish()


@dataclass(frozen=True)
class _Hamming:
    patterns: list[NamedSequence]
    k: int
    strands: str
    choice: Choice
    free: bool
    rows: _Formatted


def _prepared_hamming(shared: _Hamming) -> tuple[_Hamming, HammingSearch]:
    search = HammingSearch(
        shared.patterns, shared.k, strands=shared.strands, choice=shared.choice,
        free=shared.free, threads=1,
    )  # fmt: skip
    return shared, search


def _run_hamming(prepared: tuple[_Hamming, HammingSearch], piece: TextPiece) -> Rows:
    shared, search = prepared
    reads = piece.reads
    hits = search.find(reads.bases, reads.offsets, before=piece.start)
    return shared.rows.lines(hits, reads.names)


HAMMING = Work(_prepared_hamming, _run_hamming)


def hamming_lines(
    cluster: Cluster, pieces: Iterable[TextPiece], patterns: list[NamedSequence], k: int,
    strands: str, choice: Choice, format_: Format, *, free: bool,
) -> Iterator[Rows]:  # fmt: skip
    """Yield the formatted rows in order; arguments as for ``HammingSearch``."""
    rows = _Formatted([pattern.name for pattern in patterns], format_)
    shared = _Hamming(patterns, k, strands, choice, free, rows)
    tasks = ClusterTasks(cluster, HAMMING, shared, gpu=choice.device == "cuda")
    return tasks.in_order(pieces)
