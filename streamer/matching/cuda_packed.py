"""Match packed batches against a fixed dictionary on CUDA devices, if only matches are wanted.

    letters, as they come ──pack, one thread a batch──▶ 2 bits a base, a bit a window ──┐
    codes ──pack, on threads──────────────────────────▶ ...                            ├─▶ a chunk
    ...                                                                                ┘
    a bit a window ◀── a chunk

Batches begin and are cut at word boundaries only, so a batch's bits are words of the chunk's:
nothing is shifted, and no byte per symbol is written. The words of all batches lie in one array, a
chunk's in a row, so each chunk is copied out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu.card.packing import (
    MAX_SYMBOLS,
    PackedChunk,
    PackedParts,
    Segment,
    pack_chunk,
    pack_letters,
    packed_sizes,
)
from gpu.exact import ChunkFound, ChunkPiece, Pipeline
from gpu.exact.expand import copy_into
from streamer.matching.events import Events
from streamer.matching.together import pack_together
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import BadReadError, Letters, RawReads, ReadBatch
from trie.codes import InvalidBaseError, encode
from trie.cpu import array_pool
from trie.packed_codes import reverse_codes

# chunk lengths are multiples of this
_STEP = 1 << 19
# threads that pack batches: each does 3 GB a second
PACKERS = 3
# least symbols of a chunk worth another GPU
_PER_CARD = 1 << 22
# symbols worth another chunk for the same GPU, which matches them in the time of a chunk's calls
_PER_ROUND = 1 << 24
# chunks for a GPU from which further ones would not overlap more
_ROUNDS = 4
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
        # of all batches, one after the other, as the chunks find them
        matches = array_pool.empty(sum(map(_words, batches)), np.uint32)
        waiting: deque[PackedChunk] = deque()
        done = 0
        copied_out = partial(self._copied_out, matches)
        for found in self._engine.map(copied_out, self._pieces(batches, snapshot, waiting)):
            while waiting and done + waiting[0].starts.size <= found:
                packed = waiting.popleft()
                first, done = done, done + packed.starts.size
                yield Events(packed.symbols, bits=(packed.starts, matches[first:done]))

    def _copied_out(self, matches: NDArray[np.uint32], found: ChunkFound) -> int:
        """Copy a result to its place in ``matches``; returns where it ends."""
        first, stop = found.piece.tag
        copy_into(matches[first:stop], found.matches[: stop - first], self._engine.threads)
        return int(stop)

    def _pieces(
        self,
        batches: Sequence[ReadBatch],
        snapshot: Callable[[], VersionedSnapshot],
        waiting: deque[PackedChunk],
    ) -> Iterator[ChunkPiece]:
        """The chunks with their places among all words; ``waiting`` gets the packed batches."""
        parts: list[Segment] = []
        begin = end = 0
        left = room = self._shared_room(sum(map(_words, batches)))
        for batch in batches:
            packed = self._packed(batch)
            waiting.append(packed)
            words = packed.starts.size
            first = 0
            while True:
                # everything left, or as much as fits in addition to the ends of its windows
                stop = words if words - first <= left else first + left - 1
                if stop > first or words == 0:
                    parts.append(Segment(packed, first, stop))
                    left -= parts[-1].words
                    end += stop - first
                    first = stop
                if first == words:
                    break
                yield self._piece(parts, snapshot, (begin, end))
                parts, left, begin = [], room, end
        if parts:
            yield self._piece(parts, snapshot, (begin, end))

    def _shared_room(self, words: int) -> int:
        """Return the words per chunk: as many as fit, or fewer so that every GPU gets as many.

        Several chunks for each GPU overlap their transfers, but calls take as long for any chunk.
        """
        share = -(-words // len(self._engine.cards))
        # a cut takes one word
        rounds = max(-(-share // (self._room - 1)), min(32 * share // _PER_ROUND, _ROUNDS), 1)
        size = max(-(-share // rounds) + 1, _PER_CARD // 32)
        step = self._step // 32
        return min(-(-size // step) * step, self._room)

    def _piece(
        self,
        parts: list[Segment],
        snapshot: Callable[[], VersionedSnapshot],
        place: tuple[int, int],
    ) -> ChunkPiece:
        chunk = PackedParts(parts, self._step)
        return ChunkPiece(chunk, snapshot=snapshot, method=self._method, tag=place)

    def _packed(self, batch: ReadBatch) -> PackedChunk:
        if isinstance(batch, PackedReads):
            return batch.packed
        threads = min(self._threads, 1 + batch.symbols // _PER_THREAD)
        return pack_chunk(batch.bases, batch.offsets, self._engine.k, threads=threads)


def _words(batch: ReadBatch) -> int:
    """Words of a bit per symbol."""
    return packed_sizes(batch.symbols)[1]
