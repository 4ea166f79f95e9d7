"""One stream with the buffers of one chunk: pinned on the host, and their counterparts on the GPU.

                pinned                       GPU
    bases       uint32, 2 bits a base   ->   bases
    starts      uint32, a bit a symbol  ->   starts
    matches     uint32, a bit a symbol  <-   matches
    codes       uint64, ordered uint64  <-   the new k-mers of the chunk           (growing)
    words       uint64                  <-   event words                           (on request)
    sets        uint32 a symbol         <-   target sets                           (on request)

The last three are allocated on first use.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from gpu.card.budget import Budget
from gpu.card.copies import fetch, send
from gpu.card.intrinsics import cuda
from gpu.card.library import DeviceLists
from gpu.card.packing import PackedChunk, PackedParts, pack_chunk, packed_sizes
from gpu.card.streams import StreamSlot
from gpu.exact.chunk_match import ChunkBuffers
from gpu.exact.expand import copy_into, copy_range
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges

PackedArrays = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""The bases and starts of a packed chunk; the arrays may be longer than the chunk."""

# waking a thread takes as long as packing about a million symbols
_PER_THREAD = 1 << 21
# words of ``starts`` worth another thread: their 1.5 MB take three times as long as waking it
LAY_WORDS = 1 << 17
WORDS_STEP = 1 << 20  # event words to allocate at a time


def pinned_arrays(max_symbols: int) -> PackedArrays:
    """Pinned memory for a packed chunk."""
    base_words, start_words = packed_sizes(max_symbols)
    return cuda.pinned_array(base_words, np.uint32), cuda.pinned_array(start_words, np.uint32)


class Growth:
    """Buffers of a slot to grow a dictionary: uint32 counts and sums per word, uint64 codes."""

    def __init__(self, max_symbols: int, budget: Budget, stream: Any) -> None:
        words = packed_sizes(max_symbols)[1]
        # two lists, and as much again for sorting
        budget.take("the lists of new k-mers of a chunk", 8 * words + 3 * 8 * max_symbols)
        self.counts = cuda.device_array(words, np.uint32)
        self.sums = cuda.device_array(words, np.uint32)
        self.codes = cuda.device_array(max_symbols, np.uint64)
        self.ordered = cuda.device_array(max_symbols, np.uint64)
        self.total = cuda.device_array(1, np.uint32)
        self.lists = DeviceLists(self.counts, self.sums, self.codes, self.ordered, stream)
        self.pinned_total = cuda.pinned_array(1, np.uint32)
        self.pinned_codes = np.empty(0, np.uint64)
        self.pinned_ordered = np.empty(0, np.uint64)

    def warm(self, number: int) -> None:
        """Pin memory for ``number`` codes, and let the library load what it needs."""
        self.pin(number)
        self.lists.sum(1)
        self.lists.sort(1)

    def pin(self, number: int) -> None:
        """Make sure that ``number`` codes fit in pinned memory; its previous content is lost."""
        if self.pinned_codes.size < number:
            size = min(self.codes.size, 2 * number)
            self.pinned_codes = cuda.pinned_array(size, np.uint64)
            self.pinned_ordered = cuda.pinned_array(size, np.uint64)


class Slot(StreamSlot):
    """A stream and buffers for chunks of at most ``max_symbols`` symbols."""

    def __init__(self, k: int, max_symbols: int, number: int, budget: Budget) -> None:
        super().__init__(number)
        base_words, start_words = packed_sizes(max_symbols)
        budget.take("the buffers of a chunk", 4 * (base_words + 2 * start_words))
        self.k = k
        self.max_symbols = max_symbols
        self.buffers = ChunkBuffers(max_symbols)
        self.pinned = pinned_arrays(max_symbols)
        self.matches = cuda.pinned_array(start_words, np.uint32)
        self.tree: Any = None
        self._budget = budget
        self._growth: Growth | None = None
        self._sets: tuple[Any, NDArray[np.uint32]] | None = None
        self._words: NDArray[np.uint64] | None = None
        self._counter = cuda.pinned_array(1, np.uint32)

    def pack(self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], threads: int) -> None:
        """Pack a chunk into pinned memory."""
        threads = min(threads, 1 + bases.size // _PER_THREAD)
        out_bases, out_starts = self.pinned
        pack_chunk(
            bases, offsets, self.k, threads=threads, out_bases=out_bases, out_starts=out_starts
        )

    def copy(self, chunk: PackedChunk, threads: int) -> None:
        """Copy a packed chunk into pinned memory."""
        for pinned, array in zip(self.pinned, (chunk.bases, chunk.starts), strict=True):
            copy_into(pinned, array, threads)

    def lay(self, chunks: PackedParts, threads: int) -> None:
        """Concatenate parts of packed chunks in pinned memory."""
        parts = np.array(
            [
                (array_address(p.chunk.bases), array_address(p.chunk.starts), p.first, p.stop)
                for p in chunks.parts
            ],
            np.int64,
        )
        ends = np.cumsum([0, *(part.words for part in chunks.parts)])
        bases, starts = self.pinned
        words = packed_sizes(chunks.symbols)[1]
        run_ranges(partial(_lay, parts, ends, bases, starts), 0, words, threads, grain=LAY_WORDS)

    def upload(self, symbols: int, source: PackedArrays) -> None:
        """Queue the copy of a packed chunk in pinned memory to the GPU."""
        for there, array in zip(self.buffers.views(symbols)[:2], source, strict=True):
            send(array, there, self.stream)

    def download(self, symbols: int) -> None:
        """Queue the copy of the matches to the host."""
        fetch(self.buffers.views(symbols)[2], self.matches, self.stream)

    @property
    def growth(self) -> Growth:
        """The buffers for growing."""
        if self._growth is None:
            self._growth = Growth(self.max_symbols, self._budget, self.stream)
        return self._growth

    @property
    def sets(self) -> tuple[Any, NDArray[np.uint32]]:
        """One uint32 per symbol, on the GPU and pinned."""
        if self._sets is None:
            size = 32 * packed_sizes(self.max_symbols)[1]
            self._budget.take("the target sets of a chunk", 4 * size)
            self._sets = cuda.device_array(size, np.uint32), cuda.pinned_array(size, np.uint32)
        return self._sets

    def make_words(self, symbols: int) -> None:
        """Allocate a match buffer of one word per symbol, which cannot overflow."""
        before = self.buffers.words.size
        if before < symbols:
            size = min(-(-symbols // WORDS_STEP) * WORDS_STEP, self.max_symbols)
            self._budget.take("the match buffer of a chunk", 8 * (size - before))
            self.buffers.words = cuda.device_array(size, np.uint64)
            self._words = cuda.pinned_array(size, np.uint64)

    def download_words(self) -> NDArray[np.uint64]:
        """Wait for the event words of the chunk, in no particular order."""
        assert self._words is not None
        fetch(self.buffers.counter, self._counter, self.stream)
        self.stream.synchronize()
        number = int(self._counter[0])
        assert number <= self._words.size
        if number:
            fetch(self.buffers.words, self._words, self.stream, number)
            self.stream.synchronize()
        return self._words[:number]


@njit(cache=True, nogil=True)
def _lay(parts, ends, to_bases, to_starts, first, stop):
    """Write the words [first, stop) of the ``starts`` of a chunk, and the bases of their windows.

    parts: int64[n, 4], the addresses of a part's bases and starts and its words of ``starts``, from
    and to. ends: int64[n + 1], where each part begins in the chunk, and where the last ends.
    """
    at = first
    for part in range(np.searchsorted(ends, first, side="right") - 1, parts.shape[0]):
        size = min(ends[part + 1], stop) - at
        if size <= 0:
            continue
        begin = parts[part, 2] + at - ends[part]
        # a cut part has one more word, for the ends of its windows; no window starts in it
        own = min(size, parts[part, 3] - begin)
        starts = carray(pointer(np.uint64(parts[part, 1])), begin + own, np.uint32)
        copy_range(starts[begin:], 0, own, to_starts[at:])
        if own < size:
            to_starts[at + own] = 0
        bases = carray(pointer(np.uint64(parts[part, 0])), 2 * (begin + size), np.uint32)
        copy_range(bases[2 * begin :], 0, 2 * size, to_bases[2 * at :])
        at += size
    to_starts[at:stop] = np.uint32(0)
