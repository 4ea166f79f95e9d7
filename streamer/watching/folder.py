"""The files below a folder: which of them contain reads, and which mark the end of the run."""

import io
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from heapq import heappop, heappush
from typing import Any, BinaryIO, NamedTuple

from watchfiles import watch
from xopen import xopen

from streamer.errors import StreamerError
from streamer.output.output_file import END_BLOCK
from streamer.sequences.decompression import COMPRESSIONS, Members, compression_at
from streamer.sequences.files import COMPRESSED, split_suffix
from streamer.sequences.raw_file import RawFile
from streamer.sequences.sam import END as CRAM_END
from streamer.sequences.sam import MAGIC as CRAM
from streamer.sequences.sam import MOST_START, begins_sam

UNTIL = ("final_summary*", "RTAComplete*")
"""What MinKNOW and Illumina's instruments write last, into the folder of the run."""

_READS = (".fastq", ".fq", ".bam", ".sam", ".cram")
_PARTIAL = {"tmp", "temp", "part", "partial"}
# Sample_S1_L001_R1_001.fastq.gz of bcl-convert and bcl2fastq; I1 and I2 are the index reads
_ILLUMINA = re.compile(r"_(?:S[0-9]+|L[0-9]{3})_([RI][0-9])_[0-9]{3}\.f(?:ast)?q(?:\.\w+)?$")
# reads that fail the sequencer's own quality filter
_FAILED = {"fastq_fail", "bam_fail"}
# MinKNOW makes these when a run starts, before its first reads
_PASSED = {"fastq_pass", "bam_pass"}


class Sighting(NamedTuple):
    """A file's state in the file system."""

    size: int
    changed: int
    """When its content changed: nanoseconds, on any clock."""
    touched: int = 0
    """When anything of it changed, also its name or owner; no program can set that time."""


class Folder:
    """Files by their paths below ``path``.

    Links are followed, but each folder is entered once: by its own path, or by the first link to
    it. Links to failed reads, and to folders that contain ``path``, are not followed.

    until: patterns of names that end a run: that of the folder where such a file is. A name of the
    user's own choice may be in another folder of the run: without reads below it, the mark ends the
    nearest folder above that has some.
    """

    def __init__(self, path: str, until: Sequence[str]) -> None:
        self.path = path
        self.unreadable: dict[str, str] = {}
        """Folders and links that could not be read in their last scan, each with a message."""
        self._dangling: set[str] = set()
        self._until = until
        self._names: dict[str, bool] = {}
        # of the last scan: folders entered, those where reads are or will be, and marks of an end
        self._entered: set[str] = set()
        self._reading: set[str] = set()
        self._marks: set[str] = set()
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            raise StreamerError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        if not is_folder:
            raise StreamerError(f"{path}: is not a folder")

    def there(self) -> bool:
        """Return whether the folder itself exists."""
        return os.path.isdir(self.path)

    def growing(self) -> list[str] | None:
        """The folders with reads whose run is not over; None if no run is."""
        ended = tuple(self._ended(mark) for mark in self._marks)
        return [below for below in self._reading if not below.startswith(ended)] if ended else None

    def _ended(self, mark: str) -> str:
        """Return the folder that a mark ends."""
        below, name = _split(mark)
        if not any(fnmatchcase(name, pattern) for pattern in UNTIL):
            while below and not any(reading.startswith(below) for reading in self._reading):
                below = _split(below[:-1])[0]
        return below

    def has_folder(self, paths: Iterable[str]) -> bool:
        """Whether any of the paths is a folder that a scan enters, as its files may be new."""
        for path in paths:
            below, name = _split(path)
            if below in self._entered and _is_open(name) and os.path.isdir(self.absolute(path)):
                return True
        return False

    def scan(self, known: Callable[[str], bool]) -> dict[str, Sighting]:
        """All files with reads, except those for which ``known`` is true: they are not examined."""
        sightings: dict[str, Sighting] = {}
        self._entered, self._reading, self._marks = set(), set(), set()
        for path in self._dangling:
            self.unreadable.pop(path, None)
        self._dangling = set()
        entered: set[tuple[int, int]] = set()
        waiting, links = [""], list[str]()
        while waiting or links:
            # links last: a folder that is also there by itself has its own path
            below = waiting.pop() if waiting else heappop(links)
            if not self._is_new(below, entered):
                continue
            self._entered.add(below)
            for entry in self._entries(below):
                name = entry.name
                path = below + name
                if known(path):
                    self._reading.add(below)
                    continue
                try:
                    if entry.is_dir():
                        if not _is_open(name):
                            continue
                        if name in _PASSED:
                            self._reading.add(path + os.sep)
                        if entry.is_symlink():
                            heappush(links, path + os.sep)
                        else:
                            waiting.append(path + os.sep)
                    elif self._holds_reads(path) and entry.is_file():
                        self._reading.add(below)
                        sightings[path] = state_of(entry.stat())
                    else:
                        self._note_dangling(entry, path)
                except PermissionError as error:
                    # the folder can be listed, but not searched
                    self._note_unreadable(below, error)
                except OSError:
                    # it has vanished meanwhile, or is a link to itself
                    self._note_dangling(entry, path)
        return sightings

    def _note_dangling(self, entry: os.DirEntry[str], path: str) -> None:
        """Note a link that leads nowhere, if its name is one of reads or may be one of a folder."""
        if not entry.is_symlink() or os.path.exists(place := self.absolute(path)):
            return
        if holds_reads(entry.name) or ("." not in entry.name and _is_open(entry.name)):
            self._dangling.add(path)
            self.unreadable[path] = f"{place}: the link leads nowhere"

    def _is_new(self, below: str, entered: set[tuple[int, int]]) -> bool:
        """Whether a folder has not been entered yet, by another path, and may be."""
        place = self.absolute(below)
        try:
            status = os.stat(place)
        except OSError:
            # listing it says why
            return True
        if (identity := (status.st_dev, status.st_ino)) in entered:
            return False
        entered.add(identity)
        if below and os.path.islink(place.rstrip(os.sep)):
            target = os.path.realpath(place)
            inside = os.path.realpath(self.path) + os.sep
            return os.path.basename(target) not in _FAILED and not inside.startswith(
                os.path.join(target, "")
            )
        return True

    def look(self, paths: Iterable[str]) -> dict[str, Sighting]:
        """Return those of the paths that are files with reads."""
        sightings = {}
        for path in paths:
            below = _split(path)[0]
            try:
                if below in self._entered:
                    status = os.stat(self.absolute(path))
                    if stat.S_ISREG(status.st_mode) and self._holds_reads(path):
                        self._reading.add(below)
                        sightings[path] = state_of(status)
            except OSError:
                continue
        return sightings

    def absolute(self, path: str) -> str:
        """Return the absolute path of a file."""
        return os.path.join(self.path, path)

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

    def _holds_reads(self, path: str) -> bool:
        name = _split(path)[1]
        holds = self._names.get(name)
        if holds is None:
            holds = self._names[name] = holds_reads(name)
        if not holds and any(fnmatchcase(name, pattern) for pattern in self._until):
            self._marks.add(path)
        return holds


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed, judged by its name."""
    return path.lower().endswith((*COMPRESSED, ".bam", ".cram"))


def mate_of(path: str) -> str:
    """Return which read of a pair a file contains by Illumina's naming: R1, R2 or nothing."""
    mate = _ILLUMINA.search(path)
    return mate[1] if mate else ""


def other_mate(path: str) -> str | None:
    """Return the file of the other reads of its pairs by Illumina's naming; None for no R1, R2."""
    mate = _ILLUMINA.search(path)
    if mate is None or not mate[1].startswith("R"):
        return None
    other = {"R1": "R2", "R2": "R1"}.get(mate[1])
    return None if other is None else path[: mate.start(1)] + other + path[mate.end(1) :]


def holds_reads(name: str) -> bool:
    """Return whether a file of this name contains reads, and is not hidden or still being copied.

    Illumina's index reads do not count: they are the barcodes of other reads.
    """
    stem, suffix = split_suffix(name)
    if suffix not in _READS or name.startswith(".") or mate_of(name).startswith("I"):
        return False
    return _PARTIAL.isdisjoint(stem.split("."))


def _split(path: str) -> tuple[str, str]:
    """Return the folder of a path, with a separator at its end if it is not empty, and the name."""
    name = path.rpartition(os.sep)[2]
    return path[: len(path) - len(name)], name


def _is_open(name: str) -> bool:
    """Return whether a scan enters folders of this name."""
    return not name.startswith(".") and name not in _FAILED


def state_of(status: os.stat_result) -> Sighting:
    """Return the state of a file."""
    return Sighting(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


_START_BYTES = 64
_AT_ONCE = 1 << 20
_CRAM_END_BYTES = 64
_BGZF = slice(12, 16)  # name and size of its extra field


def may_grow(file: BinaryIO) -> bool:
    """Whether the file is uncompressed FASTQ, whose records can be read while more come."""
    file.seek(0)
    start = file.read(MOST_START).lstrip()
    return start.startswith(b"@") and not begins_sam(start)


def has_end(file: BinaryIO, *, patient: bool) -> bool:
    """Return whether compressed data is complete.

    Also True for uncompressed or damaged files: reading them reports the damage. patient: accept
    BGZF without its end block, which some converters omit, if its last block is whole.
    """
    file.seek(0)
    start = file.read(_START_BYTES)
    if start.startswith(CRAM):
        return CRAM_END in _tail(file, _CRAM_END_BYTES)
    compression = compression_at(start)
    if compression is None:
        return True
    if start[_BGZF] == END_BLOCK[_BGZF] and not patient:
        return _tail(file, len(END_BLOCK)) == END_BLOCK
    file.seek(0)
    packed: Any = RawFile(file)
    try:
        if compression in COMPRESSIONS:
            unpacked: Any = Members(packed, compression)
        else:
            unpacked = xopen(io.BufferedReader(packed), "rb", format=compression, threads=0)
        while unpacked.read1(_AT_ONCE):
            pass
    except EOFError:
        return False
    except Exception:  # decompressors have exception types of their own
        return True
    return True


def _tail(file: BinaryIO, size: int) -> bytes:
    """Return the last bytes."""
    file.seek(-min(file.seek(0, os.SEEK_END), size), os.SEEK_END)
    return file.read()


_GROUP_MS = 400  # window in which events are grouped
_STEP_MS = 100
_MOST = 1000


class Hints:
    """A thread that collects the changed paths below a folder.

    note: called with a line if events are unavailable.
    """

    def __init__(self, folder: str, note: Callable[[str], None]) -> None:
        self._roots = {os.path.abspath(folder), os.path.realpath(folder)}
        self._folder = folder
        self._note = note
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._any = threading.Event()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="hints", daemon=True).start()

    def wait(self, seconds: float) -> set[str] | None:
        """Return the paths changed since the last call; None if they are too many.

        Returns on the first change, or after ``seconds`` at the latest.
        """
        self._any.wait(seconds)
        with self._lock:
            changed, self._changed = self._changed, set()
            self._any.clear()
        return None if len(changed) > _MOST else changed

    def close(self) -> None:
        """Stop collecting."""
        self._stop.set()

    def _run(self) -> None:
        try:
            for changes in watch(
                self._folder,
                watch_filter=None,
                debounce=_GROUP_MS,
                step=_STEP_MS,
                stop_event=self._stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                paths = {below for _, path in changes if (below := self._below(path))}
                with self._lock:
                    self._changed |= paths
                    if self._changed:
                        self._any.set()
        except Exception as error:  # whatever the library raises, the folder is still scanned
            if not self._stop.is_set():
                self._note(f"no events from the file system ({error}): looks every few seconds")

    def _below(self, path: str) -> str:
        for root in self._roots:
            if path.startswith(root + os.sep):
                return path[len(root) + 1 :]
        return ""
