"""The files below a folder: which of them contain reads, and which mark the end of the run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from streamer.errors import StreamerError

UNTIL = ("final_summary*", "RTAComplete*")
"""What MinKNOW and Illumina's instruments write last."""

_READS = (".fastq", ".fq", ".bam", ".sam", ".cram")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_PARTIAL = {"tmp", "temp", "part", "partial"}
# Sample_S1_L001_R1_001.fastq.gz of bcl-convert and bcl2fastq; I1 and I2 are the index reads
_ILLUMINA = re.compile(r"_(?:S[0-9]+|L[0-9]{3})_([RI][0-9])_[0-9]{3}\.f(?:ast)?q(?:\.\w+)?$")
# reads that fail the sequencer's own quality filter
_FAILED = {"fastq_fail", "bam_fail"}


class Sighting(NamedTuple):
    """A file's state in the file system."""

    size: int
    changed: int
    """Nanoseconds, on any clock."""


class Folder:
    """Files by their paths below ``path``, which may itself be a link; others are not followed."""

    def __init__(self, path: str, until: Sequence[str]) -> None:
        self.path = path
        self.over = ""
        """The first file seen whose name marks the end of a run."""
        self.unreadable: dict[str, str] = {}
        """The folders that could not be read in their last scan, each with a message."""
        self._until = until
        self._names: dict[str, bool] = {}
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            problem = f"{path}: {(error.strerror or str(error)).lower()}"
            raise StreamerError(problem) from None
        if not is_folder:
            problem = f"{path}: is not a folder"
            raise StreamerError(problem)

    def there(self) -> bool:
        """Return whether the folder itself exists."""
        return os.path.isdir(self.path)

    def has_folder(self, paths: Iterable[str]) -> bool:
        """Whether any of the paths is a folder that a scan enters, as its files may be new."""
        return any(
            os.path.isdir(self.absolute(path)) and self._enters(path.split(os.sep))
            for path in paths
        )

    def scan(self, known: Callable[[str], bool]) -> dict[str, Sighting]:
        """All files with reads, except those for which ``known`` is true: they are not examined."""
        found: dict[str, Sighting] = {}
        waiting = [""]
        while waiting:
            below = waiting.pop()
            for entry in self._entries(below):
                name = entry.name
                path = below + name
                if known(path):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if not name.startswith(".") and name not in _FAILED:
                            waiting.append(path + os.sep)
                    elif self._holds_reads(name) and entry.is_file():
                        found[path] = _seen(entry.stat())
                except PermissionError as error:
                    # the folder can be listed, but not searched
                    self._note_unreadable(below, error)
                except OSError:
                    # it has vanished meanwhile, or is a dangling link
                    continue
        return found

    def look(self, paths: Iterable[str]) -> dict[str, Sighting]:
        """Return those of the paths that are files with reads."""
        found = {}
        for path in paths:
            parts = path.split(os.sep)
            try:
                if self._enters(parts[:-1]) and self._holds_reads(parts[-1]):
                    status = os.stat(self.absolute(path))
                    if stat.S_ISREG(status.st_mode):
                        found[path] = _seen(status)
            except OSError:
                continue
        return found

    def absolute(self, path: str) -> str:
        """Return the absolute path of a file."""
        return os.path.join(self.path, path)

    def _enters(self, folders: Sequence[str]) -> bool:
        """Return whether a scan enters the folder of this path; events come for links, too."""
        path = self.path
        for name in folders:
            path = os.path.join(path, name)
            if name.startswith(".") or name in _FAILED or os.path.islink(path):
                return False
        return True

    def _entries(self, below: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.absolute(below)) as entries:
                self.unreadable.pop(below, None)
                yield from entries
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._note_unreadable(below, error)

    def _note_unreadable(self, below: str, error: OSError) -> None:
        what = (error.strerror or str(error)).lower()
        self.unreadable[below] = (
            f"{self.absolute(below) if below else self.path}: cannot be read: {what}"
        )

    def _holds_reads(self, name: str) -> bool:
        holds = self._names.get(name)
        if holds is None:
            holds = self._names[name] = holds_reads(name)
            if not self.over and any(fnmatchcase(name, pattern) for pattern in self._until):
                self.over = name
        return holds


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed, judged by its name."""
    return path.lower().endswith((*_COMPRESSED, ".bam", ".cram"))


def mate_of(path: str) -> str:
    """Return which read of a pair a file contains by Illumina's naming: R1, R2 or nothing."""
    found = _ILLUMINA.search(path)
    return found[1] if found else ""


def holds_reads(name: str) -> bool:
    """Return whether a file of this name contains reads, and is not hidden or still being copied.

    Illumina's index reads do not count: they are the barcodes of other reads.
    """
    lower = name.lower()
    stem, suffix = os.path.splitext(lower)
    if suffix in _COMPRESSED:
        stem, suffix = os.path.splitext(stem)
    if suffix not in _READS or name.startswith(".") or mate_of(name).startswith("I"):
        return False
    return _PARTIAL.isdisjoint(stem.split("."))


def _seen(status: os.stat_result) -> Sighting:
    return Sighting(status.st_size, status.st_mtime_ns)
