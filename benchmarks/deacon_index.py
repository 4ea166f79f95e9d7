"""An index as ``deacon index build`` makes it: the package of PyPI only reads them.

With an index of all k-mers of a sequence, deacon's list of the hits of that sequence is that of
its minimizers; it is equal to what is found here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import uint32
from numpy.typing import NDArray

from benchmarks.inputs import Codes
from trie.codes import GAP
from trie.cpu.jit import njit

K, W = 31, 15
"""deacon's defaults: length of a minimizer, and minimizers in a window."""

_SEEDS = np.array([0x95C60474, 0x62A02B4C, 0x82572324, 0x4BE24456], np.uint32)
"""ntHash's, for A, C, T, G."""


@njit(cache=True)
def _turned(value, by):
    by &= 31
    return uint32((uint32(value) << uint32(by)) | (uint32(value) >> uint32((32 - by) & 31)))


@njit(cache=True)
def _minimizers(codes, seeds, k, w, found):
    """Write the canonical k-mer of each minimizer of a sequence; return how many.

    codes: of packed-seq, A=0 C=1 T=2 G=3, 4 for others, whose windows are skipped. The hash is the
    sum of both strands' ntHash with rotations by one; its upper 16 bits count. Windows with more T
    and G than A and C take the first of equal minima, the others the last.
    """
    size, window = codes.size, k + w - 1
    top = np.uint64(2 * (k - 1))
    mask = (np.uint64(1) << np.uint64(2 * k)) - np.uint64(1)
    forward, backward = uint32(0), uint32(0)
    code = turned = np.uint64(0)
    hashes, values = np.zeros(w, np.uint32), np.zeros(w, np.uint64)
    weight = number = 0
    clear, before = 0, -1
    for i in range(size):
        base = codes[i] & 3
        clear = 0 if codes[i] > 3 else clear + 1
        weight += base >> 1
        forward = _turned(forward, 1) ^ seeds[base]
        backward = _turned(backward, 31) ^ _turned(seeds[base ^ 2], k - 1)
        code = code >> np.uint64(2) | np.uint64(base) << top
        turned = (turned << np.uint64(2) | np.uint64(base ^ 2)) & mask
        if i >= k - 1:
            hashes[i % w] = uint32(forward + backward) >> uint32(16)
            values[i % w] = min(code, turned)
            old = codes[i - k + 1] & 3
            forward ^= _turned(seeds[old], k - 1)
            backward ^= seeds[old ^ 2]
        if i >= window:
            weight -= (codes[i - window] & 3) >> 1
        if i < window - 1 or clear < window:
            continue
        first = 2 * weight > window
        start = i - k + 1 - (w - 1)
        best = start
        for at in range(start + 1, start + w):
            one, least = hashes[at % w], hashes[best % w]
            if one < least or (one == least and not first):
                best = at
        if best != before:
            found[number] = values[best % w]
            number += 1
            before = best
    return number


def minimizers(codes: Codes) -> NDArray[np.uint64]:
    """The canonical k-mers of deacon's minimizers of a sequence, as deacon stores them."""
    codes = np.ascontiguousarray(codes)
    packed = np.where(codes < GAP, codes ^ (codes >> 1), GAP).astype(np.uint8)
    found = np.empty(max(codes.size, 1), np.uint64)
    return found[: _minimizers(packed, _SEEDS, K, W, found)].copy()


def write_deacon_index(path: Path, found: NDArray[np.uint64]) -> None:
    """Write an index of the third format: version, k, w, number, and the distinct minimizers."""
    distinct = np.unique(found)
    path.write_bytes(bytes([3, K, W]) + np.uint64(distinct.size).tobytes() + distinct.tobytes())
