"""The patterns of a search: validated, of one length, in the requested orientations."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.packed_hits import ID_SHIFT
from streamer.batch.records import Codes, NamedSequence, reverse_complement, signs_of
from streamer.errors import DataError, UsageError

MAX_LENGTH = 256
# so that 32 bits can count the hits of the smallest chunk even if everything matches
MAX_PATTERNS = 1 << 21


@dataclass(frozen=True, slots=True)
class Oriented:
    """The sequences to search for, left to right, in the order of a row's last columns.

    codes: uint8[searched, length] base codes. ids: uint32[searched], ascending: twice the number of
    the pattern, plus 1 for the reverse complement. k: mismatches allowed, below ``length``.
    """

    codes: NDArray[np.uint8]
    ids: NDArray[np.uint32]
    k: int

    def __len__(self) -> int:
        return self.ids.size

    @property
    def length(self) -> int:
        """The length of the patterns."""
        return self.codes.shape[1]

    @property
    def ids_in_place(self) -> NDArray[np.uint64]:
        """Return the ids shifted as in a hit word."""
        return self.ids.astype(np.uint64) << np.uint64(ID_SHIFT)


def orient(patterns: Sequence[NamedSequence], k: int, strands: str, *, source: str) -> Oriented:
    """Prepare the patterns to search for on ``strands`` (forward, reverse, both).

    k: mismatches allowed. Raises UsageError for invalid options; DataError, which names ``source``
    and the pattern, if there are no patterns, or one is empty, longer than MAX_LENGTH, not longer
    than k, or of a different length than the first.
    """
    k = operator.index(k)  # accepts NumPy integers
    if k < 0:
        message = f"-k {k}: mismatches are counted from 0"
        raise UsageError(message)
    signs = signs_of(strands)
    if not patterns:
        problem = "no patterns"
        raise DataError(problem, file=source)
    if len(patterns) > MAX_PATTERNS:
        problem = f"{len(patterns):,} patterns; one search takes {MAX_PATTERNS:,}"
        raise DataError(problem, file=source)
    length = patterns[0].codes.size
    for number, pattern in enumerate(patterns, start=1):
        wrong = _problem(pattern.codes, patterns[0], k)
        if wrong:
            raise DataError(wrong, file=source, record=number, name=pattern.name)
    forward = np.concatenate([pattern.codes for pattern in patterns]).reshape(-1, length)
    backward = reverse_complement(forward.ravel()).reshape(-1, length)[::-1]
    codes = np.stack([(forward, backward)[sign] for sign in signs], axis=1).reshape(-1, length)
    numbers = np.arange(len(patterns), dtype=np.uint32)[:, None] * np.uint32(2)
    return Oriented(codes, (numbers + np.array(signs, dtype=np.uint32)).ravel(), k)


def _problem(codes: Codes, first: NamedSequence, k: int) -> str | None:
    length = first.codes.size
    if not codes.size:
        return "an empty pattern"
    if codes.size != length:
        return (
            f"a pattern of {codes.size} symbols, the first ({first.name}) has {length}: "
            "all patterns of a search have one length"
        )
    if length > MAX_LENGTH:
        return f"a pattern of {length} symbols; at most {MAX_LENGTH} can be searched for"
    if k >= length:
        return (
            f"-k {k}: a pattern of {length} symbols would match everywhere; give k below {length}"
        )
    return None
