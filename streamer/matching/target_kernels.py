"""Kernels for target counts: reads, and matching windows by k-mer and by target set.

Where a read follows a record, its windows have the numbers n, n+1, n+2, ... or, on the other
strand, ..., n+2, n+1, n (streamer/matching/window_labels.py):

    numbers    41 42 43 44  .  .  .  .  87 86 85  3
    runs       [41    44]               [85   87] [3 3]

A run costs one step, whatever its length: seen k-mers are marked 64 bits at a time, and two
additions count them all, +1 where the run begins and -1 after its end; the prefix sum of these
changes at a number is its count.

An index (``trie.index``) returns such runs itself, by place; otherwise they are found among the
numbers of all windows.
"""

import numpy as np

from trie.cpu.intrinsics import add_shared, or_shared, popcount
from trie.cpu.jit import inner, njit
from trie.windows import MATCH, NO_SET

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.int64(NO_SET)
_AHEAD = 8  # runs, whose numbers are prefetched


@inner
def _mark(seen, low, high):
    """Set the bits ``low`` to ``high``; words that are set already are not written."""
    first, last = low >> 6, high >> 6
    for word in range(first, last + 1):
        bits = _ALL
        if word == first:
            bits &= _ALL << np.uint64(low & 63)
        if word == last:
            bits &= _ALL >> np.uint64(63 - (high & 63))
        if seen[word] & bits != bits:
            or_shared(seen, word, bits)


@njit(cache=True, nogil=True)
def count_windows(numbers, sets, only_set, offsets, k, reads, seen, changes, totals):
    """Count the matching windows of some reads; other threads may count other reads concurrently.

    numbers, sets: uint32[symbols], number and target set of each matching window's k-mer, else
    NO_SET; if ``sets`` is empty, all have ``only_set``. reads: int64, indices. Updates those that
    are not empty: seen uint64, one bit per number; changes int64[numbers + 1], as above; totals
    int64[sets], windows by set.
    """
    many = sets.size > 0
    held = only_set
    windows = np.int64(0)
    for read in reads:
        low = high = _NONE
        for at in range(offsets[read], offsets[read + 1] - k + 1):
            number = np.int64(numbers[at])
            if number == _NONE:
                continue
            if many and sets[at] != held:
                if totals.size and held != NO_SET:
                    add_shared(totals, held, windows)
                held = sets[at]
                windows = np.int64(0)
            windows += 1
            if number == high + 1 and low != _NONE:
                high = number
            elif number == low - 1:
                low = number
            else:
                if low != _NONE:
                    _put_run(seen, changes, low, high)
                low = high = number
        if low != _NONE:
            _put_run(seen, changes, low, high)
    if totals.size and held != NO_SET:
        add_shared(totals, held, windows)


@njit(cache=True, nogil=True)
def count_places(runs, repeats, steps, sets, only_set, seen, changes, totals):
    """Like ``count_windows``, for ``BatchResult.runs``.

    The number of a k-mer is its first place in the text of an index. repeats, steps: of its
    ``shares``.
    """
    for i in range(len(runs)):
        begin, stop = runs[i, 0], runs[i, 1]
        place = _first_place(runs, i)
        last = place + stop - begin
        at = np.searchsorted(repeats[1], place, side="right")
        while place < last:
            if at == steps.size or np.int64(repeats[0, at]) >= last:
                _put_run(seen, changes, place, last - 1)
                break
            if np.int64(repeats[0, at]) > place:
                _put_run(seen, changes, place, np.int64(repeats[0, at]) - 1)
                place = np.int64(repeats[0, at])
            end = min(np.int64(repeats[1, at]), last)
            low = np.int64(repeats[2, at]) + steps[at] * (place - np.int64(repeats[0, at]))
            high = low + steps[at] * (end - place - 1)
            _put_run(seen, changes, min(low, high), max(low, high))
            place = end
            at += 1
        if totals.size:
            _count_sets_of_run(sets, only_set, begin, stop, totals)


@njit(cache=True, nogil=True)
def first_places(runs, repeats, steps, numbers):
    """Write the first place of the k-mer of each window of ``BatchResult.runs`` to ``numbers``."""
    for i in range(len(runs)):
        place = runs[i, 2]
        for window in range(runs[i, 0], runs[i, 1]):
            at = np.searchsorted(repeats[1], place, side="right")
            first = place
            if at < steps.size and np.int64(repeats[0, at]) <= place:
                first = np.int64(repeats[2, at]) + steps[at] * (place - np.int64(repeats[0, at]))
            numbers[window] = first
            place += runs[i, 3]


@njit(cache=True, nogil=True)
def seen_by_record(seen, starts, record_sets, shared, counts):
    """Count the seen k-mers of each set in ``counts``; seen: a bit for each place of an index."""
    for record in range(record_sets.size):
        begin = starts[record]
        end = starts[record + 1] if record + 1 < record_sets.size else 64 * seen.size
        counts[record_sets[record]] += _seen_between(seen, begin, end)
    record = 0
    for at in range(shared.shape[1]):
        begin, end = np.int64(shared[0, at]), min(np.int64(shared[1, at]), 64 * seen.size)
        while record + 1 < record_sets.size and starts[record + 1] <= begin:
            record += 1
        count = _seen_between(seen, begin, end)
        counts[record_sets[record]] -= count
        counts[min(shared[2, at], counts.size - 1)] += count


@inner
def _seen_between(seen, begin, end):
    """The number of bits in [begin, end)."""
    count = np.int64(0)
    for word in range(begin >> 6, (end + 63) >> 6):
        bits = seen[word]
        if 64 * word < begin:
            bits &= _ALL << np.uint64(begin - 64 * word)
        if 64 * word + 64 > end:
            bits &= _ALL >> np.uint64(64 * word + 64 - end)
        count += np.int64(popcount(bits))
    return count


@inner
def _count_sets_of_run(sets, only_set, begin, stop, totals):
    """Add the windows [begin, stop) to the counts of their sets."""
    if sets.size == 0:
        if only_set != NO_SET:
            add_shared(totals, np.int64(only_set), stop - begin)
        return
    held, first = sets[begin], begin
    for window in range(begin + 1, stop + 1):
        if window < stop and sets[window] == held:
            continue
        if held != NO_SET:
            add_shared(totals, np.int64(held), window - first)
        if window < stop:
            held, first = sets[window], window


@inner
def _first_place(runs, i):
    """The lowest place of a run."""
    behind = runs[i, 1] - runs[i, 0] - 1
    return runs[i, 2] if runs[i, 3] > 0 else runs[i, 2] - behind


@inner
def _put_run(seen, changes, low, high):
    """Count the numbers ``low`` to ``high``, of which a damaged file has others than there are."""
    if low < 0:
        return
    if high >> 6 < seen.size:
        _mark(seen, low, high)
    if high + 1 < changes.size:
        add_shared(changes, low, np.int64(1))
        add_shared(changes, high + 1, np.int64(-1))


@njit(cache=True, nogil=True)
def seen_by_set(seen, set_of, counts):
    """Count the seen k-mers of each set in ``counts``; set_of: uint32 by number, or NO_SET."""
    for word in range(seen.size):
        bits = seen[word]
        if bits == np.uint64(0):
            continue
        first = 64 * word
        stop = min(first + 64, set_of.size)
        alike = True
        for number in range(first + 1, stop):
            alike &= set_of[number] == set_of[first]
        if alike:
            if set_of[first] != NO_SET:
                counts[set_of[first]] += np.int64(popcount(bits))
            continue
        for number in range(first, stop):
            if bits >> np.uint64(number & 63) & np.uint64(1) and set_of[number] != NO_SET:
                counts[set_of[number]] += 1


@njit(cache=True, nogil=True)
def count_sets(sets, counts):
    """Count the k-mers of each set in ``counts``; sets: uint32 by k-mer, or NO_SET."""
    for i in range(sets.size):
        if sets[i] != NO_SET:
            counts[sets[i]] += 1


# kernels with one step per read keep the GIL: releasing it takes longer


@njit(cache=True)
def assign_reads(best, most, windows, least, fraction, assigned):
    """Set ``assigned`` to ``best`` where enough windows match that, else to -1."""
    for read in range(best.size):
        # division rounds like a parsed decimal, so equal fractions compare equal
        share = most[read] / max(windows[read], 1)
        enough = most[read] >= least and share >= fraction
        assigned[read] = best[read] if enough else -1


@njit(cache=True)
def chosen_reads(assigned, mates, keep):
    """Choose the reads that are on target or whose mates are; without ``keep``, the others."""
    chosen = np.empty(assigned.size, np.bool_)
    for read in range(assigned.size):
        chosen[read] = (assigned[read] >= 0 or mates[read] >= 0) == keep
    return chosen


@njit(cache=True)
def count_filtered(index, offsets, chosen, sums):
    """Count reads and bases by row, of all reads and of the chosen ones; the last row is for -1."""
    for read in range(index.size):
        row = index[read] if index[read] >= 0 else len(sums) - 1
        length = offsets[read + 1] - offsets[read]
        sums[row, 0] += 1
        sums[row, 1] += length
        if chosen[read]:
            sums[row, 2] += 1
            sums[row, 3] += length


@njit(cache=True)
def count_reads(assigned, offsets, chosen, reads, bases):
    """Count the reads ``chosen`` (int64) and their bases by target; the last row is for -1."""
    for read in chosen:
        target = assigned[read]
        reads[target] += 1
        bases[target] += offsets[read + 1] - offsets[read]


@njit(cache=True, nogil=True)
def cover(at, offsets, counts, first, stop, bins, columns):
    """Write the rows of the targets first..stop - 1, ``bins`` each.

    at: uint32, the number of the window at each symbol of all records, or NO_SET. counts: int64,
    how often each number was matched. columns: target, start, end, kmers, seen, matches.
    """
    target_, start_, end_, kmers_, seen_, matches_ = columns
    row = 0
    for target in range(first, stop):
        begin = offsets[target]
        length = offsets[target + 1] - begin
        start = np.int64(0)
        for part in range(bins):
            end = start + length // bins + np.int64(part < length % bins)
            kmers = seen = matches = np.int64(0)
            for symbol in range(begin + start, begin + end):
                if at[symbol] != NO_SET:
                    count = counts[at[symbol]]
                    kmers += 1
                    seen += count > 0
                    matches += count
            target_[row] = target
            start_[row] = start
            end_[row] = end
            kmers_[row] = kmers
            seen_[row] = seen
            matches_[row] = matches
            row += 1
            start = end


@njit(cache=True, nogil=True)
def look_up_sets(numbers, set_of, start, stop, sets):
    """Look up the target set of each window from its k-mer's number; NO_SET stays."""
    for i in range(start, stop):
        sets[i] = set_of[numbers[i]] if numbers[i] != NO_SET else NO_SET


@inner
def _matching(reads, read, k, both, only, codes, held, found):
    """Append code and target set of each matching window; return all windows and those found."""
    events, bases, offsets, sets = reads
    mask = (np.uint64(1) << np.uint64(2 * k)) - np.uint64(1)
    top = np.uint64(2 * (k - 1))
    code = turned = np.uint64(0)
    windows = 0
    first = offsets[read]
    for i in range(first, offsets[read + 1]):
        base = np.uint64(bases[i] & 3)
        code = (code << np.uint64(2) | base) & mask
        turned = turned >> np.uint64(2) | (np.uint64(3) - base) << top
        start = i - k + 1
        if start >= first and events[start]:
            windows += 1
            own = np.int64(sets[start] if sets.size else only)
            if events[start] == MATCH and own != _NONE:
                codes[found] = min(code, turned) if both else code
                held[found] = own
                found += 1
    return windows, found


@njit(cache=True, nogil=True)
def assign_pairs(one, other, step, k, both, only, targets, least, fraction, assigned):
    """Assign pairs by their distinct matching windows, against all windows of both reads.

    one, other: events, codes, offsets and target sets (none if all have ``only``) of the reads.
    step: 1, or 2 if both are the same reads, in which mates follow each other. both: a window and
    its reverse complement are one. targets: starts and members of the sets, and the number.
    """
    set_starts, members, number = targets
    tally = np.zeros(number, np.int64)
    for pair in range(assigned.size):
        first, last = step * pair, step * pair + step - 1
        room = one[2][first + 1] - one[2][first] + other[2][last + 1] - other[2][last]
        codes, held = np.empty(room, np.uint64), np.empty(room, np.int64)
        windows, found = _matching(one, first, k, both, only, codes, held, 0)
        more, found = _matching(other, last, k, both, only, codes, held, found)
        order = np.argsort(codes[:found])
        best, most = -1, np.int64(0)
        for i in range(found):
            if i and codes[order[i]] == codes[order[i - 1]]:
                continue
            for j in range(set_starts[held[order[i]]], set_starts[held[order[i]] + 1]):
                target = members[j]
                tally[target] += 1
                if tally[target] > most or (tally[target] == most and target < best):
                    best, most = target, tally[target]
        for i in range(found):
            for j in range(set_starts[held[i]], set_starts[held[i] + 1]):
                tally[members[j]] = 0
        enough = most >= least and most / max(windows + more, 1) >= fraction
        assigned[pair] = best if enough else -1
