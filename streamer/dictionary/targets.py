"""Dictionaries as users name them: the k-mers of FASTX records, and which records hold each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import NO_CODES, Index, listed, saved_otherwise, sets_at
from streamer.dictionary.target_sets import TargetSets, confusing_names
from streamer.errors import StreamerError, UsageError, check_choice
from streamer.protocol.schema import SHOWN_TARGETS
from streamer.sequences.files import reference_files
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

if TYPE_CHECKING:
    from streamer.dictionary.target_table import TargetTable

LARGE = 1 << 24
"""A growing dictionary that begins with more k-mers keeps no tree and no list of them."""


class Dictionary:
    """The k-mers that matching starts from: those of an index, and further ones, in no record.

    grown: uint64, these, ascending codes; canonical unless strands is ``forward``. targets: of the
    k-mers of the index.
    """

    def __init__(
        self,
        index: Index,
        grown: NDArray[np.uint64] = NO_CODES,
        *,
        strands: Strands | None = None,
        targets: TargetSets | None = None,
    ) -> None:
        self.index = index
        self.grown = grown
        self.k = index.k
        self.strands: Strands = strands or index.strands
        self._targets = targets

    @classmethod
    def of_index(cls, index: Index) -> Dictionary:
        """Create the dictionary of an index, with the k-mers that grew there."""
        return cls(index).with_grown(index.grown)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Dictionary:
        """Open a file of ``streamer index`` or ``--save``; StreamerError if it is none."""
        return cls.of_index(Index.open(os.fspath(path)))

    @property
    def targets(self) -> TargetSets:
        """The sets of targets."""
        return self.index.targets if self._targets is None else self._targets

    @cached_property
    def codes(self) -> NDArray[np.uint64]:
        """The k-mers, ascending; StreamerError if there are too many to be listed."""
        codes = self.index.codes()
        return merged(codes, self.grown, usable_cores()) if self.grown.size else codes

    @property
    def places(self) -> NDArray[np.uint32]:
        """The first place of each k-mer in the text of the index, NO_SET for grown ones."""
        codes, firsts = listed(self.index)
        if not self.grown.size:
            return firsts
        places = np.full(self.codes.size, NO_SET, np.uint32)
        places[np.searchsorted(self.codes, codes)] = firsts
        return places

    @cached_property
    def sets(self) -> NDArray[np.uint32]:
        """The target set of each k-mer, NO_SET for grown ones."""
        if len(self.index.names) < 2:
            sets = np.zeros(self.codes.size, np.uint32)
            sets[np.searchsorted(self.codes, self.grown)] = NO_SET
            return sets
        sets = self.places
        known = sets != NO_SET
        sets[known] = sets_at(self.index, sets[known])
        return sets

    @property
    def kmers(self) -> int:
        """The number of k-mers."""
        return self.index.shares.distinct + self.grown.size

    @property
    def most_kmers(self) -> int:
        """The same or more, known without looking for equal k-mers."""
        return self.index.most_kmers + self.grown.size

    @property
    def is_text(self) -> bool:
        """Whether the text of the index suits, and has all k-mers."""
        return self.index.suits and not self.grown.size

    @property
    def is_large(self) -> bool:
        """Whether there are too many k-mers for a tree of them, or for a copy."""
        return self.most_kmers > LARGE

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64[targets]: the bases of their records."""
        sums = np.bincount(self.index.owners, self.index.lengths, len(self.index.names))
        return sums.astype(np.int64)

    @classmethod
    def empty(cls, k: int, strands: Strands) -> Dictionary:
        """Create a dictionary without k-mers."""
        return cls.from_batches([], k, strands)

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        k: int,
        strands: Strands = "canonical",
        *,
        targets: str | os.PathLike[str] | None = None,
        target_by: Literal["record", "file"] = "record",
        as_stored: bool = False,
        on_notice: Callable[[str], None] | None = None,
        team: Team | None = None,
    ) -> Dictionary:
        """Take every window of every record of the files; raise StreamerError if there is none.

        A file may be an index: its k-mers and targets are taken. A folder stands for its sequence
        files and indexes, a pattern for the files that it matches. targets: a table with the
        columns source, target and perhaps group. A source is the name of a record, or a file; all
        sources of a target are one. target_by: what is a target if the table does not name it.
        as_stored: take the k-mers as they stand in the records, with strands ``forward``, whatever
        ``strands`` is. on_notice: called with one line about records that hold no k-mer and can
        never match, files of folders that are not read, and names that reports cannot tell apart.
        team: the threads that read files. UsageError without files, and for unknown strands.

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
        names = reference_files([os.fspath(path) for path in several], on_notice)
        if not names:
            raise UsageError("a dictionary needs files")
        table, by_file = _named_by(targets, target_by)
        known_as: Strands = "forward" if as_stored else strands
        index = _indexed(names, k, strands, known_as, team, table, by_file=by_file)
        grown = [Index.open(path).grown for path in names if is_index(path)]
        kmerless = index.kmerless()
        if kmerless and len(names) == 1:
            # not by the source of an index
            kmerless = {names[0]: "; ".join(kmerless.values())}
        some = index.windows or any(codes.size for codes in grown)
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
            return self
        index = replace(self.index, strands=strands, made=None, known=None)
        return Dictionary(index).with_grown(self.grown)

    def without_targets(self, strands: Strands) -> Dictionary:
        """The same without targets."""
        known = self.known_as(strands)
        return Dictionary(known.index, known.grown, targets=TargetSets.empty())

    def with_grown(self, codes: NDArray[np.uint64], *, either: bool = False) -> Dictionary:
        """Add learned k-mers, in any order, without a target.

        either: not those whose reverse complements are known, even with strands ``forward``.
        """
        if not codes.size:
            return self
        threads = usable_cores()
        if self.strands != "forward":
            codes = _canonical(codes, self.k)
        new = self.lacking(sort_unique(codes, self.k, threads))
        if either and new.size:
            turned = with_reverse_complements(new, self.k)[new.size :]
            new = new[np.isin(turned, self.lacking(sort_unique(turned, self.k, threads)))]
        grown = merged(self.grown, new, threads)
        return Dictionary(self.index, grown, strands=self.strands, targets=self._targets)

    def lacking(self, codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Those of ascending codes that are no k-mers of this dictionary."""
        return lacking(self.grown, self.index.lacking(codes), usable_cores())

    def save(self, path: str, strands: Strands, further: NDArray[np.uint64] = NO_CODES) -> None:
        """Write an index of the records, with the k-mers that are in none, and ``further`` ones.

        strands: those of the file; further: of its form. OSError if it cannot be written.
        """
        index = self.index
        if index.strands != strands:
            index = replace(index, strands=strands, made=None, known=None)
        grown = sort_unique(np.concatenate((self.grown, further)), self.k, usable_cores())
        replace(index, grown=grown, made=index.text, known=index.shares).save(path)

    def by_group(self) -> Dictionary:
        """Return the same k-mers with groups as targets; StreamerError if there are none."""
        if not self.index.groups:
            raise StreamerError(
                "no target has a group: name groups in the third column of --targets TSV"
            )
        return Dictionary(self.index.by_group(), self.grown)


def _named_by(
    targets: str | os.PathLike[str] | None, target_by: str
) -> tuple[TargetTable | None, bool]:
    """The table of targets, and whether a file is one if the table does not name it."""
    check_choice("target_by", target_by, ("record", "file"))
    if targets is None:
        return None, target_by == "file"
    from streamer.dictionary.target_table import read_targets

    return read_targets(os.fspath(targets)), target_by == "file"


def _indexed(
    paths: Sequence[str],
    k: int,
    strands: Strands,
    known_as: Strands,
    team: Team | None,
    table: TargetTable | None,
    *,
    by_file: bool,
) -> Index:
    """The index of files, of which some may be indexes."""
    for path in filter(is_index, paths):
        index = Index.open(path)
        # for a distance, k-mers are taken as they stand in the records; grown ones have only a form
        fixed = strands == known_as or index.grown.size
        if index.k != k or (fixed and index.strands != strands):
            raise saved_otherwise(path, index.k, index.strands, k, strands)
        if len(paths) == 1 and strands == known_as:
            index = replace(index, grown=NO_CODES)
            return index.named(path, table, by_file=by_file) if table or by_file else index
    return Index.from_files(
        paths, k, known_as, table=table, by_file=by_file, team=team, checksums=False
    )


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


def target_names(
    paths: Sequence[str], k: int, targets: str | None = None, target_by: str = "record"
) -> dict[str, bool]:
    """Return the names of the targets of files, in order, and which hold a k-mer."""
    paths = reference_files(paths)
    table, by_file = _named_by(targets, target_by)
    if len(paths) == 1 and is_index(paths[0]):
        index = Index.open(paths[0])
        if table or by_file:
            index = index.named(paths[0], table, by_file=by_file)
        windows = index.shares.kmers
    else:
        index = Index.from_files(paths, k, "forward", table=table, by_file=by_file, checksums=False)
        windows = np.bincount(index.owners, index.reference.windows(k), minlength=len(index.names))
    names: dict[str, bool] = {}
    for name, holds in zip(index.names, windows > 0, strict=True):
        names[name] = names.get(name, False) or bool(holds)
    return names


def _canonical(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    return np.minimum(codes, with_reverse_complements(codes, k)[codes.size :])
