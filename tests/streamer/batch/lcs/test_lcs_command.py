"""``streamer lcs`` as a user sees it, and on real genomes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from streamer.batch import lcs
from tests import forked
from tests.data_files import data_file, read_plainly, write_fasta
from tests.reference import lcs as oracle

pytestmark = pytest.mark.whole

A = b"ACGTNACGTACGTTTACGNNACGGGTA"
B = b"ACGTACGTNNACGTACGACGTTGTA"


@pytest.fixture
def two(tmp_path):
    return (
        write_fasta(tmp_path / "a.fa", [("one first", A.decode())]),
        write_fasta(tmp_path / "b.fa", [("two", B.decode())]),
    )


def only_record(path):
    ((name, letters),) = [
        (part.split("\n", 1)[0], part.split("\n", 1)[1].replace("\n", ""))
        for part in path.read_text().split(">")[1:]
    ]
    return name, letters.encode()


def check_blocks(path, a, b):
    """Runs that are equal in both, in order; how many symbols they are."""
    total = 0
    last = (-1, -1)
    for line in path.read_text().splitlines():
        row = line.split("\t")
        start, end, start_b, end_b = int(row[2]), int(row[3]), int(row[7]), int(row[8])
        assert a[start:end] == b[start_b:end_b], line
        assert start > last[0], line
        assert start_b > last[1], line
        assert row[4] == "+"
        assert row[9:] == [str(end - start)] * 2 + ["255", f"cg:Z:{end - start}="], line
        last = (end - 1, end_b - 1)
        total += end - start
    return total


def test_one_row(streamer, two):
    want = oracle.length(A, B)
    code, out, err = streamer("lcs", *two, "--device", "cpu")
    assert (code, err) == (0, "")
    assert out == f"#a\tb\tlength_a\tlength_b\tlcs\none\ttwo\t{len(A)}\t{len(B)}\t{want}\n"
    code, out, err = streamer("lcs", *two, "--format", "jsonl", "--length-only", "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "a": "one", "b": "two", "length_a": len(A), "length_b": len(B), "lcs": want
    }  # fmt: skip


@pytest.mark.parametrize("method", ["adaptive", "systolic", "diff", "bit-parallel", "dp"])
def test_every_file_that_can_be_written(streamer, two, tmp_path, method):
    files = {name: tmp_path / f"{method}.{name}" for name in ("fa", "paf", "svg", "tsv")}
    code, out, err = streamer(
        "lcs", *two, "--method", method, "--device", "cpu", "--identity", "--sequence", files["fa"],
        "--blocks", files["paf"], "--plot", files["svg"], "-o", files["tsv"],
    )  # fmt: skip
    assert (code, out, err) == (0, "", "")
    want = oracle.length(A, B)
    header, row = (line.split("\t") for line in files["tsv"].read_text().splitlines())
    assert header[-3:] == ["lcs", "identity", "column_identity"]
    assert int(row[4]) == want
    assert float(row[5]) == pytest.approx(want / len(A), abs=1e-6)
    assert want / (len(A) + len(B) - want) - 1e-6 <= float(row[6]) <= float(row[5])
    name, letters = only_record(files["fa"])
    assert name == f"lcs one two length={want}"
    assert len(letters) == want
    assert oracle.is_subsequence(letters, A)
    assert oracle.is_subsequence(letters, B)
    assert check_blocks(files["paf"], A, B) == want
    assert files["svg"].read_text().lstrip().startswith("<?xml")


def test_short_blocks_may_be_left_out(streamer, two, tmp_path):
    lengths = []
    for least in (1, 4, 1_000):
        path = tmp_path / f"{least}.paf"
        assert streamer("lcs", *two, "--blocks", path, "--min-block", least)[0] == 0
        rows = path.read_text().splitlines()
        assert all(int(row.split("\t")[9]) >= least for row in rows)
        lengths.append(len(rows))
    assert lengths[0] > lengths[1] > lengths[2] == 0


def test_a_plot_has_no_blocks_of_chance(streamer, two, tmp_path):
    rng = np.random.default_rng(7)
    letters = ["".join(rng.choice([*"ACGT"], 4000)) for _ in range(2)]
    files = [write_fasta(tmp_path / f"{at}.fa", [("a", one)]) for at, one in enumerate(letters)]
    for pair, want in ((files, 0), (files[:1] * 2, 1)):
        path = tmp_path / "plot.svg"
        assert streamer("lcs", *pair, "--plot", path, "--device", "cpu", "-q")[0] == 0
        blocks = re.search(r"(\d+) blocks longer than \d+, the most", path.read_text())
        assert blocks
        assert int(blocks[1]) == want


def test_texts(streamer, tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_bytes(b"the quick brown fox\n\x00\xff")
    b.write_bytes(b"a quicker, browner fix\n\x00")
    want = oracle.length(a.read_bytes(), b.read_bytes(), gaps=set())
    common = tmp_path / "common"
    code, out, _ = streamer("lcs", a, b, "--text", "--sequence", common, "--quiet")
    assert code == 0
    assert out.splitlines()[1].split("\t") == [str(a), str(b), "22", "24", str(want)]
    assert len(common.read_bytes()) == want
    assert oracle.is_subsequence(common.read_bytes(), b.read_bytes())


def test_texts_of_any_name(streamer, tmp_path):
    a = tmp_path / os.fsdecode(b"\xff\t.txt")
    a.write_bytes(b"kitten")
    blocks = tmp_path / "blocks.paf"
    code, out, _ = streamer("lcs", a, a, "--text", "--blocks", blocks, "--quiet")
    name = f"{tmp_path}/\\udcff\\t.txt"
    assert code == 0
    assert out.splitlines()[1].split("\t") == [name, name, "6", "6", "6"]
    assert blocks.read_text().split("\t")[:4] == [name, "6", "0", "6"]


def test_pictures_of_any_name(streamer, tmp_path):
    a = write_fasta(tmp_path / "a.fa", [("a$x^{$b\u65e5", "ACGTTGCATTACG")])
    for words in (("lcs", a, a), ("primer", a, a, "-k", 2)):
        picture = tmp_path / f"{words[0]}.png"
        code, _, err = streamer(*words, "--plot", picture, "--device", "cpu", "--quiet")
        assert (code, err) == (0, "")
        assert picture.stat().st_size > 1000


def test_standard_input(streamer, two, monkeypatch):
    class Piped:
        buffer = io.BytesIO(b">piped\n" + B + b"\n")

    monkeypatch.setattr("sys.stdin", Piped)
    code, out, _ = streamer("lcs", two[0], "-", "--quiet")
    assert code == 0
    assert out.splitlines()[1].split("\t")[1] == "piped"
    assert streamer("lcs", "-", "-")[0] == 2


def test_empty_sequences(streamer, two, tmp_path):
    empty = write_fasta(tmp_path / "empty.fa", [("nothing", "")])
    gaps = write_fasta(tmp_path / "gaps.fa", [("gaps", "NNNN")])
    for other, count in ((empty, 0), (gaps, 4)):
        common = tmp_path / "common.fa"
        code, out, _ = streamer("lcs", other, two[0], "--sequence", common, "--quiet")
        assert code == 0
        assert out.splitlines()[1].split("\t")[2:] == [str(count), str(len(A)), "0"]
        assert only_record(common)[1] == b""


def test_what_is_refused(streamer, two, tmp_path):
    several = write_fasta(tmp_path / "several.fa", [("x", "ACGT"), ("y", "ACGT")])
    nothing = tmp_path / "nothing.fa"
    nothing.write_text("")
    wrong = write_fasta(tmp_path / "wrong.fa", [("x", "ACGT!CGT")])
    for arguments, code, message in [
        ((two[0], several), 1, "several.fa: record 2 (y): a second record; only one is compared"),
        ((nothing, two[0]), 1, "nothing.fa: holds no record; one is needed"),
        ((wrong, two[0]), 1, "wrong.fa: record 1 (x), position 5: '!' is not a base"),
        ((two[0], tmp_path / "missing.fa"), 1, "missing.fa: no such file"),
        ((*two, "--method", "fast"), 2, "fast"),
        ((*two, "--method", "dp", "--device", "cuda"), 2, "'dp' runs on cpu, not on cuda"),
        ((*two, "--length-only", "--sequence", tmp_path / "x"), 2, "which --sequence needs"),
        ((*two, "--length-only", "--identity"), 2, "which --identity needs"),
        ((*two, "--plot", tmp_path / "x.pdf"), 2, "the name must end in .png, .svg"),
        ((*two, "--sequence", two[0]), 2, "input and output are the same file"),
        ((*two, "--sequence", tmp_path / "x", "--blocks", tmp_path / "x"), 2, "for two outputs"),
        ((*two, "--blocks", tmp_path / "x", "-o", f"{tmp_path}/./x"), 2, "for two outputs"),
        ((*two, "--sequence", tmp_path / "no" / "x", "--device", "cpu"), 1, "No such file"),
        ((*two, "--blocks", tmp_path, "--device", "cpu"), 1, f"{tmp_path}: cannot write: Is a dir"),
        ((*two, "--sequence", "-"), 2, "--sequence -: rows go to standard output"),
        ((*two, "--min-block", 0), 2, "min-block"),
    ]:  # fmt: skip
        found, out, err = streamer("lcs", *arguments)
        assert (found, message in err) == (code, True), (arguments, found, err)
        assert code == 1 or out == "", arguments


@pytest.mark.parametrize("into", ["file", "pipe"])
def test_standard_output_is_not_written_twice(two, tmp_path, into):
    """A subsequence there would stand across the row."""
    command = [sys.executable, "-m", "streamer", "lcs", *two, "--device", "cpu"]
    with open(tmp_path / "out", "w+b") as file:
        where = {"stdout": file if into == "file" else subprocess.PIPE, "stderr": subprocess.PIPE}
        done = forked.run([*command, "--sequence", "/dev/stdout"], **where)
        assert done.returncode == 2
        assert b"--sequence /dev/stdout: rows go to standard output" in done.stderr
        rows = tmp_path / "rows"
        more = ["--sequence", "/dev/stdout", "-o", rows, "--quiet"]
        done = forked.run([*command, *more], **where)
        assert done.returncode == 0, done.stderr
        file.seek(0)
        assert (done.stdout or file.read()).startswith(b">lcs one two length=")
    assert rows.read_text().startswith("#a\tb\t")


def genome(name):
    return oracle.plain(read_plainly(data_file(name))[0][1].encode())


def answers(a, b, methods, **options):
    found = {}
    for method in methods:
        matching = lcs.match(a, b, method=method, device="cpu", **options)
        x, y = (np.frombuffer(s, dtype=np.uint8) for s in (a, b))
        np.testing.assert_array_equal(x[matching.in_a], y[matching.in_b], err_msg=method)
        found[method] = len(matching)
    return found


@pytest.mark.slow
@pytest.mark.data("ecoli_K12_MG1655.fa.gz")
def test_e_coli_against_a_rearranged_copy():
    """4.6 M x 4.6 M: blocks moved, and 0.1 % of the bases changed between them."""
    a = genome("ecoli_K12_MG1655.fa.gz")
    rng = np.random.default_rng(71)
    # two pieces taken out and put in elsewhere
    b = a
    for start, length, to in ((400_000, 3_000, 2_000_000), (3_000_000, 2_000, 100_000)):
        piece, rest = b[start : start + length], b[:start] + b[start + length :]
        b = rest[:to] + piece + rest[to:]
    array = np.frombuffer(b, dtype=np.uint8).copy()
    changed = rng.random(array.size) < 0.0005
    array[changed] = np.frombuffer(b"ACGT", dtype=np.uint8)[rng.integers(0, 4, changed.sum())]
    found = answers(a, array.tobytes(), ("adaptive",))["adaptive"]
    # what was moved is lost at most, and what was changed
    assert len(a) - 5_000 - int(changed.sum()) <= found < len(a)
