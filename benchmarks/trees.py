"""The dictionary's structures: thesis figure 39 repeated, memory, snapshot times.

Times include the allocation of the result, but not its release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import random_codes, random_kmers
from benchmarks.pointer_tree import PointerTree
from benchmarks.suite import Row
from benchmarks.timing import least_seconds
from trie.cpu.threads import usable_cores
from trie.trees.hybrid_tree import HybridTreeBitmap, snapshot
from trie.windows import window_codes

T = TypeVar("T")
Tree = HybridTreeBitmap | PointerTree

FIGURE_39_K = (6, 9, 12)
FIGURE_39_BASES = (5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 1_000_000, 10_000_000)
SPARSE_K = (15, 21, 31)
POINTER_LIMIT = 6 << 30


def best(repeats: int, prepare: Callable[[], T], measured: Callable[[T], object]) -> float:
    """The least seconds of ``measured``, each time on a new uncounted result of ``prepare``."""
    return min(least_seconds(partial(measured, prepare()), 1, warm=False) for _ in range(repeats))


def _built(make: Callable[[int], Tree], k: int, codes: NDArray[np.uint64]) -> Tree:
    tree = make(k)
    tree.insert(codes)
    return tree


def figure_39(bases: Sequence[int]) -> Iterator[Row]:
    """Construction and conversion of both trees on random streams, and the gain (thesis 3.4.2).

    The Hybrid Tree Bitmap runs on one thread, as the pointer tree does.
    """
    for k in FIGURE_39_K:
        for size in bases:
            codes, _ = window_codes(random_codes(size, 39), np.array([0, size]), k, canonical=False)
            yield _figure_39_row(k, size, codes, 2 if size >= 10_000_000 else 5)


def _figure_39_row(k: int, bases: int, codes: NDArray[np.uint64], repeats: int) -> Row:
    for make in (PointerTree, HybridTreeBitmap):
        _built(make, k, codes[:1000]).to_tree_bitmap()  # compiles
    pointer, hybrid = PointerTree(k), HybridTreeBitmap(k)
    pointer.insert(codes)
    hybrid.insert(codes)
    times = {
        "construct_pointer": best(repeats, lambda: PointerTree(k), lambda t: t.insert(codes)),
        "construct_hybrid": best(
            repeats, lambda: HybridTreeBitmap(k), lambda t: t.insert(codes, 1)
        ),
        "convert_pointer": best(repeats, lambda: pointer, lambda t: t.to_tree_bitmap()),
        "convert_hybrid": best(repeats, lambda: hybrid, lambda t: t.to_tree_bitmap(1)),
    }
    row: Row = {"k": k, "bases": bases, "kmers": len(hybrid)}
    row |= {f"{name}_s": seconds for name, seconds in times.items()}
    for phase in ("construct", "convert"):
        row[f"{phase}_gain"] = times[f"{phase}_pointer"] / times[f"{phase}_hybrid"]
    return row


def memory(sizes: Sequence[int]) -> Iterator[Row]:
    """Bytes of a random k-mer in both trees and in the snapshot.

    None for a pointer tree that might exceed POINTER_LIMIT bytes (it doubles its array, and both
    copies exist meanwhile).
    """
    for k in SPARSE_K:
        for size in sizes:
            codes = random_kmers(size, k, 40)
            hybrid = _built(HybridTreeBitmap, k, codes)
            kmers = len(hybrid)
            row: Row = {"k": k, "kmers": kmers, "hybrid_bytes": hybrid.memory_bytes() / kmers}
            row["snapshot_bytes"] = hybrid.to_tree_bitmap().nbytes / kmers
            del hybrid
            row["pointer_bytes"] = None
            # random k-mers share about log4(size) symbols; each other symbol takes 16 bytes
            nodes = size * (k - np.log(size) / np.log(4) + 1.5)
            if 3 * 16 * nodes <= POINTER_LIMIT:
                row["pointer_bytes"] = _built(PointerTree, k, codes).memory_bytes() / kmers
            yield row


def snapshots(size: int) -> Iterator[Row]:
    """Seconds to a snapshot of random k-mers: unsorted, or grown in the Hybrid Tree Bitmap."""
    for k in SPARSE_K:
        yield _snapshot_row(k, random_kmers(size, k, 41), usable_cores())


def _snapshot_row(k: int, codes: NDArray[np.uint64], threads: int) -> Row:
    ordered = np.unique(codes)
    grown = HybridTreeBitmap(k)
    grown.insert(ordered, threads)
    nodes = grown.to_tree_bitmap(threads).node_count  # the tree's arrays are freed after this
    snapshot(codes[:100_000], k, threads)  # compiles
    timed: dict[str, Callable[[HybridTreeBitmap], object]] = {
        "from_unsorted_s": lambda _: snapshot(codes, k, threads),
        "from_hybrid_s": lambda _: grown.to_tree_bitmap(threads),
        "insert_sorted_s": lambda tree: tree.insert(ordered, threads),
        "insert_unsorted_s": lambda tree: tree.insert(codes, threads),
    }
    row: Row = {"k": k, "kmers": ordered.size, "threads": threads, "nodes": nodes}
    return row | {
        name: best(3, lambda: HybridTreeBitmap(k), measured) for name, measured in timed.items()
    }
