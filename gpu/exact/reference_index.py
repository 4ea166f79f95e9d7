"""The kernel of fixed dictionaries: windows looked up in the index of a reference text.

The arrays are those of ``trie/index/text_index``, about 1.2 bytes per base. A thread has 32
windows, whose 63 symbols are in two registers, the first lowest:

    pending   the windows that are not decided yet
    at, end   the minimizer of the first of them, and the first window without it
    slots     the places of that minimizer: offset -> fingerprints -> place -> text

A place puts the symbols beside the text, on either strand. Any of the 32 windows without a
difference there matches; the others before ``end`` do not. So a read from the text costs one
look-up per 32 windows, another read one per w / 2 windows.

Operations per look-up: 12 (m < 16) or 30 for each m-mer of a window, and about 150 for a place.
Each of its four loads depends on the one before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    cuda,
    device_function,
    load_word,
    lowest_bit,
    product,
    reverse_long,
    reverse_word,
)
from gpu.card.kernel_cache import made, with_threads
from gpu.card.memory import Budget
from gpu.exact.window_bits import every_other, reversed_pairs, window_at
from trie.cpu.jit import inner, njit
from trie.index.mers import ORDER_FLIP, ORDER_MULTIPLIER, ORDER_OTHER_MULTIPLIER
from trie.index.places import FIRST, FULL, KEY_FACTORS, KMERS, SECOND
from trie.index.text_index import TextIndex

THREADS = 128  # threads per block; any multiple of 32

RUN_WORDS = 4
"""Of a run of matches: first window, one past the last, place of its first k-mer, step."""

_EVEN_HALF = np.uint32(0x55555555)
_OFFSET = np.uint32(FULL - 1)
_FLIP = np.uint32(ORDER_FLIP)
_MULTIPLIER = np.uint64(ORDER_MULTIPLIER)
_OTHER_MULTIPLIER = np.uint64(ORDER_OTHER_MULTIPLIER)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@device_function
def _reverse_complement(word):
    """The reverse complement of the 16 symbols of a uint32."""
    back = np.uint32(reverse_word(np.uint32(~word)))
    upper = np.uint32(np.uint32(back & _EVEN_HALF) << np.uint32(1))
    return np.uint32(np.uint32(np.uint32(back >> np.uint32(1)) & _EVEN_HALF) | upper)


@device_function
def _across(low, high, at):
    """The 32 symbols of a pair of words from symbol ``at`` % 32 on."""
    shift = np.uint64(np.uint64(2) * np.uint64(np.uint64(at) & np.uint64(31)))
    above = np.uint64(np.uint64(high << np.uint64(1)) << np.uint64(np.uint64(63) - shift))
    return np.uint64(np.uint64(low >> shift) | above)


@device_function
def symbols_from(low, high, at):
    """The symbols of a pair of words from symbol ``at`` (0..63) on, at least 64 - at or 32."""
    if at >= np.uint32(32):
        return _across(high, np.uint64(0), at)
    return _across(low, high, at)


@device_function
def _apart(here, there):
    """uint64: bit i is set where symbol i of two words differs, i < 32."""
    bits = np.uint64(here ^ there)
    return np.uint64(every_other(np.uint64(bits | np.uint64(bits >> np.uint64(1)))))


def _orders(canonical: bool) -> tuple[Any, Any]:
    """Device functions: the order of the m-mer that a word begins with (``put_orders``).

    The first is for m < 16, the other for longer ones.
    """

    @device_function
    def short(symbols, length):
        spare = np.uint32(np.uint32(32) - np.uint32(2) * length)
        mask = np.uint32(np.uint32(0xFFFFFFFF) >> spare)
        word = np.uint32(symbols)
        mer = np.uint32(word & mask)
        if canonical:
            mer = min(mer, np.uint32(_reverse_complement(word) >> spare))
        mixed = product(np.uint64(np.uint32(mer ^ _FLIP)), _MULTIPLIER)
        return np.uint32(np.uint32(mixed) & mask)

    @device_function
    def of_halves(first, last):
        mixed = np.uint32(product(np.uint64(np.uint32(first ^ _FLIP)), _MULTIPLIER))
        mixed = np.uint32(mixed ^ np.uint32(mixed >> np.uint32(15)))
        return np.uint32(product(np.uint64(np.uint32(mixed ^ last)), _OTHER_MULTIPLIER))

    @device_function
    def long(symbols, length):
        ahead = np.uint64(np.uint64(2) * np.uint64(length - np.uint32(16)))
        first, last = np.uint32(symbols), np.uint32(np.uint64(symbols >> ahead))
        order = of_halves(first, last)
        if canonical:
            order = min(order, of_halves(_reverse_complement(last), _reverse_complement(first)))
        return np.uint32(order >> np.uint32(1))

    return short, long


def _minimizer(order_of: Any) -> Any:
    """The device function: where the minimizer of a window begins, and the first window without it.

    32 at most, as windows after those of a thread do not count.
    """

    @device_function
    def minimizer(low, high, begin, length, width):
        symbols = symbols_from(low, high, begin)
        least = order_of(symbols, length)
        last = np.uint32(0)
        i = np.uint32(1)
        while i < width:
            symbols = np.uint64(symbols >> np.uint64(2))
            order = order_of(symbols, length)
            if order <= least:
                least = order
                last = i
            i = np.uint32(i + np.uint32(1))
        stop = min(np.uint32(begin + last + np.uint32(1)), np.uint32(32))
        end = np.uint32(begin + np.uint32(1))
        while end < stop:
            symbols = symbols_from(low, high, np.uint32(end + width - np.uint32(1)))
            if order_of(symbols, length) < least:
                break
            end = np.uint32(end + np.uint32(1))
        return np.uint32(begin + last), end

    return minimizer


@device_function
def _key(number):
    """The key of the number of an m-mer or k-mer (``trie.index.places.key_of``)."""
    key = product(np.uint64(number + np.uint64(1)), KEY_FACTORS[0])
    key = product(np.uint64(key ^ np.uint64(key >> np.uint64(32))), KEY_FACTORS[1])
    return np.uint64(key ^ np.uint64(key >> np.uint64(29)))


@device_function
def _gaps_at(blocks, gaps, size, first):
    """uint64: bit i is set where symbol first + i of the text is a gap code, i < 64."""
    apart = np.uint64(0)
    at = np.uint64(np.uint64(size >> np.uint64(13)) + np.uint64(1))
    at = np.uint64(at + np.uint64(first >> np.uint64(8)))
    i = np.uint64(np.uint64(load_word(blocks, at)) * np.uint64(2))
    while np.uint64(i + np.uint64(1)) < np.uint64(gaps.size):
        begin = np.uint64(load_word(gaps, i))
        if begin >= np.uint64(first + np.uint64(64)):
            break
        end = np.uint64(load_word(gaps, np.uint64(i + np.uint64(1))))
        if end > first:
            below = np.uint64(0)
            if begin > first:
                below = np.uint64(~np.uint64(_ALL << np.uint64(begin - first)))
            upto = _ALL
            if end < np.uint64(first + np.uint64(64)):
                upto = np.uint64(~np.uint64(_ALL << np.uint64(end - first)))
            apart = np.uint64(apart | np.uint64(upto & np.uint64(~below)))
        i = np.uint64(i + np.uint64(2))
    return apart


@device_function
def _near_gap(blocks, place):
    """Whether the 256 symbols around a place, or the next 31, contain a gap code."""
    word = np.uint32(load_word(blocks, np.uint64(place >> np.uint64(13))))
    bit = np.uint32(np.uint64(np.uint64(place >> np.uint64(8)) & np.uint64(31)))
    return np.uint32(np.uint32(word >> bit) & np.uint32(1)) != np.uint32(0)


@device_function
def _unlike(text, blocks, gaps, size, place, turned, low, high):
    """uint64: bit i is set where symbol i of 64 differs from place + i of the text.

    turned: from place + 63 - i of the other strand, that is. All are set outside of the text, to
    which a damaged file may point.
    """
    if size < np.uint64(64) or place > np.uint64(size - np.uint64(64)):
        return _ALL
    word = np.uint64(place >> np.uint64(5))
    second = np.uint64(load_word(text, np.uint64(word + np.uint64(1))))
    there_low = _across(np.uint64(load_word(text, word)), second, place)
    third = np.uint64(load_word(text, np.uint64(word + np.uint64(2))))
    there_high = _across(second, third, place)
    if turned:
        other = reversed_pairs(np.uint64(~there_high))
        there_high = reversed_pairs(np.uint64(~there_low))
        there_low = other
    apart = np.uint64(_apart(there_high, high) << np.uint64(32))
    apart = np.uint64(apart | _apart(there_low, low))
    if _near_gap(blocks, place) or _near_gap(blocks, np.uint64(place + np.uint64(32))):
        gapped = _gaps_at(blocks, gaps, size, place)
        if turned:
            gapped = np.uint64(reverse_long(gapped))
        apart = np.uint64(apart | gapped)
    return apart


def look_up(canonical: bool, with_runs: bool) -> Callable[..., None]:
    """The kernel; a thread per word of starts.

    Arguments: k, length, longer uint32: the symbols of a window and of the m-mers of both levels, 0
    for a level without any, bases uint32[], starts uint32[W], text uint64[], size uint64, blocks
    uint32[], gaps uint32[], offsets uint32[], places uint32[], prints uint8[], full uint64[],
    matches uint32[W], runs uint32[4 n], counter uint32[1], 0. with_runs: write the runs of matches,
    the first of a word to its row, further ones, which ``counter`` counts, after the rows of all
    words, in no order, as far as there is room.
    """
    short, long = map(_minimizer, _orders(canonical))

    @device_function
    def sought(low, high, begin, k, symbols):
        """Where the m-mer, or k-mer, to look up begins, and the first window without it."""
        width = np.uint32(k - symbols + np.uint32(1))
        if symbols < np.uint32(16):
            return short(low, high, begin, symbols, width)
        return long(low, high, begin, symbols, width)

    @device_function
    def alike(apart, k):
        """uint32: the windows without a set bit."""
        span = np.uint32(1)
        while np.uint32(span + span) <= k:
            apart = np.uint64(apart | np.uint64(apart >> np.uint64(span)))
            span = np.uint32(span + span)
        apart = np.uint64(apart | np.uint64(apart >> np.uint64(np.uint32(k - span))))
        return np.uint32(np.uint64(~apart))

    def kernel(
        k, length, longer, bases, starts, text, size, blocks, gaps, offsets, places, prints, full,
        matches, runs, counter,
    ):  # fmt: skip
        word = np.uint32(cuda.grid(1))
        if word >= np.uint32(starts.size):
            return
        windows = np.uint32(load_word(starts, word))
        pending = windows
        matched = np.uint32(0)
        first_row = True
        origin = np.uint32(word << np.uint32(5))
        low = np.uint64(0)
        high = np.uint64(0)
        if pending != np.uint32(0):
            low = reversed_pairs(window_at(bases, origin))
            high = reversed_pairs(window_at(bases, np.uint32(origin + np.uint32(32))))
        while pending != np.uint32(0):
            begin = np.uint32(lowest_bit(pending))
            level = FIRST if length else KMERS
            limit = np.uint32(32)
            while True:
                symbols = length if level == FIRST else longer if level == SECOND else k
                at, end = sought(low, high, begin, k, symbols)
                end = min(end, limit)
                spare = np.uint64(np.uint64(64) - np.uint64(2) * np.uint64(symbols))
                here = np.uint64(symbols_from(low, high, at) << spare)
                number = np.uint64(here >> spare)
                back = number
                if canonical:
                    back = reversed_pairs(np.uint64(~here))
                    back = np.uint64(np.uint64(back << spare) >> spare)
                key = _key(min(number, back))
                buckets = np.uint64(np.uint64(offsets.size) - np.uint64(1))
                bucket = np.uint64(product(np.uint64(key >> np.uint64(32)), buckets))
                bucket = np.uint64(bucket >> np.uint64(32))
                slot = np.uint32(load_word(offsets, bucket))
                if level == KMERS or np.uint32(slot & np.uint32(FULL)) == np.uint32(0):
                    break
                bit = np.uint64(np.uint64(bucket * np.uint64(2)) + np.uint64(level))
                flags = np.uint64(load_word(full, np.uint64(bit >> np.uint64(6))))
                flag = np.uint64(np.uint64(flags >> np.uint64(bit & np.uint64(63))) & np.uint64(1))
                if flag == np.uint64(0):
                    break
                limit = end
                level = SECOND if level == FIRST and longer else KMERS
            stop = np.uint32(load_word(offsets, np.uint64(bucket + np.uint64(1))))
            slot = np.uint32(slot & _OFFSET)
            stop = min(np.uint32(stop & _OFFSET), np.uint32(prints.size))
            mark = np.uint8(np.uint64(key & np.uint64(255)))
            while slot < stop:
                if np.uint8(prints[slot]) == mark:
                    place = np.uint64(load_word(places, np.uint64(slot)))
                    turned = False
                    first = np.uint64(place - np.uint64(at))
                    if canonical and number != back:
                        turned = _other_strand(text, size, place, spare, number)
                        if turned:
                            # symbol 63 is beside this place
                            first = np.uint64(np.uint64(place + np.uint64(symbols)))
                            first = np.uint64(first + np.uint64(at))
                            first = np.uint64(first - np.uint64(64))
                    apart = _unlike(text, blocks, gaps, size, first, turned, low, high)
                    new = np.uint32(alike(apart, k) & windows)
                    new = np.uint32(new & np.uint32(~matched))
                    matched = np.uint32(matched | new)
                    if with_runs:
                        while new != np.uint32(0):
                            head = np.uint32(lowest_bit(new))
                            rising = np.uint64(
                                np.uint64(new) + np.uint64(np.uint64(1) << np.uint64(head))
                            )
                            rising = np.uint32(rising)
                            tail = np.uint32(32)
                            if rising != np.uint32(0):
                                tail = np.uint32(lowest_bit(rising))
                            new = np.uint32(new & rising)
                            spot = np.uint64(word)
                            if not first_row:
                                spot = np.uint64(cuda.atomic.add(counter, 0, np.uint32(1)))
                                spot = np.uint64(spot + np.uint64(starts.size))
                            first_row = False
                            spot = np.uint64(spot * np.uint64(4))
                            if spot < np.uint64(runs.size):
                                runs[spot] = np.uint32(origin + head)
                                runs[spot + np.uint64(1)] = np.uint32(origin + tail)
                                where = np.uint64(first + np.uint64(head))
                                step = np.uint32(1)
                                if turned:
                                    where = np.uint64(first + np.uint64(64) - np.uint64(k))
                                    where = np.uint64(where - np.uint64(head))
                                    step = np.uint32(0xFFFFFFFF)
                                runs[spot + np.uint64(2)] = np.uint32(where)
                                runs[spot + np.uint64(3)] = step
                slot = np.uint32(slot + np.uint32(1))
            decided = np.uint32(0xFFFFFFFF)
            if end < np.uint32(32):
                decided = np.uint32(np.uint32(np.uint32(1) << end) - np.uint32(1))
            pending = np.uint32(pending & np.uint32(~np.uint32(decided | matched)))
        matches[word] = matched

    return kernel


@device_function
def _other_strand(text, size, place, spare, number):
    """Whether the text does not hold the symbols of that number at a place, as they are."""
    if place >= size:
        return False
    word = np.uint64(place >> np.uint64(5))
    low = np.uint64(load_word(text, word))
    high = np.uint64(load_word(text, np.uint64(word + np.uint64(1))))
    there = np.uint64(_across(low, high, place) << spare)
    return np.uint64(there >> spare) != number


class DeviceIndex:
    """An index on the current device; raises CardMemoryError if it does not fit.

    Its arrays may be mapped from a file.
    """

    def __init__(self, index: TextIndex, budget: Budget, stream: Any) -> None:
        self._shape = shape = index.shape
        packed, blocks, gaps, _, *buckets = index.arrays
        text = packed[: packed.size // 8 * 8].view(np.uint64)
        arrays = text, blocks, gaps, *buckets
        budget.take(f"an index of {shape.text.size:,} bases", sum(array.nbytes for array in arrays))
        sent = [cuda.to_device(array, stream=stream) for array in arrays]
        self._arrays = sent[0], np.uint64(shape.text.size), *sent[1:]

    def launch(self, views: Any, runs: Any, counter: Any, stream: Any, *, with_runs: bool) -> None:
        """Queue the kernel for a chunk.

        views: bases, starts and matches of the chunk. runs: uint32[4 n] and counter: uint32[1], 0,
        as the kernel takes them; with_runs: find them too.
        """
        shape = self._shape
        bases, starts, matches = views
        lengths = (mers.length if mers.width else 0 for mers in (shape.mers, shape.longer))
        symbols = map(np.uint32, (shape.k, *lengths))
        kernel = made(look_up, shape.text.both > shape.text.size, with_runs)
        with_threads(kernel, starts.size, THREADS, stream)(
            *symbols, bases, starts, *self._arrays, matches, runs, counter
        )


@inner
def _values(rows, i):
    """A row as signed numbers: first window, one past the last, place, step."""
    step = np.int64(1) if rows[i, 3] == 1 else np.int64(-1)
    return np.int64(rows[i, 0]), np.int64(rows[i, 1]), np.int64(rows[i, 2]), step


@njit(cache=True, nogil=True)
def chained(rows, words):
    """The rows of the kernel after the first ``words``, chained by word, the last one first.

    Returns int32[words] and int32[rows]: the last row of a word and, for each, the one before, -1
    if there is none.
    """
    last, before = np.full(words, -1, np.int32), np.empty(len(rows), np.int32)
    for i in range(words, len(rows)):
        word = rows[i, 0] >> 5
        before[i], last[word] = last[word], i
    return last, before


@njit(cache=True, nogil=True)
def joined_runs(rows, chains, matches, first, stop, runs):
    """Join the runs of the kernel to those of ``TextIndex.match``; returns their number.

    rows: uint32[words + m, 4], one for each word that has ``matches``, uint32[words], and m of
    words with more than one. chains: of ``chained``. first, stop: the words. runs: int64[n, 4], to
    write them to: n is 32 for each word, or one for each and m.
    """
    last, before = chains
    here = np.empty(32, np.int64)  # the rows of a word, ascending
    count = 0
    end = after = along = np.int64(-1)  # of the run so far: its end, the place and step from there
    for word in range(first, stop):
        if matches[word] == 0:
            continue
        here[0], size = word, 1
        i = np.int64(last[word])
        while i >= 0:
            at = size
            while at > 0 and rows[here[at - 1], 0] > rows[i, 0]:
                here[at] = here[at - 1]
                at -= 1
            here[at] = i
            size += 1
            i = np.int64(before[i])
        for i in here[:size]:
            begin, until, place, step = _values(rows, i)
            if not (begin == end and place == after and step == along):
                runs[count, 0], runs[count, 2], runs[count, 3] = begin, place, step
                count += 1
            runs[count - 1, 1] = until
            end, after, along = until, place + step * (until - begin), step
    return count
