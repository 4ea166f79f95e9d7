"""Chunks packed ahead of the engine, some at once on each thread, into a ring of pinned buffers.

Splitting one chunk over sixteen threads costs a millisecond to wake them, as long as the packing
itself. Here a thread takes consecutive chunks of ``TOGETHER`` symbols or more: with every task that
is handed over, the thread that drives the card waits for the interpreter's lock, longer than a
chunk of few millions takes to pack. The card fetches chunks from where they were packed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.packing import pack_chunk, packed_sizes
from gpu.exact.flight import ChunkPiece

Buffer = tuple[NDArray[np.uint32], NDArray[np.uint32]]


TOGETHER = 1 << 24
"""Symbols that a thread packs before it tells ..."""

MOST = 16
"""... in so many chunks at most: pinning memory takes as long for a small buffer as for another."""


class ChunkStaging:
    """Packs chunks of at most ``max_symbols`` ahead on ``threads``; ``in_use`` beyond them."""

    def __init__(self, k: int, max_symbols: int, threads: int, in_use: int) -> None:
        self._k = k
        self._threads = threads
        self._each = min(max(1, TOGETHER // max_symbols), MOST)
        base_words, start_words = packed_sizes(max_symbols)
        self._ring: list[Buffer] = [
            (cuda.pinned_array(base_words, np.uint32), cuda.pinned_array(start_words, np.uint32))
            for _ in range(threads * self._each + in_use)
        ]
        self._next = 0

    def packed(self, pieces: Iterable[ChunkPiece]) -> Iterator[ChunkPiece]:
        """The same pieces, packed in pinned memory.

        A buffer is used again once ``in_use`` more pieces have been asked for.
        """
        ahead: deque[Future[list[ChunkPiece]]] = deque()
        waiting = iter(pieces)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="pack") as pool:
            while group := list(islice(waiting, self._each)):
                if len(ahead) == self._threads:
                    yield from ahead.popleft().result()
                ahead.append(pool.submit(self._pack_all, group, [self._buffer() for _ in group]))
            while ahead:
                yield from ahead.popleft().result()

    def _buffer(self) -> Buffer:
        self._next += 1
        return self._ring[self._next % len(self._ring)]

    def _pack_all(self, pieces: list[ChunkPiece], buffers: list[Buffer]) -> list[ChunkPiece]:
        return [self._pack(*pair) for pair in zip(pieces, buffers, strict=True)]

    def _pack(self, piece: ChunkPiece, buffer: Buffer) -> ChunkPiece:
        assert isinstance(piece.bases, np.ndarray)
        assert piece.offsets is not None
        chunk = pack_chunk(
            piece.bases, piece.offsets, self._k, out_bases=buffer[0], out_starts=buffer[1]
        )
        return replace(piece, bases=chunk, offsets=None, pinned=True)
