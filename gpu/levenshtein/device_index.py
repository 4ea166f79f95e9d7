"""The tables of a set of patterns on the GPU, built there from the k-mer codes.

Only the codes are uploaded, 8 bytes per k-mer, and gpu/levenshtein/device_index.py does the rest: a
dictionary that has grown is reindexed within milliseconds.

Build the tables of pieces (trie/levenshtein/piece_index.py) on the GPU from the codes.

    count   a thread per pattern: count its keys in their buckets
    share   a thread per BUCKETS buckets: adjacent places for their entries, by one atomic addition
    place   a thread per pattern: an entry and a rank into the next place of each of its buckets

Buckets of different threads come in any order, and so do the entries of a bucket (end : begin):
answers do not depend on the order. Keys are planar: the low bits of a piece, the first symbol's
lowest, and above them its high bits.

Operations: about 60 per pattern and 15 per key. Bytes: 8 per pattern, twice; per key 4 counted and
4 placed with atomics, 12 written; 16 per bucket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda, device_function, reverse_long, reverse_word
from gpu.card.launch import plain, with_threads
from gpu.exact.device_tree import clear
from trie.levenshtein import Patterns
from trie.levenshtein.piece_index import HIGH_SHIFT, PIECE_SHIFT, PieceCosts, Scheme, choose

THREADS = 128  # threads per block; any multiple of 32
BUCKETS = 8  # consecutive buckets per thread: one sector of counts


@device_function
def every_other(word):
    """The even bits of a uint64, packed."""
    x = np.uint64(word & np.uint64(0x5555555555555555))
    x = np.uint64((x | np.uint64(x >> np.uint64(1))) & np.uint64(0x3333333333333333))
    x = np.uint64((x | np.uint64(x >> np.uint64(2))) & np.uint64(0x0F0F0F0F0F0F0F0F))
    x = np.uint64((x | np.uint64(x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF))
    x = np.uint64((x | np.uint64(x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF))
    return np.uint32(x | np.uint64(x >> np.uint64(16)))


@device_function
def planes_of(codes, pattern, k):
    """The low and the high bits of a pattern's symbols, the first lowest.

    Patterns beyond the codes are their reverse complements, in the same order.
    """
    number = np.uint32(codes.size)
    unused = np.uint64(np.uint32(np.uint32(64) - np.uint32(k + k)))
    if pattern < number:
        # reversed, the high bit of a symbol comes first
        code = np.uint64(reverse_long(codes[pattern]) >> unused)
        return every_other(np.uint64(code >> np.uint64(1))), every_other(code)
    code = np.uint64(np.uint64(~codes[np.uint32(pattern - number)]) << unused)
    code = np.uint64(code >> unused)
    return every_other(code), every_other(np.uint64(code >> np.uint64(1)))


@device_function
def key_of(low, high, k, spacing, width, paired, table, anchor):
    """The bucket of a piece, or of a pair of pieces, over all tables."""
    mask = np.uint32(np.uint32(np.uint32(1) << width) - np.uint32(1))
    offset = np.uint32(anchor * spacing)
    key = np.uint32(np.uint32(low >> offset) & mask)
    key = np.uint32(key | np.uint32(np.uint32(np.uint32(high >> offset) & mask) << width))
    if paired != np.uint32(0):
        double = np.uint32(width + width)
        offset = np.uint32(offset + np.uint32(np.uint32(table + np.uint32(1)) * spacing))
        other = np.uint32(np.uint32(low >> offset) & mask)
        other = np.uint32(other | np.uint32(np.uint32(np.uint32(high >> offset) & mask) << width))
        key = np.uint32(np.uint32(key << double) | other)
        key = np.uint32(key + np.uint32(table << np.uint32(double + double)))
    return key


def count(codes, patterns, k, distance, spacing, width, tables, paired, counts):
    """counts[b] += the keys in bucket b, uint32[B]; launch and other arguments as ``place``."""
    pattern = np.uint32(cuda.grid(1))
    if pattern >= patterns:
        return
    low, high = planes_of(codes, pattern, k)
    for table in range(tables):
        for anchor in range(np.uint32(np.uint32(distance + np.uint32(1)) - np.uint32(table))):
            key = key_of(low, high, k, spacing, width, paired, np.uint32(table), np.uint32(anchor))
            cuda.atomic.add(counts, key, np.uint32(1))


def share(counts, total, buckets):
    """buckets uint64[B]: 63-32 end | 31-0 first entry; counts becomes the latter.

    total uint32[1], 0 before: the entries so far. One thread per BUCKETS buckets.
    """
    first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(BUCKETS))
    stop = min(np.uint32(first + np.uint32(BUCKETS)), np.uint32(counts.size))
    number = np.uint32(0)
    for bucket in range(first, stop):
        number = np.uint32(number + counts[bucket])
    begin = np.uint32(0)
    if number != np.uint32(0):
        begin = np.uint32(cuda.atomic.add(total, 0, number))
    for bucket in range(first, stop):
        end = np.uint32(begin + counts[bucket])
        buckets[bucket] = np.uint64(np.uint64(np.uint64(end) << np.uint64(32)) | np.uint64(begin))
        counts[bucket] = begin
        begin = end


def place(codes, patterns, k, distance, spacing, width, tables, paired, counts, entries, ranks):
    """Fill entries uint64[E] and ranks uint32[E] of the tables; one thread per pattern.

    codes uint64[n]: the stored k-mers. patterns uint32: n, or 2 n with the reverse complements. k,
    distance, spacing, width, tables, paired uint32: the scheme. counts uint32[B]: the next place of
    each bucket.
    """
    pattern = np.uint32(cuda.grid(1))
    if pattern >= patterns:
        return
    low, high = planes_of(codes, pattern, k)
    rest = np.uint32(np.uint32(32) - k)
    low_back = np.uint32(reverse_word(low) >> rest)
    high_back = np.uint32(reverse_word(high) >> rest)
    for table in range(tables):
        for anchor in range(np.uint32(np.uint32(distance + np.uint32(1)) - np.uint32(table))):
            key = key_of(low, high, k, spacing, width, paired, np.uint32(table), np.uint32(anchor))
            offset = np.uint32(np.uint32(anchor) * spacing)
            on = np.uint32(offset + width)
            behind = np.uint32(k - on)
            back = np.uint32(k - offset)
            around_low = np.uint64(np.uint32(low >> on))
            around_high = np.uint64(np.uint32(high >> on))
            if offset != np.uint32(0):
                before = np.uint32(np.uint32(low_back >> back) << behind)
                around_low = np.uint64(around_low | np.uint64(before))
                before = np.uint32(np.uint32(high_back >> back) << behind)
                around_high = np.uint64(around_high | np.uint64(before))
            entry = np.uint64(around_low | np.uint64(around_high << np.uint64(HIGH_SHIFT)))
            entry = np.uint64(
                entry | np.uint64(np.uint64(np.uint32(anchor)) << np.uint64(PIECE_SHIFT))
            )
            at = np.uint32(cuda.atomic.add(counts, key, np.uint32(1)))
            entries[at] = entry
            ranks[at] = pattern


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
            with_threads(plain(function), threads, THREADS, stream)(*arguments)

        run(count, number, codes, *of_scheme, counts)
        run(share, -(-counts.size // BUCKETS), counts, total, self.buckets)
        run(place, number, codes, *of_scheme, counts, self.entries, self.ranks)

    @staticmethod
    def nbytes(patterns: Patterns, scheme: Scheme | None = None) -> int:
        """Bytes on the GPU while the tables are built."""
        scheme = gpu_scheme(patterns) if scheme is None else scheme
        entries = 12 * scheme.entries * patterns.words.size
        return 12 * _buckets(scheme) + entries + patterns.codes.nbytes


def _buckets(scheme: Scheme) -> int:
    return int(len(scheme.gaps) * 4**scheme.key_symbols)
