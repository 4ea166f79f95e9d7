"""Files of rows: told apart by their columns, every fault with its line and column."""

from __future__ import annotations

import gzip
import io
import json
import random

import pytest

from streamer.cli.app import main
from streamer.reporting.collection import read_report
from streamer.reporting.reports import RowError
from tests.streamer.reporting.page_reader import check_page

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
