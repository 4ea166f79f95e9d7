"""Each method by name: how it gets the length, and how one subsequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.lcs import diff, direct, dp
from streamer.batch.lcs.bit_parallel import BitParallelSweep
from streamer.batch.lcs.block_step import DP_COLUMNS, DP_ROWS, BlockStepProcessor
from streamer.batch.lcs.division import MARKS, Leaves, Tables, Tried, divide, lots
from streamer.batch.lcs.matching import Matching
from streamer.batch.lcs.passes import Numbers, Processor, count_bits, whole
from streamer.batch.lcs.symbols import TEXT_SYMBOLS, Codes, Flags, Pair, pair_of
from streamer.batch.lcs.systolic import SystolicSweep
from streamer.batch.lcs.waves import Waves
from streamer.errors import StreamerError
from trie.cpu.threads import run_all

LEAF_CELLS = 1 << 20
"""Tables that are solved directly: their bit-vectors, a bit a cell, stay in the L2 cache."""

BOTH_FROM = 1 << 27
"""Cells from which two threads begin at both corners: below, starting them costs more."""

# cells a second, and seconds a cell of the differences' table: only the choice of a method hangs on
# them
CPU_CELLS = 3e11
CUDA_CELLS = 8e13
CUDA_START = 2e-3
DIFF_SECONDS = 4e-9

_T = TypeVar("_T")

OnCells = Callable[[int], None]


def cells_of(m: int, n: int, choice: Choice, *, matching: bool) -> int:
    """Cells that a method computes at the most, for a share of them to be shown."""
    if not matching or choice.method == "dp":
        return m * n
    # Hirschberg's division, or that which saves half of its passes
    return m * n * (3 if choice.method in ("adaptive", "systolic") else 4) // 2


def length_of(
    a: Codes,
    b: Codes,
    symbols: int,
    choice: Choice,
    threads: int,
    on_cells: OnCells | None = None,
) -> int:
    """The length; arrays of codes, of which those from ``symbols`` on match nothing.

    A GPU that fails is a StreamerError, or the CPU begins anew (``Choice``): no part of an answer
    is kept. ``on_cells`` then counts on.
    """
    return _or_on_cpu(choice, lambda one: _length_of(a, b, symbols, one, threads, on_cells))


def _or_on_cpu(choice: Choice, solve: Callable[[Choice], _T]) -> _T:
    """What ``solve`` returns for the choice, or if a GPU fails for what the CPU runs instead."""
    if choice.device == "cpu":
        return solve(choice)
    return choice.gpu_or_cpu().run(lambda: solve(choice), lambda: solve(choice.on_cpu()))


def _length_of(
    a: Codes, b: Codes, symbols: int, choice: Choice, threads: int, on_cells: OnCells | None
) -> int:
    # the longer one is the rows: they are what runs in parallel
    if a.size < b.size:
        a, b = b, a
    pair = pair_of(a, b, symbols)
    ends = pair.prefix + pair.suffix
    m, n = pair.a.size, pair.b.size
    if m == 0 or n == 0:
        return ends
    choice = _for_size(choice, m, n)
    method = choice.method
    if method in ("dp", "hirschberg"):
        return ends + _row_length(pair, method == "hirschberg", on_cells or _silent)
    if method == "diff":
        return ends + (m + n - diff.difference_of(pair.a, pair.b, m + n)) // 2
    if method == "adaptive" and m * n > LEAF_CELLS:
        bounds = np.array([[0], [m], [0], [n]])
        limit = _worthwhile(bounds, choice, threads, alone=True)
        found = diff.difference_of(pair.a, pair.b, int(limit[0]))
        if found != diff.GIVEN_UP:
            return ends + (m + n - found) // 2
    if n == 1:
        return ends + int((pair.a == pair.b[0]).any())
    processor = processor_of(pair, choice, threads, on_cells)
    both = not isinstance(processor, Waves) or (threads > 1 and m * n >= BOTH_FROM)
    passes, splits = whole(pair, both=both)
    processor.reserve(int((passes.at + passes.stride)[-1]))
    processor.sweep(passes)
    if both:
        return ends + int(processor.split(splits)[1][0])
    assert isinstance(processor, Waves)
    return ends + int(count_bits(processor.pool, int(passes.at[0]), m))


def matching_of(
    a: Codes,
    b: Codes,
    symbols: int,
    choice: Choice,
    threads: int,
    on_cells: OnCells | None = None,
) -> Matching:
    """One longest common subsequence; arguments as ``length_of``."""
    if a.size < b.size:
        turned = matching_of(b, a, symbols, choice, threads, on_cells)
        return Matching(turned.in_b, turned.in_a)
    pair = pair_of(a, b, symbols)

    def flags(one: Choice) -> tuple[Flags, Flags]:
        in_a = np.zeros(pair.a.size, dtype=np.bool_)
        in_b = np.zeros(pair.b.size, dtype=np.bool_)
        if pair.a.size and pair.b.size:
            _fill(pair, in_a, in_b, one, threads, on_cells)
        return in_a, in_b

    return Matching(*pair.restored(*_or_on_cpu(choice, flags)))


def _fill(
    pair: Pair,
    in_a: Flags,
    in_b: Flags,
    choice: Choice,
    threads: int,
    on_cells: OnCells | None,
) -> None:
    """Set the flags of one longest common subsequence of what is left of the pair."""
    m, n = pair.a.size, pair.b.size
    choice = _for_size(choice, m, n)
    method = choice.method
    whole_table = tuple(np.array([x], dtype=np.int64) for x in (0, m, 0, n))

    if method == "dp":
        if (m + 1) * (n + 1) > dp.MOST_CELLS:
            message = (
                f"the method 'dp' keeps the whole table, {4 * (m + 1) * (n + 1):,} bytes: "
                "take 'hirschberg', or only the length"
            )
            raise StreamerError(message)
        dp.table(pair.a, pair.b, in_a, in_b)
    elif method == "hirschberg":
        dp.divided(pair.a, pair.b, in_a, in_b, on_cells or _silent)
    elif method == "diff":
        diff.solve_similar(pair.a, pair.b, in_a, in_b, threads, lambda t: t[1] + t[3], *whole_table)
    elif method in ("bit-parallel", "block-step"):
        leaves = _in_lots(partial(dp.hirschberg, pair.a, pair.b, in_a, in_b), threads)
        processor = processor_of(pair, choice, threads, on_cells)
        divide(pair, processor, leaves, is_leaf=_seeds_leaf, marks=1)
    else:
        tried = None
        if method == "adaptive":
            similar = partial(diff.solve_similar, pair.a, pair.b, in_a, in_b, threads)
            whole_limit = partial(_worthwhile, choice=choice, threads=threads, alone=True)
            if m * n > LEAF_CELLS and similar(whole_limit, *whole_table).all():
                return
            # a part costs no more than its share of a level that is run anyway
            tried = partial(similar, partial(_worthwhile, choice=choice, threads=threads))
        processor = processor_of(pair, choice, threads, on_cells)
        systolic_fill(pair, in_a, in_b, processor, threads, tried)


def systolic_fill(
    pair: Pair,
    in_a: Flags,
    in_b: Flags,
    processor: Processor,
    threads: int,
    tried: Tried | None = None,
) -> None:
    """Set the flags by division down to tables that are solved directly on the CPU."""
    kernel = partial(direct.solve, pair.a, pair.b, pair.symbols, in_a, in_b)
    divide(
        pair,
        processor,
        _in_lots(kernel, threads),
        is_leaf=lambda tables: tables.cells() <= LEAF_CELLS,
        tried=tried,
        marks=MARKS,
    )


def _in_lots(kernel: Callable[..., None], threads: int) -> Leaves:
    """A kernel that solves tables, on all threads."""

    def solve(*bounds: Numbers) -> None:
        run_all(lots(kernel, 4 * threads, *bounds), threads)

    return solve


def processor_of(
    pair: Pair, choice: Choice, threads: int, on_cells: OnCells | None = None
) -> Processor:
    """What runs the passes of a method on a device."""
    if choice.method == "bit-parallel":
        return Waves(pair, BitParallelSweep, threads, on_cells)
    if choice.method == "block-step":
        return BlockStepProcessor(pair)
    # on a card a symbol of its own stands for the columns that there are not
    if choice.device == "cpu" or pair.symbols >= TEXT_SYMBOLS:
        return Waves(pair, SystolicSweep, threads, on_cells)
    from gpu.lcs import LcsCard

    return LcsCard(pair.a, pair.b, pair.symbols, pair.planes, on_cells=on_cells)


def _for_size(choice: Choice, m: int, n: int) -> Choice:
    """Where the method is ours to choose, what is small is not worth sending to a card."""
    if choice.method == "adaptive" and m * n <= LEAF_CELLS:
        return Choice("adaptive", "cpu")
    return choice


def _seeds_leaf(tables: Tables) -> NDArray[np.bool_]:
    """Section 3.5: small tables go to dynamic programming."""
    rows = tables.row_end - tables.row
    return (rows < DP_ROWS) | (tables.column_end - tables.column < DP_COLUMNS)


def _row_length(pair: Pair, divided: bool, on_cells: OnCells) -> int:
    """Listing 1 over all rows, or over both halves as Listing 2 begins."""
    m, n = pair.a.size, pair.b.size
    if divided:
        return dp.middle(pair.a, pair.b, slice(0, m), slice(0, n), on_cells)[1]
    return int(dp.row_of(pair.a, pair.b, 0, m, False, slice(0, n), on_cells)[n])


def _silent(cells: int) -> None:
    """Nobody is told."""


def _worthwhile(bounds: Numbers, choice: Choice, threads: int, alone: bool = False) -> Numbers:
    """Steps from each corner up to which the differences' method costs less than the bit-vectors.

    bounds: int64[4, tables]. ``alone``: where it finds the answer, no kernel is started at all.
    """
    row, row_end, column, column_end = bounds
    cells = (row_end - row).astype(np.float64) * (column_end - column)
    if choice.device == "cuda":
        seconds = cells / CUDA_CELLS + (CUDA_START if alone else 0)
    else:
        seconds = cells / (CPU_CELLS * threads)
    # s^2 / 2 cells from each corner; no more than half of what the other method would take
    steps: Numbers = np.sqrt(seconds / 2 / DIFF_SECONDS).astype(np.int64)
    return steps
