"""Every kind of input gives the same reads, alignments among them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import re
import sys
import threading
from itertools import cycle

import numpy as np
import pytest

from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.sequences.files import read_batches, read_letters
from streamer.sequences.source import size_of_files
from tests.reference import reader as before
from tests.reference.context import context_of
from tests.streamer.sequences.kit import InBlocks, bam_of, bgzf_blocks, outcome, rows_of
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


@pytest.mark.whole
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


pysam = pytest.importorskip("pysam")

MODES = {"sam": "w", "bam": "wb", "cram": "wc"}
RUN = "8f3c0d4e-1111-2222-3333-444455556666"
GROUP = f"{RUN}_dna_r10.4.1_e8.2_400bps_hac@v5.0.0_SQK-NBD114-24_barcode04"
HEADER = {
    "HD": {"VN": "1.6", "SO": "unknown"},
    "SQ": [{"SN": "ref", "LN": 100_000}],
    "PG": [{"ID": "basecaller", "PN": "dorado", "CL": "dorado basecaller hac pod5"}],
    "RG": [{"ID": GROUP, "SM": "barcode04", "LB": "My_Sample", "DS": f"runid={RUN}"},
           {"ID": "b", "SM": "patient"}],
}  # fmt: skip
GROUPS = {GROUP: (RUN, "barcode04", "My_Sample"), "b": (None, "patient", None)}
CODES = {letter: code for code, letter in enumerate("ACGT")}
TURNED = str.maketrans("ACGTRYKMBVDHSWN", "TGCAYRMKVBHDSWN")


def some_reads(count, seed):
    """(name, flag, CIGAR, letters, tags) as a basecaller or an aligner gives them."""
    rng = random.Random(seed)
    for number in range(count):
        letters = "".join(rng.choices("ACGTNRY", [9] * 4 + [1] * 3, k=rng.choice([0, 1, 7, 8, 90])))
        tags = [("qs", 12.5, "f"), ("ch", rng.choice([1, 126, 3000]), "i"),
                ("st", "2025-01-06T10:06:36.778+00:00", "Z"),
                ("CO", "a text ch:i:77 with blanks", "Z")]  # fmt: skip
        tags += [("RG", rng.choice([GROUP, "b", "c"]), "Z")] * (rng.random() < 0.8)
        tags += [("BC", f"barcode{rng.randrange(3)}", "Z")] * (rng.random() < 0.3)
        rng.shuffle(tags)
        flag = rng.choice([4, 4, 0, 16, 20, 256, 2048, 0x4D, 0x10 | 0x51, 0x200])
        cigar = None
        if not flag & 4 and letters:
            clipped = rng.randrange(len(letters))
            cigar = f"{clipped}S{len(letters) - clipped}M3D" if clipped else f"{len(letters)}="
        if flag & 0x900 and letters:
            cigar = f"3H{len(letters)}M"
        yield f"r{number}", flag, cigar, letters, tags


def written(path, reads, header=HEADER):
    with pysam.AlignmentFile(str(path), MODES[path.suffix[1:]], header=header,
                             format_options=[b"no_ref=1"]) as file:  # fmt: skip
        for name, flag, cigar, letters, tags in reads:
            record = pysam.AlignedSegment(file.header)
            record.query_name, record.flag = name, flag
            if not flag & 4:
                record.reference_id, record.reference_start = 0, 50
                record.cigarstring = cigar
            record.query_sequence = letters
            record.query_qualities = pysam.qualitystring_to_array("I" * len(letters))
            record.set_tags(tags)
            file.write(record)
    return str(path)


def expected(reads):
    """(name, codes) and context of the primary records, in plain Python."""
    rows, contexts = [], []
    for name, flag, _, letters, tags in reads:
        if flag & 0x900:
            continue
        if flag & 16:
            letters = letters.translate(TURNED)[::-1]
        rows.append((name, bytes(CODES.get(letter, 4) for letter in letters)))
        shown = "\t".join(f"{tag}:{kind}:{value}" for tag, value, kind in tags if tag != "CO")
        contexts.append(context_of(f"{name}\t{shown}", groups=GROUPS))
    return rows, contexts


def contexts_of(batch):
    found = batch.context
    channels = [None if one < 0 else one for one in found.channel.tolist()]
    times = [time.decode() or None for time in found.start_time.tolist()]
    labels = [column.texts() for column in (found.run, found.barcode, found.sample)]
    return list(zip(channels, times, *labels, strict=True))


@pytest.mark.parametrize("suffix", MODES)
@pytest.mark.parametrize("batch_reads", [1, 7, 1000])
def test_as_pysam_writes_them(suffix, batch_reads, tmp_path):
    reads = list(some_reads(300, seed=batch_reads))
    rows, contexts = expected(reads)
    path = written(tmp_path / f"reads.{suffix}", reads)
    batches = list(read_batches([path], batch_reads=batch_reads, context=True))
    assert [row for batch in batches for row in rows_of(batch)] == rows
    assert [row for batch in batches for row in contexts_of(batch)] == contexts
    # by content: on a pipe, under another name
    with open(path, "rb") as file:
        assert [row for batch in read_batches(["-"], opened=file) for row in rows_of(batch)] == rows


@pytest.mark.whole
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("headed", [True, False])
def test_sam_in_any_blocks(monkeypatch, headed, end, tmp_path):
    reads = list(some_reads(40, seed=5))
    with open(written(tmp_path / "reads.sam", reads)) as file:
        text = "".join(line for line in file if headed or line[0] != "@")
    content = gzip.compress(text.replace("\n", end).encode())
    (tmp_path / "reads").write_bytes(content)
    want = [expected(reads)[0]]
    assert outcome(read_batches([str(tmp_path / "reads")])) == want
    in_blocks = InBlocks(monkeypatch)
    for size in (1, 2, 5, 64, 1000):
        for last in (0, 1):
            in_blocks(text.replace("\n", end).encode()[: -last or None], size)
            assert outcome(read_batches(["-"])) == want


@pytest.mark.parametrize("suffix", MODES)
def test_letters_of_the_other_strand(suffix, tmp_path):
    letters = "ACGTNRYKMBVDHSW"
    reads = [("r", 16, "15M", letters, [])]
    path = written(tmp_path / f"reads.{suffix}", reads)
    assert list(read_letters(path)) == [("r", letters.translate(TURNED)[::-1])]


@pytest.mark.parametrize("suffix", MODES)
def test_a_hard_clipped_read_is_refused_with_its_place(suffix, tmp_path):
    reads = [("r1", 0, "4M", "ACGT", []), ("s", 2048, "2H2M", "AC", []),
             ("r2", 0, "2H4M", "ACGT", []), ("r3", 4, None, "AC", [])]  # fmt: skip
    path = written(tmp_path / f"reads.{suffix}", reads)
    rows, error = outcome(read_batches([path]))
    assert rows == expected(reads[:1])[0]
    assert re.match(rf"{path}: record 2 \(r2\).*: hard-clipped", error)


FAULTS = [
    ("r2\t4\t*\t0\t0\t*\t*\t0\t0\tACGT", "10 of at least 11 fields; the file may be cut"),
    ("r2\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIII", "3 qualities for 4 letters; the file may be cut"),
    ("r2\t4\t*\t0\t0\t*\t*\t0\t0\t*\tIII", "3 qualities for 0 letters"),
    ("r2\t0\tref\t1\t0\t4Q\t*\t0\t0\tACGT\tIIII", "an operation that is not known, Q"),
    ("r2\t0\tref\t1\t0\t4MM\t*\t0\t0\tACGT\tIIII", "a CIGAR is numbers"),
    ("r2\t0\tref\t1\t0\t4M1\t*\t0\t0\tACGT\tIIII", "a CIGAR is numbers"),
    ("r2\t0\tref\t1\t0\t\t*\t0\t0\tACGT\tIIII", "a CIGAR is numbers"),
    ("r2\t0\tref\t1\t0\t99999999999D4M\t*\t0\t0\tACGT\tIIII", "a CIGAR is numbers"),
    ("r2\t0\tref\t1\t0\t5M\t*\t0\t0\tACGT\tIIII", "the CIGAR is of 5 letters, the sequence has 4"),
    ("r2\tx\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII", "FLAG is not a number of 16 bits"),
    ("r2\t65536\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII", "FLAG is not a number of 16 bits"),
    ("@CO\tmore", "a line of a header amid the records"),
    ("r2\t4\t*\t0\t0\t*\t*\t0\t0\tAC=T\tIIII", "'=' is not a base"),
]


@pytest.mark.parametrize(("line", "problem"), FAULTS)
def test_faulty_lines(line, problem, tmp_path):
    path = tmp_path / "reads.sam"
    good = "r1\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII"
    path.write_text(f"@HD\tVN:1.6\n{good}\n{line}\n{good}\n")
    rows, error = outcome(read_batches([str(path)]))
    assert [name for name, _ in rows] == ["r1"]
    assert "record 2" in error
    assert problem in error
    assert "\n" not in error
    if "base" not in problem:
        assert "line 3" in error


@pytest.mark.whole
def test_every_cut_of_sam_gives_whole_reads_or_an_error(tmp_path):
    reads = list(some_reads(6, seed=2))
    path = tmp_path / "reads.sam"
    written(path, reads)
    content = path.read_bytes()
    rows = expected(reads)[0]
    begin = content.index(b"\nr0") + 1
    for size in range(begin, len(content)):
        path.write_bytes(content[:size])
        found = outcome(read_batches([str(path)]))
        error = found.pop() if found and isinstance(found[-1], str) else None
        whole = [row for batch in found for row in batch]
        assert whole == rows[: len(whole)]
        if error is not None:
            assert "may be cut" in error
        else:
            # the last line has all fields, whatever is missing of its tags
            fields = content[:size].rstrip(b"\n").split(b"\n")[-1].split(b"\t")
            assert len(fields) >= 11 or size == begin


@pytest.mark.parametrize("suffix", ["bam", "cram"])
def test_cut_files(suffix, tmp_path):
    path = tmp_path / f"reads.{suffix}"
    written(path, some_reads(20, seed=3))
    content = path.read_bytes()
    for size in range(4, len(content), 11):
        path.write_bytes(content[:size])
        with pytest.raises(DataError):
            list(read_batches([str(path)]))
    # the last block, or container, alone is missing
    path.write_bytes(content[: -28 if suffix == "bam" else -38])
    with pytest.raises(DataError, match=r"end block is missing|truncated CRAM"):
        list(read_batches([str(path)]))


def test_an_operation_that_bam_does_not_have(tmp_path):
    path = tmp_path / "reads.bam"
    written(path, [("r1", 0, "4M", "ACGT", [])])
    plain = gzip.decompress(path.read_bytes())
    for code, problem in ((9, "not known, 9"), (5, "hard-clipped"), (2, "of 0 letters")):
        number = (4 << 4).to_bytes(4, "little")
        assert plain.count(b"r1\0" + number) == 1
        bad = plain.replace(b"r1\0" + number, b"r1\0" + (4 << 4 | code).to_bytes(4, "little"))
        path.write_bytes(bad)
        with pytest.raises(DataError, match=rf"record 1 \(r1\).*{problem}"):
            list(read_batches([str(path)]))


def test_cram_without_pysam(monkeypatch, tmp_path):
    path = written(tmp_path / "reads.cram", [("r1", 4, None, "ACGT", [])])
    monkeypatch.setitem(sys.modules, "pysam", None)
    with pytest.raises(DataError, match=r"CRAM needs pysam: pip install '\.\[cram\]'"):
        list(read_batches([path]))


def test_what_only_resembles_sam(tmp_path):
    """Headers of FASTQ and FASTA with tabs and numbers."""
    path = tmp_path / "reads"
    for content in ("@HD\t4\tx\nAC\n+\nII\n", ">r\t4\tx\nAC\n", "@RG ID:x\nAC\n+\nII\n"):
        path.write_text(content)
        assert [row[1] for row in rows_of(*read_batches([str(path)]))] == [bytes([0, 1])]
