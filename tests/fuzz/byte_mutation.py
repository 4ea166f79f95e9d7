"""Mutates bytes: changes, cuts, repeats and joins them, and inserts their reader's words."""

from __future__ import annotations

import random
from collections.abc import Sequence


def changed(
    rng: random.Random, data: bytes, words: Sequence[bytes], others: Sequence[bytes]
) -> bytes:
    """A mutated input. others: inputs to join it with."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        size = len(made)
        at = rng.randrange(size + 1)
        match int(rng.random() * 8):
            case 0 if size:
                made[at % size] ^= 1 << rng.randrange(8)
            case 1 if size:
                made[at % size] = rng.randrange(256)
            case 2:
                del made[at : at + rng.choice((1, 2, 8, 40, size))]
            case 3 | 4:
                made[at:at] = rng.choice(words)
            case 5:
                made[at:at] = made[at : at + rng.choice((1, 8, 100))]
            case 6:
                other = rng.choice(others)
                made[at:] = other[rng.randrange(len(other) + 1) :]
            case 7:
                word = rng.choice(words)
                made[at : at + len(word)] = word
    return bytes(made)
