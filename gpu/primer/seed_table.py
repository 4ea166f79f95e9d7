"""A table by code of what a text may contain where a piece of a window has at most one error.

A window of alpha is cut into pieces of q symbols. A code stands for q columns of the text, as two
planes: code = low bits << q | high bits, the first symbol in the top bit of each. With at most one
error in a piece, the q columns of text from the piece's first column on are

    the piece                                                       1
    one symbol changed                                              3 q
    one deleted, followed by any letter; of a run the last          at most 4 (q - 1)
    one inserted, its last pushed out; never equal to its           at most 3 (q - 2)
    left neighbour

An insertion before a piece is an error of the previous piece; one after it does not matter here; of
equal errors in a run one is enough: 82 codes at q = 10 for most pieces. A gap in alpha is the error
of its piece; a piece with two gaps matches nothing.

    begins    uint32[4**q + 1], entries uint32: window * 16 + piece

``windows_of`` computes the planes of windows. ``variants`` counts the entries of each code and,
once the host has summed the counts, writes them in any order.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda, device_function

THREADS = 128

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
