"""The decompressed text of a file while it is parsed: a window that blocks are added to.

    array   ...... done | AT  not parsed yet  STOP | bytes behind the end, which may be read

What is left of a block moves in front of the next one, into room that blocks have there. A record
that is longer than this room collects in an array of its own, whose size doubles. Of a large block
some is added at a time, so that what parsers reserve for it stays small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.text_scan import SLACK

BLOCK_BYTES = 1 << 19
ROOM_BYTES = 1 << 18  # in front of a block
_BEHIND = 2 * SLACK
REGION_BYTES = (1 << 23) - ROOM_BYTES - _BEHIND  # of a block that is parsed beside others

AT, STOP, LINE, WITHIN, SEEN, SEEN_LINES = range(6)
"""Of ``Text.place``: see there."""

_LF: Final = 10


class FormatError(ValueError):
    """A file or a record that is not in its format. name: of the record, if it can be read."""

    def __init__(self, problem: str, name: str | None = None) -> None:
        self.name = name
        super().__init__(problem)


class TextBlock(NamedTuple):
    """array[first:stop] is a piece of a text; there is room in front of it, and bytes behind it."""

    array: NDArray[np.uint8]
    first: int
    stop: int


def new_block(size: int) -> TextBlock:
    """A block for ``size`` bytes, uninitialized."""
    array = array_pool.empty(ROOM_BYTES + size + _BEHIND, np.uint8)
    return TextBlock(array, ROOM_BYTES, ROOM_BYTES + size)


class Text:
    """What is not parsed yet of the text in ``blocks``.

    array: uint8. place: int64[6]; array[place[AT]:place[STOP]] has not been parsed. LINE: the
    number of the line that begins at AT, from 1. The others belong to the parsers. ended: nothing
    follows. blocks: what follows otherwise.
    """

    def __init__(self, blocks: Iterator[TextBlock]) -> None:
        self.blocks = blocks
        self.array: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.place = np.zeros(6, dtype=np.int64)
        self.place[LINE] = 1
        self.ended = False
        self._hidden = 0  # bytes behind STOP that have not been added yet

    def __len__(self) -> int:
        return int(self.place[STOP] - self.place[AT])

    def start(self, size: int | None = None) -> bytes:
        """The next bytes, at most ``size``, without parsing them."""
        first, stop = self.place[AT], self.place[STOP]
        return self.array[first : stop if size is None else min(stop, first + size)].tobytes()

    def show(self, size: int | None = None) -> None:
        """Add up to ``size`` bytes of the last block, None: all that is left of it."""
        shown = self._hidden if size is None else min(size, self._hidden)
        self.place[STOP] += shown
        self._hidden -= shown

    def more(self) -> None:
        """Add the next block, or a part; what reading it raises leaves the text as it was."""
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
            if self.array.size - stop < size + _BEHIND:
                array = np.empty(2 * (left + size) + _BEHIND, dtype=np.uint8)
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
        """End the last line of the file if it has no end."""
        stop = self.place[STOP]
        if len(self) and self.array[stop - 1] != _LF:
            self.array[stop] = _LF
            self.place[STOP] += 1
