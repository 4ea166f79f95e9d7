"""Targets of the fuzzer that read files: sequences, configurations, journals.

Files of other formats, and damaged compressed files, of which any part may be read before the
damage is noticed, may only raise the documented error.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from streamer.daemon.config import load
from streamer.errors import ConfigError, DataError, StreamerError
from streamer.journal.record_index import NAME
from streamer.sequences import files
from tests.data_files import ROOT
from tests.fuzz.targets import OfBytes
from tests.reference import reader as plain
from tests.streamer.journal.kit import open_small, picture, small_journal, verify
from tests.streamer.sequences.kit import bam_of, bgzf_block, bgzf_blocks

_FASTQ = (
    b"@r1 about it\nACGTNacgtnu\n+\nIIIIIIIIIII\n@\n\n+\n\n@r3\tx\nACG\n+r3\tx\n@+\x01\n"
    b"@" + "réad4".encode() + b" \xff\nRYK\n+\nIII\n\n \n@last\nA\n+\nI\n"
)
_FASTA = (
    b"# first\n\n>r1 about\nACGTN\n  acgtnu \t\n# a comment\n\n>r2\n >r3 x\x0b \nRYKM\n\nA\n"
    b">" + "réc4".encode() + b"\tx\n" + b"ACGTTGCAA\n" * 3 + b">\nAC\n"
)
_BAM = bam_of([("r1", "ACGTN"), ("r2", ""), ("r3", "ACGRYTTAC")])
_SAM = b"@HD\tVN:1.6\n@SQ\tSN:c\tLN:9\nr1\t4\t*\t0\t0\t*\t*\t0\t0\tACGTN\tIIIII\tch:i:3\n"
_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")


class SequenceFiles(OfBytes):
    """The target."""

    name = "sequences"
    words = (
        *(
            b"\n",
            b"\r",
            b"\r\n",
            b"@",
            b">",
            b"+",
            b"#",
            b" ",
            b"\t",
            b"A",
            b"N",
            b"!",
            b"\0",
            b"\xff",
        ),
        *(b"\n>", b"\n@", b"\n+\n", b"\xc3\xa9", b"\n\n", b"ACGT", b"\xff\xff\xff\x7f", _END),
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._path = Path(self.folder.name) / "f"

    def take(self, data: bytes) -> str:
        """Read a file with both readers."""
        self._path.write_bytes(data)
        path = str(self._path)
        found, fault = _outcome(files.read_batches([path]))
        if fault is not None:
            assert fault.startswith(path) and "\n" not in fault.removeprefix(path), fault
        begin = data.lstrip()
        # the plain reader knows fewer formats
        other = begin.startswith((b"@HD\t", b"@SQ\t", b"@RG\t", b"@PG\t", b"@CO\t", b"CRAM"))
        wanted, error = _outcome(plain.read_batches([path]))
        nothing = error is not None and "not a FASTA" in error
        if other or (nothing and fault != error):
            return "another format"
        if data.startswith(_PACKED):
            shorter = min(len(found), len(wanted))
            assert found[:shorter] == wanted[:shorter]
            assert (fault is None) == (error is None), (fault, error)
            assert fault is not None or found == wanted
            return "packed" if fault is None else "packed, a fault"
        # the plain reader may show less of a line that is not a header
        assert (found, _place(fault)) == (wanted, _place(error))
        return "read" if fault is None else "a fault"

    def seeds(self) -> list[bytes]:
        """Files of each format, compressed and not."""
        plain_files = [_FASTQ, _FASTA, _BAM, _SAM, b"\n\n", b"ACGT\n"]
        plain_files += [text.replace(b"\n", end) for text in (_FASTQ, _FASTA) for end in (b"\r\n",)]
        packed = [gzip.compress(text, mtime=0) for text in (_FASTQ, _FASTA, _BAM)]
        packed += [bz2.compress(_FASTA), lzma.compress(_FASTQ), bgzf_block(_FASTA) + _END]
        packed += [b"".join(bgzf_blocks(_BAM, 50)) + _END, packed[0] + packed[0]]
        return plain_files + packed


def _place(fault: str | None) -> str | None:
    return fault and fault.partition(", not '")[0]


def _outcome(batches: Any) -> tuple[list[tuple[str, bytes]], str | None]:
    """The name and codes of every record, and the error as users see it."""
    rows: list[tuple[str, bytes]] = []
    try:
        for batch in batches:
            codes = batch.bases.tobytes()
            lengths = pairwise(batch.offsets.tolist())
            rows += [(n, codes[a:b]) for n, (a, b) in zip(batch.names, lengths, strict=True)]
    except DataError as error:
        return rows, str(error)
    return rows, None


_PATHS = {"sources", "directory", "ledger", "directories", "results", "keys", "token_file"}
_PAIRS = ROOT / "tests" / "streamer" / "daemon" / "configs"


class ConfigFiles(OfBytes):
    """The target."""

    name = "config"
    words = (
        *(b"[", b"]", b"=", b"\n", b'"', b"'", b'"""', b"{", b"}", b"#", b",", b".", b"\\", b"\0"),
        *(
            b"[" * 1500,
            b"9" * 5000,
            b"0x" + b"f" * 5000,
            b"1e999",
            b"nan",
            b"-inf",
            b"true",
            b"[[a]]",
        ),
        *(b"~", b'"~\\u0000"', b'"\\u0000"', b"1979-05-27", b"\xff", b"\xc3\xa9", b"\r", b"\r\n"),
        *(b"k = ", b"sources = ", b"[dictionary]\n", b"[web]\n", b"keys = ", b"endpoint = "),
        *(b'"tcp://', b'"ipc://', b"-1", b"9223372036854775808", b'"x"', b"[]", b"{}", b"1_0"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._path = Path(self.folder.name) / "f.toml"

    def take(self, data: bytes) -> str:
        """Load a configuration."""
        self._path.write_bytes(data)
        try:
            config = load(str(self._path))
        except ConfigError as error:
            lines = error.lines()
            assert lines
            for line in lines:
                assert line.startswith(str(self._path)) and line.isprintable(), line
            return "refused"
        for table, keys in tomllib.loads(data.decode()).items():
            made = getattr(config, table)
            for key, value in keys.items():
                kept = getattr(made, key)
                if key == "endpoint":
                    # a host name of this machine is returned as its address
                    value = re.sub("^tcp://localhost:", "tcp://127.0.0.1:", value)
                if key not in _PATHS:
                    assert kept == value, (table, key, kept, value)
        return "accepted"

    def seeds(self) -> list[bytes]:
        """Valid configurations, invalid ones, and the shipped ones."""
        paths = [*sorted(_PAIRS.rglob("*.toml")), *sorted((ROOT / "configs").glob("*.toml"))]
        return [path.read_bytes() for path in paths if path.stat().st_size < 20_000]


_CHANGE = 6
_MOST_CHANGES = 6


class JournalFiles(OfBytes):
    """The target: a small journal with every kind of content."""

    name = "journal"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._made = Path(self.folder.name) / "made"
        small_journal(self._made, snapshot=5)
        self._files = {path.name: path.read_bytes() for path in sorted(self._made.iterdir())}
        self._names = [name for name, content in self._files.items() if content]
        self._wanted = picture(self._made)[0]

    def _write(self, files: dict[str, bytes]) -> None:
        for path in self._made.iterdir():  # in another folder, it would be another stream
            path.unlink()
        for name, content in files.items():
            (self._made / name).write_bytes(content)

    def take(self, data: bytes) -> str:
        """Open a damaged journal, and read everything in it."""
        files = dict(self._files)
        for at in range(0, min(len(data), _CHANGE * _MOST_CHANGES), _CHANGE):
            _change(files, self._names, data[at : at + _CHANGE].ljust(_CHANGE, b"\0"))
        self._write(files)
        found, notes = None, list[str]()
        with suppress(StreamerError):
            found, notes = picture(self._made)
        if found == self._wanted:
            return "the same"
        changed = {name for name in files if files[name] != self._files[name]}
        assert not all(name.startswith(NAME) for name in changed), "the data are whole"
        if found is None:
            return "refused"
        with closing(open_small(self._made, durability="os")) as journal:
            assert notes or verify(journal), "damage that is not reported"
        return "reported"

    def seeds(self) -> list[bytes]:
        """A change of each kind in each file."""
        return [bytes((file, kind, 0, 80, 1, 1)) for file in range(8) for kind in range(4)]

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """Some changes."""

        def step(rng: random.Random) -> None:
            self.one(rng.randbytes(_CHANGE * rng.choice((1, 1, 1, 2, 4))))

        return step


def _change(files: dict[str, bytes], names: Sequence[str], change: bytes) -> None:
    """Flip a bit, replace a byte, truncate the file, or overwrite some bytes with zeros."""
    name = names[change[0] % len(names)]
    content = bytearray(files[name])
    if not content:
        return
    at = int.from_bytes(change[2:5], "big") % len(content)
    match change[1] % 8:
        case 0 | 1 | 2 | 3 | 4:
            content[at] ^= 1 << change[5] % 8
        case 5:
            content[at] = change[5]
        case 6:
            content[at : at + 1 + change[5]] = bytes(min(1 + change[5], len(content) - at))
        case 7:
            del content[at:]
    files[name] = bytes(content)
