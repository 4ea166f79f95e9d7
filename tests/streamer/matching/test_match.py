"""``streamer match`` against the brute-force oracle, on real reads and made-up ones."""

from __future__ import annotations

import json
import os
import random
from itertools import cycle

import pytest

from tests.data_files import DATA, data_files, read_plainly, write_fasta
from tests.reference import exact as oracle

pytestmark = pytest.mark.whole

KS = (1, 2, 3, 4, 11, 15, 16, 21, 30, 31)
FULL = bool(os.environ.get("STREAMER_TEST_FULL"))
SOME_BASES = 5_000

REPORTS = {
    "intervals": oracle.intervals_report,
    "reads": oracle.reads_report,
    "windows": oracle.windows_report,
}


def rows_of(text):
    header, *lines = text.splitlines()
    assert header.startswith("#read\t")
    return [tuple(line.split("\t")) for line in lines]


def as_text(rows):
    return [tuple(str(field) for field in row) for row in rows]


def without_depth(rows):
    return [row[:3] + row[4:] for row in rows]


def some_of(path):
    """The reads of a file: all, or the first few in an ordinary run."""
    reads = read_plainly(path)
    if FULL:
        return reads
    chosen, size = [], 0
    for name, sequence in reads:
        chosen.append((name, sequence[: SOME_BASES // 3]))
        size += len(chosen[-1][1])
        if size > SOME_BASES:
            break
    return chosen


def write_fastq(path, reads):
    path.write_text("".join(f"@{n} x\n{s}\n+\n{'I' * len(s)}\n" for n, s in reads))
    return str(path)


@pytest.mark.parametrize(
    "k", [k if k in (1, 15, 31) else pytest.param(k, marks=pytest.mark.slow) for k in KS]
)
@pytest.mark.parametrize("path", data_files("*.fq.gz"), ids=lambda path: path.name)
def test_real_reads(path, k, tmp_path, streamer):
    reads = some_of(path)
    fastq = write_fastq(tmp_path / "reads.fq", reads)
    lambda_fa = DATA / "lambda.fa.gz"
    genome = read_plainly(lambda_fa)
    total = sum(len(sequence) for _, sequence in reads)
    rng, kernels = random.Random(k), cycle(("index", "walk"))
    for mode, arguments, options in (
        ("frozen", ["--dictionary", lambda_fa], {"records": genome}),
        ("grow", ["--seed", 2_000], {"seed": 2_000}),
    ):
        for report, expected in REPORTS.items():
            want = as_text(expected(reads, k, mode=mode, **options))
            # each kernel has each chunk, in one report or the next
            for chunk in (k, rng.randint(k, total), total):
                kernel = next(kernels)
                code, out, _ = streamer(
                    "match", fastq, "-k", k, *arguments, "--report", report,
                    "--chunk", chunk, "--kernel", kernel, "--quiet",
                )  # fmt: skip
                assert code == 0
                got = rows_of(out)
                if report == "windows":
                    assert all(
                        int(row[3]) == k if row[2] == "match" else 1 <= int(row[3]) <= k
                        for row in got
                    )
                    got = without_depth(got)
                assert got == want, f"{mode} {report} chunk {chunk} {kernel}"


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("k", [1, 3, 11, 31])
def test_frozen_depths(k, strands, tmp_path, streamer):
    rng = random.Random(f"{k} {strands}")
    text = "".join(rng.choices("ACGT", k=400))
    records = [("one", text[:250]), ("two", text[200:] + "N" + text[:40]), ("tiny", "AC")]
    reads = [
        (f"r{i}", text[i * 30 : i * 30 + 70] + rng.choice(["", "N", "ACGTTA"])) for i in range(12)
    ]
    dictionary = write_fasta(tmp_path / "dictionary.fa", records)
    fasta = write_fasta(tmp_path / "reads.fa", reads)
    prefixes = oracle.prefixes_of(oracle.dictionary_of(records, k, strands), strands)
    by_name = dict(reads)
    for kernel in ("index", "walk"):
        code, out, _ = streamer(
            "match", fasta, "-k", k, "-d", dictionary, "--strands", strands,
            "--report", "windows", "--kernel", kernel, "--quiet",
        )  # fmt: skip
        assert code == 0
        got = rows_of(out)
        want = oracle.windows_report(reads, k, records=records, strands=strands)
        assert without_depth(got) == as_text(want)
        for name, start, _, depth, _ in got:
            window = by_name[name][int(start) : int(start) + k]
            assert int(depth) == oracle.depth_of(window, prefixes, strands), (name, start)


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_many_targets(mode, strands, tmp_path, streamer):
    rng = random.Random(f"{mode} {strands}")
    shared = "".join(rng.choices("ACGT", k=60))
    records = [
        (f"t{i}", "".join(rng.choices("ACGT", k=30)) + shared[: 20 + 3 * i]) for i in range(12)
    ]
    reads = [
        (
            f"r{i}",
            records[i][1][5:]
            + rng.choice("acgtnR")
            + oracle.reverse_complement(records[11 - i][1])[:40],
        )
        for i in range(12)
    ] + [("short", "ACG"), ("empty", "")]
    dictionary = write_fasta(tmp_path / "dictionary.fa", records)
    fasta = write_fasta(tmp_path / "reads.fa", reads)
    for k in (4, 9, 16):
        for report, expected in REPORTS.items():
            code, out, _ = streamer(
                "match", fasta, "-k", k, "-d", dictionary, "--strands", strands,
                "--mode", mode, "--report", report, "--quiet",
            )  # fmt: skip
            assert code == 0
            got = rows_of(out)
            got = without_depth(got) if report == "windows" else got
            want = expected(reads, k, records=records, strands=strands, mode=mode)
            assert got == as_text(want), f"k {k} {report}"


def test_names_that_look_like_several_or_repeat(tmp_path, streamer):
    """The column cannot be split in TSV; JSON has lists. One line says so, and what to do."""
    texts = ["ACGTACGGATTC", "TTGACCATGGAC", "GGATCCATTTGA"]
    names = ["s1;size=5;", 'a"b;c', ".", "Hong Kong/1", "Hong Kong/2"]
    records = list(zip(names, [texts[0], texts[0], texts[1], texts[2], texts[2]], strict=True))
    dictionary = write_fasta(tmp_path / "d.fa", records)
    reads = write_fasta(tmp_path / "r.fa", list(zip("xyz", texts, strict=True)))
    lists = [["s1;size=5;", 'a"b;c'], ["."], ["Hong", "Hong"]]
    run = ("match", reads, "-d", dictionary, "-k", 9, "--device", "cpu")
    for options in ((), ("--report", "windows"), ("--distance", 1, "--report", "best")):
        code, out, err = streamer(*run, *options, "--format", "jsonl")
        assert code == 0
        rows = [json.loads(line) for line in out.splitlines()]
        found = {row["read"]: row["target"] for row in rows}
        assert found == dict(zip("xyz", lists, strict=True))
        assert [line for line in err.splitlines() if "warning" in line] == [
            "streamer: warning: 1 target names repeat, so rows do not tell their records apart: "
            "Hong; a name ends at the first blank: replace blanks, or rename, or name targets by a "
            "table or by file (--targets, --target-by)",
            "streamer: warning: 3 target names hold ';', which joins names in the column target, "
            'or are dots or empty: s1;size=5;, a"b;c, .; use --format jsonl, which has lists, or '
            "rename",
        ]
    _, out, _ = streamer(*run, "--quiet")
    assert {row[-1] for row in rows_of(out)} == {";".join(names) for names in lists}
    nameless = write_fasta(tmp_path / "nameless.fa", [("", texts[0])] * 2)
    err = streamer("match", reads, "-d", nameless, "-k", 9, "--device", "cpu")[2]
    assert "do not tell their records apart: ''; a name ends" in err
    assert "or are dots or empty: '', ''; use" in err
