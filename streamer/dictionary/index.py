"""An index: the text of records, the places of its minimizers, and the targets of its k-mers.

It is what a fixed dictionary is made of, in memory or mapped from a file (``trie.index``). Beside
the text and the places it has

    record_names, target_names     uint8: UTF-8, a line feed after each
    starts        int64: the place where each record begins
    owners        int32: the target of each record
    repeats       uint32[3, n] and int8[n]: the windows whose k-mer occurs earlier in the text
    shared        uint32[3, n]: the first windows [begin, end) of k-mers that several targets have,
                  and their set
    set_starts    int64[sets + 1] and
    set_members   int32: the sets of targets, as in ``TargetSets``, first each that has k-mers
    kmers         int64: the distinct k-mers of each target
    groups        uint8: the name of the group of each target, if there are groups
    grown         uint64: further k-mers, ascending codes that are in no record, if there are any
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets, bounds_of, first_names
from streamer.errors import DataError, SnapshotTooLargeError, StreamerError
from streamer.protocol.schema import SHOWN_TARGETS
from streamer.sequences.files import read_pieces
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.source import STDIN, shown_name
from trie.ascending import lacking
from trie.codes import check_k
from trie.cpu.jit import njit
from trie.cpu.team import Team, results_of
from trie.cpu.threads import usable_cores
from trie.index import index_file
from trie.index.kmer_index import ALWAYS_BITSET_K, KmerIndex
from trie.index.mers import suits
from trie.index.places import LEAST_PLACES, TooManyPlacesError
from trie.index.reference_text import (
    ROWS_NEAR,
    SLACK,
    ReferenceText,
    TextBuilder,
    TooLongError,
    block_words,
    first_rows,
    gap_codes,
    records_at,
)
from trie.index.text_index import TextIndex, has_filter, index_shape
from trie.strands import Strands
from trie.trees.shards import sort_unique
from trie.windows import NO_SET, window_codes

if TYPE_CHECKING:
    from streamer.dictionary.target_table import TargetTable

NO_CODES = np.zeros(0, dtype=np.uint64)
_NO_ROWS = np.zeros(0, dtype=np.uint32)
_PIECE = 1 << 22  # symbols read at once
_CODES = 1 << 18  # codes looked up at once
_HASHED = 1 << 23  # bytes of a file: each time, this thread waits for the GIL
_ARRAYS: Final = ("packed", "blocks", "gaps", "filter", "offsets", "places", "prints", "full")


@dataclass(frozen=True)
class Source:
    """A file that an index was made of; sha256: empty if unknown. records: how many it has."""

    path: str
    size: int
    sha256: str
    records: int

    @classmethod
    def of(cls, path: str, *, checksum: bool) -> Source:
        """Describe a file, whose records are unknown; it is read for its checksum."""
        if path == STDIN or not os.path.isfile(path):
            return cls(path, 0, "", 0)
        if not checksum:
            return cls(path, os.path.getsize(path), "", 0)
        checked, room = hashlib.sha256(), bytearray(_HASHED)
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(room):
                checked.update(memoryview(room)[:count])
        return cls(path, os.path.getsize(path), checked.hexdigest(), 0)


class Shares(NamedTuple):
    """Which k-mers of a text are equal.

    repeats: uint32[3, n] and steps: int8[n], as in ``trie.index.repeats``. shared: uint32[3, n],
    first windows [begin, end) of k-mers that several targets have, and their set. near_repeats,
    near_shared: ``first_rows`` of both, empty with one target. sets: of targets. kmers: int64, the
    distinct k-mers of each target. distinct: those of all targets.
    """

    repeats: NDArray[np.uint32]
    steps: NDArray[np.int8]
    shared: NDArray[np.uint32]
    near_repeats: NDArray[np.uint32]
    near_shared: NDArray[np.uint32]
    sets: TargetSets
    kmers: NDArray[np.int64]
    distinct: int


@dataclass(frozen=True)
class Index:
    """An index with its targets.

    records: names. owners: int32, the target of each. names: of the targets. bases: those of all
    records, ambiguity codes included. groups: the group of each target, if there are any. grown:
    uint64, further k-mers, in no record. made, known: the places, and what is known about equal
    k-mers, if not to be computed when first needed.
    """

    k: int
    strands: Strands
    reference: ReferenceText
    records: Sequence[str]
    owners: NDArray[np.int32]
    names: Sequence[str]
    bases: int
    sources: Sequence[Source] = ()
    groups: Sequence[str] = ()
    grown: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)
    made: TextIndex | None = None
    known: Shares | None = None

    @property
    def size(self) -> int:
        """The places of the text."""
        return self.reference.size

    @property
    def starts(self) -> NDArray[np.int64]:
        """The place where each record begins."""
        return self.reference.starts

    @cached_property
    def text(self) -> TextIndex:
        """The places of the minimizers; StreamerError if there are too many."""
        text = self.made or self._placed(lambda done: None)
        if len(self.names) == 1:
            text.repeats = None  # those of one target are seldom asked for, and then listed again
        return text

    def _placed(self, on_work: Callable[[float], None]) -> TextIndex:
        try:
            return TextIndex.of(
                self.reference, self.k, canonical=self.strands != "forward",
                threads=usable_cores(), on_work=on_work,
            )  # fmt: skip
        except TooManyPlacesError as error:
            raise StreamerError(str(error)) from error

    @cached_property
    def shares(self) -> Shares:
        """Which k-mers are equal."""
        if self.known is not None:
            return self.known
        return self._shares_of(*self._repeats(self.text))

    def _repeats(
        self, text: TextIndex, on_work: Callable[[float], None] = lambda done: None
    ) -> tuple[NDArray[np.uint32], NDArray[np.int8]]:
        if not self.records:
            return np.zeros((3, 0), np.uint32), np.zeros(0, np.int8)
        from trie.index.repeats import find_repeats  # only reports of targets ask for it

        return find_repeats(text, self.reference, usable_cores(), on_work)

    def _shares_of(self, repeats: NDArray[np.uint32], steps: NDArray[np.int8]) -> Shares:
        if not self.records:
            nothing = TargetSets.empty(), np.zeros(0, np.int64), 0
            return Shares(repeats, steps, repeats, _NO_ROWS, _NO_ROWS, *nothing)
        windows = self.of_records
        repeated = int(repeats[1].sum(dtype=np.int64) - repeats[0].sum(dtype=np.int64))
        distinct = int(windows.sum()) - repeated
        if len(self.names) == 1:
            kmers = np.array([distinct])
            sets = _single_sets(self.names, kmers)
            shared = np.zeros((3, 0), np.uint32)
            return Shares(repeats, steps, shared, _NO_ROWS, _NO_ROWS, sets, kmers, distinct)
        from streamer.dictionary.shared_windows import find_shared

        targets = len(self.names)
        kmers = np.bincount(self.owners, windows, minlength=targets).astype(np.int64)
        of_records = np.append(0, repeats[1].astype(np.int64) - repeats[0]).cumsum()
        bounds = np.searchsorted(repeats[0], np.append(self.starts, self.size))
        own = np.diff(of_records[bounds])
        kmers -= np.bincount(self.owners, own, minlength=targets).astype(np.int64)
        common = find_shared(repeats, steps, self.starts, self.owners, targets, self.size)
        kmers += common.kmers
        single = _single_sets(self.names, kmers)
        sets = TargetSets(
            self.names,
            np.append(single.starts, single.starts[-1] + common.starts[1:]),
            np.append(single.members, common.members),
        )
        common.windows[2] += np.uint32(len(single))
        rows, near = common.windows, first_rows(repeats[1], self.size)
        near_shared = first_rows(rows[1], self.size)
        return Shares(repeats, steps, rows, near, near_shared, sets, kmers, distinct)

    @cached_property
    def targets(self) -> TargetSets:
        """The sets of targets: first each target, then those that share k-mers."""
        if len(self.names) == 1:
            return TargetSets(self.names, np.arange(2), np.zeros(1, np.int32))
        return self.shares.sets

    def by_group(self) -> Index:
        """The index with groups as its targets, each with the k-mers of all of its targets."""
        numbers: dict[str, int] = {}
        of_target = [numbers.setdefault(group, len(numbers)) for group in self.groups]
        owners = np.array(of_target, np.int32)[self.owners]
        return self._owned(owners, [*numbers], ())

    def named(self, path: str, table: TargetTable | None, *, by_file: bool) -> Index:
        """The same index, that of the file ``path``, with targets as in ``from_files``."""
        owners, names = _owners(
            self.records, [path] * len(self.records), self.own_targets(0), table, by_file=by_file
        )
        groups = dict(zip(self.names, self.groups, strict=False))
        groups |= table.groups if table else {}
        return self._owned(owners, names, [groups.get(n) or n for n in names] if groups else ())

    def own_targets(self, first: int) -> Sequence[str | int]:
        """The name of the target of each record; its number from ``first`` on if it is its own."""
        if [*self.names] == [*self.records]:
            return range(first, first + len(self.records))
        return [self.names[owner] for owner in self.owners]

    def _owned(
        self, owners: NDArray[np.int32], names: Sequence[str], groups: Sequence[str]
    ) -> Index:
        shares = self.shares
        owned = replace(self, owners=owners, names=names, groups=groups, known=None)
        return replace(owned, known=owned._shares_of(shares.repeats, shares.steps))

    @cached_property
    def record_sets(self) -> NDArray[np.uint32]:
        """uint32[records]: the set of the target of each."""
        if len(self.names) == 1:
            return np.zeros(self.starts.size, np.uint32)
        numbers = np.cumsum(self.shares.kmers > 0) - 1
        return np.clip(numbers, 0, len(self.targets) - 1).astype(np.uint32)[self.owners]

    @property
    def fingerprint(self) -> int:
        """A checksum of the records and their targets; it is never 0."""
        checksum = zlib.crc32(f"{self.k} {self.strands}".encode())
        text = self.reference
        for array in (text.packed, text.gaps, self.owners, _joined_names(self.names)):
            checksum = zlib.crc32(array.view(np.uint8).data, checksum)
        return checksum or 1

    @classmethod
    def from_files(
        cls,
        paths: Sequence[str],
        k: int,
        strands: Strands,
        *,
        table: TargetTable | None = None,
        by_file: bool = False,
        team: Team | None = None,
        on_bytes: Callable[[int], None] = lambda done: None,
        checksums: bool = True,
    ) -> Index:
        """Index the records of sequence files and of other indexes, without what grew there.

        table: the target of each source; other records are targets of their own, or with
        ``by_file`` their files are. A target without a group is one of its own. checksums: of the
        files, too.
        """
        check_k(k)
        builder, names, files, own = TextBuilder(), list[str](), list[str](), list[str | int]()
        groups = dict[str, str]()
        read = bases = 0

        def on_read(done: int) -> None:
            on_bytes(read + done)

        def parts() -> Iterator[Callable[[], tuple[int, NDArray[np.uint8], NDArray[np.int64]]]]:
            nonlocal own, read, bases
            for path in paths:
                before = len(names)
                if index_file.is_old_dictionary(path):
                    raise StreamerError(
                        f"{path}: a dictionary of an earlier version: make it anew with "
                        f"streamer index FASTX -k {k} -o FILE or, if it grew, with "
                        f"streamer match READS -k {k} --seed 0 --save FILE"
                    )
                try:
                    if index_file.is_index(path):
                        other = cls.open(path)
                        own += other.own_targets(len(own))
                        names.extend(other.records)
                        groups.update(zip(other.names, other.groups, strict=False))
                        bases += other.bases
                        for first, codes, offsets in records_of(other):
                            yield builder.part(codes, offsets, continues=not first)
                    else:
                        for piece in read_pieces(path, 0, size=_PIECE, on_bytes=on_read, team=team):
                            continues, reads = before + piece.first < len(names), piece.reads
                            names[before + piece.first :] = reads.names
                            bases += reads.bases.size
                            yield builder.part(reads.bases, reads.offsets, continues=continues)
                        own += range(before, len(names))
                except TooLongError as error:
                    raise DataError(str(error), file=shown_name(path)) from error
                files.extend([path] * (len(names) - before))
                read += os.path.getsize(path) if os.path.isfile(path) else 0

        work = partial(Source.of, checksum=checksums)
        # the first line of a team comes first: checksums are computed while others read
        checked = team.line(paths, work, len(paths)) if team else map(work, paths)
        for part in (team.results if team else results_of)(parts()):
            builder.put(*part)
        text = builder.finish()
        owners, target_names = _owners(names, files, own, table, by_file=by_file)
        groups |= table.groups if table else {}
        of_targets = [groups.get(name) or name for name in target_names] if groups else ()
        counts = Counter(files)
        known = {source.path: source for source in checked}
        sources = [replace(known[path], records=count) for path, count in counts.items()]
        return cls(k, strands, text, names, owners, target_names, bases, sources, of_targets)

    @classmethod
    def from_batches(cls, batches: Iterable[ReadBatch], k: int, strands: Strands) -> Index:
        """Index the records of batches, each a target."""
        check_k(k)
        builder, names, bases = TextBuilder(), list[str](), 0
        for batch in batches:
            builder.add(batch.bases, batch.offsets)
            names += batch.names
            bases += batch.bases.size
        owners = np.arange(len(names), dtype=np.int32)
        return cls(k, strands, builder.finish(), names, owners, names, bases)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """int64[records]: their bases."""
        lengths = np.diff(self.starts, append=0) - 1
        lengths[-1:] = self.bases - lengths[:-1].sum()
        return lengths

    @cached_property
    def of_records(self) -> NDArray[np.int64]:
        """int64[records]: their windows without a gap code."""
        return self.reference.windows(self.k)

    @cached_property
    def windows(self) -> int:
        """The windows of all records, at least as many as distinct k-mers."""
        return int(self.of_records.sum())

    @property
    def suits(self) -> bool:
        """Whether windows are looked up in the text, not in a table of its k-mers."""
        made = self.made is not None or suits(self.k, self.size)
        return made and self.k > ALWAYS_BITSET_K and self.windows > 0

    def codes(self) -> NDArray[np.uint64]:
        """The distinct k-mers, ascending; StreamerError if there may be more than MOST_LISTED."""
        if self.k <= ALWAYS_BITSET_K:
            kmers = KmerIndex(self.k)
            for listed, _ in _windows(self):
                kmers.add(listed, threads=usable_cores())
            return kmers.codes()
        check_listed(self.most_kmers)
        # gaps of a damaged file may hold another number of windows
        codes, filled = np.empty(min(self.windows, self.size), np.uint64), 0
        for listed, _ in _windows(self):
            stop = min(filled + listed.size, codes.size)
            codes[filled:stop] = listed[: stop - filled]
            filled = stop
        return sort_unique(codes[:filled], self.k, usable_cores())

    @property
    def most_kmers(self) -> int:
        """The number of distinct k-mers, if it is known, or one that is not less."""
        return min(self.windows, 4**self.k) if self.known is None else self.known.distinct

    def lacking(self, codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Those of ascending codes that no record has."""
        if not (codes.size and self.windows):
            return codes
        if not self.suits:
            return lacking(self.codes(), codes, usable_cores())
        return np.concatenate(
            [self._lacking(codes[at : at + _CODES]) for at in range(0, codes.size, _CODES)]
        )

    def _lacking(self, codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The same, each code as a read."""
        shifts = np.arange(2 * (self.k - 1), -1, -2, dtype=np.uint64)
        bases = (codes[:, None] >> shifts & np.uint64(3)).astype(np.uint8).ravel()
        offsets = np.arange(codes.size + 1) * self.k
        _, matches = self.text.match(bases, offsets, threads=usable_cores())
        there = np.unpackbits(matches.view(np.uint8), bitorder="little")[offsets[:-1]]
        return codes[there == 0]

    def beside(self, other: Index) -> NDArray[np.uint64]:
        """The k-mers that another index lacks; StreamerError if they are more than MOST_LISTED."""
        missing = NO_CODES
        for codes, _ in _windows(self):
            new = other.lacking(sort_unique(codes, self.k, usable_cores()))
            missing = sort_unique(np.concatenate((missing, new)), self.k, usable_cores())
            check_listed(missing.size)
        return missing

    def kmerless(self) -> dict[str, str]:
        """Name, by source, the records that hold no k-mer, with the reason."""
        states = (self.lengths >= self.k).astype(np.uint8)
        states[self.of_records > 0] = 2
        names, first = {}, 0
        for source in self.sources:
            part = slice(first, first + source.records)
            if states[part].min(initial=2) < 2:
                names[source.path] = kmerless(self.records[part], states[part], self.k)
            first += source.records
        return names

    def _in_turn(
        self, facts: dict[str, Any], on_work: Callable[[float], None]
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the arrays of a file, and add to its facts what is then known.

        What this index has not made yet is kept no longer than needed.
        """
        text = self.made or self.__dict__.get("text")
        text = text or self._placed(lambda done: on_work(0.4 * done))
        yield from zip(_ARRAYS, text.arrays, strict=True)
        shares = self.known or self.__dict__.get("shares")
        repeats = shares or self._repeats(text, lambda done: on_work(0.4 + 0.6 * done))
        del text
        yield "record_names", _joined_names(self.records)
        yield "target_names", _joined_names(self.names)
        yield "starts", self.starts
        yield "owners", self.owners
        yield "repeats", repeats[0].ravel()
        yield "repeat_steps", repeats[1]
        shares = shares or self._shares_of(*repeats[:2])
        on_work(1.0)
        facts["kmers"] = shares.distinct
        yield "shared", shares.shared.ravel()
        yield "near_repeats", shares.near_repeats
        yield "near_shared", shares.near_shared
        yield "set_starts", shares.sets.starts
        yield "set_members", shares.sets.members
        yield "kmers", shares.kmers
        if self.groups:
            yield "groups", _joined_names(self.groups)
        if self.grown.size:
            yield "grown", self.grown

    def save(self, path: str, on_work: Callable[[float], None] = lambda done: None) -> None:
        """Write the index to a file; OSError if that fails, and nothing is left of it.

        on_work: gets the share of the work that is done, if this has to make places and repeats.
        """
        facts = {
            "k": self.k,
            "strands": self.strands,
            "size": self.size,
            "bases": self.bases,
            "kmers": 1 << 62,  # not known yet
            "sources": [list(vars(source).values()) for source in self.sources],
        }
        ended = False

        def on_turn(done: float) -> None:
            if ended:  # in vain: the thread that makes arrays would go on to the last one
                raise RuntimeError("nobody waits for this")
            on_work(done)

        try:
            index_file.write_index(path, facts, self._in_turn(facts, on_turn))
        finally:
            ended = True

    @classmethod
    def open(cls, path: str) -> Index:
        """Map an index file; StreamerError if it is none, or damaged. Nothing else is read."""
        try:
            facts, arrays = index_file.open_index(path)
            return cls._checked(path, facts, arrays)
        except OSError as error:
            raise StreamerError(f"{path}: {error.strerror or error}") from error
        except index_file.IndexFileError as error:
            raise StreamerError(str(error)) from error
        except (KeyError, TypeError) as error:
            raise StreamerError(f"{path}: is damaged: its description lacks {error}") from error

    @classmethod
    def _checked(cls, path: str, facts: Mapping[str, Any], arrays: dict[str, Any]) -> Self:
        k, size = int(facts["k"]), int(facts["size"])
        shape = index_shape(size, k, canonical=facts["strands"] != "forward")
        records, targets = arrays["starts"].size, arrays["kmers"].size
        sizes = {
            "packed": size // 4 + SLACK, "blocks": block_words(size), "owners": records,
            "prints": arrays["places"].size, "full": arrays["offsets"].size // 32 + 1,
            "filter": arrays["filter"].size if has_filter(shape) else 0,
            "repeats": 3 * arrays["repeat_steps"].size,
        }  # fmt: skip
        near = -(-size // ROWS_NEAR) + 1 if targets > 1 else 0
        sizes |= {"near_repeats": near, "near_shared": near}
        sound = all(arrays[name].size == count for name, count in sizes.items())
        sound &= arrays["gaps"].size % 2 == 0 and arrays["shared"].size % 3 == 0
        sound &= "grown" in arrays or (arrays["set_starts"].size > 1 and targets > 0)
        sound &= arrays["set_starts"].size > 0 and arrays["offsets"].size > 1
        sound &= arrays["prints"].size >= LEAST_PLACES
        sound &= not has_filter(shape) or arrays["filter"].size > 0
        if sound:
            bounds, starts = arrays["set_starts"], arrays["starts"]
            sound &= bounds[0] == 0 and bounds[-1] == arrays["set_members"].size
            # differences may overflow
            sound &= bool((bounds[1:] >= bounds[:-1]).all() and (starts[1:] > starts[:-1]).all())
            for name in ("owners", "set_members"):
                least, most = arrays[name].min(initial=0), arrays[name].max(initial=0)
                sound &= bool(least >= 0) and bool(most < max(targets, 1))
            if records:
                first, last = int(starts[0]), int(starts[-1])
                bases = int(facts["bases"]) - (last - first - records + 1)  # of the last record
                sound &= first >= 0 and 0 <= bases <= size - last
        if not sound:
            raise index_file.IndexFileError(path, "is damaged: its arrays do not fit each other")
        names = Names(arrays["target_names"], targets)
        sets = TargetSets(names, arrays["set_starts"], arrays["set_members"])
        shares = Shares(
            arrays["repeats"].reshape(3, -1), arrays["repeat_steps"],
            arrays["shared"].reshape(3, -1), arrays["near_repeats"], arrays["near_shared"], sets,
            arrays["kmers"], int(facts["kmers"]),
        )  # fmt: skip
        text = ReferenceText(
            arrays["packed"], arrays["gaps"], arrays["blocks"], arrays["starts"], size
        )
        return cls(
            k, facts["strands"], text, Names(arrays["record_names"], records), arrays["owners"],
            names, int(facts["bases"]), [Source(*source) for source in facts["sources"]],
            Names(arrays["groups"], targets) if "groups" in arrays else (),
            arrays.get("grown", NO_CODES),
            TextIndex(shape, *(arrays[name] for name in _ARRAYS)), shares,
        )  # fmt: skip


def records_of(index: Index) -> Iterator[tuple[bool, NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield the base codes and offsets of records in parts, and whether a record begins there."""
    for start, length in zip(index.starts.tolist(), index.lengths.tolist(), strict=True):
        for begin in range(0, max(length, 1), _PIECE):
            end = min(begin + _PIECE, length)
            codes = gap_codes(index.reference, start + begin, start + end)
            yield begin == 0, codes, np.array([0, codes.size])


MOST_LISTED: Final = 1 << 28
"""The most k-mers that are listed from an index."""


def listed(index: Index) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """The distinct k-mers of an index, ascending codes, and the first place of each.

    Raises StreamerError if there are more than MOST_LISTED.
    """
    check_listed(index.most_kmers)
    shares = index.shares
    codes = np.empty(shares.distinct, np.uint64)
    firsts = np.empty(shares.distinct, np.uint32)
    begins, ends = shares.repeats[0], shares.repeats[1]
    filled = stop = 0
    for listed_codes, places in _windows(index):
        at = np.searchsorted(ends, places, side="right")
        first = at == ends.size
        first[~first] = begins[at[~first]] > places[~first]
        stop = filled + int(first.sum())
        if stop > codes.size:
            break
        codes[filled:stop] = listed_codes[first]
        firsts[filled:stop] = places[first]
        filled = stop
    if stop != codes.size:
        raise StreamerError("the index is damaged: its repeated windows are not those of its text")
    order = np.argsort(codes)
    return codes[order], firsts[order]


def check_listed(kmers: int) -> None:
    """Raise StreamerError if there are too many k-mers to be listed."""
    if kmers > MOST_LISTED:
        raise SnapshotTooLargeError(
            f"{kmers:,} k-mers in an index: at most {MOST_LISTED:,} are listed, as a distance, the "
            "kernel walk and the Levenshtein Tree Bitmap need: match exactly, or give less"
        )


def _windows(index: Index) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Yield the codes and places of all windows in parts."""
    for begin in range(0, index.size, _PIECE):
        bases = gap_codes(index.reference, begin, min(begin + _PIECE + index.k - 1, index.size))
        whole = np.array([0, bases.size])
        codes, starts = window_codes(bases, whole, index.k, canonical=index.strands != "forward")
        yield codes, starts + begin


def sets_at(index: Index, places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The target set of the k-mer whose first window is at each place."""
    record = records_at(index.starts, places)
    sets = index.record_sets[record]
    begins, ends, numbers = index.shares.shared
    at = np.searchsorted(ends, places, side="right")
    inside = at < ends.size
    inside[inside] = begins[at[inside]] <= places[inside]
    sets[inside] = np.minimum(numbers[at[inside]], max(len(index.targets) - 1, 0))
    return sets


class Names(Sequence[str]):
    """Names joined by line feeds, taken apart when the first one is asked for."""

    def __init__(self, raw: NDArray[np.uint8], count: int) -> None:
        self._raw, self._count = raw, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return self._decoded[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    @cached_property
    def _decoded(self) -> list[str]:
        names = self._raw.tobytes().decode("utf-8", "replace").split("\n")[:-1]
        return (names + [""] * self._count)[: self._count]


def numbers_of_targets(
    index: Index, first: int, stop: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The first windows with the k-mers of targets, by symbol of their records, or NO_SET.

    Also int64[targets + 1]: where the records of each begin.
    """
    order = np.argsort(index.owners, kind="stable")
    bounds = np.searchsorted(index.owners[order], np.arange(first, stop + 1))
    records = order[bounds[0] : bounds[-1]]
    ends = bounds_of(index.lengths[records])
    numbers = np.empty(ends[-1], np.uint32)
    shares = index.shares
    gaps = index.reference.gaps.reshape(-1, 2)
    _put_firsts(
        gaps, shares.repeats, shares.steps, index.starts, records, ends, index.k, index.size,
        numbers,
    )  # fmt: skip
    return numbers, ends[bounds - bounds[0]]


@njit(cache=True, nogil=True)
def _put_firsts(gaps, repeats, steps, starts, records, ends, k, size, numbers):
    for i in range(records.size):
        start = starts[records[i]]
        to = ends[i] - start
        stop = start + ends[i + 1] - ends[i]
        for place in range(start, stop):
            numbers[to + place] = place
        at = np.searchsorted(gaps[:, 1], start, side="right")
        while at < len(gaps) and np.int64(gaps[at, 0]) - k + 1 < stop:
            low = max(np.int64(gaps[at, 0]) - k + 1, start)
            for place in range(low, min(np.int64(gaps[at, 1]), stop)):
                numbers[to + place] = NO_SET
            at += 1
        at = np.searchsorted(repeats[0], start)
        while at < steps.size and np.int64(repeats[0, at]) < stop:
            first = np.int64(repeats[2, at])
            # a damaged file may have other windows and numbers
            for place in range(
                max(np.int64(repeats[0, at]), start), min(np.int64(repeats[1, at]), stop)
            ):
                numbers[to + place] = first if 0 <= first < size else NO_SET
                first += steps[at]
            at += 1


def kmerless(names: Sequence[str], states: NDArray[np.uint8], k: int) -> str:
    """Name the records that hold no k-mer, with the reason; empty if all hold one.

    states: by record, 0 shorter than k, 1 no window without a gap code, 2 some.
    """
    reasons = (
        (1, "ambiguity codes in every window (write out their variants, or use asm --iupac)"),
        (0, f"fewer than {k} bases (give longer records or a smaller k)"),
    )
    parts = []
    for state, why in reasons:
        where = np.flatnonzero(states == state).tolist()
        if where:
            shown = first_names([names[at] for at in where[: SHOWN_TARGETS + 1]])
            parts.append(f"{len(where):,} of {states.size:,} records have {why}: {shown}")
    return "; ".join(parts)


def selected(
    index: Index, subtracted: Sequence[str], intersected: Sequence[str], team: Team | None = None
) -> Index:
    """The k-mers of an index without those of some files, and only those of other files.

    Each file is an index, or has sequences. Records are cut to what is left of them. StreamerError
    if nothing is, and for an index of another k or other strands.
    """
    builder, numbers = TextBuilder(), list[NDArray[np.int64]]()
    others = [
        (_opened(path, index, team), shared)
        for paths, shared in ((subtracted, False), (intersected, True))
        for path in paths
    ]
    threads = usable_cores()
    for record, (start, length) in enumerate(
        zip(index.starts.tolist(), index.lengths.tolist(), strict=True)
    ):
        for begin in range(0, max(length, 1), _PIECE):
            end = min(begin + _PIECE + index.k - 1, length)
            bases = gap_codes(index.reference, start + begin, start + end)
            offsets = np.array([0, bases.size])
            kept = None
            for other, shared in others:
                starts, matches = other.text.match(bases, offsets, threads=threads)
                chosen = matches if shared else starts & ~matches
                kept = chosen if kept is None else kept & chosen
            assert kept is not None
            bits = np.unpackbits(kept.view(np.uint8), bitorder="little", count=bases.size)
            edges = np.flatnonzero(np.diff(bits, prepend=0, append=0).astype(np.int8))
            firsts, sizes = edges[::2], edges[1::2] - edges[::2] + index.k - 1
            if begin == 0 and not firsts.size:
                firsts, sizes = np.zeros(1, np.int64), np.zeros(1, np.int64)
            bounds = bounds_of(sizes)
            inner = np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes)
            builder.add(bases[np.repeat(firsts, sizes) + inner], bounds)
            numbers.append(np.full(sizes.size, record))
    records = np.concatenate(numbers)
    text = builder.finish()
    if not text.windows(index.k).any():
        raise StreamerError("no k-mer is left to index")
    bounds = np.cumsum([0, *(source.records for source in index.sources)])
    counts = np.diff(np.searchsorted(records, bounds)).tolist()
    sources = [
        replace(source, records=count) for source, count in zip(index.sources, counts, strict=True)
    ]
    further = [Source.of(path, checksum=True) for path in (*subtracted, *intersected)]
    lengths = np.diff(text.starts) - 1
    last = int(text.gaps[-2]) - int(text.starts[-1])
    return replace(
        index,
        reference=text,
        records=[index.records[record] for record in records.tolist()],
        owners=index.owners[records],
        bases=int(lengths.sum()) + max(last, 0),
        sources=[*sources, *further],
        made=None,
        known=None,
    )


def _opened(path: str, like: Index, team: Team | None) -> Index:
    """The index of a file's k-mers that may be compared with those of another index."""
    if not index_file.is_index(path):
        return Index.from_files([path], like.k, like.strands, team=team, checksums=False)
    index = Index.open(path)
    if (index.k, index.strands) != (like.k, like.strands):
        raise saved_otherwise(path, index.k, index.strands, like.k, like.strands)
    check_records_only(path, index)
    return index


def check_records_only(path: str, index: Index) -> None:
    """Raise StreamerError for a dictionary that has grown."""
    if index.grown.size:
        raise StreamerError(
            f"{path}: {index.grown.size:,} of its k-mers grew and are in no record: "
            "they can be matched, but not indexed"
        )


def saved_otherwise(
    path: str, k: int, strands: str, asked: int, asked_strands: str
) -> StreamerError:
    """The error for a saved dictionary whose k or strands are not those that are asked for."""
    return StreamerError(
        f"{path}: was saved with -k {k} --strands {strands}, "
        f"not with -k {asked} --strands {asked_strands}"
    )


def _joined_names(names: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer("".join(f"{name}\n" for name in names).encode(), np.uint8)


def _owners(
    names: Sequence[str],
    files: Sequence[str],
    own: Sequence[str | int],
    table: TargetTable | None,
    *,
    by_file: bool,
) -> tuple[NDArray[np.int32], list[str]]:
    """The target of each record, and the names of the targets, in the order of their records.

    own: the target of a record that neither ``table`` nor its file names; a number stands for the
    record, so that records of one name are targets of their own unless that is asked for.
    """
    if table is None and not by_file and not any(isinstance(owner, str) for owner in own):
        return np.arange(len(names), dtype=np.int32), [*names]
    targets = table.targets if table else {}
    of_files = table.of_files(names, files) if table else {}
    numbers: dict[str | int, int] = {}
    listed: list[str] = []
    owners = []
    for name, file, mine in zip(names, files, own, strict=True):
        target = targets.get(name) or of_files.get(file) or (file if by_file else mine)
        number = numbers.setdefault(target, len(listed))
        if number == len(listed):
            listed.append(target if isinstance(target, str) else name)
        owners.append(number)
    return np.array(owners, dtype=np.int32), listed


def _single_sets(names: Sequence[str], kmers: NDArray[np.int64]) -> TargetSets:
    """A set for each target that holds a k-mer."""
    members = np.flatnonzero(kmers).astype(np.int32)
    return TargetSets(names, np.arange(members.size + 1), members)
