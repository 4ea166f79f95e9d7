"""Decompress one gzip file in several threads: those of rapidgzip (extra parallel-gzip).

Rapidgzip takes a file truncated within its deflate data for one that ends there. So a member with a
known text is appended to the file. If that text comes out last, the file was complete:

    file | member of _END                text ... | _END

Otherwise, and after any error, ``rest`` starts over and skips what has been delivered: it finds the
fault, its place and the text before it. The last block is held back until then, as the appended
member may decode to garbage after a truncated file. Header checksums are not verified.
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
"""Rapidgzip's fewest threads that pay off: it takes nearly twice the CPU time of isal."""

LEAST_BYTES = 1 << 24
"""The smallest file that pays off, in bytes: a smaller one ends too soon."""

_END = random.Random(1952).randbytes(64)  # no real file ends with this
_BEHIND = gzip.compress(_END, mtime=0)
# Each thread of rapidgzip holds the text of several megabytes of the file: gigabytes, if the text
# is highly repetitive.
_SAMPLE_BYTES, _MOST_RATIO = 1 << 18, 16


def threads_for(raw: RawFile, team: Team) -> int:
    """Return how many threads rapidgzip gets: half of those that work; 0 if it does not pay.

    Parsing and matching take as long as rapidgzip; one thread only waits for it.
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
    """Yield the text of a gzip file in blocks of ``size`` bytes; raise what ``rest`` raises.

    As many threads of the team sleep as rapidgzip has, except for the one that reads. rest: yields
    the blocks of the file from its first byte on by other means; it yields all of them where
    threads do not pay.
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
    """Return the next block, partly filled at the end; None after an error."""
    block = new_block(size)
    stop = block.first
    try:
        while stop < block.stop and (count := opened.readinto(block.array.data[stop : block.stop])):
            stop += count
    except Exception:  # RuntimeError, ValueError, MemoryError: ``rest`` finds out what is wrong
        return None
    return block._replace(stop=stop)


def _without_end(kept: TextBlock | None, last: TextBlock) -> tuple[bool, TextBlock | None]:
    """Return whether the text ends with ``_END``, and the last two blocks as one, without it."""
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
    """Yield the blocks without their first ``given`` bytes."""
    for block in blocks:
        passed = min(given, block.stop - block.first)
        given -= passed
        if passed < block.stop - block.first:
            yield block._replace(first=block.first + passed)


class _WithEnd(io.RawIOBase):
    """A file, from where reading began, followed by a member; seekable."""

    def __init__(self, raw: RawFile) -> None:
        assert raw.extent is not None
        self._raw = raw
        self._number, self._start, stop = raw.extent
        self._size = stop - self._start
        self._at = 0

    def grown(self) -> bool:
        """Return whether the file's size has changed."""
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
