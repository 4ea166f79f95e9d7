"""Hit words put in order: on the card where there are many, else on the host.

Both sort by bins of windows; the card counts with atomic additions and ranks a bin's hits against
each other (gpu/kernels/hamming/order.py), the host sorts each bin in a core's cache.
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
from gpu.kernels.hamming import order
from trie.parallel import run_all, split_range, usable_cores

_ID_MASK = (1 << 28) - 1

LEAST_PART = 1 << 14
"""Hit words for which a thread is worth while."""

LEAST_ON_CARD = 1 << 17
"""Hit words for which the card's kernels are worth compiling."""

CROWDED = 256
"""Hits a window from which the card would compare each with too many others."""


MOST_BINS = 1 << 22
"""Bins that stay in the card's cache."""

MOST_IN_BIN = 32


def bin_width(hits: int, windows: int) -> int:
    """The shift of a window's number to that of its bin: about two hits a bin, in few bins."""
    shift = max(0, (2 * windows // hits).bit_length() - 1)
    while windows >> shift > MOST_BINS and hits << (shift + 1) <= MOST_IN_BIN * windows:
        shift += 1
    return shift


class Order:
    """The kernels that order hit words on the card, and their buffers."""

    def __init__(self) -> None:
        self._bins: Any = None
        self._placed: Any = None
        self._totals: Any = None
        self._ids: Any = None
        self._host: Any = None

    def fetch(
        self, found: Any, hits: int, windows: int, ids: NDArray[np.uint64], stream: Any
    ) -> list[NDArray[np.uint64]]:
        """The first ``hits`` words of ``found`` on the host, ascending; valid until the next call.

        found: on the card, with indices of patterns; ids: uint64[r] in their place, ascending.
        """
        if not hits:
            return []
        on_card = hits >= LEAST_ON_CARD and hits <= CROWDED * windows
        if on_card:
            self.launch(found, hits, windows, ids, stream)
        if self._host is None or self._host.size < hits:
            self._host = None
            self._host = cuda.pinned_array(hits + hits // 4, np.uint64)
        found[:hits].copy_to_host(self._host[:hits], stream=stream)
        stream.synchronize()
        words = self._host[:hits]
        return [words] if on_card else in_order(words, ids, windows)

    def launch(
        self, found: Any, hits: int, windows: int, ids: NDArray[np.uint64], stream: Any
    ) -> None:
        """Queue the ordering of the first ``hits`` words of ``found``, in place."""
        if self._placed is None or self._placed.size < hits:
            self._placed = None
            self._placed = cuda.device_array(found.size, np.uint64)
        if self._ids is None or self._ids[0] is not ids:
            self._ids = (ids, cuda.to_device(ids, stream=stream))
        shift = bin_width(hits, windows)
        threads = order.THREADS
        blocks = -(-(((windows - 1) >> shift) + 1) // (threads * order.EACH))
        size = blocks * threads * order.EACH
        if self._bins is None or self._bins.size < size:
            self._bins = None
            self._bins = cuda.device_array(size, np.uint32)
            self._totals = cuda.device_array(blocks, np.uint32)
        bins = self._bins[:size]
        clear(bins, stream)
        grid = -(-hits // threads)
        number, width = np.uint32(hits), np.uint32(shift)
        kernel = hamming.kernel
        kernel("tally")[grid, threads, stream](found, number, width, bins)
        kernel("totals")[blocks, threads, stream](bins, self._totals)
        kernel("begins")[blocks, threads, stream](bins, self._totals)
        kernel("place")[grid, threads, stream](found, number, width, bins, self._placed)
        kernel("rank")[grid, threads, stream](
            self._placed, number, width, bins, self._ids[1], found
        )


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
    ranges = split_range(0, words.size, cores if words.size >= LEAST_PART else 1)
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
