"""Kernels of the Levenshtein Tree Bitmap (thesis 3.3.17): what they share, and what there is.

A block takes a piece of the stream, and its threads the trie-nodes of a level in turns. A block has
its own active bitmaps in global memory, D + 1 for each trie-node, one array a dist-level:

    active   uint32[grid, D + 1, N]   laid out as inmaps (trie/ltb/steps.py)
    symbols  uint8                    bits 0-2 code (4: gap) | bit 3 first of a read

A sweep visits all levels of the trie, the deepest first, with ``syncthreads`` behind each, so that
a child is dealt with before its parent wakes it. Thesis Fig. 30-35 differ in what a sweep does:

    naive      for d = D ... 0: I and S of d into d + 1, then K of d           2 D + 1 sweeps
    efficient  for d = D - 1 ... 0: all that leads into d + 1, and last K of 0   max(D, 1) sweeps
    queue      as efficient, but children are woken by way of a queue a warp in shared memory

Every thread gathers the bitmaps of a symbol in registers and puts them into global memory with
``atomicOr`` where they hold something. A piece begins k + D - 1 symbols early, without telling.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_OF_READ = 8

Source = tuple[Callable[..., None], tuple[str, ...]]


def signature() -> tuple[str, ...]:
    """The argument types of each kernel.

    symbols uint8[n], k uint32, distance uint32, piece uint32 >= 1, level_offsets
    uint32[k // 3 + 2], inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N], active
    uint32[grid (D + 1) N], matches uint32[n] and mismatches uint32[n] (zeros before).
    """
    return (
        "uint8[::1]", "uint32", "uint32", "uint32", "uint32[::1]", "uint32[::1]", "uint64[::1]",
        "uint32[::1]", "uint32[::1]", "uint32[::1]", "uint32[::1]",
    )  # fmt: skip
