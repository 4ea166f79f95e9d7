"""Find windows through their pieces: each thread looks up q symbols; warps verify together.

A warp looks up 32 columns at a time. Its lanes compute prefix sums of the entries of their codes in
the table, then take the candidates in turns of 32: each finds the column of its candidate by
bisection in the sums, so all lanes verify, however uneven the codes are. Verification runs Myers'
bit-vectors along the rows + 2 (k - 1) columns where the window can lie.

    low, high    planes of the text (``window_scan``); a gap or a separator is some letter there, so
                 what passes is a superset, and ``window_scan.extend`` decides
    begins       uint32[4**q + 1], entries uint32: window * 16 + piece, by code
    windows      uint32[w, 4] (``windows_of``): at most 32 symbols, one word of rows
    key          as in ``window_scan``, with single columns for tiles: the first that the window may
                 end at

Operations: 40 per column of the text, 60 per candidate and 19 for each of its columns.

A code stands for q columns as two planes: low bits << q | high bits, the first symbol in the top
bit of each. The table lists what a text may contain where a piece has at most one error
(streamer/batch/primer/seeds.py); of equal errors in a run one is enough: 82 codes at q = 10 for
most pieces. ``variants`` counts the entries of each code and, once the host has summed the counts,
writes them in any order.
"""

import numpy as np

from gpu.card.intrinsics import ALL_LANES, as_signed, cuda, device_function, load_word, sum_to_lane
from gpu.primer.window_scan import horizontal, key_of, vertical

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
            remaining = np.int32(np.int32(rows + np.int32(2) * k) - np.int32(2))
            ends_from = np.int64(here + np.int64(rows) - np.int64(1))
            if here < np.int64(0):
                remaining = np.int32(remaining + np.int32(here))
                here = np.int64(0)
            vp = np.uint32(~free)
            vn = np.uint32(0)
            score = rows
            least = k
            while remaining > np.int32(0):
                # 32 columns at once, the first in the top bit; matches after the text's end do not
                # count
                at = np.int64(here >> 5)
                shift = np.uint32(here & 31)
                text_low = _from(low, at, shift)
                text_high = _from(high, at, shift)
                columns = np.int32(min(remaining, np.int32(32)))
                remaining = np.int32(remaining - np.int32(32))
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


GAP = 4


def windows_of(codes, blocks, rows, planes):
    """The kernel; ``[grid, THREADS]``, one thread per window of ``rows`` <= 32 symbols.

    codes uint8[m], blocks int64[3, w] (a window begins at blocks[1]), planes uint32[w, 4] (out):
    the low and the high bit of a symbol's code, whether it is a base, and 0; the last symbol in the
    top bit.
    """
    window = np.int64(cuda.grid(1))
    if window >= planes.shape[0]:
        return
    first = np.int64(blocks[1, window])
    low = np.uint32(0)
    high = np.uint32(0)
    base = np.uint32(0)
    for row in range(rows):
        symbol = np.uint32(codes[first + np.int64(row)])
        bit = np.uint32(np.uint32(1) << np.uint32(np.int32(32) - rows + np.int32(row)))
        if symbol & np.uint32(1):
            low = np.uint32(low | bit)
        if symbol & np.uint32(2):
            high = np.uint32(high | bit)
        if symbol < np.uint32(GAP):
            base = np.uint32(base | bit)
    planes[window, 0] = low
    planes[window, 1] = high
    planes[window, 2] = base
    planes[window, 3] = np.uint32(0)


@device_function
def _bit(word, at):
    return np.uint32(np.uint32(word >> at) & np.uint32(1))


@device_function
def _letter(low, high, at):
    """The letter (0..3) at a bit of both planes."""
    return np.uint32(_bit(low, at) | np.uint32(_bit(high, at) << np.uint32(1)))


@device_function
def _put(low, high, q, entry, places, entries, filling):
    """Count a code, or write its entry."""
    code = np.uint32(np.uint32(low << np.uint32(q)) | high)
    slot = np.uint32(cuda.atomic.add(places, np.int64(code), np.uint32(1)))
    if filling:
        entries[slot] = entry


def variants(planes, blocks, q, pieces, errors, places, entries, filling):
    """The kernel; ``[grid, THREADS]``, one thread per piece.

    planes uint32[w, 4] (``windows_of``), blocks int64[3, w] (windows of other lengths than pieces *
    q have no pieces), q int32, pieces int32, errors int32 (0 or 1, the most per piece), places
    uint32[4**q]: raised by the number of entries of each code (0 before). With ``filling`` int32 1
    entries uint32[] is written, and places holds the begin of each code before and its end after.
    """
    task = np.int64(cuda.grid(1))
    if task >= np.int64(planes.shape[0]) * np.int64(pieces):
        return
    window = np.int64(task // np.int64(pieces))
    piece = np.int32(task - window * np.int64(pieces))
    if np.int64(blocks[2, window] - blocks[1, window]) != np.int64(q * pieces):
        return
    entry = np.uint32(np.uint32(np.uint32(window) << np.uint32(4)) | np.uint32(piece))
    # the first symbol of the piece in the top bit of q
    low = np.uint32(0)
    high = np.uint32(0)
    gaps = np.int32(0)
    gap_at = np.int32(-1)
    for i in range(q):
        row = np.uint32(np.int32(32) - np.int32(np.int32(pieces - piece) * q) + np.int32(i))
        low = np.uint32(np.uint32(low << np.uint32(1)) | _bit(planes[window, 0], row))
        high = np.uint32(np.uint32(high << np.uint32(1)) | _bit(planes[window, 1], row))
        if _bit(planes[window, 2], row) == np.uint32(0):
            gaps = np.int32(gaps + np.int32(1))
            gap_at = np.int32(i)
    if gaps > errors:
        return
    if gaps == np.int32(0):
        _put(low, high, q, entry, places, entries, filling)
    if errors == np.int32(0):
        return
    for i in range(q):
        if gaps == np.int32(1) and np.int32(i) != gap_at:
            continue
        at = np.uint32(np.int32(q) - np.int32(1) - np.int32(i))  # the bit of symbol i
        bit = np.uint32(np.uint32(1) << at)
        below = np.uint32(bit - np.uint32(1))
        above = np.uint32(~np.uint32(bit | below))
        own = _letter(low, high, at)
        left_low = np.uint32(low & above)
        left_high = np.uint32(high & above)
        right_low = np.uint32(low & below)
        right_high = np.uint32(high & below)
        closed_low = np.uint32(right_low << np.uint32(1))
        closed_high = np.uint32(right_high << np.uint32(1))
        after = np.uint32(at - np.uint32(1))
        last = at == np.uint32(0)
        ends_run = True
        like_left = np.uint32(4)
        if not last:
            ends_run = _letter(low, high, after) != own
            if gaps == np.int32(1):
                ends_run = True
        if i > 0:
            before = np.uint32(at + np.uint32(1))
            like_left = _letter(low, high, before)
        for letter in range(4):
            x = np.uint32(letter)
            x_low = np.uint32(x & np.uint32(1))
            x_high = np.uint32(x >> np.uint32(1))
            if x != own or gaps == np.int32(1):
                _put(
                    np.uint32(np.uint32(left_low | np.uint32(x_low << at)) | right_low),
                    np.uint32(np.uint32(left_high | np.uint32(x_high << at)) | right_high),
                    q, entry, places, entries, filling,
                )  # fmt: skip
            if ends_run and not last:
                _put(
                    np.uint32(np.uint32(left_low | closed_low) | x_low),
                    np.uint32(np.uint32(left_high | closed_high) | x_high),
                    q, entry, places, entries, filling,
                )  # fmt: skip
            if i > 0 and not last and gaps == np.int32(0) and x != like_left:
                tail_low = np.uint32(np.uint32(low & np.uint32(~above)) >> np.uint32(1))
                tail_high = np.uint32(np.uint32(high & np.uint32(~above)) >> np.uint32(1))
                _put(
                    np.uint32(np.uint32(left_low | np.uint32(x_low << at)) | tail_low),
                    np.uint32(np.uint32(left_high | np.uint32(x_high << at)) | tail_high),
                    q, entry, places, entries, filling,
                )  # fmt: skip
