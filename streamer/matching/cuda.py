"""The engine on CUDA devices, as the matcher sees it. Import it only when a GPU is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.card.errors import translated_driver_errors
from gpu.exact import ChunkFound, ChunkPiece, CudaEngineError, Pipeline
from gpu.exact.chunk_match import TooManyWordNodesError
from gpu.exact.expand import copied, fill_events, mismatched, scatter_words
from gpu.exact.pipeline import MAX_CHUNK
from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import slice_reads
from streamer.matching.cuda_packed import PackedMatching
from streamer.matching.engine import LONG_SPAN, BatchArrays, PackedPath, Span, SpanFound
from streamer.matching.result import MATCH, MISMATCH
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch
from trie.snapshots.tree_bitmap import TreeBitmap

__all__ = ["LONGEST_CHUNK", "CudaEngine", "CudaEngineError"]

# pieces of a batch from which threads pack ahead, a piece each
STAGED_FROM = 8
# two words of 32 symbols, of which parts of packed batches are made
LEAST_CHUNK = 64
# with a span's other chunks it fits the buffers
LONGEST_CHUNK = MAX_CHUNK - LONG_SPAN


class CudaEngine:
    """Matches against ``dictionary`` on the cards of those numbers.

    kernel: ``auto`` and ``index`` take the fastest kernel on a frozen dictionary and the set of
    k-mers on a growing one; the others match the snapshot, and what it lacks is asked of the set.
    halvings: of the longest spans (``spans_of``), whose buffers then take less memory.
    Raises CudaEngineError with one line if a card fails or is too small.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        grows: bool,
        seeded: bool,
        kernel: str,
        with_sets: bool,
        chunk: int,
        streams: int,
        cards: Sequence[int],
        memory_bytes: int,
        threads: int,
        halvings: int = 0,
    ) -> None:
        self._k = dictionary.k
        self._threads = threads
        self._grows = grows
        self._method = "default" if kernel in ("auto", "index") else kernel
        # with a set of k-mers there is no need for the snapshot, unless its kernel is asked for
        in_set = grows or seeded
        self.walks = not in_set or self._method != "default"
        self._size = dictionary.codes.size
        self._chunk = max(chunk + max(1, LONG_SPAN >> halvings), LEAST_CHUNK)
        self._engine = Pipeline(
            self._k,
            dictionary.strands,
            chunk=self._chunk,
            streams=streams,
            cards=cards,
            memory_bytes=memory_bytes,
            threads=threads,
        )
        self._dictionary = dictionary
        self._has_set = in_set or with_sets
        if self._has_set:
            self._engine.load(dictionary.codes, dictionary.sets, growing=in_set)
        self.packed: PackedPath | None = None
        if not self._has_set:
            self.packed = PackedMatching(self._engine, self._method, threads)

    def __len__(self) -> int:
        return self._engine.kmers.known if self._has_set else self._size

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending."""
        if not self._has_set:
            return self._dictionary.codes
        with translated_driver_errors():
            return self._engine.kmers.codes()

    def prepare(self, held: VersionedSnapshot) -> None:
        """Send the snapshot of a fixed dictionary; CudaEngineError if it does not fit."""
        self._engine.prepare(held.tree, held.version, self._method)

    def close(self) -> None:
        """Give the memory on the cards back."""
        self._engine.close()

    def run(
        self,
        batch: ReadBatch,
        spans: Sequence[Span],
        position: int,
        arrays: BatchArrays,
        snapshot: Callable[[int], VersionedSnapshot] | None,
    ) -> Iterator[SpanFound]:
        """As ``MatchEngine.run``; with two streams a span is told while the next is matched."""
        try:
            pieces = self._pieces(batch, spans, position, arrays, snapshot)
            ahead = len(spans) >= STAGED_FROM and self._threads > 1
            for found in self._engine.run(pieces, ahead=ahead):
                yield self._told(found, arrays)
        except TooManyWordNodesError as error:
            raise CudaEngineError(str(error)) from error

    def _pieces(
        self,
        batch: ReadBatch,
        spans: Sequence[Span],
        position: int,
        arrays: BatchArrays,
        snapshot: Callable[[int], VersionedSnapshot] | None,
    ) -> Iterator[ChunkPiece]:
        seeded_before = False
        words = arrays.depths is not None
        for number, (seeding, chunks) in enumerate(spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            asks = snapshot is not None and (words or (self.walks and not seeding))
            yield ChunkPiece(
                batch.bases[start:stop],
                slice_reads(batch.offsets, start, stop),
                position + start,
                grow=seeding or self._grows,
                snapshot=_both(snapshot, number) if asks and snapshot is not None else None,
                method=self._method,
                words=words,
                sets=arrays.sets is not None,
                settled=seeded_before and not seeding,
                tag=(seeding, chunks),
            )
            seeded_before = seeding

    def _told(self, found: ChunkFound, arrays: BatchArrays) -> SpanFound:
        """Copy a result out of the engine's buffers into the arrays of the batch."""
        seeding, chunks = found.piece.tag
        start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
        events = arrays.events[start:stop]
        fill_events(found.starts, found.matches, events, self._threads)
        if seeding:
            events[events == MISMATCH] = MATCH
        if found.sets is not None and arrays.sets is not None:
            np.copyto(arrays.sets[start:stop], found.sets)
        if found.words is not None and arrays.depths is not None and arrays.nodes is not None:
            depths = arrays.depths[start:stop]
            scatter_words(found.words, depths, arrays.nodes[start:stop], self._threads)
            depths[events == MATCH] = self._k
        if found.codes is None or found.ordered is None:
            return SpanFound(seeding, chunks, found.version)
        return SpanFound(
            seeding,
            chunks,
            found.version,
            copied(found.codes, self._threads),
            mismatched(found.starts, found.matches, start, self._threads),
            copied(found.ordered, self._threads),
        )


def _both(
    snapshot: Callable[[int], VersionedSnapshot], number: int
) -> Callable[[], tuple[TreeBitmap, int]]:
    def ask() -> tuple[TreeBitmap, int]:
        held = snapshot(number)
        return held.tree, held.version

    return ask
