"""Find windows through their pieces: each thread looks up q symbols; warps verify together.

A warp looks up 32 columns at a time. Its lanes compute prefix sums of the entries of their codes in
the table, then take the candidates in turns of 32, whichever lane found them: each finds the column
of its candidate by bisection in the sums, so all lanes verify, however uneven the codes are.

    low, high    planes of the text (``packed_text``); a gap or a separator is some letter there, so
                 what passes is a superset, and ``extend`` decides
    begins       uint32[4**q + 1], entries uint32: window * 16 + piece (``seed_table``)
    windows      uint32[w, 4] (``seed_table.windows_of``): at most 32 symbols, one word of rows
    key          as in ``window_scan``, with single columns for tiles: the first that the window may
                 end at

Verification runs Myers' bit-vectors along the columns where the window can lie if the piece lies at
its column: rows + 2 (k - 1) of them.

Operations: 40 per column of the text, 60 per candidate and 19 for each of its columns.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    as_signed,
    cuda,
    device_function,
    load_word,
    sum_to_lane,
)
from gpu.primer.myers import horizontal, vertical
from gpu.primer.seed_keys import key_of

THREADS = 128


@device_function
def _from(plane, word, shift):
    """32 columns of a plane, starting at column ``shift`` (0..31) of a word."""
    here = np.uint32(load_word(plane, word))
    following = np.uint32(load_word(plane, word + 1))
    behind = np.uint32(np.uint32(following >> np.uint32(1)) >> np.uint32(np.uint32(31) - shift))
    return np.uint32(np.uint32(here << shift) | behind)


def seeds(low, high, begin, stop, windows, rows, q, k, begins, entries, out, counter):
    """The kernel; ``[grid, THREADS]``, one thread per column from ``begin`` to ``stop``.

    Arguments: low and high uint32[] with two spare words, begin and stop int64 (multiples of 32),
    windows uint32[4 w], rows int32 (symbols of a window, at most 32), q int32, k int32, begins,
    entries, out uint64[capacity], counter uint32[1] (0 before; keys beyond the capacity are counted
    but not written).
    """
    lane = np.int32(np.int32(cuda.threadIdx.x) & np.int32(31))
    column = np.int64(begin + np.int64(cuda.grid(1)))
    warp_column = np.int64(column - np.int64(lane))
    if warp_column >= stop:
        return
    at = np.int64(warp_column >> 5)
    shift = np.uint32(lane)
    right = np.uint32(np.int32(32) - q)
    code = np.uint32(np.uint32(_from(low, at, shift) >> right) << np.uint32(q))
    code = np.uint32(code | np.uint32(_from(high, at, shift) >> right))
    first_entry = np.uint32(load_word(begins, code))
    count = np.int32(np.uint32(load_word(begins, np.uint32(code + np.uint32(1)))) - first_entry)
    total = np.int32(sum_to_lane(np.uint32(count), lane))
    # the offset from a candidate's number in the warp to its entry
    entry_of = np.int32(np.int32(first_entry) - np.int32(total - count))
    all_of = np.int32(cuda.shfl_sync(ALL_LANES, total, 31))
    # a window is aligned to the bottom of 32 rows; those above are free, as in ``window_scan``
    free = np.uint32(
        np.uint32(np.uint32(0xFFFFFFFF) >> np.uint32(1)) >> np.uint32(rows - np.int32(1))
    )
    before = np.int32(0)
    while before < all_of:
        candidate = np.int32(before + lane)
        # the first lane whose sum exceeds the candidate's number
        owner = np.int32(0)
        for step in range(5):
            middle = np.int32(owner + np.int32(16 >> step))
            sum_there = np.int32(cuda.shfl_sync(ALL_LANES, total, np.int32(middle - np.int32(1))))
            if sum_there <= candidate:
                owner = middle
        entry_there = np.int32(cuda.shfl_sync(ALL_LANES, entry_of, owner))
        before = np.int32(before + np.int32(32))
        if candidate < all_of:
            entry = np.uint32(load_word(entries, np.int64(np.int32(entry_there + candidate))))
            window = np.uint32(entry >> np.uint32(4))
            piece = np.int32(entry & np.uint32(15))
            row_low = np.uint32(load_word(windows, np.int64(window) * 4))
            row_high = np.uint32(load_word(windows, np.int64(window) * 4 + 1))
            row_base = np.uint32(load_word(windows, np.int64(window) * 4 + 2))
            here = np.int64(warp_column + np.int64(owner) - np.int64(np.int32(piece * q)))
            here = np.int64(here - np.int64(k) + np.int64(1))
            left = np.int32(np.int32(rows + np.int32(2) * k) - np.int32(2))
            ends_from = np.int64(here + np.int64(rows) - np.int64(1))
            if here < np.int64(0):
                left = np.int32(left + np.int32(here))
                here = np.int64(0)
            vp = np.uint32(~free)
            vn = np.uint32(0)
            score = rows
            least = k
            while left > np.int32(0):
                # 32 columns at once, the first in the top bit; matches after the text's end do not
                # count
                at = np.int64(here >> 5)
                shift = np.uint32(here & 31)
                text_low = _from(low, at, shift)
                text_high = _from(high, at, shift)
                columns = np.int32(min(left, np.int32(32)))
                left = np.int32(left - np.int32(32))
                here += 32
                while columns > np.int32(0):
                    columns = np.int32(columns - np.int32(1))
                    # all ones where the bit is 1
                    is_low = np.uint32(as_signed(text_low) >> np.int32(31))
                    is_high = np.uint32(as_signed(text_high) >> np.int32(31))
                    text_low = np.uint32(text_low << np.uint32(1))
                    text_high = np.uint32(text_high << np.uint32(1))
                    eq = np.uint32(np.uint32(row_low ^ is_low) | np.uint32(row_high ^ is_high))
                    eq = np.uint32(np.uint32(row_base & np.uint32(~eq)) | free)
                    xv = np.uint32(eq | vn)
                    ph, mh = horizontal(vp, vn, eq, np.uint32(np.uint32(eq & vp) + vp))
                    score = np.int32(
                        np.int32(score + np.int32(ph >> np.uint32(31)))
                        - np.int32(mh >> np.uint32(31))
                    )
                    vp, vn = vertical(xv, ph, mh, np.uint32(0), np.uint32(0))
                    least = np.int32(min(least, score))
            if least < k:
                slot = np.uint32(cuda.atomic.add(counter, 0, np.uint32(1)))
                if slot < np.uint32(out.size):
                    tile = np.uint64(max(ends_from, np.int64(0)))
                    key = key_of(window, tile)
                    slack = np.uint64(np.uint32(np.int32(k - np.int32(1)) - least))
                    out[slot] = np.uint64(key | slack)
