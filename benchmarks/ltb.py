"""The Levenshtein Tree Bitmap: thesis Fig. 37 and 38, and faster methods.

The thesis's inputs are random bases and a dictionary of all windows of the first 75,000 of them
(the seed). It does not state the distance; the 20 % of memory accesses saved in its Fig. 37 point
to D = 2: 2 D + 1 sweeps for the naive kernel, 2 D reads of bitmaps for the efficient one.

Times on CUDA are medians by CUDA events, from symbols in GPU memory to bitmaps there, unless a
table says otherwise; on the CPU they are wall times with all cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Codes, cut, random_codes, random_kmers
from benchmarks.suite import Row, Sheet
from benchmarks.timing import by_chunk, least_seconds, median_on_gpu
from trie.cpu.threads import usable_cores
from trie.ltb import approximate
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.trees.hybrid_tree import snapshot
from trie.windows import window_codes

Batch = tuple[Codes, NDArray[np.int64]]

KS = (6, 9, 12)
SEED = 75_000
DICTIONARIES = ((96, 24, 3), (10_000, 21, 2), (1_000_000, 21, 1))
"""k-mers, k and D of further dictionaries."""

ENGINES = ((96, 24, 3, 256), (10_000, 21, 2, 32))
"""k-mers, k, D, and the length of the stream as a multiple of that of Fig. 37."""

CHUNKS = ((1 << 22, 2), (1 << 23, 2), (1 << 23, 1))  # symbols of a chunk, and streams


def tables(device: str, distance: int = 2, bases: int = 500_000) -> list[Sheet]:
    """The thesis's figures with this D, on ``bases`` bases (Fig. 37) and a fifth (Fig. 38)."""
    on_gpu = device == "cuda"
    title = "Naive and transition-efficient (thesis, Fig. 37)"
    naive = Sheet(title, figure_37, distance, bases, on_gpu)
    others = Sheet("Other dictionaries, bit-sliced", dictionaries, 200 * bases, on_gpu)
    if not on_gpu:
        return [naive, others]
    title = "Transition-efficient and queue (thesis, Fig. 38)"
    queue = Sheet(title, figure_38, distance, bases // 5)
    from_host = Sheet("From host memory, ms of each stage a chunk", engine, bases)
    return [naive, queue, others, from_host]


def thesis_input(k: int, total: int, seed: int = SEED) -> tuple[TreeBitmap, Batch]:
    """A random stream, and the snapshot of the windows in its first ``seed`` symbols."""
    bases = random_codes(total, 37)
    start = min(seed, total)
    codes, _ = window_codes(bases[:start], np.array([0, start]), k, canonical=False)
    return snapshot(codes, k), (bases, cut(total, total))


def random_input(kmers: int, k: int, total: int) -> tuple[TreeBitmap, Batch]:
    """Random k-mers and reads of 1,000 random bases."""
    bases = random_codes(total, k)
    return snapshot(random_kmers(kmers, k, k), k), (bases, cut(total, 1000))


def on_cpu(tree: TreeBitmap, batch: Batch, distance: int, repeat: int = 2) -> float:
    """Seconds on all cores."""
    few = min(100, batch[0].size)
    approximate(tree, batch[0][:few], np.array([0, few]), distance)
    run = partial(approximate, tree, *batch, distance, threads=usable_cores())
    return least_seconds(run, repeat, warm=False)


def on_cuda(
    tree: TreeBitmap, batch: Batch, distance: int, methods: Sequence[str], repeat: int = 5
) -> dict[str, float]:
    """Seconds of each method; checks that their bitmaps agree."""
    from gpu.ltb import DeviceLtb, LtbBuffers, launch, packing

    symbols = np.empty_like(batch[0])
    for part in packing(*batch, 0, symbols.size, symbols):
        part()
    there = DeviceLtb(tree)
    buffers = LtbBuffers(symbols.size)
    buffers.symbols.copy_to_device(symbols)
    taken = {}
    first: NDArray[np.uint32] | None = None
    for method in methods:
        queue = partial(launch, there, buffers, symbols.size, distance, method=method)
        taken[method] = median_on_gpu(queue, repeat, enough=2)
        found = np.stack([buffers.matches.copy_to_host(), buffers.mismatches.copy_to_host()])
        first = found if first is None else first
        assert np.array_equal(first, found), f"{method}: other bitmaps"
    return taken


def figure_37(distance: int, total: int, on_gpu: bool) -> Iterator[Row]:
    """The naive and the efficient kernel by k, beside the bit-sliced ones and the CPU."""
    for k in KS:
        tree, batch = thesis_input(k, total)
        row: Row = {"k": k, "D": distance, "trie-nodes": tree.node_count}
        if on_gpu:
            taken = on_cuda(tree, batch, distance, ("ltb-naive", "ltb-efficient", "ltb-sliced"))
            row |= {f"{method} s": seconds for method, seconds in taken.items()}
            row["naive/efficient"] = taken["ltb-naive"] / taken["ltb-efficient"]
        row["CPU s"] = on_cpu(tree, batch, distance, 1)
        yield row


def figure_38(distance: int, total: int) -> Iterator[Row]:
    """The efficient and the queue kernel by k, and the warps of each on a multiprocessor."""
    from gpu.ltb.sweeping import kernel, occupancy

    for k in KS:
        tree, batch = thesis_input(k, total)
        taken = on_cuda(tree, batch, distance, ("ltb-efficient", "ltb-queue"))
        row: Row = {"k": k, "D": distance, "trie-nodes": tree.node_count}
        row |= {f"{method} s": seconds for method, seconds in taken.items()}
        row["queue/efficient"] = taken["ltb-queue"] / taken["ltb-efficient"]
        for method in taken:
            registers, blocks = occupancy(method)
            row[f"{method} registers"] = registers
            row[f"{method} warps"] = blocks * kernel(method)[1] // 32
        yield row


def dictionaries(total: int, on_gpu: bool) -> Iterator[Row]:
    """Other dictionaries with the bit-sliced method: symbols a second."""
    for kmers, k, distance in DICTIONARIES:
        row: Row = {"k-mers": kmers, "k": k, "D": distance}
        # the work for each symbol grows with the dictionary
        size = max(total // (1 + kmers // 2000), 1000)
        if on_gpu:
            taken = on_cuda(*random_input(kmers, k, size), distance, ("ltb-sliced",))
            row["CUDA symbols/s"] = size / taken["ltb-sliced"]
        size = max(size // 20, 20_000)
        row["CPU symbols/s"] = size / on_cpu(*random_input(kmers, k, size), distance)
        yield row


def engine(total: int) -> Iterator[Row]:
    """From host memory to host results, by chunk and streams."""
    from gpu.ltb import LtbEngine

    for kmers, k, distance, times in ENGINES:
        size = times * total
        tree, batch = random_input(kmers, k, size)

        def match(engine: Any, tree: TreeBitmap = tree, batch: Batch = batch) -> None:
            engine.match(tree, *batch)

        for row in by_chunk(partial(LtbEngine, k, distance), match, size, CHUNKS):
            yield {"k-mers": kmers} | row
