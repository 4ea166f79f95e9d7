"""The method ``lanes``: Myers' bit-vectors of all patterns side by side, one per vector lane.

Myers (1999), for the search in a text (row 0 is all zero): a uint32 each for the positive and the
negative vertical differences of a column of k <= 31 cells, and the score of its last cell,

    eq  = peq[symbol]            xv = eq | vn
    xh  = (((eq & vp) + vp) ^ vp) | eq
    hp  = vn | ~(xh | vp)        hn = vp & xh          score += bit k-1 of hp - that of hn
    vp' = hn << 1 | ~(xv | hp << 1)                    vn'   = hp << 1 & xv

Operations per symbol and pattern: 17 and the minimum of the scores, all on contiguous uint32 rows,
so a vector of 8 patterns takes about 20 instructions for any text: dense hits cost nothing extra. A
gap code has eq = 0. If the best score is at most D, ``shortest_length`` finds the pattern's start.

Memory: 28 bytes per pattern and thread.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_DISTANCE
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.levenshtein import DISTANCE_SHIFT, NOTHING, PATTERN_SHIFT, Patterns, shortest_length
from trie.windows import check_batch

_MOST_CELLS: Final = 1 << 29
"""Patterns times symbols in a call of the kernel: the main thread notices an interrupt only
between two."""


def nearest_words(
    patterns: Patterns,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    first: int = 0,
    stop: int | None = None,
    threads: int = 1,
) -> NDArray[np.uint32]:
    """uint32[stop - first]: the words (trie/levenshtein) of the ends first + 1 .. stop.

    bases: uint8[total], offsets: int64[reads + 1], a batch of reads. A match may begin before
    ``first``.
    """
    bases, offsets = check_batch(bases, offsets)
    stop = bases.size if stop is None else stop
    words = np.full(max(stop - first, 0), NOTHING, dtype=np.uint32)
    if not patterns.words.size or stop <= first:
        return words
    planes = equal_symbols(patterns.words, patterns.k)

    def search(a: int, b: int) -> None:
        _search(
            patterns.words, patterns.k, patterns.distance, planes, bases, offsets, a, b,
            words[a - first : b - first],
        )  # fmt: skip

    run_ranges(search, first, stop, threads, most=1 + _MOST_CELLS // patterns.words.size)
    return words


@njit(cache=True, nogil=True)
def equal_symbols(words, k):
    """uint32[5, n]: bit i set where symbol i of a pattern is that code; none for the gap code."""
    planes = np.zeros((5, words.size), dtype=np.uint32)
    for j in range(words.size):
        for i in range(k):
            code = (words[j] >> np.uint64(2 * (k - 1 - i))) & np.uint64(3)
            planes[code, j] |= np.uint32(1) << np.uint32(i)
    return planes


@njit(cache=True, nogil=True)
def _step(equal, vp, vn, score, top):
    """Move every column on by one symbol; the least (score << 25 | pattern)."""
    one = np.uint32(1)
    least = np.uint32(0xFFFFFFFF)
    for j in range(vp.size):
        eq = equal[j]
        p = vp[j]
        n = vn[j]
        xv = np.uint32(eq | n)
        xh = np.uint32(np.uint32(np.uint32(np.uint32(eq & p) + p) ^ p) | eq)
        hp = np.uint32(n | ~np.uint32(xh | p))
        hn = np.uint32(p & xh)
        s = np.uint32(score[j] + np.uint32(np.uint32(hp >> top) & one))
        s = np.uint32(s - np.uint32(np.uint32(hn >> top) & one))
        score[j] = s
        hp = np.uint32(hp << one)
        hn = np.uint32(hn << one)
        vp[j] = np.uint32(hn | ~np.uint32(xv | hp))
        vn[j] = np.uint32(hp & xv)
        least = min(least, np.uint32(np.uint32(s << np.uint32(25)) | np.uint32(j)))
    return least


@njit(cache=True, nogil=True)
def _search(words, k, distance, planes, bases, offsets, first, stop, out):
    columns = np.empty((3, words.size), dtype=np.uint32)
    read = np.searchsorted(offsets, first, side="right") - 1
    at = first
    while at < stop:
        while offsets[read + 1] <= at:
            read += 1
        end = min(offsets[read + 1], stop)
        search_read(words, k, distance, planes, bases, offsets[read], at, end, first, columns, out)
        at = end


@njit(cache=True, nogil=True)
def search_read(words, k, distance, planes, bases, begin, first, stop, origin, columns, out):
    """Lower the words of the ends first + 1 .. stop of the read that begins at ``begin``.

    planes: of ``equal_symbols``. columns: uint32[3, patterns], scratch. out[0] is the word of the
    end origin + 1.
    """
    top = np.uint32(k - 1)
    vp, vn, score = columns[0], columns[1], columns[2]
    vp[:] = np.uint32(0xFFFFFFFF)
    vn[:] = np.uint32(0)
    score[:] = np.uint32(k)
    for i in range(max(begin, first - (k + distance)), stop):
        least = _step(planes[bases[i]], vp, vn, score, top)
        edits = least >> np.uint32(25)
        if edits <= distance and i >= first:
            pattern = least & np.uint32((1 << 25) - 1)
            length = shortest_length(words[pattern], k, np.int64(edits), bases, begin, i + 1)
            word = (
                (edits << np.uint32(DISTANCE_SHIFT))
                | (pattern << np.uint32(PATTERN_SHIFT))
                | np.uint32(length - k + MAX_DISTANCE)
            )
            out[i - origin] = min(out[i - origin], word)
