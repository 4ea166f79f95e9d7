"""Samples and verdicts in rows: of ``match``, and of a daemon, which says the same."""

from __future__ import annotations

import csv
import json
import random
import re

import pytest

from streamer.cli.app import main
from streamer.client import Control, Producer
from streamer.matching.panel import Panel
from streamer.sequences.files import read_batches
from streamer.sequences.sample_sheet import SampleSheet
from streamer.web.model import TargetRows
from tests.daemon_kit import running
from tests.data_files import write_fasta
from tests.reference.targets import targets_report
from tests.reference.verdict import verdict
from tests.reload_kit import configured
from tests.streamer.reporting.page_reader import check_page
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

K = 21
SHEET = """\
flow_cell_id,sample_id,kit,barcode,alias,type
F,clinic,K,barcode01,patient 1,test_sample
F,clinic,K,barcode02,NTC,no_template_control
F,clinic,K,barcode03,patient 3,
F,clinic,K,barcode04,pos,positive_control
"""
SAMPLES = {row["barcode"]: row for row in csv.DictReader(SHEET.splitlines())}
CONTROLS = {"no_template_control": "negative", "positive_control": "positive"}
PANEL = {"reads": 4, "breadth": 0.5, "windows": 300, "control_factor": 2, "sample_reads": 9}
TABLE = """\
[panel]
enough_reads = 4
enough_breadth = 0.5
enough_windows = 300
control_factor = 2.0
sample_reads = 9
"""


def panel_of(folder):
    """A file with a panel and tables that a daemon would refuse."""
    path = folder / "panel.toml"
    path.write_text(TABLE + 'positive = ["t1", "t0"]\n[dictionary]\nnothing = 1\n')
    return str(path)


class Clinic:
    """Reads of four targets in files of a folder a barcode; barcode03 has none."""

    def __init__(self, folder, seed):
        rng = random.Random(seed)
        self.folder = folder
        self.targets = [(f"t{at}", "".join(rng.choices("ACGT", k=400))) for at in range(4)]
        write_fasta(folder / "ref.fa", self.targets)
        (folder / "sheet.csv").write_text(SHEET)
        self.reads, self.barcodes, self.paths = [], [], []
        counts = {"barcode01": [9, 5, 1, 0], "barcode02": [0, 2, 1, 0], "barcode04": [2, 0, 0, 0],
                  "barcode07": [3, 0, 0, 0], "unclassified": [0, 0, 0, 4]}  # fmt: skip
        for barcode, numbers in counts.items():
            own = []
            for (name, letters), count in zip(self.targets, numbers, strict=True):
                for _ in range(count):
                    start = rng.randrange(200)
                    own.append((f"{barcode}-{name}-{len(own)}", letters[start : start + 200]))
            own += [(f"{barcode}-x{at}", "".join(rng.choices("ACGT", k=60))) for at in range(2)]
            path = folder / f"FAX_pass_{barcode}_8f3c_0.fastq"
            path.write_text("".join(f"@{n}\n{s}\n+\n{'I' * len(s)}\n" for n, s in own))
            self.paths.append(str(path))
            self.reads += own
            self.barcodes += [barcode] * len(own)

    def rows(self):
        """By the definitions: the rows of all barcodes, and of those on the sheet without reads."""
        found = targets_report(self.reads, K, records=self.targets, barcodes=self.barcodes)
        none = [(name, 0, 0, 0, 380, 0, "0.0000", "0.0000") for name, _ in self.targets]
        found += [("barcode03", *row) for row in [*none, (".", 0, 0, ".", ".", ".", ".", ".")]]
        found.sort(key=lambda row: row[0])
        control = {row[1]: row[2] for row in found if row[0] == "barcode02"}
        made = []
        for barcode, target, reads, bases, matches, kmers, seen, *ratios in found:
            sample = SAMPLES.get(barcode)
            names = [".", ".", "."]
            if sample:
                control_of = CONTROLS.get(sample["type"], ".")
                names = [sample["sample_id"], sample["alias"], control_of]
            said = None
            if target != ".":
                said = verdict(
                    (reads, matches, kmers, seen), PANEL, negative=barcode == "barcode02",
                    sample_reads=sum(row[2] for row in found if row[0] == barcode),
                    control_reads=[] if barcode == "barcode02" else [control[target]],
                )  # fmt: skip
            row = [barcode, target, reads, bases, matches, kmers, seen, *ratios, *names]
            made.append("\t".join(map(str, [*row, said or "."])))
        return made


HEADER = (
    "#barcode\ttarget\treads\tbases\tmatches\tkmers\tseen\tbreadth\tdepth"
    "\tsample\talias\tcontrol\tverdict"
)

ALARMS = (
    "in the positive control pos (barcode04) was not found: t1, t0",
    "without a read: patient 3 (barcode03)", "the sample sheet does not name barcode07",
)  # fmt: skip


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    return Clinic(tmp_path_factory.mktemp("clinic"), 5)


def match(clinic, *options):
    return ["match", *clinic.paths, "-d", str(clinic.folder / "ref.fa"), "-k", str(K),
            "--report", "targets", *options]  # fmt: skip


def test_rows_by_sample_with_verdicts(clinic, streamer):
    files = "--sample-sheet", clinic.folder / "sheet.csv", "--panel", panel_of(clinic.folder)
    code, out, err = streamer(*match(clinic, *files, "--comments"))
    assert code == 0
    facts, rows = out.split("#barcode", 1)
    assert f"#barcode{rows}".splitlines() == [HEADER, *clinic.rows()]
    words = {row.rpartition("\t")[2] for row in clinic.rows()}
    assert words == {"detected", "not detected", "more needed", "."}
    rule = next(line for line in facts.splitlines() if line.startswith("## rule: "))
    said = rule.removeprefix("## rule: ")
    assert said.startswith("detected: at least 4 reads, 300 matching windows, breadth 0.5, and")
    assert f"streamer: {said}\n" in err
    assert [line for line in err.splitlines() if "warning" in line] == [
        f"streamer: warning: {line}" for line in ALARMS
    ]


def test_a_panel_without_barcodes_judges_the_run(clinic, streamer):
    path = clinic.folder / "reads.toml"
    path.write_text("[panel]\nenough_reads = 10\n")
    code, out, _ = streamer(*match(clinic, "--panel", path, "-q"))
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0][-1] == "verdict"
    reads = [int(row[1]) for row in rows[1:-1]]
    assert [row[-1] for row in rows[1:]] == [
        *("detected" if count >= 10 else "more needed" for count in reads), "."
    ]  # fmt: skip
    assert reads == [14, 7, 2, 4]


@pytest.mark.parametrize(
    ("table", "options", "problem"),
    [
        ("", (), "its table panel has no threshold: set enough_reads"),
        ("enough_read = 1", (), "panel.enough_read: unknown key, did you mean 'enough_reads'?"),
        ("sample_reads = 1", (), "panel.sample_reads: has no effect without enough_reads or"),
        (
            "enough_reads = 1\ncontrol_factor = 2.0",
            (),
            "panel.control_factor needs a negative control: --sample-sheet has none",
        ),
        ('groups = { g = ["x"] }\nenough_reads = 1', (), "panel.groups.g.0: no target of the"),
        ("enough_reads = 1", ("--by", "group", "--sample-sheet", "."), "--by group has none"),
    ],
)
def test_faults(clinic, streamer, tmp_path, table, options, problem):
    (tmp_path / "panel.toml").write_text(f"[panel]\n{table}\n")
    code, out, err = streamer(*match(clinic, "--panel", tmp_path / "panel.toml", *options))
    assert (code in (1, 2), out) == (True, "")
    assert problem in err


def test_a_daemon_says_the_same(clinic, tmp_path):
    write_fasta(tmp_path / "ref.fa", clinic.targets)
    (tmp_path / "sheet.csv").write_text(SHEET)
    table = tmp_path / "names.tsv"
    table.write_text("source\ttarget\tgroup\nt0\tt0\ta\nt1\tt1\ta\n")
    path = configured(tmp_path)
    with open(path, "a") as file:
        file.write(
            f'[answers]\ntargets = true\ncoverage = "barcode"\n{TABLE}positive = ["t0"]\n'
            '[samples]\nsheet = "sheet.csv"\nrun = "run 7"\n'
        )
    with (
        running(path, [f"dictionary.k={K}", f"dictionary.targets={table}"]) as daemon,
        Control(daemon.endpoints["control"]) as control,
    ):
        # all of the sheet, before any read
        columns, rows = control.targets(by="barcode", more=True)
        assert "#" + "\t".join(columns) == HEADER
        assert {row[-1] for row in rows} == {"more needed", "not detected", None}
        assert [row[0] for row in rows[::5]] == [*SAMPLES]
        with Producer(daemon.endpoints["ingest"]) as producer:
            for batch in read_batches(clinic.paths, batch_reads=5, context=True):
                producer.send(batch)
            producer.flush(matched=True, timeout=DEADLINE)
        out = tmp_path / "targets.tsv"
        at = daemon.endpoints["control"]
        assert main(["targets", "--at", at, "--by", "barcode", "-o", str(out)]) == 0
        assert out.read_text().splitlines() == [HEADER, *clinic.rows()]
        assert control.samples()[1] == ["barcode02", "clinic", "NTC", "negative"]
        assert control.panel()["control_factor"] == 2.0
        assert control.panel()["groups"] == {"a": ["t0", "t1"], "t2": ["t2"], "t3": ["t3"]}
        assert control.run() == "run 7"
        words = [*match(clinic, "--targets", str(table), "-q", "-o", str(tmp_path / "rows"))]
        assert main([*words, "--by", "group"]) == 0
        assert main(["targets", "--at", at, "--by", "group", "-o", str(out)]) == 0
        assert out.read_text() == (tmp_path / "rows").read_text()
        words[words.index("targets")] = "coverage"
        for of in ([], ["--by", "barcode"]):
            assert main([*words, "--bins", "3", *of]) == 0
            lines = (tmp_path / "rows").read_text().splitlines()[1:]
            rows = [line.split("\t") for line in lines]
            assert len(rows) == (12 * 5 if of else 12)
            for row in rows[::3]:
                found = control.coverage(row[len(of) // 2], 3, row[0] if of else None)
                same = [one[len(of) // 2 + 1 :] for one in rows if one[:-5] == row[:-5]]
                assert [[*map(str, one)] for one in found] == same
        counted = daemon.service.status.tally._covered.counts
        before = set(counted)
        assert not any(row.matches for row in control.coverage("t0", 3, "no such barcode"))
        assert set(counted) == before


def test_a_report_says_first_what_is_missing(clinic, tmp_path, streamer):
    """From rows with everything, and from plain ones with a sheet and a panel: the same page."""
    sheet, panel = ["--sample-sheet", clinic.folder / "sheet.csv"], [
        "--panel", panel_of(clinic.folder)
    ]  # fmt: skip
    plain, full = tmp_path / "plain.tsv", tmp_path / "full.tsv"
    assert streamer(*match(clinic, "--by", "barcode", "-q", "-o", plain))[0] == 0
    assert streamer(*match(clinic, *sheet, *panel, "-q", "--comments", "-o", full))[0] == 0
    pages, tables = [], []
    for options in ([full], [plain, *sheet, *panel]):
        out = tmp_path / "page.html"
        assert streamer("report", *options, "-o", out, "-q")[0] == 0
        pages.append(check_page(out.read_text()))
        tables.append(json.loads((tmp_path / "page_mqc.json").read_text()))
    want = [row.split("\t") for row in clinic.rows()]
    for page, content in zip(pages, tables, strict=True):
        # the worst first; the negative control last
        missing = page.table("What is missing, by sample")
        assert [row[0] for row in missing] == [
            "patient 3 (barcode03)", "pos (barcode04) positive control",
            "patient 1 (barcode01)", "NTC (barcode02) negative control",
        ]  # fmt: skip
        for sample, reads, found, more, lacking in missing:
            barcode = re.search(r"barcode\d+", sample)[0]
            own = [row for row in want if row[0] == barcode]
            assert int(reads) == sum(int(row[2]) for row in own)
            for words, word in ((more, "more needed"), (lacking, "not detected")):
                names = [row[1] for row in own if row[-1] == word]
                assert words == (", ".join(names) or "\N{EN DASH}")
            names = [row[1] for row in own if row[-1] == "detected"]
            assert found == f"{len(names)} of 4" + (f": {', '.join(names)}" if names else "")
        words = " ".join(page.words)
        assert [word for word in page.words if word.startswith("Note: ")] == [
            f"Note: {line}." for line in ALARMS
        ]
        assert "The rule of verdicts: detected: at least 4 reads" in words
        pairs = page.table("Targets by barcode")
        named = [[re.search(r"barcode\d+|unclassified", row[0])[0], *row[1:3], row[7]]
                 for row in pairs]  # fmt: skip
        assert named == [
            [row[0], row[1].replace(".", "unassigned"), row[2], row[-1].replace(".", "")]
            for row in want
        ]
        verdicts = {name: row.get("verdict") for name, row in content["data"].items()}
        assert verdicts["page | patient 3 (barcode03) | t0"] == "more needed"
        assert sum(word is not None for word in verdicts.values()) == 24
        assert content["data"]["page | NTC (barcode02) | t1"]["control"] == "negative"
        assert "Verdicts: detected: at least 4 reads" in content["description"]
        assert content["description"].endswith(" ".join(f"Note: {line}." for line in ALARMS))
    facts = dict(pages[0].facts)
    assert (facts["k"], facts["command"]) == ("21", "match")
    assert facts["sources"].startswith("ref.fa FAX_pass_")
    assert facts["command line"].startswith("streamer")


def test_the_live_pages_say_the_same(clinic):
    """Rows as the daemon sends them: of the page only those that have a count."""
    sheet = SampleSheet.read(str(clinic.folder / "sheet.csv"))
    rows = TargetRows(Panel(**PANEL), SampleSheet.of(sheet.rows()))
    assert [row[:5] for row in rows.samples()][-1] == ["barcode02", "NTC", "negative", 0, 0]
    want = [row.split("\t") for row in clinic.rows()]
    every, by = [], []
    for row in want:
        values = [None if cell == "." else float(cell) if "." in cell else int(cell)
                  for cell in row[2:9]]  # fmt: skip
        target = None if row[1] == "." else row[1]
        if any(values[:2]) or values[4]:
            by.append([row[0], target, *values])
        every.append([target, *values])
    rows.take([[row[0], 9, *row[2:]] for row in every[:5]], by_barcode=False)
    rows.take(by, by_barcode=True)
    found = rows.samples()
    assert [row[0] for row in found][::5] == ["barcode03", "barcode02"]
    for barcode, name, control, reads, bases, with_reads, *verdicts, _, _, _ in found:
        own = [row for row in want if row[0] == barcode]
        assert (reads, bases) == tuple(sum(int(row[at]) for row in own) for at in (2, 3))
        assert with_reads == sum(row[2] != "0" for row in own if row[1] != ".")
        words = ("detected", "more needed", "not detected")
        assert verdicts == [sum(row[-1] == word for row in own) for word in words]
        assert (name, control or ".") == ((own[0][10], own[0][11]) if barcode in SAMPLES
                                          else (barcode, "."))  # fmt: skip
    fields = rows.fields()
    marks = {(barcode, target): cell[3] for barcode, cells in fields["map"]
             for target, cell in zip(fields["map_targets"], cells, strict=True)}  # fmt: skip
    assert {key for key, mark in marks.items() if mark} == {
        (row[0], row[1]) for row in want if row[-1] == "detected"
    }
    assert any(marks.values())


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_rows_by_sample_in_data_frames(clinic, tmp_path, streamer, suffix):
    import pyarrow as pa
    from pyarrow.parquet import read_table

    files = "--sample-sheet", clinic.folder / "sheet.csv", "--panel", panel_of(clinic.folder)
    code, out, _ = streamer(*match(clinic, *files, "-q", "--format", "jsonl"))
    assert code == 0
    path = tmp_path / f"rows.{suffix}"
    assert streamer(*match(clinic, *files, "-q", "-o", path))[0] == 0
    found = read_table(path) if suffix == "parquet" else pa.ipc.open_file(str(path)).read_all()
    assert found.to_pylist() == [json.loads(line) for line in out.splitlines()]
    assert found.schema.metadata[b"rule"].startswith(b"detected: at least 4 reads")
