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

On the CPU a tile of text is turned into bit planes and the code of the w symbols at every position.
Blocks of BLOCK positions pass through stages, each a plain loop, so that memory latencies overlap:

    questions   bucket numbers of every position and look-up; their starts are prefetched
    ranges      the buckets that are not empty; their first entries are prefetched
    candidates  an entry and its text around the piece, uint32[7, BATCH], so that memory is bounded
    passing     which can be within the distance, eight candidates an instruction
    ends        both sides of the piece aligned (trie/levenshtein/reach.py): before it, for the
                least cost and its largest start; after it, for the least cost of every end

Where comparing all patterns side by side costs less than the candidates of a block, as in repeats
or with short k-mers, trie/levenshtein/lanes.py searches the ends that the block can reach.

Symbol i of the covered text is bit i + MARGIN of ``planes[0]`` (low), ``[1]`` (high) and ``[2]``
(gap), and of ``planes[3..5]`` counted from the end, so the symbols before a place, read backwards,
are a window too. Bits outside the range are zero.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_DISTANCE
from trie.cpu.intrinsics import prefetch, prefetch_to_write, reversed_bits
from trie.cpu.jit import njit
from trie.cpu.threads import run_chains, run_ranges, split_range
from trie.cpu.vectors import marked
from trie.levenshtein import DISTANCE_SHIFT, NOTHING, PATTERN_SHIFT, Patterns
from trie.levenshtein.lanes import equal_symbols, search_read
from trie.levenshtein.reach import CENTRE, DIAGONALS, UNREACHED, reach, sides
from trie.windows import GRAIN, check_batch

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
    priced: list[tuple[float, Scheme]] = []
    for paired in (False, True):
        spacing = k // (distance + (2 if paired else 1))
        gaps = tuple(range(distance + 1)) if paired else (-1,)
        most = min(spacing, LONGEST_KEY // 2 if paired else LONGEST_KEY)
        for width in range(1, most + 1):
            scheme = Scheme(k, distance, spacing, width, gaps)
            # a side and its edits must fit in a word
            if k - width + distance <= 31:
                priced.append((expected_cost(scheme, patterns, costs), scheme))
    return min(priced, key=lambda pair: pair[0])[1]


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


MARGIN: Final = 64
LOW, HIGH, GAP, LOW_BACK, HIGH_BACK, GAP_BACK = range(6)


@njit(cache=True, nogil=True, inline="always")
def plane_bytes(symbols):
    """The bytes of a plane for that many symbols."""
    return (symbols + 7) // 8 + 2 * MARGIN // 8 + 8


@njit(cache=True, nogil=True, inline="always")
def _store(plane, byte, word):
    for j in range(8):
        plane[byte + j] = np.uint8(word >> np.uint64(8 * j))


@njit(cache=True, nogil=True)
def fill_planes(bases, first, stop, planes):
    """Make the planes of the symbols [first, stop); uint8[6, >= plane_bytes(stop - first)]."""
    total = stop - first
    margin = MARGIN // 8
    whole = total // 64
    planes[:, :margin] = 0
    planes[:, margin + 8 * whole :] = 0
    for plane in range(3):
        forward, back = planes[plane], planes[3 + plane]
        bit = np.uint8(1 << plane)
        for i in range(whole):
            # the next 64 symbols from the front, and 64 from the end, counted backwards
            _store(forward, margin + 8 * i, marked(bases, first + 64 * i, bit))
            before = marked(bases, stop - 64 * (i + 1), bit)
            _store(back, margin + 8 * i, reversed_bits(before))
        for at in range(64 * whole, total):
            own = (bases[first + at] >> plane) & 1
            forward[margin + (at >> 3)] |= np.uint8(own << (at & 7))
            own = (bases[stop - 1 - at] >> plane) & 1
            back[margin + (at >> 3)] |= np.uint8(own << (at & 7))


@njit(cache=True, nogil=True, inline="always")
def window(plane, at):
    """The 32 bits of a plane (a row of ``planes``) starting at symbol ``at`` >= -MARGIN."""
    place = np.uint64(at + MARGIN)
    byte = place >> np.uint64(3)
    word = np.uint64(0)
    for j in range(8):
        word |= np.uint64(plane[byte + np.uint64(j)]) << np.uint64(8 * j)
    return np.uint32(word >> (place & np.uint64(7)))


# LLVM by itself would not inline the larger ones, and a loop with a call is not vectorized
REACH = reach(njit(nogil=True, forceinline=True))
_before, _behind = sides(njit(nogil=True), REACH)
_cost0, _cost1, _cost2, _cost3, _cost4 = REACH.costs

# rows of the candidates' words
ENTRY_LOW, ENTRY_HIGH, BEHIND, BEFORE_LOW, BEFORE_HIGH, AFTER_LOW, AFTER_HIGH = range(7)
CANDIDATE_ROWS = 7


@njit(nogil=True, forceinline=True)
def _sum(cost, around, words, j):
    """The edits before and after the piece of candidate j, as far as ``cost`` counts."""
    every, one = np.uint32(0xFFFFFFFF), np.uint32(1)
    behind = words[BEHIND, j]
    ahead = np.uint32(np.uint32(around) - behind)
    low = words[ENTRY_LOW, j]
    high = words[ENTRY_HIGH, j]
    on = cost(
        low, high, words[AFTER_LOW, j], words[AFTER_HIGH, j],
        np.uint32(every << behind), np.uint32(one << behind),
    )  # fmt: skip
    back = cost(
        np.uint32(low >> behind), np.uint32(high >> behind),
        words[BEFORE_LOW, j], words[BEFORE_HIGH, j],
        np.uint32(every << ahead), np.uint32(one << ahead),
    )  # fmt: skip
    return np.uint32(on + back)


@njit(nogil=True, inline="always")
def _passing(cost, distance, around, count, words, passed):
    """The loop for one ``cost``: a choice inside the loop would prevent vectorization."""
    for j in range(count):
        passed[j] = _sum(cost, around, words, j) <= np.uint32(distance)


@njit(cache=True, nogil=True)
def passing(distance, around, count, words, passed):
    """passed[j] = 1 where candidate j can be within the distance, else 0.

    around: symbols of a pattern beside the piece, k - w. words: uint32[CANDIDATE_ROWS, >= count]:
    the two planes of the entry, the symbols after the piece, and the text's planes before and after
    the piece.
    """
    if distance == 0:
        _passing(_cost0, 0, around, count, words, passed)
    elif distance == 1:
        _passing(_cost1, 1, around, count, words, passed)
    elif distance == 2:
        _passing(_cost2, 2, around, count, words, passed)
    elif distance == 3:
        _passing(_cost3, 3, around, count, words, passed)
    else:
        _passing(_cost4, 4, around, count, words, passed)


@njit(cache=True, nogil=True)
def write_ends(
    k, distance, width, low, high, behind, rank, planes, total, at, left, right, ends_at, out,
    places, costs,
):  # fmt: skip
    """Lower the words of every end that a candidate reaches.

    low, high: the planes of its entry; behind: how many symbols of the pattern follow the piece.
    planes: of ``total`` symbols, the piece at ``at``. left, right: symbols of the read before and
    after the piece. out: uint32, words by end; ends_at: its index of the end at the piece's last
    symbol, so the end n symbols after the piece is at ends_at + n. places, costs: as in
    trie/levenshtein/reach.py.
    """
    if window(planes[GAP], at) & ((np.uint32(1) << np.uint32(width)) - np.uint32(1)):
        return
    back = total - at
    cost, start = _before(
        np.uint32(low >> np.uint32(behind)), np.uint32(high >> np.uint32(behind)),
        window(planes[LOW_BACK], back), window(planes[HIGH_BACK], back),
        window(planes[GAP_BACK], back), k - width - behind, left, distance, places,
    )  # fmt: skip
    if cost > distance:
        return
    on = at + width
    _behind(
        low, high, window(planes[LOW], on), window(planes[HIGH], on), window(planes[GAP], on),
        behind, right, distance - cost, places, costs,
    )  # fmt: skip
    for d in range(-distance, distance + 1):
        edits = costs[CENTRE + d]
        place = ends_at + behind + d
        if edits != UNREACHED and 0 <= place < out.size:
            word = (
                (np.uint32(cost + edits) << np.uint32(DISTANCE_SHIFT))
                | (np.uint32(rank) << np.uint32(PATTERN_SHIFT))
                | np.uint32(start + d + MAX_DISTANCE)
            )
            out[place] = min(out[place], word)


TILE: Final = 1 << 15
_MOST: Final = 4 * TILE
_MOST_CYCLES: Final = 1e9
"""Expected candidates per kernel call: the main thread notices an interrupt only between two."""

BLOCK: Final = 256
BATCH: Final = 512
_BEFORE: Final = 128  # symbols of a tile before its first end: more than 2 (k + D)
_BEHIND: Final = 64  # and after its last, for codes that begin there
_LARGE: Final = 1 << 18  # tables of at least this many bytes are prefetched


def nearest_words(
    patterns: Patterns,
    index: PieceIndex,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    first: int = 0,
    stop: int | None = None,
    threads: int = 1,
    dense: bool = True,
) -> NDArray[np.uint32]:
    """Do ``lanes.nearest_words`` with an index of the patterns.

    dense: use ``lanes`` for blocks with very many candidates.
    """
    bases, offsets = check_batch(bases, offsets)
    stop = bases.size if stop is None else stop
    words = np.full(max(stop - first, 0), NOTHING, dtype=np.uint32)
    if not patterns.words.size or stop <= first:
        return words
    scheme = index.scheme
    questions = scheme.lookups()

    def scan(a: int, b: int) -> None:
        _scan(
            index.starts, index.entries, index.ranks, questions, scheme.k, scheme.distance,
            scheme.spacing, scheme.width, scheme.paired, patterns.words, bases, offsets, a, b,
            dense, words[a - first : b - first],
        )  # fmt: skip

    cost = expected_cost(scheme, patterns.words.size)
    most = min(_MOST, BLOCK + int(_MOST_CYCLES / cost))
    run_ranges(scan, first, stop, threads, grain=GRAIN, most=most)
    return words


@njit(cache=True, nogil=True)
def _codes(bases, first, stop, width, codes):
    """codes[i]: the code of ``width`` symbols from first + i on; gaps and the outside count as
    A."""
    mask = np.uint32((np.uint64(1) << np.uint64(2 * width)) - np.uint64(1))
    code = np.uint32(0)
    for at in range(first, min(stop, bases.size)):
        code = np.uint32((code << np.uint32(2)) | np.uint32(bases[at] & np.uint8(3))) & mask
        if at - first >= width - 1:
            codes[at - first - (width - 1)] = code
    for at in range(max(min(stop, bases.size), first), stop):
        code = np.uint32(code << np.uint32(2)) & mask
        if at - first >= width - 1:
            codes[at - first - (width - 1)] = code


@njit(cache=True, nogil=True)
def _scan(
    starts, entries, ranks, questions, k, distance, spacing, width, paired, patterns, bases,
    offsets, first, stop, dense, out,
):  # fmt: skip
    planes = np.empty((6, plane_bytes(TILE + _BEFORE)), dtype=np.uint8)
    codes = np.empty(TILE + _BEFORE + _BEHIND, dtype=np.uint32)
    buckets = np.empty((questions.shape[0], BLOCK), dtype=np.uint64)
    ranges = np.empty((BLOCK * questions.shape[0] + 1, 3), dtype=np.uint32)
    words = np.empty((CANDIDATE_ROWS, BATCH), dtype=np.uint32)
    hits = np.empty((2, BATCH), dtype=np.uint32)
    passed = np.empty(BATCH, dtype=np.uint8)
    places = np.zeros((2, DIAGONALS), dtype=np.uint32)
    costs = np.empty(DIAGONALS, dtype=np.uint32)
    # for dense blocks, allocated at the first one
    equal = np.empty((5, 0), dtype=np.uint32)
    columns = np.empty((3, 0), dtype=np.uint32)
    reach = k + distance
    table = starts.size // (questions[-1, 0] + 1)
    later = np.int64(starts[table]) if questions[-1, 0] else np.int64(entries.size)
    large = starts.nbytes + entries.nbytes > _LARGE
    # cost of a candidate, in pattern-symbol steps of ``lanes``; those that pass cost more
    worth = 10 + (distance + 1) * (distance + 1)
    read = np.searchsorted(offsets, first, side="right") - 1
    for tile in range(first, stop, TILE):
        tile_stop = min(tile + TILE, stop)
        origin = max(tile - _BEFORE, 0)
        total = tile_stop - origin
        fill_planes(bases, origin, tile_stop, planes)
        _codes(bases, origin, origin + codes.size, width, codes)
        at = tile
        while at < tile_stop:
            while offsets[read + 1] <= at:
                read += 1
            begin, end = offsets[read], offsets[read + 1]
            last = min(end, tile_stop)
            # pieces from which an end in (at, last] can be reached
            piece = max(begin, at + 1 - reach)
            while piece + width <= last:
                count = min(BLOCK, last - width + 1 - piece)
                number, candidates = _ranges(
                    starts, entries, questions, table, width, paired, codes, piece - origin, count,
                    large, buckets, ranges,
                )  # fmt: skip
                ends = max(at, piece), min(piece + count + reach, last)
                if dense and candidates * worth > patterns.size * (ends[1] - ends[0] + reach):
                    if columns.shape[1] == 0:
                        equal = equal_symbols(patterns, k)
                        columns = np.empty((3, patterns.size), dtype=np.uint32)
                    search_read(
                        patterns, k, distance, equal, bases, begin, ends[0], ends[1], first,
                        columns, out,
                    )  # fmt: skip
                elif number:
                    _candidates(
                        entries, ranks, k, distance, spacing, width, later, planes, total, origin,
                        begin, last, tile, ranges[:number], words, hits, passed, places, costs,
                        out[tile - first : tile_stop - first],
                    )  # fmt: skip
                piece += count
            at = last


@njit(cache=True, nogil=True)
def _ranges(
    starts, entries, questions, table, width, paired, codes, piece, count, large, buckets, ranges
):
    """Collect the non-empty buckets of a block; their number, and that of their entries."""
    double = np.uint64(2 * width)
    for question in range(questions.shape[0]):
        base = np.uint64(questions[question, 0] * table)
        row = buckets[question]
        if paired:
            other = piece + questions[question, 1]
            for i in range(count):
                key = (np.uint64(codes[piece + i]) << double) | np.uint64(codes[other + i])
                row[i] = base + key
        else:
            for i in range(count):
                row[i] = base + np.uint64(codes[piece + i])
        if large:
            for i in range(count):
                prefetch(starts, row[i])
    number = 0
    candidates = np.int64(0)
    for question in range(questions.shape[0]):
        row = buckets[question]
        for i in range(count):
            begin = starts[row[i]]
            end = starts[row[i] + np.uint64(1)]
            # branch-free: a branch would often be mispredicted
            ranges[number, 0] = begin
            ranges[number, 1] = end
            ranges[number, 2] = piece + i
            number += end > begin
            candidates += np.int64(end) - np.int64(begin)
    if large:
        for i in range(number):
            prefetch(entries, np.uint64(ranges[i, 0]))
    return number, candidates


@njit(cache=True, nogil=True)
def _candidates(
    entries, ranks, k, distance, spacing, width, later, planes, total, origin, begin, last, tile,
    ranges, words, hits, passed, places, costs, out,
):  # fmt: skip
    """Verify the entries of the ranges and write the ends of those within the distance.

    later: the first entry of pairs with pieces between.
    """
    mask = np.uint64(PLANE_MASK)
    count = 0
    for row in range(ranges.shape[0]):
        piece = np.int64(ranges[row, 2])
        on_low = window(planes[LOW], piece + width)
        on_high = window(planes[HIGH], piece + width)
        back_low = window(planes[LOW_BACK], total - piece)
        back_high = window(planes[HIGH_BACK], total - piece)
        for entry in range(ranges[row, 0], ranges[row, 1]):
            value = entries[entry]
            words[ENTRY_LOW, count] = np.uint32(value & mask)
            words[ENTRY_HIGH, count] = np.uint32((value >> np.uint64(HIGH_SHIFT)) & mask)
            anchor = np.int64(value >> np.uint64(PIECE_SHIFT))
            words[BEHIND, count] = np.uint32(k - width - anchor * spacing)
            words[BEFORE_LOW, count] = back_low
            words[BEFORE_HIGH, count] = back_high
            words[AFTER_LOW, count] = on_low
            words[AFTER_HIGH, count] = on_high
            hits[0, count] = np.uint32(entry)
            hits[1, count] = np.uint32(piece)
            count += 1
            if count == BATCH:
                _verify(
                    ranks, k, distance, spacing, width, later, planes, total, origin, begin, last,
                    tile, count, words, hits, passed, places, costs, out,
                )  # fmt: skip
                count = 0
    if count:
        _verify(
            ranks, k, distance, spacing, width, later, planes, total, origin, begin, last, tile,
            count, words, hits, passed, places, costs, out,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _verify(
    ranks, k, distance, spacing, width, later, planes, total, origin, begin, last, tile, count,
    words, hits, passed, places, costs, out,
):  # fmt: skip
    passing(distance, k - width, count, words, passed)
    one = np.uint32(1)
    between = 2 * spacing - width
    for j in range(count):
        if passed[j]:
            piece = np.int64(hits[1, j])
            place = piece + origin
            behind = words[BEHIND, j]
            ahead = np.uint32(np.uint32(k - width) - behind)
            if ahead and ahead <= place - begin:
                other = (words[ENTRY_LOW, j] >> behind) ^ words[BEFORE_LOW, j]
                other |= (words[ENTRY_HIGH, j] >> behind) ^ words[BEFORE_HIGH, j]
                other |= window(planes[GAP_BACK], total - piece)
                if not other & np.uint32(np.uint32(one << ahead) - one):
                    # all symbols before this piece are equal: the first piece finds the same match
                    continue
            if hits[0, j] >= later and between <= last - place - width:
                other = words[ENTRY_LOW, j] ^ words[AFTER_LOW, j]
                other |= words[ENTRY_HIGH, j] ^ words[AFTER_HIGH, j]
                other |= window(planes[GAP], piece + width)
                if not other & np.uint32(np.uint32(one << np.uint32(between)) - one):
                    # the next piece is there too: their adjacent pair finds the same match
                    continue
            write_ends(
                k, distance, width, words[ENTRY_LOW, j], words[ENTRY_HIGH, j],
                np.int64(behind), ranks[hits[0, j]], planes, total, piece, place - begin,
                last - place - width, place + width - 1 - tile, out, places, costs,
            )  # fmt: skip
