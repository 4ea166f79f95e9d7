"""Many windows of alpha along one text, bit-parallel, and the starts that matches there extend.

``pack`` makes the two forms of the text that the kernels read. With both strands the reverse
complement follows, at a multiple of TILE columns; it never crosses the bus.

    words        4 bits a symbol, 8 symbols per uint32, the first lowest: 0-3, 4 a gap, 5 between
                 records and after the last
    low, high    the bits of the symbols, 32 symbols a uint32, the first in the top bit. A gap or a
                 separator becomes some pseudorandom letter: readers of these planes look for
                 candidates, and a long run of gaps must not look like a run of A

The scan (``kernel``) has a warp per window and a lane per text segment:

    rows      a window is aligned to the bottom of its 32 * words rows: its last row is the top bit
              of the last word; the free rows above match every symbol, so D is 0 there
    masks     in shared memory, a row of ``words`` for each of the symbols 0-4 and each warp: lanes
              read one of five words, in different banks
    vp, vn    vertical differences +1 and -1, in registers

A lane begins len + k columns before its segment; no match that ends in the segment begins earlier.
It stores the minimum of D's last row for each tile of 64 columns that has at most k - 1:

    key       window << 40 | tile << 12 | k - 1 - minimum (the slack)

A step of Myers' bit-vectors takes 32 rows from one column's differences to the next: p, n are those
to the row above, eq the rows whose symbol is the text's (and row 0 if -1 enters from above), total
(eq & p) + p, ph and mh those to the column before, whose top bits go on to the next word.

Operations for 32 rows and a symbol: 11 (xv, and, add, xh, ph, mh, two funnel shifts, p, n; every
other word the top bit of the last mh, and eq with it) and one load; 10 for the symbol and the
score.

``extend`` has a thread per place: a hit of the core of a block of starts, alpha[anchor:core]. It
follows the anchor there, then the next start that this place can help: those further left reach no
further here, so starts known to reach as far are skipped. Most places are settled by one or two
starts, some by a dozen; so that no lane waits for another, later starts are left for the next
launch, until few are left. The hook row is the row after the longest prefix known to stay within k
- 1 differences; its value follows its horizontal differences, and when it falls to k - 1 the hook
moves to the next row, whose vertical difference is added.

    planes    uint32[3, words]: bit r of the planes is bit 0 and bit 1 of alpha's code at r, and
              whether it is a base; the words of a thread's rows stay in registers
    blocks    int64[3, w]: first start, anchor, core (the end of the core, one after the reach of
              the first start)
    key       block << 40 | tile << 12 | slack: the core ends in ``span`` columns from column
              offset + step * tile on, with k - 1 - slack differences at least

Without keys every block has a place in every tile. Operations for 32 rows and a symbol: 14, with
gaps in alpha 15, and 3 to select the hook's word from those where it can be.
"""

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import address_of, cuda, device_function, load_shared, load_word


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


@device_function
def key_of(window, tile):
    """The key of a place with no slack."""
    key = np.uint64(np.uint64(window) << np.uint64(40))
    return np.uint64(key | np.uint64(np.uint64(tile) << np.uint64(12)))


WARPS = 4  # warps, and so windows, per block
BLOCK_THREADS = 32 * WARPS
TILE_WORDS = 8  # words of text per tile: 64 columns
FAR = 1 << 20


def kernel(words: int) -> Callable[..., None]:
    """The kernel for windows of at most 32 * words symbols; ``[(spans, groups), BLOCK_THREADS]``.

    Arguments: text uint32[t], begin and tiles uint32 (the tiles begin..tiles - 1 are scanned),
    alpha uint8[], blocks int64[3, w] (a window is alpha[blocks[1]:blocks[2]]), segment uint32
    (tiles per lane), warm_up int32 (words of text), limit int32 (k - 1), out uint64[capacity],
    counter uint32[1] (0 before; keys beyond the capacity are counted but not written). groups *
    WARPS >= w, and spans * 32 lanes of ``segment`` tiles cover begin..tiles.
    """
    masks_size = WARPS * 5 * words
    last = words - 1

    def scan(text, begin, tiles, alpha, blocks, segment, warm_up, limit, out, counter):
        masks = cuda.shared.array(masks_size, np.uint32)
        lane = np.int32(np.int32(cuda.threadIdx.x) & np.int32(31))
        warp = np.int32(np.int32(cuda.threadIdx.x) >> np.int32(5))
        window = np.int32(np.int32(cuda.blockIdx.y) * np.int32(WARPS) + warp)
        own = np.int32(warp * np.int32(5 * words))
        known = window < np.int32(blocks.shape[1])
        if known:
            first = np.int64(blocks[1, window])
            length = np.int32(blocks[2, window] - first)
            free = np.int32(np.int32(32 * words) - length)
            at = lane
            while at < np.int32(5 * words):
                symbol = np.int32(at // np.int32(words))
                top = np.int32(np.int32(at - symbol * np.int32(words)) * np.int32(32))
                bits = np.uint32(0)
                for bit in range(32):
                    above = np.int32(np.int32(top + np.int32(bit)) - free)
                    hit = above < np.int32(0)
                    if not hit and symbol < np.int32(4):
                        hit = np.int32(alpha[first + np.int64(above)]) == symbol
                    if hit:
                        bits = np.uint32(bits | np.uint32(np.uint32(1) << np.uint32(bit)))
                masks[own + at] = bits
                at = np.int32(at + np.int32(32))
        cuda.syncthreads()
        number = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(32) + np.uint32(lane))
        tile = np.uint32(begin + np.uint32(number * segment))
        if not known or tile >= tiles:
            return
        stop = np.uint32(min(np.uint32(tile + segment), tiles))
        near = np.uint32(address_of(masks) + np.uint32(np.uint32(4) * np.uint32(own)))
        vp = cuda.local.array(words, np.uint32)
        vn = cuda.local.array(words, np.uint32)
        for w in range(words):
            vp[w] = np.uint32(~masks[own + np.int32(4 * words) + np.int32(w)])
            vn[w] = np.uint32(0)
        score = length
        least = np.int32(FAR)
        word_at = np.int32(np.int32(tile) * np.int32(TILE_WORDS))
        word_stop = np.int32(np.int32(stop) * np.int32(TILE_WORDS))
        counted_from = word_at
        word_at = np.int32(max(np.int32(word_at - warm_up), np.int32(0)))
        while word_at < word_stop:
            symbols = np.uint32(load_word(text, word_at))
            turn = np.int32(0)
            while turn < np.int32(8):
                turn = np.int32(turn + np.int32(1))
                symbol = np.int32(np.int32(symbols) & np.int32(15))
                symbols = np.uint32(symbols >> np.uint32(4))
                if symbol == np.int32(5):
                    for w in range(words):
                        vp[w] = np.uint32(~masks[own + np.int32(4 * words) + np.int32(w)])
                        vn[w] = np.uint32(0)
                    score = length
                else:
                    row = np.uint32(near + np.uint32(np.uint32(symbol) * np.uint32(4 * words)))
                    ph_before = np.uint32(0)
                    mh_before = np.uint32(0)
                    other = np.uint32(0)
                    upper = np.uint32(0)
                    for w in range(words):
                        p = vp[w]
                        n = vn[w]
                        if w % 2 == 1:
                            eq = other
                            xv = np.uint32(eq | n)
                            total = upper
                        else:
                            eq = np.uint32(load_shared(masks, np.uint32(row + np.uint32(4 * w))))
                            xv = np.uint32(eq | n)
                            eq = np.uint32(eq | np.uint32(mh_before >> np.uint32(31)))
                            total = np.uint32(np.uint32(eq & p) + p)
                            if w != last:
                                # the sums of two words as one of 64 bits: one carry less by hand
                                other = np.uint32(
                                    load_shared(masks, np.uint32(row + np.uint32(4 * w + 4)))
                                )
                                both = np.uint64(np.uint64(vp[w + 1]) << np.uint64(32))
                                both = np.uint64(both | np.uint64(p))
                                common = np.uint64(np.uint64(other & vp[w + 1]) << np.uint64(32))
                                common = np.uint64(common | np.uint64(eq & p))
                                both = np.uint64(both + common)
                                total = np.uint32(both)
                                upper = np.uint32(both >> np.uint64(32))
                        ph, mh = horizontal(p, n, eq, total)
                        vp[w], vn[w] = vertical(xv, ph, mh, ph_before, mh_before)
                        ph_before = ph
                        mh_before = mh
                        if w == last:
                            score = np.int32(
                                np.int32(score + np.int32(ph >> np.uint32(31)))
                                - np.int32(mh >> np.uint32(31))
                            )
                    least = np.int32(min(least, score))
            word_at = np.int32(word_at + np.int32(1))
            if np.int32(word_at & np.int32(TILE_WORDS - 1)) == np.int32(0):
                if word_at > counted_from:
                    here = np.uint32(np.uint32(word_at) // np.uint32(TILE_WORDS) - np.uint32(1))
                    if least <= limit:
                        slot = np.uint32(cuda.atomic.add(counter, 0, np.uint32(1)))
                        if slot < np.uint32(out.size):
                            key = key_of(window, here)
                            out[slot] = np.uint64(key | np.uint64(np.uint32(limit - least)))
                least = np.int32(FAR)

    return scan


TEXT_THREADS = 256
TILE = 64  # a strand of the text is a multiple of this many columns


def pack(codes, strand, words, low, high):
    """The kernel; ``[grid, TEXT_THREADS]``, one thread per 32 columns.

    codes uint8[n], strand int64 (columns of a strand, a multiple of TILE), words uint32[], low and
    high uint32[l] (out). Columns from ``strand`` on are the reverse complement, if there is room.
    """
    at = np.int64(cuda.grid(1))
    if at >= low.size:
        return
    low_bits = np.uint32(0)
    high_bits = np.uint32(0)
    word = np.uint32(0)
    for i in range(32):
        column = np.int64(np.int64(32) * at + np.int64(i))
        turned = column >= strand
        source = column
        if turned:
            source = np.int64(np.int64(codes.size) - np.int64(1) - np.int64(column - strand))
        symbol = np.uint32(5)
        if np.int64(0) <= source and source < np.int64(codes.size):
            symbol = np.uint32(codes[source])
            if turned and symbol < np.uint32(4):
                symbol = np.uint32(np.uint32(3) - symbol)
        letter = symbol
        if symbol > np.uint32(3):
            mixed = np.uint32(np.uint32(column) * np.uint32(0x9E3779B1))
            letter = np.uint32(np.uint32(mixed ^ np.uint32(mixed >> np.uint32(15))) >> np.uint32(9))
        low_bits = np.uint32(np.uint32(low_bits << np.uint32(1)) | np.uint32(letter & np.uint32(1)))
        letter = np.uint32(np.uint32(letter >> np.uint32(1)) & np.uint32(1))
        high_bits = np.uint32(np.uint32(high_bits << np.uint32(1)) | letter)
        word = np.uint32(word | np.uint32(symbol << np.uint32(4 * (i & 7))))
        if i & 7 == 7:
            words[4 * at + (i >> 3)] = word
            word = np.uint32(0)
    low[at] = low_bits
    high[at] = high_bits


EXTEND_THREADS = 64

EVERYWHERE, ANCHORS, STARTS = 0, 1, 2
"""What is given for a place: nothing, its key, or key and start."""

MOST_STEPS = 1 << 30  # starts per thread in the last launch: all that are left of its block


@device_function
def _word(planes, plane, i, shift, back):
    """32 rows of a plane, from row ``shift`` (0..31) of word i on; back: 31 - shift."""
    low = np.uint32(planes[plane, i] >> shift)
    next_word = np.uint32(planes[plane, i + 1] << np.uint32(1))
    return np.uint32(low | np.uint32(next_word << back))


@device_function
def _bit(word, at):
    return np.uint32(np.uint32(word >> at) & np.uint32(1))


def extend(words: int, hooked: int, gaps: bool) -> Callable[..., None]:
    """The kernel for prefixes of up to 32 * words symbols; a thread per place.

    The hook is never before word ``hooked``. ``gaps``: whether alpha has any.

    Arguments: text uint32[], size int64 (columns), planes uint32[3, p] with words + 1 spare words,
    ends int64[m], k int32, blocks int64[3, w], keys uint64[2, t] (keys and starts, as given by
    ``kind``), places int64 (most places), where int64[3] (step, span, offset), kind int32
    (EVERYWHERE, ANCHORS or STARTS), steps int32 (starts per thread), reach int64[m] (raised), left
    and outgrown uint64[2, places] (keys and starts: for the next launch, and those whose hook
    outgrew the rows), counts uint32[launches, 2] (0 before: those left by each launch; counts[0, 1]
    outgrown ones), launch int32 (from the second on, the previous launch's count is the number of
    places).
    """
    height = 32 * words

    def extend(
        text, size, planes, ends, k, blocks, keys, places, where, kind, steps, reach, listed,
        outgrown, counts, launch,
    ):  # fmt: skip
        place = np.int64(cuda.grid(1))
        if place >= places:
            return
        if launch > np.int32(0) and place >= np.int64(counts[launch - np.int32(1), 0]):
            return
        key = np.uint64(0)
        if kind != np.int32(EVERYWHERE):
            key = np.uint64(keys[0, place])
        else:
            # adjacent threads: adjacent starts along the same columns
            tile = np.int64(place // np.int64(blocks.shape[1]))
            block = np.int64(place - tile * np.int64(blocks.shape[1]))
            key = np.uint64(key_of(block, tile) | np.uint64(k))
        block = np.int64(key >> np.uint64(40))
        slack = np.int64(key & np.uint64(0xFFF))
        tile = np.int64(np.uint64(key >> np.uint64(12)) & np.uint64(0xFFFFFFF))
        near = np.int64(where[2] + np.int64(where[0] * tile))
        start = np.int64(blocks[1, block])
        if kind == np.int32(STARTS):
            start = np.int64(keys[1, place])
        first = np.int64(blocks[0, block])
        left_steps = np.int32(steps)
        end = np.int64(ends[start])
        low = cuda.local.array(words, np.uint32)
        high = cuda.local.array(words, np.uint32)
        base = cuda.local.array(words, np.uint32)
        vp = cuda.local.array(words, np.uint32)
        vn = cuda.local.array(words, np.uint32)
        while start >= first:
            core = np.int64(blocks[2, block] - start)
            hook = np.int32(core)
            at = np.int64(start >> 5)
            shift = np.uint32(start & 31)
            for w in range(words):
                i = at + w
                back = np.uint32(np.uint32(31) - shift)
                low[w] = _word(planes, 0, i, shift, back)
                high[w] = _word(planes, 1, i, shift, back)
                if gaps:
                    base[w] = _word(planes, 2, i, shift, back)
                vp[w] = np.uint32(0xFFFFFFFF)
                vn[w] = np.uint32(0)
            score = hook
            column = np.int32(max(np.int64(0), np.int64(near - core - np.int64(k))))
            # the hook rises by a row, and so does the last column
            last = np.int32(np.int64(near + where[1]) - core + slack)
            stop = np.int32(min(size, np.int64(last) + np.int64(hook)))
            most = np.int32(min(np.int64(height), end - start))
            grown = np.int32(0)  # 1: to the record's end, 2: out of the rows
            if hook > np.int32(height):
                grown = np.int32(2)
                stop = column
            symbols = np.uint32(0)
            if column < stop:
                symbols = np.uint32(load_word(text, np.int64(column >> np.int32(3))))
                symbols = np.uint32(
                    symbols >> np.uint32(np.uint32(4) * np.uint32(column & np.int32(7)))
                )
            while column < stop:
                if np.int32(column & np.int32(7)) == np.int32(0):
                    symbols = np.uint32(load_word(text, np.int64(column >> np.int32(3))))
                symbol = np.uint32(symbols & np.uint32(15))
                symbols = np.uint32(symbols >> np.uint32(4))
                column = np.int32(column + np.int32(1))
                if symbol == np.uint32(5):
                    for w in range(words):
                        vp[w] = np.uint32(0xFFFFFFFF)
                        vn[w] = np.uint32(0)
                    score = hook
                else:
                    not_low = np.uint32(np.uint32(symbol & np.uint32(1)) - np.uint32(1))
                    not_high = np.uint32(
                        np.uint32(np.uint32(symbol >> np.uint32(1)) & np.uint32(1)) - np.uint32(1)
                    )
                    is_base = np.uint32(np.uint32(symbol >> np.uint32(2)) - np.uint32(1))
                    hook_word = np.int32(np.int32(hook - np.int32(1)) >> np.int32(5))
                    ph_before = np.uint32(0)
                    mh_before = np.uint32(0)
                    hook_ph = np.uint32(0)
                    hook_mh = np.uint32(0)
                    for w in range(words):
                        eq = np.uint32(np.uint32(low[w] ^ not_low) & is_base)
                        eq = np.uint32(eq & np.uint32(high[w] ^ not_high))
                        if gaps:
                            eq = np.uint32(eq & base[w])
                        p = vp[w]
                        n = vn[w]
                        xv = np.uint32(eq | n)
                        eq = np.uint32(eq | np.uint32(mh_before >> np.uint32(31)))
                        total = np.uint32(np.uint32(eq & p) + p)
                        ph, mh = horizontal(p, n, eq, total)
                        if w == hooked or (w > hooked and np.int32(w) == hook_word):
                            hook_ph = ph
                            hook_mh = mh
                        vp[w], vn[w] = vertical(xv, ph, mh, ph_before, mh_before)
                        ph_before = ph
                        mh_before = mh
                    bit = np.uint32(np.uint32(hook - np.int32(1)) & np.uint32(31))
                    score = np.int32(score + np.int32(_bit(hook_ph, bit)))
                    score = np.int32(score - np.int32(_bit(hook_mh, bit)))
                    while score < k:
                        hook = np.int32(hook + np.int32(1))
                        if hook > most:
                            grown = np.int32(1)
                            if start + np.int64(hook) <= end:
                                grown = np.int32(2)
                            stop = column
                            score = k
                        else:
                            stop = np.int32(min(size, np.int64(last) + np.int64(hook)))
                            hook_word = np.int32(np.int32(hook - np.int32(1)) >> np.int32(5))
                            bit = np.uint32(np.uint32(hook - np.int32(1)) & np.uint32(31))
                            for w in range(words):
                                if w >= hooked and np.int32(w) == hook_word:
                                    more, less = _bit(vp[w], bit), _bit(vn[w], bit)
                                    score = np.int32(
                                        np.int32(score + np.int32(more)) - np.int32(less)
                                    )
            reached = np.int64(start + np.int64(hook) - np.int64(1))
            if reached > reach[start]:
                cuda.atomic.max(reach, start, reached)
            if grown == np.int32(2):
                slot = np.int64(cuda.atomic.add(counts, (0, 1), np.uint32(1)))
                outgrown[0, slot] = key
                outgrown[1, slot] = np.uint64(start)
                return
            start = np.int64(start - np.int64(1))
            while start >= first and reach[start] >= reached:
                start = np.int64(start - np.int64(1))
            left_steps = np.int32(left_steps - np.int32(1))
            if left_steps == np.int32(0) and start >= first:
                slot = np.int64(cuda.atomic.add(counts, (launch, 0), np.uint32(1)))
                listed[0, slot] = key
                listed[1, slot] = np.uint64(start)
                return

    return extend
