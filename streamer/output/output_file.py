"""Output files: complete or absent, compressed by their suffix, errors with their names."""

import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from streamer.errors import ReaderGoneError, StreamerError, UsageError
from trie.new_file import NewFile, WithCommit

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that ends a file."""

_HEAD, _AROUND = 16, 26  # bytes of a block before its size, and besides the deflated text
_TEXT_BYTES = 0xFF00  # of text per block, as in other programs


def packed_blocks(text: bytes, level: int | None = 6) -> bytes:
    """Return BGZF blocks that hold the text, without the block that ends a file.

    level: 0 to 9; None for what is fast.
    """
    blocks: list[bytes] = []
    library = import_module("isal.isal_zlib" if level is None and find_spec("isal") else "zlib")
    for at in range(0, len(text), _TEXT_BYTES):
        part = text[at : at + _TEXT_BYTES]
        packer = library.compressobj(1 if level is None else level, wbits=-zlib.MAX_WBITS)
        # without a flush first isal hashes a stale register: equal texts may give other bytes
        packed = packer.compress(part[:8]) + packer.flush(zlib.Z_SYNC_FLUSH)
        packed += packer.compress(part[8:]) + packer.flush()
        ends = struct.pack("<II", zlib.crc32(part), len(part))
        blocks += END_BLOCK[:_HEAD], struct.pack("<H", len(packed) + _AROUND - 1), packed, ends
    return b"".join(blocks)


class BgzfWriter:
    """Compresses what is written to a file, which stays open."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._text = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        """Take all of the data; write whole blocks."""
        self._text += data
        whole = len(self._text) // _TEXT_BYTES * _TEXT_BYTES
        self._file.write(packed_blocks(bytes(self._text[:whole])))
        del self._text[:whole]
        return len(data)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write one part after another."""
        for part in parts:
            self.write(part)

    def flush(self) -> None:
        """Write everything, in a short block if need be."""
        self._file.write(packed_blocks(bytes(self._text)))
        self._text.clear()
        self._file.flush()

    def close(self) -> None:
        """Write the rest and the end block."""
        self.flush()
        self._file.write(END_BLOCK)


_EMPTY_ZSTD = b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"
"""An empty frame (RFC 8878): the library writes none, but readers expect one."""

_COMPRESSIONS = {
    ".gz": "gz", ".bgz": "bgzf", ".bgzf": "bgzf", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"
}  # fmt: skip


def compression_of(path: str) -> str | None:
    """Return the compression for a name's suffix: gz, bgzf, bz2, xz or zst; None for plain."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def suffix_of(path: str | None) -> str:
    """Return the suffix of a name, in lower case, without that of a compression before it."""
    path = path or ""
    if compression_of(path):
        path = os.path.splitext(path)[0]
    return os.path.splitext(path)[1].lower()


ALIGNMENTS = (".sam", ".bam", ".cram")
"""Suffixes of alignments, or of reads in such a format."""

_LEVELS = {"gz": (0, 9), "bgzf": (0, 9), "bz2": (1, 9), "xz": (0, 9), "zst": (1, 19)}
"""The least and greatest of each compression."""


def check_record_output(path: str | None, level: int | None = None) -> bool:
    """UsageError for a name or a level that is not possible; return whether it is compressed."""
    kind, compression = suffix_of(path), compression_of(path or "")
    if kind in ALIGNMENTS and compression:
        raise UsageError(f"{path}: alignments are compressed in BAM and CRAM: rename it")
    compression = "bgzf" if kind in (".bam", ".cram") else compression
    if compression and level is not None:
        least, most = _LEVELS[compression]
        if not least <= level <= most:
            raise UsageError(f"--level {level}: {path} has levels {least} to {most}")
    return compression is not None


class OutputFile(WithCommit):
    """A binary file that a user named, or standard output (None or ``-``).

    A file replaces an older one at ``commit``; until then, and after ``discard``, the old one stays
    (``trie.new_file``). Every method raises StreamerError with the name and the cause, and
    ReaderGoneError for a pipe without a reader.

    verb: the failed action in errors. plain: do not compress, whatever the suffix. level: of the
    compression; None for its default. live: flush
    every write, so that everything written survives a kill; always so if the output is not a
    regular file.
    """

    def __init__(
        self,
        path: str | None,
        *,
        verb: str = "cannot write",
        plain: bool = False,
        level: int | None = None,
        live: bool = False,
    ) -> None:
        self._verb = verb
        self._new: NewFile | None = None
        self._file: Any = sys.stdout.buffer
        self._name = "standard output"
        self._live = True
        self._empty = b""  # the content of a file that nothing is written to
        if path is None or path == "-":
            return
        self._name = path
        with self._naming():
            self._new = NewFile(path)
            self._file = self._new.file
            self._live = live or not self._new.replaces
            compression = None if plain else compression_of(path)
            if compression == "bgzf":
                self._file = BgzfWriter(self._new.file)
            elif compression is not None:
                from xopen import xopen

                # in this process: an interrupt would reach a child process too
                self._file = xopen(
                    self._new.file, "wb", format=compression, compresslevel=level, threads=0
                )
                self._empty = _EMPTY_ZSTD if compression == "zst" else b""

    @property
    def raw(self) -> Any:
        """The open file itself, for a library that writes to its descriptor."""
        return self._file

    def write(self, data: bytes | memoryview) -> None:
        """Write all of the data."""
        rest = memoryview(data)
        if len(rest):
            self._empty = b""
        with self._naming():
            # unbuffered standard output (python -u) may write only a part
            while len(rest):
                rest = rest[self._file.write(rest) :]
            if self._live:
                self._file.flush()

    def write_all(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write many small parts, one after another."""
        self._empty = b""
        with self._naming():
            self._file.writelines(parts)

    def finish(self) -> None:
        """Write everything outstanding; ``commit`` then only puts the file in its place."""
        if self._new is None or self._new.file.closed:
            return
        try:
            with self._naming():
                if self._file is not self._new.file:
                    self._file.close()
                self._new.file.write(self._empty)
                self._new.finish()
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        """Finish the file and put it in its place."""
        if self._new is None:
            return
        self.finish()
        with self._naming():
            self._new.commit()

    def discard(self) -> None:
        """Leave the place as it was."""
        if self._new is None:
            return
        with suppress(Exception):  # a compressor may be in the middle of a failed write
            self._file.close()
        self._new.discard()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            raise StreamerError(f"{self._name}: {self._verb}: {error.strerror or error}") from error


class OutputFiles(WithCommit):
    """The files of one result: none takes its place before all are finished."""

    def __init__(self) -> None:
        self._files: list[OutputFile] = []

    def open(self, path: str | None, **options: Any) -> OutputFile:
        """Open one more file, as ``OutputFile``; it is committed or discarded with the others."""
        self._files.append(OutputFile(path, **options))
        return self._files[-1]

    def commit(self) -> None:
        """Finish all files, then put each in its place."""
        try:
            for file in self._files:
                file.finish()
        except BaseException:
            self.discard()
            raise
        with ExitStack() as places:
            # a failed rename must not prevent the others
            for file in reversed(self._files):
                places.callback(file.commit)

    def discard(self) -> None:
        """Leave all places as they were."""
        for file in self._files:
            file.discard()


def write_file(path: str, parts: Iterable[bytes | memoryview], *, plain: bool = False) -> None:
    """Write a complete file from these parts; ``plain``: as in ``OutputFile``."""
    with OutputFile(path, plain=plain) as file:
        file.write_all(parts)


LineFormat = Literal["tsv", "jsonl"]
RowsFormat = Literal["tsv", "jsonl", "arrow", "parquet"]

_FORMATS: dict[str, RowsFormat] = {
    "": "tsv", ".tsv": "tsv", ".txt": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".arrow": "arrow", ".parquet": "parquet",
}  # fmt: skip
"""The format of a file by its suffix, before that of a compression."""


def rows_format(choice: RowsFormat | None, path: str | None) -> RowsFormat:
    """Return the format ``choice``, or that of the suffix of a name.

    Raises UsageError for an unknown suffix, and if a package for the format is missing.
    """
    format_ = choice or _FORMATS.get(suffix_of(path))
    if format_ is None:
        known = ", ".join(filter(None, _FORMATS))
        raise UsageError(
            f"{path}: {suffix_of(path)} is none of {known}: rename it or give --format"
        )
    if format_ in ("arrow", "parquet"):
        check_arrow()
    return format_


def line_format(format_: RowsFormat, what: str) -> LineFormat:
    """Return a format of lines; UsageError for another one. what: needs lines."""
    if format_ in ("tsv", "jsonl"):
        return format_
    raise UsageError(f"{what}: its rows are lines, --format tsv or jsonl")


def check_arrow() -> None:
    """Raise UsageError if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise UsageError("Arrow and Parquet need pyarrow: pip install '.[arrow]' in a clone")
