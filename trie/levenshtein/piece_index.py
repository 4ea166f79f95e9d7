"""Pieces of patterns in bucket tables: D edits leave some of them intact.

Two lossless schemes. u is the length of a piece, and the key has the first w symbols of a piece:

    pigeonhole  k is cut into D + 1 pieces (u = k // (D + 1)): one has no edit. One table of all
                pieces, asked once for every position of the text.
    01*0        k is cut into D + 2 pieces: some two have no edit and those between them exactly one
                each (Vroland, Salson, Bini and Touzet 2016). For g pieces between, a table of the
                pairs (i, i + g + 1), looked up with text pieces (g + 1) u + s apart, |s| <= g:
                1 + 3 + ... + (2D + 1) = (D + 1)^2 look-ups, but keys of twice the length.

An edit between two pieces counts for the left one, so pieces without edits occur in the text
unchanged. A key that is found is only a candidate: the whole pattern is verified from the first
piece outwards. ``choose`` picks the scheme and w of least cost for the number of patterns.

    starts   uint32[tables * 4**(key symbols) + 1]   first entry of each bucket, over all tables
    entries  uint64   63-60 piece | 59-30 high bits | 29-0 low bits
    ranks    uint32   the pattern of each entry

The two 30-bit fields are the planes of the symbols around the piece, in the order in which they are
compared: bit i < m is symbol a + w + i after it (a: its offset, m = k - w - a), and bit m + i is
symbol a - 1 - i before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import prefetch_to_write, reversed_bits
from trie.cpu.jit import njit
from trie.cpu.threads import run_chains, split_range
from trie.levenshtein import Patterns

PIECE_SHIFT = 60
HIGH_SHIFT = 30
PLANE_MASK = (1 << 30) - 1

LONGEST_KEY = 12  # symbols of a key: 16 M buckets
_AHEAD = 64  # entries whose places are prefetched together
_MOST_WORDS = 1 << 21
"""In a call of a kernel: the main thread notices an interrupt only between two."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How patterns of k symbols are cut up for D edits.

    spacing: u. width: w. gaps: the g of each table, -1 for the pigeonhole table.
    """

    k: int
    distance: int
    spacing: int
    width: int
    gaps: tuple[int, ...]

    @property
    def paired(self) -> bool:
        """Whether keys hold two pieces."""
        return self.gaps[0] >= 0

    @property
    def key_symbols(self) -> int:
        """Symbols of a key."""
        return self.width * (2 if self.paired else 1)

    def anchors(self, gap: int) -> int:
        """The number of a pattern's pieces that can be the first of a key."""
        return self.distance + 1 - max(gap, 0)

    @property
    def entries(self) -> int:
        """Entries per pattern."""
        return sum(self.anchors(gap) for gap in self.gaps)

    def lookups(self) -> NDArray[np.int64]:
        """int64[questions, 2] per position: the table, and the distance to the second piece."""
        rows = [
            (table, (gap + 1) * self.spacing + shift)
            for table, gap in enumerate(self.gaps)
            for shift in range(-max(gap, 0), max(gap, 0) + 1)
        ]
        return np.array(rows, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PieceCosts:
    """A machine's costs of a look-up, by the bytes of the tables, and of a candidate; any unit.

    levels: (bytes, cost of a look-up in that much memory), ascending. candidate: cost of each
    besides its look-up, plus ``verify`` times (D + 1)^2.
    """

    levels: tuple[tuple[float, float], ...]
    candidate: float
    verify: float

    def look_up(self, size: float) -> float:
        """The cost of one access to a table of ``size`` bytes."""
        return next(cost for limit, cost in self.levels if size <= limit)


# cycles of one core: first-level cache, second, third, memory with prefetch, and with TLB misses
CPU_COSTS = PieceCosts(
    ((2**15, 6.0), (2**20, 8.0), (2**24, 16.0), (2**26, 30.0), (float("inf"), 55.0)),
    candidate=10.0,
    verify=1.0,
)


def choose(patterns: int, k: int, distance: int, costs: PieceCosts = CPU_COSTS) -> Scheme:
    """The scheme with the least expected cost per position of random text."""
    found: list[tuple[float, Scheme]] = []
    for paired in (False, True):
        spacing = k // (distance + (2 if paired else 1))
        gaps = tuple(range(distance + 1)) if paired else (-1,)
        most = min(spacing, LONGEST_KEY // 2 if paired else LONGEST_KEY)
        for width in range(1, most + 1):
            scheme = Scheme(k, distance, spacing, width, gaps)
            # a side and its edits must fit in a word
            if k - width + distance <= 31:
                found.append((expected_cost(scheme, patterns, costs), scheme))
    return min(found, key=lambda pair: pair[0])[1]


def expected_cost(scheme: Scheme, patterns: int, costs: PieceCosts = CPU_COSTS) -> float:
    """The expected cost per position of random text with that many patterns."""
    buckets = 4.0**scheme.key_symbols
    table = 4.0 * len(scheme.gaps) * buckets
    questions = len(scheme.lookups())
    candidates = sum(
        (2 * max(gap, 0) + 1) * scheme.anchors(gap) * patterns / buckets for gap in scheme.gaps
    )
    fetched = costs.look_up(8.0 * scheme.entries * patterns)
    verified = costs.candidate + costs.verify * (scheme.distance + 1) ** 2
    return questions * costs.look_up(table) + candidates * (fetched + verified)


@dataclass(frozen=True, slots=True)
class PieceIndex:
    """The tables of one set of patterns; the module docstring describes the arrays."""

    scheme: Scheme
    starts: NDArray[np.uint32]
    entries: NDArray[np.uint64]
    ranks: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return self.starts.nbytes + self.entries.nbytes + self.ranks.nbytes


def build(patterns: Patterns, scheme: Scheme | None = None, *, threads: int = 1) -> PieceIndex:
    """The index of patterns: a counting sort of the keys of every table."""
    if scheme is None:
        scheme = choose(patterns.words.size, patterns.k, patterns.distance)
    words = patterns.words
    buckets = 4**scheme.key_symbols
    starts = np.zeros(len(scheme.gaps) * buckets + 1, dtype=np.uint32)
    entries = np.empty(scheme.entries * words.size, dtype=np.uint64)
    ranks = np.empty(entries.size, dtype=np.uint32)
    spans = split_range(0, words.size, 1 + words.size // _MOST_WORDS)
    chains = []
    first = 0
    for table, gap in enumerate(scheme.gaps):
        piece = (words, scheme.k, scheme.spacing, scheme.width, gap)
        places = [(anchor, *span) for anchor in range(scheme.anchors(gap)) for span in spans]
        counts = starts[table * buckets : (table + 1) * buckets + 1]
        chains.append(
            [
                *(partial(_count, *piece, *place, counts) for place in places),
                partial(_add_up, counts, first),
                *(partial(_place, *piece, *place, counts, entries, ranks) for place in places),
            ]
        )
        first += scheme.anchors(gap) * words.size
    run_chains(chains, threads)
    return PieceIndex(scheme, starts, entries, ranks)


@njit(cache=True, nogil=True, inline="always")
def _key(word, k, spacing, width, gap, anchor):
    """The first ``width`` symbols of a piece, or of both pieces of a pair, as a base-4 number."""
    mask = (np.uint64(1) << np.uint64(2 * width)) - np.uint64(1)
    last = anchor * spacing + width
    key = (word >> np.uint64(2 * (k - last))) & mask
    if gap >= 0:
        last += (gap + 1) * spacing
        key = (key << np.uint64(2 * width)) | ((word >> np.uint64(2 * (k - last))) & mask)
    return key


@njit(cache=True, nogil=True, inline="always")
def _every_other(word):
    """The even bits of a word, packed."""
    x = word & np.uint64(0x5555555555555555)
    x = (x | (x >> np.uint64(1))) & np.uint64(0x3333333333333333)
    x = (x | (x >> np.uint64(2))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = (x | (x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
    x = (x | (x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    return (x | (x >> np.uint64(16))) & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True, inline="always")
def _around(plane, k, width, offset):
    """A plane around a piece, as laid out above; bit k - 1 - s of ``plane`` is symbol s."""
    onward = reversed_bits(plane) >> np.uint64(64 - k)
    behind = onward >> np.uint64(offset + width)
    return behind | ((plane >> np.uint64(k - offset)) << np.uint64(k - width - offset))


@njit(cache=True, nogil=True, inline="always")
def _next_keys(words, begin, end, k, spacing, width, gap, anchor, starts, keys):
    """The keys, plus one, of the next words; how many there are. Prefetches their counts."""
    number = min(_AHEAD, end - begin)
    for i in range(number):
        keys[i] = np.uint64(1) + _key(words[begin + i], k, spacing, width, gap, anchor)
        prefetch_to_write(starts, keys[i])
    return number


@njit(cache=True, nogil=True)
def _count(words, k, spacing, width, gap, anchor, begin, end, starts):
    """Count the keys of words[begin:end] for one piece, or pair, of each.

    The values of key b are at b + 1: the number of its entries, then its next place, which ends as
    the first place of b + 1. So starts[0] is left to the preceding table.
    """
    # many at once, so that their cache misses overlap
    keys = np.empty(_AHEAD, dtype=np.uint64)
    for at in range(begin, end, _AHEAD):
        number = _next_keys(words, at, end, k, spacing, width, gap, anchor, starts, keys)
        for i in range(number):
            starts[keys[i]] += np.uint32(1)


@njit(cache=True, nogil=True)
def _add_up(starts, first):
    """Turn the counts of a table into the place of each key's first entry."""
    at = np.uint32(first)
    for key in range(1, starts.size):
        number = starts[key]
        starts[key] = at
        at += number


@njit(cache=True, nogil=True)
def _place(words, k, spacing, width, gap, anchor, begin, end, starts, entries, ranks):
    """Write the entries that ``_count`` has counted."""
    one = np.uint64(1)
    offset = anchor * spacing
    keys = np.empty(_AHEAD, dtype=np.uint64)
    soon = np.empty(_AHEAD, dtype=np.uint32)
    for at in range(begin, end, _AHEAD):
        number = _next_keys(words, at, end, k, spacing, width, gap, anchor, starts, keys)
        for i in range(number):
            entry = starts[keys[i]]
            starts[keys[i]] = entry + np.uint32(1)
            soon[i] = entry
            prefetch_to_write(entries, entry)
            prefetch_to_write(ranks, entry)
        for i in range(number):
            word = words[at + i]
            low = _around(_every_other(word), k, width, offset)
            high = _around(_every_other(word >> one), k, width, offset)
            entry = soon[i]
            entries[entry] = (
                low
                | (high << np.uint64(HIGH_SHIFT))
                | (np.uint64(anchor) << np.uint64(PIECE_SHIFT))
            )
            ranks[entry] = np.uint32(at + i)
