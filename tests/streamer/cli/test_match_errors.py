"""What ``streamer match`` says to bad input: one line, the place, the exit code."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tests.data_files import write_fasta

pytestmark = pytest.mark.whole

GOOD = [("t", "ACGTACGTTTGACA")]
LTB = ["-k", "5", "-D", "1", "--semantics", "ltb"]


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
        (
            ["-k", "5", "--format", "csv"],
            "'--format': 'csv' is not one of 'tsv', 'jsonl', 'arrow',",
        ),
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
        ([*LTB, "--kernel", "naive"], "--kernel naive is not for --semantics ltb"),
        ([*LTB, "--kernel", "lanes"], "--kernel lanes is not for --semantics ltb"),
        ([*LTB, "--strands", "canonical"], "--strands canonical"),
        ([*LTB, "--kernel", "ltb-queue", "--device", "cpu"], "ltb-queue runs on CUDA, not with"),
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


@pytest.mark.parametrize("name", ["missing.fa", "folder"])
def test_unreadable(name, good, tmp_path, streamer):
    (tmp_path / "folder").mkdir()
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


@pytest.mark.parametrize(
    "options",
    [
        ("--kernel", "walk"),
        ("--distance", 1, "--semantics", "ltb"),
        ("--mode", "grow", "--report", "windows"),
    ],
)
def test_a_dictionary_that_is_too_large_for_a_snapshot(
    options, good, tmp_path, streamer, monkeypatch
):
    monkeypatch.setattr("trie.snapshots.tree_bitmap.MAX_NODES", 3)
    monkeypatch.chdir(tmp_path)
    code, _, err = streamer("match", good, "-d", good, "-k", 7, "-q", "--device", "cpu", *options)
    assert code == 1
    assert "too large for a snapshot" in error_line(err)
    assert "at most 3; give fewer records or a smaller k" in err


def test_records_that_can_never_match_are_named(good, tmp_path, streamer):
    """With a distance too, and from a saved dictionary, which does not hold the cause."""
    some = write_fasta(tmp_path / "some.fa", [*GOOD, ("degenerate", "GTGYCAGC"), ("tiny", "ACG")])
    saved = tmp_path / "saved.kmers"
    for options in ((), ("--distance", 1), ("--mode", "grow"), ("--save", saved)):
        code, _, err = streamer("match", good, "-d", some, "-k", 6, "--device", "cpu", *options)
        assert code == 0
        assert err.count("warning: ") == 1
        assert f"{some}: 1 of 3 records have ambiguity codes in every window" in err
        assert "--iupac): degenerate; 1 of 3 records have fewer than 6 bases" in err
    code, _, err = streamer("match", good, "-d", saved, "-k", 6, "--device", "cpu")
    assert code == 0
    assert f"{saved}: 1 of 3 records have ambiguity codes in every window" in err
    out = tmp_path / "out.fa"
    code, _, err = streamer(
        "filter", good, "-d", some, "-k", 6, "--keep", "--device", "cpu", "-o", out
    )
    assert code == 0
    assert "--iupac): degenerate; " in err


@pytest.mark.parametrize("command", ["asm", "hamming"])
def test_patterns_with_more_codes_than_k_are_named(command, good, tmp_path, streamer):
    patterns = write_fasta(tmp_path / "p.fa", [("p", "ACGTAN"), ("q", "NCGTRA"), ("r", "CGTYNN")])
    run = (command, good, "--patterns", patterns, "--device", "cpu")
    code, rows, err = streamer(*run, "-k", 1)
    assert code == 0
    assert len(rows.splitlines()) > 1
    line = f"warning: {patterns}: 2 of 3 patterns can never match, they have more than k = 1"
    assert err.count(line) == err.count("warning: ") == 1
    assert "ambiguity codes: q, r; " in err
    code, out, err = streamer(*run, "-k", 0, "-q")
    assert (code, out) == (1, "")
    assert f"{patterns}: 3 of 3 patterns can never match" in error_line(err)
    code, _, err = streamer(*run, "-k", 3)
    assert (code, err.count("warning")) == (0, 0)
    if command == "asm":
        code, rows, err = streamer(*run, "-k", 0, "--iupac")
        assert (code, err.count("warning")) == (0, 0)
        assert len(rows.splitlines()) > 1


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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_reference_among_the_reads_is_noticed(order, good, tmp_path, streamer):
    """As after ``-d A B``."""
    fastq, fasta = tmp_path / "reads.fq", tmp_path / "other.fa"
    fastq.write_text("@a\nACGTACG\n+\nIIIIIII\n")
    fasta.write_text(">b\nACGTACG\n")
    both = [(fasta, fastq)[at] for at in order]
    said = (
        f"streamer: warning: {fasta} is FASTA and is matched as reads, as other files are: each "
        "file of a dictionary needs its own -d\n"
    )
    code, _, err = streamer("match", "-d", good, *both, "-k", 4, "-q")
    assert (code, err) == (0, said)
    for files in ([fasta], [fastq], [fasta, fasta], [fastq, fastq]):
        assert streamer("match", "-d", good, *files, "-k", 4, "-q")[::2] == (0, "")


ESCAPES = "\x1b]0;title\x07\x9b2J"
SHOWN = r"\x1b]0;title\x07\x9b2J"


def test_names_control_no_terminal(good, tmp_path, streamer):
    """In errors, in warnings and, on a terminal, beside the bar."""
    missing, bad = tmp_path / f"{ESCAPES}.fa", tmp_path / f"bad{ESCAPES}.fq"
    bad.write_text("@a\nACGTACG\n+b\nIIIIIII\n@b\nAC\n")
    (tmp_path / f"x{ESCAPES}.csv").touch()
    folder = str(tmp_path)
    for words, said in (
        ((missing, "--seed", 0), [f"error: {folder}/{SHOWN}.fa: no such file"]),
        (
            (bad, "--seed", 0),
            [
                f"warning: {folder}/bad{SHOWN}.fq: line 3: ",
                f"error: {folder}/bad{SHOWN}.fq: record 2",
            ],
        ),
        (
            (good, "--seed", 0, "-o", tmp_path / f"x{ESCAPES}.csv"),
            [f"error: {folder}/x{SHOWN}.csv: "],
        ),
    ):
        _, _, err = streamer("match", *words, "-k", 4, "-q")
        lines = err.splitlines()
        assert all(map(str.startswith, lines, [f"streamer: {one}" for one in said])), err
        assert len(lines) == len(said)
        assert "".join(lines).isprintable()


def test_a_bar_shows_no_markup_and_no_escapes(monkeypatch):
    import io

    from streamer.cli import streams

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(streams, "SHOW_AFTER_SECONDS", -1)
    with streams.progress(f"[red]{ESCAPES}", 10, quiet=False) as show:
        show(5)
    assert f"[red]{SHOWN}" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


@pytest.mark.parametrize("command", ["asm", "hamming"])
def test_pattern_names_that_repeat_are_named(command, tmp_path, streamer):
    patterns = write_fasta(
        tmp_path / "p.fa", [("hCoV-19/Hong Kong", "ACGTAC"), ("hCoV-19/Hong", "TTGGCA")]
    )
    text = write_fasta(tmp_path / "t.fa", [("t", "ACGTACTTGGCAACGT")])
    words = [command, text, "--patterns", patterns, "-k", "1", "--device", "cpu"]
    code, _, err = streamer(*words)
    assert (code, err.count("1 pattern names repeat")) == (0, 1)
    assert f"warning: {patterns}: 1 pattern names repeat" in err
    assert "hCoV-19/Hong;" in err
