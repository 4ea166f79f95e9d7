"""Two sequences prepared: symbols in both, numbered densely, without common ends; and the result.

A symbol that the other sequence lacks, or a gap code, matches nothing: removing it changes no
common subsequence. The rest needs ceil(log2(symbols)) bits per symbol, two for DNA. ``Matching``
has the symbols of both sequences in a longest common subsequence.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.records import Codes
from trie.cpu.jit import njit

Flags = NDArray[np.bool_]

OnCells = Callable[[int], None]
"""Called with the number of cells done since the last call, from any thread."""


def unreported(cells: int) -> None:
    """An ``OnCells`` that does nothing."""


DNA_SYMBOLS = 4  # codes from here on (the gap code) match nothing in DNA
TEXT_SYMBOLS = 256


@dataclass(frozen=True, slots=True)
class Pair:
    """The parts to be compared: codes below ``symbols``, uint8, C-contiguous.

    kept_a, kept_b: the original place of each symbol (int64), None if none was removed. After that,
    ``prefix`` and ``suffix`` equal symbols at the ends were cut off. length_a, length_b: of the
    original sequences.
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
        """Bits per symbol."""
        return max(1, (self.symbols - 1).bit_length())

    @property
    def ends(self) -> int:
        """The number of common symbols at the ends."""
        return self.prefix + self.suffix

    @property
    def cells(self) -> int:
        """The size of the table."""
        return self.a.size * self.b.size

    def restored(self, in_a: Flags, in_b: Flags) -> tuple[Flags, Flags]:
        """Convert flags over ``a`` and ``b`` to flags over the original sequences."""
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


class Solution:
    """A pair, and flags, initially unset, for the symbols of one longest common subsequence."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.in_a = np.zeros(pair.a.size, dtype=np.bool_)
        self.in_b = np.zeros(pair.b.size, dtype=np.bool_)

    @property
    def arrays(self) -> tuple[Codes, Codes, Flags, Flags]:
        """Return a, b and the flags of both, as passed to kernels."""
        return self.pair.a, self.pair.b, self.in_a, self.in_b


def pair_of(a: Codes, b: Codes, symbols: int) -> Pair:
    """Prepare two sequences of codes; codes from ``symbols`` on match nothing."""
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
        # no symbol would be renumbered
        return np.ascontiguousarray(codes), None
    out = np.empty(codes.size, dtype=np.uint8)
    count = _renumber(codes, dense, out)
    if count == codes.size:
        return out, None
    return out[:count].copy(), np.flatnonzero(dense[codes] >= 0)


@njit(cache=True, nogil=True)
def _numbered(a, b, symbols):
    """int16[257], a number per symbol below ``symbols`` in both, else -1; and their count."""
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
    """Set ``seen`` for the symbols below ``symbols`` that occur; it mostly ends early."""
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
    """Write the numbers of the symbols that have one, without a branch; return their count."""
    count = 0
    for i in range(codes.size):
        number = dense[codes[i]]
        out[count] = np.uint8(number)
        count += number >= 0
    return count


@njit(cache=True, nogil=True)
def common_ends(a, b):
    """Return the numbers of equal symbols at the start, and at the end of the rest."""
    shorter = min(a.size, b.size)
    prefix = 0
    while prefix < shorter and a[prefix] == b[prefix]:
        prefix += 1
    suffix = 0
    while suffix < shorter - prefix and a[a.size - 1 - suffix] == b[b.size - 1 - suffix]:
        suffix += 1
    return prefix, suffix


BLOCK_FIELDS = [("a_start", np.int64), ("b_start", np.int64), ("length", np.int64)]


@dataclass(frozen=True, slots=True)
class Matching:
    """A common subsequence as one flag per symbol: the i-th set flags of both form a pair.

    >>> from streamer.batch import lcs
    >>> found = lcs.match("ACGTTGCA", "AGTTCA")
    >>> found.blocks().tolist()  # start in a, start in b, length
    [(0, 0, 1), (2, 1, 3), (6, 4, 2)]
    >>> found.identity(), found.column_identity()
    (0.75, 0.75)
    """

    in_a: Flags
    in_b: Flags

    def __len__(self) -> int:
        return int(np.count_nonzero(self.in_a))

    def blocks(self) -> NDArray[np.void]:
        """Return maximal runs of pairs adjacent in both sequences, in order (BLOCK_FIELDS)."""
        count = _blocks(self.in_a, self.in_b, np.empty((0, 3), dtype=np.int64))
        blocks = np.empty((count, 3), dtype=np.int64)
        _blocks(self.in_a, self.in_b, blocks)
        return blocks.view(BLOCK_FIELDS).reshape(-1)

    def identity(self) -> float:
        """Return the matched share of the longer sequence, 0 to 1; 1 for two empty ones.

        This is the identity of most clustering tools and of rapidfuzz's ``normalized_similarity``.
        Unlike BLAST's, it includes what lies outside the alignment.
        """
        longer = max(self.in_a.size, self.in_b.size)
        return len(self) / longer if longer else 1.0

    def column_identity(self) -> float:
        """Return the share of alignment columns that are pairs, 0 to 1; 1 for two empty sequences.

        Between two pairs, unmatched symbols of the one stand above unmatched symbols of the other
        (a mismatch) as far as both go, and the rest above a gap: BLAST's identity, over both whole
        sequences.
        """
        columns = _columns(self.in_a, self.in_b)
        return len(self) / columns if columns else 1.0


@njit(cache=True, nogil=True)
def _blocks(in_a, in_b, blocks):
    """Count the runs, and write them if there is room."""
    count = 0
    i = 0
    j = 0
    while True:
        while i < in_a.size and not in_a[i]:
            i += 1
        while j < in_b.size and not in_b[j]:
            j += 1
        if i == in_a.size or j == in_b.size:
            return count
        start = i
        while i < in_a.size and j < in_b.size and in_a[i] and in_b[j]:
            i += 1
            j += 1
        if count < blocks.shape[0]:
            blocks[count, 0] = start
            blocks[count, 1] = j - (i - start)
            blocks[count, 2] = i - start
        count += 1


@njit(cache=True, nogil=True)
def _columns(in_a, in_b):
    columns = 0
    i = 0
    j = 0
    while True:
        first = i
        second = j
        while i < in_a.size and not in_a[i]:
            i += 1
        while j < in_b.size and not in_b[j]:
            j += 1
        columns += max(i - first, j - second)
        if i == in_a.size or j == in_b.size:
            return columns
        columns += 1
        i += 1
        j += 1
