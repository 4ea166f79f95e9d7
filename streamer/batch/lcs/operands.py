"""Operands of ``lane_sweep.sweep``: rows as planes or a table, columns as masks or lane bytes.

A lane byte holds the symbols of all lanes.

The planes P_p of a block's rows are made once, one bit of a symbol each. A table has the match
words of W words of four lanes for each of the 256 combinations of four symbols of two bits, 64 KB
for W = 8. It is rebuilt from the planes whenever a block begins a stretch of columns, in 2 to 4 %
of the time of the stretch.
"""

from __future__ import annotations

import numpy as np

from streamer.batch.lcs.lane_sweep import INVERTED, LAG, LANES, ROWS
from trie.cpu.jit import njit

BEHIND = LAG * (LANES - 1)  # columns by which the last lane trails the first if there is a table
TABLE_ROWS = 4**LANES  # rows of a table: a two-bit symbol for each lane


@njit(cache=True, nogil=True)
def pack(a, first, step, rows, words, bits, planes):
    """Pack rows ``a[first], a[first + step], ...`` into planes; rows beyond the last are symbol 0.

    planes: uint64[blocks, bits * words * LANES]. Matches in rows beyond the last are harmless:
    carries only go to later rows.
    """
    lane = words * ROWS
    for block in range(planes.shape[0]):
        for which in range(LANES):
            for word in range(words):
                row = (block * LANES + which) * lane + word * ROWS
                count = min(ROWS, rows - row)
                for p in range(bits):
                    value = np.uint64(0)
                    at = first + step * row
                    for i in range(count):
                        value |= np.uint64((a[at] >> np.uint8(p)) & np.uint8(1)) << np.uint64(i)
                        at += step
                    planes[block, (p * words + word) * LANES + which] = value


@njit(cache=True, nogil=True)
def unpack(state, words, row, rows, pool, at):
    """Write the rows' bits from ``row`` on into the pool, 32 per word; lower bits stay."""
    out = at + (row >> 5)
    filled = row & 31
    pending = np.uint64(0)
    if filled:
        pending = np.uint64(pool[out]) & ((np.uint64(1) << np.uint64(filled)) - np.uint64(1))
    for block in range(state.shape[0]):
        for which in range(LANES):
            for word in range(words):
                count = min(ROWS, rows - row)
                if count <= 0:
                    break
                value = state[block, word * LANES + which]
                if count < ROWS:
                    value &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
                row += count
                # up to 31 bits are pending, so take the word in two halves
                for shift in range(0, count, 32):
                    half = (value >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)
                    pending |= half << np.uint64(filled)
                    filled += min(32, count - shift)
                    if filled >= 32:
                        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))
                        out += 1
                        pending >>= np.uint64(32)
                        filled -= 32
    if filled:
        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def masks(b, bits, symbols):
    """Make the masks C_p of the columns ``b``, last column first; see ``lane_sweep.sweep``."""
    columns = b.size
    flip = ~np.uint64(0) if INVERTED else np.uint64(0)
    stride = columns + 2 * LANES - 2
    top = np.uint64(1) << np.uint64(ROWS)
    for p in range(bits):
        of_bit = symbols[p * stride : (p + 1) * stride]
        of_bit[: LANES - 1] = top ^ flip
        of_bit[stride - LANES + 1 :] = top ^ flip
        guard = top if p == 0 else np.uint64(0)
        inner = of_bit[LANES - 1 : stride - LANES + 1]
        shift = np.uint8(p)
        for c in range(columns):
            bit = np.uint64((b[columns - 1 - c] >> shift) & np.uint8(1))
            inner[c] = ((np.uint64(0) - bit) | guard) ^ flip


@njit(cache=True, nogil=True)
def beside(b, together):
    """Make the symbols (below 4) of all lanes at each step: two bits per lane, lane 0 lowest.

    b: uint8[columns], together: uint8[columns + BEHIND]. Lanes outside the columns have symbol 0.
    """
    columns = b.size
    together[:columns] = b
    together[columns:] = 0
    for lane in range(1, LANES):
        later = together[LAG * lane : LAG * lane + columns]
        for c in range(columns):
            later[c] |= np.uint8(b[c] << np.uint8(2 * lane))


@njit(cache=True, nogil=True)
def tabulate(planes, bits, words, matches, table):
    """Build the match words of a block's rows for the combined symbols of four lanes.

    planes: uint64[bits * words * LANES], at most two bits. matches: uint64[4 * words * LANES] is
    overwritten. table: uint64[TABLE_ROWS * words * LANES].
    """
    vectors = words * LANES
    rows = (np.uint64(1) << np.uint64(ROWS)) - np.uint64(1)
    for i in range(vectors):
        low = planes[i]
        high = planes[vectors + i] if bits > 1 else np.uint64(0)
        matches[i] = ~low & ~high & rows
        matches[vectors + i] = low & ~high & rows
        matches[2 * vectors + i] = ~low & high
        matches[3 * vectors + i] = low & high
    for together in range(TABLE_ROWS):
        entry = table[together * vectors : (together + 1) * vectors]
        for lane in range(LANES):
            of_symbol = matches[((together >> (2 * lane)) & 3) * vectors :]
            for word in range(words):
                entry[word * LANES + lane] = of_symbol[word * LANES + lane]
