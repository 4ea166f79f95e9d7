"""A table, by code, of what a text may hold where a piece of a window has at most one error.

From the first column of such a piece of q symbols, the text holds q symbols:

    the piece, or with one symbol changed                   1 + 3 q
    without one symbol, followed by any symbol              at most 4 q
    with a symbol inserted, its last symbol pushed out      at most 4 q

For each of the 4**q codes the table lists the pieces that it may stand for. A gap in the text uses
up the piece's one error, whatever letter replaces it, so it is looked up like any letter; so is
what follows a record. A gap in alpha is the error of its piece; a piece with two matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.problem import Columns
from streamer.batch.primer.shapes import CutShape
from streamer.batch.records import Codes
from trie.codes import GAP
from trie.cpu.jit import njit


@dataclass(frozen=True, slots=True)
class SeedTable:
    """Pieces by code: begins int64[4**q + 1]; entries uint32, window * 16 + piece.

    masks: uint64[windows, 6], the rows of a window that match a symbol.
    """

    shape: CutShape
    begins: Columns
    entries: NDArray[np.uint32]
    masks: NDArray[np.uint64]


def table_of(codes: Codes, firsts: Columns, shape: CutShape) -> SeedTable:
    """Build the table of windows that begin at ``firsts``, each ``shape.window`` symbols long."""
    keys = _variants(codes, firsts, shape.pieces, shape.symbols, shape.errors)
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if keys.size else keys
    code = keys >> np.uint64(32)
    counts = np.bincount(code.astype(np.int64), minlength=4**shape.symbols)
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    entries = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return SeedTable(shape, begins, entries, _masks(codes, firsts, shape.window))


@njit(cache=True, nogil=True)
def _masks(codes, firsts, rows):
    """Return uint64[windows, 6]: the rows that match a symbol; none match a gap or separator."""
    masks = np.zeros((firsts.size, 6), dtype=np.uint64)
    for window in range(firsts.size):
        for row in range(rows):
            symbol = codes[firsts[window] + row]
            if symbol != GAP:
                masks[window, symbol] |= np.uint64(1) << np.uint64(row)
    return masks


@njit(cache=True, nogil=True)
def _variants(codes, firsts, pieces, q, errors):
    """Return keys code << 32 | window << 4 | piece of all that a text may hold, with repeats."""
    room = 1 + (11 * q if errors else 0)
    keys = np.empty(firsts.size * pieces * room, dtype=np.uint64)
    count = 0
    for window in range(firsts.size):
        for piece in range(pieces):
            at = firsts[window] + piece * q
            gaps = 0
            where = -1
            code = np.uint64(0)
            for i in range(q):
                symbol = codes[at + i]
                if symbol == GAP:
                    gaps += 1
                    where = i
                code = (code << np.uint64(2)) | np.uint64(symbol & 3)
            if gaps > errors:
                continue
            entry = np.uint64(window * 16 + piece)
            if gaps == 0:
                keys[count] = (code << np.uint64(32)) | entry
                count += 1
            if errors == 0:
                continue
            for i in range(q):
                if gaps == 1 and i != where:
                    continue
                right = np.uint64(2 * (q - 1 - i))
                low = code & ((np.uint64(1) << right) - np.uint64(1))
                high = code >> (right + np.uint64(2))
                own = (code >> right) & np.uint64(3)
                for letter in range(4):
                    x = np.uint64(letter)
                    if x != own or gaps == 1:
                        changed = (((high << np.uint64(2)) | x) << right) | low
                        keys[count] = (changed << np.uint64(32)) | entry
                        count += 1
                    left_out = (high << (right + np.uint64(2))) | (low << np.uint64(2)) | x
                    keys[count] = (left_out << np.uint64(32)) | entry
                    count += 1
                    if gaps == 0:
                        tail = ((own << right) | low) >> np.uint64(2)
                        put_in = (((high << np.uint64(2)) | x) << right) | tail
                        keys[count] = (put_in << np.uint64(32)) | entry
                        count += 1
    return keys[:count]
