"""Chunks packed ahead of the engine, a thread a chunk, into a ring of pinned buffers.

Splitting one chunk over sixteen threads costs a millisecond to wake them, as long as the packing
itself; here each thread packs a chunk of its own, and the card fetches it from where it was packed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpu.engine.flight import Piece
from gpu.intrinsics import cuda
from gpu.packing import PackedChunk, pack_chunk, packed_sizes

Buffer = tuple[NDArray[np.uint32], NDArray[np.uint32]]


class Staging:
    """Packs up to ``threads`` chunks of at most ``max_symbols`` ahead; ``in_use`` beyond them."""

    def __init__(self, k: int, max_symbols: int, threads: int, in_use: int) -> None:
        self._k = k
        self._threads = threads
        base_words, start_words = packed_sizes(max_symbols)
        self._ring: list[Buffer] = [
            (cuda.pinned_array(base_words, np.uint32), cuda.pinned_array(start_words, np.uint32))
            for _ in range(threads + in_use)
        ]
        self._next = 0

    def packed(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces, packed in pinned memory.

        A buffer is used again once ``in_use`` more pieces have been asked for.
        """
        ahead: deque[tuple[Piece, Future[PackedChunk]]] = deque()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="pack") as pool:
            for piece in pieces:
                if len(ahead) == self._threads:
                    yield self._ready(*ahead.popleft())
                buffer = self._ring[self._next % len(self._ring)]
                self._next += 1
                ahead.append((piece, pool.submit(self._pack, piece, buffer)))
            while ahead:
                yield self._ready(*ahead.popleft())

    def _pack(self, piece: Piece, buffer: Buffer) -> PackedChunk:
        assert isinstance(piece.bases, np.ndarray)
        assert piece.offsets is not None
        return pack_chunk(
            piece.bases, piece.offsets, self._k, out_bases=buffer[0], out_starts=buffer[1]
        )

    @staticmethod
    def _ready(piece: Piece, packed: Future[PackedChunk]) -> Piece:
        return replace(piece, bases=packed.result(), offsets=None, pinned=True)
