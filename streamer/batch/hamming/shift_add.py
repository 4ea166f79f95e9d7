"""The method ``shift-add`` (Baeza-Yates and Gonnet, 1992; PMASM paper, section 4 and Table 3).

The state of a pattern holds a counter of b bits for each of its m prefixes: the mismatches of
prefix i + 1 with the symbols that end at the current one. A symbol c costs, for each word of it,

    state     = (state << b) + add[c]          add[c] has a 1 in field i where symbol i is not c
    overflow  = (overflow << b) | (state & tops)
    state     = state & ~tops                  tops: the highest bit of every field

so that a counter that has run over is remembered and travels on with its prefix. b = bits of k and
one more. A window matches where field m - 1 has not run over and is at most k.

    word w of a state:   | unused | field F w + F - 1 | ... | field F w |     F = 64 // b fields

m b <= 64 is one word, 7 operations a symbol and pattern; else the highest field of a word moves
into the next.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.packed_hits import ID_SHIFT, START_SHIFT
from streamer.batch.hamming.patterns import Oriented
from trie.cpu.jit import njit
from trie.packed_counters import shift_add_words


@dataclass(frozen=True, slots=True)
class Fields:
    """What is added for each symbol, and where the fields are.

    add: uint64[patterns, GAP + 1, words]. ids: uint64[patterns], in place in a hit word. bits: of a
    field. fields: a word.
    """

    add: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    length: int
    k: int
    bits: int
    fields: int


def prepare(patterns: Oriented) -> Fields:
    """The words that are added, for every base and for a gap code in the text."""
    add, bits, fields = shift_add_words(patterns.codes, patterns.k)
    ids = patterns.ids.astype(np.uint64) << np.uint64(ID_SHIFT)
    return Fields(add, ids, patterns.length, patterns.k, bits, fields)


def scan(
    prepared: Fields,
    codes: NDArray[np.uint8],
    first: int,
    stop: int,
    origin: int,
    words: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Hit words of the windows [first, stop), as many windows as fit (bit_sliced.scan)."""
    return _scan(
        codes, first, stop, origin, prepared.add, prepared.ids, prepared.length, prepared.k,
        prepared.bits, prepared.fields, words,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _scan(
    codes, first, stop, origin, add, ids, length, k, bits, fields, words
):  # fmt: skip
    count = add.shape[2]
    b = np.uint64(bits)
    top = np.uint64(1) << (b - np.uint64(1))
    field = (top << np.uint64(1)) - np.uint64(1)
    tops = np.uint64(0)
    for i in range(fields):
        tops |= top << (b * np.uint64(i))
    highest = b * np.uint64(fields - 1)
    used = ~np.uint64(0) >> np.uint64(64 - bits * fields)
    last = b * np.uint64((length - 1) % fields)
    state = np.zeros((ids.size, count), dtype=np.uint64)
    overflow = np.zeros((ids.size, count), dtype=np.uint64)
    written = 0
    for at in range(first, stop + length - 1):
        start = at - length + 1
        if written + ids.size > words.size:
            return max(start, first), written, ids.size
        code = codes[at]
        for p in range(ids.size):
            carried = np.uint64(0)
            carried_over = np.uint64(0)
            for w in range(count):
                old = state[p, w]
                over = overflow[p, w]
                new = (((old << b) & used) | carried) + add[p, code, w]
                overflow[p, w] = ((over << b) & used) | carried_over | (new & tops)
                state[p, w] = new & ~tops
                carried = (old >> highest) & field
                carried_over = (over >> highest) & field
            ran_over = (overflow[p, count - 1] >> last) & field
            distance = (state[p, count - 1] >> last) & field
            if start >= first and ran_over == 0 and distance <= np.uint64(k):
                place = np.uint64(start - origin) << np.uint64(START_SHIFT)
                words[written] = place | ids[p] | distance
                written += 1
    return stop, written, 0
