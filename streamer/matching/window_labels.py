"""The label an engine returns for a matching window: its target set, or the number of its k-mer.

Number the k-mers of a dictionary in the order in which its records first hold them.

Counters indexed by these numbers follow the records: the matching windows of a read count in
adjacent places, one run of numbers after another, and touch few cache lines.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.target_kernels import look_up_sets
from trie.cpu import array_pool
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.index.reference_text import PAD
from trie.prefixes import PrefixDepths
from trie.windows import GRAIN, NO_SET


class KmerNumbers(NamedTuple):
    """The numbers of k-mers, from 0.

    of_codes: uint32, for each code of the dictionary. at: uint32[symbols of the records], for the
    window that starts at each symbol, NO_SET where none does; empty if the records are not kept.
    """

    of_codes: NDArray[np.uint32]
    at: NDArray[np.uint32]


class NumberedPlaces(NamedTuple):
    """The numbers along the text of the records (``trie.index.reference_text``).

    at: uint32[symbols], NO_SET where no window begins. ends: uint32, bit p % 32 of word p / 32:
    the number at place p + 1 is not one greater than that at place p.
    """

    at: NDArray[np.uint32]
    ends: NDArray[np.uint32]

    @classmethod
    def of(cls, numbers: KmerNumbers, offsets: NDArray[np.int64]) -> NumberedPlaces:
        """Number the places of records with these offsets, which must be kept."""
        at = by_place(numbers.at, offsets)
        ends = np.zeros(at.size // 32 + 1, np.uint32)
        _mark_ends(at, ends)
        return cls(at, ends)


def by_place(values: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.uint32]:
    """uint32[places of the text]: a value for each symbol of records, elsewhere NO_SET."""
    at = np.full(values.size + offsets.size + 2 * PAD, NO_SET, np.uint32)
    _put_by_place(values, offsets, at)
    return at


@njit(cache=True, nogil=True)
def _put_by_place(values, offsets, at):
    for record in range(offsets.size - 1):
        for symbol in range(offsets[record], offsets[record + 1]):
            at[PAD + record + symbol] = values[symbol]


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


@njit(cache=True, nogil=True)
def _mark_ends(at, ends):
    for place in range(at.size - 1):
        if np.int64(at[place + 1]) != np.int64(at[place]) + 1:
            ends[place >> 5] |= np.uint32(1) << np.uint32(place & 31)


Found = NDArray[np.uint32] | None

_WINDOWS_OF_A_RUN = 8  # whose numbers take as much memory


class WindowLabels:
    """The labels of the initial dictionary's k-mers.

    changes: further k-mers are added, without a label. counted: labels are numbers, if there are
    targets.

    by_place: the dictionary's index finds the windows, and its places are their numbers: the first
    place of each k-mer.

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
        self.index = dictionary.index if by_place else None
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

    @property
    def suit_runs(self) -> bool:
        """Whether runs along the records are long enough to count by."""
        if self.index is not None:
            return self.counted
        records = self.dictionary.records
        if self.numbers is None or records is None:
            return False
        symbols, count = records.bases.size, records.offsets.size - 1
        return bool(symbols >= count * (self.dictionary.k - 1 + _WINDOWS_OF_A_RUN))

    def along_records(self, *, runs: bool) -> Found:
        """The labels of the windows in the dictionary's records, if they are known and needed.

        runs: as for ``none_of``.
        """
        if self.numbers is None or not (self._differ if runs else self.needed):
            return None
        return self._sets_of(self.numbers.at) if runs else self.numbers.at

    @cached_property
    def places(self) -> NumberedPlaces:
        """The numbers by place, for ``BatchResult.runs``; requires ``numbers`` and the records."""
        assert self.numbers is not None
        assert self.dictionary.records is not None
        return NumberedPlaces.of(self.numbers, self.dictionary.records.offsets)

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
