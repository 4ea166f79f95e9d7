"""Approximate string matching on the GPU: upload blocks of text, run kernels, fetch hits.

``bit-parallel`` is in ``bit_parallel``, the WsPASM paper's methods are in ``paper``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.asm import bit_parallel, paper
from gpu.asm.bit_parallel import (
    Listed,
    Masks,
    SlicedPatterns,
    SlicedText,
    TooManyHitsError,
    fetch_hits,
    scan,
    send_packed,
)
from gpu.card.intrinsics import context_looked_up_once, cuda
from gpu.card.memory import Workspace, free_memory
from trie.codes import encode
from trie.cpu.threads import split_range

METHODS = ("bit-parallel", *paper.METHODS)

BLOCK_SIZES = {"bit-parallel": 1 << 28, **dict.fromkeys(paper.METHODS, 1 << 24)}
"""Most symbols in a block."""

LEAST_BLOCK = 1 << 16  # symbols of the smallest block tried when memory is short
BATCH_BYTES = 8 << 30  # most device memory for the hits of concurrent searches
HIT_BYTES = 6

TEXT_BYTES = 24  # for 32 symbols of a text: packed, and as planes
GRID_Y = 65_535


class Searcher:
    """Searches blocks of text for patterns (sets of bases, uint8 each) by one of METHODS.

    sharing: searchers that use the GPU at the same time, this one included. block_size: symbols of
    a text that ``search`` has memory for. most_hits: a reasonable limit for it. Raises ValueError
    for a pattern that is too long for the method.
    """

    def __init__(self, patterns: Sequence[Masks], k: int, method: str, *, sharing: int = 1) -> None:
        self._longest = max(map(len, patterns))
        if method == "wspasm-shared" and self._longest > paper.LONGEST:
            raise ValueError(f"a pattern of {self._longest} letters, {paper.LONGEST} have room")
        self._patterns = patterns
        self._k = k
        self._method = method
        self._stream = cuda.stream()
        self._space = self._workspace()
        self._uploaded: dict[tuple[int, ...], SlicedPatterns] = {}
        self._alike = _alike(patterns)
        self._plan(free_memory() // sharing)

    def _workspace(self) -> Workspace:
        # the paper's methods use the default stream
        return Workspace(self._stream if self._method == "bit-parallel" else 0)

    def _plan(self, memory: int) -> None:
        """Divide that much GPU memory: a quarter for hits, the rest for text and bits."""
        self._memory = memory
        self.most_hits = max(1, memory // 4 // HIT_BYTES)
        if self._method == "bit-parallel":
            symbol = (TEXT_BYTES + self._word_bytes()) / 32
        else:
            symbol = paper.symbol_bytes(np.unique(np.concatenate(self._patterns)).size, self._k)
        most = int(memory // 4 * 3 / symbol)
        self.block_size = max(LEAST_BLOCK, min(BLOCK_SIZES[self._method], most))

    def smaller(self) -> bool:
        """Free the GPU's memory and plan with half of it; False if that is too little."""
        self._space = self._workspace()
        self._uploaded.clear()
        if self.block_size == LEAST_BLOCK:
            return False
        self._plan(min(self._memory // 2, free_memory()))
        return True

    def _word_bytes(self) -> float:
        """Bytes that a search needs for the 32 ends of a word."""
        # hits, digits, 5 bytes of counts per 4 ends; up to 4 words of differences between strips
        between = 16 if self._longest > bit_parallel.ROWS else 0
        return 4 * (1 + self._k.bit_length()) + 45 / 4 + between

    @context_looked_up_once
    def search(
        self, symbols: NDArray[np.uint8], lead: int, limit: int, *, letters: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Every end in (lead, n] with a distance <= k: ends, distances, numbers of patterns.

        symbols: uint8[n], codes (4 is a gap code) or ``letters``, n < 2**31. Grouped by search,
        ends ascending. Raises TooManyHitsError above ``limit``, InvalidBaseError for a letter that
        is not DNA.
        """
        parts = []
        text = self.upload(symbols, letters=letters)
        for numbers, listed in self.batches(text, symbols.size, lead, limit):
            ends, distances = fetch_hits(listed.ends, listed.distances, listed.total, self._stream)
            begins = listed.begins
            for i in np.flatnonzero(np.diff(begins)).tolist():
                hits = slice(begins[i], begins[i + 1])
                parts.append((numbers[i], ends[hits], distances[hits]))
        parts.sort(key=lambda part: part[0])
        owners = np.array([part[0] for part in parts], dtype=np.int32)
        if len(parts) == 1:
            _, ends, distances = parts[0]
            return ends, distances, np.broadcast_to(owners, ends.shape)
        return (
            np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part[2] for part in parts)]),
            np.repeat(owners, [part[1].size for part in parts]),
        )

    def upload(self, symbols: NDArray[np.uint8], *, letters: bool = False) -> Any:
        """A text on the GPU in the method's form, packed or codes; valid until the next call."""
        if self._method != "bit-parallel":
            return self._space.upload("codes", encode(symbols) if letters else symbols)
        packed = self._space.array("packed", bit_parallel.packed_words(symbols.size), np.uint32)
        send_packed(symbols, packed, self._stream, letters=letters)
        return packed

    def batches(
        self, text: Any, size: int, lead: int, limit: int
    ) -> Iterator[tuple[tuple[int, ...], Listed]]:
        """Numbers of patterns, and their hits on the GPU, valid until the next are produced.

        text: ``size`` symbols as returned by ``upload``. Otherwise as ``search``.
        """
        if self._method != "bit-parallel":
            yield from paper.by_rows(
                text, self._patterns, self._k, self._method, lead, limit, self._space
            )
            return
        searches = max(map(len, self._alike))
        sliced = SlicedText(text, size, self._longest + self._k, searches, self._space)
        room = self._memory // 4 * 3 - TEXT_BYTES * sliced.words
        most = int(min(BATCH_BYTES, room) // (self._word_bytes() * sliced.words))
        most = max(1, min(GRID_Y, most))
        for numbers in self._alike:
            for first, stop in split_range(0, len(numbers), -(-len(numbers) // most)):
                batch = tuple(numbers[first:stop])
                if batch not in self._uploaded:
                    self._uploaded[batch] = SlicedPatterns([self._patterns[i] for i in batch])
                hits = scan(sliced, self._uploaded[batch], self._k, limit, lead, self._space)
                limit -= hits.total
                yield batch, hits


def _alike(patterns: Sequence[Masks]) -> list[list[int]]:
    """Numbers of the patterns of one length, either all or none with plain bases only."""
    sizes = np.fromiter(map(len, patterns), np.int64, len(patterns))
    sets = np.bitwise_count(np.concatenate(patterns)) != 1
    kinds = 2 * sizes + np.logical_or.reduceat(sets, np.cumsum(sizes) - sizes)
    order = np.argsort(kinds, kind="stable")
    cuts = np.flatnonzero(np.diff(kinds[order])) + 1
    return [group.tolist() for group in np.split(order, cuts)]


__all__ = ["METHODS", "Searcher", "TooManyHitsError"]
