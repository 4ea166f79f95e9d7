"""The default on the CPU: tiles of 512 text segments (``tiles``) over all cores.

The letters of a tile are sliced into bits, a word of 64 per lane and block:

    planes   uint64[blocks, 3, ROW]   bit 0 of the codes, bit 1, and whether it is not a base

Letters are read once, in order, and each word is stored where it will be transposed.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm import blocks, lane_planes
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.asm.tiles import (
    BLOCK,
    COLUMNS,
    SLACK,
    HitLists,
    Scratch,
    list_sizes,
    scan,
    scratch_sizes,
    take_found,
)
from trie.codes import GAP, LETTER_TO_CODE, encode
from trie.cpu import array_pool
from trie.cpu.interrupts import interruptible
from trie.cpu.intrinsics import load_now
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


@njit(cache=True, nogil=True)
def _edge(symbols, table, first, planes, place):
    """Slice 64 symbols partly outside the text, as gap codes; return the OR of the codes."""
    seen = np.uint8(GAP)
    bits = np.zeros(3, np.uint64)
    bits[2] = ~np.uint64(0)
    if first + 64 > 0 and first < symbols.size:
        seen = np.uint8(0)
        bits[2] = 0
        for i in range(64):
            position = first + i
            code = table[symbols[position]] if 0 <= position < symbols.size else np.uint8(GAP)
            seen |= code
            for plane in range(3):
                bit = np.uint64(code >> np.uint8(plane) & np.uint8(1))
                bits[plane] |= bit << np.uint64(i)
    for plane in range(3):
        planes[place + plane * lane_planes.ROW] = bits[plane]
    return seen


@njit(cache=True, nogil=True)
def slice_text(symbols, table, letters, begin, lead_blocks, span_blocks, planes):
    """Fill ``planes`` of the tile whose first end is begin + 1, ``lead_blocks`` blocks before it.

    symbols: letters, or base codes unless ``letters``; table uint8[256]: the code of each. Words,
    one per lane and block, are not transposed yet. Returns the number of planes: 2, or 3 if there
    are gap codes; 0 if a symbol is invalid.
    """
    size = 3 * lane_planes.ROW
    first = lead_blocks * size
    stride = BLOCK * span_blocks
    whole = max(0, min(lane_planes.LANES, (symbols.size - begin) // stride))
    if letters:
        other = lane_planes.letter_planes(symbols, begin, whole, span_blocks, planes, first)
    else:
        other = lane_planes.code_planes(symbols, begin, whole, span_blocks, planes, first)
    edges = np.uint8(0)
    for lane in range(whole, lane_planes.LANES):
        for block in range(span_blocks):
            at = begin + stride * lane + BLOCK * block
            edges |= _edge(symbols, table, at, planes, first + block * size + lane)
    # a lane's lead is the end of the previous lane
    for block in range(lead_blocks):
        at = begin + BLOCK * (block - lead_blocks)
        edges |= _edge(symbols, table, at, planes, block * size)
    kinds = 2
    wrong = np.uint64(edges > 7)
    if other or edges > 3:
        kinds = 3
        if letters:
            wrong |= lane_planes.letter_gaps(
                symbols, begin, whole, span_blocks, planes, first + 2 * lane_planes.ROW
            )
        else:
            wrong |= lane_planes.code_gaps(
                symbols, begin, whole, span_blocks, planes, first + 2 * lane_planes.ROW
            )
    for block in range(lead_blocks - 1, -1, -1):
        for kind in range(kinds):
            at = block * size + kind * lane_planes.ROW
            source = at + span_blocks * size
            for lane in range(1, lane_planes.LANES):
                planes[at + lane] = planes[source + lane - 1]
    return 0 if wrong else kinds


Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
Letters = NDArray[np.uint8]
Text = tuple[Letters, Letters, bool]

_OWN = np.arange(256, dtype=np.uint8)  # maps each code to itself

SPAN_BLOCKS = 15
"""The most blocks of 64 ends per lane (more for long patterns): a tile then has 491,520 ends; its
planes take 200 KB of the L2 cache, its letters 480 KB.
"""

MOST_TILES = 256  # tiles times searches per call

LEAST_TILES = 8
"""Tiles times searches that amortize a call's Python, and its first tile, whose letters are not
prefetched.
"""

FULL, WRONG, MORE = 1, 2, 3
"""Why a search stopped: too many hits, a letter that is not DNA, no room for hits."""

_RATE = 1 / 32  # hits per end for which the first columns have room

STRIP_ROWS = 64
"""Rows whose state (8 KB) fits the L1 cache with a block of text (16 KB) and deltas (8 KB)."""

SKIPPED_ROWS = 8  # rows that must lie below the first strip for following its score to pay


def strips_of(rows: int, k: int) -> NDArray[np.int64]:
    """Return the first row of each strip, then the number of rows.

    The first strip is just long enough for D <= k to be rare at its bottom in random DNA: most
    blocks of 64 * 512 ends have none.
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
    """Return the bits of the two's complement of D - k - 1 for 0 <= D <= rows, and of 0..k."""
    return 1 + max(k.bit_length(), (rows - k - 1).bit_length()), k.bit_length()


class _Plan(NamedTuple):
    """The patterns as the kernel needs them, and the lead blocks of a lane.

    Concatenated: letters (uint8), strips and planes (int64) of the searches; those of search i
    begin at ``offsets[i]`` and ``strip_offsets[i]``.
    """

    k: int
    low_planes: int
    lead_blocks: int
    masks: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    strips: NDArray[np.int64]
    strip_offsets: NDArray[np.int64]
    planes: NDArray[np.int64]


class _Own(NamedTuple):
    """Buffers of a thread, for tiles of ``span`` blocks."""

    span: int
    scratch: Scratch
    lists: HitLists


class BitParallel:
    """Searches blocks of text for all patterns."""

    def __init__(self, searches: Searches, threads: int) -> None:
        self._searches = searches
        self._threads = threads
        lead = -(-(-(-searches.reach // COLUMNS) * COLUMNS) // BLOCK)
        # a lane's lead must be short compared to its ends
        self._longest_span = max(SPAN_BLOCKS, 8 * lead)
        strips = [strips_of(masks.size, searches.k) for masks in searches.masks]
        self._plan = _Plan(
            searches.k,
            searches.k.bit_length(),
            lead,
            searches.joined_masks,
            searches.offsets,
            np.concatenate(strips),
            np.cumsum([0, *(strip.size for strip in strips)]),
            np.array([counter_planes(m.size, searches.k)[0] for m in searches.masks]),
        )
        self._counter_planes = int(
            np.diff(self._plan.strip_offsets).max() * self._plan.planes.max()
        )
        self._sets = max(len(np.unique(masks)) for masks in searches.masks)
        self._own: list[_Own] = []
        self._rate = _RATE
        # a block is a view of a text and may be long: only a few parts are searched at a time
        self.block_size = 1 << 26

    def search(self, block: blocks.Block, limit: int) -> list[blocks.EndsFound]:
        """Find every end beyond the block's lead with a distance <= k, in consecutive parts.

        Raises TooManyError above about ``limit`` hits; InvalidBaseError for a letter that is not
        DNA.
        """
        symbols, lead, ends = block.symbols, block.lead, block.ends
        # as few equal tiles as possible, but one per thread if that pays
        whole = lane_planes.LANES * BLOCK
        least = -(-ends // (whole * self._longest_span))
        count = -(-least // self._threads) * self._threads if ends > whole else 1
        span = -(-ends // (whole * count))
        tiles = _shares(lead, symbols.size, whole * span, self._threads, len(self._searches))
        # with few tiles and many patterns, the patterns are split too
        parts = -(-2 * self._threads // len(tiles)) if self._threads > len(tiles) else 1
        shares = split_range(0, len(self._searches), parts)
        most = limit // (len(tiles) * len(shares))
        text = (symbols, LETTER_TO_CODE if block.letters else _OWN, block.letters)
        wanted = [(*tile, span, *share, most) for tile in tiles for share in shares]
        # a tile may take minutes: with 100,000 patterns, or with long ones
        steps = self._plan.masks.size * len(tiles) * (self._plan.lead_blocks + span) * BLOCK
        done = interruptible(partial(self._found, text, wanted), float(steps))
        if len(shares) > 1:
            done = [
                blocks.in_order(blocks.joined(done[i : i + len(shares)]), lead, symbols.size)
                for i in range(0, len(done), len(shares))
            ]
        return done

    def _found(
        self, text: Text, wanted: Sequence[tuple[int, ...]], stopped: NDArray[np.uint8]
    ) -> list[blocks.EndsFound]:
        return run_all([partial(self._part, text, stopped, *run) for run in wanted], self._threads)

    def _part(
        self,
        text: Text,
        stopped: NDArray[np.uint8],
        begin: int,
        stop: int,
        span: int,
        low: int,
        high: int,
        limit: int,
    ) -> blocks.EndsFound:
        """Find ends in (begin, stop] of the searches low..high, tile by tile on one thread."""
        try:
            own = self._own.pop()
        except IndexError:
            own = self._made(span)
        if own.span < span:
            own = self._made(span)
        try:
            several = high - low > 1
            room = int((stop - begin) * self._rate) + SLACK
            at, size = begin, 0
            columns = _columns(room, several)
            while True:
                at, size, problem = _search_tiles(
                    *text, stopped, at, stop, span, self._plan, low, high, limit,
                    own.scratch, own.lists, *columns, size,
                )  # fmt: skip
                if problem != MORE:
                    break
                room *= 4
                # later parts are probably similar; threads may race here
                self._rate = max(self._rate, room / (stop - begin))
                columns = _columns(room, several, columns, size)
            if problem == FULL:
                raise blocks.TooManyError
            if problem == WRONG:
                encode(text[0])  # raises an error that names the letter
            ends, distances, which = columns
            if not several:
                which = blocks.repeated(np.int32(low), size)
            return blocks.EndsFound(ends[:size], distances[:size], which[:size])
        finally:
            self._own.append(own)

    def _made(self, span: int) -> _Own:
        plan = self._plan
        sizes = scratch_sizes(
            self._searches.longest, self._counter_planes, self._sets, plan.low_planes,
            plan.lead_blocks + span,
        )  # fmt: skip
        arrays = _carved(sizes | list_sizes(span, plan.low_planes))
        scratch = Scratch(*(arrays[name] for name in Scratch._fields))
        return _Own(span, scratch, HitLists(*(arrays[name] for name in HitLists._fields)))


def _carved(sizes: dict[str, tuple[Any, int]]) -> dict[str, NDArray[Any]]:
    """Allocate arrays of these dtypes and sizes in one block, each aligned to a cache line."""
    used = {name: np.dtype(kind).itemsize * size for name, (kind, size) in sizes.items()}
    ends = np.cumsum(
        [-(-size // lane_planes.LINE) * lane_planes.LINE for size in used.values()]
    ).tolist()
    memory = array_pool.empty(ends[-1], np.uint8)
    return {
        name: memory[begin : begin + size].view(sizes[name][0])
        for begin, (name, size) in zip([0, *ends], used.items(), strict=False)
    }


def _columns(room: int, several: bool, old: Columns | None = None, size: int = 0) -> Columns:
    """Allocate ends, distances and, if several, search numbers; copy ``size`` old rows."""
    new = (
        array_pool.empty(room, np.int64),
        array_pool.empty(room, np.int32),
        array_pool.empty(room if several else 0, np.int32),
    )
    if old is not None:
        for column, old_column in zip(new, old, strict=True):
            column[:size] = old_column[:size]
    return new


def _shares(start: int, stop: int, tile: int, threads: int, searches: int) -> list[tuple[int, int]]:
    """Split [start, stop) into parts of whole tiles, ever shorter, so threads finish together."""
    cuts = [start]
    most = MOST_TILES // searches
    least = max(1, LEAST_TILES // searches)
    while cuts[-1] < stop:
        tiles = -(-(stop - cuts[-1]) // tile)
        count = tiles // (2 * threads) if threads > 1 else tiles
        count = max(min(count, most), min(least, -(-tiles // threads)))
        cuts.append(min(stop, cuts[-1] + count * tile))
    return list(pairwise(cuts))


@njit(cache=True, nogil=True)
def _search_tiles(
    symbols, table, letters, stopped, begin, stop, span, plan, low, high, limit, scratch, lists,
    ends, distances, which, size,
):  # fmt: skip
    """Write the hits of searches low..high from place ``size`` on, tile by tile, by end and search.

    Returns where it stopped, the number of hits, and why: FULL, WRONG, MORE (a tile's hits do not
    fit; all before are written), else 0. With one search its number is not written. It ends once
    ``stopped`` (uint8[1]) is set; what it wrote means nothing then.
    """
    k, low_planes, lead, masks, offsets, strips, strip_offsets, planes = plan
    sets = np.empty(16, np.uint8)
    hit_blocks = np.empty(span, np.int64)
    bounds = np.empty(high - low + 1, np.int64)
    tile = lane_planes.LANES * BLOCK * span
    for first in range(begin, stop, tile):
        next_stop = min(first + 2 * tile, stop)
        kinds = slice_text(symbols, table, letters, first, lead, span, scratch.planes)
        if kinds == 0:
            return first, size, WRONG
        before = size
        for search in range(low, high):
            if load_now(stopped):
                return stop, 0, 0
            new, written = scan(
                (first, lead, span, stop), kinds, search == low,
                symbols, first + tile if search + 1 == high else next_stop, next_stop,
                masks[offsets[search] : offsets[search + 1]],
                strips[strip_offsets[search] : strip_offsets[search + 1]],
                k, planes[search], low_planes, scratch, sets, lists, hit_blocks, stopped,
            )  # fmt: skip
            if size + new > limit:
                return first, before, FULL
            if size + new + SLACK > ends.size:
                return first, before, MORE
            if new > 0:
                take_found(
                    lists, hit_blocks[:written], span, first, k, low_planes, ends, distances, size
                )
                if high - low > 1:
                    which[size : size + new] = search
                size += new
            bounds[search + 1 - low] = size
        if high - low > 1 and size > before:
            bounds[0] = before
            blocks.merge_runs(ends, distances, which, bounds)
    return stop, size, 0
