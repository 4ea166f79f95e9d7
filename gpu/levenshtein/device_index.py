"""The tables of a set of patterns on the GPU, built there from the k-mer codes.

Only the codes are uploaded, 8 bytes per k-mer, and gpu/levenshtein/piece_index.py does the rest: a
dictionary that has grown is reindexed within milliseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.card.launch import plain, with_threads
from gpu.exact.device_tree import clear
from gpu.levenshtein import piece_index as kernels
from trie.levenshtein import Patterns
from trie.levenshtein.piece_index import PieceCosts, Scheme, choose

GPU_COSTS = PieceCosts(
    ((2**17, 3.0), (2**25, 5.0), (2**26, 9.0), (float("inf"), 16.0)), candidate=0.0, verify=0.5
)
"""Picoseconds on an H200 for a look-up in L1, L2 (twice) or memory, and to verify besides (D = 1:
2, 2: 4.5, 3: 8); see PieceCosts.
"""


def gpu_scheme(patterns: Patterns) -> Scheme:
    """The cheapest scheme on a GPU."""
    return choose(patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)


def changes_soon(patterns: Patterns) -> bool:
    """Whether four times as many patterns would use a scheme of the other kind."""
    later = choose(4 * patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)
    return later.paired != gpu_scheme(patterns).paired


class DeviceIndex:
    """The tables of patterns on the current device, queued on ``stream``.

    buckets uint64[B], entries uint64[E], ranks uint32[E], as the kernels read them. scheme: None
    for the cheapest. The codes must live until ``stream`` has been synchronized.
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
        # a blocking copy: pinning memory would cost more than it gains
        codes = cuda.to_device(patterns.codes, stream=stream)
        counts = cuda.device_array(_buckets(scheme), np.uint32, stream=stream)
        total = cuda.device_array(1, np.uint32, stream=stream)
        clear(counts, stream)
        clear(total, stream)
        numbers = (
            number, scheme.k, scheme.distance, scheme.spacing, scheme.width, len(scheme.gaps),
            scheme.paired,
        )  # fmt: skip
        of_scheme = [np.uint32(value) for value in numbers]

        def run(function: Any, threads: int, *arguments: Any) -> None:
            with_threads(plain(function), threads, kernels.THREADS, stream)(*arguments)

        run(kernels.count, number, codes, *of_scheme, counts)
        run(kernels.share, -(-counts.size // kernels.BUCKETS), counts, total, self.buckets)
        run(kernels.place, number, codes, *of_scheme, counts, self.entries, self.ranks)

    @staticmethod
    def nbytes(patterns: Patterns, scheme: Scheme | None = None) -> int:
        """Bytes on the GPU while the tables are built."""
        scheme = gpu_scheme(patterns) if scheme is None else scheme
        entries = 12 * scheme.entries * patterns.words.size
        return 12 * _buckets(scheme) + entries + patterns.codes.nbytes


def _buckets(scheme: Scheme) -> int:
    return int(len(scheme.gaps) * 4**scheme.key_symbols)
