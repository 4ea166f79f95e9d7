"""The default on the CPU: tiles of 512 text segments (``tiles``) over all cores."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.batch.asm.found import Found, TooManyError, in_order, joined, repeated
from streamer.batch.asm.lanes import COLUMNS, LANES, WORDS
from streamer.batch.asm.patterns import Searches
from streamer.batch.asm.tiles import (
    BLOCK,
    FOUND_WORDS,
    count_found,
    scan,
    slice_text,
    take_found,
)
from trie.parallel import run_all, split_range

Words = NDArray[np.uint64]

SPAN_BLOCKS = 15
"""Blocks of 64 ends a lane, at most (more for long patterns): 491,520 ends a tile, whose letters
take 260 KB of the L2 cache."""

LEAST_BLOCK = 1 << 22
"""Symbols of a block of text, at least, so that its Python is paid for."""

STRIP_ROWS = 64
"""Rows whose state (8 KB), with a block of text (16 KB) and deltas (8 KB), fits the L1 cache."""

SKIPPED_ROWS = 8
"""Rows that must lie below the first strip for it to be worth its score."""


def strips_of(rows: int, k: int) -> NDArray[np.int64]:
    """The first row of each strip, then the number of rows.

    The first strip is as long as it takes for D <= k to be rare at its bottom in random DNA, so
    that a block of 64 * 512 ends mostly has none.
    """
    first = 10 + 3 * k
    starts = [0] if rows < first + SKIPPED_ROWS else [0, first]
    ends = [*starts[1:], rows]
    cut = [
        start + piece[0]
        for start, end in zip(starts, ends, strict=True)
        for piece in split_range(0, end - start, -(-(end - start) // STRIP_ROWS))
    ]
    return np.array([*cut, rows], dtype=np.int64)


def counter_planes(rows: int, k: int) -> tuple[int, int]:
    """Bits of the two's complement of D - k - 1 for 0 <= D <= rows; bits that tell 0..k apart."""
    return 1 + max(k.bit_length(), (rows - k - 1).bit_length()), k.bit_length()


class _Plan(NamedTuple):
    """The patterns in the form that the kernel takes, and how far lanes begin before their ends.

    One after another: letters (uint8), strips and planes (int64) of the searches, of which search i
    has those from ``offsets[i]`` and ``strip_offsets[i]`` on.
    """

    k: int
    low_planes: int
    lead_blocks: int
    masks: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    strips: NDArray[np.int64]
    strip_offsets: NDArray[np.int64]
    planes: NDArray[np.int64]


class BitParallel:
    """Searches blocks of text for all patterns."""

    def __init__(self, searches: Searches, threads: int) -> None:
        self._searches = searches
        self._threads = threads
        lead = -(-(-(-searches.reach // COLUMNS) * COLUMNS) // BLOCK)
        # a lane's lead must be short beside its ends
        self._longest_span = max(SPAN_BLOCKS, 8 * lead)
        strips = [strips_of(masks.size, searches.k) for masks in searches.masks]
        self._plan = _Plan(
            searches.k,
            searches.k.bit_length(),
            lead,
            np.concatenate(searches.masks),
            np.cumsum([0, *(masks.size for masks in searches.masks)]),
            np.concatenate(strips),
            np.cumsum([0, *(one.size for one in strips)]),
            np.array([counter_planes(m.size, searches.k)[0] for m in searches.masks]),
        )
        self._scratch: list[tuple[int, Words, NDArray[np.int64]]] = []
        self._sizes = (
            2 * searches.longest * WORDS,  # state
            int(np.diff(self._plan.strip_offsets).max() * self._plan.planes.max()) * WORDS,
            max(len(np.unique(masks)) for masks in searches.masks) * BLOCK * WORDS,  # united
            searches.longest,  # letters
        )
        tile = LANES * BLOCK * self._longest_span
        self.block_size = tile * max(threads, -(-LEAST_BLOCK // tile) // threads * threads)

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> Found:
        """Every end in (lead, n] with a distance <= k, in the order of rows.

        TooManyError if there are more than about ``limit``.
        """
        ends = codes.size - lead
        if ends <= 0:
            return joined([])
        # as few equal tiles as there can be, and one a thread if they are worth it
        whole = LANES * BLOCK
        least = -(-ends // (whole * self._longest_span))
        count = -(-least // self._threads) * self._threads if ends > whole else 1
        span = -(-ends // (whole * count))
        tiles = split_range(lead, codes.size, self._threads, align=whole * span)
        # few tiles and many patterns: the patterns are split too
        parts = -(-2 * self._threads // len(tiles)) if self._threads > len(tiles) else 1
        shares = split_range(0, len(self._searches), parts)
        most = limit // (len(tiles) * len(shares))
        tasks = [
            partial(self._part, codes, begin, stop, span, low, high, most)
            for begin, stop in tiles
            for low, high in shares
        ]
        done = run_all(tasks, self._threads)
        if len(shares) > 1:
            done = [
                in_order(joined(done[i : i + len(shares)]), lead, codes.size)
                for i in range(0, len(done), len(shares))
            ]
        return joined(done)

    def _part(
        self,
        codes: NDArray[np.uint8],
        begin: int,
        stop: int,
        span: int,
        low: int,
        high: int,
        limit: int,
    ) -> Found:
        """Ends in (begin, stop] of the searches low..high, tile by tile on one thread."""
        plan = self._plan
        try:
            old, scratch, places = self._scratch.pop()
        except IndexError:
            old = 0
        if old < span:
            places = scratch_places(self._sizes, plan.low_planes, plan.lead_blocks, span)
            scratch = _words(int(places[-1]))
        try:
            ends, distances, which, full = _search_tiles(
                codes, begin, stop, span, plan, low, high, limit, scratch, places
            )
        finally:
            self._scratch.append((max(old, span), scratch, places))
        if full:
            raise TooManyError
        if high - low == 1:
            return Found(ends, distances, repeated(np.int32(low), ends.size))
        return in_order(Found(ends, distances, which), begin, stop)


def scratch_places(
    sizes: tuple[int, int, int, int], low_planes: int, lead_blocks: int, span: int
) -> NDArray[np.int64]:
    """Where each part of a thread's scratch begins, and its end: int64[13], uint64 each."""
    state, counters, united, letters = sizes
    parts = (
        (lead_blocks + span) * BLOCK * 4 * WORDS,  # equal
        3 * 8 * LANES,  # planes
        8 * 3 * 64 * WORDS,  # turned
        state,
        2 * BLOCK * WORDS,  # deltas
        counters + counters,  # and one saved
        united,
        low_planes * 64 * WORDS,  # lows
        64 * WORDS,  # hits
        letters,
        (1 + low_planes) * span * FOUND_WORDS,  # found
        LANES * span + 1,  # places of words with hits
    )
    return np.cumsum([0, *(-(-part // WORDS) * WORDS for part in parts)])


def _words(size: int) -> Words:
    """uint64[size] that begins on a cache line, not set."""
    array = np.empty(size + 8, dtype=np.uint64)
    skip = (-array.ctypes.data % 64) // 8
    return array[skip : skip + size]


@njit(cache=True, nogil=True)
def _search_tiles(codes, begin, stop, span, plan, low, high, limit, scratch, places):  # type: ignore[no-untyped-def]
    """Hits of the searches low..high: ends, distances, search; whether it gave up.

    Tile by tile, in each search by search. With one search its number is not written. All that is
    written on the way lies in ``scratch``: made once a thread, as fresh memory is slow.
    """
    k, low_planes, lead, masks, offsets, strips, strip_offsets, planes = plan
    equal = scratch[places[0] : places[1]]
    planes_there = scratch[places[1] : places[2]]
    turned = scratch[places[2] : places[3]]
    state = scratch[places[3] : places[4]]
    deltas = scratch[places[4] : places[5]]
    counters = scratch[places[5] : places[6]]
    united = scratch[places[6] : places[7]]
    lows = scratch[places[7] : places[8]]
    hits = scratch[places[8] : places[9]]
    letters = scratch[places[9] : places[10]].view(np.int64)
    size_found = (1 + low_planes) * span * FOUND_WORDS
    found = scratch[places[10] : places[10] + size_found].reshape(
        (1 + low_planes, span, FOUND_WORDS)
    )
    hit_words = scratch[places[11] : places[12]].view(np.int64)
    sets = np.empty(16, np.uint8)
    hit_blocks = np.empty(span, np.int64)
    size = 0
    ends = np.empty(0, np.int64)
    distances = np.empty(0, np.int32)
    which = np.empty(0, np.int32)
    for first in range(begin, stop, LANES * BLOCK * span):
        slice_text(codes, first, lead, span, planes_there, turned, equal)
        for search in range(low, high):
            written = scan(
                equal, lead, span, masks[offsets[search] : offsets[search + 1]],
                strips[strip_offsets[search] : strip_offsets[search + 1]], k, planes[search],
                low_planes, state, deltas, counters, letters, sets, united, lows, hits, found,
                hit_blocks,
            )  # fmt: skip
            if written == 0:
                continue
            new, words = count_found(found[0], hit_blocks[:written], first, stop, hit_words)
            if size + new > limit:
                return ends, distances, which, True
            if size + new > ends.size:
                # as many again for what is left
                room = (size + new) * 2
                ends = _longer(ends, size, room)
                distances = _longer(distances, size, room)
                if high - low > 1:
                    which = _longer(which, size, room)
            take_found(found, hit_words[:words], first, k, low_planes, ends, distances, size)
            if high - low > 1:
                which[size : size + new] = search
            size += new
    return ends[:size], distances[:size], which[:size], False


@njit(cache=True, nogil=True)
def _longer(array, size, room):  # type: ignore[no-untyped-def]
    longer = np.empty(room, array.dtype)
    longer[:size] = array[:size]
    return longer
