"""List the hits of the bit-sliced search in text order.

A block processes a tile (group, TILE columns). It transposes the hits, so that a word holds 32
columns of a segment, and lists them in shared memory by segment and column. Digits of the distance
are looked up in the scan's planes, a plane at a time; then the list is written to the place
computed by ``count``.

A hit in the list, uint32:

    bits   29-20 digits   19-15 segment of its lane   13-2 where its word of a plane is staged

which is byte 512 (column / 4) + 16 (lane ^ column / 4 % 8) + 4 (column % 4): words are stored in
fours, and the hits of a segment are read from different banks. The list has room for LISTED hits
per thread. In a tile with more, a warp takes 32 columns of one segment after another and writes
their hits side by side. Tiles without a hit, by the scan's ``flags``, are skipped.

Operations: 300 to transpose 32 words; per hit about 25 to list, 7 per digit, 25 to write.

Where the hits of a segment go in the list depends on the number of hits before them. So a block of
``count`` first processes a group: it counts the hits of each tile and segment, then their offsets
within the group, and the hits of the group, of which ``places_of`` makes prefix sums. Operations
per word of hits: seven full adders per eight words (Harley-Seal), 3 in all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    REGISTERS,
    SIMULATED,
    bit_count,
    bytes_of,
    cuda,
    device_function,
    instruction,
    load_four,
    load_word,
    lowest_bit,
    stage_four,
    store_four,
    sum_to_lane,
    transposed,
    transposing,
)
from gpu.card.kernel_cache import made
from gpu.card.memory import Workspace

LISTED = 40  # hits of a tile per thread; a multiple of DIGITS
DIGITS = 8  # hits that a thread looks up at once

PITCH = 33
"""Words between rows of 32 in shared memory: rows and columns are read without bank conflicts."""


def _stage_transposed_text() -> str:
    words = [f"w{i}" for i in range(32)]
    lines = [f"{{ {REGISTERS} .reg .u32 {', '.join(words)}; .reg .u64 at;"]
    lines += ["shl.b64 at, $3, 4; add.u64 at, at, $2;"]
    for q in range(8):
        four = ", ".join(words[4 * q : 4 * q + 4])
        lines += [f"ld.global.nc.v4.u32 {{{four}}}, [at + {512 * q}];"]
    lines += [transposing(words), "mad.lo.u32 x, $1, 4, $0;"]
    lines += [f"st.shared.u32 [x + {4 * PITCH * i}], w{i};" for i in range(32)]
    return " ".join([*lines, "}"])


def _stage_transposed(staged: Any, place: Any, sliced: Any, index: Any) -> None:
    words = bytes_of(sliced).view(np.uint32)[4 * int(index) :]
    columns = [words[128 * (i // 4) + i % 4] for i in range(32)]
    staged[int(place) :][: 31 * PITCH + 1 : PITCH] = transposed(columns)


stage_transposed = instruction(
    _stage_transposed_text(),
    (),
    ("shared", "u32", "global", "u64"),
    _stage_transposed,
    volatile=True,
)
"""(staged, place, sliced, index): stage a lane's words of 32 columns, transposed.

Reads fours of words from ``index`` on, 32 apart, and writes words ``place``, place + PITCH, ... of
shared memory: one per segment.
"""


def _add_digits_text() -> str:
    hits = [f"h{i}" for i in range(DIGITS)]
    lines = [f"{{ .reg .u32 at, x, w, {', '.join(hits)}; mad.lo.u32 at, $1, 4, $0;"]
    fours = [", ".join(hits[i : i + 4]) for i in range(0, DIGITS, 4)]
    lines += [f"ld.shared.v4.u32 {{{four}}}, [at + {16 * i}];" for i, four in enumerate(fours)]
    for hit in hits:
        lines += [f"and.b32 x, {hit}, 0x3FFC; add.u32 x, x, $2; ld.shared.u32 w, [x];"]
        lines += [f"shr.b32 x, {hit}, 15; shf.r.wrap.b32 w, w, w, x; and.b32 w, w, 1;"]
        lines += [f"mad.lo.u32 {hit}, w, $3, {hit};"]
    lines += [f"st.shared.v4.u32 [at + {16 * i}], {{{four}}};" for i, four in enumerate(fours)]
    return " ".join([*lines, "}"])


def _add_digits(listed: Any, first: Any, staged: Any, weight: Any) -> None:
    for i in range(int(first), int(first) + DIGITS):
        # values after the last hit are arbitrary
        hit = int(listed[i]) & 0x3FFFFFFF
        word = int(staged[(hit & 0x3FFC) // 4 % staged.size])
        listed[i] = (hit + (word >> (hit >> 15 & 31) & 1) * int(weight)) & 0xFFFFFFFF


add_digits = instruction(
    _add_digits_text(), (), ("shared", "u32", "shared", "u32"), _add_digits, volatile=True
)
"""(listed, first, staged, weight): add a staged plane's digit of that weight to DIGITS hits."""


@device_function
def inside(word, first, low, high):
    """The bits of a word that stand for symbols low <= s < high; bit 0 is symbol ``first``."""
    if first + 32 <= low or first >= high:
        word = np.uint32(0)
    else:
        if first < low:
            word = np.uint32(word & np.uint32(np.uint32(0xFFFFFFFF) << np.uint32(low - first)))
        if first + 32 > high:
            keep = np.uint32(np.uint32(np.uint32(1) << np.uint32(high - first)) - np.uint32(1))
            word = np.uint32(word & keep)
    return word


def emit(tile: int, each: int) -> Callable[..., None]:
    """The kernel; ``[(groups * tiles, searches), tile]``.

    Arguments: sliced, flags, groups, span, low_planes, low, high, counts and offsets as for
    ``counting.count``, k int32, places int64[searches * groups + 1] (of ``places``), room
    int64 (nothing is written if there are more hits), ends uint32[room], distances uint16[room]:
    grouped by search, ends ascending. low_planes <= 10, tile <= 128. ``each``: LISTED.
    """
    warps = tile // 32
    segments = 1024 // tile
    most = each * tile
    pitch = PITCH
    staged_words = tile * PITCH
    shift = np.uint32(15)

    def kernel(
        sliced, flags, groups, span, low_planes, low, high, k, counts, offsets, places, room, ends,
        distances,
    ):  # fmt: skip
        if SIMULATED:
            staged = cuda.shared.array(staged_words, np.uint32)
            listed = cuda.shared.array(most, np.uint32)
        else:
            staged = cuda.shared.array(staged_words, np.uint32, alignment=16)
            listed = cuda.shared.array(most, np.uint32, alignment=16)
        where = cuda.shared.array(1024, np.uint32)
        sums = cuda.shared.array(warps, np.uint32)
        thread = np.uint32(cuda.threadIdx.x)
        warp = np.uint32(thread >> np.uint32(5))
        lane = np.uint32(thread & np.uint32(31))
        tiles = span // tile
        group = cuda.blockIdx.x // tiles
        first = (cuda.blockIdx.x - group * tiles) * tile
        block = cuda.blockIdx.y * groups + group
        here = block * tiles + first // tile
        flag = flags[here * 32 + lane]
        if cuda.ballot_sync(ALL_LANES, flag != np.uint32(0)) == 0:
            return
        if places[groups * cuda.gridDim.y] > room:
            return
        to_hits = places[block]
        least = np.uint32(k + 1)
        over = np.uint32(1 << low_planes)
        size = groups * span * 8
        start = cuda.blockIdx.y * (1 + low_planes) * size + (group * span + first) * 8
        base = group * 1024 * span
        edge = low > base or high < base + 1024 * span
        base += first
        # hits of this thread's segments, of those before them, and in all
        mine = np.uint32(thread * np.uint32(segments))
        place = np.uint32(0)
        for i in range(segments):
            place = np.uint32(place + np.uint32(counts[here * 1024 + mine + i]))
        stop = sum_to_lane(place, lane)
        if lane == 31:
            sums[warp] = stop
        cuda.syncthreads()
        place = np.uint32(stop - place)
        total = np.uint32(0)
        for i in range(warps):
            if i < warp:
                place = np.uint32(place + sums[i])
            total = np.uint32(total + sums[i])
        stop = place
        for i in range(segments):
            at = here * 1024 + mine + i
            where[mine + i] = offsets[at] if total > most else np.uint32(offsets[at] - stop)
            stop = np.uint32(stop + np.uint32(counts[at]))
        stage_transposed(staged, warp * 32 * pitch + lane, sliced, start + warp * 256 + lane)
        cuda.syncthreads()
        if total > most:
            # a warp takes 32 columns of a segment, one per lane
            below = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
            for segment in range(warp * (1024 // warps), (warp + 1) * (1024 // warps)):
                words_at = (segment & 31) * pitch + (segment >> 5)
                symbol = base + segment * span
                to = to_hits + np.int64(where[segment])
                for part in range(warps):
                    word = staged[words_at + part * 32 * pitch]
                    if edge:
                        word = inside(word, symbol, low, high)
                    if np.uint32(word >> lane) & np.uint32(1):
                        at = start + (part * 8 + (lane >> 2)) * 32 + (segment >> 5)
                        at = at * 4 + (lane & 3)
                        digits = np.uint32(0)
                        for plane in range(low_planes):
                            at += size * 4
                            digit = np.uint32(load_word(sliced, at) >> np.uint32(segment & 31))
                            digit = np.uint32(np.uint32(digit & np.uint32(1)) << np.uint32(plane))
                            digits = np.uint32(digits | digit)
                        hit_at = to + np.int64(bit_count(np.uint32(word & below)))
                        ends[hit_at] = np.uint32(symbol + lane + 1)
                        distances[hit_at] = np.uint16(np.uint32(digits + least) - over)
                    to += np.int64(bit_count(word))
                    symbol += 32
            return
        lane_of = np.uint32(mine >> np.uint32(5))
        segment_of = np.uint32(mine & np.uint32(31))
        row = np.uint32(np.uint32(segment_of * np.uint32(pitch)) + lane_of)
        own = np.uint32(np.uint32(segment_of << shift) | np.uint32(lane_of << np.uint32(4)))
        # the next word of this thread's segments, and the rest of the current one
        step = np.uint32(0)
        bits = np.uint32(0)
        entry = np.uint32(0)
        while place < stop:
            if bits == np.uint32(0):
                of = np.uint32(step // np.uint32(warps))
                number = np.uint32(step % np.uint32(warps))
                at = np.uint32(np.uint32(of + np.uint32(number * np.uint32(32))) * np.uint32(pitch))
                bits = staged[np.uint32(row + at)]
                if edge:
                    bits = inside(bits, base + (mine + of) * span + number * 32, low, high)
                entry = np.uint32(np.uint32(of << shift) + np.uint32(number << np.uint32(12)))
                entry = np.uint32(entry + own)
                step = np.uint32(step + np.uint32(1))
            if bits != np.uint32(0):
                bit = lowest_bit(bits)
                bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
                fours = np.uint32(np.uint32(bit & np.uint32(28)) << np.uint32(7))
                listed[place] = np.uint32(entry ^ np.uint32(fours + np.uint32(bit << np.uint32(2))))
                place = np.uint32(place + np.uint32(1))
        cuda.syncthreads()
        for plane in range(low_planes):
            for i in range(thread, tile * 8, tile):
                a, b, c, d = load_four(sliced, start + size * (1 + plane) + i)
                stage_four(staged, i ^ (i >> 5 & 7), a, b, c, d)
            cuda.syncthreads()
            weight = np.uint32(np.uint32(1) << np.uint32(20 + plane))
            for j in range(thread * DIGITS, np.int64(total), tile * DIGITS):
                add_digits(listed, j, staged, weight)
            cuda.syncthreads()
        from_first = np.uint32(base + 1)
        for j in range(thread, np.int64(total), tile):
            hit = listed[j]
            fours = np.uint32(np.uint32(hit >> np.uint32(9)) & np.uint32(31))
            of = np.uint32(np.uint32(hit >> np.uint32(4)) ^ np.uint32(fours & np.uint32(7)))
            of = np.uint32(np.uint32(of & np.uint32(31)) << np.uint32(5))
            of = np.uint32(of | np.uint32(np.uint32(hit >> shift) & np.uint32(31)))
            column = np.uint32(np.uint32(hit >> np.uint32(2)) & np.uint32(3))
            column = np.uint32(column + np.uint32(fours << np.uint32(2)))
            end = np.uint32(np.uint32(from_first + column) + np.uint32(of * np.uint32(span)))
            to = to_hits + np.int64(np.uint32(where[of] + np.uint32(j)))
            ends[to] = end
            distances[to] = np.uint16(np.uint32(np.uint32(hit >> np.uint32(20)) + least) - over)

    return kernel


COUNT_THREADS = 1024  # threads per block; a power of two from 32 to 1,024


def _full_adder(total: str, own: str, other: str, carry: str) -> str:
    """total += one + other, bit by bit; carry may be one of them."""
    return (
        f"lop3.b32 t, {total}, {own}, {other}, 0x96; lop3.b32 {carry}, {total}, {own}, {other}, "
        f"0xE8; mov.b32 {total}, t;"
    )


def _add_text() -> str:
    """$0 to $7, from $8 to $15: counts of bits, ones first; $16 to $23: words to be counted."""
    lines = ["{ .reg .u32 t, a, b, c, d;", *(f"mov.b32 ${i}, ${8 + i};" for i in range(8))]
    for carry, first in (("c", 16), ("d", 20)):
        lines += [_full_adder("$0", f"${first}", f"${first + 1}", "a")]
        lines += [_full_adder("$0", f"${first + 2}", f"${first + 3}", "b")]
        lines += [_full_adder("$1", "a", "b", carry)]
    lines += [_full_adder("$2", "c", "d", "a")]
    for i in range(3, 8):
        lines += [f"and.b32 t, ${i}, a; xor.b32 ${i}, ${i}, a; mov.b32 a, t;"]
    return " ".join([*lines, "}"])


def _add(*words: Any) -> Any:
    counts = list(words[:8])
    for word in words[8:]:
        for i in range(8):
            counts[i], word = counts[i] ^ word, counts[i] & word
    return tuple(counts)


add_eight = instruction(_add_text(), ("u32",) * 8, ("u32",) * 16, _add)
"""(counts, eight words): add the words' bits to one count per bit position, in eight planes."""


def _bytes_text() -> str:
    out = [f"${i}" for i in range(8)]
    moves = " ".join(f"mov.b32 ${i}, ${8 + i};" for i in range(8))
    turns = " ".join(
        [transposing(out, (4, 2, 1)), *(transposing(out[i : i + 4], (16, 8)) for i in (0, 4))]
    )
    return f"{{ {REGISTERS} {moves} {turns} }}"


def _bytes(*planes: Any) -> Any:
    columns = transposed([*planes, *[0] * 24]).astype(np.uint8).view(np.uint32)
    return (*columns[::2], *columns[1::2])


as_bytes = instruction(_bytes_text(), ("u32",) * 8, ("u32",) * 8, _bytes)
"""Counts in planes to bytes: bits 8 j to 8 j + 3 in word j, the next four in word 4 + j."""


@device_function
def segments_before(base, span, limit):
    """How many of a lane's segments, from ``base`` on, lie wholly in the first ``limit`` symbols.

    Also returns how many columns of the next one do.
    """
    whole = np.int64(0)
    rest = np.int64(0)
    if limit >= base + 32 * span:
        whole = np.int64(32)
    elif limit > base:
        whole = (limit - base) // span
        rest = limit - base - whole * span
    return whole, rest


@device_function
def bits_between(low_whole, low_rest, high_whole, high_rest, column):
    """The bits of the segments whose symbol at ``column`` is between the low and high limits."""
    below = np.uint64(1) << np.uint64(low_whole + (column < low_rest))
    above = np.uint64(1) << np.uint64(high_whole + (column < high_rest))
    return np.uint32(np.uint64(above - np.uint64(1)) & ~np.uint64(below - np.uint64(1)))


def count(threads: int, tile: int) -> Callable[..., None]:
    """The kernel ``[(groups, searches), threads]``.

    Arguments: sliced and flags as ``strips.scan`` leaves them, groups, span int64, low_planes
    int32, low, high int64 (hits with low < end <= high), counts uint8[searches * groups * tiles *
    1024], offsets uint32 of the same size, totals int64[searches * groups]. For a group without
    hits only the total is set.
    """
    warps = threads // 32
    flag = warps  # a word after the sums
    room = warps + 1
    each = 1024 // threads

    def kernel(sliced, flags, groups, span, low_planes, low, high, counts, offsets, totals):
        sums = cuda.shared.array(room, np.uint32)
        thread = np.int64(cuda.threadIdx.x)
        warp = thread >> 5
        lane = thread & 31
        tiles = span // tile
        group = cuda.blockIdx.x
        block = cuda.blockIdx.y * groups + group
        if thread == 0:
            sums[flag] = np.uint32(0)
        cuda.syncthreads()
        some = np.uint32(0)
        for at in range(thread, tiles * 32, threads):
            some = np.uint32(some | flags[block * tiles * 32 + at])
        if cuda.ballot_sync(ALL_LANES, some != np.uint32(0)) != 0 and lane == 0:
            cuda.atomic.max(sums, flag, np.uint32(1))
        cuda.syncthreads()
        if sums[flag] == np.uint32(0):
            if thread == 0:
                totals[block] = 0
            return
        base = (group * 32 + lane) * 32 * span
        edge = low > base or high < base + 32 * span
        low_whole, low_rest = segments_before(base, span, low)
        high_whole, high_rest = segments_before(base, span, high)
        start = (cuda.blockIdx.y * (1 + low_planes) * groups + group) * span * 8 + lane
        for number in range(warp, tiles, warps):
            here = block * tiles + number
            c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = np.uint32(0)
            if flags[here * 32 + lane] != np.uint32(0):
                for column in range(number * tile, number * tile + tile, 8):
                    at = start + column * 8
                    w0, w1, w2, w3 = load_four(sliced, at)
                    w4, w5, w6, w7 = load_four(sliced, at + 32)
                    if edge:
                        w0 &= bits_between(low_whole, low_rest, high_whole, high_rest, column)
                        w1 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 1)
                        w2 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 2)
                        w3 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 3)
                        w4 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 4)
                        w5 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 5)
                        w6 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 6)
                        w7 &= bits_between(low_whole, low_rest, high_whole, high_rest, column + 7)
                    c0, c1, c2, c3, c4, c5, c6, c7 = add_eight(
                        c0, c1, c2, c3, c4, c5, c6, c7, w0, w1, w2, w3, w4, w5, w6, w7
                    )
            c0, c1, c2, c3, c4, c5, c6, c7 = as_bytes(c0, c1, c2, c3, c4, c5, c6, c7)
            store_four(counts, here * 64 + lane * 2, c0, c4, c1, c5)
            store_four(counts, here * 64 + lane * 2 + 1, c2, c6, c3, c7)
        cuda.syncthreads()
        total = np.uint32(0)
        of_group = block * tiles * 1024
        for at in range(of_group + thread * each, of_group + thread * each + each):
            for number in range(tiles):
                total = np.uint32(total + np.uint32(counts[at + number * 1024]))
        upto = sum_to_lane(total, lane)
        if lane == 31:
            sums[warp] = upto
        cuda.syncthreads()
        if warp == 0:
            value = sum_to_lane(sums[lane] if lane < warps else np.uint32(0), lane)
            if lane < warps:
                sums[lane] = value
        cuda.syncthreads()
        if thread == 0:
            totals[block] = np.int64(sums[warps - 1])
        place = np.uint32(upto - total)
        if warp > 0:
            place = np.uint32(place + sums[warp - 1])
        for at in range(of_group + thread * each, of_group + thread * each + each):
            for number in range(tiles):
                offsets[at + number * 1024] = place
                place = np.uint32(place + np.uint32(counts[at + number * 1024]))

    return kernel


PLACE_THREADS = 256  # threads of the block; any number


def sums_before(threads: int) -> Callable[..., None]:
    """The kernel ``[1, threads]``; each thread sums a range.

    Arguments: counts int64[searches * blocks], blocks, searches int64, out int64[searches * blocks
    + 1], begins int64[searches + 1]: out at the first block of each search, and the sum of all.
    """

    def kernel(counts, blocks, searches, out, begins):
        sums = cuda.shared.array(threads, np.int64)
        thread = cuda.threadIdx.x
        size = blocks * searches
        stretch = (size + threads - 1) // threads
        first = min(thread * stretch, size)
        stop = min(first + stretch, size)
        total = np.int64(0)
        for i in range(first, stop):
            total += counts[i]
        sums[thread] = total
        cuda.syncthreads()
        if thread == 0:
            total = np.int64(0)
            for i in range(threads):
                here = sums[i]
                sums[i] = total
                total += here
            out[size] = total
            begins[searches] = total
        cuda.syncthreads()
        total = sums[thread]
        for i in range(first, stop):
            out[i] = total
            if i % blocks == 0:
                begins[i // blocks] = total
            total += counts[i]

    return kernel


def places_of(counts: Any, blocks: int, searches: int, space: Workspace) -> tuple[Any, Any]:
    """``out`` and ``begins`` of ``sums_before`` for counts int64[searches * blocks]."""
    out = space.array("places", searches * blocks + 1, np.int64)
    begins = space.array("begins", searches + 1, np.int64, exact=True)
    made(sums_before, PLACE_THREADS)[1, PLACE_THREADS, space.stream](
        counts, blocks, searches, out, begins
    )
    return out, begins
