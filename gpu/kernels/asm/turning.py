"""Matrices of bits in registers, turned by exchanges between pairs of words.

Transposing 32 x 32 bits takes 80 exchanges: 16 a power of two (Hacker's Delight 7-3). Those of 16
and 8 bits are two byte permutations each, the others two shifts and two three-input operations:
256 operations for 1024 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.assembly import instruction


def _exchange(shift: int) -> Any:
    """(one, other): the high bits of each 2 * shift of one word for the low bits of the other."""
    mask = np.uint32(sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift)))

    def simulated(one, other):  # type: ignore[no-untyped-def]
        moved = ((one >> np.uint32(shift)) ^ other) & mask
        return one ^ (moved << np.uint32(shift)), other ^ moved

    if shift >= 8:
        low, high = ("0x5410", "0x7632") if shift == 16 else ("0x6240", "0x7351")
        text = f"prmt.b32 $0, $2, $3, {low}; prmt.b32 $1, $2, $3, {high};"
    else:
        # 0xE4: a where c, else b
        text = (
            f"{{ .reg .u32 x, y; shl.b32 x, $3, {shift}; shr.b32 y, $2, {shift}; "
            f"lop3.b32 $0, $2, x, {mask}, 0xE4; lop3.b32 $1, y, $3, {mask}, 0xE4; }}"
        )
    return instruction(text, ("u32", "u32"), ("u32", "u32"), simulated)


EXCHANGES = {f"exchange{shift}": _exchange(shift) for shift in (16, 8, 4, 2, 1)}
"""The exchanges by name, for the scope in which ``turning`` runs."""


def turning(names: list[str], shifts: tuple[int, ...] = (16, 8, 4, 2, 1)) -> list[str]:
    """Statements that turn the words of those names: bit i of word j for bit j of word i.

    With fewer shifts (16 and 8: bytes; 4, 2, 1: the bits of each byte) as many names.
    """
    largest = len(names) // 2
    steps = {shift: shift * largest // max(shifts) for shift in shifts}
    return [
        f"{names[i]}, {names[i + steps[shift]]} = "
        f"exchange{shift}({names[i]}, {names[i + steps[shift]]})"
        for shift in shifts
        for i in range(len(names))
        if not i & steps[shift]
    ]
