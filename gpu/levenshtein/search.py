"""The nearest k-mer at every end on the GPU: look up pieces, verify candidates from a warp's queue.

A chunk is four bit planes, symbol s at bit s + 64 (so that windows may begin before the chunk):

    low, high   the bits of the codes          gaps    1: a gap code
    firsts      1: the first symbol of a read or of the chunk, and the place after its last

The index is that of trie/levenshtein/piece_index.py with planar keys; one load reads begin and end
of a bucket:

    buckets   uint64   63-32 end of the bucket | 31-0 its first entry

A warp processes 32 places at a time, one per lane, in several consecutive groups; their text is in
shared memory. All lanes look up at once. The entries of their buckets go to the warp's queue, a
ring of 128 (entry, place): in each turn every lane with entries left appends up to two (ballots,
population counts), and once 32 are queued every lane takes one. So all lanes verify, however uneven
the buckets and however few a group's candidates: the queue of thesis Fig. 35, with entries in place
of trie-nodes.

Verifying aligns the longer side of the piece (trie/levenshtein/reach.py), and if that is within D
edits, the other. Candidates that pass are aligned in full, with gap codes and the read's bounds.
Their ends are listed with their words (trie/levenshtein), of which the smallest per end counts; or,
with too many hits, the words of all ends are lowered by an atomic minimum. The order does not
matter.

Operations for D edits: about 35 per place, 30 per look-up and 17 per turn for the fullest bucket of
the warp; 8 (D + 1)^2 + 5 (2D + 1) + 40 per candidate. Bytes: 8 per look-up and 8 per candidate,
from whichever cache holds the tables.

The planes are adjacent: one copy uploads them all. To pack them, 64 symbols take a load, three
vector tests and six stores; reads are marked one by one.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import (
    ALL_LANES,
    bit_count,
    cuda,
    device_function,
    funnel,
    leading_zeros,
    load_word,
    reverse_word,
)
from trie.codes import MAX_DISTANCE
from trie.cpu.jit import njit
from trie.cpu.vectors import marked
from trie.levenshtein import DISTANCE_SHIFT, NOTHING, PATTERN_SHIFT
from trie.levenshtein.piece_index import HIGH_SHIFT, PIECE_SHIFT, PLANE_MASK
from trie.levenshtein.reach import CENTRE, DIAGONALS, UNREACHED, reach, sides

THREADS = 128  # threads per block; any multiple of 32
MARGIN = 64  # bits before the first symbol of a plane

MOST_GROUPS = 28
"""Most groups of 32 places per warp: their text and its surroundings are a word per lane."""

_QUEUE = 128

REACH = reach(device_function)
SIDES = sides(device_function, REACH)
_before, _behind = SIDES


@device_function
def window(plane, place):
    """The 32 bits of a plane from symbol ``place`` (int64, at least -MARGIN) on."""
    bit = np.uint32(place + MARGIN)
    word = np.uint32(bit >> np.uint32(5))
    first = load_word(plane, word)
    return funnel(first, load_word(plane, np.uint32(word + np.uint32(1))), bit)


@device_function
def symbols_before(firsts, place):
    """Symbols of the read before a place, or 63 if there are more."""
    near = leading_zeros(window(firsts, place - 31))
    if near < np.uint32(32):
        return np.int64(near)
    return np.int64(32) + np.int64(leading_zeros(window(firsts, place - 63)))


@device_function
def symbols_from(firsts, place):
    """Symbols of the read from a place on, including it, or 64 if there are more."""
    near = leading_zeros(reverse_word(window(firsts, place + 1)))
    if near < np.uint32(32):
        return np.int64(near) + 1
    return np.int64(33) + np.int64(leading_zeros(reverse_word(window(firsts, place + 33))))


@device_function
def write_ends(
    k, distance, width, entry, behind, rank, low, high, gaps, firsts, place, lead, symbols, hits,
    out,
):  # fmt: skip
    """Report the ends that a candidate with its piece at ``place`` reaches, as ``scan`` does."""
    room = symbols_from(firsts, place) - width
    covered = np.uint32(np.uint32(np.uint32(1) << np.uint32(width)) - np.uint32(1))
    if room < 0 or np.uint32(window(gaps, place) & covered) != np.uint32(0):
        return
    places = cuda.local.array((2, DIAGONALS), np.uint32)
    costs = cuda.local.array(DIAGONALS, np.uint32)
    plo = np.uint32(entry & np.uint64(PLANE_MASK))
    phi = np.uint32(np.uint64(entry >> np.uint64(HIGH_SHIFT)) & np.uint64(PLANE_MASK))
    back = place - 32
    cost, start = _before(
        np.uint32(plo >> np.uint32(behind)), np.uint32(phi >> np.uint32(behind)),
        reverse_word(window(low, back)), reverse_word(window(high, back)),
        reverse_word(window(gaps, back)), k - width - behind, symbols_before(firsts, place),
        distance, places,
    )  # fmt: skip
    if cost > distance:
        return
    on = place + width
    _behind(
        plo, phi, window(low, on), window(high, on), window(gaps, on), behind, room,
        distance - cost, places, costs,
    )  # fmt: skip
    for d in range(-distance, distance + 1):
        edits = np.int64(costs[CENTRE + d])
        # the word of an end is at its last symbol
        last = on + behind + d - 1
        if edits != UNREACHED and last >= lead and last < symbols:
            word = np.uint32(np.uint32(cost + edits) << np.uint32(DISTANCE_SHIFT))
            word = np.uint32(word | np.uint32(np.uint32(rank) << np.uint32(PATTERN_SHIFT)))
            word = np.uint32(word | np.uint32(start + d + MAX_DISTANCE))
            if out.size != 0:
                cuda.atomic.min(out, last, word)
            elif hits[0] < np.uint64(hits.size):
                hit = np.uint64(np.uint64(np.uint64(last) << np.uint64(32)) | np.uint64(word))
                at = np.uint64(cuda.atomic.add(hits, 0, np.uint64(1)) + np.uint64(1))
                if at < np.uint64(hits.size):
                    hits[at] = hit


def scan(distance: int, paired: bool) -> Callable[..., None]:
    """The kernel that finds near patterns; block = THREADS, 32 | block.

    If ``out`` has one word per symbol (all ones before), the kernel lowers them: out[e - 1] is the
    word of end e. If ``out`` is empty, it lists hits: found uint64[], [0] their number (0 before;
    found.size or more if they do not fit), then in no particular order, an end once for each piece
    that reaches it, 63-32 end - 1 | 31-0 word.

    Arguments: low, high, gaps, firsts uint32[] (planes), symbols and lead uint32 (only ends after
    symbol ``lead``), groups uint32 (<= MOST_GROUPS: a warp has 32 * groups places), k, spacing,
    width, tables uint32 (the scheme, ``paired`` or not), buckets uint64[], entries uint64[], ranks
    uint32[], found, out uint32[symbols or 0]. grid * block * groups >= symbols.
    """
    cost_of = REACH.costs[distance]
    most = np.uint32(distance)
    threads = THREADS
    assert threads % 32 == 0
    ring_words = threads // 32 * _QUEUE

    def kernel(
        low, high, gaps, firsts, symbols, lead, groups, k, spacing, width, tables, buckets, entries,
        ranks, hits, out,
    ):  # fmt: skip
        low_text = cuda.shared.array(threads, np.uint32)
        high_text = cuda.shared.array(threads, np.uint32)
        queue_entry = cuda.shared.array(ring_words, np.uint32)
        queue_place = cuda.shared.array(ring_words, np.uint32)
        one = np.uint32(1)
        thread = np.uint32(cuda.threadIdx.x)
        lane = np.uint32(thread & np.uint32(31))
        text = np.uint32(thread - lane)
        ring = np.uint32(text * np.uint32(_QUEUE // 32))
        below = np.uint32(np.uint32(one << lane) - one)
        # the warp's first place, and the word of the planes before it
        origin = np.uint32(np.uint32(np.uint32(cuda.grid(1)) - lane) * groups)
        word = np.uint32(np.uint32(origin + np.uint32(MARGIN - 32)) >> np.uint32(5))
        word = np.uint32(word + lane)
        if word < np.uint32(low.size):
            low_text[thread] = load_word(low, word)
            high_text[thread] = load_word(high, word)
        else:
            low_text[thread] = np.uint32(0)
            high_text[thread] = np.uint32(0)
        cuda.syncwarp()
        mask = np.uint32(np.uint32(one << width) - one)
        around = np.uint32(k - width)
        group = np.uint32(0)
        key = np.uint32(0)
        later_low = np.uint64(0)
        later_high = np.uint64(0)
        table = tables
        shift = np.int32(0)
        begin = np.uint32(0)
        end = np.uint32(0)
        queued = np.uint32(0)
        head = np.uint32(0)
        place = lane
        while True:
            if queued < np.uint32(32):
                turn = np.uint32(cuda.ballot_sync(ALL_LANES, begin < end))
                if turn != np.uint32(0):
                    # up to two entries of every lane, all first ones before the second ones
                    again = np.uint32(cuda.ballot_sync(ALL_LANES, np.uint32(begin + one) < end))
                    at = np.uint32(head + queued)
                    at = np.uint32(at + bit_count(np.uint32(turn & below)))
                    queued = np.uint32(queued + bit_count(turn))
                    if begin < end:
                        at = np.uint32(ring + np.uint32(at & np.uint32(_QUEUE - 1)))
                        queue_entry[at] = begin
                        queue_place[at] = place
                        begin = np.uint32(begin + one)
                    if again != np.uint32(0):
                        at = np.uint32(head + queued)
                        at = np.uint32(at + bit_count(np.uint32(again & below)))
                        queued = np.uint32(queued + bit_count(again))
                        if np.uint32(np.uint32(again >> lane) & one) != np.uint32(0):
                            at = np.uint32(ring + np.uint32(at & np.uint32(_QUEUE - 1)))
                            queue_entry[at] = begin
                            queue_place[at] = place
                            begin = np.uint32(begin + one)
                    continue
                if table >= tables and group < groups:
                    # the next 32 places
                    place = np.uint32(np.uint32(group << np.uint32(5)) + lane)
                    at = np.uint32(text + group)
                    first = low_text[np.uint32(at + one)]
                    second = low_text[np.uint32(at + np.uint32(2))]
                    high_first = high_text[np.uint32(at + one)]
                    high_second = high_text[np.uint32(at + np.uint32(2))]
                    near = funnel(first, second, lane)
                    high_near = funnel(high_first, high_second, lane)
                    key = np.uint32(near & mask)
                    key = np.uint32(key | np.uint32(np.uint32(high_near & mask) << width))
                    if paired:
                        far = funnel(second, low_text[np.uint32(at + np.uint32(3))], lane)
                        later_low = np.uint64(np.uint64(far) << np.uint64(32)) | np.uint64(near)
                        far = funnel(high_second, high_text[np.uint32(at + np.uint32(3))], lane)
                        later_high = np.uint64(np.uint64(far) << np.uint64(32)) | np.uint64(
                            high_near
                        )
                    table = np.uint32(0)
                    shift = np.int32(0)
                    group = np.uint32(group + one)
                if table < tables:
                    bucket = np.uint64(key)
                    if paired:
                        apart = np.uint32(np.uint32(table + one) * spacing)
                        apart = np.uint32(np.int32(apart) + shift)
                        other = np.uint32(np.uint32(later_low >> np.uint64(apart)) & mask)
                        more = np.uint32(np.uint32(later_high >> np.uint64(apart)) & mask)
                        other = np.uint32(other | np.uint32(more << width))
                        double = np.uint64(np.uint32(width * np.uint32(2)))
                        bucket = np.uint64(np.uint64(bucket << double) | np.uint64(other))
                        base = np.uint64(np.uint64(table) << np.uint64(double * np.uint64(2)))
                        bucket = np.uint64(bucket + base)
                        shift = np.int32(shift + np.int32(1))
                        if shift > np.int32(table):
                            table = np.uint32(table + one)
                            shift = np.int32(-np.int32(table))
                    else:
                        table = tables
                    if np.uint32(np.uint32(origin + place) + width) <= symbols:
                        both = np.uint64(load_word(buckets, bucket))
                        begin = np.uint32(both)
                        end = np.uint32(np.uint64(both >> np.uint64(32)))
                    continue
                if queued == np.uint32(0):
                    break
            cuda.syncwarp()
            if lane < queued:
                at = np.uint32(ring + np.uint32(np.uint32(head + lane) & np.uint32(_QUEUE - 1)))
                index = queue_entry[at]
                where = queue_place[at]
                entry = np.uint64(load_word(entries, index))
                behind = np.uint32(np.uint32(np.uint64(entry >> np.uint64(PIECE_SHIFT))) * spacing)
                behind = np.uint32(around - behind)
                ahead = np.uint32(around - behind)
                plo = np.uint32(entry & np.uint64(PLANE_MASK))
                phi = np.uint32(np.uint64(entry >> np.uint64(HIGH_SHIFT)) & np.uint64(PLANE_MASK))
                # the longer side first: hardly any lane continues to the other
                backs = ahead > behind
                total = np.uint32(0)
                for _ in range(2):
                    length = behind
                    skip = np.uint32(0)
                    bit = np.uint32(np.uint32(where + width) + np.uint32(32))
                    if backs:
                        length = ahead
                        skip = behind
                        bit = where
                    at = np.uint32(text + np.uint32(bit >> np.uint32(5)))
                    more = np.uint32(at + one)
                    tlo = funnel(low_text[at], low_text[more], bit)
                    thi = funnel(high_text[at], high_text[more], bit)
                    if backs:
                        tlo = reverse_word(tlo)
                        thi = reverse_word(thi)
                    cost = cost_of(
                        np.uint32(plo >> skip), np.uint32(phi >> skip), tlo, thi,
                        np.uint32(np.uint32(0xFFFFFFFF) << length), np.uint32(one << length),
                    )  # fmt: skip
                    total = np.uint32(total + cost)
                    if total > most:
                        break
                    backs = not backs
                if total <= most:
                    write_ends(
                        np.int64(k), distance, np.int64(width), entry, np.int64(behind),
                        load_word(ranks, index), low, high, gaps, firsts,
                        np.int64(np.uint32(origin + where)), np.int64(lead), np.int64(symbols),
                        hits, out,
                    )  # fmt: skip
            cuda.syncwarp()
            head = np.uint32(np.uint32(head + np.uint32(32)) & np.uint32(_QUEUE - 1))
            queued = np.uint32(queued - min(queued, np.uint32(32)))

    return kernel


def fill(words, hits):
    """Fill uint32[] with NOTHING, and clear the hit list; any grid."""
    for at in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        words[at] = NOTHING
    if cuda.grid(1) == 0:
        hits[0] = np.uint64(0)


ARGUMENTS = (
    *("uint32[::1]",) * 4, *("uint32",) * 7, "uint64[::1]", "uint64[::1]", "uint32[::1]",
    "uint64[::1]", "uint32[::1]",
)  # fmt: skip
"""The argument types of the scans."""


PLANES = 4
SPARE_WORDS = 4  # words that windows read after the last symbol's in every plane
PART = 1 << 22  # symbols that a thread packs at a time, at most 1 ms of work; 64 | PART
_MARGIN_WORDS = MARGIN // 32


def plane_words(symbols: int) -> int:
    """Words of each plane for that number of symbols."""
    return -(-(symbols + MARGIN + 1) // 32) + SPARE_WORDS


def packing(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    origin: int,
    stop: int,
    out: NDArray[np.uint32],
) -> list[Callable[[], None]]:
    """The work of packing the symbols [origin, stop) of a batch, in parts for several threads.

    bases, offsets: of the batch, checked and contiguous. out: uint32[4 plane_words(stop - origin)
    or more], such as pinned memory, that receives the planes.
    """
    total = stop - origin
    words = plane_words(total)
    planes = out[: PLANES * words].reshape(PLANES, words)
    planes[:, :_MARGIN_WORDS] = 0
    planes[:, _MARGIN_WORDS + -(-total // 32) :] = 0
    chunk = bases[origin:stop]
    return [
        partial(_pack, chunk, offsets, origin, first, min(first + PART, total), planes)
        for first in range(0, total, PART)
    ]


@njit(cache=True, nogil=True, inline="always")
def _mark(firsts, symbol):
    firsts[(symbol + MARGIN) >> 5] |= np.uint32(np.uint32(1) << np.uint32((symbol + MARGIN) & 31))


@njit(cache=True, nogil=True)
def _pack(bases, offsets, origin, first, stop, planes):
    """The planes of the symbols [first, stop) of a chunk, 64 | first."""
    low, high, gaps, firsts = planes[0], planes[1], planes[2], planes[3]
    upper = np.uint64(32)
    for block in range((stop - first) // 64):
        at = np.uint64(first + 64 * block)
        word = (at + np.uint64(MARGIN)) >> np.uint64(5)
        later = word + np.uint64(1)
        value = marked(bases, at, np.uint8(1))
        low[word] = np.uint32(value)
        low[later] = np.uint32(value >> upper)
        value = marked(bases, at, np.uint8(2))
        high[word] = np.uint32(value)
        high[later] = np.uint32(value >> upper)
        value = marked(bases, at, np.uint8(4))
        gaps[word] = np.uint32(value)
        gaps[later] = np.uint32(value >> upper)
        firsts[word] = np.uint32(0)
        firsts[later] = np.uint32(0)
    at = first + (stop - first) // 64 * 64
    for begin in range(at, stop, 32):
        word = (begin + MARGIN) >> 5
        for plane in range(3):
            value = np.uint32(0)
            for i in range(min(32, stop - begin)):
                bit = (np.uint32(bases[begin + i]) >> np.uint32(plane)) & np.uint32(1)
                value |= np.uint32(bit << np.uint32(i))
            planes[plane, word] = value
        firsts[word] = np.uint32(0)
    if first == 0:
        _mark(firsts, 0)
    for read in range(np.searchsorted(offsets, origin + first), offsets.size):
        if offsets[read] - origin >= stop:
            break
        _mark(firsts, offsets[read] - origin)
    if stop == bases.size:
        _mark(firsts, stop)
