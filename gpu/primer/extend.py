"""How far starts reach near places of the text: a thread per place, a hook row that only rises.

A place is a hit of the core of a block of starts: alpha[anchor:core] may match there within k - 1
differences. A thread follows the anchor there, then continues with the next start that this place
can help: starts further left reach no further here, so those already known to reach as far are
skipped. Most places are settled by one or two starts, some by a dozen. So that no lane waits for
another, a thread's later starts are left for the next launch, until few are left.

Myers' bit-vectors, with row 0 all zeros, go along the columns where a match can lie. The hook row
is the row after the longest prefix known to stay within k - 1 differences; its value is updated by
its horizontal differences, and when it falls to k - 1 the hook moves to the next row, whose
vertical difference is added.

    planes    uint32[3, words]: bit r of the planes is bit 0 and bit 1 of alpha's code at r, and
              whether it is a base; the words of a thread's rows stay in registers
    blocks    int64[3, w]: first start, anchor, core (the end of the core, one after the reach of
              the first start)
    key       block << 40 | tile << 12 | slack: the core ends in ``span`` columns from column
              offset + step * tile on, with k - 1 - slack differences at least

Without keys every block has a place in every tile: the plain bit-parallel solution. Operations for
32 rows and a symbol: 14, with gaps in alpha 15, and 3 to select the hook's word from those where it
can be; all rows of the kernel are computed, wherever the hook is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import cuda, device_function, load_word
from gpu.primer.window_scan import horizontal, key_of, vertical

THREADS = 64

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


def kernel(words: int, hooked: int, gaps: bool) -> Callable[..., None]:
    """The kernel for prefixes of up to 32 * words symbols; ``[grid, THREADS]``, a thread per place.

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
        text, size, planes, ends, k, blocks, keys, places, where, kind, steps, reach, left,
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
                left[0, slot] = key
                left[1, slot] = np.uint64(start)
                return

    return extend
