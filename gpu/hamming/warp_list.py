"""List the hits of a warp's words in shared memory, so that all lanes share the following work.

listed   31 batch 15 | 14 bit 10 | 9 pattern of the batch 8 | 7 word 5 | 4 lane 0
"""

from __future__ import annotations

import numpy as np

from gpu.card.assembly import instruction
from gpu.card.intrinsics import ALL_LANES, cuda, device_function
from gpu.hamming.shape import SPAN, WORDS

LISTED = 256  # hits that a warp lists before writing them: a multiple of 32, above 32


def _list_hits(masks, lists, mask, here, lower, last, some, hits, code, to):
    while True:
        if not hits and some:
            bit = int(some).bit_length() - 1
            hits = masks[int(mask) // 4 + 32 * bit]
            some = np.uint32(some ^ np.uint32(1 << bit))
            code = np.uint32(here + np.uint32(32 * bit))
        writing = np.uint32(cuda.ballot_sync(ALL_LANES, hits != 0))
        if hits:
            bit = int(hits).bit_length() - 1
            lists[int(to) // 4 + int(writing & lower).bit_count()] = code + np.uint32(bit << 10)
            hits = np.uint32(hits ^ np.uint32(1 << bit))
        to = np.uint32(to + np.uint32(4 * int(writing).bit_count()))
        if not writing or to > last:
            return some, hits, code, to, writing


list_hits = instruction(
    """{
    .reg .pred next, writes, again;
    .reg .b32 bit, at, word;
    mov.b32 $0, $11;
    mov.b32 $1, $12;
    mov.b32 $2, $13;
    mov.b32 $3, $14;
    AGAIN:
    setp.eq.u32 next, $1, 0;
    setp.ne.and.u32 next, $0, 0, next;
    bfind.u32 bit, $0;
    mad.lo.u32 at, bit, 128, $7;
    @next ld.shared.u32 $1, [at];
    shl.b32 at, 1, bit;
    @next xor.b32 $0, $0, at;
    @next mad.lo.u32 $2, bit, 32, $8;
    setp.ne.u32 writes, $1, 0;
    vote.sync.ballot.b32 $4, writes, -1;
    and.b32 at, $4, $9;
    popc.b32 at, at;
    mad.lo.u32 at, at, 4, $3;
    bfind.u32 bit, $1;
    mad.lo.u32 word, bit, 1024, $2;
    @writes st.shared.u32 [at], word;
    shl.b32 word, 1, bit;
    @writes xor.b32 $1, $1, word;
    popc.b32 at, $4;
    mad.lo.u32 $3, at, 4, $3;
    setp.ne.u32 again, $4, 0;
    setp.le.and.u32 again, $3, $10, again;
    @again bra.uni AGAIN;
    }""",
    ("u32",) * 5, ("shared", "shared", *("u32",) * 8), _list_hits, volatile=True,
)  # fmt: skip
"""List one hit of each lane that has any, until none has, or the list has no room for 32 more.

``some, hits, code, to, writing = list_hits(masks, lists, mask, here, lower, last, some, hits, code,
to)``: some: a bit for each of the lane's words in ``masks`` that has hits, the first at the address
``mask``, the others 128 bytes apart; hits, code: the rest of the current word, and the list code of
its hits without the segment; here: that code for the first word; to: the end of the list; last: the
address after which there is no room; lower: mask of the lower lanes; writing: zero if no hits are
left. 22 instructions per round.
"""


@device_function
def window_of(hit):
    """The window of a listed hit, counted from the tile's first."""
    word = np.uint32(np.uint32(hit >> np.uint32(5)) & np.uint32(WORDS - 1))
    word = np.uint32(word + np.uint32(np.uint32(hit & np.uint32(31)) * np.uint32(WORDS)))
    # even segments come first (tile.py)
    even = np.uint32(np.uint32(hit >> np.uint32(10)) & np.uint32(15))
    odd = np.uint32(np.uint32(hit >> np.uint32(14)) & np.uint32(1))
    word = np.uint32(word + np.uint32(odd * np.uint32(SPAN)))
    return np.uint32(word + np.uint32(even * np.uint32(2 * SPAN)))


@device_function
def pattern_of(hit, batch):
    """The pattern of a listed hit, counted from the block's first; batch: patterns of one."""
    first = np.uint32(np.uint32(hit >> np.uint32(15)) * np.uint32(batch))
    return np.uint32(first + np.uint32(np.uint32(hit >> np.uint32(8)) & np.uint32(3)))
