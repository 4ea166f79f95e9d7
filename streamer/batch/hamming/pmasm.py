"""The method ``pmasm`` on the CPU (PMASM paper, section 5): several patterns' counters in a word.

    look-up memory  [group, code, level]    the fb_vector of level j: field p is 1 where symbol j of
                                            the group's pattern p is not the code
    bit_vector      the sum of m fb_vectors: field p is the Hamming distance of pattern p

b = ceil(log2(m + 1)) bits a field (equation 2), 32 // b patterns a word of 32 bits (equation 3),
and as many words, groups, as the patterns need: the paper has one. A gap code in the text has a
row of its own, all mismatches. m additions a window and group.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.packed_hits import ID_SHIFT, START_SHIFT
from streamer.batch.hamming.patterns import Oriented
from trie.cpu.jit import njit
from trie.packed_counters import PMASM_BITS, look_up_memory


@dataclass(frozen=True, slots=True)
class LookUp:
    """memory: uint32[groups, GAP + 1, length]. ids: uint64[patterns], in place in a hit word."""

    memory: NDArray[np.uint32]
    ids: NDArray[np.uint64]
    k: int
    bits: int

    @property
    def fields(self) -> int:
        """Patterns a group."""
        return PMASM_BITS // self.bits


def prepare(patterns: Oriented) -> LookUp:
    """The preprocessing phase (5.2)."""
    memory, bits = look_up_memory(patterns.codes)
    ids = patterns.ids.astype(np.uint64) << np.uint64(ID_SHIFT)
    return LookUp(memory, ids, patterns.k, bits)


def scan(
    look_up: LookUp,
    codes: NDArray[np.uint8],
    first: int,
    stop: int,
    origin: int,
    words: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Hit words of the windows [first, stop), as many windows as fit (bit_sliced.scan)."""
    return _scan(
        codes, first, stop, origin, look_up.memory, look_up.ids, look_up.k, look_up.bits,
        look_up.fields, words,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _scan(
    codes, first, stop, origin, memory, ids, k, bits, fields, words
):  # fmt: skip
    field = (np.uint32(1) << np.uint32(bits)) - np.uint32(1)
    written = 0
    for start in range(first, stop):
        if written + ids.size > words.size:
            return start, written, ids.size
        for group in range(memory.shape[0]):
            bit_vector = np.uint32(0)
            for level in range(memory.shape[2]):
                bit_vector = np.uint32(bit_vector + memory[group, codes[start + level], level])
            for p in range(group * fields, min((group + 1) * fields, ids.size)):
                distance = np.uint64(bit_vector & field)
                bit_vector = np.uint32(bit_vector >> np.uint32(bits))
                if distance <= np.uint64(k):
                    place = np.uint64(start - origin) << np.uint64(START_SHIFT)
                    words[written] = place | ids[p] | distance
                    written += 1
    return stop, written, 0
