"""Search with k mismatches on a card: a chunk of text in, ascending hit words out.

A hit word is a uint64: 63-36 start, counted from the chunk's first window, 35-8 id, 7-0 distance.

``bit-sliced`` and ``pigeonhole`` (gpu/hamming/plane_search.py) find them in the card's memory,
where they are put in order (gpu/hamming/hits.py) before they are fetched; the next chunk is packed
and sent in the meantime. The paper's methods leave its result table, int32[patterns, windows], from
which the host takes the hits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.compiled import made, plain
from gpu.card.intrinsics import cuda
from gpu.hamming import naive, pmasm, shift_add
from gpu.hamming.hits import in_order
from gpu.hamming.plane_search import CHUNKS, BitSliced, DevicePieceIndex, Pigeonhole, PlanesRun
from gpu.hamming.text_upload import Codes
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.packed_counters import look_up_memory, shift_add_words

TABLE_ENTRIES = 1 << 27
"""Entries of a result table at most: 512 MiB."""

TABLE_SHARE = 8
"""Bytes of free memory for each of its entries, of 4 bytes."""

NO_SYMBOL = GAP + 1
"""What a pattern has in place of a gap code: it equals nothing in a text."""


class CardEngine:
    """One method on the current CUDA device, with patterns uint8[r, m] and ascending uint32 ids.

    index: what ``pigeonhole`` looks pieces up in. run: the kernels and buffers of the method.
    chunk: the windows that ``words`` should be called with at most, so that memory stays bounded;
    no more than ``most``, and than fit into the memory that is free now.
    """

    def __init__(
        self,
        method: str,
        patterns: NDArray[np.uint8],
        ids: NDArray[np.uint32],
        k: int,
        index: DevicePieceIndex | None = None,
        most: int = CHUNKS[1],
    ) -> None:
        self.method = method
        self._ids = ids.astype(np.uint64) << np.uint64(8)
        self.run: PlanesRun | TableRun
        if index is not None:
            self.run = PlanesRun(Pigeonhole(patterns, k, index), *patterns.shape)
        elif method == "bit-sliced":
            self.run = PlanesRun(BitSliced(patterns, k), *patterns.shape)
        else:
            self.run = TableRun(method, patterns, k)
        self.run.chunk = min(self.run.chunk, most)
        self.chunk = self.run.chunk

    def words(self, codes: NDArray[np.uint8], first: int, stop: int) -> list[NDArray[np.uint64]]:
        """Ascending hit words of the windows [first, stop) of a text, base codes on the host.

        They are valid until the next call.
        """
        return self.run.words(codes, first, stop, self._ids)


class TableRun:
    """The paper's methods: a result table, and the hits in it."""

    def __init__(self, method: str, patterns: NDArray[np.uint8], k: int) -> None:
        self.method = method
        self.count, self.length = patterns.shape
        self.k = np.uint32(k)
        entries = min(TABLE_ENTRIES, free_memory() // TABLE_SHARE)
        self.chunk = max(1 << 10, min(CHUNKS[1], entries // self.count))
        self.plain = np.where(patterns < GAP, patterns, NO_SYMBOL).astype(np.uint8)
        self._text = Codes()
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
            made(shift_add.shift_add, self._add.shape[2])[grid, shift_add.THREADS, stream](
                codes, number, self._on_card, np.uint32(self.count), np.uint32(self.length),
                self.k, np.uint32(self._bits), np.uint32(self._fields), results,
            )  # fmt: skip
        elif self.method == "naive":
            grid = -(-windows // naive.THREADS)
            plain(naive.naive)[grid, naive.THREADS, stream](
                codes, number, self._on_card, self.k, results
            )
        else:
            grid, threads = -(-windows // pmasm.THREADS), pmasm.THREADS
            if self.method == "pmasm-block-thread":
                grid, threads = windows, self.length
            plain(pmasm.KERNELS[self.method])[grid, threads, stream](
                codes, number, self._on_card, np.uint32(self._bits), self.k, results
            )
        return results

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, ids: NDArray[np.uint64]
    ) -> list[NDArray[np.uint64]]:
        """As ``PlanesRun.words``."""
        windows = stop - first
        text = codes[first : stop + self.length - 1]
        results = self.launch(self._text.put(text), windows).copy_to_host()
        hits = _words_of_table(results, text, self.plain)
        return in_order(hits, ids, windows)


@njit(cache=True, nogil=True)
def _words_of_table(results, codes, patterns):
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
