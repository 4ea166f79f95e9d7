"""Approximate matching with the Levenshtein Tree Bitmap (thesis 3.3.14-3.3.17) on the CPU.

The automaton runs over a Tree Bitmap snapshot. A state is (trie node, dist-level d); (root, 0) is
always active. On a symbol c each active (v, d) activates

    K   (child of v on c, d)
    I   (v, d + 1)
    S   (child of v on x, d + 1) for every x other than c

provided that the node exists and the level is at most D. A state at depth h and level d accepts if
h >= d + (k - D) (equation 4) and reports the distance d + (k - h): of the deletions, only a subset
is found.
On a gap code there is no K, S goes to every child and there is no mismatch. Every read begins with
(root, 0) alone. Two methods give the same bitmaps: ``active``, the thesis's data structure, and
``sliced``, the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_distance
from trie.cpu.threads import run_chains, split_range
from trie.ltb.active import active_steps
from trie.ltb.sliced import SYMBOLS, run_sliced
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch, read_at

METHODS: Final[dict[str, Callable[..., Iterable[Callable[[], object]]]]] = {
    "sliced": lambda *given: [partial(run_sliced, *given)],
    "active": active_steps,
}
"""The steps of each method that fill in the bitmaps of some symbols."""

_PARALLEL_FROM: Final = 1 << 12
_PARTS_A_THREAD: Final = 4
_MOST_BLOCKS: Final = 16
_MOST_NODES: Final = 1 << 25
"""Blocks in a call of a kernel, and those times trie-nodes, since a block may visit all of them:
the main thread notices an interrupt only between two."""


def overlap_of(k: int, distance: int) -> int:
    """The number of symbols that a chunk repeats of the previous one, k + D - 1.

    Once it has left (root, 0), a run of the automaton takes at most k + D symbols, one for each
    unit of depth or level.
    """
    return k + distance - 1


def approximate(
    tree: TreeBitmap,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    distance: int,
    *,
    method: str = "sliced",
    threads: int = 1,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The match and mismatch bitmaps (thesis Fig. 31) of every symbol of a batch.

    ``bases`` uint8[total] (codes, 4 = gap), ``offsets`` int64[reads + 1]. Returns two
    uint32[total]. At the symbol e - 1, bit i of the first is set if a k-mer ends at e at distance
    i, and bit h + 1 of the second if the state of depth h < k at level 0 has no transition on the
    symbol. For strands ``both`` the tree holds both orientations. Raises ValueError unless 0 <=
    distance <= 4 and distance < k, BatchShapeError for invalid offsets, KeyError for an unknown
    method.
    """
    bases, offsets = check_batch(bases, offsets)
    check_distance(distance, tree.k)
    steps = METHODS[method]
    total = bases.size
    matches = np.zeros(total, dtype=np.uint32)
    mismatches = np.zeros(total, dtype=np.uint32)
    overlap = overlap_of(tree.k, distance)
    parts = _PARTS_A_THREAD * threads if threads > 1 and total >= _PARALLEL_FROM else 1
    blocks = min(_MOST_BLOCKS, 1 + _MOST_NODES // tree.node_count)
    # each block repeats the overlap, and so does each part: with whole blocks none is added
    parts = max(parts, -(-total // (blocks * (SYMBOLS - overlap))))
    chains = []
    for start, stop in split_range(0, total, parts):
        read = read_at(offsets, start)
        # earlier symbols have no effect from ``start`` on
        warm = max(start - overlap, int(offsets[read]))
        chains.append(
            steps(
                tree.inmaps, tree.exmaps, tree.prefix_sums, tree.level_offsets, tree.k, distance,
                bases, offsets, read, warm, start, stop, matches, mismatches,
            )
        )  # fmt: skip
    run_chains(chains, threads)
    return matches, mismatches
