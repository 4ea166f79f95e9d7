"""Every kind of input gives the same reads."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from itertools import cycle

import numpy as np
import pytest

from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.sequences.files import read_batches
from streamer.sequences.source import size_of_files
from tests.reference import reader as before
from tests.streamer.sequences.kit import bam_of, bgzf_blocks, outcome
from tests.waiting import DEADLINE, unread, until
from trie.codes import encode

RECORDS = [("r1", "ACGTNACGU"), ("r2", ""), ("r3", "acgtnryACG")]
FASTA = ">r1 first\nACGTN\nACGU\n>r2\n>r3\nacgtnryACG\n"
FASTQ = "".join(f"@{n} about\n{s}\n+\n{'I' * len(s)}\n" for n, s in RECORDS)


def compress_zstd(data):
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd.compress(data)


CONTENTS = {
    "fasta": FASTA.encode(),
    "fastq": FASTQ.encode(),
    "fasta-crlf": FASTA.replace("\n", "\r\n").encode(),
    "fastq-crlf": FASTQ.replace("\n", "\r\n").encode(),
    "fasta-no-last-newline": FASTA.rstrip().encode(),
    "fasta-blank-first": b"\n\n" + FASTA.encode(),
    "fastq-no-last-newline": FASTQ[:-1].encode(),
    "bam": bam_of(RECORDS),
}
COMPRESSIONS = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "gz-members": lambda data: gzip.compress(data[:20]) + gzip.compress(data[20:]),
    "bgzf": lambda data: b"".join([*bgzf_blocks(data, 9, len(data) // 2), END_BLOCK]),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": compress_zstd,
}


def check(batches):
    names = [name for batch in batches for name in batch.names]
    bases = np.concatenate([batch.bases for batch in batches])
    lengths = [int(length) for batch in batches for length in batch.lengths]
    assert names == [name for name, _ in RECORDS]
    assert lengths == [len(sequence) for _, sequence in RECORDS]
    np.testing.assert_array_equal(bases, encode("".join(s for _, s in RECORDS)))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_content_tells(compression, tmp_path, inflating):
    # the ending of the name must not matter
    for content, ending in zip(CONTENTS.values(), cycle(("", ".fa", ".fq.gz")), strict=False):
        path = tmp_path / f"reads{ending}"
        path.write_bytes(COMPRESSIONS[compression](content))
        for batch_bases in (1, 10_000):
            check(list(read_batches([str(path)], batch_bases=batch_bases)))
        assert size_of_files([str(path)]) == path.stat().st_size


def test_several_files_and_progress(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(FASTA)
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    seen = []
    batches = list(read_batches(paths, on_bytes=seen.append))
    assert [len(batch) for batch in batches] == [3, 3]
    assert seen == sorted(seen)
    assert seen[-1] == size_of_files(paths)


@pytest.mark.parametrize(
    ("content", "compression"),
    [
        *(
            ("fasta", "gz"),
            ("fastq", "gz-members"),
            ("bam", "bgzf"),
            ("bam", "gz"),
            ("fastq", "bgzf"),
        ),
        *(("fasta", "bz2"), ("fastq", "xz"), ("bam", "zst"), ("fasta", "zst")),
    ],
)
def test_truncated_anywhere(content, compression, tmp_path, inflating):
    """The same reads and the same error as of the reader before."""
    whole = COMPRESSIONS[compression](CONTENTS[content])
    path = tmp_path / "cut"
    faults = 0
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        found = outcome(read_batches([str(path)]))
        assert found == outcome(before.read_batches([str(path)])), length
        faults += bool(found) and isinstance(found[-1], str)
    # a file may end behind a member
    assert faults >= len(whole) - 4


@pytest.mark.parametrize(
    ("content", "compression"),
    [*((content, "plain") for content in CONTENTS), *(("fastq", name) for name in COMPRESSIONS)],
)
def test_a_pipe_that_hands_over_a_byte_at_a_time(content, compression, tmp_path):
    """What tells the format is waited for, however little of it comes first."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = COMPRESSIONS[compression](CONTENTS[content])

    def write():
        with open(path, "wb", buffering=0) as pipe:
            for i in range(8):
                pipe.write(data[i : i + 1])
                until(lambda: not unread(pipe), "the byte is read")
            pipe.write(data[8:])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    check(list(read_batches([str(path)])))
    writer.join(DEADLINE)
    assert not writer.is_alive()


@pytest.mark.parametrize("compression", ["plain", "gz"])
def test_any_number_of_blank_lines_first(compression, tmp_path):
    path = tmp_path / "reads"
    path.write_bytes(COMPRESSIONS[compression](b"\n" * 300_000 + FASTA.encode()))
    check(list(read_batches([str(path)])))


def test_damaged_bam_is_an_error_never_a_crash(tmp_path):
    """What a record says of its lengths is not believed: every byte, set to any of a few values."""
    whole = bam_of([("r1", "ACGT"), ("r2", "ACGTACGTACGT"), ("r3", "AC")])
    path = tmp_path / "damaged.bam"
    said = set()
    for at in range(len(whole)):
        for value in (0, 1, 0x21, 0x7F, 0x80, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                list(read_batches([str(path)]))
            except DataError as error:
                said.add(error.problem)
    for part in ("ends within", "do not fit", "the least are 32", "is negative"):
        assert any(part in problem for problem in said), part
