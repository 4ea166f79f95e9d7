"""The bit-sliced search on the card: text into lanes, scan, hits as lists in the text's order.

Nothing here waits for the card but ``list_hits``, once: it must know how many hits there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import counting, listing, order, slicing
from gpu.asm import sliced_kernels as sliced
from gpu.card.compiled import made
from gpu.card.intrinsics import cuda

MULTIPROCESSORS = 132
"""Of a large card: texts are cut so that all of its threads have an equal share."""

LONGEST_SPAN = 2048
"""Columns of a segment at most (more where patterns are long)."""

FIRST_ROOM = (1 << 16, 1 << 27)
"""Hits there is room for before any are known: a sixteenth of the ends, at least and at most."""

Masks = NDArray[np.uint8]


class TooManyHitsError(RuntimeError):
    """More hits than the caller wants: ``found`` of them."""

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__(f"{found} hits in one block of text")


@dataclass(frozen=True, slots=True)
class Listed:
    """Hits on the card: ends uint32 and distances uint16, search by search, ends ascending.

    The arrays may be longer; those of search i are begins[i] to begins[i + 1].
    """

    ends: Any
    distances: Any
    begins: list[int]

    @property
    def total(self) -> int:
        """How many there are."""
        return self.begins[-1]


class Workspace:
    """Device memory by name, kept from call to call: allocating takes longer than some kernels."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def array(self, name: str, size: int, dtype: Any, *, exact: bool = False) -> Any:
        """An array of at least that size, not set; the last of that name is given up."""
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype or (exact and held.size != size):
            self._held.pop(name, None)
            held = self._held[name] = cuda.device_array(max(1, size), dtype)
        return held

    def shaped(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """The same with a shape."""
        size = int(np.prod(shape))
        return self.array(name, size, dtype)[:size].reshape(*shape)

    def upload(self, name: str, values: NDArray[Any]) -> Any:
        """A copy of the values on the card."""
        there = self.shaped(name, values.shape, values.dtype)
        if values.size:
            there.copy_to_device(np.ascontiguousarray(values))
        return there

    def on_host(self, name: str, size: int, dtype: Any) -> Any:
        """A pinned array of exactly that size."""
        held = self._held.get(name)
        if held is None or held.size != size:
            held = self._held[name] = cuda.pinned_array(size, dtype)
        return held


def grid(size: int, threads: int) -> int:
    """Blocks for so many threads."""
    return max(1, -(-size // threads))


def resident_groups(rows: int) -> int:
    """Groups of 32 threads that run at once, by the registers that a strip of so many rows takes.

    As ptxas says: 64 for 8 rows, 80 for 16, 112 to 128 above; blocks of THREADS.
    """
    registers = 64 if rows <= 8 else 80 if rows <= 16 else 128
    return MULTIPROCESSORS * 4 * min(65_536 // (registers * 128), 16)


class SlicedText:
    """A text of ``size`` symbols in the form of the bit-sliced search, not set yet.

    ``reach``: symbols before an end that matter. ``searches``: that are to run side by side.
    """

    def __init__(self, size: int, reach: int, searches: int, space: Workspace) -> None:
        tile = sliced.TILE
        self.size = size
        self.lead = -(-reach // 4) * 4
        wave = max(1, resident_groups(min(reach, sliced.ROWS)) // max(1, searches))
        wanted = grid(size, 1024 * wave)
        wanted = max(self.lead, grid(wanted, grid(wanted, LONGEST_SPAN)))
        self.span = grid(wanted, tile) * tile
        self.groups = grid(size, 1024 * self.span)
        self.tiles = self.groups * self.span // tile
        self.words = self.groups * self.span * 32
        """uint32 of a plane."""
        self.planes = space.array("planes", 3 * self.words, np.uint32)
        self.gaps = space.array("gaps", self.tiles, np.uint32)

    def set_codes(self, codes: Any) -> SlicedText:
        """From uint8[] on the card; ``slicing.slice_text`` says what is read behind the text."""
        made(slicing.slice_text, sliced.TILE, False)[self.tiles, 2 * sliced.TILE](
            codes, grid(self.size, slicing.PIECE), self.span, self.planes, self.words, self.gaps
        )
        return self

    def set_packed(self, packed: Any) -> SlicedText:
        """From packed text, uint32[slicing.packed_words(size)] on the card."""
        made(slicing.slice_text, sliced.TILE, True)[self.tiles, 2 * sliced.TILE](
            packed, grid(self.size, 16), self.span, self.planes, self.words, self.gaps
        )
        return self


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

    def __init__(self, patterns: Sequence[Masks]) -> None:
        letters, sets, plain = _letters(patterns)
        self.count, self.length = letters.shape
        self.strips = strips_of(self.length, plain)
        self.letters = cuda.to_device(letters.reshape(-1))
        self.sets = cuda.to_device(sets)


def _letters(patterns: Sequence[Masks]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], bool]:
    """Rows as numbers of letters, and the letters' sets of bases; whether all are plain bases."""
    together = np.stack(patterns)
    if np.isin(together, (1, 2, 4, 8)).all():
        numbers = np.zeros(9, dtype=np.uint8)
        numbers[[1, 2, 4, 8]] = range(4)
        return numbers[together], np.zeros(1, dtype=np.uint8), True
    # every set of bases stands for itself
    return together, np.tile(np.arange(16, dtype=np.uint8), len(patterns)), False


class SlicedHits:
    """What the scan of a text for patterns leaves on the card (``sliced.scan``)."""

    def __init__(
        self, text: SlicedText, patterns: SlicedPatterns, k: int, space: Workspace
    ) -> None:
        self.text, self.searches, self.k = text, patterns.count, k
        self.planes = k.bit_length()
        strips = patterns.strips
        words = self.searches * (1 + self.planes) * text.words
        self.sliced = space.array("sliced", words, np.uint32)
        self.flags = space.array("flags", self.searches * text.tiles * 32, np.uint32)
        between = (text.lead + text.span) * text.groups * 32 if len(strips) > 1 else 1
        deltas = space.array("deltas", self.searches * 2 * between, np.uint32)
        launch = ((grid(text.groups * 32, sliced.THREADS), self.searches), sliced.THREADS)
        for first, strip in strips:
            # room for six blocks, or for four
            registers = 80 if strip.rows <= 16 else 128
            made(sliced.scan, strip, sliced.THREADS, registers=registers)[launch](
                text.planes, text.gaps, text.groups, text.span, text.lead, patterns.letters,
                patterns.length, first, patterns.sets, deltas, patterns.length - k - 1,
                self.planes, self.sliced, self.flags,
            )  # fmt: skip

    def listed(self, low: int, high: int, limit: int, space: Workspace) -> Listed:
        """The hits with low < end <= high. TooManyHitsError above ``limit``."""
        text, searches = self.text, self.searches
        segments = searches * text.tiles * 1024
        counts = space.array("counts", segments, np.uint8)
        offsets = space.array("offsets", segments, np.uint32)
        totals = space.array("totals", searches * text.groups, np.int64)
        places = space.array("places", searches * text.groups + 1, np.int64)
        begins = space.array("begins", searches + 1, np.int64, exact=True)
        threads = counting.THREADS
        made(counting.count, threads, sliced.TILE)[(text.groups, searches), threads](
            self.sliced, self.flags, text.groups, text.span, self.planes, low, high, counts,
            offsets, totals,
        )  # fmt: skip
        made(order.places, order.THREADS)[1, order.THREADS](
            totals, text.groups, searches, places, begins
        )
        first = min(max((high - low) * searches // 16, FIRST_ROOM[0]), FIRST_ROOM[1], limit)
        on_host = space.on_host("begins on the host", searches + 1, np.int64)
        while True:
            ends = space.array("ends", first, np.uint32)
            distances = space.array("distances", ends.size, np.uint16)
            made(listing.emit, sliced.TILE, listing.LISTED)[(text.tiles, searches), sliced.TILE](
                self.sliced, self.flags, text.groups, text.span, self.planes, low, high, self.k,
                counts, offsets, places, ends.size, ends, distances,
            )  # fmt: skip
            begins.copy_to_host(on_host)
            total = int(on_host[-1])
            if total > limit:
                raise TooManyHitsError(total)
            if total <= ends.size:
                return Listed(ends, distances, on_host.tolist())
            first = total
