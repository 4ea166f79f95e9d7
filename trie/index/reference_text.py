"""A reference text and its reverse complement, packed to compare reads 32 bases at a time.

    symbols    | PAD gaps | the text | PAD gaps |    and then the reverse complement of all of that
    packed     2 bits a symbol, four a byte, the first lowest; a gap code as A
    gaps       a bit a symbol, the first lowest
    near       a byte per 256 symbols: whether they, or the next 31, contain a gap code,
               so that their gaps are seldom read

All three are parts of one array. A *place* is the index of a symbol. The reverse complement of the
symbols [p, q) is [size - q, size - p). Reads are always compared forwards, so both strands use the
same loop. A text whose k-mers stand for themselves has no second half. A text takes 0.75 bytes per
base.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP, pack_codes
from trie.cpu.intrinsics import trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.vectors import aligned_words
from trie.index.mers import BLOCK

PAD: Final = 64
"""Gap codes at both ends: a window of k symbols around any base of the text stays inside."""

_BEHIND: Final = 2 * BLOCK  # symbols by which comparing a block of reads may pass the end
_NEAR: Final = 256
_T = TypeVar("_T", np.uint8, np.uint32)
_COMPLEMENT = np.array([3, 2, 1, 0, GAP], dtype=np.uint8)
_LOW_BITS: Final = np.uint64(0x5555555555555555)
_SPREAD: Final = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


class TextShape(NamedTuple):
    """size: symbols of both halves with padding. gaps, near: where these parts begin."""

    size: int
    gaps: int
    near: int


def padded(
    symbols: NDArray[_T], offsets: NDArray[np.int64], fill: int | np.uint32 = GAP
) -> NDArray[_T]:
    """The base codes of records with at least one gap code around each: half of a text.

    ``symbols`` [total]: base codes or another value for each; ``offsets`` int64[records + 1].
    ``fill``: the value around them.
    """
    half = np.full(padded_size(symbols, offsets), fill, dtype=symbols.dtype)
    _copy_apart(symbols, offsets, half)
    return half


def padded_size(symbols: NDArray[_T], offsets: NDArray[np.int64]) -> int:
    """The number of symbols that ``padded`` returns."""
    return symbols.size + offsets.size + 2 * PAD


@njit(cache=True, nogil=True)
def _copy_apart(symbols, offsets, half):
    to = PAD
    for record in range(offsets.size - 1):
        for at in range(offsets[record], offsets[record + 1]):
            half[to] = symbols[at]
            to += 1
        to += 1


def reference_text(
    half: NDArray[np.uint8], *, canonical: bool
) -> tuple[NDArray[np.uint8], TextShape]:
    """The text (uint8) of ``padded`` base codes."""
    parts = [half, _COMPLEMENT[half[::-1]]] if canonical else [half]
    size = half.size * len(parts)
    behind = _BEHIND + -size % _NEAR
    symbols = np.concatenate((*parts, np.full(behind, GAP, dtype=np.uint8)))
    packed, places = pack_codes(symbols)
    near = np.zeros(symbols.size // _NEAR, dtype=np.uint8)
    near[places // _NEAR] = near[np.maximum(places - 31, 0) // _NEAR] = 1
    gaps = np.packbits(symbols == GAP, bitorder="little")
    shape = TextShape(size, packed.size, packed.size + gaps.size)
    text = aligned_words((shape.near + near.size + 7) // 8).view(np.uint8)
    np.concatenate((packed, gaps, near), out=text[: shape.near + near.size])
    return text, shape


@inner
def unlike(text, shape, place, sixteens, at):
    """uint64: bit 2i is set where symbol at + i of a block differs from place + i, i < 32."""
    shift = np.uint64(2 * (place & 3))
    byte = place >> 2
    low = np.uint64(word_at(text, byte)) >> shift
    high = (np.uint64(word_at(text, byte + 8)) << np.uint64(1)) << (np.uint64(63) - shift)
    here = np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)
    apart = here ^ (low | high)
    apart = (apart | apart >> np.uint64(1)) & _LOW_BITS
    if text[shape.near + (place >> 8)]:
        gaps = np.uint64(word_at(text, shape.gaps + (place >> 3))) >> np.uint64(place & 7)
        gaps &= np.uint64(0xFFFFFFFF)
        for step, mask in _SPREAD:
            gaps = (gaps | gaps << np.uint64(step)) & np.uint64(mask)
        apart |= gaps
    return apart


@inner
def reach(text, shape, shift, sixteens, at, limit):
    """The first symbol s of a block in [at, limit) that differs from place s + shift, or limit."""
    while at < limit:
        apart = unlike(text, shape, at + shift, sixteens, at)
        if apart != 0:
            return min(at + (np.int64(trailing_zeros(apart)) >> 1), limit)
        at += 32
    return limit
