"""Index files with changed bytes: ``damaged`` finds each, and they are refused, or used safely.

Arrays that are used lie between pages that nobody may touch, at the end of their own or at their
beginning. An input is a seed: of what changes, and where. What a read finds is then anything.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index
from streamer.dictionary.target_table import TargetTable
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import intervals, reads
from streamer.matching.target_counts import CoverageCounts, TargetCounts
from streamer.sequences.read_batch import ReadBatch
from tests.fuzz.targets import OfBytes
from trie.codes import decode
from trie.index.index_file import PAGE, IndexFileError, damaged, open_index

FLIPS = 2_000
"""Bytes that an input changes together in two arrays; a fiftieth, one by one, in a file."""


class IndexFiles(OfBytes):
    """The target."""

    name = "index"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.flips, self._paths = 0, list[str]()
        self._batch, self._files = _reads(), list[tuple[Any, dict[str, NDArray[Any]]]]()
        for k in (9, 21, 31):
            path = str(Path(self.folder.name, f"{k}.idx"))
            _made(self.folder.name, k).save(path)
            assert damaged(path) == []
            self._paths.append(path)
            facts, arrays = open_index(path)
            for at_end in (False, True):
                some = {name: _guarded(array, at_end=at_end) for name, array in arrays.items()}
                self._files.append((facts, some))

    def take(self, data: bytes) -> str:
        """Change some bytes, use the file, and change them back."""
        rng = random.Random(data)
        if rng.random() < 0.3:
            self.flips += FLIPS // 50
            return _found(rng.choice(self._paths), rng)
        facts, arrays = rng.choice(self._files)
        undo = []
        for name in rng.sample([name for name, array in arrays.items() if array.size], 2):
            raw = arrays[name].view(np.uint8)
            for _ in range(min(FLIPS // 2, 1 + rng.randrange(raw.size))):
                at = rng.randrange(raw.size)
                undo.append((raw, at, raw[at]))
                raw[at] = rng.choice((0, 255, raw[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        self.flips += len(undo)
        try:
            return self._use(facts, arrays)
        finally:
            for raw, at, before in reversed(undo):
                raw[at] = before

    def _use(self, facts: Any, arrays: dict[str, NDArray[Any]]) -> str:
        try:
            index = Index._checked("file", facts, arrays)
            dictionary = Dictionary.of_index(index)
            index.kmerless()
            assert index.fingerprint
            with closing(StreamMatcher.of(dictionary, counted=True, threads=1)) as matcher:
                (result,) = matcher.match([self._batch])
                counts, coverage = TargetCounts(matcher), CoverageCounts(matcher)
                counts.add(result)
                coverage.add(result)
                assert counts.columns() and [*coverage.columns(3)]
                for rows in (intervals(result), reads(result, matcher.dictionary.targets)):
                    for one in np.unique(rows.get("target", np.zeros(0, np.uint32))).tolist():
                        matcher.dictionary.targets.label(one)
            if index.groups:
                index.by_group()
        except (StreamerError, IndexFileError):
            return "refused"
        return "used"

    def seeds(self) -> list[bytes]:
        """Numbers."""
        return [bytes([number]) for number in range(40)]

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """Makes seeds."""
        return lambda rng: self.one(rng.randbytes(8))


def _found(path: str, rng: random.Random) -> str:
    with open(path, "r+b", buffering=0) as file:
        size = file.seek(0, 2)
        for _ in range(FLIPS // 50):
            at = rng.choice((rng.randrange(size), rng.randrange(PAGE)))
            file.seek(at)
            before = file.read(1)
            file.seek(at)
            file.write(bytes([before[0] ^ rng.randrange(1, 256)]))
            try:
                assert damaged(path), at
            except IndexFileError:
                pass
            finally:
                file.seek(at)
                file.write(before)
    return "found"


def _reads() -> ReadBatch:
    codes = np.concatenate([codes for _, codes in _records()])
    reads = [codes[at : at + 90] for at in range(0, codes.size, 70)]
    reads += [3 - read[::-1] for read in reads[::3] if read.max(initial=0) < 4]
    offsets = np.cumsum([0, *[read.size for read in reads]])
    return ReadBatch([f"r{at}" for at in range(len(reads))], offsets, np.concatenate(reads))


def _records() -> list[tuple[str, NDArray[np.uint8]]]:
    rng = np.random.default_rng(5)
    one, other, unit = (rng.integers(0, 4, size).astype(np.uint8) for size in (900, 700, 40))
    gap = np.full(30, 4, np.uint8)
    satellite = np.tile(unit, 60)
    satellite[rng.integers(0, satellite.size, 20)] = 1
    shared = [3 - one[100:400][::-1], gap, other, one[500:600]]
    return [
        ("one", one),
        ("two", np.concatenate(shared)),
        ("three", np.concatenate([satellite, gap, other[200:500]])),
        ("short", unit[:5]),
    ]


def _made(folder: str, k: int) -> Index:
    fasta = Path(folder, "records.fa")
    with fasta.open("wb") as file:
        for name, codes in _records():
            file.write(b">%s\n%s\n" % (name.encode(), decode(codes).tobytes()))
    table = TargetTable({"one": "A", "two": "B"}, {"A": "G", "B": "G"})
    return Index.from_files([str(fasta)], k, "canonical", table=table)


def _guarded(array: NDArray[Any], *, at_end: bool) -> NDArray[Any]:
    """A copy of an array between two pages without access."""
    room = array.nbytes + -array.nbytes % PAGE
    whole = mmap.mmap(-1, room + 2 * PAGE)
    raw = np.frombuffer(whole, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for page in (0, room + PAGE):
        assert protect(raw.ctypes.data + page, PAGE, 0) == 0
    start = PAGE + (room - array.nbytes if at_end else 0)
    copy = raw[start : start + array.nbytes]
    copy[:] = array.view(np.uint8)
    return copy.view(array.dtype)
