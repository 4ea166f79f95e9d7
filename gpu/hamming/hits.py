"""Hit words put in order: on the card where there are many, else on the host.

Both sort by shares of the windows: the card counts with atomic additions and compares a few hits
with each other (gpu/hamming/order.py), the host sorts each share in a core's cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.compiled import made, plain
from gpu.card.intrinsics import cuda
from gpu.exact.device_tree import clear
from gpu.hamming import order
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range, usable_cores

_ID_MASK = (1 << 28) - 1

LEAST_PART = 1 << 14
"""Hit words for which a thread is worth while."""

LEAST_ON_CARD = 1 << 17
"""Hit words for which the card's kernels are worth compiling."""

CROWDED = 256
"""Hits a window from which the card would compare each with too many others."""


def bin_width(hits: int, windows: int) -> int:
    """The shift of a window's number to that of its bin: about two hits a bin."""
    return min(order.GROUP, max(0, (2 * windows // hits).bit_length() - 1))


class Order:
    """The kernels that order hit words on the card, and their buffers."""

    def __init__(self) -> None:
        self._groups: Any = None
        self._placed: Any = None
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
            found = self.launch(found, hits, windows, ids, stream)
        if self._host is None or self._host.size < hits:
            self._host = None
            self._host = cuda.pinned_array(hits + hits // 4, np.uint64)
        found[:hits].copy_to_host(self._host[:hits], stream=stream)
        stream.synchronize()
        words = self._host[:hits]
        return [words] if on_card else in_order(words, ids, windows)

    def launch(
        self, found: Any, hits: int, windows: int, ids: NDArray[np.uint64], stream: Any
    ) -> Any:
        """Queue the ordering of the first ``hits`` words of ``found``, which are lost.

        Where they will be, until the next call.
        """
        if self._placed is None or self._placed.size < hits:
            self._placed = None
            self._placed = cuda.device_array(found.size, np.uint64)
        if self._ids is None or self._ids[0] is not ids:
            self._ids = (ids, cuda.to_device(ids, stream=stream))
        groups = ((windows - 1) >> order.GROUP) + 1
        if self._groups is None or self._groups[0].size < groups:
            self._groups = None
            self._groups = [cuda.device_array(groups, np.uint32) for _ in range(2)]
            clear(self._groups[0], stream)
        counts, ends = (array[:groups] for array in self._groups)
        threads = order.THREADS
        grid = -(-hits // threads)
        number, width = np.uint32(hits), np.uint32(bin_width(hits, windows))
        few = width >= order.FEW
        sorters, least = (order.FEW_THREADS, order.FEW) if few else (order.MANY_THREADS, 0)
        plain(order.tally)[grid, threads, stream](found, number, counts)
        made(order.begins, order.MANY_THREADS)[1, order.MANY_THREADS, stream](counts, ends)
        plain(order.place)[grid, threads, stream](found, number, ends, self._placed)
        made(order.sort, sorters, least)[groups, sorters, stream](
            self._placed, ends, width, self._ids[1], found
        )
        return self._placed


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
def _tally(words, shift, tally):
    """Count the words of every bin."""
    for word in words:
        tally[np.int64(word >> np.uint64(36)) >> shift] += 1


@njit(cache=True, nogil=True)
def _scatter(words, ids, shift, places, out):
    """Put every word into its bin, with the pattern's id."""
    index_bits = np.uint64(_ID_MASK) << np.uint64(8)
    for word in words:
        b = np.int64(word >> np.uint64(36)) >> shift
        index = np.int64((word & index_bits) >> np.uint64(8))
        out[places[b]] = (word & ~index_bits) | ids[index]
        places[b] += 1
