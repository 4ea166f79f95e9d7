"""Match packed batches against a fixed dictionary on CUDA devices, if only matches are wanted.

    letters, as they come ──pack, one thread a batch──▶ 2 bits a base, a bit a window ──┐
    codes ──pack, on threads──────────────────────────▶ ...                            ├─▶ a chunk
    ...                                                                                ┘
    a bit a window ◀── a chunk

Batches begin and are cut at word boundaries only, so a batch's bits are words of the chunk's:
nothing is shifted, and no byte per symbol is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.card.letters import pack_letters
from gpu.card.packing import MAX_SYMBOLS, PackedChunk, PackedParts, Segment, pack_chunk
from gpu.exact import ChunkPiece, Pipeline
from gpu.exact.expand import copy_range
from streamer.matching.events import Events
from streamer.matching.together import pack_together
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import BadReadError, Letters, RawReads, ReadBatch
from trie.codes import InvalidBaseError, encode
from trie.packed_codes import reverse_codes

# chunk lengths are multiples of this
_STEP = 1 << 19
# threads that pack batches: each does 3 GB a second
PACKERS = 3
# least symbols of a chunk worth another GPU
_PER_CARD = 1 << 22
# symbols worth another thread
_PER_THREAD = 1 << 21
_NO_GAPS = np.zeros(0, np.int64)


class PackedReads(ReadBatch):
    """Reads as sent by a producer, in ``packed`` form too; base codes are made on demand.

    letters: bases and ambiguity codes only; they must not change.
    """

    __slots__ = ("_codes", "letters", "packed")

    packed: PackedChunk
    letters: Letters
    _codes: NDArray[np.uint8] | None

    def __init__(
        self,
        names: Sequence[str],
        offsets: NDArray[np.int64],
        letters: Letters,
        packed: PackedChunk,
    ) -> None:
        values = (names, offsets, letters, packed, None, None)
        fields = ("names", "offsets", "letters", "packed", "_codes", "context")
        for name, value in zip(fields, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def bases(self) -> NDArray[np.uint8]:
        """uint8 base codes of all reads, one after the other."""
        if self._codes is None:
            object.__setattr__(self, "_codes", encode(self.letters))
        assert self._codes is not None
        return self._codes

    def two_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Like ``ReadBatch.two_bits``, from the packed form."""
        if self.packed.gaps:
            return super().two_bits()
        words = np.empty((self.symbols + 15) // 16, np.uint32)
        reverse_codes(self.packed.bases, words)
        return words.astype("<u4", copy=False).view(np.uint8)[: (self.symbols + 3) // 4], _NO_GAPS


class PackedMatching:
    """Matches with ``engine`` and the kernel ``method``; packs on up to ``threads`` threads."""

    longest = MAX_SYMBOLS

    def __init__(self, engine: Pipeline, method: str, threads: int) -> None:
        self._engine = engine
        self._method = method
        self._threads = threads
        # a segment of one word that is cut takes two
        self._step = min(_STEP, engine.chunk // 64 * 32)
        assert self._step, "chunks of at least 64 symbols"
        self._room = engine.chunk // self._step * self._step // 32

    def pack(
        self, names: Sequence[str], offsets: NDArray[np.int64], letters: Letters
    ) -> PackedReads:
        """Make a batch from its joined letters; BadReadError names the first bad read. Thread-safe.

        The letters must not change.
        """
        try:
            packed = pack_letters(letters, offsets, self._engine.k)
        except InvalidBaseError as error:
            raise BadReadError.at(offsets, error) from None
        return PackedReads(names, offsets, letters, packed)

    def pack_together(
        self, batches: Sequence[RawReads], sums: NDArray[np.uint32]
    ) -> list[PackedReads | None]:
        """Pack several batches in one step, as ``pack`` does; None instead of errors.

        sums: uint32, a CRC-32C for each batch, continued over its letters.
        """
        threads = min(PACKERS, self._threads // 4)
        packed = pack_together(batches, sums, self._engine.k, threads)
        return [
            None if chunk is None else PackedReads(*batch, chunk)
            for batch, chunk in zip(batches, packed, strict=True)
        ]

    def match(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Events]:
        """Return the events of each batch, in order."""
        cut: list[NDArray[np.uint32]] = []
        for found in self._engine.run(self._pieces(batches, snapshot)):
            # copy everything out of the engine's buffer at once
            bits = np.empty(sum(segment.words for segment in found.piece.tag), np.uint32)
            copy_range(found.matches, 0, bits.size, bits)
            at = 0
            for segment in found.piece.tag:
                chunk, own = segment.chunk, segment.stop - segment.first
                matches = bits[at : at + own]
                at += segment.words
                if own < chunk.starts.size:
                    cut.append(matches)
                if segment.stop == chunk.starts.size:
                    if cut:
                        matches, cut = np.concatenate(cut), []
                    yield Events(chunk.symbols, bits=(chunk.starts, matches))

    def _pieces(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[ChunkPiece]:
        parts: list[Segment] = []
        left = room = self._shared_room(batches)
        for batch in batches:
            packed = self._packed(batch)
            words = packed.starts.size
            first = 0
            while True:
                # everything left, or as much as fits in addition to the ends of its windows
                stop = words if words - first <= left else first + left - 1
                if stop > first or words == 0:
                    parts.append(Segment(packed, first, stop))
                    left -= parts[-1].words
                    first = stop
                if first == words:
                    break
                yield self._piece(parts, snapshot)
                parts, left = [], room
        if parts:
            yield self._piece(parts, snapshot)

    def _shared_room(self, batches: Sequence[ReadBatch]) -> int:
        """Return the words per chunk: as many as fit, or fewer so that every GPU gets some."""
        cards = len(self._engine.cards)
        if cards == 1:
            return self._room
        share = -(-sum(batch.symbols for batch in batches) // cards)
        steps = -(-max(share, _PER_CARD) // self._step)
        return min(self._room, steps * self._step // 32)

    def _piece(self, parts: list[Segment], snapshot: Callable[[], VersionedSnapshot]) -> ChunkPiece:
        chunk = PackedParts(parts, self._step)
        return ChunkPiece(chunk, snapshot=snapshot, method=self._method, tag=parts)

    def _packed(self, batch: ReadBatch) -> PackedChunk:
        if isinstance(batch, PackedReads):
            return batch.packed
        threads = min(self._threads, 1 + batch.symbols // _PER_THREAD)
        return pack_chunk(batch.bases, batch.offsets, self._engine.k, threads=threads)
