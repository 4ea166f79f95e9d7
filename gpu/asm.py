"""Approximate pattern search on the card: a block of text up, kernels, hits back.

``bit-parallel`` is in ``asm_sliced``. The paper's methods end with bits in the order of the text, a
bit an end (``order``): the hits, and the low planes of D - k - 1, which tell distances 0..k apart.
They are counted, places are summed, and the hits are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm_sliced import (
    Masks,
    SlicedHits,
    SlicedPatterns,
    SlicedText,
    TooManyHitsError,
    Workspace,
    grid,
    made,
)
from gpu.asm_transfers import fetch_hits, send_packed
from gpu.intrinsics import SIMULATED, cuda
from gpu.kernels.asm import order, rows, warps
from gpu.packing import packed_sizes

METHODS = ("bit-parallel", "pasm", "wspasm", "wspasm-shared")

BATCH_BYTES = 4 << 30
"""Device memory for the hits of the searches that run side by side."""

GRID_Y = 65_535

Part = tuple[int, NDArray[np.int64], NDArray[np.int32]]
"""Number of a pattern, ends, distances."""


@cache
def _plain(function: Callable[..., Any]) -> Any:
    return cuda.jit(function)


@cache
def _warps_kernel(groups: int, shared: bool) -> Any:
    most = {} if SIMULATED else {"max_registers": 64}
    return cuda.jit(warps.wspasm(warps.THREADS, groups, shared), **most)


def last_positions(codes: Any, letters: NDArray[np.uint8], space: Workspace) -> Any:
    """X on the card, int32[letters, n + 1]."""
    pieces = grid(codes.size, rows.PIECE)
    there = space.upload("alphabet", letters)
    carry = space.shaped("carry", (letters.size, pieces), np.int32)
    last = space.shaped("last", (letters.size, codes.size + 1), np.int32)
    launch = ((grid(pieces, rows.THREADS), letters.size), rows.THREADS)
    _plain(rows.last_in_piece)[launch](codes, there, carry)
    made(rows.carry_over, rows.THREADS)[letters.size, rows.THREADS](carry)
    _plain(rows.last_positions)[launch](codes, there, carry, last)
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
    _plain(rows.first_row)[blocks, rows.THREADS](above)
    for i, mask in enumerate(pattern, 1):
        x = last[int(numbers[i - 1])]
        _plain(rows.pasm_row)[blocks, rows.THREADS](codes, mask, x, i, above, row)
        above, row = row, above
    _plain(rows.collect)[blocks, rows.THREADS](above, k, k.bit_length(), found)


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
    _warps_kernel(groups, shared)[blocks, warps.THREADS](
        codes, space.upload("pattern", pattern), space.upload("numbers", numbers), last, k, halo,
        k.bit_length(), matrix, found,
    )  # fmt: skip


def hits(
    found: Any, low: int, high: int, k: int, limit: int, space: Workspace
) -> tuple[Any, Any, NDArray[np.int64]]:
    """``SlicedHits.listed`` for hits in the order of the text."""
    searches, _, words = found.shape
    blocks = grid(words, order.THREADS * order.STEPS)
    counts = space.shaped("counts of words", (searches, blocks), np.int64)
    launch = ((blocks, searches), order.THREADS)
    made(order.count, order.THREADS)[launch](found, low, high, counts)
    places = space.array("places", searches * blocks + 1, np.int64)
    begins = space.array("begins", searches + 1, np.int64, exact=True)
    made(order.places, order.THREADS)[1, order.THREADS](
        counts.reshape(searches * blocks), blocks, searches, places, begins
    )
    begins_there = begins.copy_to_host()
    total = int(begins_there[-1])
    if total > limit:
        raise TooManyHitsError(total)
    ends = space.array("ends", total, np.uint32)
    distances = space.array("distances", total, np.uint16)
    if total:
        made(order.emit, order.THREADS)[launch](
            found, low, high, k, k.bit_length(), places, ends, distances
        )
    return ends, distances, begins_there


class Searcher:
    """Searches blocks of text for patterns (sets of bases, uint8 each) by one of METHODS."""

    def __init__(self, patterns: Sequence[Masks], k: int, method: str) -> None:
        if method not in METHODS:
            message = f"no method is called {method!r}: {', '.join(METHODS)}"
            raise ValueError(message)
        self._patterns = patterns
        self._k = k
        self._space = Workspace()
        self._method = method
        self._reach = max(pattern.size for pattern in patterns) + k
        if method == "wspasm-shared" and self._reach - k > warps.LONGEST:
            message = f"a pattern of {self._reach - k} letters, {warps.LONGEST} have room"
            raise ValueError(message)
        self._on_card: dict[tuple[int, ...], SlicedPatterns] = {}
        alike: dict[tuple[int, bool], list[int]] = {}
        for i, pattern in enumerate(patterns):
            plain = bool(np.isin(pattern, (1, 2, 4, 8)).all())
            alike.setdefault((pattern.size, plain), []).append(i)
        self._alike = list(alike.values())

    def search(
        self, codes: NDArray[np.uint8], lead: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Every end in (lead, n] with a distance <= k: ends, distances, numbers of patterns.

        codes: uint8[n], 4 is a gap code, n < 2**31. By search, ends ascending.
        """
        find = self._sliced if self._method == "bit-parallel" else self._by_rows
        parts = find(codes, lead, limit)
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
        parts.sort(key=lambda part: part[0])
        numbers = np.array([part[0] for part in parts], dtype=np.int32)
        if len(parts) == 1:
            _, ends, distances = parts[0]
            return ends, distances, np.broadcast_to(numbers, ends.shape)
        return (
            np.concatenate([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
            np.repeat(numbers, [part[1].size for part in parts]),
        )

    def _sliced(self, codes: NDArray[np.uint8], lead: int, limit: int) -> list[Part]:
        widest = max(map(len, self._alike))
        words, bits = packed_sizes(codes.size)
        bases = self._space.array("bases", words, np.uint32)
        starts = self._space.array("starts", bits, np.uint32)
        send_packed(codes, bases, starts)
        text = SlicedText(codes.size, self._reach, widest, self._space).set_packed(bases, starts)
        # a word of a plane has 32 ends: hits, digits, and 5 bytes for 4 ends to count by
        room = 4 * text.words * (1 + self._k.bit_length()) + 45 * text.words // 4
        most = max(1, min(GRID_Y, BATCH_BYTES // room))
        parts: list[Part] = []
        for numbers in self._alike:
            for first in range(0, len(numbers), most):
                batch = tuple(numbers[first : first + most])
                if batch not in self._on_card:
                    self._on_card[batch] = SlicedPatterns([self._patterns[i] for i in batch])
                hits = SlicedHits(text, self._on_card[batch], self._k, self._space)
                found = hits.listed(lead, codes.size, limit, self._space)
                limit -= self._take(found, batch, parts)
        return parts

    def _by_rows(self, on_host: NDArray[np.uint8], lead: int, limit: int) -> list[Part]:
        codes = self._space.upload("codes", on_host)
        letters = np.unique(np.concatenate(self._patterns))
        last = last_positions(codes, letters, self._space)
        parts: list[Part] = []
        shape = (1 + self._k.bit_length(), grid(codes.size, 32))
        found = self._space.shaped("found", shape, np.uint32)
        for i, pattern in enumerate(self._patterns):
            numbers = np.searchsorted(letters, pattern).astype(np.int32)
            if self._method == "pasm":
                pasm(codes, pattern, last, numbers, self._k, found, self._space)
            else:
                shared = self._method == "wspasm-shared"
                wspasm(codes, pattern, last, numbers, self._k, found, shared, self._space)
            listed = hits(found.reshape(1, *shape), lead, codes.size, self._k, limit, self._space)
            limit -= self._take(listed, (i,), parts)
        return parts

    def _take(
        self, listed: tuple[Any, Any, NDArray[np.int64]], numbers: Sequence[int], parts: list[Part]
    ) -> int:
        """Bring hits to the host, a part a search; how many."""
        ends, distances, begins = listed
        total = int(begins[-1])
        if total:
            all_ends, all_distances = fetch_hits(ends, distances, total)
            cuts = begins.tolist()
            for number, begin, stop in zip(numbers, cuts[:-1], cuts[1:], strict=True):
                if stop > begin:
                    parts.append((number, all_ends[begin:stop], all_distances[begin:stop]))
        return total
