"""The WsPASM paper's methods on the GPU: rows of D, hits as one bit per end, lists.

The bits (``end_bits``) are the hits and the low planes of D - k - 1, which distinguish the
distances 0..k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm.bit_parallel import Listed, Masks, TooManyHitsError
from gpu.asm.paper import end_bits
from gpu.asm.paper import pasm as cells
from gpu.asm.paper import wspasm as warps
from gpu.asm.places import places_of
from gpu.card.launch import grid, made, plain
from gpu.card.workspace import Workspace

METHODS = ("pasm", "wspasm", "wspasm-shared")


def symbol_bytes(letters: int, k: int) -> float:
    """GPU bytes per symbol of a text; letters: the number of distinct letters of all patterns."""
    # the symbol, X, two rows of D, hits and digits
    return 1 + 4 * letters + 8 + (1 + k.bit_length()) / 8


def by_rows(
    codes: Any,
    patterns: Sequence[Masks],
    k: int,
    method: str,
    low: int,
    limit: int,
    space: Workspace,
) -> Iterator[tuple[tuple[int, ...], Listed]]:
    """The number of each pattern, and its hits with low < end, valid until the next are produced.

    codes: uint8[n] on the GPU. Raises TooManyHitsError above ``limit``.
    """
    search = _RowSearch(codes, np.unique(np.concatenate(patterns)), k, space)
    for i, pattern in enumerate(patterns):
        if method == "pasm":
            search.pasm(pattern)
        else:
            search.wspasm(pattern, method == "wspasm-shared")
        hits = search.listed(low, limit)
        limit -= hits.total
        yield (i,), hits


class _RowSearch:
    """A text, its matrix X (int32[letters, n + 1]), and the bits of one pattern at a time."""

    def __init__(self, codes: Any, letters: NDArray[np.uint8], k: int, space: Workspace) -> None:
        self._codes, self._letters, self._k, self._space = codes, letters, k, space
        shape = (1, 1 + k.bit_length(), grid(codes.size, 32))
        self._found = space.shaped("found", shape, np.uint32)
        pieces = grid(codes.size, cells.PIECE)
        alphabet = space.upload("alphabet", letters)
        carry = space.shaped("carry", (letters.size, pieces), np.int32)
        self._last = space.shaped("last", (letters.size, codes.size + 1), np.int32)
        launch = ((grid(pieces, cells.THREADS), letters.size), cells.THREADS)
        plain(cells.last_in_piece)[launch](codes, alphabet, carry)
        made(cells.carry_over, cells.THREADS)[letters.size, cells.THREADS](carry)
        plain(cells.last_positions)[launch](codes, alphabet, carry, self._last)

    def pasm(self, pattern: Masks) -> None:
        """One launch per row (algorithm 1)."""
        size, k = self._codes.size + 1, self._k
        launch = (grid(size, cells.THREADS), cells.THREADS)
        above, row = (self._space.shaped(name, (size,), np.int32) for name in ("above", "row"))
        plain(cells.first_row)[launch](above)
        numbers = np.searchsorted(self._letters, pattern).tolist()
        for i, (mask, number) in enumerate(zip(pattern, numbers, strict=True), 1):
            plain(cells.pasm_row)[launch](self._codes, mask, self._last[number], i, above, row)
            above, row = row, above
        plain(cells.collect)[launch](above, k, k.bit_length(), self._found[0])

    def wspasm(self, pattern: Masks, shared: bool) -> None:
        """One launch (algorithm 2)."""
        k, space = self._k, self._space
        halo = -(-(pattern.size + k) // 32) * 32
        groups = 1
        while warps.THREADS * groups < 2 * halo:
            groups *= 2
        columns = warps.THREADS * groups
        blocks = min(grid(self._codes.size, columns - halo), 4096)
        matrix = space.shaped("matrix", (blocks, 2, columns + 1), np.int32)
        numbers = np.searchsorted(self._letters, pattern).astype(np.int32)
        kernel = made(warps.wspasm, warps.THREADS, groups, shared, registers=64)
        kernel[blocks, warps.THREADS](
            self._codes, space.upload("pattern", pattern), space.upload("numbers", numbers),
            self._last, k, halo, k.bit_length(), matrix, self._found[0],
        )  # fmt: skip

    def listed(self, low: int, limit: int) -> Listed:
        """The hits with low < end."""
        found, k, space = self._found, self._k, self._space
        blocks = grid(found.shape[2], end_bits.THREADS * end_bits.STEPS)
        span = (low, self._codes.size)
        counts = space.shaped("counts of words", (1, blocks), np.int64)
        launch = ((blocks, 1), end_bits.THREADS)
        made(end_bits.count, end_bits.THREADS)[launch](found, *span, counts)
        places, begins = places_of(counts.reshape(blocks), blocks, 1, space)
        total = int(begins.copy_to_host()[1])
        if total > limit:
            raise TooManyHitsError
        ends = space.array("ends", total, np.uint32)
        distances = space.array("distances", total, np.uint16)
        if total:
            made(end_bits.emit, end_bits.THREADS)[launch](
                found, *span, k, k.bit_length(), places, ends, distances
            )
        return Listed(ends, distances, np.array([0, total]))
