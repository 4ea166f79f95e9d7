"""The dictionary that users name: the k-mers of FASTX records, and which records hold each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.collecting import KmerCollector
from streamer.errors import StreamerError
from streamer.reads import ReadBatch
from streamer.sequence_files import read_pieces, shown_name
from streamer.target_sets import NO_SET, SHOWN_TARGETS, TargetSets
from trie.codes import check_k, with_reverse_complements
from trie.parallel import usable_cores
from trie.shards import sort_unique
from trie.snapshot_file import is_snapshot, load_with_strands

__all__ = ["NO_SET", "SHOWN_TARGETS", "Dictionary", "Strands", "TargetSets"]

Strands = Literal["forward", "canonical", "both"]

_PIECE = 1 << 21
"""Symbols that are read at once: their windows and the room to group them take 33 bytes each."""


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
        records = [path for path in paths if path not in saved]
        dictionary = cls._from_records(records, k, "forward" if as_stored else strands)
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

    @classmethod
    def _from_records(cls, paths: Sequence[str], k: int, strands: Strands) -> Dictionary:
        """Every window of every record of sequence files."""
        collector = KmerCollector(k, canonical=strands != "forward", threads=usable_cores())
        for path in paths:
            before = collector.records
            for piece in read_pieces(path, k - 1, size=_PIECE):
                collector.add(piece.reads, before + piece.first)
        return cls(k, strands, *collector.finish())

    @classmethod
    def from_batches(cls, batches: Iterable[ReadBatch], k: int, strands: Strands) -> Dictionary:
        """Every window of every record, with its target sets."""
        collector = KmerCollector(k, canonical=strands != "forward", threads=usable_cores())
        for batch in batches:
            collector.add(batch, collector.records)
        return cls(k, strands, *collector.finish())

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
            codes = sort_unique(_canonical(codes, self.k), self.k, usable_cores())
        sets = np.full(codes.size, NO_SET, dtype=np.uint32)
        return Dictionary(self.k, strands, codes, sets, TargetSets.empty())


def _canonical(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    return np.minimum(codes, with_reverse_complements(codes, k)[codes.size :])


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
