"""Convert the bit-sliced hits of a tile (``tiles``) to ends and distances in text order.

A tile's ends are ordered by block, then lane; the text's by lane. So there are two steps, neither
with a branch that depends on where the hits are:

    pack_block   as soon as a block has been scanned, while it is in the L1 cache: two bytes a hit,
                 its bit and its distance's low digits, and for each lane where its hits begin
    take_found   when the tile is done: which lanes have hits in which blocks, lane by lane, and
                 their bytes widened to ends and distances

    marks    uint8[64, pitch]    bit l of group g, block b: lane 8 g + l has hits in b
    infos    uint32[span, 512]   first hit of the lane in the block, << 7 | their number
    places   uint8[span, PITCH]  the hits' bits, lane by lane
    digits   uint8[8-bit digits, span, PITCH]

Blocks are numbered among those with hits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.cells import LANES, LINE, ROW
from streamer.batch.asm.compressing import AT_ONCE, LISTED, list_bits, pack_word, widen
from trie.cpu.intrinsics import prefetch_far
from trie.cpu.jit import njit
from trie.cpu.vectors import load, marked, occupied

BLOCK = 64  # ends per lane and block
SLACK = AT_ONCE  # places after the last hit that are overwritten
PITCH = LANES * BLOCK + 64  # bytes from the hits of one block to those of the next
_GROUPS = LANES // 8
_LANE = 22
_COUNT = 7


class HitLists(NamedTuple):
    """The hits of a tile, as above, and the words of ``take_found``: uint32[512 * span + 16]."""

    marks: NDArray[np.uint8]
    infos: NDArray[np.uint32]
    places: NDArray[np.uint8]
    digits: NDArray[np.uint8]
    words: NDArray[np.uint32]


def list_sizes(span: int, low_planes: int) -> dict[str, tuple[Any, int]]:
    """Return dtype and size of each of the HitLists."""
    return {
        "marks": (np.uint8, _GROUPS * mark_pitch(span)),
        "infos": (np.uint32, span * LANES),
        "places": (np.uint8, span * PITCH),
        "digits": (np.uint8, max(1, -(-low_planes // 8)) * span * PITCH),
        "words": (np.uint32, LANES * span + LISTED),
    }


@njit(cache=True, nogil=True)
def mark_pitch(span):
    """Return the bytes of ``marks`` from one group of lanes to the next."""
    return -(-span // 64) * 64


@njit(cache=True, nogil=True)
def clear_beyond(found, first, span, stop):
    """Drop hits with ends beyond ``stop``; the ends of lane 0 start at first + 1."""
    for lane in range(LANES):
        room = stop - (first + BLOCK * span * lane)
        if room < BLOCK:
            found[lane] &= (np.uint64(1) << np.uint64(max(room, 0))) - np.uint64(1)


@njit(cache=True, nogil=True)
def pack_block(found, lows, low_planes, number, span, lists, text, ahead):
    """Append the hits of the ``number``-th block with hits; return their number, and that of lanes.

    found uint64[512]: a word per lane, a bit per end. lows: the same for each plane, a ROW each.
    text uint8[]: each lane prefetches a cache line from ``ahead`` on (``tiles``).
    """
    marks, infos, places, digits, words = lists
    pitch = mark_pitch(span)
    full = 0
    for group in range(0, _GROUPS, 2):
        low = occupied(load(found, 8 * group))
        high: np.uint64 = occupied(load(found, 8 * group + 8))
        marks[group * pitch + number] = low
        marks[group * pitch + pitch + number] = high
        full += list_bits(words, full, np.uint32(8 * group), low | high << np.uint64(8))
    infos_at = number * LANES
    begin = number * PITCH
    size = 0
    for byte in range(max(1, (low_planes + 7) // 8)):
        own_digits = digits[byte * span * PITCH :]
        planes = min(8, low_planes - 8 * byte)
        size = 0
        for i in range(full):
            lane = np.int64(words[i])
            prefetch_far(text, ahead + LINE * i)
            count = pack_word(
                found[lane], lows, 8 * byte * ROW + lane, ROW, planes,
                places, own_digits, begin + size,
            )  # fmt: skip
            infos[infos_at + lane] = np.uint32(size << _COUNT | count)
            size += count
    return size, full


@njit(cache=True, nogil=True)
def take_found(lists, blocks, span, begin, k, low_planes, ends, distances, at):
    """Write ends and distances of the hits from place ``at`` on, and SLACK more.

    blocks int64[]: the blocks with hits. begin: of the tile.
    """
    marks, infos, places, digits, words = lists
    pitch = mark_pitch(span)
    full = 0
    for group in range(_GROUPS):
        for first in range(0, blocks.size, 64):
            some = min(64, blocks.size - first)
            # marks after the last block are left over from another tile
            there = ~np.uint64(0) >> np.uint64(64 - some)
            for one in range(8):
                at_mark = group * pitch + first
                bits = marked(marks, at_mark, 1 << one)
                bits &= there
                place = (8 * group + one) << _LANE | first
                for part in range(0, some, LISTED):
                    full += list_bits(words, full, np.uint32(place + part), bits)
                    bits >>= np.uint64(LISTED)
    nothing = k + 1 - (1 << low_planes)
    to = at
    for i in range(full):
        lane = np.int64(words[i]) >> np.int64(_LANE)
        number = np.int64(words[i]) & ((1 << _LANE) - 1)
        info = np.int64(infos[number * LANES + lane])
        source = number * PITCH + (info >> _COUNT)
        count = info & ((1 << _COUNT) - 1)
        first = begin + 1 + BLOCK * (lane * span + blocks[number])
        widen(places, source, first, ends, to)
        widen(digits, source, nothing, distances, to)
        # few words have more hits
        for more in range(AT_ONCE, count, AT_ONCE):
            widen(places, source + more, first, ends, to + more)
            widen(digits, source + more, nothing, distances, to + more)
        for byte in range(1, (low_planes + 7) // 8):
            for j in range(count):
                digit = np.int32(digits[byte * span * PITCH + source + j])
                distances[to + j] += digit << np.int32(8 * byte)
        to += count
