"""Which targets share the k-mers of a text, without a list of k-mers.

A k-mer stands for its first window. A bit for each place of the text marks the first windows of
k-mers that several targets have; the *rank* of one is how many are marked before it.

Each target, in ascending order, adds itself to the sets of its marked k-mers. A set is a node of a
trie: its parent lacks the last target, and node 0 is the empty set. So a k-mer takes four bytes,
and a window as long as finding the child of a node, which for the next window is usually the same.
Parts of the text, by first windows, have tries of their own.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from trie.cpu.intrinsics import popcount
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_ranges, usable_cores
from trie.windows import NO_SET, next_clear, next_set, set_bits

_AT_ONCE = 1 << 12  # windows that are added to sets before the trie may need room
_PART = 1 << 27  # the most windows of a part: what is known of them stays in caches
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class SharedWindows(NamedTuple):
    """windows: uint32[3, n], begin, end and set of runs of first windows, ascending.

    Set i has the targets members[starts[i]:starts[i + 1]]. kmers: int64, what each target has more
    than the k-mers whose first windows are its own.
    """

    windows: NDArray[np.uint32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    kmers: NDArray[np.int64]


def find_shared(
    repeats: NDArray[np.uint32],
    steps: NDArray[np.int8],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    targets: int,
    size: int,
) -> SharedWindows:
    """The first windows of k-mers of several targets, and their sets, in that order.

    repeats, steps: as in ``trie.index.repeats``. starts, owners: of records. size: of the text.
    StreamerError if the repeats are none of this text: those of a damaged file.
    """
    bits = np.zeros(size // 32 + 1, np.uint32)
    before = np.empty(bits.size, np.uint32)
    rows = np.searchsorted(repeats[0], np.append(starts, size).astype(np.uint32))
    known: Any = rows, bits, before
    records: Any = starts, owners, np.argsort(owners, kind="stable"), size

    def of_part(*part: int) -> SharedWindows:
        if not _mark(repeats, steps, starts, owners, size, bits, *part):
            raise StreamerError("the index is damaged: its repeated windows are outside its text")
        sets = np.zeros(_count_before(bits, before, *part), np.uint32)
        kmers = np.zeros(targets, np.int64)
        parents, lasts = np.empty(0, np.int64), np.empty(0, np.int32)
        count, at = 1, np.array([0, -1, part[0]])
        while at[0] < owners.size:
            # room for as many nodes again, without reference counts in the loop over repeats
            more = np.full(max(parents.size, 4 * _AT_ONCE), -1)
            parents, lasts = np.append(parents, more), np.append(lasts, more.astype(np.int32))
            table = np.empty(4 * parents.size, np.int64)
            _find_nodes(parents, lasts, count, table)
            count = _unite(
                repeats, steps, *known, sets, *records, kmers, *part, parents, lasts, table, count,
                at,
            )  # fmt: skip
        parents, lasts = parents[:count].copy(), lasts[:count].copy()
        nodes, depths = _number(sets, parents, lasts, kmers)
        bounds = np.append(0, np.cumsum(depths))
        members = np.empty(bounds[-1], np.int32)
        _write_members(nodes, parents, lasts, bounds, members)
        none = np.empty((3, 0), np.uint32)
        windows = np.empty((3, _write_windows(bits, before, sets, *part, none)), np.uint32)
        _write_windows(bits, before, sets, *part, windows)
        return SharedWindows(windows, bounds, members, kmers)

    parts = run_ranges(of_part, 0, size, usable_cores(), grain=_PART >> 3, align=32, most=_PART)
    numbers: dict[bytes, int] = {}
    for windows, bounds, members, _ in parts:
        own = [members[a:b].tobytes() for a, b in pairwise(bounds.tolist())]
        new = [numbers.setdefault(set_, len(numbers)) for set_ in own]
        windows[2] = np.array(new, np.uint32)[windows[2]]
    windows = np.concatenate([part.windows for part in parts], axis=1)
    # runs that the ends of parts cut become one
    whole = np.ones(windows.shape[1] + 1, np.bool_)
    whole[1:-1] = (windows[1:, :-1] != windows[::2, 1:]).any(axis=0)
    windows = np.stack([windows[0, whole[:-1]], *windows[1:, whole[1:]]])
    bounds = np.cumsum([0, *(len(set_) // 4 for set_ in numbers)])
    members = np.frombuffer(bytearray().join(numbers), np.int32)
    kmers = parts[0].kmers
    for part in parts[1:]:
        kmers += part.kmers
    return SharedWindows(windows, bounds, members, kmers)


@inner
def _firsts(repeats, steps, row):
    """The first windows [low, high) of a repeat."""
    size = np.int64(repeats[1, row]) - np.int64(repeats[0, row])
    low = np.int64(repeats[2, row])
    if steps[row] < 0:
        low -= size - 1
    return low, low + size


@njit(cache=True, nogil=True)
def _mark(repeats, steps, starts, owners, size, bits, first, stop):
    """Mark first windows in [first, stop) of k-mers of several targets; whether all fit."""
    record = 0
    before = np.int64(0)
    for row in range(steps.size):
        begin, end = np.int64(repeats[0, row]), np.int64(repeats[1, row])
        low, high = _firsts(repeats, steps, row)
        if (
            not before <= begin < end <= size
            or not starts[0] <= low < high <= size
            or abs(steps[row]) != 1
        ):
            return False
        before = end
        while record + 1 < starts.size and starts[record + 1] <= begin:
            record += 1
        low, high = max(low, first), min(high, stop)
        if low < high:
            other = np.searchsorted(starts, low, side="right") - 1
            if owners[other] != owners[record]:
                set_bits(bits, low, high)
    return True


@njit(cache=True, nogil=True)
def _count_before(bits, before, first, stop):
    """Write how many bits of [first, stop) are set before each word; all of them."""
    count = np.int64(0)
    for word in range(first >> 5, (stop + 31) >> 5):
        before[word] = count
        count += np.int64(popcount(bits[word]))
    return count


@inner
def _rank(bits, before, place):
    word = place >> 5
    below = np.uint32((np.uint32(1) << np.uint32(place & 31)) - np.uint32(1))
    return np.int64(before[word]) + np.int64(popcount(np.uint32(bits[word] & below)))


@njit(cache=True, nogil=True)
def _unite(
    repeats, steps, rows, bits, before, sets, starts, owners, order, size, kmers, first, last,
    parents, lasts, table, nodes, at,
):  # fmt: skip
    """Write the node of each k-mer marked in [first, last), until the trie needs room; the nodes.

    rows: where the repeats of each record begin. at: where to go on, the number of records done, a
    row of repeats, or -1 for a record's own first windows, and a place; it is moved.
    """
    done, row, low = at
    while done < order.size:
        record = order[done]
        target = owners[record]
        begin, high = starts[record], starts[record + 1] if record + 1 < starts.size else size
        if row >= 0:
            begin, high = _firsts(repeats, steps, row)
        low, high = max(low, begin), min(high, last)
        while low < high:
            if nodes + _AT_ONCE > parents.size:
                at[0], at[1], at[2] = done, row, low
                return nodes
            end = min(low + _AT_ONCE, high)
            nodes, added = _add(target, low, end, bits, before, sets, parents, lasts, table, nodes)
            if row < 0:
                kmers[target] -= added
            low = end
        low = first
        row = row + 1 if row >= 0 else rows[record]
        if row == rows[record + 1]:
            done, row = done + 1, -1
    at[0] = done
    return nodes


@njit(cache=True, nogil=True)
def _find_nodes(parents, lasts, nodes, table):
    """Fill the hash table of ``_slot``."""
    table[:] = -1
    for node in range(1, nodes):
        table[_slot(table, parents, lasts, parents[node], lasts[node])] = node


@inner
def _add(target, low, high, bits, before, sets, parents, lasts, table, nodes):
    """Add a target to the sets of the marked places [low, high); the nodes, and those places."""
    known = child = np.int64(-1)
    added = 0
    at = next_set(bits, low, high)
    while at < high:
        stop = next_clear(bits, at, high)
        rank = _rank(bits, before, at)
        for i in range(rank, rank + stop - at):
            node = np.int64(sets[i])
            if lasts[node] == target:
                continue
            if node != known:
                known = node
                slot = _slot(table, parents, lasts, node, target)
                if table[slot] < 0:
                    parents[nodes], lasts[nodes] = node, target
                    table[slot] = nodes
                    nodes += 1
                child = table[slot]
            sets[i] = child
        added += stop - at
        at = next_set(bits, stop, high)
    return nodes, added


@inner
def _slot(table, parents, lasts, parent, target):
    """The slot of a node in a hash table, or the free one for it."""
    key = (np.uint64(parent) << np.uint64(32) | np.uint64(target)) * _MULTIPLIER
    last = table.size - 1  # all bits of its size, a power of two
    at = np.int64(key >> np.uint64(32)) & last
    while table[at] >= 0 and (parents[table[at]] != parent or lasts[table[at]] != target):
        at = (at + 1) & last
    return at


@njit(cache=True, nogil=True)
def _number(sets, parents, lasts, kmers):
    """Replace nodes by numbers in the order of first windows; the node of each, and its depth."""
    numbers = np.full(parents.size, NO_SET, np.uint32)
    nodes = np.empty(parents.size, np.int64)
    depths = np.zeros(parents.size, np.int64)
    counts = np.zeros(parents.size, np.int64)
    count = 0
    for i in range(sets.size):
        node = sets[i]
        if numbers[node] == NO_SET:
            numbers[node] = count
            nodes[count] = node
            count += 1
        counts[node] += 1
        sets[i] = numbers[node]
    for number in range(count):
        node = nodes[number]
        windows = counts[node]
        while node > 0:
            kmers[lasts[node]] += windows
            depths[number] += 1
            node = parents[node]
    return nodes[:count].copy(), depths[:count].copy()


@njit(cache=True, nogil=True)
def _write_members(nodes, parents, lasts, bounds, members):
    for number in range(nodes.size):
        node = nodes[number]
        for at in range(bounds[number + 1] - 1, bounds[number] - 1, -1):
            members[at] = lasts[node]
            node = parents[node]


@njit(cache=True, nogil=True)
def _write_windows(bits, before, sets, first, last, runs):
    """Write the runs of marked windows with equal sets, unless ``runs`` is empty; their number."""
    count = 0
    at = next_set(bits, first, last)
    while at < last:
        stop = next_clear(bits, at, last)
        rank = _rank(bits, before, at)
        for window in range(at, stop):
            number = sets[rank + window - at]
            if window == at or number != sets[rank + window - at - 1]:
                if runs.size:
                    runs[0, count], runs[2, count] = window, number
                count += 1
            if runs.size:
                runs[1, count - 1] = window + 1
        at = next_set(bits, stop, last)
    return count
