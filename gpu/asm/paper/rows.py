"""The WsPASM paper's methods on the GPU: rows of D, hits a bit an end, lists.

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
    """Bytes that a symbol of a text takes on the GPU; letters: distinct ones of all patterns."""
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
    """The number of each pattern and its hits with low < end, valid until the next are produced.

    codes: uint8[n] on the GPU. TooManyHitsError above ``limit``.
    """
    letters = np.unique(np.concatenate(patterns))
    last = _last_positions(codes, letters, space)
    shape = (1 + k.bit_length(), grid(codes.size, 32))
    found = space.shaped("found", shape, np.uint32)
    for i, pattern in enumerate(patterns):
        numbers = np.searchsorted(letters, pattern).astype(np.int32)
        if method == "pasm":
            _pasm(codes, pattern, last, numbers, k, found, space)
        else:
            _wspasm(codes, pattern, last, numbers, k, found, method == "wspasm-shared", space)
        hits = _listed(found, low, codes.size, k, limit, space)
        limit -= hits.total
        yield (i,), hits


def _last_positions(codes: Any, letters: NDArray[np.uint8], space: Workspace) -> Any:
    """X on the GPU, int32[letters, n + 1]."""
    pieces = grid(codes.size, cells.PIECE)
    there = space.upload("alphabet", letters)
    carry = space.shaped("carry", (letters.size, pieces), np.int32)
    last = space.shaped("last", (letters.size, codes.size + 1), np.int32)
    launch = ((grid(pieces, cells.THREADS), letters.size), cells.THREADS)
    plain(cells.last_in_piece)[launch](codes, there, carry)
    made(cells.carry_over, cells.THREADS)[letters.size, cells.THREADS](carry)
    plain(cells.last_positions)[launch](codes, there, carry, last)
    return last


def _pasm(
    codes: Any,
    pattern: Masks,
    last: Any,
    numbers: NDArray[np.int32],
    k: int,
    found: Any,
    space: Workspace,
) -> None:
    """A launch a row (algorithm 1)."""
    blocks = grid(codes.size + 1, cells.THREADS)
    above = space.shaped("above", (codes.size + 1,), np.int32)
    row = space.shaped("row", (codes.size + 1,), np.int32)
    plain(cells.first_row)[blocks, cells.THREADS](above)
    for i, mask in enumerate(pattern, 1):
        x = last[int(numbers[i - 1])]
        plain(cells.pasm_row)[blocks, cells.THREADS](codes, mask, x, i, above, row)
        above, row = row, above
    plain(cells.collect)[blocks, cells.THREADS](above, k, k.bit_length(), found)


def _wspasm(
    codes: Any,
    pattern: Masks,
    last: Any,
    numbers: NDArray[np.int32],
    k: int,
    found: Any,
    shared: bool,
    space: Workspace,
) -> None:
    """One launch (algorithm 2)."""
    halo = -(-(pattern.size + k) // 32) * 32
    groups = 1
    while warps.THREADS * groups < 2 * halo:
        groups *= 2
    columns = warps.THREADS * groups
    blocks = min(grid(codes.size, columns - halo), 4096)
    matrix = space.shaped("matrix", (blocks, 2, columns + 1), np.int32)
    kernel = made(warps.wspasm, warps.THREADS, groups, shared, registers=64)
    kernel[blocks, warps.THREADS](
        codes, space.upload("pattern", pattern), space.upload("numbers", numbers), last, k, halo,
        k.bit_length(), matrix, found,
    )  # fmt: skip


def _listed(found: Any, low: int, high: int, k: int, limit: int, space: Workspace) -> Listed:
    """The hits with low < end <= high; found: uint32[planes, words] of one search."""
    planes, words = found.shape
    found = found.reshape(1, planes, words)
    blocks = grid(words, end_bits.THREADS * end_bits.STEPS)
    counts = space.shaped("counts of words", (1, blocks), np.int64)
    launch = ((blocks, 1), end_bits.THREADS)
    made(end_bits.count, end_bits.THREADS)[launch](found, low, high, counts)
    places, begins = places_of(counts.reshape(blocks), blocks, 1, space)
    total = int(begins.copy_to_host()[1])
    if total > limit:
        raise TooManyHitsError
    ends = space.array("ends", total, np.uint32)
    distances = space.array("distances", total, np.uint16)
    if total:
        made(end_bits.emit, end_bits.THREADS)[launch](
            found, low, high, k, planes - 1, places, ends, distances
        )
    return Listed(ends, distances, [0, total])
