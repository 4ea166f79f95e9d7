"""Bit-sliced edit distance on words of 512 text segments, in vectors (``trie/cpu/vectors.py``).

Lane x of a word is bit x // 8 of its uint64 x % 8. All arrays are one-dimensional and C-contiguous;
positions in them are counted in uint64 and are multiples of 8.

One cell of the matrix D (WsPASM paper, equation 1), in differences, for 512 segments at once:

    vp, vm   D[i, j-1] - D[i-1, j-1] is +1, -1        hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        D[i, j] = D[i-1, j-1]: the letters are equal, or vm, or hm
    hp' = vm | ~(z | vp)   hm' = z & vp               vp' = hm | ~(z | hp)   vm' = z & hp

Five operations with three-input logic (AVX-512), eleven without.
"""

from __future__ import annotations

import numpy as np

from trie.cpu.intrinsics import prefetch_far
from trie.cpu.jit import njit
from trie.cpu.vectors import (
    WORDS,
    any_of,
    common,
    complement,
    either,
    exclusive_or,
    load,
    majority,
    occupied,
    or_neither,
    spread,
    store,
    without,
)

LANES = 512

ROW = LANES + WORDS
"""Stride in uint64 between planes of one word per lane; planes share no cache set."""

LINE = 64  # bytes of a cache line

COLUMNS = 4
"""Text positions per call of ``cells`` and ``count``: a row is loaded once for four."""


@njit(cache=True, nogil=True, forceinline=True)
def _cell(vp, vm, hp, hm, equal):
    z = any_of(equal, vm, hm)
    return or_neither(hm, z, hp), common(z, hp), or_neither(vm, z, vp), common(z, vp)


@njit(cache=True, nogil=True, forceinline=True)
def cells(
    state, rows, letters, first, equal, equal_at, stride, deltas, deltas_at, top, text, ahead
):
    """Compute ``rows`` rows of COLUMNS columns of D.

    state: (vp, vm) per row, from row ``first`` on. letters int64[]: the offset of row i's letter
    within a column of ``equal``, whose columns are ``stride`` apart, from ``equal_at`` on. deltas:
    (hp, hm) per column from ``deltas_at`` on; in: those above the first row, 0 if that is the
    ``top`` row; out: those of the last row. text uint8[]: each row prefetches a cache line from
    ``ahead`` on; memory keeps up with that rate.
    """
    hp0 = hm0 = hp1 = hm1 = hp2 = hm2 = hp3 = hm3 = spread(np.uint64(0))
    if not top:
        hp0, hm0 = load(deltas, deltas_at), load(deltas, deltas_at + WORDS)
        hp1, hm1 = load(deltas, deltas_at + 2 * WORDS), load(deltas, deltas_at + 3 * WORDS)
        hp2, hm2 = load(deltas, deltas_at + 4 * WORDS), load(deltas, deltas_at + 5 * WORDS)
        hp3, hm3 = load(deltas, deltas_at + 6 * WORDS), load(deltas, deltas_at + 7 * WORDS)
    for i in range(rows):
        prefetch_far(text, ahead + i * LINE)
        row = first + i
        at = row * (2 * WORDS)
        vp, vm = load(state, at), load(state, at + WORDS)
        own = equal_at + letters[np.uint64(row)]
        vp, vm, hp0, hm0 = _cell(vp, vm, hp0, hm0, load(equal, own))
        vp, vm, hp1, hm1 = _cell(vp, vm, hp1, hm1, load(equal, own + stride))
        vp, vm, hp2, hm2 = _cell(vp, vm, hp2, hm2, load(equal, own + 2 * stride))
        vp, vm, hp3, hm3 = _cell(vp, vm, hp3, hm3, load(equal, own + 3 * stride))
        store(state, at, vp)
        store(state, at + WORDS, vm)
    _store_pairs(deltas, deltas_at, hp0, hm0, hp1, hm1)
    _store_pairs(deltas, deltas_at + 4 * WORDS, hp2, hm2, hp3, hm3)


@njit(cache=True, nogil=True, forceinline=True)
def _store_pairs(words, at, a, b, c, d):
    store(words, at, a)
    store(words, at + WORDS, b)
    store(words, at + 2 * WORDS, c)
    store(words, at + 3 * WORDS, d)


@njit(cache=True, nogil=True, forceinline=True)
def _add(plane, adding, carry):
    """Return the sum of a full adder and its carry."""
    return exclusive_or(plane, adding, carry), majority(adding, carry, plane)


@njit(cache=True, nogil=True, forceinline=True)
def count(counters, at, planes, deltas, deltas_at, low, low_at, low_planes, hits, hits_at):
    """Follow the score of the last row over COLUMNS columns; return a uint64, zero without hits.

    counters: ``planes`` words from ``at`` on, the two's complement of D - k - 1 in 512 lanes, least
    significant bit first. Its sign bit is the hit and goes to ``hits``, a word per column; the
    lowest ``low_planes`` planes go to ``low``, a ROW each, a word per column.

    Adding hp - hm takes a full adder per plane, with second operand hp | hm, then hm, hm, ...
    """
    m0, m1 = load(deltas, deltas_at + WORDS), load(deltas, deltas_at + 3 * WORDS)
    m2, m3 = load(deltas, deltas_at + 5 * WORDS), load(deltas, deltas_at + 7 * WORDS)
    a0 = either(load(deltas, deltas_at), m0)
    a1 = either(load(deltas, deltas_at + 2 * WORDS), m1)
    a2 = either(load(deltas, deltas_at + 4 * WORDS), m2)
    a3 = either(load(deltas, deltas_at + 6 * WORDS), m3)
    c0 = c1 = c2 = c3 = s0 = s1 = s2 = s3 = spread(np.uint64(0))
    for plane in range(planes):
        place = at + plane * WORDS
        s0, c0 = _add(load(counters, place), a0, c0)
        s1, c1 = _add(s0, a1, c1)
        s2, c2 = _add(s1, a2, c2)
        s3, c3 = _add(s2, a3, c3)
        a0, a1, a2, a3 = m0, m1, m2, m3
        store(counters, place, s3)
        if plane < low_planes:
            _store_pairs(low, low_at + plane * ROW, s0, s1, s2, s3)
    _store_pairs(hits, hits_at, s0, s1, s2, s3)
    return occupied(either(any_of(s0, s1, s2), s3))


@njit(cache=True, nogil=True, forceinline=True)
def bases(planes, at, columns, gaps, equal, equal_at):
    """Write the lanes that hold A, C, G, T to ``equal``: four words for each column.

    planes: the columns' words for bit 0 of the codes, from ``at`` on; a ROW further those for bit 1
    and, unless ``gaps`` is 0, another ROW further those for gaps.
    """
    gap = spread(np.uint64(0))
    for column in range(columns):
        place = at + column * WORDS
        low, high = load(planes, place), load(planes, place + ROW)
        if gaps != 0:
            gap = load(planes, place + 2 * ROW)
        known_low, known_high = without(low, gap), complement(either(high, gap))
        out = equal_at + column * (4 * WORDS)
        _store_pairs(
            equal, out,
            without(known_high, low), common(known_low, known_high),
            without(without(high, gap), low), common(known_low, high),
        )  # fmt: skip
