"""The method ``pmasm`` on the CPU (PMASM paper, section 5): counters of several patterns per word.

    look-up memory  [group, code, level]    the fb_vector of level j: field p is 1 where symbol j of
                                            the group's pattern p is not the code
    bit_vector      the sum of m fb_vectors: field p is the Hamming distance of pattern p

A field has b = ceil(log2(m + 1)) bits (equation 2), a word of 32 bits 32

b patterns (equation 3), and there are as many words (groups) as the patterns need; the paper has
one. A gap code in the text has its own row, all mismatches. m additions per window and group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.problem import Oriented, hit_word
from trie.cpu.jit import njit
from trie.packed_counters import PMASM_BITS, look_up_memory


def prepare(patterns: Oriented) -> tuple[NDArray[np.uint32], int]:
    """Return the look-up memory (5.2), and the bits per field."""
    return look_up_memory(patterns.codes)


def most_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``."""
    return cells // patterns.codes.size


@njit(cache=True, nogil=True)
def scan(codes, first, stop, origin, ids, k, words, memory, bits):
    """Implement ``scan`` of ``engines.ON_CPU``."""
    fields = PMASM_BITS // bits
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
                    words[written] = hit_word(start - origin, ids[p], distance)
                    written += 1
    return stop, written, 0
