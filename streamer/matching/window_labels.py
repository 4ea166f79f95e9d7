"""The label an engine returns for a matching window: its target set, or the number of its k-mer.

Number the k-mers of a dictionary in the order in which its records first hold them.

Counters indexed by these numbers follow the records: the matching windows of a read count in
adjacent places, one run of numbers after another, and touch few cache lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.target_kernels import look_up_sets
from trie.cpu import array_pool
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.index.kmer_index import ALWAYS_BITSET_K
from trie.index.mers import suits
from trie.prefixes import PrefixDepths
from trie.windows import GRAIN, NO_SET


class KmerNumbers(NamedTuple):
    """The numbers of k-mers, from 0.

    of_codes: uint32, for each code of the dictionary. at: uint32[symbols of the records], for the
    window that starts at each symbol, NO_SET where none does; empty if the records are not kept.
    """

    of_codes: NDArray[np.uint32]
    at: NDArray[np.uint32]


def number_kmers(dictionary: Dictionary, threads: int) -> KmerNumbers:
    """Number the k-mers; in order of their codes if ``dictionary.records`` is None."""
    codes, records = dictionary.codes, dictionary.records
    if codes.size >= NO_SET:
        raise StreamerError(
            f"{codes.size:,} k-mers in the dictionary: at most {NO_SET - 1:,} can be counted"
        )
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


def _is_looked_up(dictionary: Dictionary) -> bool:
    """Whether windows are looked up in an index, not in a table of its k-mers."""
    index = dictionary.index
    if index is None or dictionary.k <= ALWAYS_BITSET_K:
        return False
    return index.made is not None or suits(index.k, index.size)


Found = NDArray[np.uint32] | None


class WindowLabels:
    """The labels of the initial dictionary's k-mers.

    changes: further k-mers are added, without a label. counted: labels are numbers, if there are
    targets.

    by_place: the dictionary's index finds the windows if it suits, and its places are their
    numbers: the first place of each k-mer.

    only_set: the target set of every matching window if there is only one set, else NO_SET. needed:
    engines must look up labels, those of ``dictionary.sets``; otherwise only whether a window
    matches. numbers: of the k-mers, if these are the labels. set_of: the target set of each number.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        *,
        changes: bool,
        counted: bool,
        threads: int,
        by_place: bool = False,
    ) -> None:
        sets = len(dictionary.targets)
        self.index = dictionary.index if by_place and _is_looked_up(dictionary) else None
        self.only_set = np.uint32(0) if sets == 1 else NO_SET
        self._threads = threads
        self.dictionary = dictionary
        self.numbers: KmerNumbers | None = None
        if self.index is not None:
            self._differ = self.needed = sets > 1
            self.counted = counted
            return
        self._differ = sets > 1 or (
            sets == 1 and (changes or bool((dictionary.sets == NO_SET).any()))
        )
        self.set_of = dictionary.sets
        if counted and sets:
            self.numbers = number_kmers(dictionary, threads)
            self.dictionary = dictionary.replaced(sets=self.numbers.of_codes)
            self.set_of = np.empty(dictionary.codes.size, np.uint32)
            self.set_of[self.numbers.of_codes] = dictionary.sets
        self.needed = self._differ or self.numbers is not None
        self.counted = self.numbers is not None

    def none_of(self, symbols: int, *, runs: bool) -> Found:
        """Allocate labels for that many windows, initially none; None if labels are not needed.

        runs: the engine ``finds_runs``, so labels are target sets.
        """
        if not (self._differ if runs else self.needed):
            return None
        labels = array_pool.empty(symbols, np.uint32)
        labels.fill(NO_SET)
        return labels

    def told_apart(self, labels: Found, *, runs: bool) -> tuple[Found, Found]:
        """Split labels into target sets and numbers of windows; None for what is not wanted.

        runs: as for ``none_of``.
        """
        if self.numbers is None or labels is None or runs:
            return labels, None
        return (self._sets_of(labels) if self._differ else None), labels

    def _sets_of(self, numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        sets = np.empty_like(numbers)

        def look_up(start: int, stop: int) -> None:
            look_up_sets(numbers, self.set_of, start, stop, sets)

        run_ranges(look_up, 0, numbers.size, self._threads, grain=GRAIN)
        return sets
