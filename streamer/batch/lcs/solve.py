"""The methods by name: how each computes the length, and how one subsequence.

Small tables are solved directly: every column's bit-vector is stored, and one subsequence traced
back. Bit i of v is 0 where the length grows by row i (Listing 4). The traceback from (row i, column
j) is

    v[j] bit i is 1              the row adds nothing: go up
    else v[j-1] bit i is 0       the column adds nothing: go left
    else                         row i and column j match: take them, go up and left

because a length never grows by more than one from (i-1, j-1) to (i, j).

Large ones are divided in linear memory as by Hirschberg, level by level, with half of the passes
saved. A table of rows x columns is cut at its middle column: passes from its first and from its
last corner to that column determine the row at which to cut (Listing 2, 14-18), and two tables of
half the columns remain. All tables of a level are processed together, so many small passes keep a
processor as busy as a few large ones.

Each of the two shares one corner with its parent, and the pass from that corner has already gone
past the middle of the smaller table. So every pass also stores its result at a half, a quarter, an
eighth of its columns (MARKS of them), and a smaller table needs only one new pass, from its new
corner:

    cells = m n (1 + 1/4 + 1/8 + ...) = 1.5 m n   where Hirschberg computes 2 m n

Memory: a level stores up to MARKS results for each new pass; together the passes have m rows.
Similar parts are solved by their differences (``diff``).
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.lcs import diff, paper
from streamer.batch.lcs.passes import (
    HostPool,
    Numbers,
    Passes,
    Processor,
    Splits,
    Waves,
    count_bits,
    stride_of,
    whole,
)
from streamer.batch.lcs.symbols import (
    TEXT_SYMBOLS,
    Matching,
    OnCells,
    Pair,
    Solution,
    pair_of,
    unreported,
)
from streamer.batch.lcs.systolic import SystolicSweep
from streamer.batch.records import Codes
from streamer.device_choice import GpuOrCpu
from streamer.errors import StreamerError
from trie.cpu.jit import njit
from trie.cpu.threads import run_all


@njit(cache=True, nogil=True)
def solve(symbols, a, b, in_a, in_b, row, row_end, column, column_end):
    """Set the flags of one longest common subsequence of each table.

    row to column_end: int64[tables], half-open ranges of a and b (codes below ``symbols``). Memory
    is that of the largest table: ceil(rows / 64) words per column.
    """
    largest = 0
    widest = 0
    for t in range(row.size):
        words = (row_end[t] - row[t] + 63) >> 6
        widest = max(widest, words)
        largest = max(largest, words * (column_end[t] - column[t] + 1))
    columns = np.empty(largest, dtype=np.uint64)
    matches = np.zeros((symbols, widest), dtype=np.uint64)
    for t in range(row.size):
        _table(a[row[t] : row_end[t]], b[column[t] : column_end[t]], matches, columns,
               in_a[row[t] : row_end[t]], in_b[column[t] : column_end[t]])  # fmt: skip


@njit(cache=True, nogil=True)
def _table(a, b, matches, columns, in_a, in_b):
    words = (a.size + 63) >> 6
    for i in range(a.size):
        matches[a[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    for word in range(words):
        columns[word] = ~np.uint64(0)
    for j in range(b.size):
        of_symbol = matches[b[j]]
        before = columns[j * words : (j + 1) * words]
        after = columns[(j + 1) * words : (j + 2) * words]
        carry = np.uint64(0)
        for word in range(words):
            after[word], carry = paper.next_word(before[word], of_symbol[word], carry)
    for i in range(a.size):
        matches[a[i], i >> 6] = np.uint64(0)
    i = a.size - 1
    j = b.size
    while i >= 0 and j > 0:
        if (columns[j * words + (i >> 6)] >> np.uint64(i & 63)) & np.uint64(1):
            i -= 1
        elif (columns[(j - 1) * words + (i >> 6)] >> np.uint64(i & 63)) & np.uint64(1):
            in_a[i] = True
            in_b[j - 1] = True
            i -= 1
            j -= 1
        else:
            j -= 1


MARKS = 4  # results stored per pass; more would save less than a thirtieth of the cells
SHORTEST_MARK = 64  # columns below which no result is stored
SIDES = ("first", "last")

TABLE = np.dtype(
    [(name, np.int64) for name in ("row", "row_end", "column", "column_end")]
    + [(side + what, np.int64) for side in SIDES for what in ("", "_stride", "_left")]
)
"""A table still to be solved: rows [row, row_end), columns [column, column_end).

first: the pool word of the result from the first corner to the middle column. There begin
``first_left`` results for halved columns, ``first_stride`` words apart; 0 if the pass has not run
yet. last: the same for the last corner.
"""

Tables = NDArray[np.void]

Leaves = Callable[[Numbers, Numbers, Numbers, Numbers], None]
"""Solves whole tables: row, row_end, column, column_end of each."""

Tried = Callable[[Numbers, Numbers, Numbers, Numbers], NDArray[np.bool_]]
"""Solves the tables for which that is cheap, and returns which."""


def sizes(tables: Tables) -> tuple[Numbers, Numbers]:
    """Return rows and columns of tables."""
    return tables["row_end"] - tables["row"], tables["column_end"] - tables["column"]


def divide(
    pair: Pair,
    processor: Processor,
    leaves: Leaves,
    *,
    is_leaf: Callable[[Numbers, Numbers], NDArray[np.bool_]],
    tried: Tried | None = None,
    marks: int = MARKS,
) -> None:
    """Solve the whole table, passing ``leaves`` and ``tried`` every part that they can solve.

    is_leaf: takes rows and columns of tables.
    """
    tables = np.zeros(1, dtype=TABLE)
    tables["row_end"], tables["column_end"] = pair.a.size, pair.b.size
    used = 0
    level = 0
    while True:
        rows, columns = sizes(tables)
        # without rows or columns there is nothing in common
        tables = tables[(columns > 0) & (rows > 0)]
        rows, columns = sizes(tables)
        small = is_leaf(rows, columns) | (columns < 2)
        leaves(*_bounds(tables[small]))
        tables = tables[~small]
        if tried is not None and level and tables.size:
            tables = tables[~tried(*_bounds(tables))]
        if not tables.size:
            return
        middle = (tables["column"] + tables["column_end"]) // 2
        passes, used = _passes(tables, middle, marks, used)
        processor.reserve(used)
        processor.sweep(passes)
        cut, _ = processor.split(Splits(tables["first"], tables["last"], sizes(tables)[0]))
        tables = _halves(tables, middle, tables["row"] + cut)
        level += 1


def _bounds(tables: Tables) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    return tables["row"], tables["row_end"], tables["column"], tables["column_end"]


def _passes(tables: Tables, middle: Numbers, marks: int, used: int) -> tuple[Passes, int]:
    """Return the passes that the tables lack, and the pool words used.

    Writes the places of their results into the tables.
    """
    rows, _ = sizes(tables)
    parts = []
    for side in SIDES:
        backward = side == "last"
        which = np.flatnonzero(tables[f"{side}_left"] == 0)
        lengths = _halvings(tables[which], middle[which], backward, marks)
        stride = stride_of(rows[which])
        stored = (lengths > 0).sum(axis=1)
        ends = used + np.cumsum(stride * stored)
        at = ends - stride * stored
        used = int(ends[-1]) if which.size else used
        tables[side][which] = at
        tables[f"{side}_stride"][which] = stride
        tables[f"{side}_left"][which] = stored
        column = middle if backward else tables["column"]
        parts.append(
            (tables["row"][which], rows[which], column[which], lengths[:, 0],
             np.full(which.size, backward), lengths, at, stride)
        )  # fmt: skip
    return Passes(*(np.concatenate(both) for both in zip(*parts, strict=True))), used


def _halvings(tables: Tables, middle: Numbers, backward: bool, marks: int) -> Numbers:
    """int64[tables, marks]: columns from the corner to the middle, then half of those, ..."""
    lengths = np.zeros((tables.size, marks), dtype=np.int64)
    low, high = tables["column"], tables["column_end"]
    at = middle
    for mark in range(marks):
        length = high - at if backward else at - low
        # a table of one column is a leaf, and its middle is not a result
        lengths[:, mark] = np.where((length >= SHORTEST_MARK) | (mark == 0), length, 0)
        at = (at + high) // 2 if backward else (low + at) // 2
    return lengths


def _halves(tables: Tables, middle: Numbers, cut: Numbers) -> Tables:
    """Return the tables before and after the cut, each with the results of its shared corner."""
    halves = np.zeros((2, tables.size), dtype=TABLE)
    before, after = halves
    before["row"], before["row_end"] = tables["row"], cut
    before["column"], before["column_end"] = tables["column"], middle
    after["row"], after["row_end"] = cut, tables["row_end"]
    after["column"], after["column_end"] = middle, tables["column_end"]
    for half, side in zip(halves, SIDES, strict=True):
        half[side] = tables[side] + tables[f"{side}_stride"]
        half[f"{side}_stride"] = tables[f"{side}_stride"]
        half[f"{side}_left"] = np.maximum(tables[f"{side}_left"] - 1, 0)
    return halves.reshape(-1)


def in_lots(kernel: Callable[..., None], threads: int) -> Leaves:
    """Run a kernel that solves tables on all threads, in lots of similar numbers of cells."""

    def solve(*bounds: Numbers) -> None:
        row, row_end, column, column_end = bounds
        order = np.argsort(-(row_end - row) * (column_end - column), kind="stable")
        count = min(4 * threads, order.size)
        lots = [order[lot::count] for lot in range(count)]
        run_all([partial(kernel, *(bound[lot] for bound in bounds)) for lot in lots], threads)

    return solve


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
    return pair.ends + _or_on_cpu(choice, lambda used: _length(pair, used, threads, on_cells, make))


def matching_of(
    a: Codes, b: Codes, symbols: int, choice: Choice, threads: int,
    on_cells: OnCells = unreported, processors: MakeProcessor | None = None,
) -> Matching:  # fmt: skip
    """Return one longest common subsequence; arguments as for ``length_of``."""
    if a.size < b.size:
        swapped = matching_of(b, a, symbols, choice, threads, on_cells, processors)
        return Matching(swapped.in_b, swapped.in_a)
    pair = pair_of(a, b, symbols)

    def solved(used: Choice) -> Solution:
        solution = Solution(pair)
        if pair.cells:
            _solve(solution, used, threads, on_cells, processors or processor_of)
        return solution

    solution = _or_on_cpu(choice, solved)
    return Matching(*pair.restored(solution.in_a, solution.in_b))


def _or_on_cpu(choice: Choice, solve: Callable[[Choice], _T]) -> _T:
    """Return ``solve(choice)`` or, if a GPU fails, the result of what the CPU runs instead."""
    gpu = GpuOrCpu(choice.on_fallback, given_up=choice.device == "cpu")
    return gpu.run(lambda: solve(choice), lambda: solve(choice.on_cpu()))


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
        difference = diff.difference_of(pair, int(limit[0]))
        if difference != diff.GIVEN_UP:
            return (m + n - difference) // 2
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
        if (m + 1) * (n + 1) > paper.MOST_CELLS:
            raise StreamerError(
                f"the method 'dp' keeps the whole table, {4 * (m + 1) * (n + 1):,} bytes: "
                "take 'hirschberg', or only the length"
            )
        paper.table(*solution.arrays, on_cells)
    elif method == "hirschberg":
        divide(
            pair,
            make(pair, choice, threads, on_cells),
            partial(_one_by_one, solution, on_cells),
            is_leaf=lambda rows, columns: rows * columns <= paper.SHOWN_CELLS // 2,
            marks=1,
        )
    elif method == "diff":
        diff.solve_similar(solution, threads, lambda t: t[1] + t[3], *whole_table)
    elif method in ("bit-parallel", "block-step"):
        leaves = in_lots(partial(paper.hirschberg, *solution.arrays), threads)
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
        paper.hirschberg(*solution.arrays, *(bound[i : i + 1] for bound in bounds))
        on_cells(2 * cells)


def systolic_solve(
    solution: Solution, processor: Processor, threads: int, tried: Tried | None = None
) -> None:
    """Set the flags by division down to tables that are solved directly on the CPU."""
    kernel = partial(solve, solution.pair.symbols, *solution.arrays)
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
        return paper.RowByRow(pair, on_cells)
    if choice.method == "bit-parallel":
        return Waves(pair, paper.BitParallelSweep, threads, on_cells)
    if choice.method == "block-step":
        return paper.BlockStepProcessor(pair)
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
    return (rows < paper.DP_ROWS) | (columns < paper.DP_COLUMNS)


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
