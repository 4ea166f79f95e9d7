"""Measurements of exact matching on a CUDA device: kernels, the engine with transfers, growing.

Every function returns plain rows. Times are medians (kernels, by CUDA events) or the best of some
runs (engine, by the clock, host memory to host memory) after one run that compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.packing import PackedChunk, pack_chunk
from gpu.card.timeline import Activity
from gpu.exact import ChunkPiece, Pipeline, Timeline
from gpu.exact.chunk_match import ChunkBuffers, launch
from gpu.exact.device_tree import DeviceTree
from gpu.exact.expand import copied, fill_events
from streamer.bench.timing import least_seconds, median_on_card
from streamer.dictionary.targets import Dictionary
from streamer.matching import Matcher
from streamer.matching.chunks import chunk_bounds, slice_reads
from streamer.matching.tree_worker import TreeWorker
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.threads import usable_cores
from trie.snapshots.tree_bitmap import TreeBitmap, snapshot
from trie.windows import window_codes

Row = dict[str, Any]

KS = (6, 9, 12, 15, 21, 31)
THESIS = (1_000_000, 15, 100_000)
"""Random bases, k and chunk of thesis 3.4.3 (Fig. 40, 41)."""


def device_line() -> str:
    """The card and the versions that the figures depend on."""
    from importlib.metadata import PackageNotFoundError, version

    parts = []
    for name in ("numba-cuda", "cupy-cuda13x", "numpy"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    handle = cuda.get_current_device()
    name = handle.name.decode() if isinstance(handle.name, bytes) else str(handle.name)
    return f"{name}, {usable_cores()} host cores, " + ", ".join(parts)


def stream_of(text: NDArray[np.uint8], total: int, read: int = 1000) -> ReadBatch:
    """Reads of 1,000 bases, every other one from the text, the rest random."""
    rng = np.random.default_rng(11)
    reads = max(2, total // read)
    rows = rng.integers(0, 4, (reads, read), dtype=np.uint8)
    if text.size < read:
        text = np.resize(text, read)
    begins = rng.integers(0, text.size - read + 1, (reads + 1) // 2)
    rows[::2] = np.lib.stride_tricks.sliding_window_view(text, read)[begins]
    return _batch(rows.reshape(-1), np.arange(reads + 1, dtype=np.int64) * read)


def random_bases(total: int, seed: int) -> ReadBatch:
    """One read of random bases."""
    bases = np.random.default_rng(seed).integers(0, 4, total, dtype=np.uint8)
    return _batch(bases, np.array([0, total], dtype=np.int64))


def _batch(bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> ReadBatch:
    return ReadBatch([f"r{i}" for i in range(offsets.size - 1)], offsets, bases)


def _text(kmers: int, k: int) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 4, kmers + k - 1, dtype=np.uint8)


def _codes(text: NDArray[np.uint8], k: int, canonical: bool) -> NDArray[np.uint64]:
    codes, _ = window_codes(text, np.array([0, text.size]), k, canonical=canonical)
    return np.unique(codes)


def pieces_of(
    batch: ReadBatch, k: int, chunk: int, origin: int = 0, **options: Any
) -> Iterator[ChunkPiece]:
    """The chunks of a batch that begins at ``origin`` in the stream, for an engine."""
    for start, stop in chunk_bounds(batch.offsets, k, chunk).tolist():
        offsets = slice_reads(batch.offsets, start, stop)
        yield ChunkPiece(batch.bases[start:stop], offsets, origin + start, **options)


def kernels(kmers: int, total: int, ks: Sequence[int] = KS) -> list[Row]:
    """Kernels side by side, data on the card: a bit a window, forward."""
    rows: list[Row] = []
    text = _text(kmers, max(ks))
    batch = stream_of(text, total)
    for k in ks:
        tree = DeviceTree(snapshot(_codes(text, k, False), k), with_buckets=True)
        packed = pack_chunk(batch.bases, batch.offsets, k, threads=usable_cores())
        buffers = ChunkBuffers(packed.symbols)
        buffers.bases.copy_to_device(packed.bases)
        buffers.starts.copy_to_device(packed.starts)
        for method in ("buckets", "walk", "shuffle"):
            run = partial(launch, tree, buffers, packed.symbols, method=method, strands="forward")
            milliseconds = 1e3 * median_on_card(run)
            rate = packed.windows() / milliseconds * 1e3
            rows.append({"k": k, "kernel": method, "ms": milliseconds, "windows/s": rate})
    return rows


def frozen(
    kmers: int,
    total: int,
    ks: Sequence[int] = (15, 31),
    chunks: Sequence[int] = (1 << 20, 1 << 22, 1 << 24),
    streams: Sequence[int] = (1, 2),
) -> list[Row]:
    """Host memory to host results: bits, then also a byte a window; canonical."""
    rows: list[Row] = []
    threads = usable_cores()
    text = _text(kmers, max(ks))
    batch = stream_of(text, total)
    events = np.zeros(batch.bases.size, dtype=np.uint8)
    for k in ks:
        tree = snapshot(_codes(text, k, True), k)
        packing = least_seconds(
            lambda b=batch, k=k: pack_chunk(b.bases, b.offsets, k, threads=threads),  # type: ignore[misc]
            3,
            warm=False,
        )
        rows.append(_rate_row(k, "packing alone", 0, total, packing))
        for chunk in chunks:
            for number in streams:
                engine = Pipeline(k, "canonical", chunk=chunk, streams=number, threads=threads)
                packed = [
                    ChunkPiece(pack_chunk(p.bases, p.offsets, k), snapshot=lambda t=tree: (t, 1))  # type: ignore[arg-type,misc]
                    for p in pieces_of(batch, k, chunk)
                ]
                pinned = [
                    ChunkPiece(in_pinned_memory(p.bases), snapshot=p.snapshot, pinned=True)
                    for p in packed
                ]
                runs: dict[str, Callable[[], object]] = {
                    "bytes to bits": partial(_match_all, engine, batch, k, chunk, tree, None),
                    "bytes, packed ahead, to bits": partial(
                        _match_all, engine, batch, k, chunk, tree, None, ahead=True
                    ),
                    "bytes to bytes": partial(_match_all, engine, batch, k, chunk, tree, events),
                    "packed to bits": lambda e=engine, p=packed: sum(1 for _ in e.run(p)),  # type: ignore[misc]
                    "packed, pinned to bits": lambda e=engine, p=pinned: sum(1 for _ in e.run(p)),  # type: ignore[misc]
                }
                for what, run in runs.items():
                    run()
                    name = f"{what}, {number} stream{'s' if number > 1 else ''}"
                    rows.append(_rate_row(k, name, chunk, total, least_seconds(run, 3, warm=False)))
                engine.close()
    return rows


def in_pinned_memory(chunk: Any) -> PackedChunk:
    """A copy of a packed chunk from which the card can fetch it."""
    arrays = []
    for array in (chunk.bases, chunk.starts):
        arrays.append(cuda.pinned_array(array.size, np.uint32))
        arrays[-1][:] = array
    return PackedChunk(chunk.k, chunk.symbols, *arrays)


def _rate_row(k: int, what: str, chunk: int, total: int, seconds: float) -> Row:
    return {"k": k, "what": what, "chunk": chunk, "s": seconds, "bases/s": total / seconds}


def _match_all(
    engine: Pipeline,
    batch: ReadBatch,
    k: int,
    chunk: int,
    tree: TreeBitmap,
    events: NDArray[np.uint8] | None,
    *,
    ahead: bool = False,
) -> None:
    pieces = pieces_of(batch, k, chunk, snapshot=lambda: (tree, 1))
    for found in engine.run(pieces, ahead=ahead):
        if events is not None:
            start = found.piece.position
            part = events[start : start + found.piece.symbols]
            fill_events(found.starts, found.matches, part, usable_cores())


def growing(total: int, k: int = 21, chunk: int = 1 << 24) -> list[Row]:
    """From empty to ``total`` random k-mers, with the Hybrid Tree Bitmap merged behind; then again.

    The second pass over the same bases is the saturated dictionary.
    """
    threads = usable_cores()
    batch = random_bases(total, 5)
    growing_rows(1 << 20, k, 1 << 18)  # compiles
    rows: list[Row] = []
    for with_tree in (False, True):
        engine = Pipeline(k, "canonical", chunk=chunk, threads=threads)
        nothing = Dictionary.empty(k, "canonical")
        worker = TreeWorker(nothing, 1, threads) if with_tree else None
        engine.load(nothing.codes, nothing.sets, growing=True)
        begin = time.perf_counter()
        new = 0
        for found in engine.run(pieces_of(batch, k, chunk, grow=True)):
            assert found.codes is not None
            assert found.ordered is not None
            new += found.codes.size
            if worker is not None:
                worker.add(copied(found.ordered, threads), ascending=True)
        took = time.perf_counter() - begin
        row: Row = {"k": k, "new k-mers": new, "tree": with_tree, "s": took, "new/s": new / took}
        begin = time.perf_counter()
        if worker is not None:
            worker.close()
        # of the last k-mers, and the longest that any had to wait
        row["tree behind at the end s"] = time.perf_counter() - begin
        row["lag at most s"] = 0.0 if worker is None else worker.longest_lag
        assert _again(engine, batch, k, chunk) == 0
        seconds = least_seconds(lambda e=engine: _again(e, batch, k, chunk), 3, warm=False)  # type: ignore[misc]
        row["saturated bases/s"] = total / seconds
        row["table bytes"] = engine.kmers.nbytes
        rows.append(row)
        engine.close()
    return rows


def growing_rows(total: int, k: int = 21, chunk: int = 1 << 24) -> list[Row]:
    """Where the time of growing goes: milliseconds a row of the timeline, from empty."""
    engine = Pipeline(k, "canonical", chunk=chunk, threads=usable_cores())
    nothing = Dictionary.empty(k, "canonical")
    engine.load(nothing.codes, nothing.sets, growing=True)
    batch = random_bases(total, 5)
    timeline = engine.timeline = Timeline()
    for _ in engine.run(pieces_of(batch, k, chunk, grow=True)):
        pass
    bars = timeline.activities()
    engine.close()
    spent = {bar.row: 0.0 for bar in bars}
    for bar in bars:
        spent[bar.row] += bar.end - bar.begin
    return [{"row": row, "ms": ms} for row, ms in spent.items()]


def _again(engine: Pipeline, batch: ReadBatch, k: int, chunk: int) -> int:
    """Match the batch as if it came after itself; how many k-mers were new."""
    new = 0
    for found in engine.run(pieces_of(batch, k, chunk, origin=batch.bases.size, grow=True)):
        assert found.codes is not None
        new += found.codes.size
    return new


def thesis(
    kernels: Sequence[str] = ("auto", "walk", "shuffle"), size: tuple[int, int, int] = THESIS
) -> list[Row]:
    """The thesis's experiment: a tenth as the seed, then grow; serial and concurrent."""
    total, k, chunk = size
    batch = random_bases(total, 9)
    rows = []
    for kernel in kernels:
        for streams in (1, 2):
            times = []
            for _ in range(4):
                seconds, merged = _thesis_run(batch, k, chunk, kernel, streams)
                times.append((seconds, merged))
            seconds, merged = min(times[1:])
            rows.append(
                {
                    "bases": total,
                    "kernel": kernel,
                    "streams": streams,
                    "ms": 1e3 * seconds,
                    "ms, tree merged": 1e3 * merged,
                }
            )
    return rows


def _thesis_run(
    batch: ReadBatch, k: int, chunk: int, kernel: Any, streams: int
) -> tuple[float, float]:
    """Seconds until the last result is there, and until the tree holds all."""
    matcher = Matcher(
        Dictionary.empty(k, "forward"), mode="grow", seed_bases=chunk, kernel=kernel, chunk=chunk,
        track_tree=True, device="cuda", streams=streams, cards=[0],
    )  # fmt: skip
    with closing(matcher):
        begin = time.perf_counter()
        matcher.match(batch)
        took = time.perf_counter() - begin
        matcher.latest_snapshot()
        return took, time.perf_counter() - begin


def traced(streams: int, size: tuple[int, int, int] = THESIS, repeat: int = 2) -> list[Activity]:
    """What ran when in the thesis's experiment; the last of ``repeat`` runs."""
    total, k, chunk = size
    batch = random_bases(total, 9)
    for _ in range(repeat):
        engine = Pipeline(k, "forward", chunk=chunk, streams=streams, threads=usable_cores())
        nothing = Dictionary.empty(k, "forward")
        engine.load(nothing.codes, nothing.sets, growing=True)
        timeline = engine.timeline = Timeline()
        events = np.zeros(total, dtype=np.uint8)
        for number, found in enumerate(engine.run(pieces_of(batch, k, chunk, grow=True))):
            with timeline.host(number, number % streams):
                start = found.piece.position
                part = events[start : start + found.piece.symbols]
                fill_events(found.starts, found.matches, part, usable_cores())
        bars = timeline.activities()
        engine.close()
    return bars
