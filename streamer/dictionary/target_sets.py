"""Which targets hold a k-mer: target sets, each distinct one stored once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.protocol.schema import SHOWN_TARGETS, shown_targets
from trie.cpu.jit import njit
from trie.windows import NO_SET


@dataclass(frozen=True)
class TargetSets:
    """Sets of targets (records), as rows of indices.

    names: target names by index. starts: int64[sets + 1], members: int32; set i holds the targets
    members[starts[i]:starts[i+1]], in file order. No two sets are equal.
    """

    names: Sequence[str]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    _shown: dict[int, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.starts.size - 1

    def shown(self, index: int) -> list[str] | None:
        """The names of a set, at most 8 and then ``...``; None for NO_SET."""
        if index == NO_SET:
            return None
        if index not in self._shown:
            members = self.members_of(index)[: SHOWN_TARGETS + 1]
            self._shown[index] = shown_targets([self.names[i] for i in members])
        return self._shown[index]

    def label(self, index: int) -> str | None:
        """Like ``shown``, joined by ``;``."""
        names = self.shown(index)
        return None if names is None else ";".join(names)

    def members_of(self, index: int) -> NDArray[np.int32]:
        """Return the targets of a set, in file order."""
        return self.members[self.starts[index] : self.starts[index + 1]]

    @property
    def without_kmers(self) -> list[str]:
        """The names of targets that hold no k-mer, in file order; a repeated name may hold some."""
        holds = np.zeros(len(self.names), dtype=np.bool_)
        holds[self.members] = True
        none = np.flatnonzero(~holds).tolist()
        some = {self.names[at] for at in np.flatnonzero(holds).tolist()} if none else set()
        return [name for name in dict.fromkeys(self.names[at] for at in none) if name not in some]

    @classmethod
    def empty(cls) -> TargetSets:
        """Return no targets, for a dictionary that grows from the reads alone."""
        return cls((), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))


def unknown_names(names: Iterable[str], targets: TargetSets) -> str:
    """Return the names that no target has, for a message: the first of them; empty if none."""
    known = set(targets.names)
    return first_names([name for name in dict.fromkeys(names) if name not in known])


def first_names(names: Sequence[str]) -> str:
    """Return names for a message: the first of them."""
    return ", ".join(names[:SHOWN_TARGETS]) + (", ..." if len(names) > SHOWN_TARGETS else "")


def confusing_names(names: Sequence[str]) -> Iterator[str]:
    """Yield a line about names that repeat, and one about names that look like several or none."""
    yield from repeated_names(names, "target")
    if unclear := [name for name in names if ";" in name or name in (".", "...")]:
        yield (
            f"{len(unclear):,} target names hold ';', which joins names in the column target, or "
            f"are dots: {first_names(unclear)}; use --format jsonl, which has lists, or rename"
        )


def repeated_names(names: Sequence[str], what: str) -> Iterator[str]:
    """Yield a line about names of records that repeat; what: target or pattern."""
    if len(set(names)) < len(names):
        repeated = [name for name, count in Counter(names).items() if count > 1]
        yield (
            f"{len(repeated):,} {what} names repeat, so rows do not tell their records apart: "
            f"{first_names(repeated)}; a name ends at the first blank: replace blanks, or rename"
        )


def check_kmers(names: Iterable[str], targets: TargetSets, k: int, whose: str) -> None:
    """Raise StreamerError if a named target holds no k-mer and so can never match."""
    without = {*targets.without_kmers}
    if without and (never := [name for name in dict.fromkeys(names) if name in without]):
        message = f"{whose}: can never match, no {k}-mer without an ambiguity code: "
        raise StreamerError(message + first_names(never))


def bounds_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n + 1]: where each of n consecutive runs starts, then where the last one ends."""
    bounds = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


@njit(cache=True, nogil=True)
def _hash_run(owners, start, stop):
    """Hash a run; the low bits depend on every bit of the members (the steps of splitmix64)."""
    h = np.uint64(stop - start)
    for i in range(start, stop):
        h = (h ^ np.uint64(owners[i])) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return np.int64(h & np.uint64(0x7FFFFFFFFFFFFFFF))


@njit(cache=True, nogil=True)
def intern_runs(owners, bounds):
    """Number the runs of ``owners``, equal ones alike: return each run's number, and a run of each.

    owners: int32. bounds: int64[runs + 1]. Returns uint32[runs] and int64[numbers]. Uses an
    open-addressing table, at most half full; runs with equal hashes are compared.
    """
    runs = bounds.size - 1
    number = np.empty(runs, dtype=np.uint32)
    representative = np.empty(runs, dtype=np.int64)
    table = np.full(64, -1, dtype=np.int64)
    count = 0
    for run in range(runs):
        if 2 * (count + 1) > table.size:
            table = np.full(2 * table.size, -1, dtype=np.int64)
            for i in range(count):
                table[_place(owners, bounds, representative[i], representative, table)] = i
        at = _place(owners, bounds, run, representative, table)
        if table[at] < 0:
            representative[count] = run
            table[at] = count
            count += 1
        number[run] = table[at]
    return number, representative[:count].copy()


@njit(cache=True, nogil=True)
def _place(owners, bounds, run, representative, table):
    """Return the slot of a run equal to this one, or the free slot for it."""
    at = _hash_run(owners, bounds[run], bounds[run + 1]) % table.size
    while table[at] >= 0 and not _equal_runs(owners, bounds, run, representative[table[at]]):
        at = (at + 1) % table.size
    return at


@njit(cache=True, nogil=True)
def _equal_runs(owners, bounds, one, other):
    length = bounds[one + 1] - bounds[one]
    if bounds[other + 1] - bounds[other] != length:
        return False
    for i in range(length):
        if owners[bounds[one] + i] != owners[bounds[other] + i]:
            return False
    return True
