"""Kernels for target counts: reads, and matching windows by k-mer and by target set.

The number of a k-mer is its first place in the text of an index. Where a read follows a record, its
windows have the numbers n, n+1, n+2, ... or, on the other strand, ..., n+2, n+1, n, but where the
record repeats an earlier part of the text:

    places     41 42 43 44  .  .  .  .  87 86 85  3
    runs       [41    44]               [85   87] [3 3]

A run costs one step, whatever its length: seen k-mers are marked 64 bits at a time, and two
additions count them all, +1 where the run begins and -1 after its end; the prefix sum of these
changes at a number is its count.
"""

import numpy as np

from streamer.matching.events import SET
from trie.cpu.intrinsics import add_shared, or_shared, popcount
from trie.cpu.jit import inner, njit
from trie.index.reference_text import row_behind
from trie.windows import NO_SET, next_clear, next_set

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_FEW = 256  # numbers that are compared with each other faster than sorted


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
def count_runs(runs, repeats, steps, near, seen, changes, totals):
    """Count the windows of ``BatchResult.runs``; other threads may count other runs concurrently.

    repeats, steps, near: of the ``shares`` of an index. Updates those that are not empty: seen
    uint64, a bit per number; changes integers[numbers + 1], as above; totals int64[sets], windows.
    """
    for i in range(len(runs)):
        begin, stop = runs[i, 0], runs[i, 1]
        place = _first_place(runs, i)
        last = place + stop - begin
        at = row_behind(repeats[1], near, place)
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
            add_shared(totals, runs[i, SET], stop - begin)


@njit(cache=True, nogil=True)
def first_places(runs, repeats, steps, near, numbers):
    """Write the number of the k-mer of each window of ``BatchResult.runs`` to ``numbers``."""
    for i in range(len(runs)):
        place = runs[i, 2]
        for window in range(runs[i, 0], runs[i, 1]):
            at = row_behind(repeats[1], near, place)
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


# kernels with one step per read keep the GIL: releasing it takes longer


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
def cover(at, offsets, counts, bins, columns):
    """Write the rows of targets, ``bins`` each.

    at: uint32, the number of the window at each symbol of their records, or NO_SET. offsets: where
    those of each target begin. counts: how often each number was matched. columns: target, start,
    end, kmers, seen, matches.
    """
    target_, start_, end_, kmers_, seen_, matches_ = columns
    row = 0
    for target in range(offsets.size - 1):
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


@inner
def _count(bits, offsets, read):
    """The number of windows of a read whose bits are set."""
    count, end = np.int64(0), offsets[read + 1]
    at = next_set(bits, offsets[read], end)
    while at < end:
        stop = next_clear(bits, at, end)
        count += stop - at
        at = next_set(bits, stop, end)
    return count


@inner
def _matching(reads, read, k, both, only, codes, sets, count, most):
    """Append code and target set of each matching window, up to ``most``; returns their number."""
    (_, matches), bases, offsets, runs = reads
    mask = (np.uint64(1) << np.uint64(2 * k)) - np.uint64(1)
    top = np.uint64(2 * (k - 1))
    code = turned = np.uint64(0)
    first = offsets[read]
    run = np.searchsorted(runs[:, 1], first, side="right")
    for i in range(first, offsets[read + 1]):
        if count == most:
            break
        base = np.uint64(bases[i] & 3)
        code = (code << np.uint64(2) | base) & mask
        turned = turned >> np.uint64(2) | (np.uint64(3) - base) << top
        start = i - k + 1
        if start >= first and next_set(matches, start, start + 1) == start:
            while run < len(runs) and runs[run, 1] <= start:
                run += 1
            own = np.int64(only)
            if run < len(runs) and runs[run, 0] <= start:
                own = runs[run, SET]
            if own != np.int64(NO_SET):
                codes[count] = min(code, turned) if both else code
                sets[count] = own
                count += 1
    return count


@inner
def _of_pair(mate, first, other, last, k, both, only, codes, sets, most):
    """Write what ``_matching`` appends of both reads."""
    count = _matching(mate, first, k, both, only, codes, sets, 0, most)
    return _matching(other, last, k, both, only, codes, sets, count, most)


@inner
def _differ(codes, count):
    """Whether the first ``count`` codes all differ."""
    for i in range(1, count):
        same = 0
        for j in range(i):
            same += codes[j] == codes[i]
        if same:
            return False
    return True


@njit(cache=True, nogil=True)
def assign_pairs(mate, other, step, k, both, only, targets, least, fraction, assigned):
    """Assign pairs by their distinct matching windows, against all windows of both reads.

    mate, other: bits, codes, offsets and runs of the reads; windows in no run have ``only``.
    step: 1, or 2 if both are the same reads, in which mates follow each other. both: a window and
    its reverse complement are one. targets: starts and members of the sets, and the number.
    """
    set_starts, members, number = targets
    tally = np.zeros(number, np.int64)
    codes, sets = np.empty(0, np.uint64), np.empty(0, np.int64)
    for pair in range(assigned.size):
        first, last = step * pair, step * pair + step - 1
        matches = _count(mate[0][1], mate[2], first) + _count(other[0][1], other[2], last)
        assigned[pair] = -1
        if matches < least:
            continue
        windows = _count(mate[0][0], mate[2], first) + _count(other[0][0], other[2], last)
        if matches / max(windows, 1) < fraction:
            continue
        if codes.size < matches:
            codes, sets = np.empty(2 * matches, np.uint64), np.empty(2 * matches, np.int64)
        if number == 1:
            # the first windows are often enough
            some = min(max(least, np.int64(np.ceil(fraction * windows))), matches)
            count = _of_pair(mate, first, other, last, k, both, only, codes, sets, some)
            enough = count >= least and count / max(windows, 1) >= fraction
            if enough and count <= _FEW and _differ(codes, count):
                assigned[pair] = 0
                continue
        count = _of_pair(mate, first, other, last, k, both, only, codes, sets, matches)
        order = np.argsort(codes[:count])
        best, most = -1, np.int64(0)
        for i in range(count):
            if i and codes[order[i]] == codes[order[i - 1]]:
                continue
            for j in range(set_starts[sets[order[i]]], set_starts[sets[order[i]] + 1]):
                target = members[j]
                tally[target] += 1
                if tally[target] > most or (tally[target] == most and target < best):
                    best, most = target, tally[target]
        for i in range(count):
            for j in range(set_starts[sets[i]], set_starts[sets[i] + 1]):
                tally[members[j]] = 0
        enough = most >= least and most / max(windows, 1) >= fraction
        assigned[pair] = best if enough else -1
