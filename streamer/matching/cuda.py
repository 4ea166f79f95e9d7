"""The matcher's engine on CUDA devices. Import it only when a GPU is requested."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import translated_driver_errors
from gpu.exact import ChunkFound, ChunkPiece, CudaEngineError, Pipeline
from gpu.exact.chunk_match import TooManyWordNodesError
from gpu.exact.expand import copied, fill_events, mismatched, scatter_words
from gpu.exact.pipeline import MAX_CHUNK
from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import LONG_SPAN, slice_reads
from streamer.matching.cuda_packed import PackedMatching
from streamer.matching.match_engine import MatchEngine, MatchTask, SpanFound
from streamer.matching.spec import MatchSpec
from streamer.matching.tree_worker import VersionedSnapshot
from trie.windows import MATCH, MISMATCH

__all__ = ["LONGEST_CHUNK", "CudaEngine", "CudaEngineError"]

# number of pieces of a batch from which threads pack them ahead, one each
STAGED_FROM = 8
# two words of 32 symbols: parts of packed batches are made of words
LEAST_CHUNK = 64
# packed chunks take little memory, and calls from Python as long as for short ones
PACKED_SPANS = 4
# fits the buffers together with the other chunks of its span
LONGEST_CHUNK = MAX_CHUNK - LONG_SPAN


class CudaEngine(MatchEngine):
    """Matches against ``dictionary`` on the GPUs numbered ``spec.cards``.

    The kernel ``auto`` or ``index`` is the fastest: it uses an index of a frozen dictionary, or the
    set of k-mers of a growing one. The others match the snapshot and look up what it lacks in the
    set. halvings: how often to halve the longest spans (``spans_of``), to make buffers smaller.
    Raises CudaEngineError with one line if a GPU fails or has too little memory.
    """

    device = "cuda"

    def __init__(
        self,
        dictionary: Dictionary,
        spec: MatchSpec,
        *,
        with_sets: bool,
        chunk: int,
        threads: int,
        halvings: int = 0,
    ) -> None:
        self._k = dictionary.k
        self._threads = threads
        kernel = spec.exact_kernel
        self._method = "default" if kernel in ("auto", "index") else kernel
        # a set of k-mers makes the snapshot unnecessary, unless its kernel is requested
        self.walks = not spec.changes or self._method != "default"
        self._size = dictionary.codes.size
        self._chunk = max(chunk + max(1, LONG_SPAN >> halvings), LEAST_CHUNK)
        self._dictionary = dictionary
        self._has_set = spec.changes or with_sets
        packs = not self._has_set and spec.distance is None
        self._engine = Pipeline(
            self._k, dictionary.strands, streams=spec.streams, cards=spec.cards,
            chunk=PACKED_SPANS * self._chunk if packs else self._chunk,
            memory_bytes=spec.device_bytes, threads=threads,
        )  # fmt: skip
        if self._has_set:
            self._engine.load(dictionary.codes, dictionary.sets, growing=spec.changes)
        if packs:
            self.packed = PackedMatching(self._engine, self._method, threads)

    def __len__(self) -> int:
        return self._engine.kmers.known if self._has_set else self._size

    def codes(self) -> NDArray[np.uint64]:
        if not self._has_set:
            return self._dictionary.codes
        with translated_driver_errors():
            return self._engine.kmers.codes()

    def prepare(self, fixed: VersionedSnapshot) -> None:
        """Upload the snapshot of a fixed dictionary; raise CudaEngineError if it does not fit."""
        self._engine.prepare(fixed.tree, fixed.version, self._method)

    def close(self) -> None:
        """Free the memory on the GPUs."""
        self._engine.close()

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Like ``MatchEngine.run``; with two streams, a result comes while the next span runs."""
        try:
            ahead = len(task.spans) >= STAGED_FROM and self._threads > 1
            copied_out = partial(self._copied_out, task)
            yield from self._engine.map(copied_out, self._pieces(task), ahead=ahead)
        except TooManyWordNodesError as error:
            raise CudaEngineError(str(error)) from error

    def _pieces(self, task: MatchTask) -> Iterator[ChunkPiece]:
        seeded_before = False
        words = task.depths is not None
        for number, (seeding, chunks) in enumerate(task.spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            snapshot = None
            if task.snapshot is not None and (words or (self.walks and not seeding)):
                snapshot = partial(task.snapshot, number)
            yield ChunkPiece(
                task.batch.bases[start:stop],
                slice_reads(task.batch.offsets, start, stop),
                task.position + start,
                grow=seeding or task.grows,
                snapshot=snapshot,
                method=self._method,
                words=words,
                sets=task.sets is not None,
                settled=seeded_before and not seeding,
                tag=(seeding, chunks),
            )
            seeded_before = seeding

    def _copied_out(self, task: MatchTask, found: ChunkFound) -> SpanFound:
        """Copy a result out of the engine's buffers; called on the thread of its GPU."""
        threads = self._engine.threads
        seeding, chunks = found.piece.tag
        start = int(chunks[0, 0])
        # no window of this span starts later, but one of the next may: their threads share no byte
        stop = max(int(chunks[-1, 1]) - self._k + 1, start)
        events = task.events[start:stop]
        fill_events(found.starts, found.matches, events, threads)
        if seeding:
            events[events == MISMATCH] = MATCH
        if found.sets is not None and task.sets is not None:
            np.copyto(task.sets[start:stop], found.sets[: stop - start])
        if found.words is not None and task.depths is not None and task.nodes is not None:
            depths = task.depths[start:stop]
            scatter_words(found.words, depths, task.nodes[start:stop], threads)
            depths[events == MATCH] = self._k
        if found.codes is None or found.ordered is None:
            return SpanFound(seeding, chunks, found.version)
        return SpanFound(
            seeding,
            chunks,
            found.version,
            copied(found.codes, threads),
            mismatched(found.starts, found.matches, start, threads),
            copied(found.ordered, threads),
        )
