"""Decompress gzip members into blocks with ISA-L's own functions (``inflate``).

Text and errors are the same as those of ``bz2_xz.Members``, which calls isal for each piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamer.sequences.bgzf import igzip_lib
from streamer.sequences.bz2_xz import TrailingBytesError
from streamer.sequences.inflate import (
    AFTER,
    AT,
    BETWEEN,
    FULL,
    INFLATE,
    NEED_INPUT,
    PHASE,
    PUSHED,
    SIZE,
    STOP,
    TO,
    TRAILING,
    InflateState,
    inflate_members,
)
from streamer.sequences.raw_file import Packed
from streamer.sequences.text_window import TextBlock, new_block
from trie.cpu.intrinsics import array_address

_READ_BYTES = 1 << 20

_PROBLEMS = {
    -1: "Error -1 Invalid deflate block found",
    -2: "Error -2 Invalid deflate symbol found",
    -3: "Error -3 Invalid lookback distance found",
    -4: "Error -4 Invalid gzip/zlib wrapper found",
    -5: "Error -5 Gzip/zlib wrapper specifies unsupported compress method",
    -6: "Error -6 Incorrect checksum found",
}
"""Error messages in isal's wording."""


class GzipMembers:
    """Reads the members of a file, one after the other.

    whole: fill blocks completely, because the file is not a pipe. last: as in ``Members``.
    """

    def __init__(self, file: Packed, *, whole: bool, last: int | None = None) -> None:
        self._file = file
        self._whole = whole
        self._state = InflateState()
        self._packed = np.empty(PUSHED + _READ_BYTES, dtype=np.uint8)
        self._stream = np.zeros(7, dtype=np.int64)
        self._stream[SIZE], self._stream[AFTER] = last or 0, last is not None
        self._ended = False
        self._problem: BaseException | None = None

    def blocks(self, size: int) -> Iterator[TextBlock]:
        """Yield the text in blocks of at most ``size`` bytes; errors as in ``fill``."""
        while (block := self.fill(new_block(size))).stop > block.first:
            yield block

    def fill(self, block: TextBlock) -> TextBlock:
        """Fill the block; less than full only at the end or from a pipe, empty at the end.

        Raises what reading raises, EOFError for a truncated member, TrailingBytesError, and
        IsalError for any other fault, each after all text before it has been returned.
        """
        stream = self._stream
        stream[TO] = block.first
        try:
            self._raise()
            self._fill(block)
        except BaseException as problem:
            if stream[TO] == block.first:
                raise
            self._problem = problem
        return block._replace(stop=int(stream[TO]))

    def _raise(self) -> None:
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _fill(self, block: TextBlock) -> None:
        state, stream, packed = self._state, self._stream, self._packed
        packed_address = np.uint64(array_address(packed))
        address = np.uint64(array_address(block.array))
        while True:
            code = inflate_members(
                INFLATE.addresses, state.address, state.words, state.halves, stream, packed,
                packed_address, address, block.stop, self._ended,
            )  # fmt: skip
            if code == FULL:
                return
            if code == TRAILING:
                raise TrailingBytesError(behind_empty=stream[SIZE] == 0)
            if code != NEED_INPUT:
                raise igzip_lib.IsalError(_PROBLEMS.get(code, f"Error {code} Unknown error"))
            if not self._whole and stream[TO] > block.first:
                return
            if self._ended:
                if stream[PHASE] != BETWEEN:
                    raise EOFError
                return
            self._read()

    def _read(self) -> None:
        """Read more compressed bytes after the few that are left."""
        stream, packed = self._stream, self._packed
        left = packed[stream[AT] : stream[STOP]].copy()
        stream[AT] = PUSHED
        stream[STOP] = PUSHED + len(left)
        packed[PUSHED : stream[STOP]] = left
        count = self._file.readinto(packed.data[stream[STOP] :])
        stream[STOP] += count
        self._ended = count == 0
