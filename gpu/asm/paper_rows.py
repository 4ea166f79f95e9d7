"""The WsPASM paper's methods on the card: rows of D, hits as bits in the text's order, lists.

The bits, a bit an end (``order``), are the hits and the low planes of D - k - 1, which tell the
distances 0..k apart. They are counted, places are summed, and the hits are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import order
from gpu.asm import pasm as rows
from gpu.asm import wspasm as warps
from gpu.asm.sliced import Listed, Masks, TooManyHitsError, Workspace, grid
from gpu.card.compiled import made, plain

METHODS = ("pasm", "wspasm", "wspasm-shared")


def symbol_bytes(letters: int, k: int) -> float:
    """Bytes that a symbol of a text takes on the GPU, for patterns of so many different letters."""
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
    """One pattern after the other: its number, and its hits with low < end, at most ``limit``.

    codes: uint8[n] on the card. What is given is valid until the next is asked for.
    """
    letters = np.unique(np.concatenate(patterns))
    last = last_positions(codes, letters, space)
    shape = (1 + k.bit_length(), grid(codes.size, 32))
    found = space.shaped("found", shape, np.uint32)
    for i, pattern in enumerate(patterns):
        numbers = np.searchsorted(letters, pattern).astype(np.int32)
        if method == "pasm":
            pasm(codes, pattern, last, numbers, k, found, space)
        else:
            wspasm(codes, pattern, last, numbers, k, found, method == "wspasm-shared", space)
        hits = listed(found, low, codes.size, k, limit, space)
        limit -= hits.total
        yield (i,), hits


def last_positions(codes: Any, letters: NDArray[np.uint8], space: Workspace) -> Any:
    """X on the card, int32[letters, n + 1]."""
    pieces = grid(codes.size, rows.PIECE)
    there = space.upload("alphabet", letters)
    carry = space.shaped("carry", (letters.size, pieces), np.int32)
    last = space.shaped("last", (letters.size, codes.size + 1), np.int32)
    launch = ((grid(pieces, rows.THREADS), letters.size), rows.THREADS)
    plain(rows.last_in_piece)[launch](codes, there, carry)
    made(rows.carry_over, rows.THREADS)[letters.size, rows.THREADS](carry)
    plain(rows.last_positions)[launch](codes, there, carry, last)
    return last


def pasm(
    codes: Any,
    pattern: Masks,
    last: Any,
    numbers: NDArray[np.int32],
    k: int,
    found: Any,
    space: Workspace,
) -> None:
    """A launch a row (algorithm 1)."""
    blocks = grid(codes.size + 1, rows.THREADS)
    above = space.shaped("above", (codes.size + 1,), np.int32)
    row = space.shaped("row", (codes.size + 1,), np.int32)
    plain(rows.first_row)[blocks, rows.THREADS](above)
    for i, mask in enumerate(pattern, 1):
        x = last[int(numbers[i - 1])]
        plain(rows.pasm_row)[blocks, rows.THREADS](codes, mask, x, i, above, row)
        above, row = row, above
    plain(rows.collect)[blocks, rows.THREADS](above, k, k.bit_length(), found)


def wspasm(
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
    made(warps.wspasm, warps.THREADS, groups, shared, registers=64)[blocks, warps.THREADS](
        codes, space.upload("pattern", pattern), space.upload("numbers", numbers), last, k, halo,
        k.bit_length(), matrix, found,
    )  # fmt: skip


def listed(found: Any, low: int, high: int, k: int, limit: int, space: Workspace) -> Listed:
    """The hits with low < end <= high; found: uint32[planes, words] of one search."""
    planes, words = found.shape
    found = found.reshape(1, planes, words)
    blocks = grid(words, order.THREADS * order.STEPS)
    counts = space.shaped("counts of words", (1, blocks), np.int64)
    launch = ((blocks, 1), order.THREADS)
    made(order.count, order.THREADS)[launch](found, low, high, counts)
    places = space.array("places", blocks + 1, np.int64)
    begins = space.array("begins", 2, np.int64, exact=True)
    made(order.places, order.THREADS)[1, order.THREADS](
        counts.reshape(blocks), blocks, 1, places, begins
    )
    total = int(begins.copy_to_host()[1])
    if total > limit:
        raise TooManyHitsError(total)
    ends = space.array("ends", total, np.uint32)
    distances = space.array("distances", total, np.uint16)
    if total:
        made(order.emit, order.THREADS)[launch](
            found, low, high, k, planes - 1, places, ends, distances
        )
    return Listed(ends, distances, [0, total])
