"""The k-difference primer problem on a card: one text at a time, windows and starts in bulk.

``Text`` finds windows in a text and raises the reaches of their starts; what it found stays on the
card. ``longest_prefixes`` are the paper's two CUDA solutions, a block a start, in batches as many
as memory holds (section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit
from gpu.primer import alternative, conventional, extend, pack, pieces, scan, seeds
from trie.cpu.threads import run_all, split_range, usable_cores

Columns = NDArray[np.int64]
Codes = NDArray[np.uint8]

TILE = pack.TILE

BLOCK_THREADS = 256
"""Threads a block of the paper's kernels: its best (Fig. 9)."""

PREFETCH_FACTOR = 3
"""The constant c of section 4.2 that missed nothing (Table 4)."""

ROW_BYTES = 4 << 30
"""Memory for the rows of D between tiles, at most."""

LEAST_WORDS = 2

MOST_WORDS = 32
"""Rows of 32 that a thread of ``extend`` follows at most."""

MOST_WINDOWS = 1 << 17
"""Windows a launch; the second dimension of a grid has 65,535 blocks at most."""

ROOM = 1 << 20
"""Hits of a launch there is room for at first; more take another launch."""

MOST_HITS = 1 << 24
"""Hits of a launch that are kept at most."""

HIT_BYTES = 68
"""Of a hit: its key, and its places in the lists of starts to follow."""

LEAST_HITS = MOST_WINDOWS
"""Hits of a launch that there is room for however short memory is: those of a tile."""

MOST_COLUMNS = 1 << 28
"""Columns of a text that keys of ``seeds`` can name."""

SLOTS = 132 * 32
"""Warps of a scan that run at a time, about."""

MOST_WAVES = 8
"""So many times as many warps at most, if a window has more than one."""

LAUNCHES = 5
"""Of ``extend``: in all but the last a thread follows one start ..."""

FEW = 1 << 14
"""... unless there are no more places than these."""

SPARE_WORDS = 4
"""Words behind the last of a plane that kernels may read."""

COPIED_AT_ONCE = 1 << 22

BEFORE = 64
"""Columns, of words, that a window of 32 symbols and its differences cannot be longer than."""


@cache
def _kernel(name: str, *shape: Any) -> Any:
    made: dict[str, Any] = {
        "scan": scan.kernel,
        "extend": extend.kernel,
        "conventional": conventional.kernel,
        "alternative": alternative.kernel,
    }
    if name in made:
        return jit(made[name](*shape))
    plain: dict[str, Any] = {
        "pack": pack.pack,
        "windows_of": pieces.windows_of,
        "variants": pieces.variants,
        "seeds": seeds.seeds,
    }
    return jit(plain[name])


def planes_of(codes: Codes) -> NDArray[np.uint32]:
    """uint32[3, words]: the bits of alpha's codes and whether they are bases, for ``extend``."""
    words = codes.size // 32 + 2 + MOST_WORDS
    bits = np.zeros((3, 32 * words), dtype=np.uint8)
    bits[0, : codes.size] = codes & 1
    bits[1, : codes.size] = (codes >> 1) & 1
    bits[2, : codes.size] = codes < 4
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


class DeviceAlpha:
    """Alpha on the card: codes uint8[m] of all records, ends int64[m] of each start's record."""

    def __init__(self, codes: Codes, ends: Columns) -> None:
        self.gaps = bool((codes > 3).any())
        self.codes = cuda.to_device(codes)
        self.planes = cuda.to_device(planes_of(codes))
        self.ends = cuda.to_device(ends)


@dataclass(frozen=True, slots=True)
class DeviceHits:
    """Places on the card: keys (``extend``), how many, and the columns that a key stands for.

    keys uint64[], or None: every block in every tile. ``found`` may be more than ``kept``, the keys
    there are: then some were dropped. A key's columns are ``span`` from offset + step * tile on.
    """

    keys: Any
    found: int
    kept: int
    step: int
    span: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PieceTable:
    """Pieces of windows by code (``pieces``) on the card: windows, begins, entries."""

    rows: int
    symbols: int
    windows: Any
    begins: Any
    entries: Any
    candidates: float
    """Entries that a column of random text has."""


class Text:
    """A text on the card, one after another: records (uint8, 4 a gap), with ``both`` their reverse
    complements behind them.

    most_symbols: of a text, and most_hits: of a launch, that there is memory for now.
    """

    columns: int
    """Of the text, both strands."""

    def __init__(self, alpha: DeviceAlpha, k: int, *, both: bool) -> None:
        self._alpha = alpha
        self._k = k
        self._strands = 2 if both else 1
        memory = free_memory()
        # a half for either
        self.most_symbols = int(memory // 2 / (1 + 0.75 * self._strands))
        self.most_hits = max(min(LEAST_HITS, MOST_HITS), min(MOST_HITS, memory // 2 // HIT_BYTES))
        self._room = min(ROOM, self.most_hits)
        self._lists = [cuda.device_array((2, 1), np.uint64) for _ in "ab"]
        self._outgrown = cuda.device_array((2, 1), np.uint64)
        self._staged: Any
        self._codes: Any
        self._words: Any
        self._low: Any
        self._allocate(TILE)

    def _allocate(self, symbols: int) -> None:
        """Memory for a text of so many symbols, a multiple of TILE."""
        # pinned, since the driver copies any other memory to pinned memory first; that takes longer
        # to get than a small text to copy
        pinned = cuda.pinned_array if symbols > COPIED_AT_ONCE else np.empty
        # what was there before is freed first
        self._staged = self._codes = self._words = self._low = self._high = None
        self._staged = pinned(symbols, dtype=np.uint8)
        self._codes = cuda.device_array(symbols, np.uint8)
        words = symbols * self._strands // 32 + SPARE_WORDS
        self._words = cuda.device_array(4 * words, np.uint32)
        self._low = cuda.device_array(words, np.uint32)
        self._high = cuda.device_array(words, np.uint32)

    def load(self, records: Sequence[Codes]) -> None:
        """Take these records in the place of those before."""
        self.size = sum(record.size + 1 for record in records)
        self.strand = -(-self.size // TILE) * TILE
        self.columns = self.strand * self._strands
        if self.strand > self._staged.size:
            self._allocate(self.strand)
        parts, at = [], 0
        for record in records:
            for first, last in split_range(0, record.size, -(-record.size // COPIED_AT_ONCE)):
                into = self._staged[at + first : at + last]
                parts.append(partial(np.copyto, into, record[first:last]))
            at += record.size + 1
            self._staged[at - 1] = 5
        run_all(parts, usable_cores())
        self._codes[: self.size].copy_to_device(self._staged[: self.size])
        words = self.columns // 32 + SPARE_WORDS
        _kernel("pack")[-(-words // pack.THREADS), pack.THREADS](
            self._codes[: self.size], np.int64(self.strand), self._words, self._low[:words],
            self._high,
        )  # fmt: skip

    def codes(self) -> Codes:
        """All columns as the kernels see them, 5 behind records."""
        text = np.full(self.columns, 5, dtype=np.uint8)
        codes = self._staged[: self.size]
        text[: self.size] = codes
        if self.columns > self.strand:
            turned = codes[::-1]
            text[self.strand : self.strand + turned.size] = np.where(turned < 4, 3 - turned, turned)
        return text

    def _kept(self, launch: Any, step: int, span: int) -> DeviceHits:
        """Launch with room for keys and a counter; once more with more room if it did not do."""
        while True:
            keys = cuda.device_array(self._room, np.uint64)
            counter = cuda.to_device(np.zeros(1, dtype=np.uint32))
            launch(keys, counter)
            found = int(counter.copy_to_host()[0])
            if found <= self._room or self._room >= self.most_hits:
                return DeviceHits(keys, found, min(found, self._room), step, span)
            self._room = min(self.most_hits, max(found + found // 4, 2 * self._room))
            del keys

    def scanned(self, blocks: Columns, first: int, stop: int) -> DeviceHits:
        """Tiles of columns first..stop where windows end within k - 1 differences.

        blocks int64[3, w]: first start, anchor, core; a window is alpha[anchor:core]; at most
        MOST_WINDOWS.
        """
        longest = int((blocks[2] - blocks[1]).max())
        ahead = -(-(longest + self._k) // 8)
        tiles = (stop - first) // TILE
        # so many lanes of a window that little of the card idles at the end or does things twice
        some = np.arange(1, 2 + MOST_WAVES * SLOTS // blocks.shape[1])
        waves = np.ceil(some * blocks.shape[1] / SLOTS)
        lanes = 32 * int(some[np.argmin(waves * (-(-tiles // (32 * some)) + ahead / 8))])
        segment = -(-tiles // lanes)
        grid = (-(-tiles // (32 * segment)), -(-blocks.shape[1] // scan.WARPS))
        on_card = cuda.to_device(blocks)

        def launch(keys: Any, counter: Any) -> None:
            _kernel("scan", -(-longest // 32))[grid, scan.THREADS](
                self._words, np.uint32(first // TILE), np.uint32(stop // TILE), self._alpha.codes,
                on_card, np.uint32(segment), np.int32(ahead), np.int32(self._k - 1), keys, counter,
            )  # fmt: skip

        return self._kept(launch, TILE, TILE)

    def table(self, blocks: Columns, pieces_each: int, symbols: int, errors: int) -> PieceTable:
        """The table of the blocks' windows that are ``pieces_each`` * ``symbols`` long.

        ``errors`` (0 or 1) is what a piece may have at most.
        """
        rows = pieces_each * symbols
        windows = cuda.device_array((blocks.shape[1], 4), np.uint32)
        on_card = cuda.to_device(blocks)
        grid = -(-blocks.shape[1] // pieces.THREADS)
        _kernel("windows_of")[grid, pieces.THREADS](
            self._alpha.codes, on_card, np.int32(rows), windows
        )
        places = cuda.to_device(np.zeros(4**symbols, dtype=np.uint32))
        grid = -(-blocks.shape[1] * pieces_each // pieces.THREADS)
        put = _kernel("variants")[grid, pieces.THREADS]
        shape = np.int32(symbols), np.int32(pieces_each), np.int32(errors)
        put(windows, on_card, *shape, places, places, np.int32(0))
        begins = np.zeros(4**symbols + 1, dtype=np.uint32)
        np.cumsum(places.copy_to_host(), out=begins[1:])
        entries = cuda.device_array(max(1, int(begins[-1])), np.uint32)
        put(windows, on_card, *shape, cuda.to_device(begins[:-1]), entries, np.int32(1))
        candidates = int(begins[-1]) / 4.0**symbols
        return PieceTable(
            rows, symbols, windows.reshape(-1), cuda.to_device(begins), entries, candidates
        )

    def seeded(self, table: PieceTable, first: int, stop: int) -> DeviceHits:
        """Columns near which windows of the table end within k - 1 differences.

        All windows that end in columns first..stop, and some more: their pieces begin before.
        Raises ValueError for columns that a key cannot name (MOST_COLUMNS).
        """
        if stop > MOST_COLUMNS:
            message = f"a text of {stop} columns, pieces are looked for in {MOST_COLUMNS} at most"
            raise ValueError(message)
        first = max(0, first - BEFORE)
        grid = -(-(stop - first) // seeds.THREADS)

        def launch(keys: Any, counter: Any) -> None:
            _kernel("seeds")[grid, seeds.THREADS](
                self._low, self._high, np.int64(first), np.int64(stop), table.windows,
                np.int32(table.rows), np.int32(table.symbols), np.int32(self._k), table.begins,
                table.entries, keys, counter,
            )  # fmt: skip

        return self._kept(launch, 1, 2 * self._k - 1)

    def everywhere(self, blocks: Columns, first: int, stop: int, span: int) -> DeviceHits:
        """Every block in every ``span`` of the columns first..stop."""
        count = -(-(stop - first) // span) * blocks.shape[1]
        return DeviceHits(None, count, count, span, span, first)

    def raise_reaches(
        self, blocks: Columns, hits: DeviceHits, reach: Columns, rows: int
    ) -> tuple[NDArray[np.uint64], Columns]:
        """Raise ``reach`` (int64[m]) by places of blocks, with ``rows`` rows for a start at first.

        Blocks as in ``scanned``, whose cores end behind the reach of their first start. A start
        that outgrows the rows is followed again with four times as many; keys and blocks of those
        that outgrow all that a thread may have are returned.
        """
        on_card = cuda.to_device(reach)
        keys, kind = hits.keys, extend.ANCHORS
        if keys is None:
            keys, kind = cuda.device_array(1, np.uint64), extend.EVERYWHERE
        keys = keys.reshape(1, keys.size)
        where = cuda.to_device(np.array([hits.step, hits.span, hits.offset]))
        # of words few numbers are used, since each has a kernel to be compiled
        places, words = hits.kept, min(MOST_WORDS, max(LEAST_WORDS, -(-rows // 32)))
        while places:
            places = self._extend(words, blocks, keys, places, where, kind, on_card)
            if not places:
                break
            key, start = (self._outgrown[i, :places].copy_to_host() for i in range(2))
            block = (key >> np.uint64(40)).astype(np.int64)
            key = key & np.uint64((1 << 40) - 1) | np.arange(places, dtype=np.uint64) << np.uint64(
                40
            )
            blocks = np.stack([blocks[0, block], start.astype(np.int64), blocks[2, block]])
            if words == MOST_WORDS:
                on_card.copy_to_host(reach)
                return key, blocks
            keys, kind = cuda.to_device(key.reshape(1, places)), extend.ANCHORS
            words = min(MOST_WORDS, 4 * words)
        on_card.copy_to_host(reach)
        return np.empty(0, dtype=np.uint64), blocks[:, :0]

    def _extend(
        self, words: int, blocks: Columns, keys: Any, places: int, where: Any, kind: int, reach: Any
    ) -> int:
        """Follow all places to their end; how many starts outgrew the rows (``_outgrown``)."""
        if places > self._lists[0].shape[1]:
            size = places + places // 4
            self._lists, self._outgrown = [], None
            self._lists = [cuda.device_array((2, size), np.uint64) for _ in "ab"]
            self._outgrown = cuda.device_array((2, size), np.uint64)
        # the hook of most starts is in the last words from the beginning on
        lowest = int((blocks[2] - blocks[1]).min()) - 1
        hooked = words - 2 if lowest // 32 >= words - 2 > 0 else 0
        launches = 1 if places < FEW or kind == extend.EVERYWHERE else LAUNCHES
        counts = cuda.to_device(np.zeros((launches, 2), dtype=np.uint32))
        cores = cuda.to_device(blocks)
        run = _kernel("extend", words, hooked, self._alpha.gaps)
        for launch in range(launches):
            steps = 1 if launch + 1 < launches else extend.MOST_STEPS
            left = self._lists[launch % 2]
            run[-(-places // extend.THREADS), extend.THREADS](
                self._words, np.int64(self.columns), self._alpha.planes, self._alpha.ends,
                np.int32(self._k), cores, keys, np.int64(places), where, np.int32(kind),
                np.int32(steps), reach, left, self._outgrown, counts, np.int32(launch),
            )  # fmt: skip
            keys, kind = left, extend.STARTS
        return int(counts.copy_to_host()[0, 1])


def longest_prefixes(
    method: str,
    alpha: Codes,
    beta: Codes,
    k: int,
    starts: Columns,
    *,
    threads: int = BLOCK_THREADS,
    factor: int = PREFETCH_FACTOR,
    counted: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The paper's CUDA solutions: c of every start (int32), and counts (uint64[5], see the kernel).

    ``method`` is conventional (optimizations 1, 3, 4, 5) or alternative (3, 4, 5, 6); alpha and
    beta are one record each. ``threads`` a block (a power of two from 32 on), ``factor`` is c of
    section 4.2, ``counted`` counts misses of the prefetch.
    """
    codes, text = cuda.to_device(alpha), cuda.to_device(beta)
    lengths = np.empty(starts.size, dtype=np.int32)
    counts = cuda.to_device(np.zeros(5, dtype=np.uint64))
    row_bytes = min(ROW_BYTES, free_memory() // 2)
    batch = max(1, min(starts.size, row_bytes // (4 * (beta.size + 1)), 1 << 16))
    rows: Any = None
    if method == "conventional":
        rows = cuda.device_array((batch, beta.size + 1), np.int32)
    for at in range(0, starts.size, batch):
        some = cuda.to_device(starts[at : at + batch])
        found = cuda.device_array(some.size, np.int32)
        if method == "conventional":
            _kernel("conventional", threads)[some.size, threads](
                codes, text, np.int32(k), some, rows, found, counts[:1]
            )
        else:
            _kernel("alternative", threads, k, factor, counted)[some.size, threads](
                codes, text, np.int32(k), some, found, counts
            )
        found.copy_to_host(lengths[at : at + batch])
    return lengths, counts.copy_to_host()
