"""Count bits of 32-bit words and transpose bit matrices in registers, in assembly.

Transposing 32 x 32 bits takes 80 exchanges between pairs of words: 16 per power of two (Hacker's
Delight 7-3). Exchanges of 16 and 8 bits are two byte permutations each, the others two shifts and
two three-input operations: 256 operations for 1024 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.assembly import instruction

SELECT = "0xE4"  # truth table of a three-input operation: a where c, else b
REGISTERS = ".reg .u32 x, y;"  # what ``transposing`` needs

bit_count = instruction(
    "popc.b32 $0, $1;", ("u32",), ("u32",), lambda word: np.uint32(int(word).bit_count())
)
"""The number of set bits of a word."""

reverse_word = instruction(
    "brev.b32 $0, $1;",
    ("u32",),
    ("u32",),
    lambda word: np.uint32(int(f"{int(word):032b}"[::-1], 2)),
)
"""The bits of a word in reverse order."""

reverse_long = instruction(
    "brev.b64 $0, $1;",
    ("u64",),
    ("u64",),
    lambda word: np.uint64(int(f"{int(word):064b}"[::-1], 2)),
)
"""The bits of a uint64 in reverse order."""

leading_zeros = instruction(
    "clz.b32 $0, $1;", ("u32",), ("u32",), lambda word: np.uint32(32 - int(word).bit_length())
)
"""The zeros above the highest set bit; 32 for 0."""

funnel = instruction(
    "shf.r.wrap.b32 $0, $1, $2, $3;",
    ("u32",),
    ("u32", "u32", "u32"),
    lambda low, high, by: np.uint32((int(high) << 32 | int(low)) >> (int(by) & 31) & 0xFFFFFFFF),
)
"""The 32 bits of two words, the low one first, from bit ``by`` % 32 on."""

lowest_bit = instruction(
    "{ .reg .u32 x; brev.b32 x, $1; bfind.shiftamt.u32 $0, x; }",
    ("u32",),
    ("u32",),
    lambda word: np.uint32((int(word) & -int(word)).bit_length() - 1),
)
"""The index of the lowest set bit of a nonzero word."""


def _exchange(one: str, other: str, shift: int) -> str:
    """Per 2 * shift bits, exchange the high half of one word with the low half of the other."""
    if shift >= 8:
        low, high = ("0x5410", "0x7632") if shift == 16 else ("0x6240", "0x7351")
        return (
            f"prmt.b32 x, {one}, {other}, {low}; prmt.b32 {other}, {one}, {other}, {high}; "
            f"mov.b32 {one}, x;"
        )
    mask = sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift))
    return (
        f"shl.b32 x, {other}, {shift}; shr.b32 y, {one}, {shift}; "
        f"lop3.b32 {one}, {one}, x, {mask}, {SELECT}; "
        f"lop3.b32 {other}, y, {other}, {mask}, {SELECT};"
    )


def transposing(names: Sequence[str], shifts: tuple[int, ...] = (16, 8, 4, 2, 1)) -> str:
    """Instructions that exchange bit i of register j and bit j of register i.

    With only some of the shifts (16 and 8: bytes; 4, 2, 1: bits of each byte) fewer registers: 4,
    8.
    """
    steps = [len(names) // 2 * shift // max(shifts) for shift in shifts]
    return " ".join(
        _exchange(names[i], names[i + step], shift)
        for shift, step in zip(shifts, steps, strict=True)
        for i in range(len(names))
        if not i & step
    )


def transposed(words: Sequence[Any]) -> NDArray[np.uint32]:
    """The transpose of 32 words, in plain Python."""
    bits = np.unpackbits(np.array(words, dtype="<u4").view(np.uint8), bitorder="little")
    return np.packbits(bits.reshape(32, 32).T, bitorder="little").view("<u4")
