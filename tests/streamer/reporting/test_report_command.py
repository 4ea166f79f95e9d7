"""``streamer report``: the page, the files it takes, and MultiQC's."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.reporting.collection import read_report
from streamer.reporting.multiqc import multiqc_path
from streamer.reporting.reports import RowError
from tests.data_files import data_file
from tests.streamer.reporting.page_reader import check_page, number
from tests.waiting import DEADLINE

EVIL = [
    "<script>alert(1)</script>", '"><img/src=x/onerror=alert(1)>', "a&amp;b", "</title></style>",
    "'onload='x", "javascript:alert(1)", "\u202eright-to-left", "{{7*7}}", "zero\u200bwidth",
]  # fmt: skip


def report(folder, *texts, options=()):
    """The page of these files, read and checked."""
    paths = []
    for at, text in enumerate(texts):
        paths.append(folder / f"in{at}.tsv")
        paths[-1].write_text(text)
    out = folder / "made.html"
    assert main(["report", *map(str, paths), "-o", str(out), "--quiet", *options]) == 0
    return check_page(out.read_text())


def test_what_the_rows_say_stands_on_the_page(tmp_path):
    page = report(tmp_path, TARGETS, BY_BARCODE, COVERAGE, NOVELTY)
    facts = dict(page.facts)
    assert facts["Unassigned reads"] == "40.0 %"
    assert facts["Targets with reads"] == "1 of 2"
    assert facts["Barcodes"] == "1"
    rows = {row[0]: row[1:] for row in page.table("2 targets")}
    assert rows["one"] == ["3", "60.0 %", "300", "0.5000", "2.0000", "10", "20", "40"]
    assert rows["two"][3:5] == ["–", "–"]
    assert rows["unassigned"][:3] == ["2", "40.0 %", "150"]
    pairs = [row[:4] for row in page.table("Targets by barcode")]
    assert ["none", "one", "1", "100"] in pairs
    assert ["barcode01", "unassigned", "2", "150"] in pairs
    assert page.table("Coverage along one")[0] == ["0", "50", "50", "20", "60", "1.20"]
    assert [row[0] for row in page.table("Novelty curve")] == ["100", "450"]


def test_files_of_other_runs_are_pointed_out(tmp_path):
    page = report(tmp_path, TARGETS, READS)
    assert any("these are not the same reads" in word for word in page.words)
    page = report(tmp_path, TARGETS, BY_BARCODE)
    assert not any("these are not the same reads" in word for word in page.words)


def test_two_files_of_a_kind_stand_below_their_names(tmp_path):
    page = report(tmp_path, READS, READS.replace("r1", "r9"))
    assert [page.words.count(f"in{at}.tsv") >= 2 for at in (0, 1)] == [True, True]
    content = json.loads((tmp_path / "made_mqc.json").read_text())
    assert [*content["data"]] == ["made 1", "made 2"]


def test_hostile_names_are_text(tmp_path):
    head, *_ = TARGETS.splitlines(keepends=True)
    rows = [f"{name}\t1\t10\t4\t20\t2\t0.1000\t0.2000\n" for name in EVIL]
    last = ".\t0\t0\t.\t.\t.\t.\t.\n"
    by = [f"{name}\t{row}" for name in EVIL for row in [*rows, last]]
    coverage = [f"{name}\t0\t50\t20\t2\t4\n" for name in EVIL]
    reads = [f"{name}\t50\t10\t5\t5\t0\t{name}\n" for name in EVIL]
    page = report(
        tmp_path,
        "".join([head, *rows, last]),
        "#barcode\t" + head[1:] + "".join(by),
        COVERAGE.splitlines(keepends=True)[0] + "".join(coverage),
        READS.splitlines(keepends=True)[0] + "".join(reads),
        options=["--title", EVIL[0]],
    )
    shown = {row[0] for row in page.table(f"{len(EVIL)} targets")}
    assert set(EVIL[:6]) < shown
    assert "\ufffdright-to-left" in shown
    text = (tmp_path / "made.html").read_text()
    for name in EVIL[:4]:
        assert name not in text
    assert "\u202e" not in text
    json.loads((tmp_path / "made_mqc.json").read_text())


def test_of_many_targets_the_rest_is_counted(tmp_path):
    rng = random.Random(4)
    counts = [(f"t{at}", rng.randrange(50)) for at in range(10_000)]
    head = TARGETS.splitlines(keepends=True)[0]
    rows = [f"{name}\t{n}\t{7 * n}\t{n}\t100\t{n}\t{n / 100:.4f}\t{n / 100:.4f}\n"
            for name, n in counts]  # fmt: skip
    last = ".\t5\t35\t.\t.\t.\t.\t.\n"
    bins = [f"{name}\t{10 * at}\t{10 * at + 10}\t10\t{n % 9}\t{n}\n"
            for name, n in counts for at in range(2)]  # fmt: skip
    coverage = COVERAGE.splitlines(keepends=True)[0]
    page = report(tmp_path, "".join([head, *rows, last]), coverage + "".join(bins))
    table = page.table("10,000 targets")
    assert len(table) == 202
    assert table[-2][0] == "9,800 other targets"
    assert sum(number(row[1]) for row in table) == sum(n for _, n in counts) + 5
    assert len([caption for caption in page.tables if caption.startswith("Coverage")]) == 24
    best = Counter(dict(counts)).most_common(1)[0][1]
    assert number(table[0][1]) == best
    content = json.loads((tmp_path / "made_mqc.json").read_text())
    assert len(content["data"]) == 500
    assert "9,501 rows" in content["description"]
    assert (tmp_path / "made.html").stat().st_size < 3 << 20


@pytest.mark.whole
def test_memory_does_not_grow_with_the_rows(tmp_path):
    head, *_ = READS.splitlines(keepends=True)

    def peak(rows):
        line = "read\t{0}\t60\t40\t20\t0\tone\n"
        path = tmp_path / "reads.tsv"
        path.write_text(head + "".join(line.format(100 + at % 5000) for at in range(rows)))
        tracemalloc.start()
        try:
            assert main(["report", str(path), "-o", str(tmp_path / "out.html")]) == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    assert peak(30_000) < peak(10_000) + (1 << 20)


def test_lengths_and_n50_are_those_of_the_definition(tmp_path):
    rng = random.Random(9)
    some = [min(int(rng.lognormvariate(7, 1.3)), 10**6) for _ in range(3000)] + [0, 1, 2]
    # one read may have more than half of the bases
    for lengths in (some, [*some, 2**40]):
        head = READS.splitlines(keepends=True)[0]
        rows = [f"r\t{n}\t0\t0\t0\t0\t{rng.choice(['one', '.'])}\n" for n in lengths]
        page = report(tmp_path, head + "".join(rows))
        first = page.table("Lengths of reads")[0]
        half, passed, n50 = sum(lengths) / 2, 0, 0
        for length in sorted(lengths, reverse=True):
            passed += length
            if passed >= half:
                n50 = length
                break
        middle = sorted(lengths)[(len(lengths) - 1) // 2]
        assert [number(cell) for cell in first[1:4]] == [len(lengths), sum(lengths), n50]
        assert number(first[4]) == middle
        bins = page.table("Reads by length")
        assert sum(number(cell) for row in bins for cell in row[1:]) == len(lengths)
        for row in bins:
            low, _, high = row[0].partition(" to ")
            inside = sum(number(low) <= n <= number(high or low) for n in lengths)
            assert inside == number(row[1]) + number(row[2])


def test_standard_input_and_output(tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TARGETS.encode())))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "-", "-o", "-"]) == 0
    page = check_page(capsysbinary.readouterr().out.decode())
    assert "<stdin>" in page.words
    assert not [*Path().iterdir()]


USAGE = {
    "nothing": (["-o", "x.html"], 2, "name the files"),
    "no_output": (["t.tsv"], 2, "--output"),
    "dictionary": (["t.tsv", "-d", "t.tsv", "-o", "x.html"], 2, "--dictionary is for a journal"),
    "windows": (["t.tsv", "--min-windows", "2", "-o", "x.html"], 2, "--min-windows is for"),
    "missing": (["none.tsv", "-o", "x.html"], 1, "none.tsv: no such file"),
    "no_journal": (["folder", "-o", "x.html"], 1, "there is no journal"),
    "kept_none": (["--config", "t.toml", "-o", "x.html"], 2, "this daemon keeps no journal"),
    "over_itself": (["t.tsv", "-o", "t.tsv"], 2, "input and output are the same file"),
    "over_aside": (["x_mqc.json", "-o", "x.html"], 2, "input and output are the same file"),
    "no_folder": (["t.tsv", "-o", "none/x.html"], 1, "none/x.html: cannot write"),
}


@pytest.mark.parametrize("name", USAGE)
def test_faults_of_options(tmp_path, monkeypatch, capfd, name):
    monkeypatch.chdir(tmp_path)
    Path("t.tsv").write_text(TARGETS)
    Path("t.toml").write_text('dictionary.seed_bases = 9\njournal.durability = "none"\n')
    Path("x_mqc.json").write_text(TARGETS)
    Path("folder").mkdir()
    before = {path: path.read_text() for path in Path().glob("*.*")}
    options, code, problem = USAGE[name]
    assert main(["report", *options]) == code
    error = capfd.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert {path: path.read_text() for path in Path().glob("*.*")} == before


def test_after_an_error_both_files_stay_as_they_were(tmp_path):
    report(tmp_path, TARGETS)
    before = (tmp_path / "made.html").read_bytes(), (tmp_path / "made_mqc.json").read_bytes()
    bad = tmp_path / "bad.tsv"
    bad.write_text(TARGETS[:-2])
    good = tmp_path / "in0.tsv"
    assert main(["report", str(good), str(bad), "-o", str(tmp_path / "made.html")]) == 1
    now = (tmp_path / "made.html").read_bytes(), (tmp_path / "made_mqc.json").read_bytes()
    assert now == before
    assert not [*tmp_path.glob(".*")]


def test_a_disk_too_full_for_the_page_leaves_both_files(tmp_path, capfd):
    """The compressed page is in a buffer until it is finished; the file for MultiQC fits."""
    rows, page, aside = (tmp_path / name for name in ("t.tsv", "x.html.gz", "x_mqc.json"))
    rows.write_text(TARGETS)
    for old in (page, aside):
        old.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_500, before[1]))
    try:
        assert main(["report", str(rows), "-o", str(page), "--quiet"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"{page}: cannot write: " in capfd.readouterr().err
    assert [old.read_text() for old in (page, aside)] == ["old", "old"]
    assert not [*tmp_path.glob(".*")]


def test_the_same_page_again_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    pages = []
    for _ in range(2):
        path = tmp_path / "t.tsv"
        path.write_text(TARGETS)
        out = tmp_path / "page.html"
        assert main(["report", str(path), "-o", str(out)]) == 0
        pages.append(out.read_text().partition("last changed")[0])
    assert pages[0] == pages[1]
    assert "2023-11-14 22:13 UTC" in out.read_text()


TARGETS = """\
#target	reads	bases	matches	kmers	seen	breadth	depth
one	3	300	40	20	10	0.5000	2.0000
two	0	0	0	0	0	.	.
.	2	150	.	.	.	.	.
"""
BY_BARCODE = """\
#barcode	target	reads	bases	matches	kmers	seen	breadth	depth
.	one	1	100	10	20	10	0.5000	0.5000
.	.	0	0	.	.	.	.	.
barcode01	one	2	200	30	20	5	0.2500	1.5000
barcode01	.	2	150	.	.	.	.	.
"""
COVERAGE = """\
#target	start	end	kmers	seen	matches
one	0	50	50	20	60
one	50	99	30	0	0
two	0	7	0	0	0
"""
READS = """\
#read	length	windows	matches	mismatches	skipped	best_target
r1	100	80	60	20	0	one
r2	100	70	0	70	5	.
"""
NOVELTY = """\
#reads	bases	kmers	new
1	100	80	80
5	450	140	60
"""
EVERY = {
    "targets": TARGETS, "by_barcode": BY_BARCODE, "coverage": COVERAGE, "reads": READS,
    "novelty": NOVELTY,
}  # fmt: skip


def as_jsonl(text):
    """The same rows as objects."""
    head, *lines = text.splitlines()
    names = head[1:].split("\t")

    def value(cell):
        if cell == ".":
            return None
        return float(cell) if "." in cell else int(cell) if cell.isdigit() else cell

    rows = (map(value, line.split("\t")) for line in lines)
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def made(folder, text, name="rows", *options):
    """Exit code, and the page if there is one."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    out = folder / "out.html"
    out.unlink(missing_ok=True)
    code = main(["report", str(path), "-o", str(out), *options])
    return code, out.read_text() if out.exists() else None


@pytest.mark.parametrize("name", EVERY)
def test_tsv_jsonl_and_compressed_files_give_the_same_page(tmp_path, name, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    pages = []
    text = EVERY[name]
    for content in (
        text, as_jsonl(text), gzip.compress(text.encode()), text.replace("\n", "\r\n"),
        "## command: match\n## k: 21\n" + text.removeprefix("#"),
    ):  # fmt: skip
        code, page = made(tmp_path, content)
        assert code == 0
        assert (tmp_path / "out_mqc.json").exists()
        check_page(page)
        pages.append(page.split("Version and parameters</h2>")[0])
    assert len(set(pages)) == 1


FAULTS = {
    "nothing": ("", "the file is empty"),
    "fasta": (">one\nACGT\n", "line 1: the first line is no header"),
    "intervals": ("#read\tstart\tend\tevent\twindows\ttarget\n", "of no report that can be shown"),
    "no_target_row": (TARGETS.rpartition("\n.")[0] + "\n", "the row of the unassigned reads"),
    "cut": (TARGETS[:-3], "line 4: the file ends within this line"),
    "cut_jsonl": (as_jsonl(TARGETS)[:-9], "line 3: the file ends within this line"),
    "columns": (TARGETS.replace("two\t0", "two"), "line 3: 7 columns, expected the 8"),
    "letters": (TARGETS.replace("40", "4O"), "line 2, column matches: '4O', expected a whole"),
    "negative": (TARGETS.replace("300", "-3"), "line 2, column bases: '-3', expected a whole"),
    "null": (TARGETS.replace("\t3\t", "\t.\t"), "line 2, column reads: '.', expected a whole"),
    "huge": (TARGETS.replace("300", "9" * 30), "line 2, column bases"),
    "seen": (TARGETS.replace("20\t10\t", "20\t30\t"), "line 2, column seen: 30 is more than 20"),
    "breadth": (TARGETS.replace("0.5000", "0.7000"), "column breadth: 0.7 does not fit"),
    "depth": (TARGETS.replace("2.0000", "."), "line 2, column depth"),
    "twice": (TARGETS + TARGETS.partition("\n")[2], "line 5, column target: rows after"),
    "two_headers": (TARGETS + COVERAGE, "line 5: another header, expected the 8"),
    "other_target": (BY_BARCODE.replace("barcode01\tone", "barcode01\tsix"),
                     "line 4, column target: 'six', expected 'one'"),
    "barcode_cut": (BY_BARCODE.replace(".\t.\t0\t0\t.\t.\t.\t.\t.\n", ""),
                    "line 3, column barcode: another barcode"),
    "bin_gap": (COVERAGE.replace("50\t99", "60\t99"), "line 3, column start: 60, expected 50"),
    "bin_kmers": (COVERAGE.replace("\t50\t20", "\t51\t20"), "line 2, column kmers: 51 in a bin"),
    "bin_again": (COVERAGE + "one\t99\t100\t0\t0\t0\n", "column target: 'one' appears again"),
    "windows": (READS.replace("80\t60", "81\t60"), "line 2, column windows: 81, but there are 60"),
    "short": (READS.replace("r1\t100", "r1\t10"), "line 2, column length: 10, too short for 80"),
    "curve": (NOVELTY.replace("450\t140", "30\t140"), "line 3, column bases: 30 is less than 100"),
    "new": (NOVELTY.replace("140\t60", "140\t61"), "line 3, column new: 61, but the k-mers rise"),
    "bytes": (READS.encode().replace(b"r2", b"r\xff"), "line 3, column read: it is not UTF-8"),
    "empty_cell": (READS.replace("r2", ""), "line 3, column read: it is empty"),
    "json_mixed": (as_jsonl(READS) + as_jsonl(NOVELTY), "line 3: 'read' is missing"),
    "json_type": (as_jsonl(READS).replace("100", '"100"'), "line 1, column length: '\"100\"'"),
    "json_bool": (as_jsonl(READS).replace("100", "true"), "line 1, column length: 'true'"),
    "json_list": (as_jsonl(READS) + "[1]\n", "line 3: it is no JSON object"),
    "json_deep": (as_jsonl(READS) + '{"read":' + "[" * 100_000 + "\n", "line 3: it is no JSON"),
    "json_nan": (as_jsonl(TARGETS).replace("2.0", "NaN"), "line 1, column depth"),
    "gzip_cut": (gzip.compress(TARGETS.encode() * 50)[:60], "cannot be read"),
    "binary": (bytes(range(256)), "line 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_its_place(tmp_path, capfd, name):
    content, problem = FAULTS[name]
    code, page = made(tmp_path, content)
    error = capfd.readouterr().err
    assert code == 1
    assert page is None
    assert not (tmp_path / "out_mqc.json").exists()
    assert error.count("\n") == 1
    assert f"{tmp_path}/rows" in error
    assert problem in error


def outcome(content):
    """The report, or the error, of a file with these bytes."""
    try:
        return read_report(io.BytesIO(content), "rows")
    except RowError as error:
        return error


@pytest.mark.parametrize("text", [TARGETS, BY_BARCODE])
def test_a_target_may_have_the_name_of_none(text):
    text = text.replace("\tone\t", "\t.\t").replace("\none\t", "\n.\t")
    for content in (text, as_jsonl(text)):
        assert outcome(content.encode()).report.names[0] == "."


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("json_", [False, True])
def test_a_file_cut_anywhere_is_refused_or_shows_whole_rows(name, json_):
    """Of reports whose end says nothing of its own, a cut between two rows cannot be noticed."""
    text = as_jsonl(EVERY[name]) if json_ else EVERY[name]
    complete = len(text) - json_  # the last line break says nothing more
    for cut in range(complete):
        found = outcome(text[:cut].encode())
        between = text[:cut].endswith("\n") or (json_ and text[:cut].endswith("}"))
        if name == "targets" or not between:
            assert isinstance(found, RowError), cut
    assert not isinstance(outcome(text[:complete].encode()), RowError)


def test_damaged_bytes_are_refused_or_read():
    rng = random.Random(11)
    for _ in range(5000):
        text = bytearray(rng.choice([*EVERY.values()]).encode())
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        found = outcome(bytes(text))
        if isinstance(found, RowError):
            assert str(found).startswith("rows: ")
            assert "\n" not in str(found)


MULTIQC = os.environ.get("STREAMER_TEST_MULTIQC") or shutil.which("multiqc")


def written(folder, name, *texts):
    """The content of the file beside a page of these reports."""
    paths = []
    for at, text in enumerate(texts):
        paths.append(folder / f"in{at}.tsv")
        paths[-1].write_text(text)
    out = folder / f"{name}.html"
    assert main(["report", *map(str, paths), "-o", str(out)]) == 0
    return json.loads((folder / f"{name}_mqc.json").read_text())


def test_it_is_custom_content_with_the_numbers_of_the_rows(tmp_path):
    content = written(tmp_path, "run7", TARGETS, BY_BARCODE, READS)
    assert content["plot_type"] == "table"
    assert {"id", "section_name", "description", "pconfig", "headers", "data"} <= set(content)
    data = content["data"]
    assert data["run7 | one"] == {
        "reads": 3, "bases": 300, "matches": 40, "kmers": 20, "seen": 10,
        "breadth": 0.5, "depth": 2.0,
    }  # fmt: skip
    assert data["run7 | unassigned"] == {"reads": 2, "bases": 150}
    assert data["run7 | barcode01 | one"]["breadth"] == 0.25
    assert data["run7 | no barcode | one"]["reads"] == 1
    assert "run7 | no barcode | unassigned" not in data  # it has no read
    alike = written(tmp_path, "x", TARGETS.replace("one", "a/b").replace("two", "a_b"))["data"]
    assert [*alike] == ["x | a_b", "x | unassigned", "x | a_b (2)"]
    assert set(content["headers"]) == {name for row in data.values() for name in row}


@pytest.mark.parametrize(
    ("page", "beside"),
    [
        ("report.html", "report_mqc.json"), ("a/run.7.html", "a/run.7_mqc.json"),
        ("page.html.gz", "page_mqc.json"), ("page", "page_mqc.json"),
    ],
)  # fmt: skip
def test_where_it_goes(page, beside):
    assert multiqc_path(page) == beside


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.skipif(MULTIQC is None, reason="no MultiQC (STREAMER_TEST_MULTIQC)")
def test_multiqc_shows_it(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    evil = TARGETS.replace("one", "<script>alert(1)</script>x").replace("two", "a/b&amp;c")
    contents = [written(runs, "run7", TARGETS, BY_BARCODE), written(runs, "evil", evil),
                written(runs, "lengths", READS)]  # fmt: skip
    assert "evil | _script_alert(1)__script_x" in contents[1]["data"]
    command = [MULTIQC, str(runs), "-o", str(tmp_path / "out"), "--no-version-check", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "out" / "multiqc_data"
    found = {}
    for path in folder.glob("multiqc_kmer_streamer*.txt"):
        with open(path, newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                name = row.pop("Sample")
                found[name] = {column: float(cell) for column, cell in row.items() if cell}
    expected = {name: row for content in contents for name, row in content["data"].items()}
    assert found == expected
    page = (tmp_path / "out" / "multiqc_report.html").read_text()
    assert "kmer_streamer" in page
    assert "<script>alert(1)" not in page


@pytest.mark.whole
def test_it_takes_what_match_writes(tmp_path):
    reads, genome = data_file("lambda_nanopore.fq.gz"), data_file("lambda.fa.gz")
    paths = []
    for name, *more in (["targets"], ["targets", "--by", "barcode"], ["coverage"], ["reads"]):
        for form in ("tsv", "jsonl"):
            paths.append(tmp_path / f"{len(paths)}.{form}")
            given = ["match", str(reads), "-d", str(genome), "-k", "21", "--report", name, *more]
            assert main([*given, "--format", form, "-o", str(paths[-1]), "--quiet"]) == 0
    paths.append(tmp_path / "curve.tsv.gz")
    given = ["match", str(reads), "--seed", "0", "-k", "21", "--report", "novelty"]
    assert main([*given, "-o", str(paths[-1]), "--quiet"]) == 0
    for path in paths:
        out = tmp_path / "page.html"
        assert main(["report", str(path), "-o", str(out)]) == 0
        page = check_page(out.read_text())
        coverage = [caption for caption in page.tables if caption.startswith("Coverage")]
        assert dict(page.facts).get("Reads") == "60" or len(coverage) == 1
