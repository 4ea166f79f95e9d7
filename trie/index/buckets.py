"""Buckets of eight keys in one cache line: the memory layout of the k-mer table, and one look-up.

    table     | region 0            | region 1 | ...                      | region 15 |
    region    | bucket | bucket | bucket | ...     2**n buckets, 2**n >= 64            |
    bucket    | key 0 | key 1 | ... | key 7 |      64 bytes, one cache line            |
    key       | (code + 1) * ODD, 64 bits |        0 = free; filled from key 0 on

ODD is odd, so the key is a bijection of the code: the table stores and compares keys alone, and
inverts them to list codes. The *high* bits of a key give its bucket, so doubling the table splits
bucket i into 2i and 2i + 1, in one pass of sequential reads and writes. A full bucket spills into
the next one of its region, with wrap-around, so regions never share a bucket and each may have its
own writer: the region is the highest 4 bits of the key.

A look-up reads one cache line, compares its eight keys at once (one 512-bit or two 256-bit compares
and a mask), and touches the next line only if the bucket is full.
"""

from typing import Final

import numpy as np

from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import equal_mask

ODD: Final = np.uint64(0x9E3779B97F4A7C15)
INVERSE: Final = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
SLOTS: Final = 8
REGION_BITS: Final = 4
REGIONS: Final = 1 << REGION_BITS
MIN_BUCKET_BITS: Final = 10
FREE: Final = np.uint64(0)


@njit(cache=True, nogil=True, inline="always")
def key_of(code):
    """The stored key of a k-mer code: never 0, since code + 1 is neither 0 nor 2**64."""
    return (code + np.uint64(1)) * ODD


@njit(cache=True, nogil=True, inline="always")
def code_of(key):
    """The k-mer code of a stored key."""
    return key * INVERSE - np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def home(key, shift):
    """The index of the first word of a key's bucket; shift = 64 - bits of a bucket number."""
    return (key >> shift) << np.uint64(3)


@njit(cache=True, nogil=True, inline="always")
def region_of(key):
    """The region of a key."""
    return key >> np.uint64(64 - REGION_BITS)


@njit(cache=True, nogil=True, inline="always")
def in_part(region, part, part_bits):
    """Whether a region belongs to a writer's part, one of ``1 << part_bits`` parts."""
    return region >> np.uint64(REGION_BITS - part_bits) == np.uint64(part)


@njit(cache=True, nogil=True, inline="always")
def next_bucket(bucket, shift):
    """The first word of the bucket that a full bucket spills into: the next of its region."""
    inside = (np.uint64(1) << (np.uint64(64 - REGION_BITS + 3) - shift)) - np.uint64(1)
    return (bucket & ~inside) | ((bucket + np.uint64(SLOTS)) & inside)


@njit(cache=True, nogil=True)
def find_spilled(keys, shift, bucket, key):
    """As ``find_slot``, after a full home bucket; terminates: each region has a free slot."""
    while True:
        bucket = next_bucket(bucket, shift)
        here = equal_mask(keys, bucket, key)
        if here != 0:
            return bucket + np.uint64(trailing_zeros(here))
        free = equal_mask(keys, bucket, FREE)
        if free != 0:
            return bucket + np.uint64(trailing_zeros(free))


@njit(cache=True, nogil=True, inline="always")
def find_slot(keys, shift, key):
    """The slot of ``key``, or the free slot where it belongs: compare ``keys[slot]``."""
    bucket = home(key, shift)
    mask = equal_mask(keys, bucket, key) | equal_mask(keys, bucket, FREE)
    if mask != 0:
        # a bucket fills from its first slot, so a hit lies before every free slot
        return bucket + np.uint64(trailing_zeros(mask))
    return find_spilled(keys, shift, bucket, key)
