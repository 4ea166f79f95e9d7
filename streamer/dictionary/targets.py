"""Dictionaries as users name them: the k-mers of FASTX records, and which records hold each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.collecting import KmerCollector, holding
from streamer.dictionary.record_bases import RecordBases, RecordCollector, joined_records
from streamer.dictionary.target_sets import (
    SHOWN_TARGETS,
    TargetSets,
    confusing_names,
    first_names,
    side_by_side,
    united,
)
from streamer.errors import StreamerError, UsageError, check_choice
from streamer.sequences.files import read_pieces
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.source import shown_name
from trie.ascending import lacking, merged
from trie.codes import check_k, with_reverse_complements
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores
from trie.strands import STRANDS, Strands
from trie.trees.shards import sort_unique
from trie.windows import NO_SET, window_codes

__all__ = ["NO_SET", "SHOWN_TARGETS", "Dictionary", "TargetSets"]

_PIECE = 1 << 21
"""Symbols read at once; their windows and the memory to group them take 33 bytes each."""


@dataclass(frozen=True)
class Dictionary:
    """The k-mers that matching starts from.

    codes: uint64, ascending, each once; canonical codes unless strands is ``forward``. sets:
    uint32, the target set of each k-mer. records: the targets' bases, if they are kept. has_grown:
    some k-mers are in no record.
    """

    k: int
    strands: Strands
    codes: NDArray[np.uint64]
    sets: NDArray[np.uint32]
    targets: TargetSets
    records: RecordBases | None = None
    has_grown: bool = False

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
        # a circular import
        from streamer.dictionary.saved_dictionary import is_saved, load_dictionary

        check_k(k)
        check_choice("strands", strands, STRANDS)
        several = [paths] if isinstance(paths, str | os.PathLike) else paths
        names = [os.fspath(path) for path in several]
        if not names:
            problem = "a dictionary needs files"
            raise UsageError(problem)
        known_as = "forward" if as_stored else strands
        parts = []
        kmerless: dict[str, str] = {}
        for saved, group in groupby(names, is_saved):
            for path in group if saved else ():
                part = load_dictionary(path, k, strands, on_notice).known_as(known_as)
                if without := part.targets.without_kmers:
                    kmerless[path] = f"{len(without):,} targets: {first_names(without)}"
                parts.append(part)
            if not saved:
                paths_of_group = list(group)
                parts.append(
                    cls._from_records(paths_of_group, k, known_as, keep_records, team, kmerless)
                )
        dictionary = _merged(parts, both=strands == "both")
        # one line, however many files and records there are
        kmerless = dict(islice(kmerless.items(), SHOWN_TARGETS))
        if not dictionary.codes.size:
            why = "; ".join(kmerless.values()) or "no records"
            files = ", ".join(map(shown_name, kmerless or names))
            message = f"{files}: the dictionary holds no whole {k}-mer: {why}"
            raise StreamerError(message)
        if kmerless and on_notice is not None:
            never = "; ".join(f"{shown_name(path)}: {why}" for path, why in kmerless.items())
            on_notice(f"warning: without a whole {k}-mer nothing can match: {never}")
        if on_notice is not None:
            for line in confusing_names(dictionary.targets.names):
                on_notice(f"warning: {line}")
        return dictionary

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
            return replace(self, strands=strands)
        codes, sets, targets = united(_canonical(self.codes, self.k), self.sets, self.targets)
        return Dictionary(self.k, strands, codes, sets, targets, self.records)

    def with_grown(self, codes: NDArray[np.uint64]) -> Dictionary:
        """Add learned k-mers: in the dictionary's strands, in any order, without a target."""
        threads = usable_cores()
        new = lacking(self.codes, sort_unique(codes, self.k, threads), threads)
        if not new.size:
            return self
        all_codes = merged(self.codes, new, threads)
        sets = np.full(all_codes.size, NO_SET, dtype=np.uint32)
        sets[np.searchsorted(all_codes, self.codes)] = self.sets
        return replace(self, codes=all_codes, sets=sets, has_grown=True)

    def without_targets(self, strands: Strands) -> Dictionary:
        """Return the same k-mers without targets, as a dictionary with these strands."""
        codes = self.codes
        if strands != "forward":
            codes = sort_unique(_canonical(codes, self.k), self.k, usable_cores())
        sets = np.full(codes.size, NO_SET, dtype=np.uint32)
        return Dictionary(self.k, strands, codes, sets, TargetSets.empty())


def target_names(paths: Iterable[str], k: int) -> dict[str, bool] | None:
    """Return the record names of sequence files, in order, and which hold a k-mer.

    Returns None if any is a saved dictionary; DataError as in reading.
    """
    from streamer.dictionary.saved_dictionary import is_saved

    names: dict[str, bool] = {}
    for path in paths:
        if is_saved(path):
            return None
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
    return replace(part, codes=part.codes[keep], sets=part.sets[keep])
