"""Decompress one gzip file in several threads: those of rapidgzip (extra parallel-gzip).

Rapidgzip runs in a process of its own: in this one its threads would take the GIL for every 128 KB
of the file, several times as often as all others.

    file | member of _END ─▶ pipe ─▶ rapidgzip ─▶ pipe ─▶ text ... | _END

It takes a file truncated within its deflate data for one that ends there. So a member with a known
text follows the file. If that text comes out last, the file was complete. Otherwise, and after any
error, ``rest`` starts over and skips what has been delivered: it finds the fault, its place and the
text before it. The last block is held back until then, as the member behind a truncated file may
decode to garbage. Header checksums are not verified.
"""

from __future__ import annotations

import ctypes
import fcntl
import gzip
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from typing import Self

from streamer.sequences.bgzf import igzip_lib
from streamer.sequences.raw_file import RawFile
from streamer.sequences.text_window import TextBlock, new_block
from trie.cpu.intrinsics import array_address
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores

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


def threads_for(raw: RawFile, team: Team) -> int:
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
    given = 0
    whole = False
    kept: TextBlock | None = None
    try:
        with team.lend(threads - 1, "decompress"), _Rapidgzip(raw, threads) as process:
            while (block := process.fill(new_block(size))).stop - block.first == size:
                if kept is not None:
                    yield kept
                    given += size
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
    yield from _behind(rest(), given)


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


class _Rapidgzip:
    """A process that decompresses a file, from where reading began, and the member of ``_END``.

    stop: the file's end at the beginning.
    """

    def __init__(self, raw: RawFile, threads: int) -> None:
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

    def fill(self, block: TextBlock) -> TextBlock:
        """Fill the block, less than full only at the end."""
        address = array_address(block.array) + block.first
        count: int = _LIBC.fread(address, 1, block.stop - block.first, self._text)
        return block._replace(stop=block.first + count)

    def succeeded(self) -> bool:
        """Whether the process found no fault, and the file is as it was when it started."""
        whole = self._child.wait() == 0
        return whole and os.fstat(self._file).st_size == self.stop
