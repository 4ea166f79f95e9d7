"""Merge the new k-mers of several writers of an index, one part each, into stream order.

Each part holds its new k-mers by ascending window position, and positions are distinct, so merging
needs no comparison: within 4,096 symbols (32 KB of codes, in L1 or L2) every part scatters its
codes to their positions, and one sweep gathers them. About 3 operations per new k-mer and 2 per
symbol; ranges of symbols are independent, each with its own thread.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range
from trie.windows import BLOCK, MATCH, MISMATCH, roll_block, start_state

_SPAN: Final = 4096


@njit(cache=True, nogil=True)
def _merge_range(
    bases, offsets, k, last_seed, start, stop, part_codes, part_positions, cursors, ends,
    events, out_codes, out_positions, filled,
):  # fmt: skip
    """Write the events of the windows that begin in [start, stop), and gather their new k-mers."""
    block_codes = np.empty(BLOCK, dtype=np.uint64)
    block_positions = np.empty(BLOCK, dtype=np.uint64)
    end = min(stop + k - 1, bases.size)
    state = start_state(offsets, np.uint64(start))
    while state[0] < np.uint64(end):
        n = roll_block(bases, offsets, k, False, end, state, block_codes, block_positions)
        for j in range(n):
            events[block_positions[j]] = MATCH
    codes = np.empty(_SPAN, dtype=np.uint64)
    new = np.zeros(_SPAN, dtype=np.uint8)
    for first in range(start, stop, _SPAN):
        last = min(first + _SPAN, stop)
        for part in range(cursors.size):
            at = cursors[part]
            while at < ends[part] and part_positions[part, at] < last:
                inside = part_positions[part, at] - first
                codes[inside] = part_codes[part, at]
                new[inside] = 1
                at += 1
            cursors[part] = at
        for inside in range(last - first):
            if new[inside]:
                new[inside] = 0
                out_codes[filled] = codes[inside]
                out_positions[filled] = first + inside
                filled += 1
                if first + inside > last_seed:
                    events[first + inside] = MISMATCH


def merge_parts(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    seed_end: int,
    start: int,
    stop: int,
    codes: NDArray[np.uint64],
    positions: NDArray[np.int64],
    filled: NDArray[np.int64],
    events: NDArray[np.uint8],
    out_codes: NDArray[np.uint64],
    out_positions: NDArray[np.int64],
    threads: int,
) -> None:
    """Gather the new k-mers of all parts (rows of ``codes`` and ``positions``) by position.

    Also writes the events of the windows that end at a symbol of [start, stop).
    """
    first = max(0, start - k + 1)
    last = max(0, stop - k + 1)
    tasks = []
    for low, high in split_range(first, last, threads, align=_SPAN):
        cuts = np.array(
            [
                np.searchsorted(row[:count], (low, high))
                for row, count in zip(positions, filled, strict=True)
            ],
            dtype=np.int64,
        )
        cursors, ends = np.ascontiguousarray(cuts.T)
        tasks.append(
            partial(
                _merge_range, bases, offsets, k, seed_end - k, low, high, codes, positions,
                cursors, ends, events, out_codes, out_positions, int(cursors.sum()),
            )
        )  # fmt: skip
    run_all(tasks, threads)
