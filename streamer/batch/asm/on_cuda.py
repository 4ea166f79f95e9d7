"""The methods on a CUDA device (gpu/asm) as engines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.asm import Searcher, TooManyHitsError
from streamer.batch.asm.found import Found, TooManyError, in_order
from streamer.batch.asm.patterns import Searches
from streamer.errors import UsageError

BLOCK_SIZES = {
    "bit-parallel": 1 << 28,
    "pasm": 1 << 24,
    "wspasm": 1 << 24,
    "wspasm-shared": 1 << 24,
}


class Cuda:
    """Searches blocks of text for all patterns on the card."""

    def __init__(self, searches: Searches, method: str) -> None:
        self.block_size = BLOCK_SIZES[method]
        try:
            self._searcher = Searcher(searches.masks, searches.k, method)
        except ValueError as error:
            message = f"the method '{method}': {error}"
            raise UsageError(message) from None

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> Found:
        """Every end in (lead, n] with a distance <= k, in the order of rows."""
        return self._search(codes, lead, limit, letters=False)

    def search_letters(self, letters: NDArray[np.uint8], lead: int, limit: int) -> list[Found]:
        """The same; InvalidBaseError where a letter is not of DNA."""
        return [self._search(letters, lead, limit, letters=True)]

    def _search(self, symbols: NDArray[np.uint8], lead: int, limit: int, *, letters: bool) -> Found:
        if symbols.size <= lead:
            return Found(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        try:
            found = self._searcher.search(symbols, lead, limit, letters=letters)
        except TooManyHitsError:
            raise TooManyError from None
        return in_order(Found(*found), lead, symbols.size)
