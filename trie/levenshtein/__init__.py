"""The nearest k-mer at every end of a read, by full Levenshtein distance (thesis, future work).

For every end e of a read: the least edit distance between a pattern P and read[s:e], over all
patterns of a dictionary and all starts s of that read, if it is at most D (0 <= D <= 4, D < k). The
first pattern wins a tie, then the largest start. A gap code equals nothing, but an alignment may
substitute or insert it.

Patterns are k-mer codes in the order of their rank in ties: the stored k-mers, ascending, then,
with both strands, their reverse complements in the same order. An answer is a word per end:

    bit  31 29 28                       4 3             0
         [ d ] [ pattern: 25 bits       ] [ e - s - k + 4 ]

so the least word wins every tie, and 0xFFFFFFFF (a distance of 7) means no answer.

Methods: ``lanes`` (trie/levenshtein/lanes.py) computes the distance of every pattern at every
end; ``pieces`` (trie/levenshtein/piece_index.py) looks up pieces of the patterns and verifies the
candidates. Both give the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_DISTANCE, check_distance, check_k, with_reverse_complements
from trie.cpu.jit import njit

DISTANCE_SHIFT = 29
PATTERN_SHIFT = 4
MAX_PATTERNS = 1 << (DISTANCE_SHIFT - PATTERN_SHIFT)
NOTHING = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns of one length in the order of their rank.

    codes: uint64[n], the stored k-mers, ascending. words: uint64[n] or, with ``both``, [2n]: those
    codes, then their reverse complements; the index is the pattern's rank.
    """

    k: int
    distance: int
    both: bool
    codes: NDArray[np.uint64]
    words: NDArray[np.uint64]

    @classmethod
    def of(cls, codes: NDArray[np.uint64], k: int, distance: int, *, both: bool) -> Patterns:
        """From strictly ascending codes. ValueError if k, distance or the size is out of range."""
        check_k(k)
        check_distance(distance, k)
        words = with_reverse_complements(codes, k) if both else codes
        if words.size > MAX_PATTERNS:
            raise ValueError(f"{words.size} patterns, at most {MAX_PATTERNS} are one set")
        return cls(k, distance, both, codes, words)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest patterns, by ascending end.

    end int64: the symbol after the match, counted from the first of the batch. length int64:
    symbols matched. distance uint8. strand uint8: 0 is ``+``, 1 is ``-``. code uint64: the k-mer as
    stored.
    """

    end: NDArray[np.int64]
    length: NDArray[np.int64]
    distance: NDArray[np.uint8]
    strand: NDArray[np.uint8]
    code: NDArray[np.uint64]

    def __len__(self) -> int:
        return self.end.size

    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns in this order."""
        return self.end, self.length, self.distance, self.strand, self.code


def unpack(words: NDArray[np.uint32], first: int, patterns: Patterns) -> Nearest:
    """The answers in the words of the ends first + 1, first + 2, ..."""
    at = np.flatnonzero(words != NOTHING)
    return unpack_found(at + first + 1, words[at], patterns)


def unpack_found(ends: NDArray[np.int64], words: NDArray[np.uint32], patterns: Patterns) -> Nearest:
    """The answers in the words of these ends, none of them NOTHING."""
    rank = (words >> np.uint32(PATTERN_SHIFT)) & np.uint32(MAX_PATTERNS - 1)
    stored = patterns.codes.size
    reverse = rank >= stored
    return Nearest(
        end=ends,
        length=(words & np.uint32(15)).astype(np.int64) + (patterns.k - MAX_DISTANCE),
        distance=(words >> np.uint32(DISTANCE_SHIFT)).astype(np.uint8),
        strand=reverse.astype(np.uint8),
        code=patterns.codes[rank - reverse * np.uint32(stored)],
    )


def joined(parts: list[Nearest]) -> Nearest:
    """The parts concatenated."""
    if len(parts) == 1:
        return parts[0]
    return Nearest(*map(np.concatenate, zip(*(part.columns() for part in parts), strict=True)))


def least(parts: list[Nearest]) -> Nearest:
    """The nearest of several sets of patterns, searched over the same ends."""
    nearest = parts[0]
    for other in parts[1:]:
        if not len(other):
            continue
        both = joined([nearest, other])
        order = _merged(*both.columns(), len(nearest))
        nearest = Nearest(*(column[order] for column in both.columns()))
    return nearest


@njit(cache=True, nogil=True)
def _merged(end, length, distance, strand, code, border):
    """The row of the best answer for each end: int64, ends ascending.

    The rows before ``border`` and those from it on each have strictly ascending ends.
    """
    order = np.empty(end.size, dtype=np.int64)
    number = 0
    i = 0
    j = border
    while i < border and j < end.size:
        if end[i] != end[j]:
            if end[i] < end[j]:
                order[number] = i
                i += 1
            else:
                order[number] = j
                j += 1
        else:
            own = (distance[i], strand[i], code[i], length[i])
            other = (distance[j], strand[j], code[j], length[j])
            order[number] = j if other < own else i
            i += 1
            j += 1
        number += 1
    for at in range(i, border):
        order[number] = at
        number += 1
    for at in range(j, end.size):
        order[number] = at
        number += 1
    return order[:number]


@njit(cache=True, nogil=True)
def shortest_length(pattern, k, distance, bases, first, end):
    """The least number of symbols before ``end``, and from ``first`` on, at exactly that distance.

    Rows are pattern symbols from the last to the first, and the band is 2 distance + 1 wide; the
    length is k + the column in which the last row reaches the distance.
    """
    far = 99
    band = 2 * distance + 1
    row = np.full(band + 2, far, dtype=np.int64)
    below = np.full(band + 2, far, dtype=np.int64)
    # column c of row i is the cell of c - 1 - distance + i symbols of text
    for c in range(distance + 1, band + 1):
        row[c] = c - 1 - distance
    for i in range(1, k + 1):
        symbol = (pattern >> np.uint64(2 * (i - 1))) & np.uint64(3)
        below[:] = far
        for c in range(1, band + 1):
            used = c - 1 - distance + i
            if used < 0:
                continue
            # one symbol of the pattern unaligned
            value = row[c + 1] + 1
            if used > 0 and end - used >= first:
                same = np.uint64(bases[end - used]) == symbol
                value = min(value, min(row[c] + (0 if same else 1), below[c - 1] + 1))
            below[c] = value
        row, below = below, row
    for c in range(1, band + 1):
        if row[c] <= distance:
            return k + c - 1 - distance
    return -1
