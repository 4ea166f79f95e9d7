"""The label an engine returns for a matching window: its target set, or the number of its k-mer."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.kmer_numbers import KmerNumbers, NumberedPlaces, number_kmers
from streamer.dictionary.targets import Dictionary
from streamer.matching.target_kernels import look_up_sets
from trie.cpu import array_pool
from trie.cpu.threads import run_ranges
from trie.windows import GRAIN, NO_SET

Found = NDArray[np.uint32] | None

_WINDOWS_OF_A_RUN = 8  # whose numbers take as much memory


class WindowLabels:
    """The labels of the initial dictionary's k-mers.

    changes: further k-mers are added, without a label. counted: labels are numbers, if there are
    targets.

    only_set: the target set of every matching window if there is only one set, else NO_SET. needed:
    engines must look up labels, those of ``dictionary.sets``; otherwise only whether a window
    matches. numbers: of the k-mers, if these are the labels. set_of: the target set of each number.
    """

    def __init__(
        self, dictionary: Dictionary, *, changes: bool, counted: bool, threads: int
    ) -> None:
        sets = len(dictionary.targets)
        self.only_set = np.uint32(0) if sets == 1 else NO_SET
        self._threads = threads
        self._differ = sets > 1 or (
            sets == 1 and (changes or bool((dictionary.sets == NO_SET).any()))
        )
        self.dictionary = dictionary
        self.numbers: KmerNumbers | None = None
        self.set_of = dictionary.sets
        if counted and sets:
            self.numbers = number_kmers(dictionary, threads)
            self.dictionary = replace(dictionary, sets=self.numbers.of_codes)
            self.set_of = np.empty(dictionary.codes.size, np.uint32)
            self.set_of[self.numbers.of_codes] = dictionary.sets
        self.needed = self._differ or self.numbers is not None

    @property
    def suit_runs(self) -> bool:
        """Whether runs along the records are long enough to count by."""
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
