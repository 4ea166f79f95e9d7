"""Which windows of reads occur in a reference text: the index of a dictionary that never changes.

It keeps the text (0.75 bytes per base), a filter of its m-mers (1.25) and the places of its
minimizers (2 bytes at k = 31, 4 at k = 21); a hash table of its k-mers takes 13. Matching looks up
few windows one by one (``trie.index.text_match``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.threads import run_ranges
from trie.index.mer_filter import mer_filter
from trie.index.mers import BLOCK, Mers, block_arrays, mer_length
from trie.index.minimizer_places import minimizer_places
from trie.index.reference_text import TextShape, reference_text
from trie.index.text_match import match_range
from trie.windows import check_batch

MOST_SYMBOLS: Final = 1 << 30
"""Most symbols of a text: places in both orientations must fit 32 bits."""

MOST_REPEATS: Final = 4
LEAST_SYMBOLS: Final = 1 << 20

# symbols worth a thread: they take 0.5 ms, and handing over the GIL 0.1 ms
_GRAIN: Final = 1 << 17

# at most, in most batches; others take more than one step
_SYMBOLS_PER_RUN = 32

_NO_SETS = np.empty(0, dtype=np.uint32)
_NO_RUNS = np.empty((0, 4), dtype=np.int64)


class IndexShape(NamedTuple):
    """The parameters of an index, as kernels take them.

    half: symbols of the text without its reverse complement. shift, key_shift: of ``Places``.
    """

    k: int
    mers: Mers
    text: TextShape
    half: int
    shift: np.uint64
    key_shift: np.uint64


class TextIndex:
    """The index of a text with ``kmers`` distinct k-mers; ``half``: its ``padded`` base codes.

    sets: uint32[half], the set of the k-mer that begins at each symbol, if matches need sets.
    canonical: a k-mer and its reverse complement are the same. ValueError unless ``fits``.
    """

    def __init__(
        self,
        half: NDArray[np.uint8],
        k: int,
        kmers: int,
        *,
        canonical: bool,
        sets: NDArray[np.uint32] | None = None,
        threads: int = 1,
    ) -> None:
        if not self.fits(k, half.size, kmers):
            message = f"a text of {half.size} symbols and {kmers} {k}-mers needs another index"
            raise ValueError(message)
        mers = Mers.of(k, mer_length(k, kmers), canonical=canonical)
        text, text_shape = reference_text(half, canonical=canonical)
        places = minimizer_places(half, text_shape.size, k, mers, threads)
        tables = places.entries, places.keys, places.places
        by_place = _NO_SETS if sets is None else sets
        self._shape = IndexShape(k, mers, text_shape, half.size, places.shift, places.key_shift)
        self._arrays = (text, mer_filter(half, mers, kmers), *tables, by_place)

    @staticmethod
    def fits(k: int, symbols: int, kmers: int) -> bool:
        """Whether a text of that size can have such an index, and it is useful.

        A text that repeats itself many times has only frequent minimizers.
        """
        least = symbols // MOST_REPEATS - LEAST_SYMBOLS
        return symbols <= MOST_SYMBOLS and kmers >= least and mer_length(k, kmers) > 0

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the index."""
        return sum(array.nbytes for array in self._arrays)

    def match(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        threads: int = 1,
        sets: NDArray[np.uint32] | None = None,
        runs: list[NDArray[np.int64]] | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The starts of the windows of a batch, and which windows occur in the text.

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Both results are uint32, bit s % 32 of
        word s / 32 for symbol s. ``sets`` uint32[total], if given, receives the set of each match
        and stays unchanged elsewhere. Raises BatchShapeError for invalid offsets.

        ``runs``, if given, receives arrays int64[n, 4] that hold every match once: first window,
        one past the last, place of the first one's k-mer in ``half``, and 1 if the places of the
        next ones ascend, -1 if they descend (the read has the other strand).
        """
        bases, offsets = check_batch(bases, offsets)
        # two words at least: events are read eight bytes at a time
        words = max(-(-bases.size // 32), 2)
        starts, matches = (array_pool.empty(words, np.uint32) for _ in range(2))
        starts[-2:] = matches[-2:] = 0  # they may lie beyond the symbols
        out = _NO_SETS if sets is None else sets

        def match(start: int, stop: int) -> None:
            found = _NO_RUNS
            if runs is not None:
                rows = 2 * BLOCK + (stop - start) // _SYMBOLS_PER_RUN
                found = array_pool.empty(4 * rows, np.int64).reshape(rows, 4)
            while start < stop:
                start, count = match_range(
                    self._shape, *self._arrays, bases, offsets, start, stop, starts, matches, out,
                    found, *block_arrays(),
                )  # fmt: skip
                if runs is not None and count:
                    runs.append(found[:count].copy())

        run_ranges(match, 0, bases.size, threads, grain=_GRAIN, align=64)
        return starts, matches
