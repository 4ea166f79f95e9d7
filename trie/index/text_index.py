"""Which windows of reads occur in a reference text: the index of a dictionary that never changes.

It keeps the text (0.75 bytes a base), a filter of its m-mers (1.25) and where its minimizers occur
(2 bytes at k = 31, 4 at k = 21); a hash table of its k-mers takes 13. Matching looks up few windows
one by one: ``trie.index.text_match`` says which.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu.threads import run_ranges
from trie.index.mer_filter import mer_filter
from trie.index.mers import Mers, block_arrays, mer_length
from trie.index.minimizer_places import minimizer_places
from trie.index.reference_text import PAD, TextShape, padded, reference_text
from trie.index.text_match import match_range
from trie.windows import GRAIN, NO_SET, check_batch

MOST_SYMBOLS: Final = 1 << 30
"""Of a text: places in both orientations fit 32 bits."""

_NO_SETS = np.empty(0, dtype=np.uint32)


class IndexShape(NamedTuple):
    """The numbers of an index, as kernels take them. shift, key_shift: of ``Places``."""

    k: int
    mers: Mers
    text: TextShape
    shift: np.uint64
    key_shift: np.uint64


class TextIndex:
    """The k-mers of a text: ``codes`` uint8[n] are base codes, with gap codes between its records.

    sets: uint32[n], the set of the k-mer that begins at each symbol, if matches shall have sets.
    canonical: a k-mer and its reverse complement are one. ValueError unless ``fits``.
    """

    def __init__(
        self,
        codes: NDArray[np.uint8],
        k: int,
        *,
        canonical: bool,
        sets: NDArray[np.uint32] | None = None,
        threads: int = 1,
    ) -> None:
        if not self.fits(k, codes.size):
            message = f"a text of {codes.size} symbols needs another index for k = {k}"
            raise ValueError(message)
        mers = Mers.of(k, mer_length(k, codes.size), canonical=canonical)
        half = padded(codes)
        text, text_shape = reference_text(half, canonical=canonical)
        places = minimizer_places(half, text_shape.size, k, mers, threads)
        by_place = _NO_SETS
        if sets is not None:
            by_place = np.full(half.size, NO_SET, dtype=np.uint32)
            by_place[PAD : PAD + codes.size] = sets
        self._shape = IndexShape(k, mers, text_shape, places.shift, places.key_shift)
        tables = places.entries, places.keys, places.places
        self._arrays = (text, mer_filter(half, mers), *tables, by_place)

    @staticmethod
    def fits(k: int, symbols: int) -> bool:
        """Whether there is such an index for a text of that many symbols."""
        return symbols <= MOST_SYMBOLS and mer_length(k, symbols) > 0

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
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Where the windows of a batch start, and which of them occur in the text.

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Both results are uint32, bit s % 32 of
        word s / 32 for symbol s. ``sets`` uint32[total], if given, receives the set of each match
        and stays as it is elsewhere. Raises BatchShapeError for invalid offsets.
        """
        bases, offsets = check_batch(bases, offsets)
        # two words at least: events are read eight bytes at a time
        words = max(-(-bases.size // 32), 2)
        starts, matches = np.zeros(words, np.uint32), np.zeros(words, np.uint32)
        out = _NO_SETS if sets is None else sets

        def match(start: int, stop: int) -> None:
            match_range(
                self._shape, *self._arrays, bases, offsets, start, stop, starts, matches, out,
                *block_arrays(),
            )  # fmt: skip

        run_ranges(match, 0, bases.size, threads, grain=GRAIN, align=64)
        return starts, matches
