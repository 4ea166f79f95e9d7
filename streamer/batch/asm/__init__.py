"""Approximate pattern search under edit distance (WsPASM paper).

For a text T[0..n) and a pattern P[0..m), D[i, j] is 0 for i = 0, i for j = 0, D[i-1, j-1] where
T[j-1] = P[i-1], else 1 + the least of its three neighbours (equation 1): the fewest edits that turn
some T[s..j) into P[0..i). Every end e >= 1 with D[m, e] <= k is a hit. A gap code in the text
matches nothing; the reverse complement of a pattern is searched left to right like the pattern.

method          where       what
sequential      CPU         equation 1, cell by cell
pasm            CPU, CUDA   equation 3: rows of D in parallel, with the matrix X (algorithm 1)
wspasm          CUDA        algorithm 2: neighbours by warp shuffle, rows in global memory
wspasm-shared   CUDA        the same, text and pattern in shared memory
bit-parallel    CPU, CUDA   the default: differences of D, bit-sliced over text segments
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.blocks import Block, blocks
from streamer.batch.asm.found import ALWAYS_ENDS, NO_LIMIT, ROWS_AT_ONCE, Found, TooManyError
from streamer.batch.asm.patterns import Searches, check_patterns, masks_of, searches
from streamer.batch.asm.reports import BestEnds, every_end
from streamer.batch.choice import Choice, Device, choose
from streamer.batch.hits import Hits, concatenate
from streamer.batch.sequences import Letters, as_records, several
from streamer.errors import UsageError
from streamer.held import Piece
from streamer.reads import ReadBatch
from trie.codes import InvalidBaseError
from trie.parallel import usable_cores

Report = Literal["all", "best"]
REPORTS: tuple[Report, ...] = ("all", "best")

METHODS: dict[str, tuple[Device, ...]] = {
    "sequential": ("cpu",),
    "pasm": ("cpu", "cuda"),
    "wspasm": ("cuda",),
    "wspasm-shared": ("cuda",),
    "bit-parallel": ("cpu", "cuda"),
}
DEFAULTS: dict[Device, str] = {"cpu": "bit-parallel", "cuda": "bit-parallel"}


class Engine(Protocol):
    """A method, made for some patterns: it searches one block of text after another."""

    block_size: int

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> Found:
        """Every end in (lead, n] with a distance <= k, by end, then by search.

        codes: uint8[n]. TooManyError if there are more than about ``limit``.
        """


def search(
    text: Letters | Sequence[Letters],
    patterns: Letters | Sequence[Letters],
    k: int,
    *,
    strands: str = "both",
    report: str = "all",
    method: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    iupac: bool = False,
) -> NDArray[np.void]:
    """Hits of patterns in one text or several, as a structured array (``streamer.batch.hits``).

    text, patterns: letters (bytes, str or uint8 array), one or a sequence of them; the fields
    ``text`` and ``pattern`` are their indices. Rows by text, end, pattern, ``+`` before ``-``. With
    report ``all`` the start is -1; with ``best`` start and ``cigar`` are those of one optimal
    alignment. ``iupac``: an ambiguity letter of a pattern matches its bases.

    UsageError for an unknown option, DataError for an empty pattern or one not longer than k,
    InvalidBaseError (a ValueError) for a letter that is not of DNA.
    """
    k = operator.index(k)  # a NumPy number is one too
    masks = [masks_of(letters, iupac=iupac) for letters in several(patterns)]
    check_patterns(masks, [str(i) for i in range(len(masks))], k)
    records = as_records(text)
    lengths = [record.codes.size for record in records]
    joined = records[0].codes if len(records) == 1 else _joined([r.codes for r in records])
    names = [record.name for record in records]
    batch = ReadBatch(names, np.cumsum([0, *lengths]), joined)
    choice = choose(METHODS, DEFAULTS, method, device)
    wanted = searches(masks, k, strands)
    parts = find([Piece(batch)], wanted, choice, report=report, threads=threads)
    return concatenate(list(parts)).structured()


def _joined(codes: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    return np.concatenate([np.empty(0, dtype=np.uint8), *codes])


def find(
    pieces: Iterable[Piece],
    wanted: Searches,
    choice: Choice,
    *,
    report: str = "all",
    threads: int | None = None,
) -> Iterator[Hits]:
    """Hits in all texts of the pieces, in the order of rows, in parts of bounded size.

    A text that is cut has ``wanted.reach`` symbols before the cut in both pieces.
    ``threads``: of the CPU; None or 0 is every core. Columns that are the same for all rows of a
    part may be read-only views of one value.
    """
    if report not in REPORTS:
        message = f"unknown report '{report}'; there are {', '.join(REPORTS)}"
        raise UsageError(message)
    engine = engine_for(choice, wanted, threads or usable_cores())
    cutter = _Cutter(engine, wanted.reach)
    best = BestEnds(wanted) if report == "best" else None
    for block in blocks(pieces, wanted.k, wanted.reach, engine.block_size):
        for part, found in cutter.search(block):
            hits = every_end(part, found, wanted) if best is None else best.add(part, found)
            if len(hits):
                yield hits
    if best is not None:
        # without a row too: it has the column cigar
        yield best.finish()


def engine_for(choice: Choice, wanted: Searches, threads: int) -> Engine:
    """The method's engine for these patterns."""
    if choice.device == "cuda":
        from streamer.batch.asm.on_cuda import Cuda

        return Cuda(wanted, choice.method)
    from streamer.batch.asm.bit_parallel import BitParallel
    from streamer.batch.asm.pasm import Pasm
    from streamer.batch.asm.sequential import Sequential

    engines: dict[str, Callable[[Searches, int], Any]] = {
        "sequential": Sequential,
        "pasm": Pasm,
        "bit-parallel": BitParallel,
    }
    made: Engine = engines[choice.method](wanted, threads)
    return made


class _Cutter:
    """Cuts blocks that have more hits than are to be held at once."""

    def __init__(self, engine: Engine, reach: int) -> None:
        self._engine = engine
        self._reach = reach
        self._most_ends = NO_LIMIT

    def search(self, block: Block) -> Iterator[tuple[Block, Found]]:
        """The block and what is in it, or its parts in order."""
        ends = block.codes.size - block.lead
        if ends <= self._most_ends:
            limit = ROWS_AT_ONCE if ends > ALWAYS_ENDS else NO_LIMIT
            try:
                yield block, self._engine.search(block.codes, block.lead, limit)
            except TooManyError:
                # blocks to come are likely to be like this one
                self._most_ends = max(ALWAYS_ENDS, ends // 2)
            else:
                return
        for half in block.halves(self._reach):
            yield from self.search(half)


__all__ = ["METHODS", "InvalidBaseError", "find", "search", "searches"]
