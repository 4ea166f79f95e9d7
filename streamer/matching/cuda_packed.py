"""Batches that were packed as they came, against a fixed dictionary on CUDA devices.

    letters ──pack, one thread a batch──▶ 2 bits a base, a bit a window ──┐
    letters ──pack──▶ ...                                                ├─ side by side ─▶ a chunk
    letters ──pack──▶ ...                                                ┘
    a bit a window ◀── a chunk

No batch ends within a word, so that its bits are words of the chunk's: nothing is shifted, and
nothing of a byte a symbol is written. Import it only when a GPU is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.engine import Engine, Piece
from gpu.packing import PARTS_STEP, PackedChunk, PackedParts, aligned, pack_letters
from streamer.matching.events import Events
from streamer.matching.packed import Letters, PackedReads
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.reads import BadReadError
from trie.codes import InvalidBaseError
from trie.tree_bitmap import TreeBitmap


class PackedMatching:
    """Matches with ``engine``, whose chunks have at most ``chunk`` symbols, by that kernel."""

    def __init__(self, engine: Engine, chunk: int, method: str) -> None:
        self._engine = engine
        self._chunk = chunk
        self._method = method

    def pack(
        self, names: Sequence[str], offsets: NDArray[np.int64], letters: Letters
    ) -> PackedReads:
        """A batch from its joined letters; from any thread. BadReadError names the first bad read.

        The letters must stay as they are.
        """
        try:
            packed = pack_letters(letters, offsets, self._engine.k)
        except InvalidBaseError as error:
            raise BadReadError.at(offsets, error) from None
        return PackedReads(names, offsets, letters, packed)

    def fits(self, batch: PackedReads) -> bool:
        """Whether it is no longer than a chunk."""
        return aligned(batch.packed) + PARTS_STEP <= self._chunk

    def match(
        self, batches: Sequence[PackedReads], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Events]:
        """What happened in each of the batches, which must all fit."""
        for found in self._engine.run(self._pieces(batches, snapshot)):
            at = 0
            for part in found.piece.tag:
                words = part.starts.size
                matches = found.matches[at : at + words].copy()
                yield Events(part.symbols, bits=(part.starts, matches))
                at += words

    def _pieces(
        self, batches: Sequence[PackedReads], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Piece]:
        def seen() -> tuple[TreeBitmap, int]:
            held = snapshot()
            return held.tree, held.version

        parts: list[PackedChunk] = []
        symbols = 0
        for number, batch in enumerate(batches, 1):
            parts.append(batch.packed)
            symbols += aligned(batch.packed)
            following = aligned(batches[number].packed) if number < len(batches) else self._chunk
            if symbols + following + PARTS_STEP > self._chunk:
                yield Piece(PackedParts(parts), snapshot=seen, method=self._method, tag=parts)
                parts, symbols = [], 0
