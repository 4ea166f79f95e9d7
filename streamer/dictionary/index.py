"""An index: the text of records, the places of its minimizers, and the targets of its k-mers.

It is what a fixed dictionary is made of, in memory or mapped from a file (``trie.index``). Beside
the text and the places it has

    record_names, target_names     uint8: UTF-8, a line feed after each
    starts        int64: the place where each record begins
    owners        int32: the target of each record
    repeats       uint32[3, n] and int8[n]: the windows whose k-mer occurs earlier in the text
    shared        uint32[3, n]: the windows [begin, end) whose k-mer several targets have: the set
    set_starts    int64[sets + 1] and
    set_members   int32: the sets of targets, as in ``TargetSets``, single targets first
    kmers         int64: the distinct k-mers of each target
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.dictionary.target_sets import TargetSets, bounds_of, first_names, intern_runs
from streamer.errors import DataError, StreamerError
from streamer.sequences.files import read_pieces
from streamer.sequences.source import STDIN, shown_name
from trie.codes import check_k
from trie.cpu.jit import njit
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores
from trie.index.index_file import IndexFileError, open_index, write_index
from trie.index.places import TooManyPlacesError
from trie.index.reference_text import (
    SLACK,
    TextBuilder,
    TooLongError,
    block_words,
)
from trie.index.repeats import count_windows, find_repeats
from trie.index.text_index import TextIndex, has_filter, index_shape
from trie.strands import Strands

_PIECE = 1 << 22  # symbols read at once
_ARRAYS: Final = ("packed", "blocks", "gaps", "filter", "offsets", "places", "prints", "full")


@dataclass(frozen=True)
class Source:
    """A file that an index was made of; sha256: empty if it could be read only once."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: str) -> Source:
        """Read a file for its checksum."""
        if path == STDIN or not os.path.isfile(path):
            return cls(path, 0, "")
        with open(path, "rb") as file:
            return cls(path, os.path.getsize(path), hashlib.file_digest(file, "sha256").hexdigest())


@dataclass(frozen=True)
class Index:
    """An index with its targets. kmers: int64, the distinct k-mers of each target.

    distinct: those of all targets. bases: those of the records, ambiguity codes included. owners:
    int32, the target of each record. shared: uint32[3, n], windows of several targets and their
    sets. repeats: uint32[3, n] and int8[n], as in ``trie.index.repeats``.
    """

    k: int
    strands: Strands
    text: TextIndex
    records: Sequence[str]
    starts: NDArray[np.int64]
    owners: NDArray[np.int32]
    targets: TargetSets
    kmers: NDArray[np.int64]
    distinct: int
    shared: NDArray[np.uint32]
    repeats: tuple[NDArray[np.uint32], NDArray[np.int8]]
    bases: int
    sources: Sequence[Source] = ()

    @property
    def size(self) -> int:
        """The places of the text."""
        return int(self.text.shape.text.size)

    def memory_bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays().values())

    @classmethod
    def from_files(
        cls,
        paths: Sequence[str],
        k: int,
        strands: Strands,
        *,
        targets: Mapping[str, str] | None = None,
        by_file: bool = False,
        team: Team | None = None,
        on_bytes: Callable[[int], None] = lambda done: None,
    ) -> Index:
        """Index the records of sequence files; StreamerError if none holds a k-mer.

        targets: the target of each source, a record's name or a file as given; other records are
        targets of their own, or with ``by_file`` their files are.
        """
        check_k(k)
        threads = usable_cores()
        builder, names, files = TextBuilder(), list[str](), list[int]()
        read = bases = 0

        def on_read(done: int) -> None:
            on_bytes(read + done)

        try:
            for number, path in enumerate(paths):
                before = len(names)
                for piece in read_pieces(path, 0, size=_PIECE, on_bytes=on_read, team=team):
                    continues = before + piece.first < len(names)
                    builder.add(piece.reads.bases, piece.reads.offsets, continues=continues)
                    names[before + piece.first :] = piece.reads.names
                    bases += piece.reads.bases.size
                files += [number] * (len(names) - before)
                read += os.path.getsize(path) if os.path.isfile(path) else 0
            text = builder.finish()
        except TooLongError as error:
            raise DataError(str(error), file=shown_name(path)) from error
        own = [paths[number] for number in files] if by_file else names
        owners, target_names = _owners(names, [paths[number] for number in files], own, targets)
        windows = count_windows(text, k)
        if not windows.sum():
            shown = ", ".join(map(shown_name, paths))
            raise StreamerError(f"{shown}: the dictionary holds no whole {k}-mer")
        try:
            index = TextIndex.of(text, k, canonical=strands != "forward", threads=threads)
        except TooManyPlacesError as error:
            raise StreamerError(str(error)) from error
        repeats = find_repeats(index, text, threads)
        sets, shared, kmers = _sets(repeats, text.starts, owners, windows, target_names)
        distinct = int(windows.sum() - (repeats[:, 1] - repeats[:, 0]).sum())
        return cls(
            k, strands, index, names, text.starts, owners, sets, kmers, distinct, shared,
            (repeats[:, :3].T.astype(np.uint32), repeats[:, 3].astype(np.int8)), bases,
            [Source.of(path) for path in paths],
        )  # fmt: skip

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = dict(zip(_ARRAYS, self.text.arrays, strict=True))
        return arrays | {
            "record_names": _joined_names(self.records),
            "target_names": _joined_names(self.targets.names),
            "starts": self.starts,
            "owners": self.owners,
            "repeats": self.repeats[0].ravel(),
            "repeat_steps": self.repeats[1],
            "shared": self.shared.ravel(),
            "set_starts": self.targets.starts,
            "set_members": self.targets.members,
            "kmers": self.kmers,
        }

    def save(self, path: str) -> None:
        """Write the index to a file; OSError if that fails, and nothing is left of it."""
        facts = {
            "program": __version__,
            "k": self.k,
            "strands": self.strands,
            "size": self.size,
            "bases": self.bases,
            "kmers": self.distinct,
            "sources": [[source.path, source.size, source.sha256] for source in self.sources],
        }
        write_index(path, facts, self._arrays())

    @classmethod
    def open(cls, path: str) -> Index:
        """Map an index file; StreamerError if it is none, or damaged. Nothing else is read."""
        try:
            facts, arrays = open_index(path)
            return cls._checked(path, facts, arrays)
        except OSError as error:
            raise StreamerError(f"{path}: {error.strerror or error}") from error
        except IndexFileError as error:
            raise StreamerError(str(error)) from error

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
        sound = all(arrays[name].size == count for name, count in sizes.items())
        sound &= arrays["gaps"].size % 2 == 0 and arrays["shared"].size % 3 == 0
        sound &= arrays["set_starts"].size > targets > 0 and arrays["offsets"].size > 1
        sound &= not has_filter(shape) or arrays["filter"].size > 0
        if not sound:
            raise IndexFileError(path, "is damaged: its arrays do not fit each other")
        target_names = Names(arrays["target_names"], targets)
        return cls(
            k, facts["strands"], TextIndex(shape, *(arrays[name] for name in _ARRAYS)),
            Names(arrays["record_names"], records), arrays["starts"], arrays["owners"],
            TargetSets(target_names, arrays["set_starts"], arrays["set_members"]), arrays["kmers"],
            int(facts["kmers"]), arrays["shared"].reshape(3, -1),
            (arrays["repeats"].reshape(3, -1), arrays["repeat_steps"]), int(facts["bases"]),
            [Source(*source) for source in facts["sources"]],
        )  # fmt: skip


class Names(Sequence[str]):
    """Names joined by line feeds, taken apart when the first one is asked for."""

    def __init__(self, raw: NDArray[np.uint8], count: int) -> None:
        self._raw, self._count = raw, count
        self._names: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if self._names is None:
            names = self._raw.tobytes().decode("utf-8", "replace").split("\n")[:-1]
            self._names = (names + [""] * self._count)[: self._count]
        return self._names[at]


def _joined_names(names: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer("".join(f"{name}\n" for name in names).encode(), np.uint8)


def _owners(
    names: Sequence[str],
    files: Sequence[str],
    own: Sequence[str],
    targets: Mapping[str, str] | None,
) -> tuple[NDArray[np.int32], list[str]]:
    """The target of each record, and the names of the targets, in the order of their records."""
    if targets is None and own is names:
        return np.arange(len(names), dtype=np.int32), [*names]
    targets = targets or {}
    if unknown := targets.keys() - set(names) - set(files):
        raise StreamerError(
            f"no record or file has the name of a source: {first_names(sorted(unknown))}"
        )
    numbers: dict[str, int] = {}
    owners = [
        numbers.setdefault(targets.get(name, targets.get(file, mine)), len(numbers))
        for name, file, mine in zip(names, files, own, strict=True)
    ]
    return np.array(owners, dtype=np.int32), [*numbers]


def _sets(
    repeats: NDArray[np.int64],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    windows: NDArray[np.int64],
    names: Sequence[str],
) -> tuple[TargetSets, NDArray[np.uint32], NDArray[np.int64]]:
    """The sets of targets, the windows of k-mers that several have, and each target's k-mers."""
    begin, end, first, step = repeats.T
    count = len(names)
    target = owners[np.searchsorted(starts, begin, side="right") - 1]
    other = owners[np.searchsorted(starts, first, side="right") - 1]
    kmers = np.bincount(owners, windows, minlength=count).astype(np.int64)
    np.subtract.at(kmers, target, end - begin)
    crossing = repeats[target != other]
    # first windows of k-mers that several targets have, ascending
    firsts = np.unique(_expanded(crossing, 2, 3))
    if not firsts.size:
        single = TargetSets(names, np.arange(count + 1), np.arange(count, dtype=np.int32))
        return single, np.zeros((3, 0), np.uint32), kmers
    low = np.where(step > 0, first, first - (end - begin - 1))
    some = np.searchsorted(firsts, low) < np.searchsorted(firsts, low + (end - begin))
    window = _expanded(repeats[some], 0, None)
    source = _expanded(repeats[some], 2, 3)
    inside = np.isin(source, firsts)
    window, source = window[inside], source[inside]
    window, source = np.append(window, firsts), np.append(source, firsts)
    holder = owners[np.searchsorted(starts, window, side="right") - 1].astype(np.int64)
    kind = np.searchsorted(firsts, source)
    pairs = np.unique(kind * count + holder)
    members = (pairs % count).astype(np.int32)
    bounds = bounds_of(np.bincount(pairs // count, minlength=firsts.size))
    # the first target of each k-mer has been counted, the others have not
    home = owners[np.searchsorted(starts, firsts, side="right") - 1]
    further = members != np.repeat(home, np.diff(bounds))
    np.add.at(kmers, members[further], 1)
    numbers, chosen = intern_runs(members, bounds)
    sizes = np.diff(bounds)[chosen]
    inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    several = members[np.repeat(bounds[:-1][chosen], sizes) + inner]
    sets = TargetSets(
        names,
        np.concatenate((np.arange(count), count + bounds_of(sizes))),
        np.concatenate((np.arange(count, dtype=np.int32), several)),
    )
    order = np.argsort(window)
    return sets, _segments(window[order], count + numbers[kind[order]].astype(np.int64)), kmers


def _expanded(rows: NDArray[np.int64], column: int, step: int | None) -> NDArray[np.int64]:
    """The numbers of all windows of the rows, from ``column`` on, in steps of a column or of 1."""
    sizes = rows[:, 1] - rows[:, 0]
    inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if step is not None:
        inner = inner * np.repeat(rows[:, step], sizes)
    return np.repeat(rows[:, column], sizes) + inner


def _segments(windows: NDArray[np.int64], sets: NDArray[np.int64]) -> NDArray[np.uint32]:
    """uint32[3, n]: begin, end and set of the runs of ascending windows with one set."""
    heads = np.flatnonzero(np.append(True, (np.diff(windows) != 1) | (sets[1:] != sets[:-1])))
    tails = np.append(heads[1:], windows.size) - 1
    return np.stack((windows[heads], windows[tails] + 1, sets[heads])).astype(np.uint32)


@njit(cache=True, nogil=True)
def sets_of_runs(runs, starts, owners, shared, most, sets):
    """Write the set of each window of ``BatchResult.runs`` to ``sets``.

    starts, owners, shared: of an index. most: the number of its sets; a damaged file has others.
    """
    for i in range(len(runs)):
        begin, stop, place, step = runs[i, 0], runs[i, 1], runs[i, 2], runs[i, 3]
        size = stop - begin
        low = place if step > 0 else place - size + 1
        record = np.searchsorted(starts, low, side="right") - 1
        own = np.uint32(owners[record]) if 0 <= record < owners.size else np.uint32(0)
        sets[begin:stop] = min(own, np.uint32(most - 1))
        at = np.searchsorted(shared[1], low, side="right")
        while at < shared.shape[1] and np.int64(shared[0, at]) < low + size:
            first = max(np.int64(shared[0, at]), low)
            last = min(np.int64(shared[1, at]), low + size)
            number = min(shared[2, at], np.uint32(most - 1))
            for window in range(first, last):
                to = begin + window - low if step > 0 else stop - 1 - (window - low)
                sets[to] = number
            at += 1
