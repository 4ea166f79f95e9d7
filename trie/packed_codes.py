"""Base codes for storage: two bits per base, plus the positions of gap codes.

byte i   | code 4i+3 | code 4i+2 | code 4i+1 | code 4i |      a gap code is stored as 0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit
from trie.cpu.threads import GIL_BYTES

_GAPS = np.uint64(0x0404040404040404)


def pack_codes(codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """uint8[(n + 3) // 4] and the ascending positions of gap codes, of uint8[n] base codes."""
    packed = np.empty((codes.size + 3) // 4, dtype=np.uint8)
    gaps = (_pack if codes.size > GIL_BYTES else _pack_few)(codes, packed)
    return packed, np.flatnonzero(codes == GAP) if gaps else np.zeros(0, np.int64)


def unpack_codes(
    packed: NDArray[np.uint8], gaps: NDArray[np.int64], size: int
) -> NDArray[np.uint8]:
    """The uint8[size] base codes that ``pack_codes`` packed."""
    codes = np.empty(4 * packed.size, dtype=np.uint8)
    _unpack(packed, codes)
    codes[gaps] = GAP
    return codes[:size]


@njit(cache=True, nogil=True)
def _pack(codes, packed):
    """Pack the codes; whether there is a gap code."""
    words = codes.size // 8
    seen = np.uint64(0)
    pairs = packed[: 2 * words].view(np.uint16)
    packed[2 * words :] = 0
    for i in range(words):  # no `if` and no byte stores, so LLVM vectorizes it
        word: np.uint64 = word_at(codes, 8 * i)
        seen |= word & _GAPS
        x = word & np.uint64(0x0303030303030303)
        x = (x | (x >> np.uint64(6))) & np.uint64(0x000F000F000F000F)
        x = (x | (x >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
        pairs[i] = np.uint16((x | (x >> np.uint64(24))) & np.uint64(0xFFFF))
    for i in range(8 * words, codes.size):
        seen |= np.uint64(codes[i]) & _GAPS
        packed[i // 4] |= (codes[i] & np.uint8(3)) << np.uint8(2 * (i % 4))
    return seen != 0


@njit(cache=True)
def _pack_few(codes, packed):
    return _pack(codes, packed)


@njit(cache=True, nogil=True)
def _unpack(packed, codes):
    for i in range(packed.size):
        value = packed[i]
        for j in range(4):
            codes[4 * i + j] = (value >> np.uint8(2 * j)) & np.uint8(3)


@njit(cache=True, nogil=True)
def reverse_codes(words, reversed_words):
    """Reverse uint32[n] words of 16 codes each: from first code highest to first code lowest."""
    for i in range(reversed_words.size):
        x = words[i]
        x = ((x >> np.uint32(2)) & np.uint32(0x33333333)) | (
            (x & np.uint32(0x33333333)) << np.uint32(2)
        )
        x = ((x >> np.uint32(4)) & np.uint32(0x0F0F0F0F)) | (
            (x & np.uint32(0x0F0F0F0F)) << np.uint32(4)
        )
        x = ((x >> np.uint32(8)) & np.uint32(0x00FF00FF)) | (
            (x & np.uint32(0x00FF00FF)) << np.uint32(8)
        )
        reversed_words[i] = np.uint32((x >> np.uint32(16)) | (x << np.uint32(16)))
