"""One gzip file decompressed by several threads: those of rapidgzip, from the extra parallel-gzip.

Rapidgzip takes a file that is cut within deflated text for one that ends there. So a member with a
known text is put behind the file. If that text comes last, the file was whole:

    file | member of _END                text ... | _END

In any other case, and after any error, ``rest`` begins anew and passes over what has come: it finds
the fault, its place and the text before it. What may be made of the member behind a cut file is
kept back until then. A header's own checksum is not looked at.
"""

from __future__ import annotations

import gzip
import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from streamer.sequences.bgzf import igzip_lib
from streamer.sequences.raw_file import RawFile
from streamer.sequences.text_window import TextBlock, new_block
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores

LEAST_THREADS = 4
"""Of rapidgzip: it takes nearly twice the CPU time of isal."""

LEAST_BYTES = 1 << 24
"""Of a file: a smaller one ends before the threads pay."""

_END = random.Random(1952).randbytes(64)  # nothing else of a file ends so
_BEHIND = gzip.compress(_END, mtime=0)
# Rapidgzip has the text of several megabytes of a file in memory, a thread: of text that repeats
# itself that would be gigabytes.
_SAMPLE_BYTES, _MOST_RATIO = 1 << 18, 16


def threads_for(raw: RawFile, team: Team) -> int:
    """How many threads rapidgzip shall have for a file: half of those that work; 0 for no use.

    Parsing and matching take as long as rapidgzip; a thread waits for it.
    """
    threads = (min(team.threads, usable_cores()) - team.lent) // 2
    extent = raw.extent
    if threads < LEAST_THREADS or extent is None:
        return 0
    try:
        import rapidgzip  # noqa: F401
    except ImportError:
        return 0
    number, start, stop = extent
    if stop - start < LEAST_BYTES:
        return 0
    sample = os.pread(number, _SAMPLE_BYTES, start)
    most = _MOST_RATIO * len(sample)
    try:
        text = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP).decompress(sample, most)
    except igzip_lib.IsalError:
        return 0
    return threads if len(text) < most else 0


def parallel_blocks(
    raw: RawFile,
    size: int,
    team: Team,
    rest: Callable[[], Iterator[TextBlock]],
) -> Iterator[TextBlock]:
    """The text of a gzip file in blocks of ``size`` bytes; what is raised is what ``rest`` raises.

    As many threads of the team sleep as rapidgzip has, but for the one that reads. rest: the blocks
    of the file from its first byte on, by other means; where threads do not pay it makes them all.
    """
    threads = threads_for(raw, team)
    if not threads:
        yield from rest()
        return
    from rapidgzip import RapidgzipFile

    file = _WithEnd(raw)
    given = 0
    whole = False
    kept: TextBlock | None = None
    with team.lend(threads - 1, "decompress"):
        try:
            opened: Any = RapidgzipFile(file, parallelization=threads)
        except Exception:
            opened = None
        try:
            while opened is not None and (block := _filled_by(opened, size)) is not None:
                if block.stop - block.first < size:
                    whole, kept = _without_end(kept, block)
                    break
                if kept is not None:
                    yield kept
                    given += kept.stop - kept.first
                kept = block
        finally:
            if opened is not None:
                with suppress(Exception):
                    opened.close()
    if whole and not file.grown():
        if kept is not None:
            yield kept
        return
    raw.bytes_read = 0
    yield from _behind(rest(), given)


def _filled_by(opened: Any, size: int) -> TextBlock | None:
    """The next block, not full at the end; None after an error."""
    block = new_block(size)
    stop = block.first
    try:
        while stop < block.stop and (count := opened.readinto(block.array.data[stop : block.stop])):
            stop += count
    except Exception:  # RuntimeError, ValueError, MemoryError: of whatever it is, ``rest`` tells
        return None
    return block._replace(stop=stop)


def _without_end(kept: TextBlock | None, last: TextBlock) -> tuple[bool, TextBlock | None]:
    """Whether the text ends as it shall, and the last two blocks of it as one."""
    before = 0 if kept is None else kept.stop - kept.first
    both = new_block(before + last.stop - last.first)
    middle = both.first + before
    if kept is not None:
        both.array[both.first : middle] = kept.array[kept.first : kept.stop]
    both.array[middle : both.stop] = last.array[last.first : last.stop]
    stop = both.stop - len(_END)
    if stop < both.first or both.array[stop : both.stop].tobytes() != _END:
        return False, None
    return True, both._replace(stop=stop) if stop > both.first else None


def _behind(blocks: Iterator[TextBlock], given: int) -> Iterator[TextBlock]:
    """The blocks without their first ``given`` bytes."""
    for block in blocks:
        passed = min(given, block.stop - block.first)
        given -= passed
        if passed < block.stop - block.first:
            yield block._replace(first=block.first + passed)


class _WithEnd(io.RawIOBase):
    """A file, from where it began to be read, and a member behind it; read at any place."""

    def __init__(self, raw: RawFile) -> None:
        assert raw.extent is not None
        self._raw = raw
        self._number, self._start, stop = raw.extent
        self._size = stop - self._start
        self._at = 0

    def grown(self) -> bool:
        """Whether it is not as long as it was."""
        return os.fstat(self._number).st_size - self._start != self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        ends = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size + len(_BEHIND)}
        self._at = ends[whence] + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        count = 0
        while count < len(buffer) and (data := self._next(len(buffer) - count)):
            buffer[count : count + len(data)] = data
            count += len(data)
            self._at += len(data)
        self._raw.bytes_read = max(self._raw.bytes_read, min(self._at, self._size))
        return count

    def _next(self, most: int) -> bytes:
        left = self._size - self._at
        if left <= 0:
            return _BEHIND[-left : most - left]
        data = os.pread(self._number, min(most, left), self._start + self._at)
        if not data:
            problem = "is shorter than it was"
            raise OSError(problem)
        return data
