"""Collect the distinct k-mers of records as they are read, and the target set of each.

Windows are grouped by shard (``trie.trees.shards``) one piece at a time, with the number of the
record that each comes from. At the end, threads sort shard by shard: each shard holds 1/64 of all
windows, so sorting needs little extra memory. Until then a window takes 8 bytes, 12 if there are
several records, and as much again for the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import (
    SHOWN_TARGETS,
    TargetSets,
    bounds_of,
    first_names,
    gathered,
    intern_runs,
)
from streamer.sequences.read_batch import ReadBatch
from trie.codes import check_k
from trie.cpu.jit import njit
from trie.cpu.threads import run_each
from trie.trees.shards import drop_repeats, group
from trie.windows import window_codes

_DIGIT: Final = 8
"""Bits per pass of the sort: its 256 write positions stay in the L1 cache."""

_FEW: Final = 32  # insertion sort takes up to this number of codes

_SEVERAL: Final = np.uint32(0xFFFFFFFE)
"""The set of a k-mer that several records hold, until these sets are numbered."""


class _Windows(NamedTuple):
    """The windows of a piece by shard. owners: int32, the record of each, or the only one."""

    codes: NDArray[np.uint64]
    bounds: NDArray[np.int64]
    owners: NDArray[np.int32] | int

    def owners_in(self, shard: slice) -> NDArray[np.int32]:
        if isinstance(self.owners, int):
            return np.full(shard.stop - shard.start, self.owners, dtype=np.int32)
        return self.owners[shard]


class KmerlessRecords:
    """Which records hold no k-mer, and whether they are shorter than k."""

    def __init__(self, k: int) -> None:
        self._k = k
        # by record: 0 shorter than k, 1 no window without a gap code, 2 some
        self._states = bytearray()

    def add(self, reads: ReadBatch, starts: NDArray[np.int64], first: int) -> None:
        """Add records from number ``first`` on; starts: int64, of their windows, ascending."""
        states = np.array(reads.lengths >= self._k, dtype=np.uint8)
        states[holding(reads, starts)] = 2
        if first < len(self._states):
            states[0] = max(states[0], self._states[first])
        self._states[first:] = states.tobytes()

    def among(self, names: Sequence[str], first: int = 0) -> str:
        """Name the records from ``first`` on that hold no k-mer, with the reason; empty if none."""
        states = np.frombuffer(self._states, np.uint8)[first:]
        reasons = (
            (1, "ambiguity codes in every window (write out their variants, or use asm --iupac)"),
            (0, f"fewer than {self._k} bases (give longer records or a smaller k)"),
        )
        parts = []
        for state, why in reasons:
            where = np.flatnonzero(states == state).tolist()
            if where:
                shown = first_names([names[first + at] for at in where[: SHOWN_TARGETS + 1]])
                parts.append(f"{len(where):,} of {states.size:,} records have {why}: {shown}")
        return "; ".join(parts)


def holding(reads: ReadBatch, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which reads hold a window; starts: int64, of all windows, ascending."""
    held: NDArray[np.bool_] = np.diff(np.searchsorted(starts, reads.offsets)) > 0
    return held


class KmerCollector:
    """Collects the windows of records. canonical: k-mers are canonical codes."""

    def __init__(self, k: int, *, canonical: bool, threads: int) -> None:
        check_k(k)
        self._k = k
        self._canonical = canonical
        self._threads = threads
        self._pieces: list[_Windows] = []
        self._names: list[str] = []
        self._kmerless = KmerlessRecords(k)

    @property
    def records(self) -> int:
        """The number of records begun."""
        return len(self._names)

    def add(self, reads: ReadBatch, first: int) -> None:
        """Add windows of records from number ``first`` on: ``records``, or one less to continue."""
        self._names[first:] = reads.names
        codes, starts = window_codes(reads.bases, reads.offsets, self._k, canonical=self._canonical)
        self._kmerless.add(reads, starts, first)
        if not codes.size:
            return
        several = len(reads) > 1
        if self._k < 3:
            order: NDArray[np.int64] | None = None
            bounds = np.array([0, codes.size])
        else:
            codes, bounds, order = group(codes, self._k, self._threads, noting_order=several)
        owners: NDArray[np.int32] | int = first
        if several:
            numbers = np.arange(first, first + len(reads), dtype=np.int32)
            owners = np.repeat(numbers, np.diff(np.searchsorted(starts, reads.offsets)))
            if order is not None:
                owners = owners[order]
        self._pieces.append(_Windows(codes, bounds, owners))

    def kmerless(self, first: int = 0) -> str:
        """Name the records from number ``first`` on that hold no k-mer; empty if all hold one."""
        return self._kmerless.among(self._names, first)

    def finish(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], TargetSets]:
        """Return the distinct codes, ascending, the target set of each, and the sets."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            none = np.zeros(1, np.int64), np.zeros(0, np.int32)
            return np.zeros(0, np.uint64), np.zeros(0, np.uint32), TargetSets(self._names, *none)
        bounds = np.sum([piece.bounds for piece in pieces], axis=0)
        one = len(self._names) == 1
        codes = np.empty(bounds[-1], dtype=np.uint64)
        sets = np.empty(0 if one else codes.size, dtype=np.uint32)
        shards = [(n, int(a), int(b)) for n, (a, b) in enumerate(pairwise(bounds)) if b > a]
        sort = partial(self._sort_shard, pieces, codes, sets)
        found = run_each(sort, shards, self._threads)
        pieces.clear()
        size = 0
        for kept, start, _, _ in found:
            codes[size : size + kept] = codes[start : start + kept]
            if not one:
                sets[size : size + kept] = sets[start : start + kept]
            size += kept
        codes.resize(size, refcheck=False)
        if one:
            # zeroed pages take no memory until written to
            sets = np.zeros(size, dtype=np.uint32)
            only = TargetSets(self._names, np.array([0, 1]), np.zeros(1, dtype=np.int32))
            return codes, sets, only
        sets.resize(size, refcheck=False)
        members = np.concatenate([members for _, _, members, _ in found])
        sizes = np.concatenate([sizes for _, _, _, sizes in found])
        return codes, sets, _numbered(sets, members, sizes, self._names)

    def _sort_shard(
        self,
        pieces: Sequence[_Windows],
        codes: NDArray[np.uint64],
        sets: NDArray[np.uint32],
        shard: int,
        start: int,
        stop: int,
    ) -> tuple[int, int, NDArray[np.int32], NDArray[np.int64]]:
        """Write distinct codes and their sets from ``start`` on: (count, start, members, sizes).

        members: int32, the records of k-mers that several hold. sizes: int64, how many each has.
        """
        own = codes[start:stop]
        slices = [slice(int(p.bounds[shard]), int(p.bounds[shard + 1])) for p in pieces]
        np.concatenate([p.codes[part] for p, part in zip(pieces, slices, strict=True)], out=own)
        if not sets.size:
            own.sort()
            return drop_repeats(own), start, np.zeros(0, np.int32), np.zeros(0, np.int64)
        owners = np.concatenate([p.owners_in(part) for p, part in zip(pieces, slices, strict=True)])
        bits = 2 * self._k - 6 if self._k >= 3 else 2 * self._k
        _sort_stably(own, owners, np.empty_like(own), np.empty_like(owners), bits)
        sizes = np.empty(own.size // 2 + 1, dtype=np.int64)
        kept, runs, filled = _unite_runs(own, owners, sets[start:stop], sizes)
        return kept, start, owners[:filled].copy(), sizes[:runs].copy()


def _numbered(
    sets: NDArray[np.uint32],
    members: NDArray[np.int32],
    sizes: NDArray[np.int64],
    names: Sequence[str],
) -> TargetSets:
    """Convert ``sets`` from record numbers, or _SEVERAL, to target set numbers."""
    bounds = bounds_of(sizes)
    numbers, chosen = intern_runs(members, bounds)
    used = np.zeros(len(names), dtype=np.bool_)
    _mark(sets, used)
    singles = np.flatnonzero(used).astype(np.int32)
    _renumber(sets, np.cumsum(used) - 1, numbers, singles.size)
    several, starts = gathered(members, bounds, chosen)
    starts = np.concatenate((np.arange(singles.size), starts + singles.size))
    return TargetSets(names, starts, np.concatenate((singles, several)))


@njit(cache=True, nogil=True)
def _sort_digits(codes, owners, spare_codes, spare_owners, low, high):
    """Sort stably by bits ``low`` to ``high``, the lowest digit first."""
    mask = np.uint64((1 << _DIGIT) - 1)
    places = np.empty(1 << _DIGIT, dtype=np.int64)
    from_codes, from_owners, to_codes, to_owners = codes, owners, spare_codes, spare_owners
    moved = False
    for bit in range(low, high, _DIGIT):
        shift = np.uint64(bit)
        places[:] = 0
        for i in range(codes.size):
            places[(from_codes[i] >> shift) & mask] += 1
        if places[(from_codes[0] >> shift) & mask] == codes.size:
            continue
        at = 0
        for digit in range(places.size):
            count = places[digit]
            places[digit] = at
            at += count
        for i in range(codes.size):
            code = from_codes[i]
            digit = (code >> shift) & mask
            at = places[digit]
            places[digit] = at + 1
            to_codes[at] = code
            to_owners[at] = from_owners[i]
        from_codes, to_codes = to_codes, from_codes
        from_owners, to_owners = to_owners, from_owners
        moved = not moved
    if moved:
        for i in range(codes.size):
            codes[i] = spare_codes[i]
            owners[i] = spare_owners[i]


@njit(cache=True, nogil=True)
def _sort_stably(codes, owners, spare_codes, spare_owners, bits):
    """Sort codes below 2**bits stably, and owners with them.

    A radix sort by the upper bits, four more than needed to number the codes, separates most of
    them. Short runs of equal upper bits are sorted by insertion, long ones by the remaining bits.
    This takes three passes of about ten operations and 24 bytes per code; all bits would take
    seven.
    """
    upper = 4
    while codes.size >> (upper - 4):
        upper += 1
    low = max(0, bits - (upper + _DIGIT - 1) // _DIGIT * _DIGIT)
    _sort_digits(codes, owners, spare_codes, spare_owners, low, bits)
    shift = np.uint64(low)
    start = 0
    while low > 0 and start < codes.size:
        stop = start + 1
        while stop < codes.size and codes[stop] >> shift == codes[start] >> shift:
            stop += 1
        if stop - start > _FEW:
            _sort_digits(
                codes[start:stop], owners[start:stop],
                spare_codes[start:stop], spare_owners[start:stop], 0, low,
            )  # fmt: skip
        else:
            for i in range(start + 1, stop):
                code, owner = codes[i], owners[i]
                at = i
                while at > start and codes[at - 1] > code:
                    codes[at] = codes[at - 1]
                    owners[at] = owners[at - 1]
                    at -= 1
                codes[at] = code
                owners[at] = owner
        start = stop


@njit(cache=True, nogil=True)
def _unite_runs(codes, owners, sets, sizes):
    """Move distinct codes to the front, write their sets: (codes, codes of several, members).

    codes: ascending, owners ascending within equal codes. A set is the owner, or _SEVERAL; the
    distinct owners of the latter move to the front of ``owners``, and their number goes into
    ``sizes``.
    """
    kept = runs = filled = 0
    i = 0
    while i < codes.size:
        code = codes[i]
        last = owners[i]
        owners[filled] = last
        count = 1
        i += 1
        while i < codes.size and codes[i] == code:
            if owners[i] != last:
                last = owners[i]
                owners[filled + count] = last
                count += 1
            i += 1
        codes[kept] = code
        if count == 1:
            sets[kept] = last
        else:
            sets[kept] = _SEVERAL
            sizes[runs] = count
            runs += 1
            filled += count
        kept += 1
    return kept, runs, filled


@njit(cache=True, nogil=True)
def _mark(sets, used):
    for i in range(sets.size):
        if sets[i] != _SEVERAL:
            used[sets[i]] = True


@njit(cache=True, nogil=True)
def _renumber(sets, singles, numbers, first):
    """Renumber sets: ``singles`` for single records, ``first`` + numbers, in order, for others."""
    at = 0
    for i in range(sets.size):
        if sets[i] == _SEVERAL:
            sets[i] = first + numbers[at]
            at += 1
        else:
            sets[i] = singles[sets[i]]
