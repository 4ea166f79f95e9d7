"""The kernel ``bit_sliced``: 32 windows a word, mismatches counted by networks of full adders.

A block takes a tile of 32 S windows and some patterns; a thread W words, S = THREADS W. The tile
lies in shared memory as rows of S words, 32 segments of S symbols side by side, so that "j symbols
on" is "j words on", without a shift:

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
the distance and writing, all lanes have work. A hit is a uint64 in global memory, in no order:

    63              36 35                       8 7          0
    [ start in chunk ] [ index of the pattern   ] [ distance ]
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function
from gpu.kernels.hamming import planes
from gpu.kernels.hamming.search import mark, search_for
from gpu.kernels.hamming.shape import BASES, Shape
from gpu.shared_memory import address_of, load_word, store_word

BATCH = 4
"""Patterns between two looks at the hits; BATCH words a thread, at most 32 together."""

LISTED = 256
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


@device_function
def _exchanged(word, step, turn, keep):  # type: ignore[no-untyped-def]
    """One step of turning a matrix of bits, a row a lane: the other half of the bits is swapped.

    turn: to the left, for lanes without the bit ``step``; back for the others. keep: the half that
    stays.
    """
    other = np.uint32(cuda.shfl_xor_sync(ALL_LANES, as_signed(word), step))
    back = np.uint32(other >> np.uint32(np.uint32(32) - turn))
    other = np.uint32(np.uint32(other << turn) | back)
    return np.uint32(np.uint32(word & keep) | np.uint32(other & np.uint32(~keep)))


@device_function
def _half(lane, step, low):  # type: ignore[no-untyped-def]
    """turn and keep of ``_exchanged`` for a lane; low: the lower of 2 * ``step`` bits each."""
    if np.uint32(lane & np.uint32(step)) != np.uint32(0):
        return np.uint32(32 - step), np.uint32(~np.uint32(low))
    return np.uint32(step), np.uint32(low)


@device_function
def _turn(matrices, count, lane):  # type: ignore[no-untyped-def]
    """Each of ``count`` words: bit i of lane b where lane i had bit b."""
    turn, keep = _half(lane, 16, 0x0000FFFF)
    for i in range(count):
        matrices[i] = _exchanged(matrices[i], 16, turn, keep)
    turn, keep = _half(lane, 8, 0x00FF00FF)
    for i in range(count):
        matrices[i] = _exchanged(matrices[i], 8, turn, keep)
    turn, keep = _half(lane, 4, 0x0F0F0F0F)
    for i in range(count):
        matrices[i] = _exchanged(matrices[i], 4, turn, keep)
    turn, keep = _half(lane, 2, 0x33333333)
    for i in range(count):
        matrices[i] = _exchanged(matrices[i], 2, turn, keep)
    turn, keep = _half(lane, 1, 0x55555555)
    for i in range(count):
        matrices[i] = _exchanged(matrices[i], 1, turn, keep)


@device_function
def _differs(low, high, gap, base):  # type: ignore[no-untyped-def]
    """Where the symbols of three planes are not that base."""
    if base & 1:
        low = np.uint32(~low)
    if base & 2:
        high = np.uint32(~high)
    return np.uint32(np.uint32(low | high) | gap)


@device_function
def _write(found, place, start, p, wrong):  # type: ignore[no-untyped-def]
    """A hit word, if there is room for it."""
    if place < np.uint32(found.size):
        where = np.uint64(np.uint64(start) << np.uint64(36))
        what = np.uint64(np.uint64(p) << np.uint64(8))
        found[place] = np.uint64(np.uint64(where | what) | np.uint64(wrong))


def _listed_at(shape: Shape) -> Any:
    """The device function that reads a listed hit:

    31            15 14           10 9      5 4          0
    [ batch        ] [ word of it  ] [ lane ] [ segment  ]

    ``listed_at(lists, address, first)`` returns its start and its pattern's number in the block;
    first: the start of segment 0 and word 0 for the warp's lane 0.
    """
    words, threads, span = shape.words, shape.threads, shape.span
    batch = BATCH

    def listed_at(lists, address, first):  # type: ignore[no-untyped-def]
        hit = load_word(lists, address)
        segment = np.uint32(hit & np.uint32(31))
        lane = np.uint32(np.uint32(hit >> np.uint32(5)) & np.uint32(31))
        word = np.uint32(np.uint32(hit >> np.uint32(10)) & np.uint32(31))
        start = np.uint32(np.uint32(segment * np.uint32(span)) + lane)
        start = np.uint32(start + np.uint32(np.uint32(word % np.uint32(words)) * threads))
        p = np.uint32(np.uint32(hit >> np.uint32(15)) * np.uint32(batch))
        return np.uint32(start + first), np.uint32(p + np.uint32(word // np.uint32(words)))

    return device_function(listed_at)


def bit_sliced(shape: Shape) -> Callable[..., None]:
    """The kernel of one shape."""
    threads, words = shape.threads, shape.words
    span, halo, row = shape.span, shape.halo, shape.row
    batch = BATCH
    listed = LISTED
    fixed, gapped = shape.fixed, int(shape.gapped)
    all_rows = (BASES + fixed) * row
    all_masks = batch * words * threads
    all_listed = threads // 32 * listed
    search = search_for(shape)
    listed_at = _listed_at(shape)
    distance = planes.distance_of_short if shape.length else planes.distance

    def kernel(  # type: ignore[no-untyped-def]
        text, gaps, windows, steps, pairs, begin, patterns, blocks, share, count, counter, found
    ):  # fmt: skip
        """``[(tiles, shares), threads]``.

        Arguments: text uint32[3, at least (tiles + 1) * S] (planes.py), gaps uint32 (all ones, or 0
        if the text has none), windows uint32, steps uint64[2 r pairs] (``steps_of``), pairs uint32
        (pairs of words a pattern), begin uint32 (of a counter, in a kernel for long patterns),
        patterns uint64[2 r blocks] (planes.py), blocks uint32, share uint32 (patterns a block, at
        most MOST_SHARED), count uint32 (r), counter uint32[1] (hits so far; those beyond found are
        not written), found uint64[].
        """
        rows = cuda.shared.array(all_rows, np.uint32)
        masks = cuda.shared.array(all_masks, np.uint32)
        lists = cuda.shared.array(all_listed, np.uint32)
        own = np.uint32(cuda.threadIdx.x)
        lane = np.uint32(own & np.uint32(31))
        warp = np.uint32(own >> np.uint32(5))
        tile = np.uint32(cuda.blockIdx.x)
        first_word = np.uint32(tile * np.uint32(span))
        lows = cuda.local.array(words, np.uint32)
        highs = cuda.local.array(words, np.uint32)
        others = cuda.local.array(words, np.uint32)
        group = np.uint32(warp * np.uint32(words))
        at = np.uint32(np.uint32(first_word + np.uint32(lane * np.uint32(span // 32))) + group)
        for i in range(words):
            lows[i] = text[0, np.uint32(at + np.uint32(i))]
            highs[i] = text[1, np.uint32(at + np.uint32(i))]
            others[i] = np.uint32(0)
        if gaps != np.uint32(0):
            for i in range(words):
                others[i] = text[2, np.uint32(at + np.uint32(i))]
        _turn(lows, words, lane)
        _turn(highs, words, lane)
        if gaps != np.uint32(0):
            _turn(others, words, lane)
        for i in range(words):
            low, high, gap = lows[i], highs[i], others[i]
            group = np.uint32(np.uint32(warp * np.uint32(words)) + np.uint32(i))
            to = np.uint32(np.uint32(group * np.uint32(32)) + lane)
            for base in range(BASES):
                rows[np.uint32(to + np.uint32(base * row))] = _differs(low, high, gap, base)
            for j in range(fixed):
                rows[np.uint32(to + np.uint32((BASES + j) * row))] = np.uint32(
                    0xFFFFFFFF if j < gapped else 0
                )
        cuda.syncthreads()
        at = own
        while at < np.uint32(halo):
            after = np.uint32(np.uint32(first_word + np.uint32(span)) + np.uint32(at >> 5))
            bit = np.uint32(at & np.uint32(31))
            low = np.uint32(text[0, after] >> bit)
            high = np.uint32(text[1, after] >> bit)
            gap = np.uint32(0)
            if gaps != np.uint32(0):
                gap = np.uint32(text[2, after] >> bit)
            for base in range(BASES):
                here = np.uint32(at + np.uint32(base * row))
                last = np.uint32(_differs(low, high, gap, base) << np.uint32(31))
                rows[np.uint32(here + np.uint32(span))] = np.uint32(
                    np.uint32(rows[here] >> np.uint32(1)) | last
                )
            for j in range(fixed):
                rows[np.uint32(at + np.uint32((BASES + j) * row + span))] = np.uint32(
                    0xFFFFFFFF if j < gapped else 0
                )
            at = np.uint32(at + np.uint32(threads))
        cuda.syncthreads()
        lower = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        lowest = np.uint32(np.uint32(cuda.blockIdx.y) * share)
        stop = min(np.uint32(lowest + share), count)
        origin = np.uint32(first_word * np.uint32(32))
        row_address = np.uint32(address_of(rows) + np.uint32(np.uint32(4) * own))
        mask_address = np.uint32(address_of(masks) + np.uint32(np.uint32(4) * own))
        ragged = np.uint32(origin + np.uint32(32 * span)) > windows
        list_address = np.uint32(address_of(lists) + np.uint32(warp * np.uint32(4 * listed)))
        last_place = np.uint32(list_address + np.uint32(4 * (listed - 32)))
        next_place = list_address
        warp_start = np.uint32(origin + np.uint32(own - lane))
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
                to = np.uint32(to + np.uint32(4 * words * threads))
                q = np.uint32(q + np.uint32(1))
            if ragged:
                some = np.uint32(0)
                for i in range(batch * words):
                    at = np.uint32(np.uint32(i * threads) + own)
                    first = np.uint32(np.uint32(origin + own) + np.uint32(i % words * threads))
                    if np.uint32(i // words) < within:
                        hits = np.uint32(masks[at] & _inside(windows, first, np.uint32(span)))
                        masks[at] = hits
                        some = mark(some, hits, np.uint32(1 << i))
            here = np.uint32(np.uint32(np.uint32(pattern - lowest) // np.uint32(batch)) << 15)
            here = np.uint32(here + np.uint32(lane << np.uint32(5)))
            pattern = np.uint32(pattern + within)
            hits = np.uint32(0)
            code = np.uint32(0)
            writing = np.uint32(1)
            while writing != np.uint32(0):
                while writing != np.uint32(0) and next_place <= last_place:
                    if hits == np.uint32(0) and some != np.uint32(0):
                        bit = _lowest(some)
                        some = np.uint32(some & np.uint32(some - np.uint32(1)))
                        at = np.uint32(mask_address + np.uint32(bit * np.uint32(4 * threads)))
                        hits = load_word(masks, at)
                        code = np.uint32(here + np.uint32(bit << np.uint32(10)))
                    writing = np.uint32(cuda.ballot_sync(ALL_LANES, hits != np.uint32(0)))
                    if hits != np.uint32(0):
                        before = np.uint32(cuda.popc(np.uint32(writing & lower)))
                        listed_hit = np.uint32(code + _lowest(hits))
                        at = np.uint32(next_place + np.uint32(np.uint32(4) * before))
                        store_word(lists, at, listed_hit)
                        hits = np.uint32(hits & np.uint32(hits - np.uint32(1)))
                    listed_now = np.uint32(cuda.popc(writing))
                    next_place = np.uint32(next_place + np.uint32(np.uint32(4) * listed_now))
                held = np.uint32(np.uint32(next_place - list_address) >> np.uint32(2))
                if held != np.uint32(0) and (next_place > last_place or pattern == stop):
                    cuda.syncwarp()
                    to = np.uint32(0)
                    if lane == np.uint32(0):
                        to = cuda.atomic.add(counter, 0, held)
                    to = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(np.uint32(to)), 0))
                    at = lane
                    while at < held:
                        # two at a time: their loads wait together
                        after = min(np.uint32(at + np.uint32(32)), np.uint32(held - np.uint32(1)))
                        start, p = listed_at(lists, np.uint32(list_address + (at << 2)), warp_start)
                        p = np.uint32(p + lowest)
                        last, q = listed_at(
                            lists, np.uint32(list_address + (after << 2)), warp_start
                        )
                        q = np.uint32(q + lowest)
                        wrong = distance(text, gaps, patterns, blocks, p, start)
                        other = distance(text, gaps, patterns, blocks, q, last)
                        _write(found, np.uint32(to + at), start, p, wrong)
                        _write(found, np.uint32(to + after), last, q, other)
                        at = np.uint32(at + np.uint32(64))
                    next_place = list_address
                    cuda.syncwarp()

    return kernel


def signature() -> tuple[str, ...]:
    """The argument types of the kernel."""
    return (
        "uint32[:,::1]", "uint32", "uint32", "uint64[::1]", "uint32", "uint32", "uint64[::1]",
        "uint32", "uint32", "uint32", "uint32[::1]", "uint64[::1]",
    )  # fmt: skip
