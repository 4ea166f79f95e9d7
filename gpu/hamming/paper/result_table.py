"""The paper's methods write a result table, int32[patterns, windows]; the host reads the hits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.intrinsics import cuda
from gpu.card.launch import grid, made, plain
from gpu.card.workspace import Workspace
from gpu.hamming.packed_hits import ID, START
from gpu.hamming.paper import naive, pmasm, shift_add
from gpu.hamming.sorting import in_order
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.packed_counters import look_up_memory, shift_add_words

WINDOWS = (1 << 10, 1 << 26)  # the fewest and the most windows in a chunk
TABLE_ENTRIES = 1 << 27  # most entries of a result table: 512 MiB
TABLE_SHARE = 8  # bytes of free memory required for each of its 4-byte entries
NO_SYMBOL = GAP + 1  # stands for a gap code in a pattern: equals nothing in a text


class TableSearcher:
    """One of the paper's methods for patterns uint8[r, m].

    ids: uint64[r], shifted to their place in a hit word. chunk: most windows in a call of
    ``words``, which bounds memory.
    """

    def __init__(
        self, method: str, patterns: NDArray[np.uint8], ids: NDArray[np.uint64], k: int, most: int
    ) -> None:
        self._count, self._length = patterns.shape
        self._ids = ids
        entries = min(TABLE_ENTRIES, free_memory() // TABLE_SHARE)
        self.chunk = min(most, max(WINDOWS[0], min(WINDOWS[1], entries // self._count)))
        self._plain = np.where(patterns < GAP, patterns, NO_SYMBOL).astype(np.uint8)
        self._space = Workspace()
        self._kernel: Any
        self._arguments: tuple[Any, ...]
        if method == "naive":
            self._kernel = plain(naive.naive)
            self._windows, self._threads = naive.THREADS, naive.THREADS
            self._arguments = (cuda.to_device(self._plain), np.uint32(k))
        elif method == "shift-add":
            add, bits, fields = shift_add_words(patterns, k)
            self._kernel = made(shift_add.shift_add, add.shape[2])
            self._windows, self._threads = shift_add.PIECE * shift_add.THREADS, shift_add.THREADS
            numbers = (self._count, self._length, k, bits, fields)
            self._arguments = (cuda.to_device(add), *map(np.uint32, numbers))
        else:
            memory, bits = look_up_memory(patterns)
            self._kernel = plain(pmasm.KERNELS[method])
            alone = method == "pmasm-block-thread"
            self._windows, self._threads = (
                (1, self._length) if alone else (pmasm.THREADS, pmasm.THREADS)
            )
            self._arguments = (cuda.to_device(memory), np.uint32(bits), np.uint32(k))

    def launch(self, codes: Any, windows: int) -> Any:
        """Queue the search in codes on the GPU; returns the result table there."""
        results = self._space.shaped("results", (self._count, windows), np.int32)
        self._kernel[grid(windows, self._windows), self._threads](
            codes, np.uint32(windows), *self._arguments, results
        )
        return results

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, then: Any = None
    ) -> list[NDArray[np.uint64]]:
        """As ``PlaneSearcher.words``."""
        text = codes[first : stop + self._length - 1]
        results = self.launch(self._space.upload("codes", text), stop - first).copy_to_host()
        hits = _words_of_table(results, text, self._plain)
        return in_order(hits, self._ids, stop - first)


@njit(cache=True, nogil=True)
def _words_of_table(results, codes, patterns):
    """The hit words of a result table, by pattern; distances are counted again."""
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
                place = (np.uint64(start) << np.uint64(START)) | (np.uint64(p) << np.uint64(ID))
                words[at] = place | np.uint64(distance)
                at += 1
    return words
