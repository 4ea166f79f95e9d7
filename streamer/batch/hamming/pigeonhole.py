"""The method ``pigeonhole``: look up pieces of every window in an index of near sequences.

Each piece of a window is looked up in the index, and the patterns listed there are compared in
full. A pattern found by several pieces counts for the first. Text and patterns take 2 bits a
symbol, the first lowest, 32 symbols a word; a gap code is stored as A, with a bit in a second word
that makes it a mismatch. All windows of a block take each step together, so that memory latencies
overlap.

For the index, a pattern is cut into s pieces of q symbols. With at most k mismatches in all, some
piece has at most e = k // s. So every sequence within e mismatches of a piece is listed, with its
patterns.

    bitmap   uint64[s, 4^q / 64]   bit c: some pattern's piece is within e of the q-mer c
    rank     uint32[s, 4^q / 64]   set bits before the word; with the bits below c the number of
                                   c's list
    starts   uint32[lists + 1]     where a list begins in ``members``
    members  uint32                patterns, by number

A q-mer takes 2 bits a symbol, the first lowest; a gap code becomes A. That can only reduce the
distance to a piece, so no hit is missed.

Cost per window: s look-ups, and r s N / 4^q comparisons for r patterns, N = sum of C(q, i) 3^i for
i up to e, against 0.004 r m vector operations of ``bit-sliced``. ``pays`` estimates where this is
faster; over 11 pairs of length and k and 16 to 2,048 patterns it was wrong 3 times of 77.
"""

from dataclasses import dataclass
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.problem import Oriented, hit_word
from trie.codes import GAP
from trie.cpu.intrinsics import popcount, prefetch
from trie.cpu.jit import njit
from trie.cpu.threads import split_range

LONGEST_PIECE = 12  # symbols: the bitmap of a piece then takes 2 MiB
MOST_MEMBERS = 1 << 26
NEAR_AT_ONCE = 1 << 20  # of them per call of a kernel: Ctrl-C is noticed only between two

WINDOW, COMPARE, HIT = 1.3, 3.0, 60.0
"""Nanoseconds to pack a window, to compare it with a pattern, to write a hit."""

SLICED, OPERATION, SLICED_HIT = 0.15, 0.00095, 34.0
"""Nanoseconds of ``bit-sliced``: per window, per pattern symbol and window, per hit."""

GPU_LOOK_UPS, GPU_COMPARE, GPU_OPERATION = (0.0048, 0.01), 0.0145, 5e-6
"""Costs on a GPU: a look-up and its list's start, in a table up to 256 KiB or above; COMPARE;
OPERATION.
"""

_CACHES = (
    (1 << 15, 0.7, 2.0), (1 << 20, 1.0, 2.5), (1 << 21, 1.5, 4.0), (1 << 22, 3.0, 8.0),
    (1 << 23, 3.0, 10.0), (1 << 60, 4.0, 22.0),
)  # fmt: skip
"""Bytes; nanoseconds of a look-up and of a list's start, in a table up to that size."""


@dataclass(frozen=True, slots=True)
class Cut:
    """s pieces of q symbols, e mismatches per piece, and the cost of a window in nanoseconds."""

    pieces: int
    length: int
    errors: int
    cost: float


def best_cut(count: int, length: int, k: int, *, on_gpu: bool = False) -> Cut:
    """Return the cheapest cut for ``count`` patterns whose index is not too large."""
    cuts = []
    for pieces in range(1, min(k + 1, length) + 1):
        for piece in range(min(4, length // pieces), min(LONGEST_PIECE, length // pieces) + 1):
            errors = min(k // pieces, piece)
            members = count * sum(comb(piece, i) * 3**i for i in range(errors + 1))
            if pieces * members <= MOST_MEMBERS or k < pieces:
                look_up = next(cost for size, cost, _ in _CACHES if 4**piece // 8 <= size)
                visit = next(cost for size, _, cost in _CACHES if 4 * pieces * members <= size)
                each = members / 4**piece
                cost = WINDOW + pieces * (look_up + min(each, 1) * visit + each * COMPARE)
                if on_gpu:
                    near = 4**piece <= 1 << 20
                    cost = pieces * (GPU_LOOK_UPS[not near] + each * GPU_COMPARE)
                cuts.append(Cut(pieces, piece, errors, cost))
    return min(cuts, key=lambda cut: cut.cost)


def pays(patterns: Oriented, *, on_gpu: bool = False) -> bool:
    """Return whether ``pigeonhole`` is likely to be faster than ``bit-sliced``."""
    count, length, k = len(patterns), patterns.length, patterns.k
    cost = best_cut(count, length, k, on_gpu=on_gpu).cost
    if on_gpu:
        return cost < count * length * GPU_OPERATION
    hits = count * sum(comb(length, i) * 0.75**i * 0.25 ** (length - i) for i in range(k + 1))
    return cost + hits * HIT < SLICED + count * length * OPERATION + hits * SLICED_HIT


class MismatchIndex(NamedTuple):
    """The index as above. places: int64[s], where the pieces begin. length: q. errors: e."""

    bitmap: NDArray[np.uint64]
    rank: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    members: NDArray[np.uint32]
    places: NDArray[np.int64]
    length: int
    errors: int


def make_index(patterns: Oriented, *, on_gpu: bool = False) -> MismatchIndex:
    """Build the index of the cheapest cut."""
    count, length = patterns.codes.shape
    cut = best_cut(count, length, patterns.k, on_gpu=on_gpu)
    places = np.arange(cut.pieces, dtype=np.int64) * (length // cut.pieces)
    words = 4**cut.length // 64 or 1
    bitmap = np.zeros((cut.pieces, words), dtype=np.uint64)
    rank = np.zeros((cut.pieces, words), dtype=np.uint32)
    starts: list[NDArray[np.uint32]] = []
    members: list[NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)]
    lists = total = 0
    near = sum(comb(cut.length, i) * 3**i for i in range(cut.errors + 1))
    parts = split_range(0, count, -(-count * near // NEAR_AT_ONCE))
    for i, place in enumerate(places):
        pieces = np.ascontiguousarray(patterns.codes[:, place : place + cut.length])
        sizes = np.zeros(4**cut.length, dtype=np.uint32)
        for part in parts:
            _near(pieces, *part, cut.errors, sizes, members[0])
        there = sizes > 0
        bits = np.packbits(there, bitorder="little")
        bitmap[i].view(np.uint8)[: bits.size] = bits
        before = np.cumsum(np.bitwise_count(bitmap[i])) - np.bitwise_count(bitmap[i])
        rank[i] = before + lists
        begins = np.cumsum(sizes, dtype=np.uint32) - sizes
        starts.append(begins[there] + np.uint32(total))
        members.append(np.empty(sizes.sum(), dtype=np.uint32))
        for part in parts:
            _near(pieces, *part, cut.errors, begins, members[-1])
        total += members[-1].size
        lists += starts[-1].size
    starts.append(np.array([total], dtype=np.uint32))
    return MismatchIndex(
        bitmap, rank, np.concatenate(starts), np.concatenate(members), places, cut.length,
        cut.errors,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _near(pieces, first, stop, errors, places, members):
    """Count the patterns [first, stop) at each q-mer within ``errors`` of their pieces.

    The counts are added to ``places``. With ``members``, each pattern is also written there, at its
    q-mer's place.
    """
    length = pieces.shape[1]
    code = np.zeros(length + 1, dtype=np.uint64)
    wrong = np.zeros(length + 1, dtype=np.int64)
    tried = np.zeros(length + 1, dtype=np.int64)
    for p in range(first, stop):
        depth = 0
        tried[0] = 0
        while depth >= 0:
            if depth == length:
                place = places[code[depth]]
                places[code[depth]] = place + np.uint32(1)
                if members.size:
                    members[place] = p
                depth -= 1
                continue
            base = tried[depth]
            if base == 4:
                depth -= 1
                continue
            tried[depth] += 1
            now = wrong[depth] + (pieces[p, depth] != base)
            if now <= errors:
                code[depth + 1] = code[depth] | (np.uint64(base) << np.uint64(2 * depth))
                wrong[depth + 1] = now
                depth += 1
                if depth < length:
                    tried[depth] = 0


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
    asked = 0
    for s in range(count):
        kmer = text[s + place] & mask
        windows[asked] = s
        lists[asked] = kmer
        asked += np.int64((bitmap[kmer >> np.uint64(6)] >> (kmer & np.uint64(63))) & np.uint64(1))
    for n in range(asked):
        kmer = lists[n]
        below = (np.uint64(1) << (kmer & np.uint64(63))) - np.uint64(1)
        word = kmer >> np.uint64(6)
        lists[n] = np.uint64(rank[word]) + popcount(bitmap[word] & below)
    return asked


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
            asked = _ask(bitmap[i], rank[i], text, places[i], mask, block, windows, lists)
            # take each step for all of them, so memory latencies overlap
            for n in range(asked):
                begins[n] = starts[lists[n]]
                ends[n] = starts[lists[n] + np.uint64(1)]
                prefetch(members, begins[n])
            for n in range(asked):
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
