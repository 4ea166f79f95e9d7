"""The methods on a CUDA device (gpu/asm) as engines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.asm import Searcher, TooManyHitsError
from streamer.batch.asm.found import NO_LIMIT, EndsFound, TooManyError, in_order
from streamer.batch.asm.patterns import Searches
from streamer.errors import UsageError


class Cuda:
    """Searches blocks of text for all patterns on the GPU."""

    def __init__(self, searches: Searches, method: str) -> None:
        try:
            self._searcher = Searcher(searches.masks, searches.k, method)
        except ValueError as error:
            message = f"the method '{method}': {error}"
            raise UsageError(message) from None

    @property
    def block_size(self) -> int:
        """Symbols of a block, so that what is on the GPU fits there."""
        return self._searcher.block_size

    def smaller(self) -> bool:
        """Free what is on the GPU and search smaller blocks; False if they are the smallest."""
        return self._searcher.smaller()

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> EndsFound:
        """Every end in (lead, n] with a distance <= k, in the order of rows."""
        return self._search(codes, lead, limit, letters=False)

    def search_letters(self, letters: NDArray[np.uint8], lead: int, limit: int) -> list[EndsFound]:
        """The same; InvalidBaseError where a letter is not of DNA."""
        return [self._search(letters, lead, limit, letters=True)]

    def _search(
        self, symbols: NDArray[np.uint8], lead: int, limit: int, *, letters: bool
    ) -> EndsFound:
        if symbols.size <= lead:
            return EndsFound(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        if limit < NO_LIMIT:
            limit = min(limit, self._searcher.most_hits)
        try:
            found = self._searcher.search(symbols, lead, limit, letters=letters)
        except TooManyHitsError:
            raise TooManyError from None
        return in_order(EndsFound(*found), lead, symbols.size)
