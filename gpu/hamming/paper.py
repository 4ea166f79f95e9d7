"""The methods that the PMASM paper compares: a result table of all windows and patterns.

The kernels write int32[patterns, windows], the start where the distance is at most k, else -1; the
host reads the hits.

naive (Table 3): a thread per window, all symbols of all patterns: r m comparisons per window.

PMASM (5.3): the counters of several patterns in one word of 32 bits.

memory   uint32[groups, 5, m]   look-up memory (5.2): the fb_vector of a code at a level, a bit in
                                field p where symbol j of pattern p is another; code 4, a gap,
                                is a mismatch everywhere. 32 // b patterns a group, b bits a field

thread         one thread per window adds m fb_vectors and splits the sum               (5.3.1)
block_thread   a block of m threads a window: each thread gets one fb_vector into shared
               memory, thread 0 adds them up and splits the sum                         (5.3.2)
shared         as thread, the q + m - 1 symbols of a block's q windows in shared memory  (5.3.3)

shift-add (Table 3): a thread per piece of text, for all patterns, as in
streamer/batch/hamming/paper.py. A thread begins m - 1 symbols before its piece ends its first
window; the paper does not say how it divides the text. Operations per symbol and pattern: 7 for
each word of the state (m b <= 64: one word), and a load.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda, device_function
from gpu.card.kernel_cache import grid, made, plain
from gpu.card.memory import Workspace, free_memory
from gpu.hamming.sorting import ID, START, in_order
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.packed_counters import look_up_memory, shift_add_words

NAIVE_THREADS = 256  # threads per block; any number


def naive(codes, windows, patterns, k, results):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= windows.

    Arguments: codes uint8[windows + m - 1], windows uint32, patterns uint8[r, m] (gap codes as a
    value that occurs in no text), k uint32, results int32[r, windows].
    """
    start = np.uint32(cuda.grid(1))
    if start >= windows:
        return
    for p in range(patterns.shape[0]):
        distance = np.uint32(0)
        for j in range(patterns.shape[1]):
            if codes[start + np.uint32(j)] != patterns[p, j]:
                distance = np.uint32(distance + np.uint32(1))
        results[p, start] = np.int32(start) if distance <= k else np.int32(-1)


PMASM_THREADS = 256  # threads per block of ``thread`` and ``shared``, the paper's q; any number
MAX_LENGTH = 256
_CHUNK = 1024 + MAX_LENGTH


@device_function
def split(bit_vector, group, bits, k, start, results):
    """Compare every counter of a group with the threshold and write the result table."""
    fields = np.uint32(np.uint32(32) // bits)
    field = np.uint32(np.uint32(np.uint32(1) << bits) - np.uint32(1))
    p = np.uint32(group * fields)
    last = min(np.uint32(p + fields), np.uint32(results.shape[0]))
    while p < last:
        near = np.uint32(bit_vector & field) <= k
        results[p, start] = np.int32(start) if near else np.int32(-1)
        bit_vector = np.uint32(bit_vector >> bits)
        p = np.uint32(p + np.uint32(1))


def thread(codes, windows, memory, bits, k, results):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= windows.

    Arguments: codes uint8[windows + m - 1], windows uint32, memory as above, bits, k uint32,
    results as above.
    """
    start = np.uint32(cuda.grid(1))
    if start >= windows:
        return
    for group in range(memory.shape[0]):
        bit_vector = np.uint32(0)
        for level in range(memory.shape[2]):
            code = codes[start + np.uint32(level)]
            bit_vector = np.uint32(bit_vector + memory[group, code, level])
        split(bit_vector, np.uint32(group), bits, k, start, results)


def block_thread(codes, windows, memory, bits, k, results):
    """The kernel; ``[windows, m]``. Arguments as ``thread``."""
    fb_vec_rlt = cuda.shared.array(MAX_LENGTH, np.uint32)
    start = np.uint32(cuda.blockIdx.x)
    level = np.uint32(cuda.threadIdx.x)
    code = codes[start + level]
    for group in range(memory.shape[0]):
        fb_vec_rlt[level] = memory[group, code, level]
        cuda.syncthreads()
        if level == np.uint32(0):
            bit_vector = np.uint32(0)
            for other in range(memory.shape[2]):
                bit_vector = np.uint32(bit_vector + fb_vec_rlt[other])
            split(bit_vector, np.uint32(group), bits, k, start, results)
        cuda.syncthreads()


def shared(codes, windows, memory, bits, k, results):
    """The kernel; launch and arguments as ``thread``, THREADS <= 1024."""
    chunk = cuda.shared.array(_CHUNK, np.uint8)
    first = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(cuda.blockDim.x))
    symbols = np.uint32(np.uint32(windows + np.uint32(memory.shape[2])) - np.uint32(1))
    own = np.uint32(cuda.threadIdx.x)
    at = own
    while at < np.uint32(np.uint32(cuda.blockDim.x) + np.uint32(memory.shape[2])):
        if np.uint32(first + at) < symbols:
            chunk[at] = codes[np.uint32(first + at)]
        at = np.uint32(at + np.uint32(cuda.blockDim.x))
    cuda.syncthreads()
    start = np.uint32(first + own)
    if start >= windows:
        return
    for group in range(memory.shape[0]):
        bit_vector = np.uint32(0)
        for level in range(memory.shape[2]):
            code = chunk[np.uint32(own + np.uint32(level))]
            bit_vector = np.uint32(bit_vector + memory[group, code, level])
        split(bit_vector, np.uint32(group), bits, k, start, results)


KERNELS = {"pmasm-thread": thread, "pmasm-block-thread": block_thread, "pmasm-shared": shared}


SHIFT_ADD_THREADS = 128  # threads per block; any number
PIECE = 64  # windows per thread


def shift_add(words: int) -> Callable[..., None]:
    """The kernel for states of that many words."""

    def kernel(codes, windows, add, ids, m, k, bits, fields, results):
        """``[grid, THREADS]``, grid * THREADS * PIECE >= windows.

        Arguments: codes uint8[windows + m - 1], windows uint32, add uint64[r, 5, words], ids (the
        patterns, by number) uint32, m, k, bits, fields uint32, results int32[r, windows].
        """
        first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(PIECE))
        if first >= windows:
            return
        stop = min(np.uint32(first + np.uint32(PIECE)), windows)
        b = np.uint64(bits)
        top = np.uint64(np.uint64(1) << np.uint64(b - np.uint64(1)))
        field = np.uint64(np.uint64(top << np.uint64(1)) - np.uint64(1))
        tops = np.uint64(0)
        for i in range(fields):
            tops = np.uint64(tops | np.uint64(top << np.uint64(b * np.uint64(i))))
        highest = np.uint64(b * np.uint64(np.uint32(fields) - np.uint32(1)))
        used = np.uint64(~np.uint64(0)) >> np.uint64(
            np.uint64(64) - np.uint64(b * np.uint64(fields))
        )
        last = np.uint64(b * np.uint64(np.uint32(m - np.uint32(1)) % np.uint32(fields)))
        state = cuda.local.array(words, np.uint64)
        overflow = cuda.local.array(words, np.uint64)
        for p in range(ids):
            for w in range(words):
                state[w] = np.uint64(0)
                overflow[w] = np.uint64(0)
            for at in range(first, np.uint32(stop + m) - np.uint32(1)):
                code = codes[at]
                carried = np.uint64(0)
                carried_over = np.uint64(0)
                for w in range(words):
                    old = state[w]
                    over = overflow[w]
                    new = np.uint64(np.uint64(np.uint64(old << b) & used) | carried)
                    new = np.uint64(new + add[p, code, w])
                    shifted = np.uint64(np.uint64(np.uint64(over << b) & used) | carried_over)
                    overflow[w] = np.uint64(shifted | np.uint64(new & tops))
                    state[w] = np.uint64(new & np.uint64(~tops))
                    carried = np.uint64(np.uint64(old >> highest) & field)
                    carried_over = np.uint64(np.uint64(over >> highest) & field)
                if np.uint32(at + np.uint32(1)) >= np.uint32(first + m):
                    start = np.uint32(np.uint32(at + np.uint32(1)) - m)
                    ran_over = np.uint64(np.uint64(overflow[words - 1] >> last) & field)
                    distance = np.uint64(np.uint64(state[words - 1] >> last) & field)
                    near = ran_over == np.uint64(0) and distance <= np.uint64(k)
                    results[p, start] = np.int32(start) if near else np.int32(-1)

    return kernel


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
            self._kernel = plain(naive)
            self._windows, self._threads = NAIVE_THREADS, NAIVE_THREADS
            self._arguments = (cuda.to_device(self._plain), np.uint32(k))
        elif method == "shift-add":
            add, bits, fields = shift_add_words(patterns, k)
            self._kernel = made(shift_add, add.shape[2])
            self._windows, self._threads = PIECE * SHIFT_ADD_THREADS, SHIFT_ADD_THREADS
            numbers = (self._count, self._length, k, bits, fields)
            self._arguments = (cuda.to_device(add), *map(np.uint32, numbers))
        else:
            memory, bits = look_up_memory(patterns)
            self._kernel = plain(KERNELS[method])
            alone = method == "pmasm-block-thread"
            self._windows, self._threads = (
                (1, self._length) if alone else (PMASM_THREADS, PMASM_THREADS)
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
        """See ``PlaneSearcher.words``."""
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
