"""Dictionaries as users name them: the k-mers of FASTX records, and which records hold each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import NO_CODES, Index, listed, records_of, saved_otherwise
from streamer.dictionary.target_sets import TargetSets, bounds_of, confusing_names
from streamer.errors import StreamerError, UsageError, check_choice
from streamer.protocol.schema import SHOWN_TARGETS
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.source import shown_name
from trie.ascending import lacking, merged
from trie.codes import check_k, with_reverse_complements
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores
from trie.index.index_file import is_index
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
    some k-mers are in no record, and have the set NO_SET. index: of all k-mers, instead of codes,
    sets and records, which are then listed when they are first asked for; StreamerError if there
    are too many.
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
        made = cls(index.k, index.strands, None, None, None, index=index)
        return made.with_grown(index.grown)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dictionary:
        """Open a file of ``streamer index`` or ``--save``; StreamerError if it is none."""
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
            parts = [np.empty(0, np.uint8), *(codes for _, codes, _ in records_of(self._origin))]
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

        A file may be an index: its k-mers and targets are taken. as_stored: take the k-mers as they
        stand in the records, with strands ``forward``, whatever ``strands`` is. on_notice: called
        with one line about records that hold no k-mer and can never match, and names that reports
        cannot tell apart. team: the threads that read files. UsageError without files, and for
        unknown strands.

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
        index = _indexed(names, k, strands, known_as, team)
        grown = [Index.open(path).grown for path in names if is_index(path)]
        kmerless = index.kmerless()
        if kmerless and len(names) == 1:
            # not by the source of an index
            kmerless = {names[0]: "; ".join(kmerless.values())}
        some = index.has_kmers or any(codes.size for codes in grown)
        check_notices(kmerless, index.names, names, k, on_notice, none=not some)
        made = cls.of_index(index)
        for codes in grown:
            made = made.with_grown(codes, either=strands == "both")
        return made

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
        made = Dictionary.empty(self.k, strands)
        if self._origin is not None:
            made = Dictionary.of_index(
                replace(self._origin, strands=strands, made=None, known=None, grown=NO_CODES)
            )
        return made.with_grown(self._grown)

    @property
    def _grown(self) -> NDArray[np.uint64]:
        return self.codes[self.sets == NO_SET] if self.has_grown else NO_CODES

    def save(self, path: str, strands: Strands, further: NDArray[np.uint64] = NO_CODES) -> None:
        """Write an index of the records, with the k-mers that are in none, and ``further`` ones.

        strands: those of the file; further: of its form. OSError if it cannot be written.
        """
        index = self._origin or Index.from_batches([], self.k, strands)
        if index.strands != strands:
            index = replace(index, strands=strands, made=None, known=None)
        grown = np.concatenate((self._grown, further))
        replace(index, grown=sort_unique(grown, self.k, usable_cores())).save(path)

    def by_group(self) -> Dictionary:
        """Return the same k-mers with groups as targets; StreamerError if there are none."""
        index = self._origin
        if index is None or not index.groups:
            raise StreamerError(
                "no target has a group: name groups in the table of streamer index --targets TSV"
            )
        return Dictionary.of_index(replace(index.by_group(), grown=self._grown))

    def with_grown(self, codes: NDArray[np.uint64], *, either: bool = False) -> Dictionary:
        """Add learned k-mers, in any order, without a target.

        either: not those whose reverse complements are known, even with strands ``forward``.
        """
        if not codes.size:
            return self
        if self.strands != "forward":
            codes = _canonical(codes, self.k)
        elif either:
            codes = codes[
                ~np.isin(with_reverse_complements(codes, self.k)[codes.size :], self.codes)
            ]
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
        # for a distance, k-mers are taken as they stand in the records; grown ones have only a form
        fixed = strands == known_as or index.grown.size
        if index.k != k or (fixed and index.strands != strands):
            raise saved_otherwise(path, index.k, index.strands, k, strands)
        if len(paths) == 1 and strands == known_as:
            return replace(index, grown=NO_CODES)
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


def target_names(paths: Sequence[str], k: int) -> dict[str, bool]:
    """Return the names of the targets of files, in order, and which hold a k-mer."""
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
