"""The kernel ``bit_sliced``: 32 windows per word, mismatches counted by networks of full adders.

A block is one warp. It processes a tile of 32 S windows and some patterns; a lane takes W = 8
adjacent words, S = 32 W. The tile lies in shared memory as rows, 32 segments of S symbols side by
side, so that "j symbols further" is "j rows further", without a shift:

    planes   a bit of row w for each segment i: the low, and the high, bit of symbol i S + w
    rows     the same for each base: whether symbol i S + w is not that base

The HALO rows after the last are the first ones of the next segment. A warp makes 32 rows from 32
words of the text's planes, one per segment, by transposing them as a bit matrix. A gap code counts
as A here, and in patterns too: no hit is missed, and false hits are dropped when their distance is
computed.

A symbol of a pattern takes one shared load per word, at an offset uniform in the warp; or the warp
branches on it, and the word is computed from two rows of planes that the lane keeps in registers,
as part of an addition (network.py). 12 symbols and k = 4, 5 of them branched, take 19 operations
and 7 loads per word, two words per load. Patterns above 32 symbols are added to a counter, 16
symbols at a time.

Hits are few, and in different words in every lane. So the words of a batch of patterns go to shared
memory, a register keeps a bit for each nonzero word, and then the lanes go through their own words,
one hit per lane at a time. Hits are listed in shared memory, so that all lanes share the slower
work of distances, from the planes there, and writing. Hit words are written in no order.

The words of a tile's plane are W = 8 matrices of 32 x 32 bits, with one word of each of the 32
segments. A lane has half a matrix, every second segment's word, so that 16 lanes read adjacent
words. They are transposed in its registers, except for one bit of the index: 8 exchanges with
another lane swap halves of two words at a time.

    lane     half 4 | plane 3 | matrix 2 0      word r: of segment 2 r + half
    result   the same                           word r: row 32 matrix + 16 half + r

So the bits of a row are the even segments, then the odd ones.

A listed hit, and what distances are computed from:

listed     31 batch 15 | 14 bit 10 | 9 pattern of the batch 8 | 7 word 5 | 4 lane 0
text       uint32[3, words]   bit i of word w is symbol 32 w + i: the code's low bit, its high
                              bit, and whether it is a gap code. The gap plane is not read,
                              and may be uninitialized, if there is no gap code.
patterns   uint64[2 r blocks] two for 32 symbols: low | high << 32, and gaps | inside << 32;
                              symbols after the pattern's end are not inside
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import (
    ALL_LANES,
    REGISTERS,
    address_of,
    as_signed,
    bit_count,
    cuda,
    device_function,
    instruction,
    load_pair,
    load_shared,
    store_shared,
    transposing,
)
from gpu.hamming.network import (
    BASES,
    SPAN,
    STEP,
    TILE,
    WORDS,
    SlicedShape,
    place,
    rows_for,
    search_for,
)
from gpu.hamming.sorting import ID, START
from trie.codes import GAP

PLANES = 3


@device_function
def from_bit(plane, word, shift):
    """The 32 bits of a plane's row starting at bit ``shift`` (0..31) of a word."""
    both = np.uint64(np.uint64(plane[np.uint32(word + np.uint32(1))]) << np.uint64(32))
    both = np.uint64(both | np.uint64(plane[word]))
    return np.uint32(np.uint64(both >> np.uint64(shift)))


@device_function
def differing(codes, text, gaps, ahead, patterns, at, word, shift):
    """The differing symbols among 32 of a pattern, its block ``at``: about 15 operations.

    word, shift: where they begin in ``codes``, the first two planes, which may be those of ``text``
    or a part of them beginning at its word ``ahead``. gaps uint32: 0 for a text without gap codes.
    """
    here, others = load_pair(patterns, at)
    low = np.uint32(from_bit(codes[0], word, shift) ^ np.uint32(here))
    high = np.uint32(from_bit(codes[1], word, shift) ^ np.uint32(here >> np.uint64(32)))
    wrong = np.uint32(np.uint32(low | high) | np.uint32(others))
    if gaps != np.uint32(0):
        wrong = np.uint32(wrong | from_bit(text[2], np.uint32(ahead + word), shift))
    return np.uint32(wrong & np.uint32(others >> np.uint64(32)))


@device_function
def distance_of_short(codes, text, gaps, ahead, patterns, blocks, p, start):
    """Mismatches of pattern p at a start, for patterns of one block."""
    word = np.uint32(start >> np.uint32(5))
    shift = np.uint32(start & np.uint32(31))
    return bit_count(differing(codes, text, gaps, ahead, patterns, p, word, shift))


@device_function
def distance_of(codes, text, gaps, ahead, patterns, blocks, p, start):
    """Mismatches of pattern p at a start; blocks: blocks of 32 symbols per pattern."""
    word = np.uint32(start >> np.uint32(5))
    shift = np.uint32(start & np.uint32(31))
    count = np.uint32(0)
    at = np.uint32(p * blocks)
    stop = np.uint32(at + blocks)
    while at < stop:
        wrong = differing(codes, text, gaps, ahead, patterns, at, word, shift)
        count = np.uint32(count + bit_count(wrong))
        word = np.uint32(word + np.uint32(1))
        at = np.uint32(at + np.uint32(1))
    return count


def blocks_of(length: int) -> int:
    """The number of blocks of 32 symbols in a pattern."""
    return -(-length // 32)


def packed(patterns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """uint8[r, m] patterns in the form that ``distance`` reads."""
    count, length = patterns.shape
    blocks = blocks_of(length)
    bits = np.zeros((4, count, 32 * blocks), dtype=np.uint8)
    known = patterns < GAP
    bits[0, :, :length] = patterns & 1 & known
    bits[1, :, :length] = (patterns >> 1) & known
    bits[2, :, :length] = ~known
    bits[3, :, :length] = 1
    rows = np.packbits(bits, axis=2, bitorder="little").view("<u4").astype(np.uint64)
    low, high, gaps, inside = rows.reshape(4, count, blocks)
    thirty_two = np.uint64(32)
    return np.ascontiguousarray(
        np.stack([low | high << thirty_two, gaps | inside << thirty_two], axis=2)
    ).ravel()


HALF = 16  # segments of which a lane holds a word
APART = 2 * WORDS  # distance between a lane's words

GIVEN, EVEN, ODD = (0x7632, 0x5410), (0x5410, 0x3254), (0x7610, 0x3276)
"""Byte selectors over two words, for a lane of the lower and of the upper half: what it gives to
the other lane, and its two words afterwards.
"""


def _bytes(first: int, other: int, numbers: int) -> int:
    both = first.to_bytes(4, "little") + other.to_bytes(4, "little")
    return int.from_bytes(bytes(both[numbers >> 4 * i & 7] for i in range(4)), "little")


def _lay(text, linear, planes, at, to, lane, row):
    rows = [int(text.reshape(-1)[int(at) + APART * r]) for r in range(HALF)]
    for r in range(HALF):
        linear.reshape(-1)[int(to) // 4 + APART * r] = rows[r]
    for shift in (8, 4, 2, 1):
        low = sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift))
        for r in range(HALF):
            if not r & shift:
                low_row, other = rows[r], rows[r + shift]
                rows[r] = low_row & low | (other & low) << shift
                rows[r + shift] = low_row >> shift & low | other & low << shift
    upper = int(lane) >= HALF
    for r in range(0, HALF, 2):
        sent = np.uint32(_bytes(rows[r], rows[r + 1], GIVEN[upper]))
        got = int(np.uint32(cuda.shfl_xor_sync(ALL_LANES, as_signed(sent), HALF)))
        rows[r] = _bytes(rows[r], got, EVEN[upper])
        rows[r + 1] = _bytes(rows[r + 1], got, ODD[upper])
    for r in range(HALF):
        planes[int(row) // 4 + place(r)] = rows[r]


def _selected(name: str, numbers: tuple[int, int]) -> str:
    return f"selp.b32 {name}, {numbers[1]}, {numbers[0]}, upper;"


lay_rows = instruction(
    "\n".join(
        [
            "{",
            REGISTERS,
            f".reg .b32 got, given, even, odd, {', '.join(f'w{r}' for r in range(HALF))};",
            ".reg .b64 from; .reg .pred upper;",
            "mad.wide.u32 from, $3, 4, $0;",
            *(f"ld.global.nc.u32 w{r}, [from+{4 * APART * r}];" for r in range(HALF)),
            *(f"st.shared.u32 [$4+{4 * APART * r}], w{r};" for r in range(HALF)),
            transposing([f"w{r}" for r in range(HALF)], (8, 4, 2, 1)),
            f"setp.ge.u32 upper, $5, {HALF};",
            _selected("given", GIVEN),
            _selected("even", EVEN),
            _selected("odd", ODD),
            *(
                f"prmt.b32 got, w{r}, w{r + 1}, given;"
                f"shfl.sync.bfly.b32 got, got, {HALF}, 31, -1;"
                f"prmt.b32 w{r}, w{r}, got, even;"
                f"prmt.b32 w{r + 1}, w{r + 1}, got, odd;"
                for r in range(0, HALF, 2)
            ),
            *(
                f"st.shared.v2.u32 [$6+{4 * place(r)}], {{w{r}, w{r + 1}}};"
                for r in range(0, HALF, 2)
            ),
            "}",
        ]
    ),
    (), ("global", "shared", "shared", "u32", "u32", "u32", "u32"), _lay, volatile=True,
)  # fmt: skip
"""``lay_rows(text, linear, planes, at, to, lane, row)``: a lane's words of a tile, as rows.

at: the index of the first in ``text``; to: the address in ``linear``, for the unchanged words; row:
that of the lane's first row in ``planes``. 8 exchanges, about 140 operations.
"""


def _load_two(words, address):
    return words[int(address) // 4], words[int(address) // 4 + 1]


load_two = instruction(
    "ld.shared.v2.u32 {$0, $1}, [$3];", ("u32",) * 2, ("shared", "u32"), _load_two, volatile=True
)
"""``load_two(words, address)``: two words of shared memory, 8 | address."""


def _store_two(words, address, first, other):
    words[int(address) // 4] = first
    words[int(address) // 4 + 1] = other


store_two = instruction(
    "st.shared.v2.u32 [$1], {$2, $3};",
    (), ("shared", "u32", "u32", "u32"), _store_two, volatile=True,
)  # fmt: skip
"""``store_two(words, address, one, other)``: store two words there."""


@device_function
def differs(low, high, base):
    """For 32 symbols of the planes, whether they differ from this base."""
    low = np.uint32(low ^ np.uint32(0xFFFFFFFF * (base & 1)))
    return np.uint32(low | np.uint32(high ^ np.uint32(0xFFFFFFFF * (base >> 1))))


@device_function
def segment_on(row, last):
    """A row's word one segment further; last: bit 0 is the first segment of the next tile."""
    odd = np.uint32(np.uint32(row & np.uint32(0xFFFE)) << np.uint32(15))
    odd = np.uint32(odd | np.uint32(last << np.uint32(31)))
    return np.uint32(odd | np.uint32(row >> np.uint32(16)))


LISTED = 256  # hits that a warp lists before writing them: a multiple of 32, above 32


def _list_hits(masks, lists, mask, here, lower, last, some, hits, code, to):
    while True:
        if not hits and some:
            bit = int(some).bit_length() - 1
            hits = masks[int(mask) // 4 + 32 * bit]
            some = np.uint32(some ^ np.uint32(1 << bit))
            code = np.uint32(here + np.uint32(32 * bit))
        writing = np.uint32(cuda.ballot_sync(ALL_LANES, hits != 0))
        if hits:
            bit = int(hits).bit_length() - 1
            lists[int(to) // 4 + int(writing & lower).bit_count()] = code + np.uint32(bit << 10)
            hits = np.uint32(hits ^ np.uint32(1 << bit))
        to = np.uint32(to + np.uint32(4 * int(writing).bit_count()))
        if not writing or to > last:
            return some, hits, code, to, writing


list_hits = instruction(
    """{
    .reg .pred next, writes, again;
    .reg .b32 bit, at, word;
    mov.b32 $0, $11;
    mov.b32 $1, $12;
    mov.b32 $2, $13;
    mov.b32 $3, $14;
    AGAIN:
    setp.eq.u32 next, $1, 0;
    setp.ne.and.u32 next, $0, 0, next;
    bfind.u32 bit, $0;
    mad.lo.u32 at, bit, 128, $7;
    @next ld.shared.u32 $1, [at];
    shl.b32 at, 1, bit;
    @next xor.b32 $0, $0, at;
    @next mad.lo.u32 $2, bit, 32, $8;
    setp.ne.u32 writes, $1, 0;
    vote.sync.ballot.b32 $4, writes, -1;
    and.b32 at, $4, $9;
    popc.b32 at, at;
    mad.lo.u32 at, at, 4, $3;
    bfind.u32 bit, $1;
    mad.lo.u32 word, bit, 1024, $2;
    @writes st.shared.u32 [at], word;
    shl.b32 word, 1, bit;
    @writes xor.b32 $1, $1, word;
    popc.b32 at, $4;
    mad.lo.u32 $3, at, 4, $3;
    setp.ne.u32 again, $4, 0;
    setp.le.and.u32 again, $3, $10, again;
    @again bra.uni AGAIN;
    }""",
    ("u32",) * 5, ("shared", "shared", *("u32",) * 8), _list_hits, volatile=True,
)  # fmt: skip
"""List one hit of each lane that has any, until none has, or the list has no room for 32 more.

``some, hits, code, to, writing = list_hits(masks, lists, mask, here, lower, last, some, hits, code,
to)``: some: a bit for each of the lane's words in ``masks`` that has hits, the first at the address
``mask``, the others 128 bytes apart; hits, code: the rest of the current word, and the list code of
its hits without the segment; here: that code for the first word; to: the end of the list; last: the
address after which there is no room; lower: mask of the lower lanes; writing: zero if no hits are
left. 22 instructions per round.
"""


@device_function
def window_of(hit):
    """The window of a listed hit, counted from the tile's first."""
    word = np.uint32(np.uint32(hit >> np.uint32(5)) & np.uint32(WORDS - 1))
    word = np.uint32(word + np.uint32(np.uint32(hit & np.uint32(31)) * np.uint32(WORDS)))
    # even segments come first
    even = np.uint32(np.uint32(hit >> np.uint32(10)) & np.uint32(15))
    odd = np.uint32(np.uint32(hit >> np.uint32(14)) & np.uint32(1))
    word = np.uint32(word + np.uint32(odd * np.uint32(SPAN)))
    return np.uint32(word + np.uint32(even * np.uint32(2 * SPAN)))


@device_function
def pattern_of(hit, batch):
    """The pattern of a listed hit, counted from the block's first; batch: patterns of one."""
    first = np.uint32(np.uint32(hit >> np.uint32(15)) * np.uint32(batch))
    return np.uint32(first + np.uint32(np.uint32(hit >> np.uint32(8)) & np.uint32(3)))


# mypy: no-check-untyped-defs


BATCH = 4  # patterns between two passes over the hits; BATCH words per thread, at most 32 together
MOST_SHARED = BATCH << 17  # most patterns per block: a listed hit has 17 bits for their batch


def bit_sliced(shape: SlicedShape) -> Callable[..., None]:
    """The kernel of one shape."""
    halo, row, batch, listed = shape.halo, shape.row, BATCH, LISTED
    group, behind = place(WORDS), 4 * place(SPAN)
    warps_of_halo, apart = halo // 32, 4 * place(32)
    # zeros: as far as the words of a step reach
    zeros = 0 if shape.length else -(-place(SPAN + STEP) // 32)
    all_rows = BASES * row + 32 * zeros + 1
    all_masks = batch * SPAN
    all_words = 2 * WORDS + 2 * warps_of_halo
    linear_words = SPAN + 16
    linear_shape = (2, linear_words)
    search, keep_rows = search_for(shape), rows_for(shape)
    distance = distance_of_short if shape.length else distance_of

    def kernel(
        text, gaps, checked, windows, steps, quads, begin, k, patterns, blocks, share, count,
        counters, own, out,
    ):  # fmt: skip
        """``[(tiles, shares), 32]``.

        Arguments: text uint32[3, at least (tiles + 1) * S] (as above), gaps uint32 (all ones,
        or 0 if the text has none), checked uint32 (0 if patterns have none either), windows uint32,
        steps uint32[4 r quads] (``steps_of``), quads uint32 (four steps each, per pattern), begin
        uint32 (of a counter, in a kernel for long patterns), k uint32, patterns uint64[2 r blocks]
        (as above), blocks uint32, share uint32 (patterns per block, at most MOST_SHARED),
        count uint32 (r), counters uint32[], own uint32 (the index of the hit counter; hits beyond
        the size of found are counted, not written), found uint64[].
        """
        rows = cuda.shared.array(all_rows, np.uint32)
        masks = cuda.shared.array(all_masks, np.uint32)
        lists = cuda.shared.array(listed, np.uint32)
        linear = cuda.shared.array(linear_shape, np.uint32)
        lane = np.uint32(cuda.threadIdx.x)
        first_word = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(SPAN))
        # the lane's plane, and its place in it
        plane = np.uint32(np.uint32(lane >> np.uint32(3)) & np.uint32(1))
        matrix = np.uint32(lane & np.uint32(7))
        half = np.uint32(lane >> np.uint32(4))
        at = np.uint32(np.uint32(half * np.uint32(WORDS)) + matrix)
        to = np.uint32(np.uint32(plane * np.uint32(linear_words)) + at)
        to = np.uint32(address_of(linear) + np.uint32(to << np.uint32(2)))
        at = np.uint32(np.uint32(plane * np.uint32(text.shape[1])) + np.uint32(first_word + at))
        groups = np.uint32(np.uint32(matrix * np.uint32(4)) + np.uint32(half * np.uint32(2)))
        own_row = np.uint32(
            np.uint32(plane * np.uint32(row)) + np.uint32(groups * np.uint32(group))
        )
        # the planes are staged where their rows will be
        row_address = np.uint32(np.uint32(address_of(rows) + np.uint32(7)) & np.uint32(0xFFFFFFF8))
        lay_rows(
            text, linear, rows, at, to, lane,
            np.uint32(row_address + np.uint32(own_row << np.uint32(2))),
        )  # fmt: skip
        after = np.uint32(np.uint32(SPAN) + np.uint32(lane & np.uint32(15)))
        linear[half, after] = text[half, np.uint32(first_word + after)]
        cuda.syncthreads()
        words = cuda.local.array(all_words, np.uint32)
        # rows 32 j + lane, and those after the last
        own_row = np.uint32(lane + np.uint32(np.uint32(lane >> np.uint32(3)) * np.uint32(2)))
        own_row = np.uint32(own_row << np.uint32(2))
        own_row = np.uint32(row_address + own_row)
        for j in range(warps_of_halo):
            for p in range(2):
                to = np.uint32(own_row + np.uint32(4 * p * row + apart * j))
                word = segment_on(load_shared(rows, to), np.uint32(linear[p, SPAN + j] >> lane))
                store_shared(rows, np.uint32(to + np.uint32(behind)), word)
                words[2 * WORDS + 2 * j + p] = word
        cuda.syncthreads()
        behind_row = np.uint32(own_row + np.uint32(behind))
        own_row = np.uint32(row_address + np.uint32(lane * np.uint32(4 * group)))
        planes_here = keep_rows(rows, own_row)
        # words of both planes: r of the low one, r of the high one, and so on
        for r in range(0, WORDS, 2):
            for p in range(2):
                to = np.uint32(own_row + np.uint32(4 * (p * row + r)))
                words[2 * r + p], words[2 * r + 2 + p] = load_two(rows, to)
        cuda.syncthreads()
        for base in range(BASES):
            for r in range(0, WORDS, 2):
                word = differs(words[2 * r], words[2 * r + 1], base)
                other = differs(words[2 * r + 2], words[2 * r + 3], base)
                to = np.uint32(own_row + np.uint32(4 * (base * row + r)))
                store_two(rows, to, word, other)
            for j in range(warps_of_halo):
                i = 2 * (WORDS + j)
                word = differs(words[i], words[i + 1], base)
                to = np.uint32(behind_row + np.uint32(4 * base * row + apart * j))
                store_shared(rows, to, word)
        for i in range(zeros):
            to = np.uint32(np.uint32(BASES * row + 32 * i) + lane)
            store_shared(rows, np.uint32(row_address + np.uint32(to << np.uint32(2))), np.uint32(0))
        cuda.syncthreads()
        lower = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        lowest = np.uint32(np.uint32(cuda.blockIdx.y) * share)
        stop = min(np.uint32(lowest + share), count)
        origin = np.uint32(first_word * np.uint32(32))
        careful = checked != np.uint32(0) or np.uint32(origin + np.uint32(TILE)) > windows
        mask_address = np.uint32(address_of(masks) + np.uint32(lane << np.uint32(2)))
        list_address = np.uint32(address_of(lists))
        last_place = np.uint32(list_address + np.uint32(4 * (listed - 32)))
        next_place = list_address
        pattern = lowest
        while pattern < stop:
            some = np.uint32(0)
            within = min(np.uint32(batch), np.uint32(stop - pattern))
            step = np.uint32(pattern * quads)
            to = mask_address
            q = np.uint32(0)
            while q < within:
                marked = search(rows, masks, steps, step, quads, begin, own_row, to, *planes_here)
                some = np.uint32(some | np.uint32(marked << np.uint32(q * np.uint32(WORDS))))
                step = np.uint32(step + quads)
                to = np.uint32(to + np.uint32(4 * SPAN))
                q = np.uint32(q + np.uint32(1))
            here = np.uint32(np.uint32(np.uint32(pattern - lowest) // np.uint32(batch)) << 15)
            here = np.uint32(here + lane)
            pattern = np.uint32(pattern + within)
            hits = np.uint32(0)
            code = np.uint32(0)
            writing = np.uint32(1)
            while writing != np.uint32(0):
                some, hits, code, next_place, writing = list_hits(
                    masks, lists, mask_address, here, lower, last_place, some, hits, code,
                    next_place,
                )  # fmt: skip
                listed_now = np.uint32(np.uint32(next_place - list_address) >> np.uint32(2))
                if listed_now == np.uint32(0) or (next_place <= last_place and pattern != stop):
                    continue
                cuda.syncwarp()
                if careful:
                    next_place = list_address
                    first = np.uint32(0)
                    while first < listed_now:
                        at = np.uint32(first + lane)
                        to = min(at, np.uint32(listed_now - np.uint32(1)))
                        hit = load_shared(lists, np.uint32(list_address + np.uint32(to << 2)))
                        window = window_of(hit)
                        p = np.uint32(lowest + pattern_of(hit, batch))
                        wrong = distance(
                            linear, text, gaps, first_word, patterns, blocks, p, window
                        )
                        right = at < listed_now and wrong <= k
                        right = right and np.uint32(origin + window) < windows
                        writing_now = np.uint32(cuda.ballot_sync(ALL_LANES, right))
                        # all lanes have read what some overwrite now
                        cuda.syncwarp()
                        if right:
                            to = bit_count(np.uint32(writing_now & lower))
                            store_shared(lists, np.uint32(next_place + np.uint32(to << 2)), hit)
                        to = bit_count(writing_now)
                        next_place = np.uint32(next_place + np.uint32(to << 2))
                        cuda.syncwarp()
                        first = np.uint32(first + np.uint32(32))
                    listed_now = np.uint32(np.uint32(next_place - list_address) >> np.uint32(2))
                to = np.uint32(0)
                if lane == np.uint32(0):
                    to = cuda.atomic.add(counters, own, listed_now)
                to = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(np.uint32(to)), 0))
                at = lane
                while at < listed_now:
                    hit = load_shared(lists, np.uint32(list_address + np.uint32(at << 2)))
                    window = window_of(hit)
                    p = np.uint32(lowest + pattern_of(hit, batch))
                    wrong = distance(linear, text, gaps, first_word, patterns, blocks, p, window)
                    place_ = np.uint32(to + at)
                    if place_ < np.uint32(out.size):
                        start = np.uint64(np.uint32(origin + window))
                        what = np.uint64(np.uint64(start << np.uint64(START - ID)) | np.uint64(p))
                        what = np.uint64(what << np.uint64(ID))
                        out[place_] = np.uint64(what | np.uint64(wrong))
                    at = np.uint32(at + np.uint32(32))
                next_place = list_address
                cuda.syncwarp()

    return kernel
