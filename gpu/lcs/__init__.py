"""The longest common subsequence on a card: passes of Hirschberg's division by systolic warps.

``LcsCard`` runs passes and cuts tables as ``streamer.batch.lcs`` asks for, a level of the division
in four launches: the columns laid out, all strips of all passes, all cuts, and the cuts' results
back. The two sequences go to the card once, results stay there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit
from gpu.lcs import cut, prepare, systolic
from gpu.lcs.kernels import SHAPES, sources
from gpu.lcs.systolic import GridShape

Numbers = NDArray[np.int64]

TALL_CELLS = 1e12
"""Cells of passes from which strips of several heights are weighed: below, one kernel will do."""

PACE = {4: (2_200, 2_700), 10: (3_600, 6_300)}
"""Cycles that a warp takes for 32 columns, by its words a lane: alone on its scheduler, and with
another. Only the choice of a height hangs on them."""

SCHEDULERS = 4
"""Warp schedulers of a multiprocessor."""

WARPS_PER_MULTIPROCESSOR = 2 * SCHEDULERS
"""Warps at work at a time; the others' strips come later. More would mostly wait for each other:
a scheduler gives way to its oldest warp, and all behind the slowest strip stand still."""


@cache
def _kernel(name: str, shape: GridShape) -> Any:
    return jit(sources(shape)[name][0])


def shape_for(symbols: int, passes: Any) -> GridShape:
    """The shape of the systolic kernel for an alphabet, and for passes that run at once."""
    most = next(shape.symbols for shape in SHAPES if symbols <= shape.symbols)
    shapes = [shape for shape in SHAPES if shape.symbols == most]
    if len(shapes) == 1 or float((passes.rows * passes.columns).sum()) < TALL_CELLS:
        return shapes[0]
    return min(shapes, key=lambda shape: _cycles(shape, passes.rows))


def _cycles(shape: GridShape, rows: Numbers) -> float:
    """What 32 columns of all strips take in rounds of as many warps as are at work at a time."""
    alone, together = PACE[shape.words]
    strips = int((-(-rows // shape.strip_rows)).sum())
    schedulers = SCHEDULERS * _multiprocessors()
    rounds, rest = divmod(strips, 2 * schedulers)
    return rounds * together + (0 if rest == 0 else alone if rest <= schedulers else together)


class LcsCard:
    """Two sequences on the card in use, and the pool of results of the passes over them.

    a (rows), b (columns): uint8, C-contiguous, symbols below ``symbols``, of which ``bits`` bits
    count. ``shape``: of all passes, None for the best of each sweep. ``on_cells`` is told the cells
    of passes once they have been run.
    """

    def __init__(
        self,
        a: NDArray[np.uint8],
        b: NDArray[np.uint8],
        symbols: int,
        bits: int,
        shape: GridShape | None = None,
        on_cells: Callable[[int], None] | None = None,
    ) -> None:
        self._shape = shape
        self._symbols = np.uint32(symbols)
        self._on_cells = on_cells
        self._cells = 0
        self._b = cuda.to_device(b)
        self._planes = cuda.device_array((bits, -(-a.size // 32)), np.uint32)
        rows = cuda.to_device(a)
        threads = prepare.THREADS
        grid = -(-32 * self._planes.shape[1] // threads)
        _kernel("planes", SHAPES[0])[grid, threads](rows, self._planes)
        self._pool = cuda.device_array(4, np.uint32)
        self._used = 0

    def reserve(self, words: int) -> None:
        """Make the pool hold so many words; what it holds is kept."""
        if words > self._pool.size:
            pool = cuda.device_array(max(words, 2 * self._pool.size), np.uint32)
            if self._used:
                pool[: self._used].copy_to_device(self._pool[: self._used])
            self._pool = pool
        self._used = words

    def sweep(self, passes: Any) -> None:
        """Run passes (arrays as ``streamer.batch.lcs.passes.Passes``); the pool then holds the
        results."""
        shape = self._shape or shape_for(int(self._symbols), passes)
        fields, stretches, cells = laid_out(passes)
        self._cells += int((passes.rows * passes.columns).sum())
        tickets = tickets_of(passes.rows, shape.strip_rows)
        given = cuda.device_array(cells, np.uint64)
        columns = cuda.device_array(systolic.PAIRS * cells, np.uint64)
        threads = prepare.THREADS
        _kernel("arrange", SHAPES[0])[-(-32 * cells // threads), threads](
            self._b, cuda.to_device(stretches), self._symbols, np.uint32(shape.scale),
            columns.view(np.uint32), given,
        )  # fmt: skip
        blocks = _multiprocessors() * WARPS_PER_MULTIPROCESSOR // shape.warps
        grid = min(blocks, -(-len(tickets) // shape.warps))
        _kernel("systolic", shape)[grid, 32 * shape.warps](
            self._planes, self._symbols, np.int64(systolic.PAIRS), columns,
            cuda.to_device(fields), cuda.to_device(tickets),
            cuda.to_device(np.zeros(1, dtype=np.uint32)), given, self._pool,
        )  # fmt: skip

    def split(self, splits: Any) -> tuple[Numbers, Numbers]:
        """The least best rows of tables, and their lengths
        (``streamer.batch.lcs.passes.Splits``)."""
        tables = np.stack([splits.first, splits.last, splits.rows], axis=1)
        found = cuda.device_array((len(tables), 2), np.int64)
        # a few words a thread at least
        most = -(-int(splits.rows.max()) // 128)
        threads = min(cut.THREADS, max(32, -(-most // 32) * 32))
        assert threads <= cut.MOST_THREADS
        _kernel("cut", SHAPES[0])[len(tables), threads](self._pool, cuda.to_device(tables), found)
        rows, lengths = found.copy_to_host().T.copy()
        if self._on_cells is not None:
            # the copy has waited for the passes
            self._on_cells(self._cells)
        self._cells = 0
        return rows, lengths

    @property
    def pool(self) -> Any:
        """The results, on the card."""
        return self._pool


def _multiprocessors() -> int:
    device = cuda.get_current_device()
    # the simulator's device has none
    return int(getattr(device, "MULTIPROCESSOR_COUNT", 1))


def laid_out(passes: Any) -> tuple[Numbers, Numbers, int]:
    """Passes as the kernels read them: fields, stretches of columns, and how many cells these take.

    The last stretch of a pass ends at its last column; the marks before it cut the others off.
    """
    count, marks = passes.marks.shape
    if marks > systolic.STRETCHES:
        message = f"a pass keeps {marks} results, at most {systolic.STRETCHES} fit"
        raise ValueError(message)
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
    # from the corner on: the shortest mark's stretch first
    lengths, starts, taken = (part[:, ::-1] for part in (lengths, starts, taken))
    at = first_cell[:, np.newaxis] + np.cumsum(taken, axis=1) - taken
    step = np.where(passes.backward, -1, 1)[:, np.newaxis]
    corner = np.where(passes.backward, passes.column + passes.columns - 1, passes.column)
    first = corner[:, np.newaxis] + step * starts
    stretches = np.stack([at, first, lengths, np.broadcast_to(step, at.shape)], axis=2)
    return fields, np.ascontiguousarray(stretches[lengths > 0]), int(taken.sum())


def tickets_of(rows: Numbers, strip_rows: int) -> NDArray[np.uint32]:
    """uint32[strips, 2]: (pass, strip), the first strips of all passes before the second ones."""
    strips = -(-rows // strip_rows)
    which = np.repeat(np.arange(rows.size), strips)
    strip = np.arange(which.size) - np.repeat(np.cumsum(strips) - strips, strips)
    order = np.argsort(strip, kind="stable")
    return np.stack([which[order], strip[order]], axis=1).astype(np.uint32)
