"""The decompressed text of a file being parsed: a window that blocks are added to.

    array   ...... done | AT  not parsed yet  STOP | bytes after the end, which may be read

What is left of a block moves in front of the next one, into room that blocks reserve there. A
record longer than this room is collected in a separate array, whose size doubles. A large block is
added in portions, so that parsers reserve little memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.text_scan import SLACK

BLOCK_BYTES = 1 << 19
ROOM_BYTES = 1 << 18  # reserved in front of a block
BEHIND_BYTES = 2 * SLACK  # readable behind it
REGION_BYTES = (1 << 23) - ROOM_BYTES - BEHIND_BYTES  # of a block parsed in parallel with others

AT, STOP, LINE, WITHIN, SEEN, SEEN_LINES, PLUS = range(7)
"""Indices into ``Text.place``; see there."""

_LF: Final = 10


class FormatError(ValueError):
    """A file or a record that violates its format. name: of the record, if it can be read."""

    def __init__(self, problem: str, name: str | None = None) -> None:
        self.name = name
        super().__init__(problem)


class TextBlock(NamedTuple):
    """A piece of text, array[first:stop], with room before it and readable bytes after it."""

    array: NDArray[np.uint8]
    first: int
    stop: int


def new_block(size: int) -> TextBlock:
    """Allocate a block for ``size`` bytes, uninitialized."""
    array = array_pool.empty(ROOM_BYTES + size + BEHIND_BYTES, np.uint8)
    return TextBlock(array, ROOM_BYTES, ROOM_BYTES + size)


class Text:
    """The text in ``blocks`` that is not parsed yet.

    array: uint8. place: int64[7]; array[place[AT]:place[STOP]] has not been parsed. LINE: the
    number of the line that begins at AT, from 1. The other elements belong to the parsers. ended:
    nothing follows. blocks: what follows otherwise.
    """

    def __init__(self, blocks: Iterator[TextBlock]) -> None:
        self.blocks = blocks
        self.array: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.place = np.zeros(7, dtype=np.int64)
        self.place[LINE] = 1
        self.ended = False
        self._hidden = 0  # bytes after STOP that have not been added yet

    def __len__(self) -> int:
        return int(self.place[STOP] - self.place[AT])

    def start(self, size: int | None = None) -> bytes:
        """Return the next bytes, at most ``size``, without parsing them."""
        first, stop = self.place[AT], self.place[STOP]
        return self.array[first : stop if size is None else min(stop, first + size)].tobytes()

    def show(self, size: int | None = None) -> None:
        """Add up to ``size`` bytes of the last block, or all that is left of it if None."""
        shown = self._hidden if size is None else min(size, self._hidden)
        self.place[STOP] += shown
        self._hidden -= shown

    def more(self) -> None:
        """Add the next block, or a part; an error in reading it leaves the text unchanged."""
        if self._hidden:
            self.show(BLOCK_BYTES)
            return
        block = next(self.blocks, None)
        if block is None:
            self.ended = True
            return
        if block.stop == block.first:
            return
        left, size = len(self), block.stop - block.first
        at, stop = int(self.place[AT]), int(self.place[STOP])
        if left <= block.first:
            array, at = block.array, block.first - left
            array[at : block.first] = self.array[stop - left : stop]
            stop = block.stop
        else:
            if self.array.size - stop < size + BEHIND_BYTES:
                array = np.empty(2 * (left + size) + BEHIND_BYTES, dtype=np.uint8)
                array[:left] = self.array[at:stop]
                at, stop = 0, left
            else:
                array = self.array
            array[stop : stop + size] = block.array[block.first : block.stop]
            stop += size
        self.array = array
        self._hidden = size
        self.place[AT], self.place[STOP] = at, stop - size
        self.show(BLOCK_BYTES)

    def end_line(self) -> None:
        """Terminate the last line of the file if it lacks a line end."""
        stop = self.place[STOP]
        if len(self) and self.array[stop - 1] != _LF:
            self.array[stop] = _LF
            self.place[STOP] += 1
