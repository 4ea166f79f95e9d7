"""The kernel ``bit_sliced``: 32 windows a word, mismatches counted in carry-save form.

A block takes a tile of 32 S windows (planes.py) and some patterns; a thread W words, S = THREADS W.
The tile lies in shared memory as four rows, one a base, of S words and the HALO words behind them
(the first words of the tile, a segment on: shifted by one bit, the next tile's first bit on top),
and a row of zeros:

    rows     uint32[5][S + HALO]    bit i of rows[c][w + j]: window i S + w has no c at symbol j

so that symbol j of a pattern is one shared load a word, at an offset that is the same for the
block. Four symbols are added at once:

    ones, two   = full adder (ones, a, b)       twos, four = full adder (twos, two, other)
    ones, other = full adder (ones, c, d)       fours, ... = half adders; the carry out stays

8 three-input operations and 4 loads a word for four symbols (one more a plane above three). The
counter begins at 2^planes - 1 - k, plus the pattern's own gap codes, so that what never ran over
is a hit. Eight patterns of 12: 8 x 3 x 8 = 192 operations and 96 loads for 32 windows.

Hits are few, and in other words in every lane. So the words of a batch of patterns go to shared
memory, a bit for each that is not zero stays in a register, and then each lane goes through its
own: once to count, so that the warp can reserve room with one atomic addition, and once to write, a
hit of each lane at a time, side by side. A hit is a uint64 in global memory, in no order:

    63              36 35                       8 7      0
    [ start in chunk ] [ index of the pattern   ] [ zero ]
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.intrinsics import ALL_LANES, as_signed, cuda, device_function, load_pair
from gpu.shared_memory import address_of, load_word

BASES = 4
ROWS = BASES + 1
STEP = 4
"""Symbols that are added at once."""

THREADS = 128
WORDS = 8
"""Threads a block, words a thread with three counter planes; twice and half as many with more."""

BATCH = 4
"""Patterns between two looks at the hits; BATCH words a thread, at most 32 together."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kernel is made for.

    planes: of the counters, at least 3. threads: a block, 32 | threads. words: a thread, a power
    of two, at most 32 // BATCH. halo: words behind a row, at least m - 1 and at most threads *
    words.
    """

    planes: int
    threads: int
    words: int
    halo: int

    @property
    def span(self) -> int:
        """Words of a tile, S: a power of two."""
        return self.threads * self.words

    @property
    def tile(self) -> int:
        """Windows of a tile, at most 2^15."""
        return 32 * self.span


def shape_for(length: int, k: int) -> Shape:
    """The kernel for patterns of ``length`` symbols and k mismatches."""
    planes = max(3, k.bit_length())
    halo = 32 if length <= 33 else 256
    if planes == 3:
        return Shape(planes, THREADS, WORDS, halo)
    return Shape(planes, 2 * THREADS, WORDS // 2, halo)


@device_function
def _lowest(bits):  # type: ignore[no-untyped-def]
    """The lowest set bit of a uint32 that has one, by number."""
    return np.uint32(np.uint32(cuda.ffs(bits)) - np.uint32(1))


@device_function
def _carry(x, y, z):  # type: ignore[no-untyped-def]
    """The carry bit of a full adder."""
    return np.uint32(np.uint32(x & y) | np.uint32(z & np.uint32(x | y)))


@device_function
def _sum(x, y, z):  # type: ignore[no-untyped-def]
    """The sum bit of a full adder."""
    return np.uint32(np.uint32(x ^ y) ^ z)


@device_function
def _plane(value, plane):  # type: ignore[no-untyped-def]
    """32 times one bit of a number."""
    bit = np.uint32(np.uint32(value >> np.uint32(plane)) & np.uint32(1))
    return np.uint32(bit * np.uint32(0xFFFFFFFF))


@device_function
def _warp_sum(value):  # type: ignore[no-untyped-def]
    """The sum of the uint32 values of all lanes."""
    for step in (1, 2, 4, 8, 16):
        other = np.uint32(cuda.shfl_xor_sync(ALL_LANES, as_signed(value), step))
        value = np.uint32(value + other)
    return value


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


def bit_sliced(shape: Shape) -> Callable[..., None]:
    """The kernel of one shape."""
    planes, threads, words = shape.planes, shape.threads, shape.words
    span = shape.span
    halo = shape.halo
    row = span + halo
    batch = BATCH
    all_rows = ROWS * row
    all_masks = batch * words * threads
    all_highs = (planes - 2) * words

    def kernel(text, windows, steps, length, begins, share, count, counter, found):  # type: ignore[no-untyped-def]
        """``[(tiles, shares), threads]``.

        Arguments: text uint32[4, (tiles + 1) * S] (planes.py; a tile more than has windows),
        windows uint32, steps uint64[r * length / 2] (``steps_of``), length uint32 (symbols of a
        pattern, rounded up to STEP), begins uint32[r] (the counter's beginning; 2^planes: never
        a hit), share uint32 (patterns a
        block), count uint32 (r), counter uint32[1] (hits so far; more than
        found holds are not written), found uint64[].
        """
        rows = cuda.shared.array(all_rows, np.uint32)
        masks = cuda.shared.array(all_masks, np.uint32)
        own = np.uint32(cuda.threadIdx.x)
        tile = np.uint32(cuda.blockIdx.x)
        here = np.uint32(np.uint32(tile * np.uint32(span)) + own)
        for i in range(words):
            for base in range(BASES):
                word = text[base, np.uint32(here + np.uint32(i * threads))]
                rows[np.uint32(own + np.uint32(base * row + i * threads))] = word
            rows[np.uint32(own + np.uint32(BASES * row + i * threads))] = np.uint32(0)
        at = own
        while at < np.uint32(halo):
            here = np.uint32(np.uint32(tile * np.uint32(span)) + at)
            for base in range(BASES):
                this = text[base, here]
                after = text[base, np.uint32(here + np.uint32(span))]
                rows[np.uint32(at + np.uint32(base * row + span))] = np.uint32(
                    np.uint32(this >> np.uint32(1)) | np.uint32(after << np.uint32(31))
                )
            rows[np.uint32(at + np.uint32(BASES * row + span))] = np.uint32(0)
            at = np.uint32(at + np.uint32(threads))
        cuda.syncthreads()
        lane = np.uint32(own & np.uint32(31))
        lower = np.uint32(np.uint32(np.uint32(1) << lane) - np.uint32(1))
        lowest = np.uint32(np.uint32(cuda.blockIdx.y) * share)
        stop = min(np.uint32(lowest + share), count)
        origin = np.uint32(np.uint32(tile * np.uint32(span)) * np.uint32(32))
        groups = np.uint32(np.uint32(length) >> np.uint32(2))
        own_address = np.uint32(address_of(rows) + np.uint32(np.uint32(4) * own))
        ones = cuda.local.array(words, np.uint32)
        twos = cuda.local.array(words, np.uint32)
        highs = cuda.local.array(all_highs, np.uint32)
        over = cuda.local.array(words, np.uint32)
        ragged = np.uint32(origin + np.uint32(32 * span)) > windows
        pattern = lowest
        while pattern < stop:
            some = np.uint32(0)
            within = min(np.uint32(batch), np.uint32(stop - pattern))
            q = np.uint32(0)
            while q < within:
                p = np.uint32(pattern + q)
                begin = begins[p]
                for i in range(words):
                    ones[i] = _plane(begin, 0)
                    twos[i] = _plane(begin, 1)
                    for plane in range(2, planes):
                        highs[(plane - 2) * words + i] = _plane(begin, plane)
                    over[i] = _plane(begin, planes)
                step = np.uint32(p * groups)
                last = np.uint32(step + groups)
                while step < last:
                    ab, cd = load_pair(steps, step)
                    a = np.uint32(np.uint32(ab) + own_address)
                    b = np.uint32(np.uint32(ab >> np.uint64(32)) + own_address)
                    c = np.uint32(np.uint32(cd) + own_address)
                    d = np.uint32(np.uint32(cd >> np.uint64(32)) + own_address)
                    for i in range(words):
                        further = np.uint32(4 * i * threads)
                        x = load_word(rows, np.uint32(a + further))
                        y = load_word(rows, np.uint32(b + further))
                        two = _carry(ones[i], x, y)
                        one = _sum(ones[i], x, y)
                        x = load_word(rows, np.uint32(c + further))
                        y = load_word(rows, np.uint32(d + further))
                        other = _carry(one, x, y)
                        ones[i] = _sum(one, x, y)
                        carry = _carry(twos[i], two, other)
                        twos[i] = _sum(twos[i], two, other)
                        for plane in range(planes - 2):
                            high = highs[plane * words + i]
                            highs[plane * words + i] = np.uint32(high ^ carry)
                            carry = np.uint32(high & carry)
                        over[i] = np.uint32(over[i] | carry)
                    step = np.uint32(step + np.uint32(1))
                for i in range(words):
                    bit = np.uint32(np.uint32(q * np.uint32(words)) + np.uint32(i))
                    hits = np.uint32(~over[i])
                    if ragged:
                        at = np.uint32(np.uint32(origin + own) + np.uint32(i * threads))
                        hits = np.uint32(hits & _inside(windows, at, np.uint32(span)))
                    masks[np.uint32(np.uint32(bit * np.uint32(threads)) + own)] = hits
                    if hits != np.uint32(0):
                        some = np.uint32(some | np.uint32(np.uint32(1) << bit))
                q = np.uint32(q + np.uint32(1))
            tally = np.uint32(0)
            left = some
            while left != np.uint32(0):
                bit = _lowest(left)
                left = np.uint32(left & np.uint32(left - np.uint32(1)))
                hits = masks[np.uint32(np.uint32(bit * np.uint32(threads)) + own)]
                tally = np.uint32(tally + np.uint32(cuda.popc(hits)))
            tally = _warp_sum(tally)
            to = np.uint32(0)
            if lane == np.uint32(0) and tally != np.uint32(0):
                to = cuda.atomic.add(counter, 0, tally)
            to = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(np.uint32(to)), 0))
            hits = np.uint32(0)
            first = np.uint32(0)
            index = np.uint64(0)
            stop_at = np.uint32(to + tally)
            while to < stop_at:
                if hits == np.uint32(0) and some != np.uint32(0):
                    bit = _lowest(some)
                    some = np.uint32(some & np.uint32(some - np.uint32(1)))
                    hits = masks[np.uint32(np.uint32(bit * np.uint32(threads)) + own)]
                    word = np.uint32(np.uint32(bit % np.uint32(words)) * np.uint32(threads))
                    first = np.uint32(np.uint32(origin + own) + word)
                    p = np.uint32(pattern + np.uint32(bit // np.uint32(words)))
                    index = np.uint64(np.uint64(p) << np.uint64(8))
                writing = np.uint32(cuda.ballot_sync(ALL_LANES, hits != np.uint32(0)))
                if hits != np.uint32(0):
                    start = np.uint32(first + np.uint32(_lowest(hits) * np.uint32(span)))
                    hits = np.uint32(hits & np.uint32(hits - np.uint32(1)))
                    at = np.uint32(to + np.uint32(cuda.popc(np.uint32(writing & lower))))
                    if at < np.uint32(found.size):
                        found[at] = np.uint64(np.uint64(np.uint64(start) << np.uint64(36)) | index)
                to = np.uint32(to + np.uint32(cuda.popc(writing)))
            pattern = np.uint32(pattern + within)

    return kernel


def steps_of(patterns: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint64]:
    """Where in ``rows`` each symbol of uint8[r, m] patterns begins, in bytes, two a uint64.

    uint64[r * length / 2], length being m rounded up to STEP. A gap code, which ``begins_of``
    counts, and what lies behind the end, are in the row of zeros.
    """
    count, length = patterns.shape
    row = shape.span + shape.halo
    places = np.full((count, -(-length // STEP) * STEP), BASES * row, dtype=np.uint32)
    base = patterns < BASES
    places[:, :length][base] = (patterns.astype(np.uint32) * np.uint32(row) + np.arange(length))[
        base
    ].astype(np.uint32)
    return np.ascontiguousarray(places * np.uint32(4)).view(np.uint64).ravel()


def begins_of(patterns: NDArray[np.uint8], k: int, shape: Shape) -> NDArray[np.uint32]:
    """Where the counter of each pattern begins: the carry means more than k mismatches."""
    gaps = (patterns >= BASES).sum(axis=1)
    full = 1 << shape.planes
    return np.minimum(full - 1 - k + gaps, full).astype(np.uint32)


def signature() -> tuple[str, ...]:
    """The argument types of the kernel."""
    return (
        "uint32[:,::1]", "uint32", "uint64[::1]", "uint32", "uint32[::1]", "uint32", "uint32",
        "uint32[::1]", "uint64[::1]",
    )  # fmt: skip
