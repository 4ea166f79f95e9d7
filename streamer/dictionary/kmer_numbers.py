"""Number the k-mers of a dictionary in the order in which its records first hold them.

Counters indexed by these numbers follow the records: the matching windows of a read count in
adjacent places, one run of numbers after another, and touch few cache lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from trie.cpu.jit import njit
from trie.index.reference_text import padded
from trie.prefixes import PrefixDepths
from trie.windows import NO_SET


class KmerNumbers(NamedTuple):
    """The numbers of k-mers, from 0.

    of_codes: uint32, for each code of the dictionary. at: uint32[symbols of the records], for the
    window that starts at each symbol, NO_SET where none does; empty if the records are not kept.
    """

    of_codes: NDArray[np.uint32]
    at: NDArray[np.uint32]


class NumberedPlaces(NamedTuple):
    """The numbers along the ``padded`` records.

    at: uint32[symbols], NO_SET where no window begins. ends: uint32, bit p % 32 of word p / 32:
    the number at place p + 1 is not one greater than that at place p.
    """

    at: NDArray[np.uint32]
    ends: NDArray[np.uint32]

    @classmethod
    def of(cls, numbers: KmerNumbers, offsets: NDArray[np.int64]) -> NumberedPlaces:
        """Number the places of records with these offsets, which must be kept."""
        at = padded(numbers.at, offsets, NO_SET)
        ends = np.zeros(at.size // 32 + 1, np.uint32)
        _mark_ends(at, ends)
        return cls(at, ends)


def number_kmers(dictionary: Dictionary, threads: int) -> KmerNumbers:
    """Number the k-mers; in order of their codes if ``dictionary.records`` is None."""
    codes, records = dictionary.codes, dictionary.records
    if codes.size >= NO_SET:
        message = f"{codes.size:,} k-mers in the dictionary: at most {NO_SET - 1:,} can be counted"
        raise StreamerError(message)
    if records is None:
        return KmerNumbers(np.arange(codes.size, dtype=np.uint32), np.zeros(0, np.uint32))
    canonical = dictionary.strands != "forward"
    at = PrefixDepths(codes, dictionary.k).ranks(*records, canonical=canonical, threads=threads)
    of_codes = np.full(codes.size, NO_SET, dtype=np.uint32)
    _number(at, of_codes)
    return KmerNumbers(of_codes, at)


@njit(cache=True, nogil=True)
def _number(at, numbers):
    """Replace the ranks in ``at`` by numbers by first occurrence; also fill ``numbers``."""
    count = 0
    for i in range(at.size):
        rank = at[i]
        if rank != NO_SET:
            if numbers[rank] == NO_SET:
                numbers[rank] = count
                count += 1
            at[i] = numbers[rank]
    # k-mers that no record holds, because the dictionary has grown
    for rank in range(numbers.size):
        if numbers[rank] == NO_SET:
            numbers[rank] = count
            count += 1


@njit(cache=True, nogil=True)
def _mark_ends(at, ends):
    for place in range(at.size - 1):
        if np.int64(at[place + 1]) != np.int64(at[place]) + 1:
            ends[place >> 5] |= np.uint32(1) << np.uint32(place & 31)
