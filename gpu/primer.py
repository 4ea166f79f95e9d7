"""The k-difference primer problem on a card: one text at a time, windows and starts in bulk.

``Text`` does there what ``streamer.batch.primer.windows`` asks a backend for. ``longest_prefixes``
are the paper's two CUDA solutions, a block a start, in batches as many as memory holds (section 4).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.intrinsics import cuda
from gpu.kernels.primer import alternative, conventional, pack, reach, scan, seeds

Columns = NDArray[np.int64]
Codes = NDArray[np.uint8]

TILE = 8 * scan.TILE_WORDS

BLOCK_THREADS = 256
"""Threads a block of the paper's kernels: its best (Fig. 9)."""

PREFETCH_FACTOR = 3
"""The constant c of section 4.2 that missed nothing (Table 4)."""

ROW_BYTES = 4 << 30
"""Memory for the rows of D between tiles, at most."""

MOST_WORDS = 128
"""Rows of 32 that a thread of ``reach`` follows at most."""

MOST_WINDOWS = 1 << 17
"""Windows a launch; the second dimension of a grid has 65,535 blocks at most."""

MOST_HITS = 1 << 26

OVERLAP_SHARE = 6
"""A lane's segment is at least so many times what it begins ahead."""


@cache
def _kernel(name: str, *shape: Any) -> Any:
    if name in ("scan", "nearest"):
        return cuda.jit(scan.kernel(shape[0], name == "nearest"))
    if name == "reach":
        return cuda.jit(reach.kernel(shape[0]))
    if name in ("pack", "seeds"):
        return cuda.jit(pack.pack if name == "pack" else seeds.seeds)
    if name == "conventional":
        return cuda.jit(conventional.kernel(*shape))
    return cuda.jit(alternative.kernel(*shape))


def planes_of(codes: Codes) -> NDArray[np.uint32]:
    """uint32[3, words]: the bits of alpha's codes and whether they are bases, for ``reach``."""
    words = codes.size // 32 + 2 + MOST_WORDS
    bits = np.zeros((3, 32 * words), dtype=np.uint8)
    bits[0, : codes.size] = codes & 1
    bits[1, : codes.size] = (codes >> 1) & 1
    bits[2, : codes.size] = codes < 4
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


class Alpha:
    """Alpha on the card: codes uint8[m] of all records, ends int64[m] of each start's record."""

    def __init__(self, codes: Codes, ends: Columns) -> None:
        self.ends = ends
        self.on_card = cuda.to_device(codes), cuda.to_device(planes_of(codes)), cuda.to_device(ends)


class Text:
    """A text (uint8, 4 a gap, 5 between records) on the card, as ``windows.Backend``."""

    extension_cost = 4.0
    width = 2048
    rest = 1 << 14
    wave = 1 << 18
    segments = 1 << 18
    """Lanes that it takes to be busy."""

    def __init__(self, alpha: Alpha, text: Codes, k: int) -> None:
        self._codes, self._planes, self._ends = alpha.on_card
        self._k = k
        self._size = text.size
        self._tiles = -(-text.size // TILE)
        # behind the last column 13 symbols may be read (``seeds``)
        self._words = cuda.device_array(self._tiles * scan.TILE_WORDS + 2, np.uint32)
        grid = -(-self._words.size // pack.THREADS)
        _kernel("pack")[grid, pack.THREADS](cuda.to_device(text), self._words)
        self._room = 1 << 16

    def _scan(self, name: str, firsts: Columns, ends: Columns, out: Any, counter: Any) -> None:
        lengths = (ends - firsts).astype(np.int32)
        longest = int(lengths.max())
        ahead = -(-(longest + self._k) // 8)
        segment = max(
            -(-self._tiles * firsts.size // self.segments),
            -(-OVERLAP_SHARE * ahead // scan.TILE_WORDS),
            1,
        )
        spans = -(-self._tiles // (32 * segment))
        grid = (spans, -(-firsts.size // scan.WARPS))
        _kernel(name, -(-longest // 32))[grid, scan.THREADS](
            self._words, np.uint32(self._tiles), self._codes, cuda.to_device(firsts),
            cuda.to_device(lengths), np.uint32(segment), np.int32(ahead), np.int32(self._k - 1),
            out, counter,
        )  # fmt: skip

    @staticmethod
    def _keys(out: Any, found: int) -> NDArray[np.uint64]:
        # a device array without elements cannot be copied
        return out[:found].copy_to_host() if found else np.empty(0, np.uint64)

    def hits(self, firsts: Columns, ends: Columns) -> NDArray[np.uint64]:
        """Keys window << 40 | tile << 12 | slack of the tiles with hits, in no order."""
        while firsts.size <= MOST_WINDOWS:
            out = cuda.device_array(self._room, np.uint64)
            counter = cuda.to_device(np.zeros(1, dtype=np.uint32))
            self._scan("scan", firsts, ends, out, counter)
            found = int(counter.copy_to_host()[0])
            if found <= self._room:
                return self._keys(out, found)
            if found > MOST_HITS and firsts.size > 1:
                break
            self._room = max(found, 2 * self._room)
        # too many for one launch or one buffer: half of the windows at a time
        half = firsts.size // 2
        some, rest = self.hits(firsts[:half], ends[:half]), self.hits(firsts[half:], ends[half:])
        return np.concatenate([some, rest + (np.uint64(half) << np.uint64(40))])

    def seeded(
        self, firsts: Columns, rows: int, q: int, begins: NDArray[np.uint32], entries: Any
    ) -> NDArray[np.uint64]:
        """Hits of windows of ``rows`` symbols at ``firsts`` through a table of pieces of q symbols.

        The table as ``gpu.kernels.primer.seeds``; the result as ``hits``, a tile maybe twice.
        """
        table = cuda.to_device(begins), cuda.to_device(entries)
        starts = cuda.to_device(firsts)
        grid = -(-self._size // seeds.THREADS)
        while True:
            out = cuda.device_array(self._room, np.uint64)
            counter = cuda.to_device(np.zeros(1, dtype=np.uint32))
            _kernel("seeds")[grid, seeds.THREADS](
                self._words, np.int64(self._size), self._planes, starts, np.int32(rows),
                np.int32(q), np.int32(self._k), *table, out, counter,
            )  # fmt: skip
            found = int(counter.copy_to_host()[0])
            if found <= self._room:
                return self._keys(out, found)
            self._room = found

    def best(self, firsts: Columns, ends: Columns) -> tuple[Columns, Columns]:
        """As ``streamer.batch.primer.scan.best``: from, until."""
        tiles = []
        for at in range(0, firsts.size, MOST_WINDOWS):
            some = slice(at, at + MOST_WINDOWS)
            none = np.full(firsts[some].size, np.iinfo(np.uint64).max, dtype=np.uint64)
            out = cuda.to_device(none)
            self._scan("nearest", firsts[some], ends[some], out, cuda.device_array(1, np.uint32))
            tiles.append(out.copy_to_host() & np.uint64((1 << 40) - 1))
        tile = np.concatenate(tiles).astype(np.int64)
        return TILE * tile, np.minimum(TILE * (tile + 1), self._size)

    def reaches(self, tasks: tuple[Columns, ...]) -> Columns:
        """As ``streamer.batch.primer.hook.reaches``; -1 - reach where a match outgrew the rows."""
        columns = np.ascontiguousarray(np.stack(tasks))
        if columns.shape[1] == 0:
            return columns[0]
        rows = int((columns[1] - columns[0]).max()) + 65
        words = min(MOST_WORDS, 4 * -(-rows // 128))
        out = cuda.device_array(columns.shape[1], np.int64)
        grid = -(-out.size // reach.THREADS)
        _kernel("reach", words)[grid, reach.THREADS](
            self._words, np.int64(self._size), self._planes, self._ends, np.int32(self._k),
            cuda.to_device(columns), out,
        )  # fmt: skip
        return out.copy_to_host()


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
    batch = max(1, min(starts.size, ROW_BYTES // (4 * (beta.size + 1)), 1 << 16))
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
