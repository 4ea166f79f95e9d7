"""The kernel ``bit_sliced``: 32 windows a word, mismatches counted by networks of full adders.

A block is a warp. It takes a tile of 32 S windows and some patterns, a lane W words, S = 32 W. The
tile lies in shared memory as rows of S words, 32 segments of S symbols side by side, so that "j
symbols on" is "j words on", without a shift:

    rows     uint32[.][S + HALO]    bit i of rows[c][w + j]: window i S + w has no c at symbol j

and a row of ones if patterns have gap codes. The HALO words behind a row are its first ones, a
segment on: shifted by one bit, the next tile's first bit on top. A warp makes 32 words of a row
from 32 words of the text's planes (planes.py), one of each segment, by turning them as a matrix of
bits: 5 exchanges between lanes, about 35 operations a word for all rows.

A symbol of a pattern is then one shared load a word, at an offset that is the same for the block,
and 12 of them with k = 4 take 17 three-input operations (network.py): for eight patterns of 12, 136
operations and 96 loads for 32 windows. Patterns above 32 symbols are added to a counter 16 at a
time.

Hits are few, and in other words in every lane. So the words of a batch of patterns go to shared
memory, a bit for each that is not zero stays in a register, and then each lane goes through its
own, a hit of each lane at a time. Hits are listed in shared memory, so that for what takes longer,
the distance and writing, all lanes have work; the planes of the tile stay there for the distances,
since 32 loads from as many places of global memory cost as much as all the rest of a hit.

    listed   31 batch 15 | 14 segment 10 | 9 word of the batch 0

A hit is a uint64 in global memory, in no order:

    63              36 35                       8 7          0
    [ start in chunk ] [ index of the pattern   ] [ distance ]
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function
from gpu.kernels.hamming import planes
from gpu.kernels.hamming.search import mark, search_for
from gpu.kernels.hamming.shape import BASES, Shape
from gpu.shared_memory import address_of, load_word, store_word

BATCH = 4
"""Patterns between two looks at the hits; BATCH words a thread, at most 32 together."""

LISTED = 128
"""Hits that a warp lists before it writes them: a multiple of 32, above 32."""

MOST_SHARED = BATCH << 17
"""Patterns a block, at most: a listed hit has 17 bits for their batch."""


@device_function
def _lowest(bits):  # type: ignore[no-untyped-def]
    """The lowest set bit of a uint32 that has one, by number."""
    return np.uint32(np.uint32(cuda.ffs(bits)) - np.uint32(1))


@device_function
def _inside(windows, first, span):  # type: ignore[no-untyped-def]
    """The bits i of a word for which window first + i * span is below ``windows``."""
    if first >= windows:
        return np.uint32(0)
    count = np.uint32(
        np.uint32(np.uint32(windows - first) + np.uint32(span - np.uint32(1))) // span
    )
    if count >= np.uint32(32):
        return np.uint32(0xFFFFFFFF)
    return np.uint32(np.uint32(np.uint32(1) << count) - np.uint32(1))


def _chosen(word, other, turn, keep):  # type: ignore[no-untyped-def]
    turn = int(turn) & 31
    turned = np.uint32((int(other) << turn | int(other) >> (32 - turn)) & 0xFFFFFFFF)
    return np.uint32(np.uint32(word & keep) | np.uint32(turned & np.uint32(~keep)))


# 0xE4: c ? a : b
chosen = instruction(
    "{ .reg .b32 r; shf.l.wrap.b32 r, $2, $2, $3; lop3.b32 $0, $1, r, $4, 0xE4; }",
    ("u32",), ("u32", "u32", "u32", "u32"), _chosen,
)  # fmt: skip
"""The bits ``keep`` of a word, and the others of another one turned to the left."""


@device_function
def _exchange(matrices, first, stop, lane, apart, shift, low):  # type: ignore[no-untyped-def]
    """Lanes ``apart`` = 2**shift swap halves of their bits; ``low``: those that the first keeps."""
    back = np.uint32(np.uint32(lane >> shift) & np.uint32(1))
    flip = np.uint32(back * np.uint32(0xFFFFFFFF))
    turn = np.uint32(np.uint32(np.uint32(apart) ^ flip) + back)
    for i in range(first, stop):
        other = np.uint32(cuda.shfl_xor_sync(ALL_LANES, as_signed(matrices[i]), apart))
        matrices[i] = chosen(matrices[i], other, turn, np.uint32(low ^ flip))


@device_function
def _turn(matrices, first, stop, lane):  # type: ignore[no-untyped-def]
    """Turn the matrices [first, stop), a row a lane: bit i of lane b where lane i had bit b.

    In each step lanes 16, 8, ... apart exchange halves of their bits: 5 exchanges, 10 operations.
    """
    _exchange(matrices, first, stop, lane, 16, np.uint32(4), np.uint32(0x0000FFFF))
    _exchange(matrices, first, stop, lane, 8, np.uint32(3), np.uint32(0x00FF00FF))
    _exchange(matrices, first, stop, lane, 4, np.uint32(2), np.uint32(0x0F0F0F0F))
    _exchange(matrices, first, stop, lane, 2, np.uint32(1), np.uint32(0x33333333))
    _exchange(matrices, first, stop, lane, 1, np.uint32(0), np.uint32(0x55555555))


def bit_sliced(shape: Shape) -> Callable[..., None]:
    """The kernel of one shape."""
    words, span, halo, row = shape.words, shape.span, shape.halo, shape.row
    batch = BATCH
    listed = LISTED
    fixed, gapped = shape.fixed, int(shape.gapped)
    all_rows = (BASES + fixed) * row
    all_masks = batch * span
    all_matrices = 3 * words
    linear_words = span + halo // 32 + 1
    linear_shape = (3, linear_words)
    search = search_for(shape)
    distance = planes.distance_of_short if shape.length else planes.distance

    def kernel(  # type: ignore[no-untyped-def]
        text, gaps, windows, steps, pairs, begin, patterns, blocks, share, count, counters, own,
        found,
    ):  # fmt: skip
        """``[(tiles, shares), 32]``.

        Arguments: text uint32[3, at least (tiles + 1) * S] (planes.py), gaps uint32 (all ones, or 0
        if the text has none), windows uint32, steps uint64[2 r pairs] (``steps_of``), pairs uint32
        (pairs of words a pattern), begin uint32 (of a counter, in a kernel for long patterns),
        patterns uint64[2 r blocks] (planes.py), blocks uint32, share uint32 (patterns a block, at
        most MOST_SHARED), count uint32 (r), counters uint32[], own uint32 (of them; hits
        so far, those beyond found are not written), found uint64[].
        """
        rows = cuda.shared.array(all_rows, np.uint32)
        masks = cuda.shared.array(all_masks, np.uint32)
        lists = cuda.shared.array(listed, np.uint32)
        linear = cuda.shared.array(linear_shape, np.uint32)
        lane = np.uint32(cuda.threadIdx.x)
        tile = np.uint32(cuda.blockIdx.x)
        first_word = np.uint32(tile * np.uint32(span))
        matrices = cuda.local.array(all_matrices, np.uint32)
        to = np.uint32(lane * np.uint32(words))
        at = np.uint32(first_word + to)
        for i in range(words):
            matrices[i] = text[0, np.uint32(at + np.uint32(i))]
            matrices[words + i] = text[1, np.uint32(at + np.uint32(i))]
            matrices[2 * words + i] = np.uint32(0)
        if gaps != np.uint32(0):
            for i in range(words):
                matrices[2 * words + i] = text[2, np.uint32(at + np.uint32(i))]
        for plane in range(3):
            for i in range(words):
                linear[plane, np.uint32(to + np.uint32(i))] = matrices[plane * words + i]
            if lane < np.uint32(linear_words - span):
                at = np.uint32(np.uint32(span) + lane)
                linear[plane, at] = text[plane, np.uint32(first_word + at)]
                if plane == 2:
                    linear[plane, at] = np.uint32(linear[plane, at] & gaps)
        _turn(matrices, 0, 2 * words, lane)
        if gaps != np.uint32(0):
            _turn(matrices, 2 * words, 3 * words, lane)
        for i in range(words):
            to = np.uint32(np.uint32(i * 32) + lane)
            for base in range(BASES):
                low = np.uint32(matrices[i] ^ np.uint32(0xFFFFFFFF * (base & 1)))
                high = np.uint32(matrices[words + i] ^ np.uint32(0xFFFFFFFF * (base >> 1)))
                rows[np.uint32(to + np.uint32(base * row))] = np.uint32(
                    np.uint32(low | high) | matrices[2 * words + i]
                )
        cuda.syncthreads()
        at = lane
        while at < np.uint32(halo):
            after = np.uint32(np.uint32(span) + np.uint32(at >> np.uint32(5)))
            bit = np.uint32(at & np.uint32(31))
            for base in range(BASES):
                low = np.uint32(linear[0, after] ^ np.uint32(0xFFFFFFFF * (base & 1)))
                high = np.uint32(linear[1, after] ^ np.uint32(0xFFFFFFFF * (base >> 1)))
                last = np.uint32(np.uint32(low | high) | linear[2, after])
                last = np.uint32(np.uint32(last >> bit) << np.uint32(31))
                here = np.uint32(at + np.uint32(base * row))
                rows[np.uint32(here + np.uint32(span))] = np.uint32(
                    np.uint32(rows[here] >> np.uint32(1)) | last
                )
            at = np.uint32(at + np.uint32(32))
        for j in range(fixed):
            at = lane
            while at < np.uint32(row):
                ones = np.uint32(0xFFFFFFFF if j < gapped else 0)
                rows[np.uint32(at + np.uint32((BASES + j) * row))] = ones
                at = np.uint32(at + np.uint32(32))
        cuda.syncthreads()
        lower = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        lowest = np.uint32(np.uint32(cuda.blockIdx.y) * share)
        stop = min(np.uint32(lowest + share), count)
        origin = np.uint32(first_word * np.uint32(32))
        row_address = np.uint32(address_of(rows) + np.uint32(np.uint32(4) * lane))
        mask_address = np.uint32(address_of(masks) + np.uint32(np.uint32(4) * lane))
        ragged = np.uint32(origin + np.uint32(32 * span)) > windows
        list_address = np.uint32(address_of(lists))
        last_place = np.uint32(list_address + np.uint32(4 * (listed - 32)))
        next_place = list_address
        pattern = lowest
        while pattern < stop:
            some = np.uint32(0)
            within = min(np.uint32(batch), np.uint32(stop - pattern))
            step = np.uint32(pattern * pairs)
            to = mask_address
            q = np.uint32(0)
            while q < within:
                marked = search(rows, masks, steps, step, pairs, begin, row_address, to)
                some = np.uint32(some | np.uint32(marked << np.uint32(q * np.uint32(words))))
                step = np.uint32(step + pairs)
                to = np.uint32(to + np.uint32(4 * span))
                q = np.uint32(q + np.uint32(1))
            if ragged:
                some = np.uint32(0)
                bit = np.uint32(0)
                while bit < np.uint32(within * np.uint32(words)):
                    at = np.uint32(np.uint32(bit * np.uint32(32)) + lane)
                    first = np.uint32(origin + np.uint32(at % np.uint32(span)))
                    hits = np.uint32(masks[at] & _inside(windows, first, np.uint32(span)))
                    masks[at] = hits
                    some = mark(some, hits, np.uint32(np.uint32(1) << bit))
                    bit = np.uint32(bit + np.uint32(1))
            here = np.uint32(np.uint32(np.uint32(pattern - lowest) // np.uint32(batch)) << 15)
            here = np.uint32(here + lane)
            pattern = np.uint32(pattern + within)
            hits = np.uint32(0)
            code = np.uint32(0)
            writing = np.uint32(1)
            while writing != np.uint32(0):
                while writing != np.uint32(0) and next_place <= last_place:
                    if hits == np.uint32(0) and some != np.uint32(0):
                        bit = _lowest(some)
                        some = np.uint32(some & np.uint32(some - np.uint32(1)))
                        hits = load_word(masks, np.uint32(mask_address + np.uint32(bit << 7)))
                        code = np.uint32(here + np.uint32(bit << np.uint32(5)))
                    writing = np.uint32(cuda.ballot_sync(ALL_LANES, hits != np.uint32(0)))
                    if hits != np.uint32(0):
                        before = np.uint32(cuda.popc(np.uint32(writing & lower)))
                        at = np.uint32(next_place + np.uint32(np.uint32(4) * before))
                        store_word(lists, at, np.uint32(code + np.uint32(_lowest(hits) << 10)))
                        hits = np.uint32(hits & np.uint32(hits - np.uint32(1)))
                    listed_now = np.uint32(cuda.popc(writing))
                    next_place = np.uint32(next_place + np.uint32(np.uint32(4) * listed_now))
                held = np.uint32(np.uint32(next_place - list_address) >> np.uint32(2))
                if held != np.uint32(0) and (next_place > last_place or pattern == stop):
                    cuda.syncwarp()
                    to = np.uint32(0)
                    if lane == np.uint32(0):
                        to = cuda.atomic.add(counters, own, held)
                    to = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(np.uint32(to)), 0))
                    at = lane
                    while at < held:
                        hit = load_word(lists, np.uint32(list_address + np.uint32(at << 2)))
                        word = np.uint32(hit & np.uint32(1023))
                        segment = np.uint32(np.uint32(hit >> np.uint32(10)) & np.uint32(31))
                        window = np.uint32(np.uint32(word % np.uint32(span)))
                        window = np.uint32(window + np.uint32(segment * np.uint32(span)))
                        p = np.uint32(np.uint32(hit >> np.uint32(15)) * np.uint32(batch))
                        p = np.uint32(np.uint32(p + np.uint32(word // np.uint32(span))) + lowest)
                        wrong = distance(linear, gaps, patterns, blocks, p, window)
                        place = np.uint32(to + at)
                        if place < np.uint32(found.size):
                            start = np.uint64(np.uint32(origin + window))
                            what = np.uint64(np.uint64(start << np.uint64(28)) | np.uint64(p))
                            what = np.uint64(what << np.uint64(8))
                            found[place] = np.uint64(what | np.uint64(wrong))
                        at = np.uint32(at + np.uint32(32))
                    next_place = list_address
                    cuda.syncwarp()

    return kernel


def signature() -> tuple[str, ...]:
    """The argument types of the kernel."""
    return (
        "uint32[:,::1]", "uint32", "uint32", "uint64[::1]", "uint32", "uint32", "uint64[::1]",
        "uint32", "uint32", "uint32", "uint32[::1]", "uint32", "uint64[::1]",
    )  # fmt: skip
