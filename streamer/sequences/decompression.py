"""Blocks of decompressed text, made ahead of the parser by one thread or by a team.

    gzip      isal, member by member; several threads: rapidgzip, in a process of its own
              (extra parallel-gzip)
    BGZF      groups of blocks, which the threads of a team decompress (``bgzf``)
    bz2, xz   Python's decompressors, member by member, to the last byte
    zstd      xopen

Python's bzip2 and xz readers take anything after a member that does not start another one for the
end of the file: after padding, which xz allows, or a damaged header, reads would be lost silently.
Its gzip reader loses up to a megabyte before the point of truncation.

In this process the threads of rapidgzip would take the GIL for every 128 KB of the file.

    file | member of _END ─▶ pipe ─▶ rapidgzip ─▶ pipe ─▶ text ... | _END

It takes a file truncated within its deflate data for one that ends there, so a member with a known
text follows the file. If that text comes out last, the file was complete. Otherwise, and after any
error, ``rest`` starts over and skips what has been delivered: it finds the fault, its place and the
text before it. The last block is held back until then, as the member behind a truncated file may
decode to garbage. Header checksums are not verified.
"""

import bz2
import ctypes
import fcntl
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from xopen import xopen

from streamer.errors import warn
from streamer.sequences import bgzf, raw_file
from streamer.sequences.sam import MAGIC as CRAM_MAGIC
from streamer.sequences.sam import cram_blocks
from trie.cpu.intrinsics import array_address
from trie.cpu.team import Line, Team
from trie.cpu.threads import prefetched, usable_cores

_READ_BYTES = 1 << 17

_MEMBERS: dict[str, tuple[Callable[[], Any], bytes, bytes]] = {
    "bz2": (bz2.BZ2Decompressor, b"", b"BZh"),
    "xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), b"\0", b""),
}
"""The decompressor of one member, the padding allowed between two, and how a member begins if any
other bytes may follow the last one, as gzip and bzip2 allow."""

try:  # xopen installs isal on most machines; zlib's objects have other methods
    from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor

    _MEMBERS["gz"] = partial(IgzipDecompressor, DECOMP_GZIP), b"\0", b"\x1f\x8b\x08"
except ImportError:  # pragma: no cover
    pass

COMPRESSIONS = tuple(_MEMBERS)


class TrailingBytesError(ValueError):
    """Bytes that begin no member follow the last one.

    behind_empty: the last member is empty, as the one that ends a BGZF file.
    """

    def __init__(self, *, behind_empty: bool) -> None:
        self.behind_empty = behind_empty
        super().__init__("bytes that are no block stand before the block that ends a BGZF file")


class Members:
    """Reads the members of a file, decompressed, one after the other.

    Reading raises EOFError for a truncated member, TrailingBytesError, and the decompressor's own
    error (OSError, LZMAError, IsalError) for any other fault, after all data before it has been
    returned. A beginning with one byte of the three changed is that of a damaged member.
    last: the size of the text of a member before the file's first one; None: there is none.
    """

    def __init__(self, file: raw_file.Readable, compression: str, last: int | None = None) -> None:
        self._file = file
        self._begin, self._padding, self._magic = _MEMBERS[compression]
        self._member: Any = None
        self._data = b""
        self._last = last
        # isal loses its place in a header that comes in pieces: what has come without any text yet
        self._head: bytes | None = None
        self._again = compression == "gz"

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        out = b""
        while not out:
            if self._member is not None and self._member.eof:
                self._data, self._member = self._member.unused_data, None
            if not self._data and (self._member is None or self._member.needs_input):
                self._data = self._file.read1(_READ_BYTES)
                if not self._data:
                    if self._member is not None:
                        raise EOFError
                    break
            if self._member is None:
                self._data = self._data.lstrip(self._padding)
                if not self._data:
                    continue
                if self._last is not None and self._magic:
                    self._check_begin()
                self._head, self._last = b"", 0
            if self._head is not None:
                self._head += self._data
                self._member, self._data = self._begin(), self._head
            out = self._member.decompress(self._data, size)
            self._last = (self._last or 0) + len(out)
            self._data = b""
            if out or self._member.eof or not self._again:
                self._head = None
        return out

    def _check_begin(self) -> None:
        """Raise TrailingBytesError if no member begins, not even a damaged one."""
        magic = self._magic
        while len(self._data) < len(magic) and (more := self._file.read1(_READ_BYTES)):
            self._data += more
        begin = self._data[: len(magic)]
        same = sum(byte == other for byte, other in zip(begin, magic, strict=False))
        if same < len(begin) - (len(begin) == len(magic)):
            raise TrailingBytesError(behind_empty=self._last == 0)


LEAST_THREADS = 6
"""Rapidgzip's fewest threads that pay off: it takes nearly twice the CPU time of isal."""

_SHARE = 3, 4  # of the threads: it takes longer than parsing and matching

LEAST_BYTES = 1 << 24
"""The smallest file that pays off, in bytes: a smaller one ends too soon."""

_END = random.Random(1952).randbytes(64)  # no real file ends with this
_BEHIND = gzip.compress(_END, mtime=0)
# Each thread of rapidgzip holds the text of several megabytes of the file: gigabytes, if the text
# is highly repetitive.
_SAMPLE_BYTES, _MOST_RATIO = 1 << 18, 16
_CHUNK_KB = 512, 4096  # of the file, per task of a thread: the least and the most
_PIPE_BYTES = 1 << 20

# a block has a hundred pieces, as they come out of the pipe; for each, Python would take the GIL
_LIBC = ctypes.CDLL(None)
_LIBC.fdopen.restype = ctypes.c_void_p
_LIBC.fread.restype = ctypes.c_size_t
_LIBC.fread.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
_LIBC.fclose.argtypes = (ctypes.c_void_p,)


def threads_for(raw: raw_file.RawFile, team: Team) -> int:
    """Return how many threads rapidgzip gets of those that work; 0 if it does not pay."""
    threads = (min(team.threads, usable_cores()) - team.lent) * _SHARE[0] // _SHARE[1]
    extent = raw.extent
    if threads < LEAST_THREADS or extent is None:
        return 0
    number, start, stop = extent
    if stop - start < LEAST_BYTES or find_spec("rapidgzip") is None:
        return 0
    sample = os.pread(number, _SAMPLE_BYTES, start)
    most = _MOST_RATIO * len(sample)
    try:
        text = bgzf.igzip_lib.IgzipDecompressor(bgzf.igzip_lib.DECOMP_GZIP).decompress(sample, most)
    except bgzf.igzip_lib.IsalError:
        return 0
    return threads if len(text) < most else 0


def parallel_blocks(
    raw: raw_file.RawFile, size: int, team: Team, rest: Callable[[], Iterator[raw_file.TextBlock]]
) -> Iterator[raw_file.TextBlock]:
    """Yield the text of a gzip file in blocks of ``size`` bytes; raise what ``rest`` raises.

    As many threads of the team sleep as rapidgzip has, except for the one that reads. rest: yields
    the blocks of the file from its first byte on by other means; it yields all of them where
    threads do not pay.
    """
    threads = threads_for(raw, team)
    if not threads:
        yield from rest()
        return
    passed_on = 0
    whole = False
    kept: raw_file.TextBlock | None = None
    try:
        with team.lend(threads - 1, "decompress"), _Rapidgzip(raw, threads) as process:
            while (block := process.fill(raw_file.new_block(size))).stop - block.first == size:
                if kept is not None:
                    yield kept
                    passed_on += size
                kept = block
            ended, kept = _without_end(kept, block)
            whole = ended and process.succeeded()
    except (OSError, RuntimeError):  # no process or no thread
        kept = None
    if whole:
        raw.go_to(process.stop)
        if kept is not None:
            yield kept
        return
    raw.bytes_read = 0
    yield from _behind(rest(), passed_on)


def _without_end(
    kept: raw_file.TextBlock | None, last: raw_file.TextBlock
) -> tuple[bool, raw_file.TextBlock | None]:
    """Return whether the text ends with ``_END``, and the last two blocks as one, without it."""
    before = 0 if kept is None else kept.stop - kept.first
    both = raw_file.new_block(before + last.stop - last.first)
    middle = both.first + before
    if kept is not None:
        both.array[both.first : middle] = kept.array[kept.first : kept.stop]
    both.array[middle : both.stop] = last.array[last.first : last.stop]
    stop = both.stop - len(_END)
    if stop < both.first or both.array[stop : both.stop].tobytes() != _END:
        return False, None
    return True, both._replace(stop=stop) if stop > both.first else None


def _behind(blocks: Iterator[raw_file.TextBlock], skipped: int) -> Iterator[raw_file.TextBlock]:
    """Yield the blocks without their first ``skipped`` bytes."""
    for block in blocks:
        passed = min(skipped, block.stop - block.first)
        skipped -= passed
        if passed < block.stop - block.first:
            yield block._replace(first=block.first + passed)


class _Rapidgzip:
    """A process that decompresses a file, from where reading began, and the member of ``_END``.

    stop: the file's end at the beginning.
    """

    def __init__(self, raw: raw_file.RawFile, threads: int) -> None:
        assert raw.extent is not None
        self._raw = raw
        self._file, self._start, self.stop = raw.extent
        part = (self.stop - self._start) // threads >> 10
        # -P: nothing of the working directory is imported
        program = [sys.executable, "-P", "-c", "import rapidgzip; exit(rapidgzip.cli())"]
        self._child = subprocess.Popen(
            [*program, "-dcP", str(threads), f"--chunk-size={sorted((part, *_CHUNK_KB))[1]}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        for end in self._child.stdin, self._child.stdout:
            assert end is not None
            # a user's large pipes are limited
            with suppress(OSError):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._feeder = threading.Thread(target=self._feed, name="gzip", daemon=True)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            child = stack.enter_context(self._child)
            assert child.stdout is not None
            self._text = _LIBC.fdopen(os.dup(child.stdout.fileno()), b"rb")
            stack.callback(_LIBC.fclose, self._text)
            self._feeder.start()
            stack.callback(self._feeder.join)
            stack.callback(child.kill)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _feed(self) -> None:
        at, pipe = self._start, self._child.stdin
        assert pipe is not None
        with suppress(OSError), pipe:  # the file cannot be read, or the process has ended
            while count := os.sendfile(pipe.fileno(), self._file, at, self.stop - at):
                at += count
                self._raw.bytes_read = at - self._start
            if at == self.stop:
                pipe.write(_BEHIND)

    def fill(self, block: raw_file.TextBlock) -> raw_file.TextBlock:
        """Fill the block, less than full only at the end."""
        address = array_address(block.array) + block.first
        count: int = _LIBC.fread(address, 1, block.stop - block.first, self._text)
        return block._replace(stop=block.first + count)

    def succeeded(self) -> bool:
        """Whether the process found no fault, and the file is as it was when it started."""
        whole = self._child.wait() == 0
        return whole and os.fstat(self._file).st_size == self.stop


_MAGICS = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    # frames that decompressors skip: pzstd writes one before every other
    *((bytes([0x50 + i]) + b"\x2a\x4d\x18", "zst") for i in range(16)),
)
_BLOCKS_AHEAD = 4
_AHEAD_BYTES = 10 << 20  # with a team: more than a batch of it, or one thread waits for another

_Groups = Line[NDArray[np.uint8], tuple[NDArray[np.uint8], raw_file.TextBlock | None]]


def compression_at(start: bytes) -> str | None:
    """Return the compression of a file that starts so: gz, bz2, xz or zst; None for plain."""
    return next((name for magic, name in _MAGICS if start.startswith(magic)), None)


def text_blocks(
    raw: raw_file.RawFile,
    stack: ExitStack,
    team: Team | None,
    *,
    shown: str,
    pause: raw_file.TextBlock | None = None,
    size: int = raw_file.BLOCK_BYTES,
) -> tuple[Any, bgzf.Watched | None]:
    """Return an iterator of blocks, which the caller closes, and the watcher of a gzip file's end.

    stack: closes whatever else is opened. shown: the file's name in errors. pause: yielded whenever
    no block is ready; only without a team. size: the most bytes per block.
    """
    compression = compression_at(raw.magic)
    watched = bgzf.Watched(raw) if compression == "gz" else None
    if team is not None and watched is not None and _may_be_bgzf(raw):
        return _Bgzf(watched, team, size, shown, whole=raw.regular), watched
    if compression is None:
        cram = raw.magic.startswith(CRAM_MAGIC)
        blocks = cram_blocks(raw, shown) if cram else raw_file.plain_blocks(raw, size)
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


def _may_be_bgzf(raw: raw_file.RawFile) -> bool:
    return "gz" in COMPRESSIONS and raw.magic.startswith(bgzf.GZIP_WITH_EXTRA)


def counted(
    blocks: Iterator[raw_file.TextBlock], team: Team, stage: str
) -> Iterator[raw_file.TextBlock]:
    """Yield the blocks and count their bytes for a stage of the team."""
    for block in blocks:
        team.stages.count(stage, block.stop - block.first)
        yield block


def _decompressed(
    raw: bgzf.Watched | raw_file.RawFile, compression: str, stack: ExitStack
) -> raw_file.Readable:
    if compression in COMPRESSIONS:
        return Members(raw, compression)
    # zstd in this process, since a child process would report every error alike
    threads = 1 if compression == "gz" else 0
    file: Any = xopen(
        io.BufferedReader(raw, _READ_BYTES), "rb", format=compression, threads=threads
    )
    return stack.enter_context(file)


def _gzip(
    watched: bgzf.Watched, raw: raw_file.RawFile, size: int, team: Team | None
) -> Iterator[raw_file.TextBlock]:
    """Decompress a gzip file into blocks, with rapidgzip's threads if that pays."""
    rest = partial(_members, watched, size, whole=raw.regular)
    return rest() if team is None else parallel_blocks(raw, size, team, rest)


def _members(
    file: raw_file.Readable, size: int, *, whole: bool, last: int | None = None
) -> Iterator[raw_file.TextBlock]:
    return _filled(Members(file, "gz", last), size, whole=whole)


def _without_rest(
    blocks: Iterator[raw_file.TextBlock], watched: bgzf.Watched | None, shown: str
) -> Iterator[raw_file.TextBlock]:
    """Yield the blocks; warn if other bytes follow the compressed data, as gzip does.

    In BGZF only after the block that ends the file: elsewhere, blocks may follow them.
    """
    try:
        yield from blocks
    except TrailingBytesError as error:
        if watched is not None and watched.bgzf and not error.behind_empty:
            raise
        warn(f"{shown}: other bytes follow the compressed data: they are ignored")


class _Bgzf(Iterator[raw_file.TextBlock]):
    """The blocks of a BGZF file, in order; from where it stops being BGZF, those of plain gzip."""

    def __init__(
        self, file: bgzf.Watched, team: Team, size: int, shown: str, *, whole: bool
    ) -> None:
        self._file = file
        self._shown = shown
        self._last: int | None = None  # bytes of text in the last block
        self._size = size
        self._whole = whole
        self._team = team
        # a group has megabytes, and about as many threads decompress as parse and match
        ahead = team.threads // 2 + _BLOCKS_AHEAD
        self._line: _Groups = team.line(
            bgzf.block_groups(file, size, whole=whole), bgzf.inflated, ahead,
            pulls="read", works="decompress",
        )  # fmt: skip
        self._rest: Iterator[raw_file.TextBlock] | None = None

    def __next__(self) -> raw_file.TextBlock:
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
        """Read ``size`` bytes; fewer at the end or from a pipe."""
        parts: list[bytes] = []
        while size and (self._whole or not parts):
            if not self._packed.size:
                following = next(self._line, None)
                if following is None:
                    break
                self._packed = following[0]
            parts.append(self._packed[:size].tobytes())
            self._packed = self._packed[size:]
            size -= len(parts[-1])
        return b"".join(parts)


def _filled(file: raw_file.Readable, most: int, *, whole: bool) -> Iterator[raw_file.TextBlock]:
    """Yield blocks of decompressed text; ``whole``: all but the last are full, even on an error."""
    while True:
        block = raw_file.new_block(most)
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
