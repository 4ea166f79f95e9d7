"""The k-difference primer problem on a GPU: one text at a time, many windows and starts at once.

``GpuText`` finds windows in a text and raises the reach of their starts (how far each matches);
hits stay on the GPU. ``paper`` has the paper's two CUDA solutions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.card.memory import free_memory
from gpu.primer import seeds, window_scan
from trie.codes import reverse_complement
from trie.cpu.threads import run_all, split_range, usable_cores

Columns = NDArray[np.int64]
Codes = NDArray[np.uint8]

TILE = window_scan.TILE

LEAST_WORDS = 2

MOST_WORDS = 32  # the most rows of 32 that a thread of ``extend`` follows

MOST_WINDOWS = 1 << 17
"""Most windows in a launch; the second dimension of a grid has up to 65,535 blocks."""

ROOM = 1 << 20  # initial room for the hits of a launch; more hits need another launch
MOST_HITS = 1 << 24  # the most hits of a launch that are stored
HIT_BYTES = 68  # memory per hit: its key, and its places in the lists of starts to follow
LEAST_HITS = MOST_WINDOWS  # least room for hits, however scarce memory is: those of a tile
MOST_COLUMNS = 1 << 28  # columns of a text that keys of ``seeds`` can name
SLOTS = 132 * 32  # about how many warps of a scan run at a time
MOST_WAVES = 8  # the most warps, in multiples of SLOTS, if a window has more than one
LAUNCHES = 5  # launches of ``extend``; in all but the last a thread follows one start

FEW = 1 << 14
"""... unless there are at most this many places."""

SPARE_WORDS = 4  # words after the end of a plane that kernels may read
COPIED_AT_ONCE = 1 << 22

BEFORE = 64  # columns, whole words, at least a window of 32 symbols with its differences


def planes_of(codes: Codes) -> NDArray[np.uint32]:
    """uint32[3, words]: the bits of alpha's codes and whether they are bases, for ``extend``."""
    words = codes.size // 32 + 2 + MOST_WORDS
    bits = np.zeros((3, 32 * words), dtype=np.uint8)
    bits[0, : codes.size] = codes & 1
    bits[1, : codes.size] = (codes >> 1) & 1
    bits[2, : codes.size] = codes < 4
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


class GpuAlpha:
    """Alpha on the GPU: codes uint8[m] of all records; ends int64[m], the record end per start."""

    def __init__(self, codes: Codes, ends: Columns) -> None:
        self.gaps = bool((codes > 3).any())
        self.codes = cuda.to_device(codes)
        self.planes = cuda.to_device(planes_of(codes))
        self.ends = cuda.to_device(ends)


@dataclass(frozen=True, slots=True)
class GpuHits:
    """Places on the GPU: keys (``extend``), their number, and the columns that a key stands for.

    keys uint64[], or None: every block in every tile. If ``found`` exceeds ``stored``, the number
    of keys, some were dropped. A key stands for ``span`` columns from offset + step * tile on.
    """

    keys: Any
    found: int
    stored: int
    step: int
    span: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PieceTable:
    """Pieces of windows by code (``seeds``) on the GPU.

    rows: symbols of a window. symbols: of a piece.
    """

    rows: int
    symbols: int
    windows: Any
    begins: Any
    entries: Any


class GpuText:
    """A text on the GPU: records (uint8, 4 a gap), with ``both`` their reverse complements after.

    Texts are loaded one after another. columns: of the text, both strands. most_symbols, most_hits:
    limits for a text and for a launch, set by free memory.
    """

    columns: int

    def __init__(self, alpha: GpuAlpha, k: int, *, both: bool) -> None:
        self._alpha = alpha
        self._k = k
        self._strands = 2 if both else 1
        memory = free_memory()
        # half of the memory for each
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
        """Memory for a text of ``symbols``, a multiple of TILE."""
        # pinned, since the driver copies other memory to pinned memory first; for a small text,
        # allocating pinned memory takes longer than the copy
        pinned = cuda.pinned_array if symbols > COPIED_AT_ONCE else np.empty
        # free the old arrays first
        self._staged = self._codes = self._words = self._low = self._high = None
        self._staged = pinned(symbols, dtype=np.uint8)
        self._codes = cuda.device_array(symbols, np.uint8)
        words = symbols * self._strands // 32 + SPARE_WORDS
        self._words = cuda.device_array(4 * words, np.uint32)
        self._low = cuda.device_array(words, np.uint32)
        self._high = cuda.device_array(words, np.uint32)

    def load(self, records: Sequence[Codes]) -> None:
        """Replace the text by these records."""
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
        with_threads(plain(window_scan.pack), words, window_scan.TEXT_THREADS)(
            self._codes[: self.size], np.int64(self.strand), self._words, self._low[:words],
            self._high,
        )  # fmt: skip

    def codes(self) -> Codes:
        """All columns as the kernels see them, with 5 after each record."""
        text = np.full(self.columns, 5, dtype=np.uint8)
        codes = self._staged[: self.size]
        text[: self.size] = codes
        if self.columns > self.strand:
            text[self.strand : self.strand + codes.size] = reverse_complement(codes)
        return text

    def _stored(self, launch: Any, step: int, span: int) -> GpuHits:
        """Launch with room for keys and a counter; repeat with more room if it was too small."""
        while True:
            keys = cuda.device_array(self._room, np.uint64)
            counter = cuda.to_device(np.zeros(1, dtype=np.uint32))
            launch(keys, counter)
            count = int(counter.copy_to_host()[0])
            if count <= self._room or self._room >= self.most_hits:
                return GpuHits(keys, count, min(count, self._room), step, span)
            self._room = min(self.most_hits, max(count + count // 4, 2 * self._room))
            del keys

    def scanned(self, blocks: Columns, first: int, stop: int) -> GpuHits:
        """Tiles of columns first..stop where windows end within k - 1 differences.

        blocks int64[3, w], w <= MOST_WINDOWS: first start, anchor, core; a window is
        alpha[anchor:core].
        """
        longest = int((blocks[2] - blocks[1]).max())
        ahead = -(-(longest + self._k) // 8)
        tiles = (stop - first) // TILE
        # choose lanes per window so that little of the GPU idles at the end and little work is
        # repeated
        some = np.arange(1, 2 + MOST_WAVES * SLOTS // blocks.shape[1])
        waves = np.ceil(some * blocks.shape[1] / SLOTS)
        lanes = 32 * int(some[np.argmin(waves * (-(-tiles // (32 * some)) + ahead / 8))])
        segment = -(-tiles // lanes)
        grid = (-(-tiles // (32 * segment)), -(-blocks.shape[1] // window_scan.WARPS))
        on_device = cuda.to_device(blocks)

        def launch(keys: Any, counter: Any) -> None:
            made(window_scan.kernel, -(-longest // 32))[grid, window_scan.BLOCK_THREADS](
                self._words, np.uint32(first // TILE), np.uint32(stop // TILE), self._alpha.codes,
                on_device, np.uint32(segment), np.int32(ahead), np.int32(self._k - 1), keys,
                counter,
            )  # fmt: skip

        return self._stored(launch, TILE, TILE)

    def table(self, blocks: Columns, pieces_each: int, symbols: int, errors: int) -> PieceTable:
        """The table of the blocks' windows that are ``pieces_each`` * ``symbols`` long.

        errors: 0 or 1, the most per piece.
        """
        rows = pieces_each * symbols
        windows = cuda.device_array((blocks.shape[1], 4), np.uint32)
        on_device = cuda.to_device(blocks)
        count = blocks.shape[1]
        with_threads(plain(seeds.windows_of), count, seeds.THREADS)(
            self._alpha.codes, on_device, np.int32(rows), windows
        )
        places = cuda.to_device(np.zeros(4**symbols, dtype=np.uint32))
        put = with_threads(plain(seeds.variants), count * pieces_each, seeds.THREADS)
        shape = np.int32(symbols), np.int32(pieces_each), np.int32(errors)
        put(windows, on_device, *shape, places, places, np.int32(0))
        begins = np.zeros(4**symbols + 1, dtype=np.uint32)
        np.cumsum(places.copy_to_host(), out=begins[1:])
        entries = cuda.device_array(max(1, int(begins[-1])), np.uint32)
        put(windows, on_device, *shape, cuda.to_device(begins[:-1]), entries, np.int32(1))
        return PieceTable(rows, symbols, windows.reshape(-1), cuda.to_device(begins), entries)

    def seeded(self, table: PieceTable, first: int, stop: int) -> GpuHits:
        """Columns near which windows of the table end within k - 1 differences.

        Returns all windows that end in columns first..stop, and some more: their pieces begin
        earlier. Raises ValueError for columns that a key cannot name (MOST_COLUMNS).
        """
        if stop > MOST_COLUMNS:
            raise ValueError(
                f"a text of {stop} columns, pieces are looked for in {MOST_COLUMNS} at most"
            )
        first = max(0, first - BEFORE)

        def launch(keys: Any, counter: Any) -> None:
            with_threads(plain(seeds.seeds), stop - first, seeds.THREADS)(
                self._low, self._high, np.int64(first), np.int64(stop), table.windows,
                np.int32(table.rows), np.int32(table.symbols), np.int32(self._k), table.begins,
                table.entries, keys, counter,
            )  # fmt: skip

        return self._stored(launch, 1, 2 * self._k - 1)

    def everywhere(self, blocks: Columns, first: int, stop: int, span: int) -> GpuHits:
        """Every block in every ``span`` of the columns first..stop."""
        count = -(-(stop - first) // span) * blocks.shape[1]
        return GpuHits(None, count, count, span, span, first)

    def raise_reaches(
        self, blocks: Columns, hits: GpuHits, reach: Columns, rows: int
    ) -> tuple[NDArray[np.uint64], Columns]:
        """Raise ``reach`` (int64[m]) from places of blocks, with ``rows`` rows per start at first.

        Blocks as in ``scanned``; their cores end after the reach of their first start. A start that
        outgrows the rows is followed again with four times as many. Returns keys and blocks of the
        starts that outgrow the rows of all kernels.
        """
        on_device = cuda.to_device(reach)
        keys, kind = hits.keys, window_scan.ANCHORS
        if keys is None:
            keys, kind = cuda.device_array(1, np.uint64), window_scan.EVERYWHERE
        keys = keys.reshape(1, keys.size)
        where = cuda.to_device(np.array([hits.step, hits.span, hits.offset]))
        # few distinct numbers of words, since each needs its own kernel
        places, words = hits.stored, min(MOST_WORDS, max(LEAST_WORDS, -(-rows // 32)))
        while places:
            places = self._extend(words, blocks, keys, places, where, kind, on_device)
            if not places:
                break
            key, start = (self._outgrown[i, :places].copy_to_host() for i in range(2))
            block = (key >> np.uint64(40)).astype(np.int64)
            key = key & np.uint64((1 << 40) - 1) | np.arange(places, dtype=np.uint64) << np.uint64(
                40
            )
            blocks = np.stack([blocks[0, block], start.astype(np.int64), blocks[2, block]])
            if words == MOST_WORDS:
                on_device.copy_to_host(reach)
                return key, blocks
            keys, kind = cuda.to_device(key.reshape(1, places)), window_scan.ANCHORS
            words = min(MOST_WORDS, 4 * words)
        on_device.copy_to_host(reach)
        return np.empty(0, dtype=np.uint64), blocks[:, :0]

    def _extend(
        self, words: int, blocks: Columns, keys: Any, places: int, where: Any, kind: int, reach: Any
    ) -> int:
        """Follow all places; return how many starts outgrew the rows (``_outgrown``)."""
        if places > self._lists[0].shape[1]:
            size = places + places // 4
            self._lists, self._outgrown = [], None
            self._lists = [cuda.device_array((2, size), np.uint64) for _ in "ab"]
            self._outgrown = cuda.device_array((2, size), np.uint64)
        # for most starts the hook is in the last words from the beginning
        lowest = int((blocks[2] - blocks[1]).min()) - 1
        hooked = words - 2 if lowest // 32 >= words - 2 > 0 else 0
        launches = 1 if places < FEW or kind == window_scan.EVERYWHERE else LAUNCHES
        counts = cuda.to_device(np.zeros((launches, 2), dtype=np.uint32))
        cores = cuda.to_device(blocks)
        kernel = made(window_scan.extend, words, hooked, self._alpha.gaps)
        run = with_threads(kernel, places, window_scan.EXTEND_THREADS)
        for launch in range(launches):
            steps = 1 if launch + 1 < launches else window_scan.MOST_STEPS
            listed = self._lists[launch % 2]
            run(
                self._words, np.int64(self.columns), self._alpha.planes, self._alpha.ends,
                np.int32(self._k), cores, keys, np.int64(places), where, np.int32(kind),
                np.int32(steps), reach, listed, self._outgrown, counts, np.int32(launch),
            )  # fmt: skip
            keys, kind = listed, window_scan.STARTS
        return int(counts.copy_to_host()[0, 1])
