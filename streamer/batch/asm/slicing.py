"""Slice the letters of a tile (``tiles``) into bits: a word of 64 per lane and block.

    planes   uint64[blocks, 3, ROW]   bit 0 of the codes, bit 1, and whether it is not a base

Letters are read once, in order, and each word is stored where it will be transposed.
"""

from __future__ import annotations

import numpy as np

from streamer.batch.asm.cells import LANES, ROW
from streamer.batch.asm.lane_planes import code_gaps, code_planes, letter_gaps, letter_planes
from streamer.batch.asm.tile_hits import BLOCK
from trie.codes import GAP
from trie.cpu.jit import njit


@njit(cache=True, nogil=True)
def _edge(symbols, table, first, planes, place):
    """Slice 64 symbols partly outside the text, as gap codes; return the OR of the codes."""
    seen = np.uint8(GAP)
    bits = np.zeros(3, np.uint64)
    bits[2] = ~np.uint64(0)
    if first + 64 > 0 and first < symbols.size:
        seen = np.uint8(0)
        bits[2] = 0
        for i in range(64):
            position = first + i
            code = table[symbols[position]] if 0 <= position < symbols.size else np.uint8(GAP)
            seen |= code
            for plane in range(3):
                bit = np.uint64(code >> np.uint8(plane) & np.uint8(1))
                bits[plane] |= bit << np.uint64(i)
    for plane in range(3):
        planes[place + plane * ROW] = bits[plane]
    return seen


@njit(cache=True, nogil=True)
def slice_text(symbols, table, letters, begin, lead_blocks, span_blocks, planes):
    """Fill ``planes`` of the tile whose first end is begin + 1, ``lead_blocks`` blocks before it.

    symbols: letters, or base codes unless ``letters``; table uint8[256]: the code of each. Words,
    one per lane and block, are not transposed yet. Returns the number of planes: 2, or 3 if there
    are gap codes; 0 if a symbol is invalid.
    """
    size = 3 * ROW
    first = lead_blocks * size
    stride = BLOCK * span_blocks
    whole = max(0, min(LANES, (symbols.size - begin) // stride))
    if letters:
        other = letter_planes(symbols, begin, whole, span_blocks, planes, first)
    else:
        other = code_planes(symbols, begin, whole, span_blocks, planes, first)
    edges = np.uint8(0)
    for lane in range(whole, LANES):
        for block in range(span_blocks):
            at = begin + stride * lane + BLOCK * block
            edges |= _edge(symbols, table, at, planes, first + block * size + lane)
    # a lane's lead is the end of the previous lane
    for block in range(lead_blocks):
        at = begin + BLOCK * (block - lead_blocks)
        edges |= _edge(symbols, table, at, planes, block * size)
    kinds = 2
    wrong = np.uint64(edges > 7)
    if other or edges > 3:
        kinds = 3
        if letters:
            wrong |= letter_gaps(symbols, begin, whole, span_blocks, planes, first + 2 * ROW)
        else:
            wrong |= code_gaps(symbols, begin, whole, span_blocks, planes, first + 2 * ROW)
    for block in range(lead_blocks - 1, -1, -1):
        for kind in range(kinds):
            at = block * size + kind * ROW
            source = at + span_blocks * size
            for lane in range(1, LANES):
                planes[at + lane] = planes[source + lane - 1]
    return 0 if wrong else kinds
