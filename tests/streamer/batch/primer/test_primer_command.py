"""``streamer primer``: rows, errors, and what is made of the rows."""

from __future__ import annotations

import io
import json
import os
import sys

import numpy as np
import pytest

from streamer.batch import primer
from streamer.batch.choice import Choice
from streamer.batch.primer import seeds
from streamer.batch.primer.problem import Alpha
from streamer.batch.primer.seeds import CutCosts
from tests.data_files import data_file, read_plainly, write_fasta
from tests.reference import primer as oracle
from trie.codes import encode
from trie.cpu.compiling import NOTICE

pytestmark = pytest.mark.whole

HEADER = "#alpha\tstart\tend\tlength\n"


@pytest.fixture
def files(tmp_path):
    alpha = write_fasta(tmp_path / "alpha.fa", [("a", "ACTG"), ("b", ""), ("c", "acugn")])
    beta = write_fasta(tmp_path / "beta.fa", [("x", "AGCAAG"), ("y", "NN")])
    return alpha, beta


def test_plain_rows(streamer, files):
    code, out, err = streamer("primer", *files, "-k", 2, "--device", "cpu", "--quiet")
    assert (code, err) == (0, "")
    assert out == HEADER + "a\t0\t3\t3\na\t1\t4\t3\nc\t0\t3\t3\nc\t1\t4\t3\nc\t2\t5\t3\n"
    code, out, _ = streamer("primer", *files, "-k", 2, "--format", "jsonl", "--device", "cpu", "-q")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0] == {"alpha": "a", "start": 0, "end": 3, "length": 3}
    assert len(rows) == 5


def test_no_rows(streamer, files, tmp_path):
    empty = write_fasta(tmp_path / "empty.fa", [])
    for arguments in ((*files, "-k", 9), (*files, "-k", 10**6), (empty, files[1], "-k", 1)):
        assert streamer("primer", *arguments, "--device", "cpu", "-q") == (0, HEADER, "")
    code, out, _ = streamer("primer", files[0], empty, "-k", 3, "--device", "cpu", "-q")
    assert code == 0
    assert out == HEADER + "a\t0\t3\t3\na\t1\t4\t3\nc\t0\t3\t3\nc\t1\t4\t3\nc\t2\t5\t3\n"


@pytest.mark.parametrize("records", [[], [("x", "")], [("x", ""), ("y", "NNRN")]])
@pytest.mark.parametrize("strands", ["forward", "both"])
def test_a_beta_without_bases_is_warned_of(streamer, files, tmp_path, records, strands):
    """Every candidate passes, which is no finding."""
    empty = write_fasta(tmp_path / "empty.fa", records)
    arguments = ("-k", 3, "--strands", strands, "--device", "cpu")
    code, out, err = streamer("primer", files[0], empty, *arguments)
    assert (code, out.count("\n")) == (0, 6)
    warning = f"streamer: warning: {empty} holds no bases: nothing rules a candidate out\n"
    assert err.replace(f"streamer: {NOTICE}\n", "") == warning
    assert streamer("primer", files[0], empty, *arguments, "-q")[2] == ""
    # an empty alpha has no candidates, and no rows say so
    nothing = write_fasta(tmp_path / "nothing.fa", [])
    for alpha, beta in (files, (nothing, empty)):
        assert "warning" not in streamer("primer", alpha, beta, *arguments)[2]


def test_standard_input_and_strands(streamer, files, monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    alpha = "".join(rng.choice(list("ACGT"), 60))
    beta = alpha[20:50][::-1].translate(oracle.COMPLEMENT) + "".join(rng.choice(list("ACGT"), 200))
    path = write_fasta(tmp_path / "long.fa", [("long", alpha)])
    for strands in ("forward", "both"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f">b\n{beta}\n".encode())))
        code, out, _ = streamer(
            "primer", path, "-", "-k", 3, "--strands", strands, "--device", "cpu", "-q"
        )
        assert code == 0
        expected = oracle.primers([alpha], [beta], 3, strands)
        assert out == HEADER + "".join(f"long\t{s}\t{e}\t{n}\n" for _, s, e, n in expected)


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, "-k", ("{a}", "{b}", "-k", 0)),
        (2, "1..1000", ("{d}/long.fa", "{b}", "-k", 1001)),
        (2, "fast", ("{a}", "{b}", "-k", 2, "--method", "fast")),
        (2, "read only once", ("-", "-", "-k", 2)),
        (2, "--gc 60-40", ("{a}", "{b}", "-k", 2, "--gc", "60-40")),
        (2, "--tm x", ("{a}", "{b}", "-k", 2, "--tm", "x")),
        (2, "--strands both", ("{a}", "{b}", "-k", 2, "--pairs", 1)),
        (2, "--pairs", ("{a}", "{b}", "-k", 2, "--product", "100-200")),
        (2, "above", ("{a}", "{b}", "-k", 2, "--min-length", 30, "--max-length", 20)),
        (2, "must end in", ("{a}", "{b}", "-k", 2, "--plot", "{d}/x.gif")),
        (2, "input and output are the same file", ("{a}", "{b}", "-k", 2, "--bed", "{b}")),
        (
            2,
            "is named for two outputs",
            ("{a}", "{b}", "-k", 2, "--bed", "{d}/o", "--fasta", "{d}/./o"),
        ),
        (2, "name a file", ("{a}", "{b}", "-k", 2, "--bed", "-")),
        (2, "give a number", ("{a}", "{b}", "-k", 2, "--hairpin-tm", "nan")),
        (2, "known-table", ("{a}", "{b}", "-k", 2, "--known", "{a}")),
        (
            2,
            "--known FASTA",
            ("{a}", "{b}", "-k", 2, "--known-table", "{d}/k", "--plot", "{d}/p.svg"),
        ),
        (1, "no primer", ("{a}", "{b}", "-k", 2, "--known", "{d}/long.fa", "--plot", "{d}/p.svg")),
        (1, "101 records", ("{d}/many.fa", "{b}", "-k", 2, "--plot", "{d}/p.svg")),
        (1, "no such file", ("{a}", "{d}/none.fa", "-k", 2)),
        (1, "position 2", ("{a}", "{d}/bad.fa", "-k", 2)),
        (1, "cannot write", ("{a}", "{b}", "-k", 2, "--bed", "{d}/none/x.bed")),
        (1, "cannot write", ("{a}", "{b}", "-k", 2, "--plot", "{d}/none/x.svg")),
    ],
)
def test_errors(streamer, files, tmp_path, code, words, arguments):
    (tmp_path / "bad.fa").write_text(">x\nA!\n")
    write_fasta(tmp_path / "long.fa", [("x", "A" * 1001)])
    write_fasta(tmp_path / "many.fa", [("x", "ACGT")] * 101)
    names = {"a": files[0], "b": files[1], "d": tmp_path}
    filled = [str(one).format(**names) for one in arguments]
    found, out, err = streamer("primer", *filled, "--device", "cpu", "-q")
    assert found == code, err
    assert words in err
    assert out == ""
    assert len(err.splitlines()) == 1 or code == 2
    assert "Traceback" not in out + err


@pytest.fixture
def virus(tmp_path):
    rng = np.random.default_rng(8)
    genome = "".join(rng.choice(list("ACGT"), 1500))
    host = "".join(rng.choice(list("ACGT"), 20_000)) + genome[600:700]
    return (
        write_fasta(tmp_path / "virus.fa", [("v", genome[:900]), ("w", genome[900:])]),
        write_fasta(tmp_path / "host.fa", [("h", host)]),
        {"v": genome[:900], "w": genome[900:]},
        host,
    )


def test_pairs_differ_from_all_of_beta_and_meet_the_wishes(streamer, virus, tmp_path):
    pytest.importorskip("primer3")
    alpha, beta, genomes, host = virus
    paths = {name: tmp_path / f"out.{name}" for name in ("bed", "fa", "svg")}
    code, out, err = streamer(
        "primer", alpha, beta, "-k", 5, "--strands", "both", "--device", "cpu", "-q", "--pairs", 3,
        "--product", "150-400", "--min-length", 19, "--max-length", 25, "--tm", "55-64",
        "--gc", "35-65", "--bed", paths["bed"], "--fasta", paths["fa"], "--plot", paths["svg"],
    )  # fmt: skip
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0][:4] == ["#alpha", "start", "end", "length"]
    rows = [
        dict(zip([name.lstrip("#") for name in lines[0]], line, strict=True)) for line in lines[1:]
    ]
    assert len(rows) >= 4
    assert {row["alpha"] for row in rows} == {"v", "w"}
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        assert left["pair"] == right["pair"]
        assert (left["strand"], right["strand"]) == ("+", "-")
        product = int(right["end"]) - int(left["start"])
        assert int(left["product"]) == product
        assert 150 <= product <= 400
        for row in (left, right):
            part = genomes[row["alpha"]][int(row["start"]) : int(row["end"])]
            assert 19 <= len(part) == int(row["length"]) <= 25
            turned = part[::-1].translate(oracle.COMPLEMENT)
            assert row["sequence"] == (part if row["strand"] == "+" else turned)
            assert 55 <= float(row["tm"]) <= 64
            assert 35 <= float(row["gc"]) <= 65
            # at least 5 differences: no prefix as long as the whole is within 4
            assert oracle.longest(part, [host], 5, "both") < len(part)
    assert len(paths["bed"].read_text().splitlines()) == len(rows)
    fasta = paths["fa"].read_text().splitlines()
    assert [line for line in fasta if line[0] != ">"] == [row["sequence"] for row in rows]
    drawn = paths["svg"].read_text()
    for label in ("position (bases)", "shortest length (bases)", "chosen +", "chosen -"):
        assert f"<!-- {label} -->" in drawn
    assert "<!-- \u2212" not in drawn  # no negative length


def test_products_of_any_size(streamer, virus):
    pytest.importorskip("primer3")
    alpha, beta, *_ = virus
    options = ("-k", 5, "--strands", "both", "--device", "cpu", "-q", "--pairs", 2, "--product")
    code, endless, err = streamer("primer", alpha, beta, *options, "200-inf")
    assert code == 0, err
    assert (code, endless) == streamer("primer", alpha, beta, *options, "200-900")[:2]
    assert endless.count("\n") > 1
    product = int(endless.splitlines()[1].split("\t")[-2])
    code, out, _ = streamer("primer", alpha, beta, *options, f"{product - 0.5}-{product + 0.5}")
    assert code == 0
    assert {line.split("\t")[-2] for line in out.splitlines()[1:]} == {str(product)}
    code, out, _ = streamer("primer", alpha, beta, *options, f"{product + 0.2}-{product + 0.9}")
    assert (code, out.count("\n")) == (0, 1)


def test_primers_without_pairs_lie_on_their_solutions(streamer, virus):
    pytest.importorskip("primer3")
    alpha, beta, _, _ = virus
    plain = streamer("primer", alpha, beta, "-k", 5, "--device", "cpu", "-q")[1].splitlines()[1:]
    solutions = {tuple(line.split("\t")[:2]): int(line.split("\t")[2]) for line in plain}
    code, out, _ = streamer(
        "primer", alpha, beta, "-k", 5, "--device", "cpu", "-q", "--max-length", 24
    )
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert rows
    for name, start, end, *_ in rows:
        assert int(end) >= solutions[name, start]


def test_records_of_one_name_keep_their_sequences(streamer, tmp_path):
    pytest.importorskip("primer3")
    rng = np.random.default_rng(2)
    records = [("same", "".join(rng.choice(list("ACGT"), 90))) for _ in range(3)]
    alpha = write_fasta(tmp_path / "alpha.fa", records)
    beta = write_fasta(tmp_path / "beta.fa", [("b", "ACGT" * 30)])
    code, out, _ = streamer(
        "primer", alpha, beta, "-k", 4, "--tm", "40-80", "--device", "cpu", "-q",
        "--fasta", tmp_path / "o.fa",
    )  # fmt: skip
    assert code == 0
    sequences = [line.split("\t")[-1] for line in out.splitlines()[1:]]
    written = (tmp_path / "o.fa").read_text().splitlines()[1::2]
    assert written == sequences
    assert all(any(one in sequence for one in sequences) for _, sequence in records)


@pytest.mark.parametrize("beta", ["-", "/dev/fd/{}"])
def test_a_beta_that_cannot_be_read_twice(streamer, files, tmp_path, beta):
    reader, writer = os.pipe()
    os.write(writer, b">x\nAGCAAG\n")
    os.close(writer)
    words = ("primer", files[0], beta.format(reader), "-k", 2, "--device", "cpu", "-q")
    known = ("--known", files[0], "--known-table", tmp_path / "known.tsv")
    code, out, err = streamer(*words, *known)
    os.close(reader)
    assert (code, out) == (2, "")
    assert "BETA is read twice: it cannot be standard input or a pipe" in err


def test_errors_name_standard_input_as_elsewhere(streamer, files, monkeypatch, tmp_path):
    for alpha, known, words in (
        ("-", files[0], "<stdin>: holds 101 records"),
        (files[0], "-", "<stdin>: record 1 (x): 1001 letters"),
    ):
        given = f">x\n{'A' * 1001}\n" + ">x\nACGT\n" * 100
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code, _, err = streamer(
            "primer", alpha, files[1], "-k", 2, "--known", known, "--plot", tmp_path / "p.svg",
            "--device", "cpu", "-q",
        )  # fmt: skip
        assert code == 1
        assert words in err


def test_no_known_primers(streamer, files, tmp_path):
    empty = write_fasta(tmp_path / "empty.fa", [])
    table = tmp_path / "known.tsv"
    code, _, err = streamer(
        "primer", *files, "-k", 2, "--device", "cpu", "-q", "--known", empty, "--known-table", table
    )
    assert (code, err) == (0, "")
    assert table.read_text() == "#primer\talpha\tstart\tend\tstrand\tdifferences\n"


def test_primer3_missing_is_told(streamer, virus, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "primer3"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "primer3", None)
    code, _, err = streamer("primer", *virus[:2], "-k", 5, "--tm", "55-60", "--device", "cpu", "-q")
    assert code == 1
    assert "pip install '.[primer]' in a clone" in err


def test_known_primers_keep_what_the_oracle_says(streamer, virus, tmp_path):
    alpha, beta, genomes, host = virus
    turned = genomes["w"][100:122][::-1].translate(oracle.COMPLEMENT)
    primers = [("one", genomes["v"][10:31]), ("two", turned), ("in", genomes["v"][620:640])]
    codes = {"A": "R", "C": "Y", "G": "S", "T": "W"}
    letters = list(genomes["v"][40:60])
    letters[3], letters[11] = codes[letters[3]], "N"
    primers += [("codes", "".join(letters)), ("nowhere", "ACGTR" * 4), ("none", "")]
    known = write_fasta(tmp_path / "known.fa", primers)
    table = tmp_path / "table.tsv"
    code, _, err = streamer(
        "primer", alpha, beta, "-k", 4, "--strands", "both", "--device", "cpu", "-q",
        "--known", known, "--known-table", table, "--plot", tmp_path / "x.png",
    )  # fmt: skip
    assert code == 0, err
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["one", "v", "10", "31", "+"],
        ["two", "w", "100", "122", "-"],
        ["in", "v", "620", "640", "+"],
        ["codes", "v", "40", "60", "+"],
        ["nowhere", ".", ".", ".", "."],
        ["none", ".", ".", ".", "."],
    ]
    for row, (_, sequence) in zip(rows, primers, strict=True):
        assert int(row[5]) == oracle.differences(sequence, [host], "both"), row
    assert (tmp_path / "x.png").stat().st_size > 1000


GENOMES = ("sarscov2_MN908947.3.fa.gz", "ecoli_K12_MG1655.fa.gz", "mt_human.fa.gz")


@pytest.mark.slow
@pytest.mark.data(*GENOMES)
def test_sars_cov_2_against_e_coli_and_the_human_mitochondrion(monkeypatch):
    """The real job at k = 4, the filter against the scan, starts against the oracle."""
    paths = [data_file(name) for name in GENOMES]
    virus, coli, mitochondrion = (read_plainly(path)[0][1] for path in paths)
    part = virus[21_500:22_100]
    alpha = Alpha.of([encode(part)])
    monkeypatch.setattr(seeds, "BEGINNING", 1 << 14)
    monkeypatch.setattr(seeds, "COSTS", CutCosts(scanned=1e9, candidate=1, found=1, shared=3))
    # a part of the bacterium, and the other genome whole
    beta = [coli[:120_000], mitochondrion]
    codes = [encode(text) for text in beta]
    found = {
        method: primer.reaches(alpha, codes, 4, Choice(method, "cpu"), strands="both")
        for method in ("windows", "seeds")
    }
    np.testing.assert_array_equal(found["seeds"], found["windows"])
    for start in (0, 77, 301, 555):
        assert found["windows"][start] == start + oracle.longest(part[start:], beta, 4, "both")


@pytest.mark.slow
def test_the_size_of_the_seed():
    """43,606 x 241,494, k = 100: starts of a part of alpha against the oracle."""
    rng = np.random.default_rng(1)
    alpha, beta = (rng.integers(0, 4, size, dtype=np.uint8) for size in (43_606, 241_494))
    part = alpha[:400]
    reach = primer.reaches(Alpha.of([part]), [beta], 100, Choice("windows", "cpu"))
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    text = letters[beta].tobytes().decode()
    for start in (150,):
        c = oracle.longest(letters[alpha[start:400]].tobytes().decode(), [text], 100)
        assert reach[start] == start + c
