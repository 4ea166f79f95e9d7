"""Two sequences made ready: only symbols that both have, numbered densely, ends in common cut off.

A symbol that the other sequence lacks, and a gap code, match nothing, so that taking them out
changes no common subsequence. What is left needs ceil(log2(symbols)) bits a symbol, two for DNA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit

Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]

DNA_SYMBOLS = 4
"""Codes from here on (the gap code) match nothing in DNA."""

TEXT_SYMBOLS = 256


@dataclass(frozen=True, slots=True)
class Pair:
    """What is left to be compared: codes below ``symbols``, uint8, C-contiguous.

    kept_a, kept_b: where each symbol stood (int64), None if none was taken out. ``prefix`` and
    ``suffix`` symbols at the ends of what was kept are equal and are not part of ``a`` and ``b``.
    """

    a: Codes
    b: Codes
    symbols: int
    prefix: int
    suffix: int
    kept_a: NDArray[np.int64] | None
    kept_b: NDArray[np.int64] | None
    length_a: int
    length_b: int

    @property
    def planes(self) -> int:
        """Bits a symbol."""
        return max(1, (self.symbols - 1).bit_length())

    def restored(self, in_a: Flags, in_b: Flags) -> tuple[Flags, Flags]:
        """Flags over ``a`` and ``b`` as flags over the sequences that were given."""
        return (
            self._restored(in_a, self.kept_a, self.length_a),
            self._restored(in_b, self.kept_b, self.length_b),
        )

    def _restored(self, flags: Flags, kept: NDArray[np.int64] | None, length: int) -> Flags:
        whole = np.ones(self.prefix + flags.size + self.suffix, dtype=np.bool_)
        whole[self.prefix : self.prefix + flags.size] = flags
        if kept is None:
            return whole
        spread = np.zeros(length, dtype=np.bool_)
        spread[kept] = whole
        return spread


def pair_of(a: Codes, b: Codes, symbols: int) -> Pair:
    """Make two sequences of codes ready; codes from ``symbols`` on match nothing."""
    dense = _numbered(a, b, symbols)
    kept_codes_a, kept_a = _kept(a, dense, symbols)
    kept_codes_b, kept_b = _kept(b, dense, symbols)
    prefix, suffix = common_ends(kept_codes_a, kept_codes_b)
    return Pair(
        kept_codes_a[prefix : kept_codes_a.size - suffix],
        kept_codes_b[prefix : kept_codes_b.size - suffix],
        int(dense[256]),
        prefix,
        suffix,
        kept_a,
        kept_b,
        a.size,
        b.size,
    )


def _kept(
    codes: Codes, dense: NDArray[np.int16], symbols: int
) -> tuple[Codes, NDArray[np.int64] | None]:
    if int(dense[256]) == symbols and (codes.size == 0 or int(codes.max()) < symbols):
        # every one keeps its number
        return np.ascontiguousarray(codes), None
    out = np.empty(codes.size, dtype=np.uint8)
    count = _renumber(codes, dense, out)
    if count == codes.size:
        return out, None
    return out[:count].copy(), np.flatnonzero(dense[codes] >= 0)


@njit(cache=True, nogil=True)
def _numbered(a, b, symbols):
    """int16[257]: a number for each symbol below ``symbols`` that both have, -1 for others; their
    count."""
    seen = np.zeros((2, 256), dtype=np.bool_)
    _see(a, symbols, seen[0])
    _see(b, symbols, seen[1])
    dense = np.full(257, -1, dtype=np.int16)
    count = 0
    for symbol in range(symbols):
        if seen[0, symbol] and seen[1, symbol]:
            dense[symbol] = count
            count += 1
    dense[256] = count
    return dense


@njit(cache=True, nogil=True)
def _see(codes, symbols, seen):
    """Set ``seen`` for those symbols below ``symbols`` that there are; it mostly ends early."""
    missing = symbols
    for code in codes:
        if not seen[code]:
            seen[code] = True
            if code < symbols:
                missing -= 1
                if missing == 0:
                    break


@njit(cache=True, nogil=True)
def _renumber(codes, dense, out):
    """Write the numbers of the symbols that have one, without a branch; how many they are."""
    count = 0
    for i in range(codes.size):
        number = dense[codes[i]]
        out[count] = np.uint8(number)
        count += number >= 0
    return count


@njit(cache=True, nogil=True)
def common_ends(a, b):
    """How many symbols at the start, then at the end of the rest, are equal."""
    shorter = min(a.size, b.size)
    prefix = 0
    while prefix < shorter and a[prefix] == b[prefix]:
        prefix += 1
    suffix = 0
    while suffix < shorter - prefix and a[a.size - 1 - suffix] == b[b.size - 1 - suffix]:
        suffix += 1
    return prefix, suffix
