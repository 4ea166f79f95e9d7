"""Blocks of decompressed text, produced ahead of the parser by one thread or by a team.

``streamer.sequences.bz2_xz`` decompresses most formats, xopen decompresses zstd. BGZF
(``streamer.sequences.bgzf``) is read in groups of blocks, which the threads of a team decompress in
parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xopen import xopen

from streamer.errors import warn
from streamer.sequences.bgzf import GZIP_WITH_EXTRA, Watched, block_groups, inflated
from streamer.sequences.bz2_xz import COMPRESSIONS, Members, TrailingBytesError
from streamer.sequences.cram import MAGIC as CRAM_MAGIC
from streamer.sequences.cram import cram_blocks
from streamer.sequences.gzip_members import GzipMembers
from streamer.sequences.inflate import INFLATE
from streamer.sequences.parallel_gzip import parallel_blocks
from streamer.sequences.plain_blocks import plain_blocks
from streamer.sequences.prefetch import prefetched
from streamer.sequences.raw_file import Buffered, Packed, RawFile, Readable
from streamer.sequences.text_window import BLOCK_BYTES, TextBlock, new_block
from trie.cpu.team import Line, Team

_MAGICS = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    # frames that decompressors skip: pzstd writes one before every other
    *((bytes([0x50 + i]) + b"\x2a\x4d\x18", "zst") for i in range(16)),
)
_READ_BYTES = 1 << 17
_BLOCKS_AHEAD = 4
_AHEAD_BYTES = 10 << 20  # with a team: more than a batch of it, or one thread waits for another

_Groups = Line[NDArray[np.uint8], tuple[NDArray[np.uint8], TextBlock | None]]


def compression_at(start: bytes) -> str | None:
    """Return the compression of a file that starts so: gz, bz2, xz or zst; None for plain."""
    return next((name for magic, name in _MAGICS if start.startswith(magic)), None)


def text_blocks(
    raw: RawFile,
    stack: ExitStack,
    team: Team | None,
    *,
    shown: str,
    pause: TextBlock | None = None,
    size: int = BLOCK_BYTES,
) -> tuple[Any, Watched | None]:
    """Return an iterator of blocks, which the caller closes, and the watcher of a gzip file's end.

    stack: closes whatever else is opened. shown: the file's name in errors. pause: yielded whenever
    no block is ready; only without a team. size: the most bytes per block.
    """
    compression = compression_at(raw.magic)
    watched = Watched(raw) if compression == "gz" else None
    if team is not None and watched is not None and _may_be_bgzf(raw):
        return _Bgzf(watched, team, size, shown, whole=raw.regular), watched
    if compression is None:
        cram = raw.magic.startswith(CRAM_MAGIC)
        blocks = cram_blocks(raw, shown) if cram else plain_blocks(raw, size, team)
    elif watched is not None and "gz" in COMPRESSIONS:
        blocks = _without_rest(_gzip(watched, raw, size, team), watched, shown)
    else:
        file = _decompressed(watched or raw, compression, stack)
        blocks = _without_rest(_filled(file, size, whole=raw.regular), watched, shown)
    if team is None:
        return prefetched(blocks, _BLOCKS_AHEAD, pause=pause), watched
    stage = "read" if compression is None else "decompress"
    read = counted(blocks, team, stage)
    ahead = max(_BLOCKS_AHEAD, _AHEAD_BYTES // size)
    return team.line(read, lambda block: block, ahead, pulls=stage), watched


def _may_be_bgzf(raw: RawFile) -> bool:
    return "gz" in COMPRESSIONS and raw.magic.startswith(GZIP_WITH_EXTRA)


def counted(blocks: Iterator[TextBlock], team: Team, stage: str) -> Iterator[TextBlock]:
    """Yield the blocks and count their bytes for a stage of the team."""
    for block in blocks:
        team.stages.count(stage, block.stop - block.first)
        yield block


def _decompressed(raw: Watched | RawFile, compression: str, stack: ExitStack) -> Readable:
    if compression in COMPRESSIONS:
        return Members(raw, compression)
    # zstd in this process, since a child process would report every error alike
    threads = 1 if compression == "gz" else 0
    file: Any = xopen(Buffered(raw), "rb", format=compression, threads=threads)
    return stack.enter_context(file)


def _gzip(watched: Watched, raw: RawFile, size: int, team: Team | None) -> Iterator[TextBlock]:
    """Decompress a gzip file into blocks, with rapidgzip's threads if that pays."""
    rest = partial(_members, watched, size, whole=raw.regular)
    return rest() if team is None else parallel_blocks(raw, size, team, rest)


def _members(
    file: Packed, size: int, *, whole: bool, last: int | None = None
) -> Iterator[TextBlock]:
    """Decompress a gzip file into blocks."""
    if INFLATE.missing:
        return _filled(Members(file, "gz", last), size, whole=whole)
    return GzipMembers(file, whole=whole, last=last).blocks(size)


def _without_rest(
    blocks: Iterator[TextBlock], watched: Watched | None, shown: str
) -> Iterator[TextBlock]:
    """Yield the blocks; warn if other bytes follow the compressed data, as gzip does.

    In BGZF only after the block that ends the file: elsewhere, blocks may follow them.
    """
    try:
        yield from blocks
    except TrailingBytesError as error:
        if watched is not None and watched.bgzf and not error.behind_empty:
            raise
        warn(f"{shown}: other bytes follow the compressed data: they are ignored")


class _Bgzf(Iterator[TextBlock]):
    """The blocks of a BGZF file, in order; from where it stops being BGZF, those of plain gzip."""

    def __init__(self, file: Watched, team: Team, size: int, shown: str, *, whole: bool) -> None:
        self._file = file
        self._shown = shown
        self._last: int | None = None  # bytes of text in the last block
        self._size = size
        self._whole = whole
        self._team = team
        # a group has megabytes, and about as many threads decompress as parse and match
        ahead = team.threads // 2 + _BLOCKS_AHEAD
        self._line: _Groups = team.line(
            block_groups(file, size, whole=whole), inflated, ahead,
            pulls="read", works="decompress",
        )  # fmt: skip
        self._rest: Iterator[TextBlock] | None = None

    def __next__(self) -> TextBlock:
        if self._rest is None:
            packed, block = next(self._line)
            if block is not None:
                self._last = int.from_bytes(packed[-4:].tobytes(), "little")
                self._team.stages.count("decompress", block.stop - block.first)
                return block
            chained = _Chained(packed, self._line, whole=self._whole)
            rest = _members(chained, self._size, whole=self._whole, last=self._last)
            self._rest = _without_rest(rest, self._file, self._shown)
        return next(self._rest)

    def close(self) -> None:
        """Stop reading ahead."""
        self._line.close()


class _Chained:
    """The compressed bytes from a given group on, as a file."""

    def __init__(self, packed: NDArray[np.uint8], line: _Groups, *, whole: bool) -> None:
        self._packed = packed
        self._line = line
        self._whole = whole

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        data = bytearray(size)
        return bytes(data[: self.readinto(memoryview(data))])

    def readinto(self, buffer: Any, /) -> int:
        """Read as many bytes as fit; fewer at the end or from a pipe."""
        count = 0
        while count < len(buffer) and (self._whole or not count):
            if not self._packed.size:
                following = next(self._line, None)
                if following is None:
                    break
                self._packed = following[0]
            data = self._packed[: len(buffer) - count]
            buffer[count : count + data.size] = data.data
            count += data.size
            self._packed = self._packed[data.size :]
        return count


def _filled(file: Readable, most: int, *, whole: bool) -> Iterator[TextBlock]:
    """Yield blocks of decompressed text; ``whole``: all but the last are full, even on an error."""
    while True:
        block = new_block(most)
        stop = block.first
        try:
            while stop < block.stop and (data := file.read1(min(_READ_BYTES, block.stop - stop))):
                block.array.data[stop : stop + len(data)] = data
                stop += len(data)
                if not whole:
                    break
        except BaseException:
            if stop > block.first:
                yield block._replace(stop=stop)
            raise
        if stop == block.first:
            return
        yield block._replace(stop=stop)
