"""What ``streamer match`` says to bad input: one line, the place, the exit code."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tests.data_files import write_fasta

pytestmark = pytest.mark.whole

GOOD = [("t", "ACGTACGTTTGACA")]


@pytest.fixture
def good(tmp_path):
    return write_fasta(tmp_path / "good.fa", GOOD)


def gzip_of(data):
    """Without the time: the bytes are in the names of tests, which all workers must agree on."""
    return gzip.compress(data, mtime=0)


def error_line(err):
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("streamer: error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-k", "0"], "-k"),
        (["-k", "32"], "-k"),
        (["-k", "five"], "-k"),
        (["-k", "5", "--format", "csv"], "'--format': 'csv' is not one of 'tsv', 'jsonl'."),
        (["-k", "5", "--kernel", "shuffle", "--device", "cpu"], "--kernel shuffle runs on CUDA"),
        ([], "k"),
        (["-k", "5", "--chunk", "4"], "--chunk 4 is shorter"),
        (["-k", "5", "--distance", "5"], "--distance"),
        (["-k", "3", "--distance", "3"], "--distance 3 must be less than k"),
        (["-k", "5", "--distance", "1", "--strands", "canonical"], "--strands canonical"),
        (["-k", "5", "--distance", "1", "--report", "reads"], "--report reads"),
        (["-k", "5", "--report", "best"], "--report best needs --distance"),
        (["-k", "5", "--semantics", "ltb", "--report", "best"], "--report best"),
        (["-k", "5", "--kernel", "lanes"], "--kernel lanes is not for exact"),
        (["-k", "5", "-D", "1", "--kernel", "walk"], "--kernel walk is not for --semantics lev"),
        (["-k", "5", "--mode", "thaw"], "--mode"),
        (["-k", "5", "--strands", "none"], "--strands"),
        (["-k", "5", "--kernel", "none"], "--kernel"),
        (["-k", "5", "--report", "none"], "--report"),
        (["-k", "5", "--threads", "-1"], "--threads"),
        (["-k", "5", "--seed", "3"], "either --dictionary"),
        (["-k", "5", "--profile", "--cluster", "local"], "--profile does not work with --cluster"),
        (["-k", "5", "--no-such"], "--no-such"),
    ],
)
def test_usage_errors(arguments, says, good, streamer):
    code, out, err = streamer("match", good, "--dictionary", good, *arguments)
    assert (code, out) == (2, "")
    assert says in error_line(err)


def test_neither_dictionary_nor_seed(good, streamer):
    code, _, err = streamer("match", good, "-k", 5)
    assert code == 2
    assert "either --dictionary" in error_line(err)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b">a\nACGT\n>b c\nACGTACJT\n", "record 2 (b), position 7: 'J' is not a base"),
        (b">a\nACGT\n>b\nAC GT\n", "record 2 (b), position 3"),
        (b">a\nAC\x00GT\n", "record 1 (a), position 3: byte 0x00"),
        (b">a\nACGT\n@b\nACGT\n+\nIIII\n", "record 1 (a), position 5: '@'"),
        (b">a\nACGT\n>b\x1b[2J\nACGT\n", "record 2: the name holds U+001B, which is not printable"),
        (b"@a\nACGT\n+\nIIII\n@b\nACGT\n+\nIII\n", "record 2"),
        (b"@a\nACGT\n+\nIIII\n@b\nACGT\n", "record 2"),
        (b"@a\nACGT\n+\nIIII\n>b\nACGT\n", "record 2"),
        (b"@a\nACGT\nIIII\n", "record 1"),
        (b"hello\n", "not a FASTA, FASTQ, SAM, BAM or CRAM"),
        (gzip_of(b">a\n" + bytes(random.Random(1).choices(b"ACGT", k=9000)))[:-300], "truncated"),
        (b"\x1f\x8b\x08\x00garbage that is no deflate stream", ""),
        (b"\xfd7zXZ\x00garbage", ""),
        (b"\x28\xb5\x2f\xfdgarbage", ""),
        (b"BZh9garbage", ""),
        (gzip_of(b"BAM\x01garbage"), ""),
        (b">\xff\xfe\nACGT\n", ""),
    ],
)
def test_bad_files(content, says, good, tmp_path, streamer):
    bad = tmp_path / "bad.seq"
    bad.write_bytes(content)
    for arguments in ([bad, "-d", good], [good, "-d", bad]):
        code, _, err = streamer("match", *arguments, "-k", 4, "--quiet")
        assert code == 1
        line = error_line(err)
        assert str(bad) in line
        assert says in line


def test_reads_before_the_fault_are_reported(good, tmp_path, streamer):
    bad = tmp_path / "bad.fa"
    bad.write_text(">a\nACGTACG\n>b\nACGTACG\n>c\nACGTZ\n")
    code, out, err = streamer("match", bad, "-d", good, "-k", 7, "-q")
    assert code == 1
    assert "record 3 (c), position 5" in error_line(err)
    assert [line.split("\t")[0] for line in out.splitlines()] == ["#read", "a", "b"]


@pytest.mark.parametrize("name", ["missing.fa", "."])
def test_unreadable(name, good, tmp_path, streamer):
    for arguments in ([tmp_path / name, "-d", good], [good, "-d", tmp_path / name]):
        code, _, err = streamer("match", *arguments, "-k", 4, "-q")
        assert code == 1
        assert str(tmp_path / name) in error_line(err)


def test_dictionary_without_a_kmer(good, tmp_path, streamer):
    for content in (">a\nACG\n", ">a\nACGNACG\n", "", ">a\n"):
        short = tmp_path / "short.fa"
        short.write_text(content)
        code, out, err = streamer("match", good, "-d", short, "-k", 4, "-q")
        assert (code, out) == (1, "")
        assert "no whole 4-mer" in error_line(err)


def test_nothing_to_match_is_no_error(good, tmp_path, streamer):
    empty = tmp_path / "empty.fq"
    empty.write_bytes(b"")
    code, out, _ = streamer("match", empty, "-d", good, "-k", 4, "-q", "--report", "reads")
    assert code == 0
    assert out == "#read\tlength\twindows\tmatches\tmismatches\tskipped\tbest_target\n"
    empty.write_bytes(b"@e\n\n+\n\n@s\nAC\n+\nII\n@n\nNNNNNN\n+\nIIIIII\n")
    code, out, _ = streamer("match", empty, "-d", good, "-k", 4, "-q", "--report", "reads")
    assert code == 0
    assert out.splitlines()[1:] == [
        "e\t0\t0\t0\t0\t0\t.",
        "s\t2\t0\t0\t0\t0\t.",
        "n\t6\t0\t0\t0\t3\t.",
    ]


def test_cuda_is_refused_with_a_reason(good, streamer):
    code, _, err = streamer("match", good, "-d", good, "-k", 4, "--device", "cuda")
    assert code == 1
    assert "--device cuda" in error_line(err)


def test_an_input_is_never_written_over(good, tmp_path, streamer):
    before = Path(good).read_bytes()
    linked = tmp_path / "linked.fa"
    linked.symlink_to(good)
    for arguments in (["-o", good], ["-o", linked], ["--save", good]):
        code, out, err = streamer("match", good, "-d", good, "-k", 4, "-q", *arguments)
        assert (code, out) == (2, "")
        assert "input and output are the same file" in error_line(err)
    kept = tmp_path / "kept.tsv"
    kept.write_text("kept")
    code, _, err = streamer("match", tmp_path / "no.fa", "-d", good, "-k", 4, "-q", "-o", kept)
    assert code == 1
    assert "no.fa: no such file" in error_line(err)
    assert kept.read_text() == "kept"
    assert Path(good).read_bytes() == before
