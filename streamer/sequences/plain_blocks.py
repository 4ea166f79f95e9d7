"""Blocks of text of an uncompressed file, read in turn or by several threads in parallel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamer.sequences.raw_file import RawFile
from streamer.sequences.text_window import BEHIND_BYTES, ROOM_BYTES, TextBlock, new_block
from trie.cpu.team import Team

_LEAST_THREADS = 3
"""The smallest team that reads in parallel: one copying thread keeps up with two that parse."""

_AHEAD = 4


class FileRegion(NamedTuple):
    """A byte range of a regular file, ``first`` to ``stop``, not yet read."""

    descriptor: int
    first: int
    stop: int

    def read(self) -> tuple[TextBlock, OSError | None]:
        """Read the bytes, fewer if the file ends early or a read fails; return the error too."""
        size = self.stop - self.first
        block = new_block(size)
        stop = block.first
        try:
            while stop < block.stop and (
                count := os.preadv(
                    self.descriptor,
                    [block.array.data[stop : block.stop]],
                    self.stop - block.stop + stop,
                )
            ):
                stop += count
        except OSError as error:
            return block._replace(stop=stop), error
        return block._replace(stop=stop), None

    def mapped(self) -> TextBlock | None:
        """Return the bytes without copying them; None near the ends of the file.

        Using them ends the process (SIGBUS) if they cannot be read, or the file becomes shorter.
        """
        begin = (self.first - ROOM_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < 0 or self.stop + BEHIND_BYTES > os.fstat(self.descriptor).st_size:
            return None
        try:
            # writable, as kernels expect it; nothing is written to the file
            memory = mmap.mmap(
                self.descriptor, self.stop + BEHIND_BYTES - begin, mmap.MAP_PRIVATE, offset=begin
            )
            memory.madvise(mmap.MADV_WILLNEED)
        except (OSError, ValueError):  # ValueError: the file has just become shorter
            return None
        array = np.frombuffer(memory, np.uint8)
        return TextBlock(array, self.first - begin, self.stop - begin)


def plain_blocks(raw: RawFile, size: int, team: Team | None) -> Iterator[TextBlock]:
    """Yield blocks of at most ``size`` bytes; a team's threads read those of a regular file."""
    if team is not None and team.threads >= _LEAST_THREADS and (extent := raw.extent):
        descriptor, first, stop = extent

        def read(at: int) -> tuple[TextBlock, OSError | None]:
            return FileRegion(descriptor, at, min(at + size, stop)).read()

        ahead = _AHEAD + team.threads // 2
        line = team.line(range(first, stop, size), read, ahead, pulls="read", works="read")
        try:
            for block, error in line:
                count = block.stop - block.first
                raw.bytes_read += count
                first += count
                if count:
                    yield block
                if error is not None:
                    raise error
                if count < size:  # the last one, or the file has been truncated meanwhile
                    break
        finally:
            line.close()
        raw.go_to(first)
    while True:
        block = new_block(size)
        count = raw.readinto(block.array.data[block.first : block.stop])
        if not count:
            return
        yield block._replace(stop=block.first + count)
