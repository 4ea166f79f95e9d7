"""Measurements of the Levenshtein Tree Bitmap: thesis Fig. 37 and 38, and what is faster.

The thesis's inputs: random bases, a dictionary of all windows of the first 75,000 of them (the
seed). It does not say the distance; the saving of 20 % of the memory accesses in its Fig. 37 is
that of D = 2: 2 D + 1 sweeps for the naive kernel, 2 D reads of bitmaps for the efficient one.

Every function returns plain rows. Times on CUDA are medians by CUDA events, data on the card; on
the CPU the best of some runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.bench.timing import least_seconds, median_on_card
from trie.cpu.threads import usable_cores
from trie.ltb import approximate
from trie.ltb.ltb_words import pack_words
from trie.snapshots.tree_bitmap import TreeBitmap, snapshot
from trie.windows import window_codes

Row = dict[str, Any]
Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]

KS = (6, 9, 12)
STREAM_37, STREAM_38, SEED = 500_000, 100_000, 75_000
DISTANCE = 2
DICTIONARIES = ((96, 24, 3), (10_000, 21, 2), (1_000_000, 21, 1))
"""k-mers, k and D, beside the thesis's."""


def thesis_input(k: int, total: int, seed: int = SEED) -> tuple[TreeBitmap, Batch]:
    """A random stream, and the snapshot of the windows in its first ``seed`` symbols."""
    bases = np.random.default_rng(37).integers(0, 4, total).astype(np.uint8)
    offsets = np.array([0, total], dtype=np.int64)
    start = min(seed, total)
    codes, _ = window_codes(bases[:start], np.array([0, start]), k, canonical=False)
    return snapshot(codes, k), (bases, offsets)


def random_input(kmers: int, k: int, total: int) -> tuple[TreeBitmap, Batch]:
    """Random k-mers and reads of 1,000 random bases."""
    rng = np.random.default_rng(k)
    tree = snapshot(rng.integers(0, 4**k, kmers, dtype=np.uint64), k)
    bases = rng.integers(0, 4, total).astype(np.uint8)
    return tree, (bases, np.append(np.arange(0, total, 1000), total).astype(np.int64))


def on_cpu(tree: TreeBitmap, batch: Batch, distance: int, method: str, repeat: int = 2) -> float:
    """Seconds on all cores."""
    threads = usable_cores()
    few = (batch[0][:100], np.array([0, min(100, batch[0].size)]))
    approximate(tree, *few, distance, method=method)
    run = partial(approximate, tree, *batch, distance, method=method, threads=threads)
    return least_seconds(run, repeat, warm=False)


def on_cuda(
    tree: TreeBitmap, batch: Batch, distance: int, methods: Sequence[str], repeat: int = 5
) -> dict[str, float]:
    """Seconds a method, from symbols on the card to bitmaps there; their words agree."""
    from gpu.ltb import DeviceLtb, LtbBuffers, launch, pack_symbols

    symbols = pack_symbols(*batch)
    there = DeviceLtb(tree)
    buffers = LtbBuffers(symbols.size)
    buffers.symbols.copy_to_device(symbols)
    taken = {}
    first: NDArray[np.uint64] | None = None
    for method in methods:
        queue = partial(launch, there, buffers, symbols.size, distance, method=method)
        taken[method] = median_on_card(queue, repeat, enough=2)
        found = pack_words(buffers.matches.copy_to_host(), buffers.mismatches.copy_to_host())
        first = found if first is None else first
        assert np.array_equal(first, found), f"{method}: other words"
    return taken


def figure_37(distance: int = DISTANCE, total: int = STREAM_37, *, cuda: bool) -> list[Row]:
    """The naive and the efficient kernel by k; beside them the bit-sliced ones and the CPU."""
    rows = []
    for k in KS:
        tree, batch = thesis_input(k, total)
        row: Row = {"k": k, "D": distance, "trie-nodes": tree.node_count}
        if cuda:
            taken = on_cuda(tree, batch, distance, ("ltb-naive", "ltb-efficient", "ltb-sliced"))
            row |= {f"{method} s": seconds for method, seconds in taken.items()}
            row["naive/efficient"] = taken["ltb-naive"] / taken["ltb-efficient"]
        for method in ("active", "sliced"):
            row[f"CPU {method} s"] = on_cpu(tree, batch, distance, method, 1)
        rows.append(row)
    return rows


def figure_38(distance: int = DISTANCE, total: int = STREAM_38) -> list[Row]:
    """The efficient and the queue kernel by k, and the warps of each on a multiprocessor."""
    from gpu.ltb.kernels import occupancy, threads_of

    rows = []
    for k in KS:
        tree, batch = thesis_input(k, total)
        taken = on_cuda(tree, batch, distance, ("ltb-efficient", "ltb-queue"))
        row: Row = {"k": k, "D": distance, "trie-nodes": tree.node_count}
        row |= {f"{method} s": seconds for method, seconds in taken.items()}
        row["queue/efficient"] = taken["ltb-queue"] / taken["ltb-efficient"]
        for method in taken:
            registers, blocks = occupancy(method)
            row[f"{method} registers"] = registers
            row[f"{method} warps"] = blocks * threads_of(method) // 32
        rows.append(row)
    return rows


def dictionaries(total: int = 100_000_000, *, cuda: bool) -> list[Row]:
    """Other dictionaries, the bit-sliced method: symbols a second."""
    rows = []
    for kmers, k, distance in DICTIONARIES:
        row: Row = {"k-mers": kmers, "k": k, "D": distance}
        # the work a symbol grows with the dictionary
        size = max(total // (1 + kmers // 2000), 1000)
        if cuda:
            tree, batch = random_input(kmers, k, size)
            row["CUDA symbols/s"] = (
                size / on_cuda(tree, batch, distance, ("ltb-sliced",))["ltb-sliced"]
            )
        size = max(size // 20, 20_000)
        tree, batch = random_input(kmers, k, size)
        row["CPU symbols/s"] = size / on_cpu(tree, batch, distance, "sliced")
        rows.append(row)
    return rows
