"""The tables of a set of patterns on the card, made there from the codes of the k-mers.

Only the codes go to the card, 8 bytes a k-mer; gpu/levenshtein/index.py does the rest, so
that a dictionary that has grown is indexed anew within milliseconds.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit
from gpu.exact.device_tree import clear
from gpu.levenshtein import index as kernels
from trie.levenshtein import Patterns
from trie.levenshtein.pieces import PieceCosts, Scheme, choose

GPU_COSTS = PieceCosts(
    ((2**17, 3.0), (2**25, 5.0), (2**26, 9.0), (float("inf"), 16.0)), candidate=0.0, verify=0.5
)
"""Picoseconds on one H200 of a look-up in the first-level cache, the second (twice), or memory, and
of verifying beside it (D = 1: 2, 2: 4.5, 3: 8); see Costs."""


@cache
def _kernel(name: str) -> Any:
    return jit(kernels.sources()[name][0])


def gpu_scheme(patterns: Patterns) -> Scheme:
    """The scheme that costs least on a card."""
    return choose(patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)


def changes_soon(patterns: Patterns) -> bool:
    """Whether four times as many patterns would be found by a scheme of the other kind."""
    later = choose(4 * patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)
    return later.paired != gpu_scheme(patterns).paired


class DeviceIndex:
    """The tables of patterns on the current card, queued on ``stream``.

    buckets uint64[B], entries uint64[E], ranks uint32[E], as the kernels read them. scheme: None
    for the one that costs least. The codes may be freed once ``stream`` has been waited for.
    """

    def __init__(
        self, patterns: Patterns, scheme: Scheme | None = None, *, stream: Any = 0
    ) -> None:
        scheme = self.scheme = gpu_scheme(patterns) if scheme is None else scheme
        number = patterns.words.size
        size = scheme.entries * number
        self.buckets = cuda.device_array(_buckets(scheme), np.uint64, stream=stream)
        self.entries = cuda.device_array(size, np.uint64, stream=stream)
        self.ranks = cuda.device_array(size, np.uint32, stream=stream)
        # as pinned memory would cost more than the copy gains, this copy waits
        codes = cuda.to_device(patterns.codes, stream=stream)
        counts = cuda.device_array(_buckets(scheme), np.uint32, stream=stream)
        total = cuda.device_array(1, np.uint32, stream=stream)
        threads = kernels.THREADS
        for words in (counts, total):
            clear(words, stream)
        of_scheme = [
            np.uint32(value)
            for value in (
                number, scheme.k, scheme.distance, scheme.spacing, scheme.width, len(scheme.gaps),
                scheme.paired,
            )
        ]  # fmt: skip
        grid = -(-number // threads)
        _kernel("count")[grid, threads, stream](codes, *of_scheme, counts)
        shares = -(-counts.size // (threads * kernels.BUCKETS))
        _kernel("share")[shares, threads, stream](counts, total, self.buckets)
        _kernel("place")[grid, threads, stream](codes, *of_scheme, counts, self.entries, self.ranks)

    @staticmethod
    def nbytes(patterns: Patterns, scheme: Scheme | None = None) -> int:
        """Memory on the card, while the tables are made."""
        scheme = gpu_scheme(patterns) if scheme is None else scheme
        entries = 12 * scheme.entries * patterns.words.size
        return 12 * _buckets(scheme) + entries + patterns.codes.nbytes


def _buckets(scheme: Scheme) -> int:
    return int(len(scheme.gaps) * 4**scheme.key_symbols)
