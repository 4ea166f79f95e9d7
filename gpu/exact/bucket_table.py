"""The default kernel for k > 12: one look-up per window in a bucket table built from the snapshot.

A bijection mixes the 2k bits of a k-mer's code, so that any dictionary fills the table evenly:

    mixed   [ bucket: B bits ][ remainder: F = 2k - B bits ]

The remainder is stored in full, so the answer is exact. A bucket is 2 or 4 words of 64 bits:

    word 0   63 not empty | fields of F bits, as many as 63 bits hold
    word 1   63 overflow  | fields
    words 2, 3              fields

Empty fields repeat the first one. A window not found in a bucket that overflowed walks down the
trie instead (gpu/exact/walk.py). B is chosen so that fewer than 2 % of the buckets overflow, in as
little memory as possible: 32 MB for 10 M k-mers of 15 symbols.

Operations per window: about 75 integer operations (15 for the bijection) and no branch but for
overflow; 16 or 32 bytes of one sector. A field equal to the remainder is a zero field of x = word ^
repeated remainder, found with ~(((x & low) + low) | x) & high, exact in every field.

On an H200 119 G windows/s while the table fits into the L2 cache (32 MB), 72 G with a table of 64
MB, 41 G with 256 MB; the walk over 10 M k-mers of 15 symbols reaches 64 G.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda, device_function, load_pair, product
from gpu.exact.walk import descent, jump_level
from gpu.exact.window_bits import bit_of, window_reader, write_votes

BUCKETS_FROM = 13
"""The least k for which ``buckets`` is the default: for smaller k a walk also needs one look-up."""

THREADS = 256  # threads per block; any multiple of 32
OVERFLOWING = 0.02  # the share of buckets that may hold more k-mers than they have fields
_FLAG = np.uint64(1 << 63)


@dataclass(frozen=True)
class BucketShape:
    """The layout of a table for windows of k symbols: 2**bits buckets of ``words`` words."""

    k: int
    bits: int
    words: int

    @property
    def field(self) -> int:
        """Bits of a remainder."""
        return 2 * self.k - self.bits

    @property
    def fields(self) -> int:
        """Remainders per word."""
        return 63 // self.field

    @property
    def size(self) -> int:
        """Words of the table."""
        return self.words << self.bits


def default_method(k: int) -> str:
    """The fastest kernel for windows of k symbols."""
    return "buckets" if k >= BUCKETS_FROM else "walk"


def overflowing(shape: BucketShape, kmers: int) -> float:
    """The share of buckets with more k-mers than fields, from the Poisson distribution."""
    mean = kmers / 2.0**shape.bits
    fit = sum(
        math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) if mean else float(n == 0)
        for n in range(shape.words * shape.fields + 1)
    )
    return max(0.0, 1.0 - fit)


def choose_shape(k: int, kmers: int) -> BucketShape:
    """The smallest table for that number of k-mers.

    Of two tables of equal size, the one with shorter buckets unless more than 0.5 % of them
    overflow.
    """
    shapes = [BucketShape(k, bits, words) for bits in range(1, min(2 * k, 32)) for words in (2, 4)]
    good = [shape for shape in shapes if overflowing(shape, kmers) < OVERFLOWING] or shapes[-1:]
    return min(good, key=lambda shape: (shape.size, overflowing(shape, kmers) > 0.005, shape.words))


def mixer(k: int) -> Any:
    """The device function that permutes the codes of k-mers."""
    mask = np.uint64(4**k - 1)
    half = np.uint64(k)
    # odd numbers from the golden ratio and the square root of two
    factor = np.uint64(0x9E3779B97F4A7C15)
    two = np.uint64(0xB504F333F9DE6485)

    @device_function
    def mix(code):
        code = np.uint64(code ^ np.uint64(code >> half))
        code = np.uint64(product(code, factor) & mask)
        code = np.uint64(code ^ np.uint64(code >> half))
        code = np.uint64(product(code, two) & mask)
        return np.uint64(code ^ np.uint64(code >> half))

    return mix


def lookup(shape: BucketShape, canonical: bool) -> Callable[..., None]:
    """The kernel that writes a bit per window; at least 32 W threads, 32 | block.

    Arguments: bases uint32[], starts uint32[W], table uint64[shape.size], then jump, nodes, leaves
    and matches as for ``walk_bits``.
    """
    k = shape.k
    mix = mixer(k)
    read = window_reader(k, canonical)
    descend = descent(k, jump_level(k))
    field = np.uint64(shape.field)
    rest = np.uint64((1 << shape.field) - 1)
    places = range(0, shape.fields * shape.field, shape.field)
    ones = np.uint64(sum(1 << at for at in places))
    high = np.uint64(sum(1 << (at + shape.field - 1) for at in places))
    used = np.uint64((1 << (shape.fields * shape.field)) - 1)
    low = np.uint64(int(used) & ~int(high))
    long = shape.words == 4

    @device_function
    def holds(word, repeated):
        x = np.uint64(np.uint64(word ^ repeated) & used)
        full = np.uint64(np.uint64(np.uint64(x & low) + low) | x)
        return np.uint64(np.uint64(~full) & high)

    def buckets(bases, starts, table, jump, nodes, leaves, matches):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return  # the whole warp
        matched = False
        if bit_of(starts, start):
            window = read(bases, start)
            mixed = mix(np.uint64(window >> np.uint64(64 - 2 * k)))
            bucket = np.uint64(mixed >> field)
            repeated = product(np.uint64(mixed & rest), ones)
            if long:
                a, b = load_pair(table, np.uint64(bucket * np.uint64(2)))
                c, d = load_pair(table, np.uint64(np.uint64(bucket * np.uint64(2)) + np.uint64(1)))
                there = np.uint64(holds(c, repeated) | holds(d, repeated))
                there = np.uint64(there | np.uint64(holds(a, repeated) | holds(b, repeated)))
            else:
                a, b = load_pair(table, bucket)
                there = np.uint64(holds(a, repeated) | holds(b, repeated))
            matched = there != np.uint64(0) and np.uint64(a & _FLAG) != np.uint64(0)
            if not matched and np.uint64(b & _FLAG) != np.uint64(0):
                matched = descend(window, jump, nodes, leaves)
        write_votes(matches, word, start, matched)

    return buckets


def insert(shape: BucketShape) -> Callable[..., None]:
    """The kernel that puts the k-mers of the last level into an empty table; one thread per node.

    Arguments: first uint32 (node of the last level), inmaps uint32[N], prefixes uint64[N] (of
    every node, right-aligned), table uint64[shape.size] (zeros before), counts
    uint32[2**shape.bits] (zeros before; then the k-mers of each bucket).
    """
    k = shape.k
    mix = mixer(k)
    symbols = k % 3
    skip = (0, 1, 5)[symbols]
    leaves = (1, 4, 16)[symbols]
    slots = np.uint32(shape.words * shape.fields)
    fields = np.uint32(shape.fields)
    field = np.uint32(shape.field)
    words = np.uint64(shape.words)
    rest = np.uint64((1 << shape.field) - 1)

    def kernel(first, inmaps, prefixes, table, counts):
        node = np.uint64(first) + np.uint64(cuda.grid(1))
        if node >= np.uint64(inmaps.size):
            return
        inmap = np.uint32(inmaps[node] >> np.uint32(skip))
        for leaf in range(leaves):
            if np.uint32(inmap >> np.uint32(leaf)) & np.uint32(1):
                prefix = np.uint64(prefixes[node] << np.uint64(2 * symbols))
                mixed = mix(np.uint64(prefix | np.uint64(leaf)))
                bucket = np.uint64(mixed >> np.uint64(field))
                slot = np.uint32(cuda.atomic.add(counts, bucket, np.uint32(1)))
                if slot < slots:
                    at = np.uint64(bucket * words) + np.uint64(slot // fields)
                    shift = np.uint64(np.uint32(slot % fields) * field)
                    value = np.uint64(np.uint64(mixed & rest) << shift)
                    cuda.atomic.or_(table, at, value)

    return kernel


def finish(shape: BucketShape) -> Callable[..., None]:
    """The kernel that repeats fields and sets flags after ``insert``; one thread per bucket.

    Arguments: table and counts of ``insert``.
    """
    slots = shape.words * shape.fields
    fields = shape.fields
    field = shape.field
    words = np.uint64(shape.words)
    rest = np.uint64((1 << shape.field) - 1)

    def kernel(table, counts):
        bucket = np.uint64(cuda.grid(1))
        if bucket >= np.uint64(counts.size):
            return
        count = np.uint32(counts[bucket])
        if count == np.uint32(0):
            return
        at = np.uint64(bucket * words)
        value = np.uint64(table[at] & rest)
        for slot in range(1, slots):
            if np.uint32(slot) >= count:
                word = np.uint64(at + np.uint64(slot // fields))
                shift = np.uint64(slot % fields * field)
                table[word] = np.uint64(table[word] | np.uint64(value << shift))
        table[at] = np.uint64(table[at] | _FLAG)
        if count > np.uint32(slots):
            after = np.uint64(at + np.uint64(1))
            table[after] = np.uint64(table[after] | _FLAG)

    return kernel
