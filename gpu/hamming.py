"""Search with k mismatches on a card: a chunk of text in, ascending hit words out.

A hit word is a uint64: 63-36 start, counted from the chunk's first window, 35-8 id, 7-0 distance.

``bit-sliced`` leaves hit words in the card's memory in no order, and a second kernel puts in the
distances; the host sorts them, a share of the text a task. The paper's methods leave its result
table, int32[patterns, windows], from which the host takes the hits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpu.device_tree import clear
from gpu.intrinsics import cuda
from gpu.kernels import hamming
from gpu.kernels.hamming import bit_sliced, naive, planes, pmasm, shift_add
from trie.codes import GAP
from trie.packed_counters import look_up_memory, shift_add_words
from trie.parallel import run_all, split_range, usable_cores

_ID_MASK = (1 << 28) - 1

CHUNKS = (1 << 10, 1 << 26)
"""The least and the most windows of a chunk."""

MOST_HITS = 1 << 28
"""Hit words of a chunk at most (2 GiB), where it has more than the least windows."""

TABLE_ENTRIES = 1 << 27
"""Entries of a result table at most: 512 MiB."""

FIRST_CAPACITY = 1 << 22
PIECE = 1 << 25
"""Symbols that are sent at once."""

LEAST_COPY = 1 << 18
"""Symbols for which a thread is worth while."""

BLOCKS = 2112
"""Blocks that fill a large card several times over."""


class CardEngine:
    """One method on the current CUDA device, with patterns uint8[r, m] and ascending uint32 ids.

    chunk: the windows that ``words`` should be called with at most, so that memory stays bounded.
    """

    def __init__(
        self, method: str, patterns: NDArray[np.uint8], ids: NDArray[np.uint32], k: int
    ) -> None:
        self.method = method
        self._ids = ids.astype(np.uint64) << np.uint64(8)
        self._run: BitSlicedRun | TableRun
        if method == "bit-sliced":
            self._run = BitSlicedRun(patterns, k)
        else:
            self._run = TableRun(method, patterns, k)
        self.chunk = self._run.chunk

    def words(self, codes: NDArray[np.uint8], first: int, stop: int) -> list[NDArray[np.uint64]]:
        """Ascending hit words of the windows [first, stop) of a text, base codes on the host."""
        return self._run.words(codes, first, stop, self._ids)


class Text:
    """A chunk's codes on the card, sent through pinned memory; buffers are kept for the next."""

    def __init__(self) -> None:
        self._buffer: Any = None
        self._pinned: list[Any] = []
        self._sent: list[Any] = []
        self._stream = cuda.stream()

    def put(self, codes: NDArray[np.uint8]) -> tuple[Any, Any]:
        """The codes as uint8, and as uint32 with a word or two of anything behind them."""
        words = -(-codes.size // 4) + 1
        if self._buffer is None or self._buffer.size < 4 * words:
            self._buffer = None  # before the new one is taken
            self._buffer = cuda.device_array(4 * words, np.uint8)
        one_by_one = self._buffer[: codes.size]
        cores = usable_cores()
        for number, first in enumerate(range(0, codes.size, PIECE)):
            stop = min(first + PIECE, codes.size)
            staged = self._staging(number % 2, stop - first)
            ranges = split_range(first, stop, cores if stop - first >= LEAST_COPY * cores else 1)
            run_all(
                [partial(np.copyto, staged[a - first : b - first], codes[a:b]) for a, b in ranges],
                cores,
            )
            one_by_one[first:stop].copy_to_device(staged, stream=self._stream)
            self._sent[number % 2].record(self._stream)
        self._stream.synchronize()
        return one_by_one, self._buffer[: 4 * words].view(np.uint32)

    def _staging(self, number: int, size: int) -> Any:
        """One of two pinned buffers, when what it held has gone."""
        while len(self._pinned) <= number:
            self._pinned.append(cuda.pinned_array(min(PIECE, max(size, 1)), np.uint8))
            self._sent.append(cuda.event())
        if self._pinned[number].size < size:
            self._pinned[number] = cuda.pinned_array(PIECE, np.uint8)
        self._sent[number].synchronize()
        return self._pinned[number][:size]


class BitSlicedRun:
    """The kernels of ``bit-sliced`` for one set of patterns, and their buffers."""

    def __init__(self, patterns: NDArray[np.uint8], k: int) -> None:
        self.count, self.length = patterns.shape
        self.shape = bit_sliced.shape_for(self.length, k)
        self.chunk = max(CHUNKS[0], min(CHUNKS[1], MOST_HITS // self.count))
        self.patterns = cuda.to_device(planes.packed(patterns))
        self.steps = cuda.to_device(bit_sliced.steps_of(patterns, self.shape))
        self.begins = cuda.to_device(bit_sliced.begins_of(patterns, k, self.shape))
        self.symbols_of_steps = -(-self.length // bit_sliced.STEP) * bit_sliced.STEP
        self.counter = cuda.device_array(1, np.uint32)
        self.found = cuda.device_array(FIRST_CAPACITY, np.uint64)
        self._text = Text()
        self._planes: Any = None
        self._host: Any = None

    def slice(self, symbols: Any, count: int, windows: int) -> Any:
        """Queue the slicing of ``count`` symbols into planes; uint32[4, (tiles + 1) * S]."""
        words = (-(-windows // self.shape.tile) + 1) * self.shape.span
        if self._planes is None or self._planes.size < 4 * words:
            self._planes = None
            self._planes = cuda.device_array(4 * words, np.uint32)
        text = self._planes[: 4 * words].reshape(4, words)
        grid = -(-words // (4 * planes.THREADS))
        hamming.kernel("slice")[grid, planes.THREADS](
            symbols, np.uint32(count), np.uint32(self.shape.span), text
        )
        return text

    def scan(self, text: Any, windows: int, stream: Any = 0) -> None:
        """Queue the search in sliced text: ``counter`` hits, those that fit in ``found``."""
        tiles = -(-windows // self.shape.tile)
        # a share of the patterns for each of so many blocks that a short text fills the card too
        shares = max(1, min(-(-self.count // bit_sliced.BATCH), BLOCKS // tiles))
        share = -(-self.count // (shares * bit_sliced.BATCH)) * bit_sliced.BATCH
        grid = (tiles, -(-self.count // share))
        clear(self.counter, stream)
        hamming.bit_sliced_kernel(self.shape)[grid, self.shape.threads, stream](
            text, np.uint32(windows), self.steps, np.uint32(self.symbols_of_steps), self.begins,
            np.uint32(share), np.uint32(self.count), self.counter, self.found,
        )  # fmt: skip

    def distances(self, codes: Any, hits: int, stream: Any = 0) -> None:
        """Queue the distances of the first ``hits`` hit words."""
        grid = min(BLOCKS, -(-hits // planes.THREADS))
        hamming.kernel("distance")[grid, planes.THREADS, stream](
            codes, self.patterns, np.uint32(self.length), np.uint32(hits), self.found
        )

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, ids: NDArray[np.uint64]
    ) -> list[NDArray[np.uint64]]:
        """As ``CardEngine.words``; ids: in place in a hit word."""
        windows = stop - first
        symbols = windows + self.length - 1
        _, by_four = self._text.put(codes[first : first + symbols])
        text = self.slice(by_four, symbols, windows)
        self.scan(text, windows)
        hits = int(self.counter.copy_to_host()[0])
        if hits > self.found.size:
            self.found = None
            self.found = cuda.device_array(hits + hits // 4, np.uint64)
            self.scan(text, windows)
        if not hits:
            return []
        self.distances(by_four, hits)
        if self._host is None or self._host.size < hits:
            self._host = cuda.pinned_array(self.found.size, np.uint64)
        found = self.found[:hits].copy_to_host(self._host[:hits])
        return in_order(found, ids, windows)


def in_order(
    words: NDArray[np.uint64], ids: NDArray[np.uint64], windows: int
) -> list[NDArray[np.uint64]]:
    """Hit words with ids for the patterns' indices, ascending.

    They are put into bins, shares of the windows small enough to be sorted in a core's cache.
    """
    cores = usable_cores()
    shares = max(1, min(windows, words.size >> 13))
    shift = max(0, (windows - 1).bit_length() - shares.bit_length() + 1)
    bins = ((windows - 1) >> shift) + 1
    ranges = split_range(0, words.size, cores if words.size >= LEAST_COPY else 1)
    tallies = np.zeros((len(ranges), bins), dtype=np.int64)
    run_all(
        [partial(_tally, words[a:b], shift, tallies[i]) for i, (a, b) in enumerate(ranges)], cores
    )
    # a bin's words come from one range after the other
    stops = np.cumsum(tallies.T.ravel()).reshape(bins, -1).T
    places = np.ascontiguousarray(stops - tallies)
    out = np.empty_like(words)
    run_all(
        [
            partial(_scatter, words[a:b], ids, shift, places[i], out)
            for i, (a, b) in enumerate(ranges)
        ],
        cores,
    )
    edges = np.concatenate([[0], stops[-1]]) if len(ranges) else np.zeros(1, np.int64)
    run_all(
        [
            partial(_sort_bins, out, edges[a : b + 1].tolist())
            for a, b in split_range(0, bins, cores)
        ],
        cores,
    )
    return [out]


def _sort_bins(words: NDArray[np.uint64], edges: list[int]) -> None:
    """Sort between one edge and the next; NumPy sorts without the GIL."""
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        words[a:b].sort()


@njit(cache=True, nogil=True)
def _tally(words, shift, tally):  # type: ignore[no-untyped-def]
    """Count the words of every bin."""
    for word in words:
        tally[np.int64(word >> np.uint64(36)) >> shift] += 1


@njit(cache=True, nogil=True)
def _scatter(words, ids, shift, places, out):  # type: ignore[no-untyped-def]
    """Put every word into its bin, with the pattern's id."""
    index_bits = np.uint64(_ID_MASK) << np.uint64(8)
    for word in words:
        b = np.int64(word >> np.uint64(36)) >> shift
        index = np.int64((word & index_bits) >> np.uint64(8))
        out[places[b]] = (word & ~index_bits) | ids[index]
        places[b] += 1


class TableRun:
    """The paper's methods: a result table, and the hits in it."""

    def __init__(self, method: str, patterns: NDArray[np.uint8], k: int) -> None:
        self.method = method
        self.count, self.length = patterns.shape
        self.k = np.uint32(k)
        self.chunk = max(1 << 10, min(CHUNKS[1], TABLE_ENTRIES // self.count))
        self.plain = np.where(patterns < GAP, patterns, planes.NO_SYMBOL).astype(np.uint8)
        self._text = Text()
        self._table: Any = None
        if method == "naive":
            self._on_card = cuda.to_device(self.plain)
        elif method == "shift-add":
            self._add, self._bits, self._fields = shift_add_words(patterns, k)
            self._on_card = cuda.to_device(self._add)
        else:
            memory, self._bits = look_up_memory(patterns)
            self._on_card = cuda.to_device(memory)

    def launch(self, codes: Any, windows: int, stream: Any = 0) -> Any:
        """Queue the search in codes on the card; the result table there."""
        if self._table is None or self._table.size < self.count * windows:
            self._table = None
            self._table = cuda.device_array(self.count * windows, np.int32)
        results = self._table[: self.count * windows].reshape(self.count, windows)
        number = np.uint32(windows)
        if self.method == "shift-add":
            grid = -(-windows // (shift_add.PIECE * shift_add.THREADS))
            hamming.shift_add_kernel(self._add.shape[2])[grid, shift_add.THREADS, stream](
                codes, number, self._on_card, np.uint32(self.count), np.uint32(self.length),
                self.k, np.uint32(self._bits), np.uint32(self._fields), results,
            )  # fmt: skip
        elif self.method == "naive":
            grid = -(-windows // naive.THREADS)
            hamming.kernel("naive")[grid, naive.THREADS, stream](
                codes, number, self._on_card, self.k, results
            )
        else:
            grid, threads = -(-windows // pmasm.THREADS), pmasm.THREADS
            if self.method == "pmasm-block-thread":
                grid, threads = windows, self.length
            hamming.kernel(self.method)[grid, threads, stream](
                codes, number, self._on_card, np.uint32(self._bits), self.k, results
            )
        return results

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, ids: NDArray[np.uint64]
    ) -> list[NDArray[np.uint64]]:
        """As ``BitSlicedRun.words``."""
        windows = stop - first
        text = codes[first : stop + self.length - 1]
        on_card, _ = self._text.put(text)
        results = self.launch(on_card, windows).copy_to_host()
        hits = _words_of_table(results, text, self.plain)
        return in_order(hits, ids, windows)


@njit(cache=True, nogil=True)
def _words_of_table(results, codes, patterns):  # type: ignore[no-untyped-def]
    """The hit words of a result table, by pattern; distances are counted anew."""
    total = 0
    for p in range(results.shape[0]):
        for s in range(results.shape[1]):
            total += results[p, s] >= 0
    words = np.empty(total, dtype=np.uint64)
    at = 0
    for p in range(results.shape[0]):
        for s in range(results.shape[1]):
            start = np.int64(results[p, s])
            if start >= 0:
                distance = 0
                for j in range(patterns.shape[1]):
                    distance += codes[start + j] != patterns[p, j]
                place = (np.uint64(start) << np.uint64(36)) | (np.uint64(p) << np.uint64(8))
                words[at] = place | np.uint64(distance)
                at += 1
    return words
