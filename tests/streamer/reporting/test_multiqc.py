"""MultiQC itself shows the module, and its data has the numbers.

MultiQC and what it needs take a gigabyte, so it is in no extra: it is looked for on PATH, or where
STREAMER_TEST_MULTIQC says (``python -m venv DIR && DIR/bin/pip install multiqc``, then
``DIR/bin/multiqc``).
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess

import pytest

from streamer.cli.app import main
from streamer.reporting.multiqc import multiqc_path
from tests.streamer.reporting.test_row_files import BY_BARCODE, READS, TARGETS
from tests.waiting import DEADLINE

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
