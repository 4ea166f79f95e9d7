"""One run with barcodes: daemon, metrics, live page, rows of match and both reports agree."""

from __future__ import annotations

import gzip
import json
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.client import Control, Producer
from streamer.journal.reader import JournalReader
from streamer.sequences.files import read_batches
from tests.daemon_kit import running, settings
from tests.data_files import data_file
from tests.scraping import scrape, value
from tests.streamer.reporting.page_reader import check_page, number
from tests.waiting import DEADLINE, until

pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
pytestmark = pytest.mark.whole

K = 21
ON = [
    "answers.targets=true", "answers.coverage=true", "answers.min_windows=30",
    "metrics.endpoint=127.0.0.1:0", "web.endpoint=127.0.0.1:0",
    "journal.durability=os", "journal.directory=journal",
]  # fmt: skip
FOLDERS = ("barcode01", "barcode02", "barcode07", "unclassified", "reads")
NAMES = ("nanopore", "lambda", "NB01", "unassigned")


class Run:
    """Real Nanopore reads of phage lambda in folders by barcode, and foreign ones among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with gzip.open(data_file("lambda_nanopore.fq.gz"), "rt") as file:
            lines = file.read().splitlines()
        records = ["\n".join(lines[at : at + 4]) for at in range(0, len(lines), 4)]
        # unassigned reads: their letters the other way round, not complemented
        for at in range(0, len(records), 9):
            head, letters, plus, quality = records[at].splitlines()
            records[at] = "\n".join((head, letters[::-1], plus, quality))
        self.reads = len(records)
        self.paths = []
        for at, name in enumerate(FOLDERS):
            path = folder / name / "some.fastq"
            path.parent.mkdir()
            path.write_text("".join(f"{record}\n" for record in records[at :: len(FOLDERS)]))
            self.paths.append(str(path))
        self.sources = [str(data_file("lambda.fa.gz")), str(data_file("ont_native*24.fa.gz"))]

    def configuration(self) -> str:
        """Of a daemon that counts them."""
        return settings(self.folder, f"k = {K}\nsources = {json.dumps(self.sources)}")

    def send(self, daemon) -> None:
        """All reads."""
        with Producer(daemon.endpoints["ingest"]) as producer:
            for batch in read_batches(self.paths, batch_reads=7, context=True):
                producer.send(batch)
            producer.flush(matched=True, timeout=DEADLINE)

    def matched(self, report: str, *more: str) -> str:
        """A file of ``streamer match``."""
        out = str(self.folder / f"{report}{len(more)}.tsv")
        targets = [word for path in self.sources for word in ("-d", path)]
        arguments = ["match", *self.paths, *targets, "-k", str(K), "--quiet", "-o", out]
        assert main([*arguments, "--report", report, *more]) == 0
        return out

    def page(self, *given: str):
        """A page, and the samples in MultiQC's file beside it."""
        out = self.folder / "page.html"
        assert main(["report", *given, "-o", str(out), "--quiet"]) == 0
        content = json.loads((self.folder / "page_mqc.json").read_text())
        return check_page(out.read_text()), content["data"]


def rows_of(path):
    """The rows of a TSV file, numbers as such, None for a dot."""
    head, *lines = Path(path).read_text().splitlines()

    def cell(text):
        if text == ".":
            return None
        if text.isdigit():
            return int(text)
        return float(text) if text.replace(".", "").isdigit() else text

    return head[1:].split("\t"), [[cell(text) for text in line.split("\t")] for line in lines]


def _name(row):
    return row[0] or ""


def live(endpoint):
    """All that the live page shows."""
    with urllib.request.urlopen(f"http://{endpoint}/events", timeout=DEADLINE) as stream:
        stream.readline()
        return json.loads(stream.readline().decode().removeprefix("data: "))


def check_report(page, samples, rows, barcodes):
    """A page and MultiQC's samples against rows of match, for all reads and by barcode."""
    table = {row[0]: row[1:] for row in page.table("25 targets")}
    for target, reads, bases, matches, kmers, seen, breadth, depth in rows:
        shown = table[target or "unassigned"]
        assert [number(shown[0]), number(shown[2])] == [reads, bases]
        sample = samples[f"page | {target or 'unassigned'}"]
        assert (sample["reads"], sample["bases"]) == (reads, bases)
        if target is not None:
            expected = [breadth, depth, seen, kmers, matches]
            assert [number(cell) for cell in shown[3:]] == expected
            names = "breadth", "depth", "seen", "kmers", "matches"
            assert [sample[name] for name in names] == expected
    pairs = {tuple(row[:2]): row[2:] for row in page.table("Targets by barcode")}
    there = [row for row in barcodes if row[2] or row[6]]
    assert len(pairs) == len(there)
    for barcode, target, reads, bases, matches, kmers, seen, breadth, depth in there:
        shown = pairs[barcode or "none", target or "unassigned"]
        assert [number(cell) for cell in shown[:2]] == [reads, bases]
        sample = samples[f"page | {barcode or 'no barcode'} | {target or 'unassigned'}"]
        assert (sample["reads"], sample["bases"]) == (reads, bases)
        if target is not None:
            assert [number(cell) for cell in shown[2:]] == [breadth, depth, seen]
            assert (sample["kmers"], sample["matches"]) == (kmers, matches)


def check_others(page, coverage, reads):
    """Coverage and lengths against rows of match."""
    for barcode, target in dict.fromkeys((row[0], row[1]) for row in coverage):
        expected = [row[2:] for row in coverage if row[:2] == [barcode, target]]
        if sum(row[4] for row in expected):
            table = page.table(f"Coverage along {target}, {barcode or '.'}")
            assert [[number(cell) for cell in row[:5]] for row in table] == expected
    lengths = page.table("Lengths of reads")
    on = [row[1] for row in reads if row[6] is not None]
    off = [row[1] for row in reads if row[6] is None]
    for row, expected in zip(lengths, ([*on, *off], on, off), strict=True):
        assert [number(cell) for cell in row[1:3]] == [len(expected), sum(expected)]


def test_all_agree_to_the_last_count(tmp_path):
    run = Run(tmp_path)
    rule = ["--min-windows", "30"]
    files = [run.matched("targets", *rule), run.matched("targets", *rule, "--by", "barcode"),
             run.matched("coverage", "--by", "barcode"), run.matched("reads")]  # fmt: skip
    _, rows = rows_of(files[0])
    _, barcodes = rows_of(files[1])
    assert 0 < rows[-1][1] < run.reads
    assert len({row[0] for row in barcodes}) == len(FOLDERS)
    config = run.configuration()
    with running(config, ON) as daemon, Control(daemon.endpoints["control"]) as control:
        until(lambda: live(daemon.endpoints["web"])["status"], "the page hears the daemon")
        daemon.wait_for_subscriptions("read", "targets", "barcodes")
        run.send(daemon)
        assert control.targets()[1] == rows
        assert control.targets(by="barcode")[1] == barcodes

        def page_agrees():
            shown = live(daemon.endpoints["web"])["rows"]
            live_rows = [*shown["targets"], *filter(None, [shown["unassigned"]])]
            return sorted(live_rows, key=_name) == sorted(rows, key=_name)

        until(page_agrees, "the rows of match on the live page")

        def map_agrees():
            shown = live(daemon.endpoints["web"])["rows"]
            cells = {(barcode, target): cell[:3] for barcode, row in shown["map"]
                     for target, cell in zip(shown["map_targets"], row, strict=True)}  # fmt: skip
            return cells == {(row[0], row[1]): [row[2], row[7], row[8]] for row in barcodes
                             if row[1] in shown["map_targets"]}  # fmt: skip

        until(map_agrees, "the counts of each barcode on the live page")
        samples = scrape(daemon.endpoints["metrics"])
        found = {labels: n for (name, labels), n in samples.items() if "target_reads" in name}
        assert found == {
            frozenset({("barcode", barcode or "."), ("target", target or ".")}): reads
            for barcode, target, reads, *_ in barcodes if reads
        }  # fmt: skip
        assert value(samples, "streamer_reads_total") == run.reads
        assert value(samples, "streamer_bases_total") == sum(row[2] for row in rows)
        coverage, reads = rows_of(files[2])[1], rows_of(files[3])[1]
        for given in (files, [str(tmp_path / "journal"), *rule]):
            page, beside = run.page(*given)
            check_report(page, beside, rows, barcodes)
            check_others(page, coverage, reads)
    # the daemon has ended, and the configuration names everything
    text = Path(config).read_text() + "[answers]\ntargets = true\nmin_windows = 30\n"
    text += f'[journal]\ndirectory = "{tmp_path}/journal"\n'
    Path(config).write_text(text)
    page, beside = run.page("--config", config)
    check_report(page, beside, rows, barcodes)
    with closing(JournalReader(tmp_path / "journal")) as reader:
        assert reader.identity.startswith(f"k={K} mode=frozen")
