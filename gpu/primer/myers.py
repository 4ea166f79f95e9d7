"""A step of Myers' bit-vectors, 32 rows per word: from one column's differences to the next.

    p, n      vertical differences +1 and -1 between a row and the one above it
    eq        rows whose symbol is the text's, and row 0 of a word that -1 enters from above
    total     (eq & p) + p, with the carry of the word above if the caller adds two at once
    ph, mh    horizontal differences +1 and -1 of the rows

The last row of a word passes its top bits of ``ph`` and ``mh`` to the next word.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function


@device_function
def horizontal(p, n, eq, total):
    """ph and mh of a word."""
    xh = np.uint32(np.uint32(total ^ p) | eq)
    return np.uint32(n | np.uint32(~np.uint32(xh | p))), np.uint32(p & xh)


@device_function
def vertical(xv, ph, mh, ph_above, mh_above):
    """p and n of a word in the next column; xv is eq | n, ``*_above`` the word above (0: none)."""
    up = np.uint32(np.uint32(ph << np.uint32(1)) | np.uint32(ph_above >> np.uint32(31)))
    down = np.uint32(np.uint32(mh << np.uint32(1)) | np.uint32(mh_above >> np.uint32(31)))
    return np.uint32(down | np.uint32(~np.uint32(xv | up))), np.uint32(up & xv)
