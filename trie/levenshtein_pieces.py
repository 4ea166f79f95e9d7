"""Pieces of patterns in bucket tables: what of a pattern survives D edits, and where it is found.

Two lossless schemes. u is the length of a piece, and the key has the first w symbols of a piece:

    pigeonhole  k is cut into D + 1 pieces (u = k // (D + 1)): one has no edit. One table of all
                pieces, asked once for every position of the text.
    01*0        k is cut into D + 2 pieces: some two have no edit and those between them exactly one
                each (Vroland, Salson, Bini and Touzet 2016). For g pieces between, a table of the
                pairs (i, i + g + 1), asked for text pieces (g + 1) u + s symbols apart, |s| <= g:
                1 + 3 + ... + (2D + 1) = (D + 1)^2 questions, but keys of twice the length.

An edit between two pieces counts for the left one, so that pieces without edits lie in the text as
they stand. Where a key is found the whole pattern is verified from the first piece outwards, so the
tables only have to hold every occurrence, never to prove one. Which scheme and which w cost least
is reckoned from the number of patterns (``choose``).

    starts   uint32[tables * 4**(key symbols) + 1]   first entry of each bucket, over all tables
    entries  uint64   63-60 piece | 59-30 high bits | 29-0 low bits
    ranks    uint32   the pattern of each entry

The two fields of 30 bits are the planes of the symbols around the piece, in the order in which they
are compared: bit i < m is symbol a + w + i behind it (a: its offset, m = k - w - a), and bit m + i
is symbol a - 1 - i before it.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trie.levenshtein import Patterns
from trie.parallel import run_all

PIECE_SHIFT = 60
HIGH_SHIFT = 30
PLANE_MASK = (1 << 30) - 1

LONGEST_KEY = 12
"""Symbols of a key: 16 M buckets."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How patterns of k symbols are cut up for D edits.

    spacing: u. width: w. gaps: the g of each table, -1 for the one of the pigeonhole.
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
        """How many pieces of a pattern are the first of a key."""
        return self.distance + 1 - max(gap, 0)

    @property
    def entries(self) -> int:
        """Entries a pattern."""
        return sum(self.anchors(gap) for gap in self.gaps)

    def lookups(self) -> NDArray[np.int64]:
        """int64[questions, 2] a position: the table, and how far behind the second piece lies."""
        rows = [
            (table, (gap + 1) * self.spacing + shift)
            for table, gap in enumerate(self.gaps)
            for shift in range(-max(gap, 0), max(gap, 0) + 1)
        ]
        return np.array(rows, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a machine pays, in any unit: a question by the bytes of the tables, a candidate.

    levels: (bytes, cost of a look-up in so much memory), ascending. candidate: what each costs
    beside its own look-up, and verify: for each of (D + 1)^2.
    """

    levels: tuple[tuple[float, float], ...]
    candidate: float
    verify: float

    def look_up(self, size: float) -> float:
        """The cost of one access to so many bytes."""
        return next(cost for limit, cost in self.levels if size <= limit)


# cycles of one core: first-level cache, second, third, memory with prefetch
CPU_COSTS = Costs(
    ((2**15, 6.0), (2**20, 8.0), (2**24, 16.0), (float("inf"), 30.0)), candidate=10.0, verify=1.0
)


def choose(patterns: int, k: int, distance: int, costs: Costs = CPU_COSTS) -> Scheme:
    """The scheme with the least expected cost a position of random text."""
    found: list[tuple[float, Scheme]] = []
    for paired in (False, True):
        spacing = k // (distance + (2 if paired else 1))
        gaps = tuple(range(distance + 1)) if paired else (-1,)
        most = min(spacing, LONGEST_KEY // 2 if paired else LONGEST_KEY)
        for width in range(1, most + 1):
            scheme = Scheme(k, distance, spacing, width, gaps)
            # a side and its edits must fit a word
            if k - width + distance <= 31:
                found.append((_cost(scheme, patterns, costs), scheme))
    return min(found, key=lambda pair: pair[0])[1]


def _cost(scheme: Scheme, patterns: int, costs: Costs) -> float:
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
    """The tables of one set of patterns; arrays as above."""

    scheme: Scheme
    starts: NDArray[np.uint32]
    entries: NDArray[np.uint64]
    ranks: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return self.starts.nbytes + self.entries.nbytes + self.ranks.nbytes


def build(
    patterns: Patterns,
    scheme: Scheme | None = None,
    *,
    threads: int = 1,
    planar: bool = False,
) -> PieceIndex:
    """The index of patterns, by a counting sort of the keys of every table.

    planar: the code of a piece is its low bits, the first symbol's lowest, and above them its high
    bits, as they come out of bit planes; else its base-4 number.
    """
    if scheme is None:
        scheme = choose(patterns.words.size, patterns.k, patterns.distance)
    words = patterns.words
    buckets = 4**scheme.key_symbols
    starts = np.zeros(len(scheme.gaps) * buckets + 1, dtype=np.uint32)
    entries = np.empty(scheme.entries * words.size, dtype=np.uint64)
    ranks = np.empty(entries.size, dtype=np.uint32)
    tasks = []
    first = 0
    for table, gap in enumerate(scheme.gaps):
        anchors = scheme.anchors(gap)
        part = slice(first, first + anchors * words.size)
        tasks.append(
            partial(
                _fill, words, scheme.k, scheme.spacing, scheme.width, gap, anchors, planar, first,
                starts[table * buckets : (table + 1) * buckets + 1], entries[part], ranks[part],
            )
        )  # fmt: skip
        first = part.stop
    run_all(tasks, threads)
    starts[-1] = first
    return PieceIndex(scheme, starts, entries, ranks)


@njit(cache=True, nogil=True)
def _piece(word, k, offset, width, planar):  # type: ignore[no-untyped-def]
    """The code of the symbols [offset, offset + width) of a pattern."""
    code = (word >> np.uint64(2 * (k - offset - width))) & np.uint64((1 << (2 * width)) - 1)
    if not planar:
        return code
    bits = np.uint64(0)
    for i in range(width):
        symbol = code >> np.uint64(2 * (width - 1 - i))
        bits |= (symbol & np.uint64(1)) << np.uint64(i)
        bits |= ((symbol >> np.uint64(1)) & np.uint64(1)) << np.uint64(width + i)
    return bits


@njit(cache=True, nogil=True)
def _key(word, k, spacing, width, gap, anchor, planar):  # type: ignore[no-untyped-def]
    key = _piece(word, k, anchor * spacing, width, planar)
    if gap >= 0:
        other = _piece(word, k, (anchor + gap + 1) * spacing, width, planar)
        key = (key << np.uint64(2 * width)) | other
    return np.int64(key)


@njit(cache=True, nogil=True)
def _entry(word, k, width, offset, anchor):  # type: ignore[no-untyped-def]
    """The planes around a piece, as the module draws them."""
    behind = k - width - offset
    low = np.uint64(0)
    high = np.uint64(0)
    for i in range(k - width):
        symbol = offset + width + i if i < behind else offset - 1 - (i - behind)
        code = word >> np.uint64(2 * (k - 1 - symbol))
        low |= (code & np.uint64(1)) << np.uint64(i)
        high |= ((code >> np.uint64(1)) & np.uint64(1)) << np.uint64(i)
    return low | (high << np.uint64(30)) | (np.uint64(anchor) << np.uint64(60))


@njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    words, k, spacing, width, gap, anchors, planar, first, starts, entries, ranks
):
    """Fill one table. ``starts`` is zero but for the neighbours' shared ends, which stay theirs."""
    buckets = starts.size - 1
    counts = np.zeros(buckets, dtype=np.uint32)
    for anchor in range(anchors):
        for j in range(words.size):
            counts[_key(words[j], k, spacing, width, gap, anchor, planar)] += np.uint32(1)
    at = np.uint32(0)
    for bucket in range(buckets):
        number = counts[bucket]
        counts[bucket] = at
        starts[bucket] = np.uint32(first) + at
        at += number
    for anchor in range(anchors):
        for j in range(words.size):
            key = _key(words[j], k, spacing, width, gap, anchor, planar)
            entry = counts[key]
            counts[key] += np.uint32(1)
            entries[entry] = _entry(words[j], k, width, anchor * spacing, anchor)
            ranks[entry] = np.uint32(j)
