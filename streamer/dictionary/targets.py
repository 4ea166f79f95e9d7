"""Dictionaries as users name them: the k-mers of FASTX records, and which records hold each.

The bases of a dictionary's records, kept to locate k-mers in them.

Collect the distinct k-mers of records as they are read, and the target set of each.

Windows are grouped by shard (``trie.trees.shards``) one piece at a time, with the number of the
record that each comes from. At the end, threads sort shard by shard: each shard holds 1/64 of all
windows, so sorting needs little extra memory. Until then a window takes 8 bytes, 12 if there are
several records, and as much again for the result.

Saved dictionaries: what ``match --save`` writes and ``--dictionary`` reads.

The file is a snapshot (``trie.snapshots.tree_bitmap``) that also holds the targets:

    names        uint8: the names of the targets in file order, UTF-8, a line feed after each
    set_starts   int64[sets + 1] and
    set_members  int32: the sets of targets, as in ``TargetSets``
    sets         an unsigned integer for each k-mer of the trie, ascending: its target set, or one
                 of the two greatest numbers of its type

The greatest number marks a k-mer without a target. With strands ``both`` the trie holds both
orientations of a k-mer, but the records hold one or both: the second greatest number marks an
orientation that is present only as the reverse complement of the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index, kmerless, listed, records_of
from streamer.dictionary.target_sets import (
    TargetSets,
    bounds_of,
    confusing_names,
    first_names,
    gathered,
    intern_runs,
    side_by_side,
    united,
)
from streamer.errors import StreamerError, UsageError, check_choice
from streamer.protocol.schema import SHOWN_TARGETS
from streamer.sequences.files import read_pieces
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import TextPiece
from streamer.sequences.source import STDIN, shown_name
from trie.ascending import lacking, merged
from trie.codes import check_k, with_reverse_complements
from trie.cpu.jit import njit
from trie.cpu.team import Team
from trie.cpu.threads import run_each, usable_cores
from trie.index.index_file import is_index
from trie.index.kmer_index import ALWAYS_BITSET_K
from trie.index.mers import suits
from trie.snapshots.tree_bitmap import SnapshotDamagedError, TreeBitmap, is_snapshot, load, save
from trie.strands import STRANDS, Strands
from trie.trees.shards import drop_repeats, group, sort_unique
from trie.windows import NO_SET, window_codes


class RecordBases(NamedTuple):
    """bases: uint8 codes of all records. offsets: int64[records + 1], where each starts."""

    bases: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class RecordCollector:
    """Collects the pieces of records as they are read, if ``keeps`` is set."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._lengths: list[int] = []
        self._parts: list[NDArray[np.uint8]] = []

    def add(self, piece: TextPiece, first: int) -> None:
        """Add the next piece, whose first record has the number ``first``."""
        if not self._keeps:
            return
        self._parts.append(piece.reads.bases[piece.again :].copy())
        lengths = piece.reads.lengths
        lengths[:1] -= piece.again
        if first < len(self._lengths):
            self._lengths[-1] += int(lengths[0])
            lengths = lengths[1:]
        self._lengths += lengths.tolist()

    def finish(self) -> RecordBases | None:
        """Return all records; None without ``keeps``."""
        if not self._keeps:
            return None
        bases = np.concatenate([np.zeros(0, np.uint8), *self._parts])
        return RecordBases(bases, bounds_of(np.array(self._lengths, dtype=np.int64)))


def joined_records(parts: Sequence[RecordBases | None]) -> RecordBases | None:
    """Join the records of all parts, in order; None if any is None, or there are none."""
    kept = [part for part in parts if part is not None]
    if not kept or len(kept) < len(parts):
        return None
    bases = np.concatenate([part.bases for part in kept])
    lengths = np.concatenate([np.diff(part.offsets) for part in kept])
    return RecordBases(bases, bounds_of(lengths))


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
        """Name the records from ``first`` on that hold no k-mer, with the reason."""
        return kmerless(names[first:], np.frombuffer(self._states, np.uint8)[first:], self._k)


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


__all__ = ["NO_SET", "Dictionary", "TargetSets"]

_PIECE = 1 << 21
"""Symbols read at once; their windows and the memory to group them take 33 bytes each."""


class Dictionary:
    """The k-mers that matching starts from.

    codes: uint64, ascending, each once; canonical codes unless strands is ``forward``. sets:
    uint32, the target set of each k-mer. records: the targets' bases, if they are kept. has_grown:
    some k-mers are in no record. index: of all k-mers, instead of codes, sets and records, which
    are then listed when they are first asked for; StreamerError if there are too many.
    """

    def __init__(
        self,
        k: int,
        strands: Strands,
        codes: NDArray[np.uint64] | None,
        sets: NDArray[np.uint32] | None,
        targets: TargetSets,
        records: RecordBases | None = None,
        has_grown: bool = False,
        index: Index | None = None,
    ) -> None:
        self.k = k
        self.strands: Strands = strands
        self.targets = targets
        self.has_grown = has_grown
        self.index = index
        self._listed = None if codes is None or sets is None else (codes, sets)
        self._records = records

    @classmethod
    def of_index(cls, index: Index) -> Dictionary:
        """Create the dictionary of an index."""
        return cls(index.k, index.strands, None, None, index.targets, index=index)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dictionary:
        """Open a file that ``streamer index`` wrote; StreamerError if it is none, or damaged."""
        return cls.of_index(Index.open(os.fspath(path)))

    def _lists(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        if self._listed is None:
            assert self.index is not None
            self._listed = listed(self.index)
        return self._listed

    @property
    def codes(self) -> NDArray[np.uint64]:
        """The k-mers, ascending."""
        return self._lists()[0]

    @property
    def sets(self) -> NDArray[np.uint32]:
        """The target set of each k-mer."""
        return self._lists()[1]

    @property
    def kmers(self) -> int:
        """The number of k-mers."""
        return self.index.shares.distinct if self.index is not None else self.codes.size

    @property
    def records(self) -> RecordBases | None:
        """The bases of the records, a byte each."""
        if self._records is None and self.index is not None:
            parts = [codes for _, codes, _ in records_of(self.index)]
            self._records = RecordBases(np.concatenate(parts), bounds_of(self.index.lengths))
        return self._records

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """int64[targets]: the bases of their records; None if these are not kept."""
        if self.index is not None:
            sums = np.bincount(self.index.owners, self.index.lengths, len(self.index.names))
            return sums.astype(np.int64)
        return None if self._records is None else np.diff(self._records.offsets)

    def replaced(
        self,
        *,
        strands: Strands | None = None,
        codes: NDArray[np.uint64] | None = None,
        sets: NDArray[np.uint32] | None = None,
        has_grown: bool = False,
    ) -> Dictionary:
        """Create a dictionary that differs in what is given."""
        same = codes is None and sets is None
        return Dictionary(
            self.k,
            strands or self.strands,
            codes if codes is not None else None if same and self._listed is None else self.codes,
            sets if sets is not None else None if same and self._listed is None else self.sets,
            self.targets,
            self._records if same else self.records,
            self.has_grown or has_grown,
            self.index if same else None,
        )

    @classmethod
    def empty(cls, k: int, strands: Strands) -> Dictionary:
        """Create a dictionary without k-mers."""
        check_k(k)
        return cls(k, strands, np.zeros(0, np.uint64), np.zeros(0, np.uint32), TargetSets.empty())

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        k: int,
        strands: Strands = "canonical",
        *,
        as_stored: bool = False,
        keep_records: bool = True,
        on_notice: Callable[[str], None] | None = None,
        team: Team | None = None,
    ) -> Dictionary:
        """Read every window of every record of the files; raise StreamerError if there is none.

        A file may be a saved dictionary: its k-mers and targets are taken. as_stored: take the
        k-mers as they stand in the records, with strands ``forward``, whatever ``strands`` is.
        keep_records: keep the bases of all records, a byte each, which makes matching on a CPU
        several times as fast; not possible if any file is a saved dictionary, which has none.
        on_notice: called with one line about files that lack targets, records that hold no k-mer
        and can never match, and names that reports cannot tell apart. team: the threads that read
        files and collect k-mers; all cores by default. UsageError without files, and for unknown
        strands.

        >>> from streamer import Dictionary
        >>> dictionary = Dictionary.from_files(["lambda.fa.gz", "ont_native_barcodes_24.fa.gz"], 21)
        >>> dictionary.codes.size
        48578
        >>> dictionary.targets.names[:3]
        ['gi|9626243|ref|NC_001416.1|', 'NB01', 'NB02']
        """
        check_k(k)
        check_choice("strands", strands, STRANDS)
        several = [paths] if isinstance(paths, str | os.PathLike) else paths
        names = [os.fspath(path) for path in several]
        if not names:
            raise UsageError("a dictionary needs files")
        known_as: Strands = "forward" if as_stored else strands
        if indexed := cls._indexed(names, k, strands, known_as, keep_records, team):
            check_notices(
                indexed.kmerless(),
                indexed.targets.names,
                names,
                k,
                on_notice,
                none=not indexed.has_kmers,
            )
            return cls.of_index(indexed)
        parts = []
        kmerless: dict[str, str] = {}
        for saved, run in groupby(names, is_saved):
            for path in run if saved else ():
                part = load_dictionary(path, k, strands, on_notice).known_as(known_as)
                if without := part.targets.without_kmers:
                    kmerless[path] = f"{len(without):,} targets: {first_names(without)}"
                parts.append(part)
            if not saved:
                unsaved = list(run)
                parts.append(cls._from_records(unsaved, k, known_as, keep_records, team, kmerless))
        dictionary = _merged(parts, both=strands == "both")
        check_notices(
            kmerless, dictionary.targets.names, names, k, on_notice, none=not dictionary.codes.size
        )
        return dictionary

    @classmethod
    def _indexed(
        cls,
        paths: Sequence[str],
        k: int,
        strands: Strands,
        known_as: Strands,
        wanted: bool,
        team: Team | None,
    ) -> Index | None:
        """The index of files, if one of them is an index, or one is ``wanted`` and useful."""
        indexes = [path for path in paths if is_index(path)]
        for path in indexes:
            index = Index.open(path)
            # for a distance, k-mers are taken as they stand in the records
            if index.k != k or index.strands != strands == known_as:
                raise StreamerError(
                    f"{path}: was saved with -k {index.k} --strands {index.strands}, "
                    f"not with -k {k} --strands {strands}"
                )
            if len(paths) == 1 and strands == known_as:
                return index
        if saved := [path for path in paths if is_saved(path)]:
            if indexes:
                raise StreamerError(f"{saved[0]}: cannot be joined with an index")
            return None
        useful = wanted and k > ALWAYS_BITSET_K and STDIN not in paths and known_as == strands
        if not indexes and not (useful and suits(k, _bases_of(paths))):
            return None
        return Index.from_files(paths, k, known_as, team=team, checksums=False)

    @classmethod
    def _from_records(
        cls,
        paths: Sequence[str],
        k: int,
        strands: Strands,
        keep: bool,
        team: Team | None,
        kmerless: dict[str, str],
    ) -> Dictionary:
        """Read every window of every record of sequence files; note in which there is none."""
        kept = RecordCollector(keeps=keep)
        collector = KmerCollector(k, canonical=strands != "forward", threads=usable_cores())
        for path in paths:
            before = collector.records
            for piece in read_pieces(path, k - 1, size=_PIECE, team=team):
                collector.add(piece.reads, before + piece.first)
                kept.add(piece, before + piece.first)
            if why := collector.kmerless(before):
                kmerless[path] = why
        return cls(k, strands, *collector.finish(), kept.finish())

    @classmethod
    def from_batches(cls, batches: Iterable[ReadBatch], k: int, strands: Strands) -> Dictionary:
        """Take every window of every record, with its target sets; the records are kept."""
        collector = KmerCollector(k, canonical=strands != "forward", threads=usable_cores())
        records = []
        for batch in batches:
            collector.add(batch, collector.records)
            records.append(RecordBases(batch.bases, batch.offsets))
        return cls(k, strands, *collector.finish(), joined_records(records))

    def known_as(self, strands: Strands) -> Dictionary:
        """Return the same k-mers and targets as a dictionary with these strands.

        This dictionary must have strands ``forward``, with k-mers as in the records, or these
        strands.
        """
        if strands in ("forward", self.strands):
            return self.replaced(strands=strands)
        codes, sets, targets = united(_canonical(self.codes, self.k), self.sets, self.targets)
        return Dictionary(self.k, strands, codes, sets, targets, self.records)

    def with_grown(self, codes: NDArray[np.uint64]) -> Dictionary:
        """Add learned k-mers: in the dictionary's strands, in any order, without a target."""
        if not codes.size:
            return self
        threads = usable_cores()
        new = lacking(self.codes, sort_unique(codes, self.k, threads), threads)
        if not new.size:
            return self
        all_codes = merged(self.codes, new, threads)
        sets = np.full(all_codes.size, NO_SET, dtype=np.uint32)
        sets[np.searchsorted(all_codes, self.codes)] = self.sets
        return self.replaced(codes=all_codes, sets=sets, has_grown=True)

    def without_targets(self, strands: Strands) -> Dictionary:
        """Return the same k-mers without targets, as a dictionary with these strands."""
        codes = self.codes
        if strands != "forward":
            codes = sort_unique(_canonical(codes, self.k), self.k, usable_cores())
        sets = np.full(codes.size, NO_SET, dtype=np.uint32)
        return Dictionary(self.k, strands, codes, sets, TargetSets.empty())


def _bases_of(paths: Sequence[str]) -> int:
    """About how many bases files hold, at most: compressed ones hold four a byte."""
    return 4 * sum(os.path.getsize(path) for path in paths if os.path.isfile(path))


def check_notices(
    kmerless: Mapping[str, str],
    target_names: Sequence[str],
    paths: Sequence[str],
    k: int,
    on_notice: Callable[[str], None] | None,
    *,
    none: bool,
) -> None:
    """Report files with records that hold no k-mer, and names that reports cannot tell apart.

    Raises StreamerError if ``none`` holds one.
    """
    # one line, however many files and records there are
    kmerless = dict(islice(kmerless.items(), SHOWN_TARGETS))
    if none:
        why = "; ".join(kmerless.values()) or "no records"
        files = ", ".join(map(shown_name, kmerless or paths))
        raise StreamerError(f"{files}: the dictionary holds no whole {k}-mer: {why}")
    if on_notice is None:
        return
    if kmerless:
        never = "; ".join(f"{shown_name(path)}: {why}" for path, why in kmerless.items())
        on_notice(f"warning: without a whole {k}-mer nothing can match: {never}")
    for line in confusing_names(target_names):
        on_notice(f"warning: {line}")


def target_names(paths: Iterable[str], k: int) -> dict[str, bool] | None:
    """Return the record names of sequence files, in order, and which hold a k-mer.

    Returns None if any is a saved dictionary; DataError as in reading.
    """

    names: dict[str, bool] = {}
    for path in paths:
        if is_saved(path):
            return None
        if is_index(path):
            index = Index.open(path)
            for name, kmers in zip(index.names, index.shares.kmers.tolist(), strict=True):
                names[name] = names.get(name, False) or kmers > 0
            continue
        for piece in read_pieces(path, k - 1, size=_PIECE):
            _, starts = window_codes(piece.reads.bases, piece.reads.offsets, k, canonical=False)
            for name, held in zip(piece.reads.names, holding(piece.reads, starts), strict=True):
                names[name] = names.get(name, False) or held
    return names


def _canonical(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    return np.minimum(codes, with_reverse_complements(codes, k)[codes.size :])


def _merged(parts: list[Dictionary], *, both: bool) -> Dictionary:
    """Merge the k-mers and targets of all parts, in the order of the parts.

    A k-mer without a target takes those that another part has for it, with strands ``both`` in
    either orientation: with that part present, it would not have been added.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if both and first.strands == "forward":
        parts = [_without_known(parts, at) for at in range(len(parts))]
    targets = side_by_side([part.targets for part in parts])
    sets = []
    before = 0
    for part in parts:
        sets.append(np.where(part.sets == NO_SET, NO_SET, part.sets + np.uint32(before)))
        before += len(part.targets)
    codes = np.concatenate([part.codes for part in parts])
    records = joined_records([part.records for part in parts])
    united_sets = united(codes, np.concatenate(sets), targets)
    return Dictionary(first.k, first.strands, *united_sets, records)


def _without_known(parts: Sequence[Dictionary], at: int) -> Dictionary:
    """Drop a part's k-mers that lack targets and whose reverse complement another part has.

    If neither part has a target for it, the first keeps the k-mer.
    """
    part = parts[at]
    reverse = with_reverse_complements(part.codes, part.k)[part.codes.size :]
    keep = np.ones(part.codes.size, dtype=np.bool_)
    for number, other in enumerate(parts):
        if number != at:
            theirs = other.codes if number < at else other.codes[other.sets != NO_SET]
            keep &= ~np.isin(reverse, theirs)
    keep |= part.sets != NO_SET
    return part.replaced(codes=part.codes[keep], sets=part.sets[keep])


_NOT_STORED = np.uint32(0xFFFFFFFE)


def is_saved(path: str) -> bool:
    """Return whether a regular file is a saved dictionary; unreadable files fail when read."""
    try:
        return os.path.isfile(path) and is_snapshot(path)
    except OSError:
        return False


def load_dictionary(
    path: str, k: int, strands: Strands, on_notice: Callable[[str], None] | None = None
) -> Dictionary:
    """Load a dictionary; with strands ``both``, its k-mers as they stand in the records.

    Raises StreamerError if the file is damaged, or was saved with another k or other strands.
    on_notice: called with one line if the file is too old to have targets.
    """
    try:
        whole = load(path)
        tree = whole.tree
        if (tree.k, whole.strands) == (k, strands):
            codes = tree.codes()
            if whole.labels is not None:
                sets, targets = _labels_of(path, codes.size, whole.labels)
            else:
                sets, targets = np.full(codes.size, NO_SET, np.uint32), TargetSets.empty()
                if strands == "both":
                    # the stored orientation is unknown: take the smaller one
                    sets[codes > with_reverse_complements(codes, k)[codes.size :]] = _NOT_STORED
                if on_notice is not None:
                    on_notice(
                        f"{path}: saved by an earlier version, without targets: "
                        "its k-mers have the target '.'"
                    )
    except ValueError as error:
        raise StreamerError(str(error)) from error
    if (tree.k, whole.strands) != (k, strands):
        raise StreamerError(
            f"{path}: was saved with -k {tree.k} --strands {whole.strands}, "
            f"not with -k {k} --strands {strands}"
        )
    if strands == "both":
        stored = sets != _NOT_STORED
        return Dictionary(k, "forward", codes[stored], sets[stored], targets)
    return Dictionary(k, strands, codes, sets, targets)


def save_dictionary(
    path: str, stored: Dictionary, grown: NDArray[np.uint64], tree: TreeBitmap, strands: Strands
) -> None:
    """Write a dictionary that may have grown; raise OSError if that fails.

    stored: the initial dictionary, with strands ``both`` its k-mers as they stand in the records.
    grown: uint64, k-mers as stored that were added later; needed with strands ``both`` only. tree:
    all k-mers.
    """
    codes = tree.codes()
    sets = np.full(codes.size, _NOT_STORED if strands == "both" else NO_SET, dtype=np.uint32)
    if strands == "both":
        sets[np.searchsorted(codes, grown)] = NO_SET
    sets[np.searchsorted(codes, stored.codes)] = stored.sets
    targets = stored.targets
    dtype = np.min_scalar_type(len(targets) + 1)
    save(
        tree,
        path,
        strands=strands,
        labels={
            "names": np.frombuffer(
                "".join(f"{name}\n" for name in targets.names).encode(), dtype=np.uint8
            ),
            "set_starts": targets.starts.astype(np.int64),
            "set_members": targets.members.astype(np.int32),
            # the two greatest numbers remain the greatest after narrowing
            "sets": sets.astype(dtype),
        },
    )


def _labels_of(
    path: str, kmers: int, labels: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.uint32], TargetSets]:
    """Return each k-mer's target set, and the sets; SnapshotDamagedError if inconsistent."""
    raw, starts, members = labels["sets"], labels["set_starts"], labels["set_members"]
    names = labels["names"].tobytes().decode().split("\n")[:-1]
    special = np.iinfo(raw.dtype).max
    sets = raw.astype(np.uint32)
    sets[raw == special] = NO_SET
    sets[raw == special - 1] = _NOT_STORED
    used = sets[sets < _NOT_STORED]
    sound = (
        raw.shape == (kmers,)
        and starts.ndim == members.ndim == 1
        and starts.size > 0
        and starts[0] == 0
        and starts[-1] == members.size
        and bool((np.diff(starts) >= 0).all())
        and int(used.max(initial=0)) < max(starts.size - 1, 1)
        and int(members.min(initial=0)) >= 0
        and int(members.max(initial=0)) < max(len(names), 1)
    )
    if not sound:
        raise SnapshotDamagedError(Path(path), "its targets do not fit its k-mers")
    return sets, TargetSets(names, starts, members)
