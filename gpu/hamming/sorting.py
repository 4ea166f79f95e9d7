"""Sort hit words: on the GPU if there are many, otherwise on the host.

Both sort by ranges of windows: the GPU counts with atomic additions and compares a few hits with
each other (gpu/hamming/sort_kernels.py), the host sorts each range in a core's cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.launch import grid, made, plain
from gpu.card.workspace import Workspace
from gpu.exact.device_tree import clear
from gpu.hamming import sort_kernels
from gpu.hamming.packed_hits import ID, ID_MASK, START
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range, usable_cores

LEAST_PART = 1 << 14  # hit words worth a thread
LEAST_ON_GPU = 1 << 17  # hit words worth compiling the kernels
CROWDED = 256  # hits per window above which the GPU would compare each with too many others


def bin_width(hits: int, windows: int) -> int:
    """The shift from a window's number to its bin's: about two hits per bin."""
    return min(sort_kernels.GROUP, max(0, (2 * windows // hits).bit_length() - 1))


class HitSorter:
    """Fetches sorted hit words; ids: uint64[r], ascending, shifted to their place in a hit word."""

    def __init__(self, ids: NDArray[np.uint64]) -> None:
        self._ids = ids
        self._ids_there = cuda.to_device(ids)
        self._space = Workspace()
        self._zeros: Any = None

    def fetch(self, found: Any, hits: int, windows: int, stream: Any) -> list[NDArray[np.uint64]]:
        """The first ``hits`` words of ``found`` on the host, ascending; valid until the next call.

        found: on the GPU, with indices of patterns; overwritten.
        """
        if not hits:
            return []
        on_gpu = LEAST_ON_GPU <= hits <= CROWDED * windows
        if on_gpu:
            found = self._sorted(found, hits, windows, stream)
        words = self._space.on_host("words", hits, np.uint64)[:hits]
        found[:hits].copy_to_host(words, stream=stream)
        stream.synchronize()
        return [words] if on_gpu else in_order(words, self._ids, windows)

    def _sorted(self, found: Any, hits: int, windows: int, stream: Any) -> Any:
        """Queue the sorting of the first ``hits`` words; returns the array that will hold them."""
        placed = self._space.array("placed", found.size, np.uint64)
        groups = ((windows - 1) >> sort_kernels.GROUP) + 1
        zeros = self._space.array("counts", groups, np.uint32)
        if zeros is not self._zeros:  # they are zero again after use
            clear(zeros, stream)
            self._zeros = zeros
        counts = zeros[:groups]
        ends = self._space.array("ends", groups, np.uint32)[:groups]
        launch = (grid(hits, sort_kernels.THREADS), sort_kernels.THREADS, stream)
        number, width = np.uint32(hits), np.uint32(bin_width(hits, windows))
        threads, least = sort_kernels.MANY_THREADS, 0
        plain(sort_kernels.tally)[launch](found, number, counts)
        made(sort_kernels.begins, threads)[1, threads, stream](counts, ends)
        plain(sort_kernels.place)[launch](found, number, ends, placed)
        if width >= sort_kernels.FEW:
            threads, least = sort_kernels.FEW_THREADS, sort_kernels.FEW
        made(sort_kernels.sort, threads, least)[groups, threads, stream](
            placed, ends, width, self._ids_there, found
        )
        return placed


def in_order(
    words: NDArray[np.uint64], ids: NDArray[np.uint64], windows: int
) -> list[NDArray[np.uint64]]:
    """Hit words with indices replaced by ids, ascending.

    They are put into bins, ranges of windows small enough to be sorted in a core's cache.
    """
    cores = usable_cores()
    shares = max(1, min(windows, words.size >> 13))
    shift = max(0, (windows - 1).bit_length() - shares.bit_length() + 1)
    bins = ((windows - 1) >> shift) + 1
    ranges = split_range(0, words.size, cores if words.size >= LEAST_PART else 1)
    tallies = np.zeros((len(ranges), bins), dtype=np.int64)
    run_all(
        [partial(_tally, words[a:b], shift, tallies[i]) for i, (a, b) in enumerate(ranges)], cores
    )
    # a bin receives its words range by range
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
def _tally(words, shift, tally):
    """Count the words of every bin."""
    for word in words:
        tally[np.int64(word >> np.uint64(START)) >> shift] += 1


@njit(cache=True, nogil=True)
def _scatter(words, ids, shift, places, out):
    """Move every word to its bin, with the pattern's id."""
    index_bits = np.uint64(ID_MASK)
    for word in words:
        b = np.int64(word >> np.uint64(START)) >> shift
        index = np.int64((word & index_bits) >> np.uint64(ID))
        out[places[b]] = (word & ~index_bits) | ids[index]
        places[b] += 1
