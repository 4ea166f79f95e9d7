"""The bit-sliced search on the GPU: slice the text into lanes, scan, list hits in text order.

The host waits for the GPU once per search, in ``listed``, to learn the number of hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import listing, slicing, strips
from gpu.asm.listing import places_of
from gpu.card.intrinsics import cuda
from gpu.card.launch import grid, made
from gpu.card.memory import Workspace

MULTIPROCESSORS = 132
"""Multiprocessors of a large GPU: texts are cut into equal shares for all its threads."""

LONGEST_SPAN = 2048  # most columns of a segment (more if patterns are long)

FIRST_ROOM = (1 << 16, 1 << 27)
"""Room for hits before their number is known: a sixteenth of the ends, within these bounds."""

Masks = NDArray[np.uint8]


class TooManyHitsError(RuntimeError):
    """A block of text has more hits than the limit."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Hits on the GPU: ends uint32 and distances uint16, grouped by search, ends ascending.

    The arrays may be longer; search i has the elements begins[i] to begins[i + 1] (int64).
    """

    ends: Any
    distances: Any
    begins: NDArray[np.int64]

    @property
    def total(self) -> int:
        """The number of hits."""
        return int(self.begins[-1])


def _resident_groups(rows: int) -> int:
    """Warps that run at once, limited by the registers of a strip of ``rows``.

    As reported by ptxas: 64 registers for 8 rows, 80 for 16, 112 to 128 above; blocks of THREADS.
    """
    registers = 64 if rows <= 8 else 80 if rows <= 16 else 128
    return MULTIPROCESSORS * 4 * min(65_536 // (registers * 128), 16)


class SlicedText:
    """A packed text of ``size`` symbols on the GPU as bit planes.

    reach: symbols before an end that matter. searches: how many run concurrently.
    """

    def __init__(self, packed: Any, size: int, reach: int, searches: int, space: Workspace) -> None:
        tile = strips.TILE
        self.size = size
        self.lead = -(-reach // 4) * 4
        wave = max(1, _resident_groups(min(reach, strips.ROWS)) // max(1, searches))
        wanted = grid(size, 1024 * wave)
        wanted = max(self.lead, grid(wanted, grid(wanted, LONGEST_SPAN)))
        self.span = grid(wanted, tile) * tile
        self.groups = grid(size, 1024 * self.span)
        self.tiles = self.groups * self.span // tile
        self.words = self.groups * self.span * 32
        """Words (uint32) in a plane."""
        self.planes = space.array("planes", 3 * self.words, np.uint32)
        self.gaps = space.array("gaps", self.tiles, np.uint32)
        made(slicing.slice_text, tile)[self.tiles, 2 * tile, space.stream](
            packed, grid(size, slicing.UNIT), self.span, self.planes, self.words, self.gaps
        )


class SlicedPatterns:
    """Patterns of one length on the GPU, either all or none with plain bases only."""

    def __init__(self, patterns: Sequence[Masks]) -> None:
        self.count, self.length = len(patterns), patterns[0].size
        letters = np.concatenate(patterns).reshape(self.count, self.length)
        plain = bool((np.bitwise_count(letters) == 1).all())
        if plain:
            numbers = np.zeros(9, dtype=np.uint8)
            numbers[[1, 2, 4, 8]] = range(4)
            letters, sets = numbers[letters], np.zeros(1, dtype=np.uint8)
        else:
            # each set of bases is its own letter
            sets = np.tile(np.arange(16, dtype=np.uint8), self.count)
        self.strips = strips.strips_of(self.length, plain)
        self.letters = cuda.to_device(letters.reshape(-1))
        self.sets = cuda.to_device(sets)


def scan(
    text: SlicedText, patterns: SlicedPatterns, k: int, limit: int, lead: int, space: Workspace
) -> Listed:
    """The patterns' hits with ends beyond ``lead``; raises TooManyHitsError above ``limit``."""
    searches, low_planes = patterns.count, k.bit_length()
    words = searches * (1 + low_planes) * text.words
    sliced = space.array("sliced", words, np.uint32)
    flags = space.array("flags", searches * text.tiles * 32, np.uint32)
    between = (text.lead + text.span) * text.groups * 32 if len(patterns.strips) > 1 else 1
    deltas = space.array("deltas", searches * 2 * between, np.uint32)
    stream = space.stream
    launch = ((grid(text.groups * 32, strips.THREADS), searches), strips.THREADS, stream)
    for first, strip in patterns.strips:
        # registers for six resident blocks, or for four
        registers = 80 if strip.rows <= 16 else 128
        made(strips.scan, strip, strips.THREADS, registers=registers)[launch](
            text.planes, text.gaps, text.groups, text.span, text.lead, patterns.letters,
            patterns.length, first, patterns.sets, deltas, patterns.length - k - 1, low_planes,
            sliced, flags,
        )  # fmt: skip
    segments = searches * text.tiles * 1024
    counts = space.array("counts", segments, np.uint8)
    offsets = space.array("offsets", segments, np.uint32)
    totals = space.array("totals", searches * text.groups, np.int64)
    shape = (text.groups, text.span, low_planes, lead, text.size)
    threads = listing.COUNT_THREADS
    made(listing.count, threads, strips.TILE)[(text.groups, searches), threads, stream](
        sliced, flags, *shape, counts, offsets, totals
    )
    begins_of_groups, begins = places_of(totals, text.groups, searches, space)
    room = min(max((text.size - lead) * searches // 16, FIRST_ROOM[0]), FIRST_ROOM[1], limit)
    on_host = space.on_host("begins on the host", searches + 1, np.int64)[: searches + 1]
    while True:
        ends = space.array("ends", room, np.uint32)
        distances = space.array("distances", ends.size, np.uint16)
        launch = ((text.tiles, searches), strips.TILE, stream)
        made(listing.emit, strips.TILE, listing.LISTED)[launch](
            sliced, flags, *shape, k, counts, offsets, begins_of_groups, ends.size, ends, distances
        )
        space.fetch_now(begins, on_host)
        total = int(on_host[-1])
        if total > limit:
            raise TooManyHitsError
        if total <= ends.size:
            return Listed(ends, distances, on_host)
        room = total
