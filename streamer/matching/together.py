"""Pack batches that arrived together, with one kernel call on each of a few threads.

The kernel computes their checksums too, while the letters are in the core's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from gpu.card.packing import (
    GAPS,
    MAX_SYMBOLS,
    SPARE_WORDS,
    PackedChunk,
    pack_letters_into,
    packed_sizes,
)
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.checksums import crc32c_address
from streamer.sequences.read_batch import RawReads
from trie.codes import LETTER_TO_CODE, check_k
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, split_range
from trie.windows import ascending

# letters worth another thread: waking one takes as long as half a million of them
_PER_THREAD = 1 << 22


def pack_together(
    batches: Sequence[RawReads], sums: NDArray[np.uint32], k: int, threads: int = 1
) -> list[PackedChunk | None]:
    """Pack the letters of every batch as ``gpu.card.packing.pack_letters`` does; None for errors.

    sums: uint32, a CRC-32C for each batch, continued over its letters; needs a ``crc32c_address``.
    """
    check_k(k)
    sizes = [(len(letters), offsets.size) for _, offsets, letters in batches]
    words = [packed_sizes(size if size <= MAX_SYMBOLS else 0) for size, _ in sizes]
    ends = np.zeros((len(batches) + 1, 2), dtype=np.int64)
    np.cumsum(words, axis=0, out=ends[1:])
    bases, starts = (np.empty(total, dtype=np.uint32) for total in ends[-1].tolist())
    held = [np.frombuffer(letters, np.uint8) for _, _, letters in batches]
    offsets = [np.ascontiguousarray(offsets, dtype=np.int64) for _, offsets, _ in batches]
    places = np.array(
        [[array_address(array) for array in of_one] for of_one in zip(held, offsets, strict=True)],
        dtype=np.uint64,
    )
    results = np.zeros(len(batches), dtype=np.int64)
    threads = min(threads, 1 + sum(size for size, _ in sizes) // _PER_THREAD)
    there = np.uint64(crc32c_address()), places, np.array(sizes, dtype=np.int64)
    pack = partial(_pack, *there, LETTER_TO_CODE, k, bases, starts, ends, results, sums)
    run_each(pack, split_range(0, len(batches), threads), threads)
    return [
        PackedChunk(k, size, bases[a:b], starts[c:d], result == GAPS) if result < 0 else None
        for (size, _), (a, c), (b, d), result in zip(
            sizes, ends.tolist(), ends[1:].tolist(), results.tolist(), strict=False
        )
    ]


@njit(cache=True, nogil=True)
def _pack(address, places, sizes, table, k, bases, starts, ends, results, sums, first, stop):
    """Pack batches first..stop - 1; ``results``: of ``pack_letters_into``, negative on success."""
    for i in range(first, stop):
        symbols = sizes[i, 0]
        if symbols > MAX_SYMBOLS or sizes[i, 1] == 0:
            continue
        letters = carray(pointer(places[i, 0]), symbols, np.uint8)
        offsets = carray(pointer(places[i, 1]), sizes[i, 1], np.int64)
        if offsets[0] != 0 or offsets[-1] != symbols or not ascending(offsets):
            continue
        if symbols:
            sums[i] = continue_crc32c(address, sums[i], places[i, 0], symbols)
        packed = bases[ends[i, 0] : ends[i + 1, 0]]
        packed[packed.size - SPARE_WORDS :] = np.uint32(0)
        mask = starts[ends[i, 1] : ends[i + 1, 1]]
        results[i] = pack_letters_into(letters, table, offsets, k, packed, mask)
