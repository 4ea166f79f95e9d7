"""Blocks of decompressed text, made ahead of the parser by a thread of their own or by a team.

``streamer.sequences.bz2_xz`` decompresses, for zstd xopen; BGZF some blocks at a time
(``streamer.sequences.bgzf``), which the threads of a team do side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from xopen import xopen

from streamer.sequences.bgzf import GZIP_WITH_EXTRA, Watched, block_groups, inflated
from streamer.sequences.bz2_xz import COMPRESSIONS, Members
from streamer.sequences.cram import MAGIC as CRAM_MAGIC
from streamer.sequences.cram import cram_blocks
from streamer.sequences.plain_blocks import plain_blocks, plain_blocks_at_once
from streamer.sequences.prefetch import prefetched
from streamer.sequences.raw_file import Buffered, RawFile, Readable
from streamer.sequences.text_window import BLOCK_BYTES, TextBlock, new_block
from trie.cpu.team import Line, Team

_MAGICS = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
)
_READ_BYTES = 1 << 17
_BLOCKS_AHEAD = 4


def text_blocks(
    raw: RawFile,
    stack: ExitStack,
    team: Team | None,
    *,
    shown: str,
    pause: TextBlock | None = None,
    size: int = BLOCK_BYTES,
) -> tuple[Any, Watched | None]:
    """An iterator of blocks, to be closed, and what watches the end of a gzip file.

    stack: closes what else it opens. shown: the file's name in errors. pause: comes between the
    blocks while none of them comes; without a team. size: of a block, in bytes, at most.
    """
    compression = next((name for magic, name in _MAGICS if raw.magic.startswith(magic)), None)
    watched = Watched(raw) if compression == "gz" else None
    if team is not None and watched is not None and _may_be_bgzf(raw):
        return _Bgzf(watched, team), watched
    if compression is None:
        cram = raw.magic.startswith(CRAM_MAGIC)
        if cram:
            blocks = cram_blocks(raw, shown)
        elif team is None:
            blocks = plain_blocks(raw, size)
        else:
            blocks = plain_blocks_at_once(raw, size, team)
    else:
        blocks = _filled(_decompressed(watched or raw, compression, stack), size, whole=raw.regular)
    if team is None:
        return prefetched(blocks, _BLOCKS_AHEAD, pause=pause), watched
    stage = "read" if compression is None else "decompress"
    counted = _counted(blocks, team, stage)
    return team.line(counted, lambda block: block, _BLOCKS_AHEAD, pulls=stage), watched


def _may_be_bgzf(raw: RawFile) -> bool:
    return "gz" in COMPRESSIONS and raw.magic.startswith(GZIP_WITH_EXTRA)


def _counted(blocks: Iterator[TextBlock], team: Team, stage: str) -> Iterator[TextBlock]:
    for block in blocks:
        team.stages.count(stage, block.stop - block.first)
        yield block


def _decompressed(raw: Watched | RawFile, compression: str, stack: ExitStack) -> Readable:
    if compression in COMPRESSIONS:
        return Members(raw, compression)
    # zstd in this process, since errors of another are all alike
    threads = 1 if compression == "gz" else 0
    file: Any = xopen(Buffered(raw), "rb", format=compression, threads=threads)
    return stack.enter_context(file)


class _Bgzf(Iterator[TextBlock]):
    """The blocks of a BGZF file, in order; of another gzip file from where it is no BGZF on."""

    def __init__(self, file: Watched, team: Team) -> None:
        self._file = file
        self._team = team
        self._line: Line[bytes, tuple[bytes, TextBlock | None]] = team.line(
            block_groups(file), inflated, team.threads + _BLOCKS_AHEAD,
            pulls="read", works="decompress",
        )  # fmt: skip
        self._rest: Iterator[TextBlock] | None = None

    def __next__(self) -> TextBlock:
        if self._rest is None:
            packed, block = next(self._line)
            if block is not None:
                self._team.stages.count("decompress", block.stop - block.first)
                return block
            self._rest = _filled(
                Members(_Chained(packed, self._line), "gz"), BLOCK_BYTES, whole=True
            )
        return next(self._rest)

    def close(self) -> None:
        """End what is read ahead."""
        self._line.close()


class _Chained:
    """The packed bytes of the groups from a certain one on, as a file."""

    def __init__(self, packed: bytes, line: Line[bytes, tuple[bytes, TextBlock | None]]) -> None:
        self._packed = packed
        self._line = line

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
        while len(self._packed) < size and (following := next(self._line, None)):
            self._packed += following[0]
        data, self._packed = self._packed[:size], self._packed[size:]
        return data


def _filled(file: Readable, most: int, *, whole: bool) -> Iterator[TextBlock]:
    """Blocks of a decompressed file, which are ``whole`` but for the last; also before an error."""
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
