"""The default on the CPU: tiles of 512 text segments (``tiles``) over all cores."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.batch.asm.found import Found, TooManyError, in_order, joined, repeated
from streamer.batch.asm.hit_words import SLACK, count_found, take_found
from streamer.batch.asm.lanes import COLUMNS
from streamer.batch.asm.patterns import Searches
from streamer.batch.asm.tiles import BLOCK, scan, slice_text
from streamer.batch.asm.words import LANES, ROW, WORDS
from trie.codes import LETTER_TO_CODE, encode
from trie.parallel import run_all, split_range

Words = NDArray[np.uint64]
Letters = NDArray[np.uint8]

_OWN = np.arange(256, dtype=np.uint8)
"""The code of each code."""

SPAN_BLOCKS = 15
"""Blocks of 64 ends a lane, at most (more for long patterns): 491,520 ends a tile, whose letters
take 260 KB of the L2 cache."""

MOST_TILES = 16
"""Tiles that are worked on in one call, so that their hits stay in the cache."""

LEAST_TILES = 2
"""Tiles that pay for the Python of a call."""

FULL, WRONG = 1, 2
"""Why a search gave up: too many hits, a letter that is not of DNA."""

STRIP_ROWS = 64
"""Rows whose state (8 KB), with a block of text (16 KB) and deltas (8 KB), fits the L1 cache."""

SKIPPED_ROWS = 8
"""Rows that must lie below the first strip for it to be worth its score."""


class _WrongLetterError(Exception):
    """A letter is not of DNA."""


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


class _Scratch:
    """What a thread writes to: words in ``places`` for tiles of so many blocks, hits."""

    def __init__(self) -> None:
        self.span = 0
        self.places = np.empty(0, dtype=np.int64)
        self.words = np.empty(0, dtype=np.uint64)
        self.held = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))


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
        self._scratch: list[_Scratch] = []
        self._sizes = (
            2 * searches.longest * WORDS,  # state
            int(np.diff(self._plan.strip_offsets).max() * self._plan.planes.max()) * WORDS,
            max(len(np.unique(masks)) for masks in searches.masks) * BLOCK * WORDS,  # united
            searches.longest,  # letters
        )
        # what is one view of a text may be long, as few parts of it are worked on at a time
        self.block_size = 1 << 26

    def search(self, codes: Letters, lead: int, limit: int) -> Found:
        """Every end in (lead, n] with a distance <= k, in the order of rows.

        TooManyError if there are more than about ``limit``.
        """
        return joined(self._search(codes, _OWN, False, lead, limit))

    def search_letters(self, letters: Letters, lead: int, limit: int) -> list[Found]:
        """The same in parts; InvalidBaseError where a letter is not of DNA."""
        try:
            return self._search(letters, LETTER_TO_CODE, True, lead, limit)
        except _WrongLetterError:
            encode(letters)  # names it
            raise

    def _search(
        self, symbols: Letters, table: Letters, letters: bool, lead: int, limit: int
    ) -> list[Found]:
        ends = symbols.size - lead
        if ends <= 0:
            return []
        # as few equal tiles as there can be, and one a thread if they are worth it
        whole = LANES * BLOCK
        least = -(-ends // (whole * self._longest_span))
        count = -(-least // self._threads) * self._threads if ends > whole else 1
        span = -(-ends // (whole * count))
        tiles = _shares(lead, symbols.size, whole * span, self._threads)
        # few tiles and many patterns: the patterns are split too
        parts = -(-2 * self._threads // len(tiles)) if self._threads > len(tiles) else 1
        shares = split_range(0, len(self._searches), parts)
        most = limit // (len(tiles) * len(shares))
        text = (symbols, table, letters)
        tasks = [
            partial(self._part, text, begin, stop, span, low, high, most)
            for begin, stop in tiles
            for low, high in shares
        ]
        done = run_all(tasks, self._threads)
        if len(shares) > 1:
            done = [
                in_order(joined(done[i : i + len(shares)]), lead, symbols.size)
                for i in range(0, len(done), len(shares))
            ]
        return done

    def _part(
        self,
        text: tuple[Letters, Letters, bool],
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
            own = self._scratch.pop()
        except IndexError:
            own = _Scratch()
        try:
            if own.span < span:
                own.span = span
                own.places = scratch_places(self._sizes, plan.low_planes, plan.lead_blocks, span)
                own.words = _words(int(own.places[-1]))
            own.held, size, problem = _search_tiles(
                *text, begin, stop, span, plan, low, high, limit, own.words, own.places, own.held
            )
            if problem == FULL:
                raise TooManyError
            if problem == WRONG:
                raise _WrongLetterError
            ends, distances, which = own.held
            # what is held is written over by the next part
            if high - low == 1:
                number = repeated(np.int32(low), size)
                return Found(ends[:size].copy(), distances[:size].copy(), number)
            found = Found(ends[:size], distances[:size], which[:size])
            sorted_ = in_order(found, begin, stop)
            return sorted_ if sorted_ is not found else found.at(np.arange(size))
        finally:
            self._scratch.append(own)


def _shares(start: int, stop: int, tile: int, threads: int) -> list[tuple[int, int]]:
    """[start, stop) in parts of whole tiles, ever shorter, so that all threads end together."""
    cuts = [start]
    while cuts[-1] < stop:
        left = -(-(stop - cuts[-1]) // tile)
        count = left // (2 * threads) if threads > 1 else left
        count = max(min(count, MOST_TILES), min(LEAST_TILES, -(-left // threads)))
        cuts.append(min(stop, cuts[-1] + count * tile))
    return list(pairwise(cuts))


def scratch_places(
    sizes: tuple[int, int, int, int], low_planes: int, lead_blocks: int, span: int
) -> NDArray[np.int64]:
    """Where each part of a thread's scratch begins, and its end: int64[12], uint64 each."""
    state, counters, united, letters = sizes
    parts = (
        (lead_blocks + span) * BLOCK * 4 * WORDS,  # equal
        (lead_blocks + span) * 3 * ROW,  # planes
        state,
        2 * BLOCK * WORDS,  # deltas
        counters + counters,  # and one saved
        united,
        letters,
        span * ROW,  # found
        low_planes * span * ROW,  # lows
        (LANES * span) // 2 + 1,  # which words have hits
        LANES * BLOCK * span // 2 + SLACK,  # places of their distances
    )
    return np.cumsum([0, *(-(-part // WORDS) * WORDS for part in parts)])


def _words(size: int) -> Words:
    """uint64[size] that begins on a cache line, not set."""
    array = np.empty(size + 8, dtype=np.uint64)
    skip = (-array.ctypes.data % 64) // 8
    return array[skip : skip + size]


@njit(cache=True, nogil=True)
def _search_tiles(  # type: ignore[no-untyped-def]
    symbols, table, letters, begin, stop, span, plan, low, high, limit, scratch, places, held
):
    """Hits of the searches low..high in ``held``, how many they are, and FULL or WRONG, else 0.

    Tile by tile, in each search by search. held: ends, distances, search, made longer if need be;
    with one search its number is not written. All that is written lies in ``held`` or ``scratch``,
    made once a thread, as fresh memory is slow.
    """
    k, low_planes, lead, masks, offsets, strips, strip_offsets, planes = plan
    equal = scratch[places[0] : places[1]]
    planes_there = scratch[places[1] : places[2]]
    state = scratch[places[2] : places[3]]
    deltas = scratch[places[3] : places[4]]
    counters = scratch[places[4] : places[5]]
    united = scratch[places[5] : places[6]]
    rows = scratch[places[6] : places[7]].view(np.int64)
    found = scratch[places[7] : places[8]]
    lows = scratch[places[8] : places[9]]
    words = scratch[places[9] : places[10]].view(np.uint32)
    low_places = scratch[places[10] : places[11]].view(np.uint32)
    sets = np.empty(16, np.uint8)
    hit_blocks = np.empty(span, np.int64)
    size = 0
    ends, distances, which = held
    for first in range(begin, stop, LANES * BLOCK * span):
        if slice_text(symbols, table, letters, first, lead, span, planes_there, equal):
            return (ends, distances, which), 0, WRONG
        for search in range(low, high):
            written = scan(
                equal, lead, span, masks[offsets[search] : offsets[search + 1]],
                strips[strip_offsets[search] : strip_offsets[search + 1]], k, planes[search],
                low_planes, state, deltas, counters, rows, sets, united, found, lows, hit_blocks,
            )  # fmt: skip
            if written == 0:
                continue
            blocks = hit_blocks[:written]
            new, full = count_found(found, blocks, span, first, stop, words)
            if size + new > limit:
                return (ends, distances, which), 0, FULL
            if size + new + SLACK > ends.size:
                # as many again for what is left
                room = (size + new) * 2 + SLACK
                ends = _longer(ends, size, room)
                distances = _longer(distances, size, room)
                which = _longer(which, size, room)
            take_found(
                found, lows, words[:full], span, first, k, low_planes, low_places, ends, distances,
                size,
            )  # fmt: skip
            if high - low > 1:
                which[size : size + new] = search
            size += new
    return (ends, distances, which), size, 0


@njit(cache=True, nogil=True)
def _longer(array, size, room):  # type: ignore[no-untyped-def]
    longer = np.empty(room, array.dtype)
    longer[:size] = array[:size]
    return longer
