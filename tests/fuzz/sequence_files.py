"""Sequence files: records and errors must equal those of a plain reader (tests/reference).

Files of other formats, and damaged compressed files, of which any part may be read before the
damage is noticed, may only raise the documented error.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from streamer.errors import DataError
from streamer.sequences import files
from tests.fuzz.targets import OfBytes
from tests.reference import reader as plain
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
