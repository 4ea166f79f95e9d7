"""Extend one start near one place of a text, bit-parallel: follow a row that only rises.

Myers' bit-vectors (64 rows per word, row 1 in bit 0) advance along the text with row 0 all zeros,
so a match may begin anywhere. The hook row h is one above the longest prefix known to be within k -
1 differences. Only its value is stored, updated by its horizontal difference at every symbol; when
it falls to k - 1, h rises and the vertical difference of the next row is added. At the end of the
text the reach is r + h - 1: one pass, no cells, no search.

    vp, vn    bit i-1: D[i, j] - D[i-1, j] is +1, is -1
    ph, mh    bit i-1: D[i, j] - D[i, j-1] is +1, is -1

Operations: 17 per 64 rows and symbol, on the words up to the hook and one more. Once a match is so
long that k columns of all diagonals are less work, it is followed along its diagonals
(``alternative``): work then grows with k * k, not with the square of its length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.beta_pieces import SEPARATOR
from streamer.batch.primer.myers import horizontal, vertical
from streamer.batch.primer.paper.alternative import longest_prefix
from streamer.batch.records import Codes
from trie.cpu.jit import njit

WORD = 64
LONG = 512  # rows from which a match may be followed along diagonals
DIAGONAL_CELL = 512.0  # the cost of a cell along diagonals, in rows of a column
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def match_bits(codes: Codes) -> NDArray[np.uint64]:
    """uint64[4, words]: bit i of row c is set where symbol i is c; a gap has no bit in any row."""
    words = codes.size // WORD + 2
    bits = np.zeros((4, words * WORD), dtype=np.uint8)
    for code in range(4):
        bits[code, : codes.size] = codes == code
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _bit(words, row):
    """Return the bit of a row (from 1 on)."""
    at = row - 1
    return np.int64((words[at >> 6] >> np.uint64(at & 63)) & np.uint64(1))


@njit(cache=True, nogil=True)
def _along_diagonals(codes, end, text, r, k, from_, until, floor, scratch):
    """Return the reach of matches that begin in text[from_:until], record by record of the text."""
    best = floor
    at = from_
    while at < until:
        if text[at] == SEPARATOR:
            at += 1
            continue
        stop = at
        longest = at + (end - r) + k + (until - at)
        while stop < text.size and stop < longest and text[stop] != SEPARATOR:
            stop += 1
        diagonals = min(stop, until) - at + k
        diagonals = min(diagonals, stop - at)
        if scratch.size < diagonals + k + 3:
            scratch = np.empty(diagonals + k + 3, dtype=np.int32)
        counts = np.zeros(1, dtype=np.int64)
        never = np.zeros(1, dtype=np.uint8)
        c = longest_prefix(codes[r:end], text[at:stop], k, scratch, counts, never, diagonals)
        best = max(best, r + c)
        if best >= end:
            break
        at = stop
    return best


@njit(cache=True, nogil=True)
def reach_near(codes, bits, end, r, floor, text, from_, until, core_end, slack, k, scratch):
    """The reach of start r by matches whose part alpha[r:core_end] ends in text[from_:until].

    That part has at least k - 1 - slack differences, so its continuation in the text is at most
    ``slack`` symbols longer than in alpha. The result is at least ``floor`` (r <= floor <= end, the
    record's end). ``scratch`` is int32[] of any size.
    """
    if floor >= end:
        return floor
    n = text.size
    begin = max(0, from_ - (core_end - r) - k)
    height = max(LONG, int(np.sqrt(DIAGONAL_CELL * float(k) * (until - from_ + 3 * k))))
    h = floor + 1 - r
    words = (h - 1) // WORD + 2
    while True:
        if h > height:
            last = min(n, until - (core_end - r) + k)
            return _along_diagonals(codes, end, text, r, k, begin, last, r + h - 1, scratch)
        peq = np.zeros((6, words), dtype=np.uint64)
        for w in range(words):
            at = (r >> 6) + w
            low = np.uint64(r & 63)
            if at < bits.shape[1]:
                for c in range(4):
                    peq[c, w] = bits[c, at] >> low
                    if low != 0 and at + 1 < bits.shape[1]:
                        peq[c, w] |= bits[c, at + 1] << (np.uint64(64) - low)
        vp = np.full(words, _ONES, dtype=np.uint64)
        vn = np.zeros(words, dtype=np.uint64)
        score = np.int64(h)
        outgrown = False
        j = begin
        while j < min(n, until + (r + h - core_end) + slack):
            c = text[j]
            j += 1
            if c == SEPARATOR:
                vp[:] = _ONES
                vn[:] = np.uint64(0)
                score = np.int64(h)
                continue
            hook = (h - 1) >> 6
            shift = np.uint64((h - 1) & 63)
            carry_p = np.uint64(0)
            carry_n = np.uint64(0)
            for w in range(words):
                p = vp[w]
                nn = vn[w]
                eq = peq[c, w]
                xv = eq | nn
                eq |= carry_n
                ph, mh = horizontal(p, nn, eq)
                if w == hook:
                    score += np.int64((ph >> shift) & np.uint64(1))
                    score -= np.int64((mh >> shift) & np.uint64(1))
                vp[w], vn[w] = vertical(xv, ph, mh, carry_p, carry_n)
                carry_p = ph >> np.uint64(63)
                carry_n = mh >> np.uint64(63)
            while score < k:
                h += 1
                if r + h > end:
                    return end
                if h > WORD * words:
                    outgrown = True
                    break
                score += _bit(vp, h) - _bit(vn, h)
            if outgrown:
                break
        if not outgrown:
            return r + h - 1
        words *= 2


@njit(cache=True, nogil=True)
def reach_all(codes, bits, ends, text, k, starts, floors, core_ends, froms, untils, slacks, out):
    """Call ``reach_near`` for many starts; ``starts`` and what follows are int64[t]."""
    scratch = np.empty(0, dtype=np.int32)
    for i in range(starts.size):
        r = starts[i]
        out[i] = reach_near(
            codes, bits, ends[r], r, floors[i], text, froms[i], untils[i], core_ends[i], slacks[i],
            k, scratch,
        )  # fmt: skip
