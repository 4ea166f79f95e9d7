"""Myers' bit-vectors: from a word's vertical differences in a column of D to the next column's.

p, n      vertical differences +1 and -1 between a row and the one above it
eq        rows whose symbol is the text's, and row 0 of a word into which -1 comes from above
ph, mh    horizontal differences +1 and -1 of the rows; their top bits go on to the next word
"""

from __future__ import annotations

import numpy as np

from trie.cpu.jit import njit


@njit(cache=True, nogil=True, inline="always")
def horizontal(p, n, eq):
    """Return ph and mh of a uint64 word."""
    xh = (((eq & p) + p) ^ p) | eq
    return n | ~(xh | p), p & xh


@njit(cache=True, nogil=True, inline="always")
def vertical(xv, ph, mh, in_p, in_n):
    """P and n of a uint64 word in the next column; xv is eq | n; in_p, in_n are from above."""
    ph = (ph << np.uint64(1)) | in_p
    mh = (mh << np.uint64(1)) | in_n
    return mh | ~(xv | ph), ph & xv


@njit(cache=True, nogil=True, inline="always")
def next_column_32(p, n, eq, in_p, in_n):
    """Return p, n and the carries of a uint32 word, cast back after every operation."""
    xv = np.uint32(eq | n)
    eq = np.uint32(eq | in_n)
    xh = np.uint32(np.uint32(np.uint32(np.uint32(eq & p) + p) ^ p) | eq)
    ph = np.uint32(n | np.uint32(~np.uint32(xh | p)))
    mh = np.uint32(p & xh)
    out_p = np.uint32(ph >> np.uint32(31))
    out_n = np.uint32(mh >> np.uint32(31))
    ph = np.uint32(np.uint32(ph << np.uint32(1)) | in_p)
    mh = np.uint32(np.uint32(mh << np.uint32(1)) | in_n)
    return np.uint32(mh | np.uint32(~np.uint32(xv | ph))), np.uint32(ph & xv), out_p, out_n
