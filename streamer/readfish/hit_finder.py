"""Find the target and the strand that the first bases of a read come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.assignment import Assignment
from streamer.matching.matcher import StreamMatcher
from streamer.matching.result import BatchResult
from streamer.matching.target_counts import numbers_of
from streamer.sequences.read_batch import ReadBatch, offsets_of
from trie.codes import INVALID, LETTER_TO_CODE
from trie.windows import NO_SET, codes_at

_EVERY = 16
_AS_LETTERS = (
    np.where(LETTER_TO_CODE == INVALID, ord("N"), np.arange(256)).astype(np.uint8).tobytes()
)


class Hit(NamedTuple):
    """A read lies somewhere on this contig: the alignment fields that readfish uses.

    strand: 1 or -1. r_st, r_en: the whole contig. mlen: windows that match it. blen: windows of the
    read without an ambiguity code.
    """

    ctg: str
    strand: int
    r_st: int
    r_en: int
    mlen: int
    blen: int


class HitFinder:
    """Finds the target and strand of reads with a fixed dictionary; not thread-safe."""

    def __init__(self, dictionary: Dictionary, rule: Assignment, threads: int) -> None:
        records = dictionary.records
        assert records is not None
        self._rule = rule
        self._matcher = StreamMatcher.of(dictionary, counted=True, device="cpu", threads=threads)
        self._names = dictionary.targets.names
        self._lengths = np.diff(records.offsets).tolist()
        self._records = records
        numbers = self._matcher.labels.numbers
        assert numbers is not None
        # in reverse order, so that the first place of each k-mer wins
        places = np.flatnonzero(numbers.at != NO_SET)[::-1]
        self._place = np.zeros(dictionary.codes.size, np.int64)
        self._place[numbers.at[places]] = places

    def find(self, sequences: Sequence[str]) -> Iterator[Hit | None]:
        """Yield the hit of each read, None for a read that is on no target.

        Bytes that are not IUPAC letters count as N.
        """
        letters = "".join(sequences).encode("latin-1", "replace").translate(_AS_LETTERS)
        names = [""] * len(sequences)
        batch = ReadBatch.from_letters(names, offsets_of(sequences), letters)
        result = self._matcher.match(batch, want_depths=False, want_nodes=False)
        assigned = self._rule.assign(result, self._matcher.dictionary.targets)
        strands = self._strands(result, assigned.target)
        for target, strand, matches, windows in zip(
            assigned.target.tolist(), strands.tolist(), assigned.matches.tolist(),
            assigned.windows.tolist(), strict=True,
        ):  # fmt: skip
            if target < 0:
                yield None
            else:
                length = self._lengths[target]
                yield Hit(self._names[target], strand, 0, length, matches, windows)

    def _strands(self, result: BatchResult, target: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return int64[reads]: 1 or -1, the strand of most of the windows examined.

        A window counts at its k-mer's first place. If no such place lies in the read's own target,
        places in other targets decide.
        """
        numbers = numbers_of(result, self._matcher.labels)
        starts = np.flatnonzero(numbers != NO_SET)
        # adjacent windows agree, so sample the first of each run and some that follow
        starts = starts[(starts % _EVERY == 0) | (np.diff(starts, prepend=-2) != 1)]
        places = self._place[numbers[starts]]
        here = codes_at(result.batch.bases, starts, result.k)
        there = codes_at(self._records.bases, places, result.k)
        votes = np.where(here == there, 1, -1)
        read = np.searchsorted(result.batch.offsets, starts, side="right") - 1
        record = np.searchsorted(self._records.offsets, places, side="right") - 1
        own = record == target[read]
        reads = len(result.batch)
        of_own = np.bincount(read[own], votes[own], reads)
        of_all = np.bincount(read, votes, reads)
        return np.where(np.where(of_own != 0, of_own, of_all) < 0, -1, 1)

    def close(self) -> None:
        """Stop the matcher's threads."""
        self._matcher.close()
