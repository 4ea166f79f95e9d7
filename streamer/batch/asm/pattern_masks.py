"""Patterns as sets of bases, in one or both orientations.

A pattern letter is a uint8 with bit b set where it matches the base of code b: 1 A, 2 C, 4 G, 8 T.
An ambiguity letter is 0, which matches nothing, or with ``iupac`` the set of its bases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamer.batch.records import signs_of
from streamer.errors import DataError, UsageError
from trie.codes import GAP, as_letters, encode

Masks = NDArray[np.uint8]

_AMBIGUITY = {
    "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
    "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip


def _mask_table() -> Masks:
    table = np.zeros(256, dtype=np.uint8)
    for letter, bases in _AMBIGUITY.items():
        mask = sum(1 << "ACGT".index(base) for base in bases)
        table[[ord(letter), ord(letter.lower())]] = mask
    return table


_AMBIGUITY_MASKS = _mask_table()


def masks_of(letters: bytes | str | NDArray[np.uint8], *, iupac: bool = False) -> Masks:
    """The base sets of a pattern's letters; InvalidBaseError for a letter that is not DNA."""
    codes = encode(letters)
    masks = np.left_shift(np.uint8(1), codes, dtype=np.uint8)
    masks[codes == GAP] = 0
    if iupac:
        masks |= _AMBIGUITY_MASKS[as_letters(letters)]
    return masks


def reverse_complement(masks: Masks) -> Masks:
    """Return the masks of the reverse complement: reversed, with A and T, C and G exchanged."""
    reversed_ = masks[::-1]
    low = (reversed_ & 1) << 3 | (reversed_ & 2) << 1
    return np.ascontiguousarray(low | (reversed_ & 4) >> 1 | (reversed_ & 8) >> 3)


def check_patterns(
    patterns: Sequence[Masks], names: Sequence[str], k: int, *, source: str = "patterns"
) -> None:
    """Raise UsageError for a negative k; DataError for the first pattern too short for k."""
    if k < 0:
        raise UsageError(f"k is {k}, it must be 0 or more")
    if not patterns:
        raise DataError("holds no pattern", file=source)
    for number, (masks, name) in enumerate(zip(patterns, names, strict=True), 1):
        if masks.size <= k:
            raise DataError(
                "the pattern is empty"
                if masks.size == 0
                else f"the pattern has {masks.size} letters, k = {k} must be less",
                file=source,
                record=number,
                name=name,
            )


@dataclass(frozen=True, eq=False)
class Searches:
    """Patterns with their orientations, in row order: pattern by pattern, ``+`` first.

    masks: a uint8 array each. pattern int32 and strand uint8 (0 ``+``, 1 ``-``) of each.
    k: the largest distance reported.
    """

    masks: Sequence[Masks]
    pattern: NDArray[np.int32]
    strand: NDArray[np.uint8]
    k: int

    def __len__(self) -> int:
        return len(self.masks)

    @cached_property
    def joined_masks(self) -> Masks:
        """All masks, one after another."""
        return np.concatenate(self.masks)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each pattern begins in ``joined_masks``, and the end."""
        return np.cumsum([0, *(masks.size for masks in self.masks)])

    @cached_property
    def longest(self) -> int:
        """The length of the longest pattern."""
        return max(masks.size for masks in self.masks)

    @property
    def reach(self) -> int:
        """The most symbols before an end that a distance <= k there can depend on."""
        return self.longest + self.k


def searches(patterns: Sequence[Masks], k: int, strands: str = "both") -> Searches:
    """Return every pattern in the orientations of ``strands``; UsageError if unknown."""
    signs = signs_of(strands)
    masks: list[Masks] = []
    for pattern in patterns:
        masks += [reverse_complement(pattern) if sign else pattern for sign in signs]
    return Searches(
        masks,
        np.repeat(np.arange(len(patterns), dtype=np.int32), len(signs)),
        np.tile(np.array(signs, dtype=np.uint8), len(patterns)),
        k,
    )
