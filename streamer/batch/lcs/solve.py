"""The methods by name: how each computes the length, and how one subsequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.lcs import diff, direct
from streamer.batch.lcs.division import MARKS, Tried, divide, in_lots
from streamer.batch.lcs.matching import Matching
from streamer.batch.lcs.paper import dp
from streamer.batch.lcs.paper.bit_vectors import BitParallelSweep
from streamer.batch.lcs.paper.block_step import DP_COLUMNS, DP_ROWS, BlockStepProcessor
from streamer.batch.lcs.passes import HostPool, Numbers, Processor, count_bits, whole
from streamer.batch.lcs.symbols import TEXT_SYMBOLS, OnCells, Pair, Solution, pair_of, unreported
from streamer.batch.lcs.systolic import SystolicSweep
from streamer.batch.lcs.waves import Waves
from streamer.batch.records import Codes
from streamer.errors import StreamerError

LEAF_CELLS = 1 << 20
"""Tables solved directly: their bit-vectors, one bit per cell, stay in the L2 cache."""

BOTH_FROM = 1 << 27
"""Cells from which two threads start at both corners; below, starting them costs more."""

# cells a second, and seconds per cell of ``diff``; used only to decide which method runs
CPU_CELLS = 3e11
CUDA_CELLS = 8e13
CUDA_START = 2e-3
DIFF_SECONDS = 4e-9
# assumed threads of the passes, so that the subsequence found does not depend on their number
_ASSUMED = 4

MakeProcessor = Callable[[Pair, Choice, int, OnCells], Processor]
"""(pair, choice, threads, on_cells) -> the processor of a method's passes."""

_T = TypeVar("_T")


def cells_of(m: int, n: int, choice: Choice, *, matching: bool) -> int:
    """Return the most cells that a method computes, the total of a progress bar."""
    if not matching or choice.method == "dp":
        return m * n
    # Hirschberg's division, or ours, which saves half of its passes
    return m * n * (3 if choice.method in ("adaptive", "systolic") else 4) // 2


def length_of(
    a: Codes, b: Codes, symbols: int, choice: Choice, threads: int,
    on_cells: OnCells = unreported, processors: MakeProcessor | None = None,
) -> int:  # fmt: skip
    """Return the length for arrays of codes; codes from ``symbols`` on match nothing.

    processors: creates processors of passes, None for ``processor_of``.

    If a GPU fails, the CPU starts over, or StreamerError is raised (``Choice``); no partial result
    is reused. ``on_cells`` then continues counting.
    """
    # the longer one becomes the rows, which run in parallel
    pair = pair_of(b, a, symbols) if a.size < b.size else pair_of(a, b, symbols)
    if not pair.cells:
        return pair.ends
    make = processors or processor_of
    return pair.ends + _or_on_cpu(choice, lambda one: _length(pair, one, threads, on_cells, make))


def matching_of(
    a: Codes, b: Codes, symbols: int, choice: Choice, threads: int,
    on_cells: OnCells = unreported, processors: MakeProcessor | None = None,
) -> Matching:  # fmt: skip
    """Return one longest common subsequence; arguments as for ``length_of``."""
    if a.size < b.size:
        swapped = matching_of(b, a, symbols, choice, threads, on_cells, processors)
        return Matching(swapped.in_b, swapped.in_a)
    pair = pair_of(a, b, symbols)

    def solved(one: Choice) -> Solution:
        solution = Solution(pair)
        if pair.cells:
            _solve(solution, one, threads, on_cells, processors or processor_of)
        return solution

    solution = _or_on_cpu(choice, solved)
    return Matching(*pair.restored(solution.in_a, solution.in_b))


def _or_on_cpu(choice: Choice, solve: Callable[[Choice], _T]) -> _T:
    """Return ``solve(choice)`` or, if a GPU fails, the result of what the CPU runs instead."""
    if choice.device == "cpu":
        return solve(choice)
    return choice.gpu_or_cpu().run(lambda: solve(choice), lambda: solve(choice.on_cpu()))


def _length(
    pair: Pair, choice: Choice, threads: int, on_cells: OnCells, make: MakeProcessor
) -> int:
    """Return the length for the remaining pair."""
    choice = _for_size(choice, pair)
    method = choice.method
    m, n = pair.a.size, pair.b.size
    if method == "diff":
        return (m + n - diff.difference_of(pair, m + n)) // 2
    if method == "adaptive" and pair.cells > LEAF_CELLS:
        bounds = np.array([[0], [m], [0], [n]])
        limit = _worthwhile(bounds, choice, threads, alone=True)
        found = diff.difference_of(pair, int(limit[0]))
        if found != diff.GIVEN_UP:
            return (m + n - found) // 2
    if n == 1:
        return int((pair.a == pair.b[0]).any())
    processor = make(pair, choice, threads, on_cells)
    worth_it = not isinstance(processor, Waves) or (threads > 1 and pair.cells >= BOTH_FROM)
    both = worth_it and method != "dp"
    passes, splits = whole(pair, both=both)
    processor.reserve(int((passes.at + passes.stride)[-1]))
    processor.sweep(passes)
    if both:
        return int(processor.split(splits)[1][0])
    assert isinstance(processor, HostPool)
    return int(count_bits(processor.pool, int(passes.at[0]), m))


def _solve(
    solution: Solution, choice: Choice, threads: int, on_cells: OnCells, make: MakeProcessor
) -> None:
    """Set the flags of one longest common subsequence of the remaining pair."""
    pair = solution.pair
    m, n = pair.a.size, pair.b.size
    choice = _for_size(choice, pair)
    method = choice.method
    whole_table = tuple(np.array([x], dtype=np.int64) for x in (0, m, 0, n))

    if method == "dp":
        if (m + 1) * (n + 1) > dp.MOST_CELLS:
            message = (
                f"the method 'dp' keeps the whole table, {4 * (m + 1) * (n + 1):,} bytes: "
                "take 'hirschberg', or only the length"
            )
            raise StreamerError(message)
        dp.table(*solution.arrays, on_cells)
    elif method == "hirschberg":
        divide(
            pair,
            make(pair, choice, threads, on_cells),
            partial(_one_by_one, solution, on_cells),
            is_leaf=lambda rows, columns: rows * columns <= dp.SHOWN_CELLS // 2,
            marks=1,
        )
    elif method == "diff":
        diff.solve_similar(solution, threads, lambda t: t[1] + t[3], *whole_table)
    elif method in ("bit-parallel", "block-step"):
        leaves = in_lots(partial(dp.hirschberg, *solution.arrays), threads)
        processor = make(pair, choice, threads, on_cells)
        divide(pair, processor, leaves, is_leaf=_is_papers_leaf, marks=1)
    else:
        tried = None
        if method == "adaptive":
            similar = partial(diff.solve_similar, solution, threads)
            whole_limit = partial(_worthwhile, choice=choice, threads=_ASSUMED, alone=True)
            if pair.cells > LEAF_CELLS and similar(whole_limit, *whole_table).all():
                return
            # a part costs no more than its share of a level that would run anyway
            tried = partial(similar, partial(_worthwhile, choice=choice, threads=_ASSUMED))
        processor = make(pair, choice, threads, on_cells)
        systolic_solve(solution, processor, threads, tried)


def _one_by_one(solution: Solution, on_cells: OnCells, *bounds: Numbers) -> None:
    """Solve tables by the paper's recursion, each in one call."""
    row, row_end, column, column_end = bounds
    for i, cells in enumerate(((row_end - row) * (column_end - column)).tolist()):
        dp.hirschberg(*solution.arrays, *(bound[i : i + 1] for bound in bounds))
        on_cells(2 * cells)


def systolic_solve(
    solution: Solution, processor: Processor, threads: int, tried: Tried | None = None
) -> None:
    """Set the flags by division down to tables that are solved directly on the CPU."""
    kernel = partial(direct.solve, solution.pair.symbols, *solution.arrays)
    divide(
        solution.pair,
        processor,
        in_lots(kernel, threads),
        is_leaf=lambda rows, columns: rows * columns <= LEAF_CELLS,
        tried=tried,
        marks=MARKS,
    )


def processor_of(
    pair: Pair, choice: Choice, threads: int, on_cells: OnCells = unreported
) -> Processor:
    """Create the processor of a method's passes on a device."""
    if choice.method in ("dp", "hirschberg"):
        return dp.RowByRow(pair, on_cells)
    if choice.method == "bit-parallel":
        return Waves(pair, BitParallelSweep, threads, on_cells)
    if choice.method == "block-step":
        return BlockStepProcessor(pair)
    # the GPU needs an extra symbol for columns that pad a cell
    if choice.device == "cpu" or pair.symbols >= TEXT_SYMBOLS:
        return Waves(pair, SystolicSweep, threads, on_cells)
    from gpu.lcs import LcsGpu

    return LcsGpu(pair.a, pair.b, pair.symbols, pair.planes, on_cells=on_cells)


def _for_size(choice: Choice, pair: Pair) -> Choice:
    """Keep small problems off the GPU, if the method is ours to choose."""
    if choice.method == "adaptive" and pair.cells <= LEAF_CELLS:
        return Choice("adaptive", "cpu")
    return choice


def _is_papers_leaf(rows: Numbers, columns: Numbers) -> NDArray[np.bool_]:
    """Section 3.5: small tables go to dynamic programming."""
    return (rows < DP_ROWS) | (columns < DP_COLUMNS)


def _worthwhile(bounds: Numbers, choice: Choice, threads: int, alone: bool = False) -> Numbers:
    """Return the steps from each corner up to which ``diff`` costs less than the bit-vectors.

    bounds: int64[4, tables]. ``alone``: if ``diff`` succeeds, no other kernel is started.
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
