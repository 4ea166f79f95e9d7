"""The dictionary that users name: the k-mers of FASTX records, and which records hold each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.reads import ReadBatch
from streamer.sequence_files import read_batches, shown_name
from trie.codes import check_k, with_reverse_complements
from trie.parallel import usable_cores
from trie.shards import sort_unique
from trie.snapshot_file import is_snapshot, load_with_strands
from trie.windows import window_codes

Strands = Literal["forward", "canonical", "both"]

NO_SET = np.uint32(0xFFFFFFFF)
SHOWN_TARGETS = 8


@dataclass(frozen=True)
class TargetSets:
    """Sets of targets (records), as rows of indices.

    names: a target's name by index. starts: int64[sets + 1], members: int32; set i holds the
    targets members[starts[i]:starts[i+1]], in file order.
    """

    names: Sequence[str]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    _labels: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.starts.size - 1

    def label(self, index: int) -> str | None:
        """The names of a set joined by ``;``, at most 8 and then ``...``; None for NO_SET."""
        if index == NO_SET:
            return None
        if index not in self._labels:
            members = self.members[self.starts[index] : self.starts[index + 1]]
            shown = [self.names[i] for i in members[:SHOWN_TARGETS]]
            if members.size > SHOWN_TARGETS:
                shown.append("...")
            self._labels[index] = ";".join(shown)
        return self._labels[index]

    @classmethod
    def empty(cls) -> TargetSets:
        """No targets: the dictionary grows from the reads alone."""
        return cls((), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))


@dataclass(frozen=True)
class Dictionary:
    """The k-mers that matching starts with.

    codes: uint64, ascending, each once; canonical codes unless strands is ``forward``.
    sets: uint32, the target set of each k-mer.
    """

    k: int
    strands: Strands
    codes: NDArray[np.uint64]
    sets: NDArray[np.uint32]
    targets: TargetSets

    @classmethod
    def empty(cls, k: int, strands: Strands) -> Dictionary:
        """No k-mers yet."""
        check_k(k)
        return cls(k, strands, np.zeros(0, np.uint64), np.zeros(0, np.uint32), TargetSets.empty())

    @classmethod
    def from_files(
        cls, paths: Sequence[str], k: int, strands: Strands, *, as_stored: bool = False
    ) -> Dictionary:
        """Every window of every record of the files; StreamerError if there is not one.

        A file may be a snapshot that was saved: its k-mers belong to no target. ``as_stored``: the
        k-mers as they stand in the records, whatever the strands.
        """
        saved = [path for path in paths if _holds_snapshot(path)]
        dictionary = cls.from_batches(
            read_batches([path for path in paths if path not in saved]),
            k,
            "forward" if as_stored else strands,
        )
        for path in saved:
            codes = _saved_codes(path, k, strands)
            if as_stored and strands == "both":
                # what a record holds in either orientation keeps that record
                reverse = with_reverse_complements(codes, k)[codes.size :]
                codes = codes[~np.isin(reverse, dictionary.codes)]
            dictionary = dictionary.with_codes(codes)
        if not dictionary.codes.size:
            names = ", ".join(map(shown_name, paths))
            message = (
                f"{names}: the dictionary holds not one whole {k}-mer: "
                f"give longer records or a smaller k"
            )
            raise StreamerError(message)
        return dictionary

    def with_codes(self, codes: NDArray[np.uint64]) -> Dictionary:
        """This dictionary and more k-mers, which belong to no target unless they already did."""
        more = np.setdiff1d(codes, self.codes)
        merged = np.concatenate((self.codes, more))
        sets = np.concatenate((self.sets, np.full(more.size, NO_SET, dtype=np.uint32)))
        order = np.argsort(merged)
        return Dictionary(self.k, self.strands, merged[order], sets[order], self.targets)

    def without_targets(self, strands: Strands) -> Dictionary:
        """The same k-mers, known as strands ask for it, and no targets."""
        codes = self.codes
        if strands != "forward":
            reverse = with_reverse_complements(codes, self.k)[codes.size :]
            codes = sort_unique(np.minimum(codes, reverse), self.k, usable_cores())
        sets = np.full(codes.size, NO_SET, dtype=np.uint32)
        return Dictionary(self.k, strands, codes, sets, TargetSets.empty())

    @classmethod
    def from_batches(cls, batches: Iterable[ReadBatch], k: int, strands: Strands) -> Dictionary:
        """Every window of every record, with its target sets."""
        check_k(k)
        names: list[str] = []
        codes: list[NDArray[np.uint64]] = []
        owners: list[NDArray[np.int32]] = []
        for batch in batches:
            kmers, positions = window_codes(
                batch.bases, batch.offsets, k, canonical=strands != "forward"
            )
            record = np.searchsorted(batch.offsets, positions, side="right") - 1
            codes.append(kmers)
            owners.append((record + len(names)).astype(np.int32))
            names.extend(batch.names)
        if not codes:
            return cls.empty(k, strands)
        return cls(k, strands, *_group(np.concatenate(codes), np.concatenate(owners), names))


def _holds_snapshot(path: str) -> bool:
    """Whether a regular file is a saved snapshot; what cannot be read is told when it is read."""
    try:
        return os.path.isfile(path) and is_snapshot(path)
    except OSError:
        return False


def _saved_codes(path: str, k: int, strands: Strands) -> NDArray[np.uint64]:
    """The k-mers of a snapshot file, as a dictionary with these strands has them."""
    try:
        tree, saved_strands = load_with_strands(path)
    except ValueError as error:
        raise StreamerError(str(error)) from error
    if (tree.k, saved_strands) != (k, strands):
        message = (
            f"{path}: was saved with -k {tree.k} --strands {saved_strands}, "
            f"not with -k {k} --strands {strands}"
        )
        raise StreamerError(message)
    codes = tree.codes()
    if strands == "both":
        # the trie holds both orientations of each k-mer, the dictionary the smaller one
        codes = codes[codes <= with_reverse_complements(codes, k)[codes.size :]]
    return codes


def _group(
    codes: NDArray[np.uint64], owners: NDArray[np.int32], names: list[str]
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], TargetSets]:
    """Distinct codes, ascending, with the set of owners of each."""
    if len(names) == 1:
        distinct = np.sort(codes)
        distinct = distinct[_first_of_run(distinct)]
        one = TargetSets(names, np.array([0, 1], dtype=np.int64), np.zeros(1, dtype=np.int32))
        return distinct, np.zeros(distinct.size, dtype=np.uint32), one
    # owners ascend in stream order, so a stable sort leaves them ascending within a code
    order = np.argsort(codes, kind="stable")
    codes, owners = codes[order], owners[order]
    keep = _first_of_run(codes)
    keep[1:] |= owners[1:] != owners[:-1]
    codes, owners = codes[keep], owners[keep]
    first = np.flatnonzero(_first_of_run(codes))
    bounds = np.append(first, codes.size)
    set_of_code, representative = _intern(owners, bounds)
    sizes = np.diff(bounds)[representative]
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    members = owners[np.repeat(bounds[representative], sizes) + within]
    return codes[first], set_of_code, TargetSets(names, starts, members)


def _first_of_run(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    first = np.ones(values.size, dtype=np.bool_)
    first[1:] = values[1:] != values[:-1]
    return first


@njit(cache=True, nogil=True)
def _hash_run(owners, start, stop):  # type: ignore[no-untyped-def]
    """A hash whose low bits depend on every bit of the members (the steps of splitmix64)."""
    h = np.uint64(stop - start)
    for i in range(start, stop):
        h = (h ^ np.uint64(owners[i])) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return np.int64(h & np.uint64(0x7FFFFFFFFFFFFFFF))


@njit(cache=True, nogil=True)
def _intern(owners, bounds):  # type: ignore[no-untyped-def]
    """Number equal runs of ``owners`` alike: the number of each run, and one run of each number.

    An open-addressing table of set numbers, at most half full; equal hashes are compared in full.
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
    return number, representative[:count]


@njit(cache=True, nogil=True)
def _place(owners, bounds, run, representative, table):  # type: ignore[no-untyped-def]
    """Where the table holds a run equal to this one, or the free place where it belongs."""
    at = _hash_run(owners, bounds[run], bounds[run + 1]) % table.size
    while table[at] >= 0 and not _equal_runs(owners, bounds, run, representative[table[at]]):
        at = (at + 1) % table.size
    return at


@njit(cache=True, nogil=True)
def _equal_runs(owners, bounds, one, other):  # type: ignore[no-untyped-def]
    length = bounds[one + 1] - bounds[one]
    if bounds[other + 1] - bounds[other] != length:
        return False
    for i in range(length):
        if owners[bounds[one] + i] != owners[bounds[other] + i]:
            return False
    return True
