"""Approximate pattern search on the card: a block of text up, kernels, hits back.

Every method ends with the same bits in the order of the text, a bit an end (``order``): the hits,
and the low planes of D - k - 1, which tell distances 0..k apart. They are counted, places are
summed, and the hits are written out, search by search with ends ascending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.intrinsics import SIMULATED, cuda
from gpu.kernels.asm import order, rows, sliced, warps

METHODS = ("bit-parallel", "pasm", "wspasm", "wspasm-shared")

BATCH_BYTES = 4 << 30
"""Device memory for the hits of the searches that run side by side."""

MULTIPROCESSORS = 132
"""Of a large card: texts are cut so that all of its threads have an equal share."""

SPANS = (64, 2048)
"""Columns of a segment, at least and at most (more where patterns are long)."""

GRID_Y = 65_535

Masks = NDArray[np.uint8]


class TooManyHitsError(RuntimeError):
    """More hits than the caller wants: ``found`` of them."""

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__(f"{found} hits in one block of text")


@cache
def _made(make: Callable[..., Any], *arguments: Any) -> Any:
    """The compiled kernel of a factory; compiled at its first launch on each device."""
    return cuda.jit(make(*arguments))


@cache
def _plain(function: Callable[..., Any]) -> Any:
    return cuda.jit(function)


@cache
def _warps_kernel(groups: int, shared: bool) -> Any:
    return cuda.jit(warps.wspasm(warps.THREADS, groups, shared), **_registers(64))


@cache
def _text_order() -> Any:
    return cuda.jit(order.text_order(order.WARPS), **_registers(80))


@cache
def _scan(strip: sliced.Strip) -> Any:
    return cuda.jit(sliced.scan(strip, sliced.THREADS))


def _registers(most: int) -> dict[str, int]:
    return {} if SIMULATED else {"max_registers": most}


class Workspace:
    """Device memory by name, kept from call to call: allocating takes longer than some kernels."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of that shape, not set; the last of that name is given up."""
        size = int(np.prod(shape))
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            self._held.pop(name, None)
            held = self._held[name] = cuda.device_array(max(1, size), dtype)
        return held[:size].reshape(*shape)

    def upload(self, name: str, values: NDArray[Any]) -> Any:
        """A copy of the values on the card."""
        there = self.array(name, values.shape, values.dtype)
        if values.size:
            there.copy_to_device(np.ascontiguousarray(values))
        return there


def _grid(size: int, threads: int) -> int:
    return max(1, -(-size // threads))


def resident_groups(rows: int) -> int:
    """Groups of 32 threads that run at once, by the registers that a strip of so many rows takes.

    As ptxas says: 72 for 16 rows, 124 for 32; blocks of THREADS.
    """
    registers = 40 + 21 * rows // 8
    blocks = min(65_536 // (registers * 128), 16)
    return MULTIPROCESSORS * 4 * blocks


class SlicedText:
    """Text on the card in the form of the bit-sliced search.

    codes: uint8[n] on the card. ``reach``: symbols before an end that matter. ``searches``: that
    are to run side by side.
    """

    def __init__(self, codes: Any, reach: int, searches: int, space: Workspace) -> None:
        size = max(1, codes.size)
        self.lead = -(-reach // 4) * 4
        wave = max(1, resident_groups(min(reach, sliced.ROWS)) // max(1, searches))
        wanted = max(SPANS[0], self.lead, min(_grid(size, 1024 * wave), SPANS[1]))
        self.span = -(-wanted // 32) * 32
        self.groups = _grid(size, 1024 * self.span)
        self.words = self.groups * self.span * 32
        """uint32 of a plane."""
        self.planes = space.array("planes", (3 * self.words,), np.uint32)
        gaps = space.upload("gaps", np.zeros(1, dtype=np.int32))
        blocks = self.groups * self.span // 32
        kernel = _made(order.slice_text, order.WARPS)
        kernel[(blocks, 32 // order.WARPS), 32 * order.WARPS](
            codes, self.span, self.planes, self.words, gaps
        )
        self.gaps = int(gaps.copy_to_host()[0])


def strips_of(letters: int, plain: bool) -> list[tuple[int, sliced.Strip]]:
    """The strips of a pattern of so many letters, and the first row of each."""
    room = 4 if plain else 16
    firsts = list(range(0, letters, sliced.ROWS))
    return [
        (
            first,
            sliced.Strip(
                min(sliced.ROWS, letters - first),
                first == 0,
                sliced.score_planes(letters) if first == firsts[-1] else 0,
                room,
            ),
        )
        for first in firsts
    ]


class SlicedPatterns:
    """Patterns of one length, all plain bases or none, on the card."""

    def __init__(self, patterns: Sequence[Masks], space: Workspace) -> None:
        letters, sets, plain = _letters(patterns)
        self.count, self.length = letters.shape
        self.strips = strips_of(self.length, plain)
        self.letters = space.upload("letters", letters)
        self.sets = space.upload("sets", sets)


def scan_sliced(text: SlicedText, patterns: SlicedPatterns, k: int, space: Workspace) -> Any:
    """Search a text for the patterns.

    uint32[searches * (1 + planes) * words]: sliced hits, and the low planes of D - k - 1 there.
    """
    planes = k.bit_length()
    count, strips = patterns.count, patterns.strips
    out = space.array("sliced", (count * (1 + planes) * text.words,), np.uint32)
    between = (text.lead + text.span) * text.groups * 32 if len(strips) > 1 else 1
    deltas = space.array("deltas", (count, 2, between), np.uint32)
    for first, strip in strips:
        _scan(strip)[(_grid(text.groups * 32, sliced.THREADS), count), sliced.THREADS](
            text.planes, text.gaps, text.groups, text.span, text.lead, patterns.letters,
            first, patterns.sets, deltas, patterns.length - k - 1, planes, out,
        )  # fmt: skip
    return out


def to_text_order(text: SlicedText, out: Any, searches: int, k: int, space: Workspace) -> Any:
    """What ``scan_sliced`` gave, as uint32[searches, 1 + planes, words] in the text's order."""
    planes = k.bit_length()
    found = space.array("found", (searches, 1 + planes, text.words), np.uint32)
    launch = ((_grid(text.words, order.THREADS), searches), order.THREADS)
    _plain(order.clear_hits)[launch](found)
    blocks = text.groups * _grid(text.span, 32 * order.WARPS)
    kernel = _text_order()
    kernel[(blocks, searches), 32 * order.WARPS](
        out, text.span, planes, text.words, found.reshape(found.size)
    )
    return found


def _letters(patterns: Sequence[Masks]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], bool]:
    """Rows as numbers of letters, and the letters' sets of bases; whether all are plain bases."""
    together = np.stack(patterns)
    if np.isin(together, (1, 2, 4, 8)).all():
        numbers = np.zeros(9, dtype=np.uint8)
        numbers[[1, 2, 4, 8]] = range(4)
        return numbers[together], np.zeros((len(patterns), 4), dtype=np.uint8), True
    # every set of bases stands for itself
    sets = np.tile(np.arange(16, dtype=np.uint8), (len(patterns), 1))
    return together, sets, False


def last_positions(codes: Any, letters: NDArray[np.uint8], space: Workspace) -> Any:
    """X on the card, int32[letters, n + 1]."""
    pieces = _grid(codes.size, rows.PIECE)
    there = space.upload("alphabet", letters)
    carry = space.array("carry", (letters.size, pieces), np.int32)
    last = space.array("last", (letters.size, codes.size + 1), np.int32)
    launch = ((_grid(pieces, rows.THREADS), letters.size), rows.THREADS)
    _plain(rows.last_in_piece)[launch](codes, there, carry)
    _made(rows.carry_over, rows.THREADS)[letters.size, rows.THREADS](carry)
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
    blocks = _grid(codes.size + 1, rows.THREADS)
    above = space.array("above", (codes.size + 1,), np.int32)
    row = space.array("row", (codes.size + 1,), np.int32)
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
    blocks = min(_grid(codes.size, columns - halo), 4096)
    matrix = space.array("matrix", (blocks, 2, columns + 1), np.int32)
    _warps_kernel(groups, shared)[blocks, warps.THREADS](
        codes, space.upload("pattern", pattern), space.upload("numbers", numbers), last, k, halo,
        k.bit_length(), matrix, found,
    )  # fmt: skip


def hits(
    found: Any, low: int, high: int, k: int, limit: int, space: Workspace
) -> tuple[Any, Any, NDArray[np.int64]]:
    """The hits with low < end <= high: ends uint32 and distances uint16 on the card, by search.

    Also how many each search has (int64, on the host). TooManyHitsError above ``limit``.
    """
    searches, _, words = found.shape
    blocks = _grid(words, order.THREADS * order.STEPS)
    counts = space.array("counts", (searches, blocks), np.int64)
    launch = ((blocks, searches), order.THREADS)
    _made(order.count, order.THREADS)[launch](found, low, high, counts)
    places = space.array("places", (searches * blocks + 1,), np.int64)
    _made(order.places, order.THREADS)[1, order.THREADS](counts.reshape(searches * blocks), places)
    if searches == 1:
        total = int(places[searches * blocks :].copy_to_host()[0])
        totals = np.array([total])
    else:
        sums = places.copy_to_host()
        totals = np.diff(sums[::blocks])
        total = int(sums[-1])
    if total > limit:
        raise TooManyHitsError(total)
    ends = space.array("ends", (total,), np.uint32)
    distances = space.array("distances", (total,), np.uint16)
    if total:
        _made(order.emit, order.THREADS)[launch](
            found, low, high, k, k.bit_length(), places, ends, distances
        )
    return ends, distances, totals


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

    def search(
        self, codes: NDArray[np.uint8], lead: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Every end in (lead, n] with a distance <= k: ends, distances, numbers of patterns.

        codes: uint8[n], 4 is a gap code, n < 2**31. By search, ends ascending.
        """
        there = self._space.upload("codes", codes)
        parts = self._sliced(there, lead, limit) if self._method == "bit-parallel" else None
        if parts is None:
            parts = self._by_rows(there, lead, limit)
        parts.sort(key=lambda part: part[0])
        return (
            np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part[2] for part in parts)]),
            np.repeat(
                np.array([part[0] for part in parts], dtype=np.int32),
                [part[1].size for part in parts],
            ),
        )

    def _sliced(self, codes: Any, lead: int, limit: int) -> list[Any]:
        by_length: dict[tuple[int, bool], list[int]] = {}
        for i, pattern in enumerate(self._patterns):
            plain = bool(np.isin(pattern, (1, 2, 4, 8)).all())
            by_length.setdefault((pattern.size, plain), []).append(i)
        widest = max(map(len, by_length.values()))
        text = SlicedText(codes, self._reach, widest, self._space)
        room = 4 * text.words * (2 * (1 + self._k.bit_length()) + 3)
        most = max(1, min(GRID_Y, BATCH_BYTES // room))
        parts: list[Any] = []
        for numbers in by_length.values():
            for first in range(0, len(numbers), most):
                batch = numbers[first : first + most]
                patterns = SlicedPatterns([self._patterns[i] for i in batch], self._space)
                sliced_hits = scan_sliced(text, patterns, self._k, self._space)
                found = to_text_order(text, sliced_hits, len(batch), self._k, self._space)
                limit = self._take(found, lead, codes.size, limit, batch, parts)
        return parts

    def _by_rows(self, codes: Any, lead: int, limit: int) -> list[Any]:
        letters = np.unique(np.concatenate(self._patterns))
        last = last_positions(codes, letters, self._space)
        parts: list[Any] = []
        shape = (1 + self._k.bit_length(), _grid(codes.size, 32))
        found = self._space.array("found", shape, np.uint32)
        for i, pattern in enumerate(self._patterns):
            numbers = np.searchsorted(letters, pattern).astype(np.int32)
            if self._method == "pasm":
                pasm(codes, pattern, last, numbers, self._k, found, self._space)
            else:
                shared = self._method == "wspasm-shared"
                wspasm(codes, pattern, last, numbers, self._k, found, shared, self._space)
            limit = self._take(found.reshape(1, *shape), lead, codes.size, limit, [i], parts)
        return parts

    def _take(
        self, found: Any, low: int, high: int, limit: int, numbers: list[int], parts: list[Any]
    ) -> int:
        ends, distances, totals = hits(found, low, high, self._k, limit, self._space)
        if not ends.size:
            return limit
        all_ends = ends.copy_to_host().astype(np.int64)
        all_distances = distances.copy_to_host().astype(np.int32)
        cuts = np.cumsum([0, *totals.tolist()]).tolist()
        for number, begin, stop in zip(numbers, cuts[:-1], cuts[1:], strict=True):
            if stop > begin:
                parts.append((number, all_ends[begin:stop], all_distances[begin:stop]))
        return limit - int(ends.size)
