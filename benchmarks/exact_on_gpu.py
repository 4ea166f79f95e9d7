"""Exact matching on a GPU: kernels, the engine with transfers, growing, the thesis's experiment.

Kernels are measured by CUDA events in GPU memory, the engine by wall time from host memory to host
memory, all after a first run for compilation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Codes, batch_of, half_hit, random_codes
from benchmarks.suite import Row, Sheet
from benchmarks.timing import (
    Activity,
    Timeline,
    least_seconds,
    median_on_gpu,
    timeline_milliseconds,
)
from gpu.card.intrinsics import cuda
from gpu.card.packing import PackedChunk, pack_chunk
from gpu.exact import ChunkFound, ChunkPiece, Pipeline
from gpu.exact.chunk_match import ChunkBuffers, launch
from gpu.exact.device_tree import DeviceTree
from gpu.exact.expand import copied
from streamer.dictionary.targets import Dictionary
from streamer.matching.match_engine import NO_CODES, chunk_bounds, slice_reads
from streamer.matching.matcher import StreamMatcher
from streamer.matching.tree_worker import TreeWorker
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.threads import usable_cores
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands
from trie.trees.hybrid_tree import snapshot
from trie.windows import window_codes

KS = (6, 9, 12, 15, 21, 31)
CANONICAL_KS = (15, 31)
THESIS = (1_000_000, 15, 100_000)
"""Random bases, k and chunk of thesis 3.4.3 (Fig. 40, 41)."""

NAIVE_THESIS = (50_000, 15, 5_000)


def tables(kmers: int) -> list[Sheet]:
    """Tables with dictionaries of ``kmers`` k-mers."""
    engine = partial(frozen, kmers, 25 * kmers)
    chunks = (1 << 20, 1 << 22, 1 << 24)
    return [
        Sheet("Kernels, data in GPU memory", kernels, kmers, 12 * kmers),
        Sheet("Engine, host memory to host results", engine, KS, chunks[-1:], (2,)),
        Sheet("The same by chunk and streams", engine, (15,), chunks, (1, 2)),
        Sheet("Growing from empty, and saturated", growing, 20 * kmers),
        Sheet("Where the time of growing goes", growing_stages, 20 * kmers),
        Sheet("The thesis's experiment (3.4.3)", thesis),
        Sheet("Where its time goes", thesis_stages),
        Sheet("The same, naive kernel, a twentieth", thesis, ("naive",), NAIVE_THESIS),
    ]


def random_read(total: int, seed: int) -> ReadBatch:
    """One read of random bases."""
    return batch_of(random_codes(total, seed), np.array([0, total], dtype=np.int64))


def kmers_of(text: Codes, k: int, canonical: bool) -> NDArray[np.uint64]:
    """The k-mers of a text, each once, ascending."""
    codes, _ = window_codes(text, np.array([0, text.size]), k, canonical=canonical)
    return np.unique(codes)


def pieces_of(
    batch: ReadBatch, k: int, chunk: int, origin: int = 0, **options: Any
) -> Iterator[ChunkPiece]:
    """The chunks, for an engine, of a batch that begins at ``origin`` in the stream."""
    for start, stop in chunk_bounds(batch.offsets, k, chunk).tolist():
        offsets = slice_reads(batch.offsets, start, stop)
        yield ChunkPiece(batch.bases[start:stop], offsets, origin + start, **options)


def kernels(kmers: int, total: int, ks: Sequence[int] = KS) -> Iterator[Row]:
    """Kernels side by side: with a bit for each window, and also with event words."""
    text = random_codes(kmers + max(ks) - 1, 1)
    batch = half_hit(text, total, 11)
    cases: list[tuple[int, Strands]] = [(k, "forward") for k in ks]
    for k, strands in [*cases, *((k, "canonical") for k in CANONICAL_KS)]:
        codes = kmers_of(text, k, strands == "canonical")
        tree = DeviceTree(snapshot(codes, k), with_buckets=True)
        packed = pack_chunk(batch.bases, batch.offsets, k, threads=usable_cores())
        buffers = ChunkBuffers(packed.symbols, word_capacity=packed.symbols)
        buffers.bases.copy_to_device(packed.bases)
        buffers.starts.copy_to_device(packed.starts)
        for method in ("buckets", "walk", "shuffle"):
            for words in (False, True)[: 1 if method == "buckets" else 2]:
                seconds = median_on_gpu(
                    partial(
                        launch, tree, buffers, packed.symbols, method=method, strands=strands,
                        with_words=words,
                    )
                )  # fmt: skip
                yield {
                    "k": k, "strands": strands, "kernel": method + (", words" if words else ""),
                    "ms": 1e3 * seconds, "windows/s": packed.windows() / seconds,
                }  # fmt: skip


def frozen(
    kmers: int, total: int, ks: Sequence[int], chunks: Sequence[int], streams: Sequence[int]
) -> Iterator[Row]:
    """Host memory to host results: bits, then also a byte for each window; canonical."""
    threads = usable_cores()
    text = random_codes(kmers + max(ks) - 1, 1)
    batch = half_hit(text, total, 11)
    for k in ks:
        tree = snapshot(kmers_of(text, k, True), k)
        packing = partial(pack_chunk, batch.bases, batch.offsets, k, threads=threads)
        yield _rate(k, "packing alone", 0, total, packing)
        for chunk in chunks:
            for number in streams:
                with closing(
                    Pipeline(k, "canonical", chunk=chunk, streams=number, threads=threads)
                ) as engine:
                    runs = ways_in(engine, batch, k, chunk, tree)
                    for what, run in runs.items():
                        name = f"{what}, {number} stream{'s' if number > 1 else ''}"
                        yield _rate(k, name, chunk, total, run)


def _rate(k: int, what: str, chunk: int, total: int, run: Callable[[], object]) -> Row:
    seconds = least_seconds(run, 12)  # some take a millisecond
    return {"k": k, "what": what, "chunk": chunk, "s": seconds, "bases/s": total / seconds}


def ways_in(
    engine: Pipeline, batch: ReadBatch, k: int, chunk: int, tree: TreeBitmap
) -> dict[str, Callable[[], object]]:
    """The same chunks as bytes and packed, from ordinary and from pinned memory."""

    def latest() -> tuple[TreeBitmap, int]:
        return tree, 1

    pieces = partial(pieces_of, batch, k, chunk, snapshot=latest)
    packed = [ChunkPiece(pack_chunk(p.bases, p.offsets, k), snapshot=latest) for p in pieces()]  # type: ignore[arg-type]
    pinned = [ChunkPiece(in_pinned_memory(p.bases), snapshot=latest, pinned=True) for p in packed]
    return {
        "bytes to bits": lambda: _run_all(engine, pieces()),
        "bytes, packed ahead, to bits": lambda: _run_all(engine, pieces(), ahead=True),
        "packed to bits": lambda: _run_all(engine, packed),
        "packed, pinned to bits": lambda: _run_all(engine, pinned),
    }


def in_pinned_memory(chunk: Any) -> PackedChunk:
    """A copy of a packed chunk from which the GPU can fetch it."""
    arrays = []
    for array in (chunk.bases, chunk.starts):
        arrays.append(cuda.pinned_array(array.size, np.uint32))
        arrays[-1][:] = array
    return PackedChunk(chunk.k, chunk.symbols, *arrays)


def _run_all(engine: Pipeline, pieces: Any, *, ahead: bool = False) -> int:
    """Run all chunks; returns the new k-mers."""

    def take(found: ChunkFound) -> int:
        return 0 if found.codes is None else found.codes.size

    return sum(engine.map(take, pieces, ahead=ahead))


def _empty_pipeline(k: int, strands: Any, chunk: int, streams: int = 2) -> Pipeline:
    """An engine whose dictionary grows from empty."""
    engine = Pipeline(k, strands, chunk=chunk, streams=streams, threads=usable_cores())
    engine.load(NO_CODES, np.zeros(0, np.uint32), growing=True)
    return engine


def growing(total: int) -> Iterator[Row]:
    """From empty to ``total`` random k-mers, while the Hybrid Tree Bitmap is merged; then again.

    The second pass over the same bases measures the saturated dictionary.
    """
    k, chunk, threads = 21, 1 << 24, usable_cores()
    batch = random_read(total, 5)
    _timeline_of(1 << 20, k, "canonical", 1 << 18, 2)  # compiles
    for with_tree in (False, True):
        with closing(_empty_pipeline(k, "canonical", chunk)) as engine:
            worker = TreeWorker(k, "canonical", NO_CODES, 1, threads) if with_tree else None
            begin = time.perf_counter()

            def take(found: ChunkFound, worker: TreeWorker | None = worker) -> int:
                assert found.codes is not None
                assert found.ordered is not None
                if worker is not None:
                    worker.add(copied(found.ordered, threads), ascending=True)
                return found.codes.size

            new = sum(engine.map(take, pieces_of(batch, k, chunk, grow=True)))
            took = time.perf_counter() - begin
            row: Row = {"k": k, "new k-mers": new, "tree": with_tree, "s": took}
            row["new/s"] = new / took
            begin = time.perf_counter()
            if worker is not None:
                worker.close()
            # the delay of the last k-mers, and the longest that any had to wait
            row["tree lag at the end s"] = time.perf_counter() - begin
            row["lag at most s"] = 0.0 if worker is None else worker.longest_lag

            def again(engine: Pipeline = engine) -> int:
                return _run_all(engine, pieces_of(batch, k, chunk, origin=total, grow=True))

            assert again() == 0
            row["saturated bases/s"] = total / least_seconds(again, 3, warm=False)
            row["table bytes"] = engine.kmers.nbytes
        yield row


def _timeline_of(total: int, k: int, strands: Any, chunk: int, streams: int) -> list[Activity]:
    """The timeline of a dictionary that grows from empty."""
    batch = random_read(total, 9)
    with closing(_empty_pipeline(k, strands, chunk, streams)) as engine:
        timeline = Timeline()
        with timeline.recording():
            _run_all(engine, pieces_of(batch, k, chunk, grow=True))
        return timeline.activities()


def growing_stages(total: int, k: int = 21, chunk: int = 1 << 24) -> Iterator[Row]:
    """Milliseconds of each stage of growing from empty."""
    spent = timeline_milliseconds(_timeline_of(total, k, "canonical", chunk, 2))
    yield {"k": k, "k-mers": total} | {f"{row} ms": ms for row, ms in spent.items()}


def thesis(
    kernels: Sequence[Any] = ("auto", "walk", "shuffle"), size: tuple[int, int, int] = THESIS
) -> Iterator[Row]:
    """The thesis's experiment: a tenth is the seed, the rest grows; serial and concurrent."""
    total, k, chunk = size
    batch = random_read(total, 9)
    for kernel in kernels:
        for streams in (1, 2):
            runs = [_thesis_run(batch, k, chunk, kernel, streams) for _ in range(4)]
            seconds, merged = min(runs[1:])
            yield {
                "bases": total, "kernel": kernel, "streams": streams, "ms": 1e3 * seconds,
                "ms, tree merged": 1e3 * merged,
            }  # fmt: skip


def _thesis_run(
    batch: ReadBatch, k: int, chunk: int, kernel: Any, streams: int
) -> tuple[float, float]:
    """Seconds until the last result, and until the tree has all k-mers."""
    matcher = StreamMatcher.of(
        Dictionary.empty(k, "forward"), mode="grow", seed_bases=chunk, kernel=kernel, chunk=chunk,
        track_tree=True, device="cuda", streams=streams, cards=(0,),
    )  # fmt: skip
    with closing(matcher):
        begin = time.perf_counter()
        matcher.match([batch])
        took = time.perf_counter() - begin
        matcher.latest_snapshot()
        return took, time.perf_counter() - begin


def thesis_stages(size: tuple[int, int, int] = THESIS) -> Iterator[Row]:
    """Milliseconds of each stage of the experiment's chunks, serial and concurrent."""
    total, k, chunk = size
    for streams in (1, 2):
        for _ in range(2):
            bars = _timeline_of(total, k, "forward", chunk, streams)
        span = max(bar.end for bar in bars) - min(bar.begin for bar in bars)
        spent = {f"{row} ms": ms for row, ms in timeline_milliseconds(bars).items()}
        yield {"streams": streams, "all ms": span} | spent
