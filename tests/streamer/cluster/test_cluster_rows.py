"""Every command gives the rows of one process on a cluster, byte for byte, whatever the tasks."""

from __future__ import annotations

import gzip
import random
from contextlib import nullcontext
from itertools import count, cycle
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.cluster import batch_tasks, connecting, match_tasks
from tests.streamer.cluster.faulty_workers import TasksHere

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]


def letters(rng, size):
    return "".join(rng.choices("ACGT", k=size))


def write(path, records):
    path.write_text("".join(f">{name}\n{text}\n" for name, text in records))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small inputs whose records are cut by small tasks."""
    folder, rng = tmp_path_factory.mktemp("inputs"), random.Random(20)
    alpha = letters(rng, 6000)
    shared = letters(rng, 5000)
    edited = "".join(rng.choice("ACGT") if rng.random() < 0.1 else base for base in shared)
    genome = letters(rng, 300_000)
    reads = [(f"r{i}", genome[at : at + 900]) for i, at in enumerate(range(0, 300_000, 700))]
    fastq = "".join(f"@{name}\n{text}\n+\n{'@' * len(text)}\n" for name, text in reads)
    (folder / "reads.fq").write_text(fastq)
    (folder / "reads.fq.gz").write_bytes(gzip.compress(fastq[: len(fastq) // 2].encode()))
    return {
        "fastq": str(folder / "reads.fq"),
        "half": str(folder / "reads.fq.gz"),
        "text": write(
            folder / "text.fa",
            [("t1", letters(rng, 200_000)), ("t2", "N" * 50), ("t3", ""), ("t4", genome)],
        ),
        "patterns": write(
            folder / "patterns.fa", [(f"p{i}", letters(rng, rng.randint(9, 30))) for i in range(9)]
        ),
        "words": write(folder / "words.fa", [(f"w{i}", letters(rng, 10)) for i in range(9)]),
        "alpha": write(folder / "alpha.fa", [("a1", alpha), ("a2", ""), ("a3", letters(rng, 99))]),
        "beta": write(
            folder / "beta.fa", [("b1", letters(rng, 20_000) + alpha[900:5200]), ("b2", shared)]
        ),
        "one": write(folder / "one.fa", [("one", shared + letters(rng, 3000))]),
        "other": write(folder / "other.fa", [("other", letters(rng, 2000) + edited)]),
        "reads": write(folder / "reads.fa", reads),
        "targets": write(
            folder / "targets.fa", [(f"g{i}", genome[i * 9000 : i * 9000 + 6000]) for i in range(9)]
        ),
    }


COMMANDS = {
    "asm": "asm {text} --patterns {patterns} -k 2",
    "asm-best": "asm {text} --patterns {patterns} -k 2 --report best",
    "asm-jsonl": "asm {text} --pattern ACGTTGCAACG -k 3 --format jsonl",
    "hamming": "hamming {text} --patterns {words} -k 2",
    "primer": "primer {alpha} {beta} -k 3 --strands both",
    "primer-1": "primer {alpha} {beta} -k 1",
    "lcs": "lcs {one} {other} --identity --method systolic",
    "lcs-adaptive": "lcs {one} {other}",
    "match": "match {reads} -d {targets} -k 21",
    "match-fastq": "match {fastq} -d {targets} -k 21 --report reads",
    "match-files": "match {fastq} {reads} {fastq} {fastq} -d {targets} -k 21",
    "match-windows": "match {reads} -d {targets} -k 21 --report windows",
    "match-reads": "match {reads} -d {targets} -k 11 --strands both --report reads",
    "match-targets": "match {reads} -d {targets} -k 21 --report targets --by barcode",
    "match-coverage": "match {reads} -d {targets} -k 21 --report coverage --bins 7",
    "match-near": "match {reads} -d {targets} -k 15 -D 1",
    "match-ltb": "match {reads} -d {targets} -k 12 -D 1 --semantics ltb",
}


def rows(line, files, tmp_path, *more):
    """What a command writes."""
    out = tmp_path / "rows"
    words = line.format(**files).split()
    assert main([*words, "--device", "cpu", "--quiet", "-o", str(out), *more]) == 0
    return out.read_bytes()


@pytest.fixture
def here(monkeypatch):
    """A cluster whose tasks run in this process, one after the other."""
    monkeypatch.setattr(connecting, "_start", lambda *_: TasksHere())
    monkeypatch.setattr(connecting, "_watched", lambda *_: nullcontext())


SMALL, LEAST = 0.05, 0.004


@pytest.mark.parametrize(("name", "share"), [*zip(COMMANDS, cycle((SMALL, LEAST)), strict=False)])
def test_rows_are_those_of_one_process(name, share, here, files, tmp_path, monkeypatch):
    """With tasks so small that each record is cut."""
    monkeypatch.setattr(batch_tasks, "MOST_PIECE", int(1e6 * share))
    monkeypatch.setattr(batch_tasks, "LEAST_STARTS", int(50_000 * share))
    monkeypatch.setattr(batch_tasks, "PRIMER_TASK_SECONDS", 0.0)
    monkeypatch.setattr(batch_tasks, "BEHIND", int(2000 * share))
    monkeypatch.setattr(batch_tasks, "FROM_CELLS", 0)
    monkeypatch.setattr(batch_tasks, "TILE_CELLS", 1e8 * share)
    for bases in ("TASK_BASES", "TASK_BASES_OF_MANY_ROWS", "TASK_BASES_NEAR"):
        monkeypatch.setattr(match_tasks, bases, int(1e6 * share))
    compare(name, files, tmp_path)


def test_rows_of_a_cluster_are_those_of_one_process(nodes, files, tmp_path):
    compare("asm-best", files, tmp_path)


def compare(name, files, tmp_path):
    expected = rows(COMMANDS[name], files, tmp_path)
    assert rows(COMMANDS[name], files, tmp_path, "--cluster", "auto") == expected
    assert expected.count(b"\n") > (name != "asm-jsonl")


def test_workers_read_regions_of_fastq(here, files, tmp_path, monkeypatch):
    monkeypatch.setattr(match_tasks, "prefetched", None)  # no reads are sent
    for bases in ("TASK_BASES", "LEAST_BASES"):
        monkeypatch.setattr(match_tasks, bases, 20_000)
    expected = rows(COMMANDS["match-fastq"], files, tmp_path)
    assert rows(COMMANDS["match-fastq"], files, tmp_path, "--cluster", "auto") == expected


@pytest.fixture
def small_files(files, tmp_path):
    """Some of each format, one of them empty."""
    fastq, fasta = (Path(files[name]).read_text() for name in ("fastq", "reads"))
    some, others = fasta[:100_000].rpartition(">")[0], fastq[:200_000].rpartition("@r")[0]
    contents = {
        "a.fq.gz": gzip.compress(others.encode()), "b.fa": some.encode(), "c.fq": fastq.encode(),
        "d.fa.gz": gzip.compress(b""), "e.fa.gz": gzip.compress(some.encode()),
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return [str(tmp_path / name) for name in contents]


@pytest.mark.parametrize("report", ["intervals", "reads", "windows"])
def test_workers_read_small_files(report, here, files, small_files, tmp_path, monkeypatch):
    line = " ".join(["match", *small_files, "-d {targets} -k 21 --report", report])
    expected = rows(line, files, tmp_path)
    assert expected.count(b"\n") > 300
    if report != "windows":
        monkeypatch.setattr(match_tasks, "prefetched", None)  # no reads are sent
    assert rows(line, files, tmp_path, "--cluster", "auto") == expected


@pytest.mark.parametrize("fault", ["cut", "letter", "unseen"])
def test_a_fault_in_a_small_file_comes_behind_the_rows_before_it(
    fault, here, files, small_files, capfd, monkeypatch
):
    bad = Path(small_files[2])
    if fault == "cut":
        bad.write_bytes(bad.read_bytes()[:-300])
    elif fault == "letter":
        bad.write_bytes(bad.read_bytes() + b"@bad\nAC!T\n+\nIIII\n")
    given = ["match", *small_files, "-d", files["targets"], "-k", "21", "-q", "--report", "reads"]
    said, numbers = [], count()
    for more in ([], ["--cluster", "auto"]):
        if more and fault == "unseen":
            monkeypatch.setattr(match_tasks, "_version_of", lambda path: (1, next(numbers)))
        assert main([*given, *more]) == (fault != "unseen")
        said.append(capfd.readouterr())
    assert said[0] == said[1]
    assert said[1].out.count("\n") > 200


@pytest.mark.parametrize("changed", ["size", "time", "path"])
def test_workers_that_do_not_see_the_file_are_sent_the_reads(
    changed, here, files, tmp_path, monkeypatch
):
    expected = rows(COMMANDS["match-fastq"], files, tmp_path)
    with open(files["fastq"]) as file:
        size, time = match_tasks._version(file.fileno())
    numbers = count()

    def version(descriptor):
        """Another one to each that looks."""
        number = next(numbers)
        return size + number * (changed == "size"), time + number * (changed == "time")

    monkeypatch.setattr(match_tasks, "_version", version)
    if changed == "path":
        parsed = match_tasks._ByWorkers.parsed
        elsewhere = lambda self, path, file: parsed(self, f"{path}-", file)  # noqa: E731
        monkeypatch.setattr(match_tasks._ByWorkers, "parsed", elsewhere)
    assert rows(COMMANDS["match-fastq"], files, tmp_path, "--cluster", "auto") == expected


def test_a_fault_in_fastq_comes_behind_the_rows_before_it(
    here, files, tmp_path, capfd, monkeypatch
):
    for bases in ("TASK_BASES", "LEAST_BASES"):
        monkeypatch.setattr(match_tasks, bases, 20_000)
    path, good = tmp_path / "bad.fq", Path(files["fastq"]).read_text()
    path.write_text(good + "@bad\nACGT\n+\nIII\n" + good)
    given = ["match", str(path), "-d", files["targets"], "-k", "21", "-q", "--report", "reads"]
    said = []
    for more in ([], ["--cluster", "auto"]):
        assert main([*given, *more]) == 1
        said.append(capfd.readouterr())
    assert said[0] == said[1]
    assert "record 430 (bad)" in said[1].err
    assert said[1].out.count("\n") == 430


def test_an_error_in_the_text_comes_behind_the_rows_before_it(here, tmp_path, capfd):
    path = tmp_path / "bad.fa"
    path.write_text(">a\n" + "ACGTTGCA" * 3 + "\n>b\nACG!T\n")
    lines = []
    for more in ([], ["--cluster", "auto"]):
        assert main(["asm", str(path), "--pattern", "TTGCA", "-k", "0", "-q", *more]) == 1
        lines.append(capfd.readouterr())
    assert lines[0] == lines[1]
    assert "record 2 (b), position 4" in lines[1].err
    assert lines[1].out.count("\n") == 6
