"""The depth of a k-mer in the trie of a set of k-mers, from ascending codes alone.

The longest prefix that a code shares with any code of the set is the one it shares with its
neighbor below or above in ascending order. A table of where each value of the upper bits begins
leaves a short range to search: about one code in a set of random k-mers.

The codes and the table take at most 12 bytes per k-mer; a Tree Bitmap of random 31-mers takes 108.
They give depths, not trie nodes.
"""

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_k
from trie.cpu.intrinsics import leading_zeros, prefetch_far
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_ranges
from trie.windows import GRAIN, MATCH, MISMATCH, check_batch, roll_block, start_roll


class PrefixDepths:
    """Depths of windows in the trie of ``codes`` (uint64, strictly ascending, all of length k).

    The codes are not copied.
    """

    def __init__(self, codes: NDArray[np.uint64], k: int) -> None:
        check_k(k)
        self._k = k
        self._codes = codes
        bits = min(2 * k, max(codes.size.bit_length() - 1, 0))
        self._shift = np.uint64(2 * k - bits)
        dtype = np.uint32 if codes.size < 1 << 32 else np.uint64
        self._starts = np.empty((1 << bits) + 1, dtype=dtype)
        _fill_starts(codes, self._shift, self._starts)

    def measure(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        events: NDArray[np.uint8],
        depths: NDArray[np.uint8],
        *,
        canonical: bool,
        threads: int = 1,
    ) -> None:
        """Write the depth of each window's event: k for a match, else as the walk measures it.

        ``events`` and ``depths`` are uint8[total], as ``KmerIndex.match`` has them; depths of
        symbols that begin no window stay unchanged. Raises BatchShapeError for invalid offsets.
        """
        bases, offsets = check_batch(bases, offsets)

        def measure(start: int, stop: int) -> None:
            _measure(
                self._codes, self._starts, self._shift, bases, offsets, self._k, canonical,
                start, stop, events, depths,
            )  # fmt: skip

        run_ranges(measure, 0, bases.size, threads, grain=GRAIN, align=64)


@njit(cache=True, nogil=True)
def _fill_starts(codes, shift, starts):
    """Where the codes of each value of the upper bits begin, then the number of codes."""
    at = 0
    for upper in range(starts.size - 1):
        while at < codes.size and codes[at] >> shift < np.uint64(upper):
            at += 1
        starts[upper] = at
    starts[starts.size - 1] = codes.size


@inner
def _first_from(codes, starts, shift, code):
    """The number of smaller codes."""
    low = np.int64(starts[code >> shift])
    high = np.int64(starts[(code >> shift) + np.uint64(1)])
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _measure(codes, starts, shift, bases, offsets, k, canonical, start, stop, events, depths):
    """Depths of the windows that begin in [start, stop).

    The mismatched windows of a block take each step together, so that their cache misses overlap: a
    line of ``starts``, one of ``codes``, then the search.
    """
    one = np.uint64(1)
    spare = np.uint64(64 - 2 * k)
    state, block, positions = start_roll(offsets, np.uint64(start))
    end = np.uint64(min(stop + k - 1, bases.size))
    while state[0] < end:
        count = roll_block(bases, offsets, k, canonical, end, state, block, positions)
        missing = 0
        for j in range(count):
            at = positions[j]
            if events[at] == MATCH:
                depths[at] = k
            if events[at] == MISMATCH:
                prefetch_far(starts, block[j] >> shift)
                block[missing] = block[j]
                positions[missing] = at
                missing += 1
        for j in range(missing):
            prefetch_far(codes, np.uint64(starts[block[j] >> shift]))
        for j in range(missing):
            code = block[j]
            low = _first_from(codes, starts, shift, code)
            # the least difference has the most leading zeros: the longest common prefix
            apart = ~np.uint64(0)
            if low < codes.size:
                apart = min(apart, codes[low] ^ code)
            if low > 0:
                apart = min(apart, codes[low - 1] ^ code)
            same = np.uint64(0)
            if codes.size > 0:
                same = (np.uint64(leading_zeros(apart)) - spare) >> one
            depths[positions[j]] = same + one
