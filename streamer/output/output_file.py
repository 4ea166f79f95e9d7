"""Output files: complete or not there, compressed as their names say, errors with their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamer.errors import ReaderGoneError, StreamerError
from trie.new_file import NewFile

_COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}


def compression_of(path: str) -> str | None:
    """What the suffix of a name stands for: gz, bz2, xz or zst; None for plain."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


class OutputFile:
    """A file that users named, or standard output (None or ``-``), for bytes.

    A file takes its place at ``commit``; until then, and after ``discard``, what was there before
    stays (``trie.new_file``). Every method raises StreamerError with the name and the cause, and
    ReaderGoneError for a pipe that nobody reads.

    verb: what cannot be done, in errors. live: nothing waits in a buffer, so that a file has all
    that was written even if the process is killed; so it is with what is no regular file.
    """

    def __init__(self, path: str | None, *, verb: str = "cannot write", live: bool = False) -> None:
        self._verb = verb
        self._new: NewFile | None = None
        self._file: Any = sys.stdout.buffer
        self._name = "standard output"
        self._live = True
        if path is None or path == "-":
            return
        self._name = path
        with self._naming():
            self._new = NewFile(path)
            self._file = self._new.file
            self._live = live or not self._new.replaces
            compression = compression_of(path)
            if compression is not None:
                from xopen import xopen

                # in this process: what compresses elsewhere would see interrupts of its own
                self._file = xopen(self._new.file, "wb", format=compression, threads=0)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it."""
        rest = memoryview(data)
        with self._naming():
            # standard output may have no buffer (python -u): then a write may take a part only
            while len(rest):
                rest = rest[self._file.write(rest) :]
            if self._live:
                self._file.flush()

    def write_all(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write many small parts to a file, one after another."""
        with self._naming():
            self._file.writelines(parts)

    def commit(self) -> None:
        """Nothing follows: put the file in its place."""
        if self._new is None:
            return
        try:
            with self._naming():
                if self._file is not self._new.file:
                    self._file.close()
                self._new.commit()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave the place as it was."""
        if self._new is None:
            return
        with suppress(Exception):  # a compressor may be amid a write that failed
            self._file.close()
        self._new.discard()

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            message = f"{self._name}: {self._verb}: {error.strerror or error}"
            raise StreamerError(message) from error


def write_file(path: str, parts: Iterable[bytes | memoryview]) -> None:
    """A whole file of these parts, one after another."""
    with OutputFile(path) as file:
        file.write_all(parts)
