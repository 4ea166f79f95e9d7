"""The events of a batch: two bits a symbol, as GPUs return them, or one byte.

Kernels for the reports: count windows and join them to runs, one read at a time.

Events take two bits a symbol (streamer/matching/events.py), here as uint8 views of at least eight
bytes. A step handles 56 symbols: counting is a popcount of a word, and a run of equal events ends
at a word's lowest 0. Bits are loaded from any byte on; near the end of the arrays, from the last
eight bytes.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.intrinsics import popcount, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.windows import NO_SET

Bits = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""starts, matches: uint32, bit s % 32 of word s / 32 for symbol s."""


# kernels load eight bytes at a time
_LEAST_WORDS = 2
_kept = threading.local()


def no_bits(symbols: int) -> Bits:
    """Return ``Bits`` without any window."""
    starts, matches = _unset_bits(symbols, array_pool.empty)
    starts[:] = matches[:] = 0
    return starts, matches


def kept_zeros(name: str, size: int) -> NDArray[np.int64]:
    """At least ``size`` zeros, of this thread, for a kernel that leaves them so.

    Of a million new ones, each that a read needs is in a page of its own, which takes longer.
    """
    found: NDArray[np.int64] | None = vars(_kept).get(name)
    if found is None or found.size < size:
        found = vars(_kept)[name] = np.zeros(size, np.int64)
    return found


def _unset_bits(symbols: int, empty: Any = np.empty) -> Bits:
    # for parts of a joined batch the pool is slower than the allocator
    words = max(-(-symbols // 32), _LEAST_WORDS)
    return empty(words, np.uint32), empty(words, np.uint32)


class Events:
    """Whether the window that starts at each symbol of a batch matches.

    ``bits``: where windows start, and which of them match.
    """

    __slots__ = ("_codes", "bits", "symbols")

    def __init__(self, symbols: int, bits: Bits) -> None:
        self.symbols = symbols
        self.bits = bits
        self._codes: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, codes: NDArray[np.uint8]) -> Events:
        """Take ``codes`` (uint8[symbols])."""
        made = cls(codes.size, _unset_bits(codes.size))
        _to_bits(codes, *made.bits)
        return made

    @property
    def codes(self) -> NDArray[np.uint8]:
        """MATCH, MISMATCH or 0: one byte per symbol, made on first use."""
        if self._codes is None:
            self._codes = np.empty(self.symbols, np.uint8)
            to_codes(*self.bits, self._codes)
        return self._codes

    @property
    def bytes_of_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The bits as bytes, at least eight: symbol s is bit s % 8 of byte s / 8."""
        starts, matches = self.bits
        if starts.size < _LEAST_WORDS:
            starts, matches = (np.append(b, [0, 0]).astype(np.uint32) for b in (starts, matches))
        return starts.view(np.uint8), matches.view(np.uint8)

    def part(self, start: int, stop: int) -> Events:
        """Return the events of the symbols [start, stop)."""
        part = Events(stop - start, _unset_bits(stop - start))
        for whole, moved in zip(self.bits, part.bits, strict=True):
            _move_bits(whole, start, stop - start, moved)
        return part


@njit(cache=True)
def _move_bits(words, start, size, part):
    """Copy ``size`` bits from ``start`` on to the front of ``part``, and zero the rest."""
    shift = np.uint64(start & 31)
    for i in range(part.size):
        rest = size - 32 * i
        value = np.uint64(0)
        if rest > 0:
            at = (start >> 5) + i
            value = np.uint64(words[at])
            if at + 1 < words.size:
                value |= np.uint64(words[at + 1]) << np.uint64(32)
            value >>= shift
        if rest < 32:
            value &= (np.uint64(1) << np.uint64(max(rest, 0))) - np.uint64(1)
        part[i] = np.uint32(value)


@njit(cache=True, nogil=True)
def add_bits(part, start, words):
    """Set those bits of ``words`` from ``start`` on that are set in ``part``."""
    there = words[start >> 5 :]
    low = np.uint32(start & 31)
    # in two steps, because a shift by 32 has no effect
    right = np.uint32(31) - low
    for i in range(min(part.size, there.size)):
        there[i] |= part[i] << low
    beyond = there[1:]
    for i in range(min(part.size, beyond.size)):
        beyond[i] |= part[i] >> np.uint32(1) >> right


@njit(cache=True, nogil=True)
def to_codes(starts, matches, codes):
    """Expand ``Bits`` to ``Events.codes`` (uint8[symbols])."""
    begins, hits = starts.view(np.uint8), matches.view(np.uint8)
    ones = np.uint64(0x0101010101010101)
    bits = np.uint64(0x8040201008040201)  # bit i of byte i
    most = np.uint64(0x7F7F7F7F7F7F7F7F)  # carries any set bit of a byte into its highest
    whole = codes.size // 8
    eights = codes[: 8 * whole].view(np.uint64)
    for i in range(whole):
        start = (((np.uint64(begins[i]) * ones & bits) + most) >> np.uint64(7)) & ones
        match = (((np.uint64(hits[i]) * ones & bits) + most) >> np.uint64(7)) & start
        eights[i] = (start << np.uint64(1)) - match
    for at in range(8 * whole, codes.size):
        start = (begins[at >> 3] >> np.uint8(at & 7)) & np.uint8(1)
        match = (hits[at >> 3] >> np.uint8(at & 7)) & start
        codes[at] = np.uint8(2) * start - match


@njit(cache=True, nogil=True)
def _to_bits(codes, starts, matches):
    ones = np.uint64(0x0101010101010101)
    # multiplying by it gathers the lowest bits of eight bytes in the highest byte, the first lowest
    gather = np.uint64(0x0102040810204080)
    for word in range(codes.size // 32):
        begins = np.uint64(0)
        hits = np.uint64(0)
        for part in range(4):
            eight: np.uint64 = word_at(codes, 32 * word + 8 * part)
            match = eight & ones
            start = match | ((eight >> np.uint64(1)) & ones)
            shift = np.uint64(8 * part)
            begins |= ((start * gather) >> np.uint64(56)) << shift
            hits |= ((match * gather) >> np.uint64(56)) << shift
        starts[word] = np.uint32(begins)
        matches[word] = np.uint32(hits)
    rest = codes.size & 31
    if codes.size < 64:
        starts[codes.size >> 5 :] = 0
        matches[codes.size >> 5 :] = 0
    if rest:
        first = codes.size - rest
        begins = np.uint64(0)
        hits = np.uint64(0)
        for i in range(rest):
            code = codes[first + i]
            begins |= np.uint64(code != 0) << np.uint64(i)
            hits |= np.uint64(code == 1) << np.uint64(i)
        starts[first >> 5] = np.uint32(begins)
        matches[first >> 5] = np.uint32(hits)


SET = 4
"""The column of ``BatchResult.runs`` with the target set."""

_FAR = np.int64(1 << 62)

# the bits that eight bytes yield, whatever bit of the first they start at
_STEP = 56


_FULL = np.uint64((1 << _STEP) - 1)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True, inline="always")
def bits_from(starts, matches, at):
    """Return the bits of both arrays from ``at`` on, at least ``_STEP``, the first one lowest."""
    byte = min(at >> 3, starts.size - 8)
    shift = np.uint64(at - 8 * byte)
    return word_at(starts, byte) >> shift, word_at(matches, byte) >> shift


@njit(cache=True, nogil=True, inline="always")
def put_summary(columns, read, length, k, hits, misses, target):
    """Write the row of a read as ``summarize`` describes it; return its skipped windows."""
    length_, windows_, matches_, mismatches_, skipped_, best_ = columns
    skipped = max(length - k + 1, 0) - hits - misses
    length_[read] = length
    windows_[read] = hits + misses
    matches_[read] = hits
    mismatches_[read] = misses
    skipped_[read] = skipped
    best_[read] = target if hits else -1
    return skipped


@njit(cache=True, nogil=True)
def summarize(starts, matches, offsets, k, target, first, stop, numbers, columns):
    """Write the columns of the reads first..stop - 1, and return sums over them.

    numbers: of the reads, unless it is empty. columns: length, windows, matches, mismatches,
    skipped (windows that contain a gap code), best: the index ``target`` if a window matches, else
    -1. Returns the sums of windows, matches and skipped, and the numbers of matching reads, of
    matching runs and of other runs, ignoring target sets.
    """
    windows = np.int64(0)
    matched = np.int64(0)
    skipped = np.int64(0)
    reads = np.int64(0)
    hit_runs = np.int64(0)
    miss_runs = np.int64(0)
    for read in range(first, stop):
        begin, end = offsets[read], offsets[read + 1]
        misses = np.int64(0)
        hits = np.int64(0)
        was_hit = np.uint64(0)
        was_miss = np.uint64(0)
        for at in range(begin, end, _STEP):
            # inlined bits_from: calling it here makes this loop half again as slow
            byte = min(at >> 3, starts.size - 8)
            shift = np.uint64(at - 8 * byte)
            here: np.uint64 = word_at(starts, byte) >> shift
            matching: np.uint64 = word_at(matches, byte) >> shift
            here &= (np.uint64(1) << np.uint64(min(end - at, _STEP))) - np.uint64(1)
            matching &= here
            here ^= matching
            misses += np.int64(popcount(here))
            hits += np.int64(popcount(matching))
            hit_runs += np.int64(popcount(matching & ~((matching << np.uint64(1)) | was_hit)))
            miss_runs += np.int64(popcount(here & ~((here << np.uint64(1)) | was_miss)))
            was_hit = matching >> np.uint64(_STEP - 1)
            was_miss = here >> np.uint64(_STEP - 1)
        windows += hits + misses
        matched += hits
        skipped += put_summary(columns, read, end - begin, k, hits, misses, target)
        reads += hits > 0
        if numbers.size:
            numbers[read] = read
    return windows, matched, skipped, reads, hit_runs, miss_runs


@inner
def _held(by_run, at_run, at, default_set):
    """The run of ``by_run`` that ends after ``at``; the set there, and where that may change."""
    while at_run < len(by_run) and by_run[at_run, 1] <= at:
        at_run += 1
    if at_run == len(by_run):
        return at_run, default_set, _FAR
    if by_run[at_run, 0] > at:
        return at_run, default_set, by_run[at_run, 0]
    return at_run, np.uint32(by_run[at_run, SET]), by_run[at_run, 1]


@njit(cache=True, nogil=True, inline="always")
def _run_end(starts, matches, here, word, at, last):
    """The end of the run at ``at``; ``here`` and ``word`` hold the bits loaded there.

    ``starts & (matches ^ flip)`` has a bit set for each window of the same kind; ``flip`` is all
    ones for windows that do not match. The length is found by branches, which the processor
    predicts, instead of being computed: so the processor need not wait for one word to know where
    the next one is.
    """
    flip = (word & _ONE) - _ONE  # all ones if the run does not match
    like = here & (word ^ flip)
    if like & _FULL != _FULL:
        return min(at + np.int64(trailing_zeros(~like)), last)
    # a word loaded from the first bit of a byte counts in full
    at = (at + _STEP) & ~7
    while at + 256 <= last:
        byte = at >> 3
        like = word_at(starts, byte) & (word_at(matches, byte) ^ flip)
        like &= word_at(starts, byte + 8) & (word_at(matches, byte + 8) ^ flip)
        like &= word_at(starts, byte + 16) & (word_at(matches, byte + 16) ^ flip)
        like &= word_at(starts, byte + 24) & (word_at(matches, byte + 24) ^ flip)
        if like != _ALL:
            break
        at += 256
    while at + 64 <= last:
        like = word_at(starts, at >> 3) & (word_at(matches, at >> 3) ^ flip)
        if like != _ALL:
            return at + np.int64(trailing_zeros(~like))
        at += 64
    while at < last:
        here, word = bits_from(starts, matches, at)
        like = here & (word ^ flip)
        if like & _FULL != _FULL:
            return min(at + np.int64(trailing_zeros(~like)), last)
        at += _STEP
    return last


@njit(cache=True, nogil=True, inline="always")
def _put_run(read_, start_, end_, windows_, row, place):
    read, start, windows, k = place
    read_[row] = read
    start_[row] = start
    end_[row] = start + windows - 1 + k
    windows_[row] = windows


@njit(cache=True, nogil=True)
def runs(starts, matches, offsets, k, by_run, default_set, target, first, stop, at_hit, at_miss,
         hit_to, miss_to, rows):  # fmt: skip
    """Write the maximal runs of the reads first..stop - 1, and a row of each read.

    A run is windows at consecutive starts with one event and, if they match, one target set: that
    of the run of ``by_run`` (``BatchResult.runs``) that they are in, or else ``default_set``.
    hit_to, miss_to: columns read, start, end, windows, target, event. If all are empty, runs are
    only counted; ``event`` may be, and the target of ``miss_to``. Matching runs are written from
    row ``at_hit`` on, the others from ``at_miss`` on; if that is negative, they go between the
    matching ones. target, rows: as ``summarize`` has them, no rows if they are empty. Returns what
    that does, with the row after the last of each kind in place of the numbers of runs.
    """
    windows = np.int64(0)
    matched = np.int64(0)
    skipped = np.int64(0)
    reads = np.int64(0)
    read_, start_, end_, windows_, target_, event_ = hit_to
    miss_read, miss_start, miss_end, miss_windows, miss_target, miss_event = miss_to
    mixed = at_miss < 0
    counts = not read_.size and not miss_read.size
    at_run = np.searchsorted(by_run[:, 1], offsets[first], side="right")
    for read in range(first, stop):
        begin = offsets[read]
        length = offsets[read + 1] - begin
        last = begin + length - k + 1  # after the last window's start
        hits = np.int64(0)
        misses = np.int64(0)
        at = begin
        while at < last:
            here, match = bits_from(starts, matches, at)
            if not here & _ONE:
                # no window starts here
                at += np.int64(trailing_zeros(here)) if here & _FULL else _STEP
                continue
            start = at
            at = _run_end(starts, matches, here, match, at, last)
            if not match & _ONE:
                misses += at - start
                row = at_hit if mixed else at_miss
                if not counts:
                    place = read, start - begin, at - start, k
                    _put_run(miss_read, miss_start, miss_end, miss_windows, row, place)
                    if miss_event.size:
                        miss_event[row] = 2
                        miss_target[row] = NO_SET
                at_hit += mixed
                at_miss += not mixed
                continue
            hits += at - start
            end = at
            while start < end:
                at_run, own, at = _held(by_run, at_run, start, default_set)
                while at < end:
                    at_run, other, until = _held(by_run, at_run, at, default_set)
                    if other != own:
                        break
                    at = until
                at = min(at, end)
                if not counts:
                    place = read, start - begin, at - start, k
                    _put_run(read_, start_, end_, windows_, at_hit, place)
                    target_[at_hit] = own
                    if event_.size:
                        event_[at_hit] = 1
                at_hit += 1
                start = at
        windows += hits + misses
        matched += hits
        reads += hits > 0
        if rows[0].size:
            skipped += put_summary(rows, read, length, k, hits, misses, target)
    return windows, matched, skipped, reads, at_hit, at_miss


@njit(cache=True, nogil=True)
def _holds(members, start, stop, target):
    """Return whether the ascending members[start:stop] contain a target."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if members[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low < stop and members[low] == target


@njit(cache=True, nogil=True)
def best_targets(runs, offsets, set_starts, members, counts, tally, first, stop, best, most):
    """Write the target with the most windows of each of the reads first..stop - 1 to ``best``.

    runs: as in ``BatchResult``. Of equals the first wins; -1 if there is none. ``most`` receives
    the number of its windows. Windows are counted by set, and the counts are distributed to the
    members of the sets, smallest sets first. Once the remaining sets have fewer windows than some
    target has already, no new target can win, so only that target and its rivals are looked up in
    the remaining sets. So k-mers that a million records share do not cost a million steps per read.
    counts, tally: int64, for each set and each target, zeros before and after.
    """
    touched = np.empty(counts.size, dtype=np.int64)
    rivals = np.empty(tally.size, dtype=np.int64)
    at_run = np.searchsorted(runs[:, 1], offsets[first], side="right")
    for read in range(first, stop):
        number = 0
        remaining = np.int64(0)
        while at_run < len(runs) and runs[at_run, 0] < offsets[read + 1]:
            own, windows = runs[at_run, SET], runs[at_run, 1] - runs[at_run, 0]
            if counts[own] == 0:
                touched[number] = own
                number += 1
            counts[own] += windows
            remaining += windows
            at_run += 1
        number_left = number
        count = 0
        greatest = np.int64(0)
        least_size = np.int64(1)  # of the remaining sets; doubles each time
        while number_left > 1 and greatest <= remaining:
            for i in range(number):
                own = touched[i]
                begin, end = set_starts[own], set_starts[own + 1]
                if least_size <= end - begin < 2 * least_size:
                    remaining -= counts[own]
                    number_left -= 1
                    for j in range(begin, end):
                        target = members[j]
                        if tally[target] == 0:
                            rivals[count] = target
                            count += 1
                        tally[target] += counts[own]
                        greatest = max(greatest, tally[target])
            least_size *= 2
        # the remaining sets to the front, so that few are looked up for each rival
        rest = 0
        for i in range(number):
            own = touched[i]
            if set_starts[own + 1] - set_starts[own] >= least_size:
                touched[i], touched[rest] = touched[rest], own
                rest += 1
        if rest == 1 and greatest <= remaining:
            # targets found in that set alone are equal
            target = members[set_starts[touched[0]]]
            if tally[target] == 0:
                rivals[count] = target
                count += 1
        chosen = np.int64(-1)
        top = np.int64(0)
        for i in range(count):
            target = rivals[i]
            windows = tally[target]
            tally[target] = 0
            if windows + remaining < greatest:
                continue
            for j in range(rest):
                own = touched[j]
                if _holds(members, set_starts[own], set_starts[own + 1], target):
                    windows += counts[own]
            if windows > top or (windows == top and target < chosen):
                top = windows
                chosen = target
        for i in range(number):
            counts[touched[i]] = 0
        best[read] = chosen
        most[read] = top
