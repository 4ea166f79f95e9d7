"""The method ``pigeonhole``: pieces of the patterns, and all that is near them, looked up.

Cut a pattern into s pieces of q symbols. Of at most k mismatches one piece has at most e = k // s.
So every sequence within e mismatches of a piece goes into an index, and each window of the text
asks it once a piece; the patterns that come back are compared in full.

    bitmap   uint64[s, 4^q / 64]   bit c: some pattern's piece is within e of the q-mer c
    rank     uint32[s, 4^q / 64]   how many bits are set before the word; with the bits below c the
                                   number of c's list
    starts   uint32[lists + 1]     where a list begins in ``members``
    members  uint32                patterns, by number

Text and patterns are 2 bits a symbol, the first lowest, 32 a word; a gap code is A in these, and
has a bit in a second word, where it counts as a mismatch. An A in place of a gap code can only
bring a piece nearer, so nothing is missed. A pattern that more than one piece finds is taken from
the first.

Cost, a window: s look-ups, and r s N / 4^q comparisons for r patterns, N = sum of C(q, i) 3^i for i
up to e. For 2,000 patterns of 20 that is 1.7 comparisons with k = 4 and s = 2, and 0.12 with k = 2,
against 0.004 r m = 160 vector operations of ``bit-sliced``. All windows of a block take each step
together, so that the waits for memory overlap. ``pays`` says from where on this is faster; over 11
pairs of length and k and 16 to 2,048 patterns it chose wrongly 3 times of 77, at 12-34 %.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.packed_hits import ID_SHIFT, START_SHIFT
from streamer.batch.hamming.patterns import Oriented
from trie.codes import GAP
from trie.cpu.intrinsics import popcount, prefetch
from trie.cpu.jit import njit

if TYPE_CHECKING:
    from gpu.hamming.plane_search import DevicePieceIndex

LONGEST_PIECE = 12
"""Symbols: the bitmap of a piece then takes 2 MiB."""

MOST_MEMBERS = 1 << 26
BLOCK = 1024
"""Windows whose text is packed at once."""

WINDOW, COMPARE, HIT = 1.3, 3.0, 60.0
"""Nanoseconds: to pack a window, to compare it with a pattern, to write a hit in its place."""

SLICED, OPERATION, SLICED_HIT = 0.15, 0.00095, 34.0
"""Nanoseconds of ``bit-sliced``: a window, a symbol of a pattern a window, a hit."""

CARD_LOOK_UPS, CARD_COMPARE, CARD_OPERATION = (0.0048, 0.01), 0.0145, 5e-6
"""On a card: a look-up and its list's beginning, in a table up to 256 KiB or above; COMPARE;
OPERATION."""

_CACHES = (
    (1 << 15, 0.7, 2.0), (1 << 20, 1.0, 2.5), (1 << 21, 1.5, 4.0), (1 << 22, 3.0, 8.0),
    (1 << 23, 3.0, 10.0), (1 << 60, 4.0, 22.0),
)  # fmt: skip
"""Bytes; nanoseconds of a look-up, and of a list's beginning, in a table up to that size."""


@dataclass(frozen=True, slots=True)
class Cut:
    """s pieces of q symbols, e mismatches in one, and what a window costs in nanoseconds."""

    pieces: int
    length: int
    errors: int
    cost: float

    def places(self, length: int) -> NDArray[np.int64]:
        """Where in a pattern of that length the pieces begin."""
        return np.arange(self.pieces, dtype=np.int64) * (length // self.pieces)


def neighbours(length: int, errors: int) -> int:
    """Sequences within so many mismatches of one."""
    return sum(comb(length, i) * 3**i for i in range(errors + 1))


def best_cut(count: int, length: int, k: int, *, on_card: bool = False) -> Cut:
    """The cheapest cut for so many patterns whose index is not too large."""
    cuts = []
    for pieces in range(1, min(k + 1, length) + 1):
        for piece in range(min(4, length // pieces), min(LONGEST_PIECE, length // pieces) + 1):
            errors = min(k // pieces, piece)
            members = count * neighbours(piece, errors)
            if pieces * members <= MOST_MEMBERS or k < pieces:
                look_up = next(cost for size, cost, _ in _CACHES if 4**piece // 8 <= size)
                visit = next(cost for size, _, cost in _CACHES if 4 * pieces * members <= size)
                each = members / 4**piece
                cost = WINDOW + pieces * (look_up + min(each, 1) * visit + each * COMPARE)
                if on_card:
                    near = 4**piece <= 1 << 20
                    cost = pieces * (CARD_LOOK_UPS[not near] + each * CARD_COMPARE)
                cuts.append(Cut(pieces, piece, errors, cost))
    return min(cuts, key=lambda cut: cut.cost)


def pays(patterns: Oriented) -> bool:
    """Whether this is likely faster than ``bit-sliced``."""
    count, length, k = len(patterns), patterns.length, patterns.k
    hits = count * sum(comb(length, i) * 0.75**i * 0.25 ** (length - i) for i in range(k + 1))
    sliced = SLICED + count * length * OPERATION + hits * SLICED_HIT
    return best_cut(count, length, k).cost + hits * HIT < sliced


def pays_on_card(patterns: Oriented) -> bool:
    """As ``pays``, for a card."""
    count, length = len(patterns), patterns.length
    cut = best_cut(count, length, patterns.k, on_card=True)
    return cut.cost < count * length * CARD_OPERATION


def index_for_card(patterns: Oriented) -> DevicePieceIndex:
    """What the card's kernel of this method reads."""
    from gpu.hamming.plane_search import DevicePieceIndex

    index = prepare(patterns, on_card=True)
    return DevicePieceIndex(
        index.bitmap, index.rank, index.starts, index.members, index.places, index.cut.length,
        index.cut.errors,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Index:
    """The index (see above) and the patterns in full.

    places: int64[s]. firsts: int64[s], the number of the first list of a piece. symbols, gaps:
    uint64[r, words]. inside: uint64[words], the symbols of a pattern, a bit each. of_piece:
    uint64[s, words], those of a piece.
    """

    bitmap: NDArray[np.uint64]
    rank: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    members: NDArray[np.uint32]
    places: NDArray[np.int64]
    cut: Cut
    symbols: NDArray[np.uint64]
    gaps: NDArray[np.uint64]
    inside: NDArray[np.uint64]
    of_piece: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    k: int


def prepare(patterns: Oriented, *, on_card: bool = False) -> Index:
    """Make the index."""
    count, length = patterns.codes.shape
    cut = best_cut(count, length, patterns.k, on_card=on_card)
    places = cut.places(length)
    words = 4**cut.length // 64 or 1
    bitmap = np.zeros((cut.pieces, words), dtype=np.uint64)
    rank = np.zeros((cut.pieces, words), dtype=np.uint32)
    starts: list[NDArray[np.int64]] = []
    members: list[NDArray[np.uint32]] = []
    lists = total = 0
    for i, place in enumerate(places):
        pieces = np.ascontiguousarray(patterns.codes[:, place : place + cut.length])
        found = _near(pieces, cut.errors)
        found.sort()
        kmers, begins = np.unique(found >> np.uint64(32), return_index=True)
        np.bitwise_or.at(bitmap[i], kmers >> np.uint64(6), np.uint64(1) << (kmers & np.uint64(63)))
        before = np.cumsum(np.bitwise_count(bitmap[i])) - np.bitwise_count(bitmap[i])
        rank[i] = before + lists
        starts.append(begins + total)
        members.append(found.astype(np.uint32))
        total += found.size
        lists += kmers.size
    starts.append(np.array([total]))
    symbols = np.zeros((count, -(-length // 32)), dtype=np.uint64)
    gaps, inside = np.zeros_like(symbols), np.zeros(symbols.shape[1], dtype=np.uint64)
    of_piece = np.zeros((cut.pieces, symbols.shape[1]), dtype=np.uint64)
    for j in range(length):
        word, shift = j // 32, np.uint64(2 * (j % 32))
        codes = patterns.codes[:, j].astype(np.uint64)
        symbols[:, word] |= np.where(codes < GAP, codes, np.uint64(0)) << shift
        gaps[:, word] |= (codes >= GAP).astype(np.uint64) << shift
        inside[word] |= np.uint64(1) << shift
        mine = (places <= j) & (j < places + cut.length)
        of_piece[mine, word] |= np.uint64(1) << shift
    return Index(
        bitmap, rank, np.concatenate(starts).astype(np.uint32), np.concatenate(members),
        places, cut, symbols, gaps, inside, of_piece,
        patterns.ids.astype(np.uint64) << np.uint64(ID_SHIFT), patterns.k,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _near(pieces, errors):
    """Every (q-mer << 32 | pattern) with the q-mer within ``errors`` of the pattern's piece."""
    count, length = pieces.shape
    found = np.empty(0, dtype=np.uint64)
    code = np.zeros(length + 1, dtype=np.uint64)
    wrong = np.zeros(length + 1, dtype=np.int64)
    tried = np.zeros(length + 1, dtype=np.int64)
    # first counted, then written
    for writing in range(2):
        total = 0
        for p in range(count):
            depth = 0
            tried[0] = 0
            while depth >= 0:
                if depth == length:
                    if writing:
                        found[total] = (code[depth] << np.uint64(32)) | np.uint64(p)
                    total += 1
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
        if not writing:
            found = np.empty(total, dtype=np.uint64)
    return found


def scan(
    index: Index,
    codes: NDArray[np.uint8],
    first: int,
    stop: int,
    origin: int,
    words: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Hit words of the windows [first, stop), as many windows as fit (bit_sliced.scan)."""
    return _scan(
        codes, first, stop, origin, index.bitmap, index.rank, index.starts, index.members,
        index.places, index.cut.length, index.cut.errors, index.symbols, index.gaps, index.inside,
        index.of_piece, index.ids, index.k, words,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _pack(codes, first, count, symbols, gaps):
    """The 32 symbols, and the gap codes among them, from each of ``count`` places on."""
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
    """The windows of a block whose q-mer at ``place`` has a list, and its number; how many."""
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
def _scan(
    codes, first, stop, origin, bitmap, rank, starts, members, places, length, errors,
    symbols, pattern_gaps, inside, of_piece, ids, k, words,
):  # fmt: skip
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
            # each step for all of them, so that memory is waited for once and not in a chain
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
                        place = np.uint64(first + s - origin) << np.uint64(START_SHIFT)
                        words[written] = place | ids[p] | np.uint64(distance)
                        written += 1
        if written - begun > 1:
            words[begun:written].sort()
        first += block
    return stop, written, 0


@njit(cache=True, nogil=True)
def _earlier(text, s, symbols, pattern_gaps, p, of_piece, piece, errors):
    """Whether a piece before this one finds the pattern too."""
    for i in range(piece):
        wrong = np.int64(0)
        for w in range(symbols.shape[1]):
            x = text[s + 32 * w] ^ symbols[p, w]
            x |= (x >> np.uint64(1)) | pattern_gaps[p, w]
            wrong += np.int64(popcount(x & of_piece[i, w]))
        if wrong <= errors:
            return True
    return False
