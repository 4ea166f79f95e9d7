"""A slow, independent reference for exact matching: strings and a dict, one window at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def letters(bases: NDArray[np.uint8]) -> str:
    return "".join("ACGTN"[code] for code in bases)


def code_of(kmer: str) -> int:
    return int(kmer.translate(str.maketrans("ACGT", "0123")), 4)


def reverse_complement(kmer: str) -> str:
    return kmer[::-1].translate(_COMPLEMENT)


def windows(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int, *, canonical: bool
) -> Iterator[tuple[int, str]]:
    """First symbol and (canonical) k-mer of every window."""
    text = letters(bases)
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        for first in range(int(start), int(stop) - k + 1):
            kmer = text[first : first + k]
            if "N" not in kmer:
                yield first, (min(kmer, reverse_complement(kmer)) if canonical else kmer)


class Oracle:
    """A dictionary that grows one window at a time."""

    def __init__(self, k: int, *, canonical: bool) -> None:
        self.k = k
        self.canonical = canonical
        self.kmers: dict[str, int] = {}

    def match(self, bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
        events = np.zeros(bases.size, dtype=np.uint8)
        for first, kmer in windows(bases, offsets, self.k, canonical=self.canonical):
            events[first] = 1 if kmer in self.kmers else 2
        return events

    def grow(
        self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], seed_end: int = 0
    ) -> tuple[NDArray[np.uint8], list[int], list[int]]:
        """Events, new codes and their positions."""
        events = np.zeros(bases.size, dtype=np.uint8)
        codes = []
        positions = []
        for first, kmer in windows(bases, offsets, self.k, canonical=self.canonical):
            events[first] = 1
            if kmer not in self.kmers:
                self.kmers[kmer] = len(self.kmers)
                codes.append(code_of(kmer))
                positions.append(first)
                if first + self.k > seed_end:
                    events[first] = 2
        return events, codes, positions

    def sorted_codes(self) -> list[int]:
        return sorted(code_of(kmer) for kmer in self.kmers)


def batch(
    seed: int, total: int, reads: int, *, gaps: float = 0.01, repeats: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Random reads: empty and short ones, gaps, poly-A and poly-T, palindromes, repeats."""
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 4, total).astype(np.uint8)
    if repeats and total >= 200:
        bases[50:90] = 0
        bases[110:150] = 3
        bases[160:192] = [0, 3, 1, 2] * 8
        quarter = total // 4
        bases[2 * quarter : 3 * quarter] = bases[:quarter]
        bases[3 * quarter : 4 * quarter] = 3 - bases[:quarter][::-1]
    bases[rng.random(total) < gaps] = 4
    cuts = np.sort(rng.integers(0, total + 1, max(0, reads - 1)))
    offsets = np.concatenate([[0], cuts, [total]]).astype(np.int64)
    return bases, offsets
