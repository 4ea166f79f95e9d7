"""Patterns as words of packed counters, which shift-add and PMASM add up (PMASM paper,
sections 4 and 5).

Patterns are uint8[count, length] base codes; a gap code, in a pattern or in a text, is a mismatch.
There are words for every possible symbol of a text: A, C, G, T and gap.
"""

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP

PMASM_BITS = 32  # bits of a bit_vector of PMASM


def mismatches(patterns: NDArray[np.uint8], code: int) -> NDArray[np.bool_]:
    """Where the patterns differ from a text symbol ``code``; same shape."""
    return np.asarray((patterns != code) | (code == GAP))


def shift_add_words(patterns: NDArray[np.uint8], k: int) -> tuple[NDArray[np.uint64], int, int]:
    """Shift-add's words: uint64[count, GAP + 1, words]; bits per field; fields per word.

    Field i, one bit wider than k needs, stands for symbol i of the pattern; a word has
    64 // bits fields.
    """
    count, length = patterns.shape
    bits = k.bit_length() + 1
    fields = 64 // bits
    values = np.uint64(1) << (bits * (np.arange(length) % fields)).astype(np.uint64)
    add = np.zeros((count, GAP + 1, -(-length // fields)), dtype=np.uint64)
    for code in range(GAP + 1):
        wrong = mismatches(patterns, code)
        for word in range(add.shape[2]):
            own = slice(word * fields, (word + 1) * fields)
            add[:, code, word] = (wrong[:, own] * values[own]).sum(axis=1, dtype=np.uint64)
    return add, bits, fields


def look_up_memory(patterns: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], int]:
    """PMASM's look-up memory (5.2): uint32[groups, GAP + 1, length], and bits per field.

    Field p, of ceil(log2(length + 1)) bits (equation 2), stands for pattern p of the group; a group
    is PMASM_BITS // bits patterns (equation 3). The paper has one group and no gap code.
    """
    count, length = patterns.shape
    bits = length.bit_length()
    fields = PMASM_BITS // bits
    memory = np.zeros((-(-count // fields), GAP + 1, length), dtype=np.uint32)
    for code in range(GAP + 1):
        wrong = mismatches(patterns, code).astype(np.uint32)
        for p in range(count):
            memory[p // fields, code] |= wrong[p] << np.uint32(bits * (p % fields))
    return memory, bits
