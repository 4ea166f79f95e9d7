"""The events of a batch: two bits a symbol, as GPUs return them, or one byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit

Bits = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""starts, matches: uint32, bit s % 32 of word s / 32 for symbol s."""


# kernels load eight bytes at a time
_LEAST_WORDS = 2


def no_bits(symbols: int) -> Bits:
    """Return ``Bits`` without any window."""
    words = max(-(-symbols // 32), _LEAST_WORDS)
    starts, matches = array_pool.empty(words, np.uint32), array_pool.empty(words, np.uint32)
    starts[:] = matches[:] = 0
    return starts, matches


class Events:
    """Whether the window that starts at each symbol of a batch matches.

    ``bits``: where windows start, and which of them match. ``codes``: uint8[symbols], MATCH,
    MISMATCH or 0. Each is computed from the other on first use.
    """

    __slots__ = ("_bits", "_codes", "symbols")

    def __init__(
        self, symbols: int, *, codes: NDArray[np.uint8] | None = None, bits: Bits | None = None
    ) -> None:
        self.symbols = symbols
        self._codes = codes
        self._bits = bits

    @property
    def codes(self) -> NDArray[np.uint8]:
        """One byte per symbol."""
        if self._codes is None:
            self._codes = np.empty(self.symbols, np.uint8)
            to_codes(*self.bits, self._codes)
        return self._codes

    @property
    def bytes_of_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The bits as bytes, at least eight: symbol s is bit s % 8 of byte s / 8."""
        starts, matches = self.bits
        if starts.size < _LEAST_WORDS:
            starts, matches = (np.append(b, [0, 0]).astype(np.uint32) for b in (starts, matches))
        return starts.view(np.uint8), matches.view(np.uint8)

    @property
    def bits(self) -> Bits:
        """Two bits per symbol."""
        if self._bits is None:
            assert self._codes is not None
            words = max(-(-self.symbols // 32), _LEAST_WORDS)
            self._bits = np.empty(words, np.uint32), np.empty(words, np.uint32)
            _to_bits(self._codes, *self._bits)
        return self._bits

    def part(self, start: int, stop: int) -> Events:
        """Return the events of the symbols [start, stop)."""
        size = stop - start
        if self._bits is None:
            return Events(size, codes=self.codes[start:stop])
        words = max(-(-size // 32), _LEAST_WORDS)
        starts, matches = np.empty(words, np.uint32), np.empty(words, np.uint32)
        for whole, part in zip(self._bits, (starts, matches), strict=True):
            _move_bits(whole, start, size, part)
        return Events(size, bits=(starts, matches))


@njit(cache=True)
def _move_bits(words, start, size, part):
    """Copy ``size`` bits from ``start`` on to the front of ``part``, and zero the rest."""
    shift = np.uint64(start & 31)
    for i in range(part.size):
        left = size - 32 * i
        value = np.uint64(0)
        if left > 0:
            at = (start >> 5) + i
            value = np.uint64(words[at])
            if at + 1 < words.size:
                value |= np.uint64(words[at + 1]) << np.uint64(32)
            value >>= shift
        if left < 32:
            value &= (np.uint64(1) << np.uint64(max(left, 0))) - np.uint64(1)
        part[i] = np.uint32(value)


@njit(cache=True, nogil=True)
def add_bits(part, start, words):
    """Set those bits of ``words`` from ``start`` on that are set in ``part``."""
    there = words[start >> 5 :]
    left = np.uint32(start & 31)
    # in two steps, because a shift by 32 has no effect
    right = np.uint32(31) - left
    for i in range(min(part.size, there.size)):
        there[i] |= part[i] << left
    beyond = there[1:]
    for i in range(min(part.size, beyond.size)):
        beyond[i] |= part[i] >> np.uint32(1) >> right


@njit(cache=True, nogil=True)
def to_codes(starts, matches, codes):
    """Expand ``Bits`` to ``Events.codes`` (uint8[symbols])."""
    begins, hits = starts.view(np.uint8), matches.view(np.uint8)
    ones = np.uint64(0x0101010101010101)
    bits = np.uint64(0x8040201008040201)  # bit i of byte i
    most = np.uint64(0x7F7F7F7F7F7F7F7F)  # carries any set bit of a byte into its highest
    whole = codes.size // 8
    eights = codes[: 8 * whole].view(np.uint64)
    for i in range(whole):
        start = (((np.uint64(begins[i]) * ones & bits) + most) >> np.uint64(7)) & ones
        match = (((np.uint64(hits[i]) * ones & bits) + most) >> np.uint64(7)) & start
        eights[i] = (start << np.uint64(1)) - match
    for at in range(8 * whole, codes.size):
        start = (begins[at >> 3] >> np.uint8(at & 7)) & np.uint8(1)
        match = (hits[at >> 3] >> np.uint8(at & 7)) & start
        codes[at] = np.uint8(2) * start - match


@njit(cache=True, nogil=True)
def _to_bits(codes, starts, matches):
    ones = np.uint64(0x0101010101010101)
    # multiplying by it gathers the lowest bits of eight bytes in the highest byte, the first lowest
    gather = np.uint64(0x0102040810204080)
    for word in range(codes.size // 32):
        begins = np.uint64(0)
        hits = np.uint64(0)
        for part in range(4):
            eight: np.uint64 = word_at(codes, 32 * word + 8 * part)
            match = eight & ones
            start = match | ((eight >> np.uint64(1)) & ones)
            shift = np.uint64(8 * part)
            begins |= ((start * gather) >> np.uint64(56)) << shift
            hits |= ((match * gather) >> np.uint64(56)) << shift
        starts[word] = np.uint32(begins)
        matches[word] = np.uint32(hits)
    rest = codes.size & 31
    if codes.size < 64:
        starts[codes.size >> 5 :] = 0
        matches[codes.size >> 5 :] = 0
    if rest:
        first = codes.size - rest
        begins = np.uint64(0)
        hits = np.uint64(0)
        for i in range(rest):
            code = codes[first + i]
            begins |= np.uint64(code != 0) << np.uint64(i)
            hits |= np.uint64(code == 1) << np.uint64(i)
        starts[first >> 5] = np.uint32(begins)
        matches[first >> 5] = np.uint32(hits)
