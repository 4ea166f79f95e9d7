"""Windows found through their pieces: a thread a symbol looks up q symbols and verifies.

    text      as in ``scan``; a gap or a record's end is looked up as A or C (code & 3)
    begins    uint32[4**q + 1], entries uint32: window * 16 + piece
    planes    as in ``reach``; a window has at most 32 symbols, one word of rows
    keys      as in ``scan``: window << 40 | tile << 12 | k - 1 - minimum, for each tile and
              candidate, so repeats are possible

Operations: 15 a symbol, and 22 for each of the window + 2 (k - 1) columns of a candidate. Threads
of a warp wait for the one with most candidates.
"""

from __future__ import annotations

import numpy as np

from gpu.intrinsics import cuda, load_word

THREADS = 128

SIGNATURE = (
    "uint32[::1]", "int64", "uint32[:, ::1]", "int64[::1]", "int32", "int32", "int32",
    "uint32[::1]", "uint32[::1]", "uint64[::1]", "uint32[::1]",
)  # fmt: skip


def seeds(text, size, planes, firsts, rows, q, k, begins, entries, out, counter):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, a thread a column.

    Arguments: text uint32[], size int64 (columns), planes uint32[3, p], firsts int64[w], rows int32
    (symbols of a window, at most 32), q int32, k int32, begins, entries, out uint64[capacity],
    counter uint32[1] (0 before; keys beyond the capacity are counted and not written).
    """
    column = np.int64(cuda.grid(1))
    if column >= size:
        return
    code = np.uint32(0)
    word_at = np.int64(column >> 3)
    symbols = np.uint32(load_word(text, word_at))
    symbols = np.uint32(symbols >> np.uint32(np.uint32(4) * np.uint32(column & 7)))
    left = np.int32(np.int32(8) - np.int32(column & 7))
    for _ in range(q):
        code = np.uint32(np.uint32(code << np.uint32(2)) | np.uint32(symbols & np.uint32(3)))
        symbols = np.uint32(symbols >> np.uint32(4))
        left = np.int32(left - np.int32(1))
        if left == np.int32(0):
            word_at += 1
            symbols = np.uint32(load_word(text, word_at))
            left = np.int32(8)
    first_entry = np.uint32(load_word(begins, code))
    last_entry = np.uint32(load_word(begins, np.uint32(code + np.uint32(1))))
    full = np.uint32(0xFFFFFFFF)
    full = np.uint32(full >> np.uint32(np.int32(32) - rows))
    top = np.uint32(rows - np.int32(1))
    while first_entry < last_entry:
        entry = np.uint32(load_word(entries, first_entry))
        first_entry = np.uint32(first_entry + np.uint32(1))
        window = np.uint32(entry >> np.uint32(4))
        piece = np.int32(entry & np.uint32(15))
        begin = np.int64(column - np.int64(np.int32(piece * q)) - np.int64(k) + np.int64(1))
        stop = np.int64(begin + np.int64(np.int32(rows + np.int32(2) * k)) - np.int64(2))
        begin = np.int64(max(begin, np.int64(0)))
        stop = np.int64(min(stop, size))
        start = np.int64(firsts[window])
        at = np.int64(start >> 5)
        shift = np.uint32(start & 31)
        back = np.uint32(np.uint32(31) - shift)
        low = np.uint32(
            np.uint32(planes[0, at] >> shift)
            | np.uint32(np.uint32(planes[0, at + 1] << np.uint32(1)) << back)
        )
        high = np.uint32(
            np.uint32(planes[1, at] >> shift)
            | np.uint32(np.uint32(planes[1, at + 1] << np.uint32(1)) << back)
        )
        base = np.uint32(
            np.uint32(planes[2, at] >> shift)
            | np.uint32(np.uint32(planes[2, at + 1] << np.uint32(1)) << back)
        )
        vp = full
        vn = np.uint32(0)
        score = rows
        least = np.int32(k)
        word_at = np.int64(begin >> 3)
        symbols = np.uint32(load_word(text, word_at))
        symbols = np.uint32(symbols >> np.uint32(np.uint32(4) * np.uint32(begin & 7)))
        while begin < stop:
            if begin & 7 == 0:
                symbols = np.uint32(load_word(text, begin >> 3))
            symbol = np.uint32(symbols & np.uint32(15))
            symbols = np.uint32(symbols >> np.uint32(4))
            begin += 1
            if symbol == np.uint32(5):
                vp = full
                vn = np.uint32(0)
                score = rows
            else:
                not_low = np.uint32(np.uint32(symbol & np.uint32(1)) - np.uint32(1))
                not_high = np.uint32(
                    np.uint32(np.uint32(symbol >> np.uint32(1)) & np.uint32(1)) - np.uint32(1)
                )
                is_base = np.uint32(np.uint32(symbol >> np.uint32(2)) - np.uint32(1))
                eq = np.uint32(np.uint32(low ^ not_low) & np.uint32(high ^ not_high))
                eq = np.uint32(eq & np.uint32(base & is_base))
                xv = np.uint32(eq | vn)
                total = np.uint32(np.uint32(eq & vp) + vp)
                xh = np.uint32(np.uint32(total ^ vp) | eq)
                ph = np.uint32(vn | np.uint32(~np.uint32(xh | vp)))
                mh = np.uint32(vp & xh)
                score = np.int32(score + np.int32(np.uint32(ph >> top) & np.uint32(1)))
                score = np.int32(score - np.int32(np.uint32(mh >> top) & np.uint32(1)))
                ph = np.uint32(ph << np.uint32(1))
                mh = np.uint32(mh << np.uint32(1))
                vp = np.uint32(mh | np.uint32(~np.uint32(xv | ph)))
                vn = np.uint32(ph & xv)
                least = np.int32(min(least, score))
            if least < k and (begin & 63 == 0 or begin == stop):
                slot = np.uint32(cuda.atomic.add(counter, 0, np.uint32(1)))
                if slot < np.uint32(out.size):
                    key = np.uint64(np.uint64(window) << np.uint64(40))
                    tile = np.uint64(np.uint64(begin - 1) >> np.uint64(6))
                    key = np.uint64(key | np.uint64(tile << np.uint64(12)))
                    slack = np.uint64(np.uint32(k - np.int32(1) - least))
                    out[slot] = np.uint64(key | slack)
                least = np.int32(k)
