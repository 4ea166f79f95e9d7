"""The methods compared in the PMASM paper, on the CPU.

``naive``: equation (1), window by window, pattern by pattern: n r m comparisons for n windows and r
patterns of m symbols, without early exit.

``pmasm`` (section 5): counters of several patterns per word.

    look-up memory  [group, code, level]    the fb_vector of level j: field p is 1 where symbol j of
                                            the group's pattern p is not the code
    bit_vector      the sum of m fb_vectors: field p is the Hamming distance of pattern p

A field has b = ceil(log2(m + 1)) bits (equation 2), a word of 32 bits has 32 // b patterns
(equation 3), and there are as many words (groups) as the patterns need; the paper has one. A gap
code in the text has its own row, all mismatches. m additions per window and group.

``shift-add`` (Baeza-Yates and Gonnet, 1992; section 4 and Table 3). The state of a pattern holds a
counter of b bits for each of its m prefixes: the mismatches of prefix i + 1 with the symbols that
end at the current one. For each word of the state, a symbol c takes

    state     = (state << b) + add[c]          add[c] has a 1 in field i where symbol i is not c
    overflow  = (overflow << b) | (state & tops)
    state     = state & ~tops                  tops: the highest bit of every field

so an overflow is remembered and moves along with its prefix. b is one more than the bits of k. A
window matches if field m - 1 has not overflowed and is at most k.

    word w of a state:   | unused | field F w + F - 1 | ... | field F w |     F = 64 // b fields

If m b <= 64, one word suffices, with 7 operations per symbol and pattern; otherwise the highest
field of a word moves into the next word.
"""

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.problem import Oriented, hit_word
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.packed_counters import PMASM_BITS, look_up_memory, shift_add_words

NO_SYMBOL = GAP + 1  # stands for a gap code in a pattern; equals nothing in a text


def naive_patterns(patterns: Oriented) -> tuple[NDArray[np.uint8]]:
    """Return the patterns, uint8[r, m], with NO_SYMBOL for gap codes."""
    return (np.where(patterns.codes < GAP, patterns.codes, NO_SYMBOL).astype(np.uint8),)


def most_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``."""
    return cells // patterns.codes.size


@njit(cache=True, nogil=True)
def naive(codes, first, stop, origin, ids, k, words, patterns):
    """Implement ``scan`` of ``engines.ON_CPU``."""
    written = 0
    for start in range(first, stop):
        if written + ids.size > words.size:
            return start, written, ids.size
        for p in range(ids.size):
            distance = 0
            for j in range(patterns.shape[1]):
                distance += codes[start + j] != patterns[p, j]
            if distance <= k:
                words[written] = hit_word(start - origin, ids[p], distance)
                written += 1
    return stop, written, 0


def pmasm_memory(patterns: Oriented) -> tuple[NDArray[np.uint32], int]:
    """Return the look-up memory (5.2), and the bits per field."""
    return look_up_memory(patterns.codes)


@njit(cache=True, nogil=True)
def pmasm(codes, first, stop, origin, ids, k, words, memory, bits):
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


def shift_add_state(patterns: Oriented) -> tuple[NDArray[np.uint64], int, int, int]:
    """The words that symbols add, uint64[r, GAP + 1, words]; m; bits per field; fields per word."""
    add, bits, fields = shift_add_words(patterns.codes, patterns.k)
    return add, patterns.length, bits, fields


def shift_add_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``: a call begins with a pattern's length."""
    return max(64 * patterns.length, cells // patterns.codes.size)


@njit(cache=True, nogil=True)
def shift_add(codes, first, stop, origin, ids, k, words, add, length, bits, fields):
    """Implement ``scan`` of ``engines.ON_CPU``."""
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
            overflown = (overflow[p, count - 1] >> last) & field
            distance = (state[p, count - 1] >> last) & field
            if start >= first and overflown == 0 and distance <= np.uint64(k):
                words[written] = hit_word(start - origin, ids[p], distance)
                written += 1
    return stop, written, 0
