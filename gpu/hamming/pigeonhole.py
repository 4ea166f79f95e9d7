"""The kernel ``pigeonhole``: look up pieces of every window in an index of nearby pattern pieces.

    records    uint64[2 s 4^q / 64]  two a word of a piece's bitmap: bit c of the bitmap, whether
                                     some pattern's piece is within e of the q-mer c; how many bits
                                     are set before the word, in all pieces
    starts     uint32[lists + 1]     where the list of each set bit begins in ``members``
    members    uint32                patterns, by number
    pieces     uint32[s, 1 + blocks] where a piece begins, and its symbols, a bit each

Of at most k mismatches, one of s pieces has at most e = k // s, so every hit is in a list of one of
its window's pieces; the patterns in these lists are compared in full. A pattern that an earlier
piece also found is skipped. A gap code counts as A in the index, which can only bring a piece
nearer, and as a mismatch in the comparison.

One thread per window; 32 of them read the same words of the text. A look-up is one 16-byte load;
further loads follow only if there is a list. Each hit takes its place by its own atomic addition:
hits are few.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.bits import bit_count
from gpu.card.intrinsics import cuda, device_function, load_pair, load_word, population
from gpu.hamming import bit_planes
from gpu.hamming.packed_hits import ID, START

THREADS = 128  # threads per block; any number


@device_function
def _spread(bits):
    """Bit i of 16 moved to 2 i."""
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(8))) & np.uint32(0x00FF00FF))
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(4))) & np.uint32(0x0F0F0F0F))
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(2))) & np.uint32(0x33333333))
    return np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(1))) & np.uint32(0x55555555))


@device_function
def _named_before(text, patterns, blocks, pieces, piece, errors, p, start):
    """Whether an earlier piece also finds pattern p."""
    found = False
    for other in range(piece):
        wrong = np.uint32(0)
        for block in range(blocks):
            word = np.uint32(np.uint32(start >> np.uint32(5)) + np.uint32(block))
            differ = bit_planes.differing(
                text, text, np.uint32(0), np.uint32(0), patterns,
                np.uint32(np.uint32(p * blocks) + np.uint32(block)), word,
                np.uint32(start & np.uint32(31)),
            )  # fmt: skip
            differ = np.uint32(differ & pieces[other, np.uint32(block) + np.uint32(1)])
            wrong = np.uint32(wrong + bit_count(differ))
        found = found or wrong <= errors
    return found


def pigeonhole(length: int) -> Callable[..., None]:
    """The kernel for pieces of ``length`` symbols, at most 12."""
    words = 4**length // 64 or 1
    mask = (1 << length) - 1

    def kernel(
        text, gaps, windows, records, starts, members, pieces, errors, patterns, blocks, k,
        counters, own, found,
    ):  # fmt: skip
        """``[grid, THREADS]``, grid * THREADS >= windows.

        Arguments: text uint32[3, words], gaps (bit_planes.py), windows uint32, the index as
        above, errors uint32 (e), patterns uint64[2 r blocks] (bit_planes.py), blocks, k uint32,
        counters uint32[], own uint32, found uint64[] as for ``bit_sliced``.
        """
        start = np.uint32(cuda.grid(1))
        if start >= windows:
            return
        for piece in range(pieces.shape[0]):
            at = np.uint32(start + pieces[piece, 0])
            word = np.uint32(at >> np.uint32(5))
            shift = np.uint32(at & np.uint32(31))
            low = np.uint32(bit_planes.from_bit(text[0], word, shift) & np.uint32(mask))
            high = np.uint32(bit_planes.from_bit(text[1], word, shift) & np.uint32(mask))
            kmer = np.uint32(_spread(low) | np.uint32(_spread(high) << np.uint32(1)))
            place = np.uint32(np.uint32(piece * words) + np.uint32(kmer >> np.uint32(6)))
            bitmap, before = load_pair(records, place)
            rest = np.uint64(bitmap >> np.uint64(kmer & np.uint32(63)))
            if np.uint64(rest & np.uint64(1)) != np.uint64(0):
                # lists before this bit: all before the next word, less those from this bit on
                number = np.uint32(np.uint32(before) + population(bitmap))
                number = np.uint32(number - population(rest))
                entry = load_word(starts, number)
                stop = load_word(starts, np.uint32(number + np.uint32(1)))
                while entry < stop:
                    p = load_word(members, entry)
                    wrong = bit_planes.distance(
                        text, text, gaps, np.uint32(0), patterns, blocks, p, start
                    )
                    if wrong <= k and not _named_before(
                        text, patterns, blocks, pieces, piece, errors, p, start
                    ):
                        to = cuda.atomic.add(counters, own, np.uint32(1))
                        if np.uint32(to) < np.uint32(found.size):
                            where = np.uint64(np.uint64(start) << np.uint64(START))
                            what = np.uint64(np.uint64(p) << np.uint64(ID))
                            found[to] = np.uint64(np.uint64(where | what) | np.uint64(wrong))
                    entry = np.uint32(entry + np.uint32(1))

    return kernel
