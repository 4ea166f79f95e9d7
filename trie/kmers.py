"""The windows of reads as k-mer codes."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trie.codes import reverse_complement_code


def window_codes(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int, *, canonical: bool
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(codes uint64[n], window starts int64[n]) of every window without a gap, in stream order.

    bases: uint8 base codes of the reads one after the other, offsets: int64[reads + 1].
    With ``canonical`` a code is the smaller of the window's and its reverse complement's.
    """
    codes = np.empty(bases.size, dtype=np.uint64)
    starts = np.empty(bases.size, dtype=np.int64)
    count = _window_codes(bases, offsets, k, canonical, codes, starts)
    return codes[:count], starts[:count]


@njit(cache=True, nogil=True)
def _window_codes(bases, offsets, k, canonical, codes, starts):  # type: ignore[no-untyped-def]
    two = np.uint64(2)
    three = np.uint64(3)
    mask = (np.uint64(1) << np.uint64(2 * k)) - np.uint64(1)
    top = np.uint64(2 * (k - 1))
    count = 0
    for read in range(offsets.size - 1):
        forward = np.uint64(0)
        reverse = np.uint64(0)
        run = 0
        for i in range(offsets[read], offsets[read + 1]):
            code = np.uint64(bases[i])
            if code > three:
                run = 0
                continue
            forward = ((forward << two) | code) & mask
            reverse = (reverse >> two) | ((three - code) << top)
            run += 1
            if run >= k:
                codes[count] = min(forward, reverse) if canonical else forward
                starts[count] = i - k + 1
                count += 1
    return count


def with_reverse_complements(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """The codes followed by the codes of their reverse complements, uint64[2n]."""
    return np.concatenate((codes, reverse_complement_code_array(codes, k)))


def reverse_complement_code_array(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """The code of the reverse complement of each k-mer."""
    return _reverse_complements(np.ascontiguousarray(codes, dtype=np.uint64), k)


@njit(cache=True, nogil=True)
def _reverse_complements(codes, k):  # type: ignore[no-untyped-def]
    out = np.empty_like(codes)
    for i in range(codes.size):
        out[i] = reverse_complement_code(codes[i], k)
    return out
