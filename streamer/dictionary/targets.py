"""Dictionaries as users name them: the k-mers of FASTX records, and which records hold each.

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
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index, listed, records_of, saved_otherwise
from streamer.dictionary.target_sets import (
    TargetSets,
    bounds_of,
    confusing_names,
    first_names,
    side_by_side,
    united,
)
from streamer.errors import StreamerError, UsageError, check_choice
from streamer.protocol.schema import SHOWN_TARGETS
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.source import shown_name
from trie.ascending import lacking, merged
from trie.codes import check_k, with_reverse_complements
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores
from trie.index.index_file import is_index
from trie.snapshots.tree_bitmap import SnapshotDamagedError, TreeBitmap, is_snapshot, load, save
from trie.strands import STRANDS, Strands
from trie.trees.shards import sort_unique
from trie.windows import NO_SET


class RecordBases(NamedTuple):
    """bases: uint8 codes of all records. offsets: int64[records + 1], where each starts."""

    bases: NDArray[np.uint8]
    offsets: NDArray[np.int64]


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
        targets: TargetSets | None,
        has_grown: bool = False,
        index: Index | None = None,
    ) -> None:
        self.k = k
        self.strands: Strands = strands
        self._targets = targets
        self.has_grown = has_grown
        self.index = index
        self._listed = None if codes is None or sets is None else (codes, sets)
        self._origin = index
        self._records: RecordBases | None = None

    @classmethod
    def of_index(cls, index: Index) -> Dictionary:
        """Create the dictionary of an index."""
        return cls(index.k, index.strands, None, None, None, index=index)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dictionary:
        """Open a file that ``streamer index`` wrote; StreamerError if it is none, or damaged."""
        return cls.of_index(Index.open(os.fspath(path)))

    @property
    def targets(self) -> TargetSets:
        """The sets of targets."""
        if self._targets is None:
            assert self.index is not None
            self._targets = self.index.targets
        return self._targets

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
        if self._listed is None and self.index is not None:
            return self.index.shares.distinct
        return self.codes.size

    @property
    def records(self) -> RecordBases | None:
        """The bases of the records, a byte each; None without an index."""
        if self._records is None and self._origin is not None:
            parts = [codes for _, codes, _ in records_of(self._origin)]
            self._records = RecordBases(np.concatenate(parts), bounds_of(self._origin.lengths))
        return self._records

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """int64[targets]: the bases of their records; None if these are not kept."""
        if self.index is not None:
            sums = np.bincount(self.index.owners, self.index.lengths, len(self.index.names))
            return sums.astype(np.int64)
        return None

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
        made = Dictionary(
            self.k,
            strands or self.strands,
            codes if codes is not None else None if same and self._listed is None else self.codes,
            sets if sets is not None else None if same and self._listed is None else self.sets,
            self._targets if same else self.targets,
            self.has_grown or has_grown,
            self.index if same else None,
        )
        made._origin = self._origin
        return made

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
        on_notice: Callable[[str], None] | None = None,
        team: Team | None = None,
    ) -> Dictionary:
        """Take every window of every record of the files; raise StreamerError if there is none.

        A file may be an index, or a saved dictionary: its k-mers and targets are taken. as_stored:
        take the k-mers as they stand in the records, with strands ``forward``, whatever ``strands``
        is. on_notice: called with one line about files that lack targets, records that hold no
        k-mer and can never match, and names that reports cannot tell apart. team: the threads that
        read files. UsageError without files, and for unknown strands.

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
        parts, target_names = list[Dictionary](), list[str]()
        without: dict[str, str] = {}
        some = False
        for saved, run in groupby(names, is_saved):
            for path in run if saved else ():
                part = load_dictionary(path, k, strands, on_notice).known_as(known_as)
                if names_without := part.targets.without_kmers:
                    without[path] = f"{len(names_without):,} targets: {first_names(names_without)}"
                some |= part.codes.size > 0
                target_names += part.targets.names
                parts.append(part)
            if not saved:
                files = [*run]
                index = _indexed(files, k, strands, known_as, team)
                kmerless = index.kmerless()
                if kmerless and len(files) == 1:
                    # not by the source of an index
                    kmerless = {files[0]: "; ".join(kmerless.values())}
                without |= kmerless
                some |= index.has_kmers
                target_names += index.names
                parts.append(cls.of_index(index))
        check_notices(without, target_names, names, k, on_notice, none=not some)
        return _merged(parts, both=strands == "both")

    @classmethod
    def from_batches(cls, batches: Iterable[ReadBatch], k: int, strands: Strands) -> Dictionary:
        """Take every window of every record, with its target sets."""
        return cls.of_index(Index.from_batches(batches, k, strands))

    def known_as(self, strands: Strands) -> Dictionary:
        """Return the same k-mers and targets as a dictionary with these strands.

        This dictionary must have strands ``forward``, with k-mers as in the records, or these
        strands.
        """
        if strands in ("forward", self.strands):
            return self.replaced(strands=strands)
        if self.index is not None:
            return Dictionary.of_index(replace(self.index, strands=strands, made=None, known=None))
        codes, sets, targets = united(_canonical(self.codes, self.k), self.sets, self.targets)
        return Dictionary(self.k, strands, codes, sets, targets)

    def by_group(self) -> Dictionary:
        """Return the same k-mers with groups as targets; StreamerError if there are none."""
        if self.index is None or not self.index.groups:
            raise StreamerError(
                "no target has a group: name groups in the table of streamer index --targets TSV"
            )
        return Dictionary.of_index(self.index.by_group())

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


def _indexed(
    paths: Sequence[str], k: int, strands: Strands, known_as: Strands, team: Team | None
) -> Index:
    """The index of files, of which some may be indexes."""
    for path in filter(is_index, paths):
        index = Index.open(path)
        # for a distance, k-mers are taken as they stand in the records
        if index.k != k or index.strands != strands == known_as:
            raise saved_otherwise(path, index.k, index.strands, k, strands)
        if len(paths) == 1 and strands == known_as:
            return index
    return Index.from_files(paths, k, known_as, team=team, checksums=False)


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


def target_names(paths: Sequence[str], k: int) -> dict[str, bool] | None:
    """Return the names of the targets of files, in order, and which hold a k-mer.

    Returns None if any is a saved dictionary; DataError as in reading.
    """
    if any(map(is_saved, paths)):
        return None
    if len(paths) == 1 and is_index(paths[0]):
        index = Index.open(paths[0])
        windows = index.shares.kmers
    else:
        index = Index.from_files(paths, k, "forward", checksums=False)
        windows = np.bincount(index.owners, index.reference.windows(k), minlength=len(index.names))
    names: dict[str, bool] = {}
    for name, holds in zip(index.names, windows > 0, strict=True):
        names[name] = names.get(name, False) or bool(holds)
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
    return Dictionary(first.k, first.strands, *united(codes, np.concatenate(sets), targets))


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
        raise saved_otherwise(path, tree.k, whole.strands, k, strands)
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
