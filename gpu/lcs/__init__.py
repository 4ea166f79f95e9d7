"""The longest common subsequence on a GPU: Hirschberg's division with passes of systolic warps.

``LcsGpu`` is a processor of ``streamer.batch.lcs``. A level of the division takes four launches: to
lay out the columns, for all strips of all passes, for all cuts, and to copy the cuts back. The two
sequences are copied to the GPU once; results stay there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.lcs import systolic
from gpu.lcs.systolic import SHAPES, GridShape

Numbers = NDArray[np.int64]

TALL_CELLS = 1e12
"""Cells from which strips of several heights are compared; below, one kernel is enough."""

PACE = {4: (2_200, 2_700), 10: (3_600, 6_300)}
"""Cycles of a warp for 32 columns, by words per lane: alone on its scheduler, and with another.
They are used only to choose a height.
"""

SCHEDULERS = 4  # warp schedulers of a multiprocessor

WARPS_PER_MULTIPROCESSOR = 2 * SCHEDULERS
"""Warps that run at a time; other strips come later. More warps would mostly wait for each other: a
scheduler prefers its oldest warp, and all strips after the slowest one stall.
"""


def shape_for(symbols: int, passes: Any) -> GridShape:
    """The shape of the systolic kernel for an alphabet and for passes that run together."""
    most = next(shape.symbols for shape in SHAPES if symbols <= shape.symbols)
    shapes = [shape for shape in SHAPES if shape.symbols == most]
    if len(shapes) == 1 or float((passes.rows * passes.columns).sum()) < TALL_CELLS:
        return shapes[0]
    return min(shapes, key=lambda shape: _cycles(shape, passes.rows))


def tall_rows() -> int:
    """Rows, somewhat more than all warps take at a time, for which the highest strips are best."""
    return 33 * SHAPES[0].strip_rows * WARPS_PER_MULTIPROCESSOR * _multiprocessors() // 32


def _cycles(shape: GridShape, rows: Numbers) -> float:
    """Cycles for 32 columns of all strips, in rounds of concurrent warps."""
    alone, shared = PACE[shape.words]
    strips = int((-(-rows // shape.strip_rows)).sum())
    schedulers = SCHEDULERS * _multiprocessors()
    rounds, rest = divmod(strips, 2 * schedulers)
    return rounds * shared + (0 if rest == 0 else alone if rest <= schedulers else shared)


class LcsGpu:
    """Two sequences on the GPU, and the pool of results of the passes over them.

    a (rows), b (columns): uint8, C-contiguous, symbols below ``symbols``, which have ``bits`` bits.
    ``shape``: for all passes, None for the best for each sweep. ``on_cells`` is called with the
    number of cells of completed passes.
    """

    def __init__(
        self, a: NDArray[np.uint8], b: NDArray[np.uint8], symbols: int, bits: int,
        shape: GridShape | None = None, on_cells: Callable[[int], None] = lambda cells: None,
    ) -> None:  # fmt: skip
        self._shape = shape
        self._symbols = np.uint32(symbols)
        self._on_cells = on_cells
        self._cells = 0
        self._b = cuda.to_device(b)
        self._planes = cuda.device_array((bits, -(-a.size // 32)), np.uint32)
        rows = cuda.to_device(a)
        warps = with_threads(plain(systolic.planes), 32 * self._planes.shape[1], systolic.THREADS)
        warps(rows, self._planes)
        self._pool = cuda.device_array(4, np.uint32)
        self._used = 0

    def reserve(self, words: int) -> None:
        """Make room for ``words`` words in the pool, keeping its contents."""
        if words > self._pool.size:
            pool = cuda.device_array(max(words, 2 * self._pool.size), np.uint32)
            if self._used:
                pool[: self._used].copy_to_device(self._pool[: self._used])
            self._pool = pool
        self._used = words

    def sweep(self, passes: Any) -> None:
        """Run ``streamer.batch.lcs.passes.Passes``; the pool then holds their results."""
        shape = self._shape or shape_for(int(self._symbols), passes)
        fields, stretches, cells = laid_out(passes)
        self._cells += int((passes.rows * passes.columns).sum())
        tickets = tickets_of(passes.rows, shape.strip_rows)
        entering = cuda.device_array(cells, np.uint64)
        columns = cuda.device_array(systolic.PAIRS * cells, np.uint64)
        with_threads(plain(systolic.arrange), 32 * cells, systolic.THREADS)(
            self._b, cuda.to_device(stretches), self._symbols, np.uint32(shape.scale),
            columns.view(np.uint32), entering,
        )  # fmt: skip
        blocks = _multiprocessors() * WARPS_PER_MULTIPROCESSOR // shape.warps
        grid = min(blocks, -(-len(tickets) // shape.warps))
        made(systolic.systolic, shape)[grid, 32 * shape.warps](
            self._planes, self._symbols, np.int64(systolic.PAIRS), columns,
            cuda.to_device(fields), cuda.to_device(tickets),
            cuda.to_device(np.zeros(1, dtype=np.uint32)), entering, self._pool,
        )  # fmt: skip

    def split(self, splits: Any) -> tuple[Numbers, Numbers]:
        """The first best row and the length of each of ``streamer.batch.lcs.passes.Splits``."""
        tables = np.stack([splits.first, splits.last, splits.rows], axis=1)
        cuts = cuda.device_array((len(tables), 2), np.int64)
        # at least a few words per thread
        most = -(-int(splits.rows.max()) // 128)
        threads = min(systolic.CUT_THREADS, max(32, -(-most // 32) * 32))
        assert threads <= systolic.MOST_THREADS
        plain(systolic.cut)[len(tables), threads](self._pool, cuda.to_device(tables), cuts)
        rows, lengths = cuts.copy_to_host().T.copy()
        # the passes are complete: the copy waited for them
        self._on_cells(self._cells)
        self._cells = 0
        return rows, lengths

    @property
    def pool(self) -> Any:
        """The results, on the GPU."""
        return self._pool


def _multiprocessors() -> int:
    device = cuda.get_current_device()
    # the simulator's device lacks the attribute
    return int(getattr(device, "MULTIPROCESSOR_COUNT", 1))


def laid_out(passes: Any) -> tuple[Numbers, Numbers, int]:
    """Passes as the kernels read them: fields, stretches of columns, and their number of cells.

    The last stretch of a pass ends at its last column, the others at the preceding marks.
    """
    count, marks = passes.marks.shape
    if marks > systolic.STRETCHES:
        raise ValueError(f"a pass keeps {marks} results, at most {systolic.STRETCHES} fit")
    padded = np.zeros((count, systolic.STRETCHES + 1), dtype=np.int64)
    padded[:, :marks] = passes.marks
    starts = padded[:, 1:]
    lengths = padded[:, :-1] - starts
    cells = -(-lengths // 32)
    fields = np.zeros((count, systolic.FIELDS), dtype=np.int64)
    taken = np.where(cells > 0, cells + systolic.EMPTY_CELLS, 0)
    of_pass = taken.sum(axis=1)
    first_cell = np.cumsum(of_pass) - of_pass
    fields[:, systolic.ROW] = passes.row + np.where(passes.backward, passes.rows, 0)
    fields[:, systolic.ROWS] = passes.rows
    fields[:, systolic.CELL] = first_cell
    fields[:, systolic.AT] = passes.at
    fields[:, systolic.STRIDE] = passes.stride
    fields[:, systolic.BACKWARD] = passes.backward
    fields[:, systolic.STRETCH :] = cells
    # from the corner: the stretch of the shortest mark first
    lengths, starts, taken = (part[:, ::-1] for part in (lengths, starts, taken))
    at = first_cell[:, np.newaxis] + np.cumsum(taken, axis=1) - taken
    step = np.where(passes.backward, -1, 1)[:, np.newaxis]
    corner = np.where(passes.backward, passes.column + passes.columns - 1, passes.column)
    first = corner[:, np.newaxis] + step * starts
    stretches = np.stack([at, first, lengths, np.broadcast_to(step, at.shape)], axis=2)
    return fields, np.ascontiguousarray(stretches[lengths > 0]), int(taken.sum())


def tickets_of(rows: Numbers, strip_rows: int) -> NDArray[np.uint32]:
    """uint32[strips, 2]: (pass, strip); the first strips of all passes precede the second ones."""
    strips = -(-rows // strip_rows)
    which = np.repeat(np.arange(rows.size), strips)
    strip = np.arange(which.size) - np.repeat(np.cumsum(strips) - strips, strips)
    order = np.argsort(strip, kind="stable")
    return np.stack([which[order], strip[order]], axis=1).astype(np.uint32)
