"""A number for each k-mer of a dictionary, in the order in which its records first hold them.

Counters by these numbers lie as the records do: the windows of a read that matches count in
neighbouring places, one run of numbers after another, and few cache lines are touched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from trie.cpu.jit import njit
from trie.prefixes import PrefixDepths
from trie.windows import NO_SET


class KmerNumbers(NamedTuple):
    """Numbers from 0 on, each of one k-mer.

    of_codes: uint32, of each code of the dictionary. at: uint32[symbols of the records], of the
    window that starts at each symbol, NO_SET where none does; empty if the records are not kept.
    """

    of_codes: NDArray[np.uint32]
    at: NDArray[np.uint32]


def number_kmers(dictionary: Dictionary, threads: int) -> KmerNumbers:
    """Number the k-mers: in the order of their codes if ``dictionary.records`` is None."""
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
    """Turn the ranks in ``at`` into numbers by first occurrence, and write those of all ranks."""
    count = 0
    for i in range(at.size):
        rank = at[i]
        if rank != NO_SET:
            if numbers[rank] == NO_SET:
                numbers[rank] = count
                count += 1
            at[i] = numbers[rank]
    for rank in range(numbers.size):  # k-mers that it has grown by
        if numbers[rank] == NO_SET:
            numbers[rank] = count
            count += 1
