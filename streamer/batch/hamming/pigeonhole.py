"""The method ``pigeonhole``: look up pieces of every window in an index of near sequences.

Each piece of a window is looked up in the index (``mismatch_index``), and the patterns found are
compared in full. A pattern found by several pieces counts for the first. Text and patterns take 2
bits a symbol, the first lowest, 32 symbols a word; a gap code is stored as A, with a bit in a
second word that makes it a mismatch. All windows of a block take each step together, so that memory
latencies overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamer.batch.hamming.mismatch_index import make_index
from streamer.batch.hamming.oriented import Oriented
from streamer.batch.hamming.packed_hits import hit_word
from trie.codes import GAP
from trie.cpu.intrinsics import popcount, prefetch
from trie.cpu.jit import njit

BLOCK = 1024  # windows whose text is packed at once


def prepare(patterns: Oriented) -> tuple[Any, ...]:
    """Return the index, then the full patterns.

    symbols, gaps: uint64[r, words]. inside: uint64[words], a bit for each symbol of a pattern.
    of_piece: uint64[s, words], for those of a piece.
    """
    index = make_index(patterns)
    count, length = patterns.codes.shape
    symbols = np.zeros((count, -(-length // 32)), dtype=np.uint64)
    gaps, inside = np.zeros_like(symbols), np.zeros(symbols.shape[1], dtype=np.uint64)
    of_piece = np.zeros((index.places.size, symbols.shape[1]), dtype=np.uint64)
    for j in range(length):
        word, shift = j // 32, np.uint64(2 * (j % 32))
        codes = patterns.codes[:, j].astype(np.uint64)
        symbols[:, word] |= np.where(codes < GAP, codes, np.uint64(0)) << shift
        gaps[:, word] |= (codes >= GAP).astype(np.uint64) << shift
        inside[word] |= np.uint64(1) << shift
        mine = (index.places <= j) & (j < index.places + index.length)
        of_piece[mine, word] |= np.uint64(1) << shift
    return (*index, symbols, gaps, inside, of_piece)


def most_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``: all patterns may share a piece."""
    return cells // len(patterns)


@njit(cache=True, nogil=True)
def _pack(codes, first, count, symbols, gaps):
    """Pack the 32 symbols, and the gap codes among them, from each of ``count`` places on."""
    word = np.uint64(0)
    gap = np.uint64(0)
    for i in range(count + 31):
        code = np.uint64(0)
        if first + i < codes.size:
            code = np.uint64(codes[first + i])
        word = (word >> np.uint64(2)) | ((code & np.uint64(3)) << np.uint64(62))
        gap = (gap >> np.uint64(2)) | ((code >> np.uint64(2)) << np.uint64(62))
        if i >= 31:
            symbols[i - 31] = word
            gaps[i - 31] = gap


@njit(cache=True, nogil=True)
def _ask(bitmap, rank, text, place, mask, count, windows, lists):
    """Find the windows whose q-mer at ``place`` has a list, and its number; return their count."""
    found = 0
    for s in range(count):
        kmer = text[s + place] & mask
        windows[found] = s
        lists[found] = kmer
        found += np.int64((bitmap[kmer >> np.uint64(6)] >> (kmer & np.uint64(63))) & np.uint64(1))
    for n in range(found):
        kmer = lists[n]
        below = (np.uint64(1) << (kmer & np.uint64(63))) - np.uint64(1)
        word = kmer >> np.uint64(6)
        lists[n] = np.uint64(rank[word]) + popcount(bitmap[word] & below)
    return found


@njit(cache=True, nogil=True)
def scan(
    codes, first, stop, origin, ids, k, words, bitmap, rank, starts, members, places, length,
    errors, symbols, pattern_gaps, inside, of_piece,
):  # fmt: skip
    """Implement ``scan`` of ``engines.ON_CPU``."""
    count = symbols.shape[1]
    mask = (np.uint64(1) << np.uint64(2 * length)) - np.uint64(1)
    room = BLOCK + 32 * count
    text = np.empty(room, dtype=np.uint64)
    gaps = np.empty(room, dtype=np.uint64)
    windows = np.empty(BLOCK + 1, dtype=np.int64)
    lists = np.empty(BLOCK + 1, dtype=np.uint64)
    begins = np.empty(BLOCK, dtype=np.int64)
    ends = np.empty(BLOCK, dtype=np.int64)
    written = 0
    while first < stop:
        block = min(BLOCK, stop - first)
        _pack(codes, first, block + 32 * count, text, gaps)
        begun = written
        for i in range(places.size):
            found = _ask(bitmap[i], rank[i], text, places[i], mask, block, windows, lists)
            # take each step for all of them, so memory latencies overlap
            for n in range(found):
                begins[n] = starts[lists[n]]
                ends[n] = starts[lists[n] + np.uint64(1)]
                prefetch(members, begins[n])
            for n in range(found):
                s = windows[n]
                for at in range(begins[n], ends[n]):
                    p = members[at]
                    distance = np.int64(0)
                    for w in range(count):
                        x = text[s + 32 * w] ^ symbols[p, w]
                        x |= (x >> np.uint64(1)) | gaps[s + 32 * w] | pattern_gaps[p, w]
                        distance += np.int64(popcount(x & inside[w]))
                    if distance <= k and not _earlier(
                        text, s, symbols, pattern_gaps, p, of_piece, i, errors
                    ):
                        if written == words.size:
                            return first, begun, 2 * (written - begun) + BLOCK
                        words[written] = hit_word(first + s - origin, ids[p], distance)
                        written += 1
        if written - begun > 1:
            words[begun:written].sort()
        first += block
    return stop, written, 0


@njit(cache=True, nogil=True)
def _earlier(text, s, symbols, pattern_gaps, p, of_piece, piece, errors):
    """Return whether an earlier piece finds the pattern too."""
    for i in range(piece):
        wrong = np.int64(0)
        for w in range(symbols.shape[1]):
            x = text[s + 32 * w] ^ symbols[p, w]
            x |= (x >> np.uint64(1)) | pattern_gaps[p, w]
            wrong += np.int64(popcount(x & of_piece[i, w]))
        if wrong <= errors:
            return True
    return False
