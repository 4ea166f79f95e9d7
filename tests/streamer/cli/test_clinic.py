"""The run of docs/clinic.md: every number of its rows and its page against a brute-force count."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from streamer.cli.app import main
from tests.reference.exact import reverse_complement
from tests.reference.verdict import verdict
from tests.streamer.reporting.page_reader import check_page

ROOT = Path(__file__).parents[3]
K, LEAST = 21, 10
PANEL = {"reads": 10, "breadth": 0.5, "control_factor": 5, "sample_reads": 20}
TABLE = (
    "[panel]\nenough_reads = 10\nenough_breadth = 0.5\ncontrol_factor = 5.0\nsample_reads = 20\n"
)


def windows(letters):
    """Each k-mer, the smaller of both orientations."""
    for at in range(len(letters) - K + 1):
        one = letters[at : at + K]
        yield min(one, reverse_complement(one))


def records(folder):
    """The letters of the records of each target, in the order of the table."""
    named = dict(line.split("\t")[:2] for line in
                 (folder / "targets.tsv").read_text().splitlines()[1:])  # fmt: skip
    found = {target: [] for target in named.values()}
    for path in sorted((folder / "pathogens").iterdir()):
        for record in path.read_text().split(">")[1:]:
            name, letters = record.split()
            found[named[name]].append(letters)
    return found


def reads_in(folder):
    """The letters of each read of a barcode."""
    for path in folder.glob("*.fastq"):
        yield from path.read_text().splitlines()[1::4]


def counted(folder):
    """(barcode, target): reads, bases, matches, kmers, seen, by dicts and sets alone."""
    targets, owners = records(folder), {}
    size = dict.fromkeys(targets, 0)
    for target, parts in targets.items():
        for letters in parts:
            for kmer in windows(letters):
                owners.setdefault(kmer, set()).add(target)
    for found in owners.values():
        for target in found:
            size[target] += 1
    codes = [line.split(",")[4] for line in (folder / "sheet.csv").read_text().splitlines()[1:]]
    found = {}
    for code in codes:
        sums = {target: [0, 0, 0, set()] for target in [*targets, None]}
        for letters in reads_in(folder / "fastq_pass" / code):
            own = dict.fromkeys(targets, 0)
            for kmer in windows(letters):
                for target in owners.get(kmer, ()):
                    own[target] += 1
                    sums[target][2] += 1
                    sums[target][3].add(kmer)
            best = max(targets, key=lambda one, own=own: own[one])
            chosen = best if own[best] >= LEAST else None
            sums[chosen][0] += 1
            sums[chosen][1] += len(letters)
        for target, (reads, bases, matches, seen) in sums.items():
            found[code, target] = (reads, bases, matches, size.get(target, 0), len(seen))
    return found


def covered(folder, bins):
    """Rows of coverage by barcode, by counters alone."""
    targets = records(folder)
    for code in sorted(folder.glob("fastq_pass/*")):
        read = Counter()
        for letters in reads_in(code):
            read.update(windows(letters))
        for target, parts in targets.items():
            hits = []  # at each place: how often its window was read, None at the end of a record
            for letters in parts:
                hits += [*map(read.__getitem__, windows(letters)), *[None] * (K - 1)]
            start = 0
            for at in range(bins):
                stop = start + len(hits) // bins + (at < len(hits) % bins)
                here = [hit for hit in hits[start:stop] if hit is not None]
                yield [code.name, target, start, stop, len(here), sum(map(bool, here)), sum(here)]
                start = stop


@pytest.mark.whole
def test_every_number_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = tmp_path / "real.fastq"  # in the place of a run's background
    real.write_text("@a\n" + "ACGTTGCATT" * 40 + "\n+\n" + "I" * 400 + "\n")
    script = [sys.executable, str(ROOT / "scripts" / "clinic_run"), "run", "3", str(real)]
    subprocess.run(script, check=True)
    Path("panel.toml").write_text(TABLE)
    reads = [str(path) for path in sorted(Path("run").glob("fastq_pass/*/*.fastq"))]
    assert len(reads) == 11
    words = ["match", *reads, "-d", "run/pathogens", "--targets", "run/targets.tsv", "-k", str(K),
             "--report", "targets", "--min-windows", str(LEAST), "--quiet", "-o", "rows.tsv",
             "--sample-sheet", "run/sheet.csv", "--panel", "panel.toml"]  # fmt: skip
    assert main(words) == 0
    assert main(["report", "rows.tsv", "-o", "page.html", "--quiet"]) == 0
    want = counted(Path("run"))
    rows = [line.split("\t") for line in Path("rows.tsv").read_text().splitlines()[1:]]
    assert [(row[0], None if row[1] == "." else row[1]) for row in rows] == [*want]
    assert len(rows) == 12 * 21
    said = {}
    for row, (code, target) in zip(rows, want, strict=True):
        reads_, bases, matches, kmers, seen = want[code, target]
        assert row[2:4] == [str(reads_), str(bases)]
        if target is None:
            continue
        ratios = [f"{seen / kmers:.4f}", f"{matches / kmers:.4f}"]
        assert row[4:9] == [str(matches), str(kmers), str(seen), *ratios]
        own = code == "barcode12"
        total = sum(one[0] for (other, _), one in want.items() if other == code)
        said[code, target] = verdict(
            (reads_, matches, kmers, seen), PANEL, sample_reads=total, negative=own,
            control_reads=[] if own else [want["barcode12", target][0]],
        )  # fmt: skip
        assert row[-1] == said[code, target]
    assert {*said.values()} == {"detected", "more needed", "not detected"}
    words[words.index("targets")] = "coverage"
    for option in ("--panel", "--min-windows"):
        del words[words.index(option) : words.index(option) + 2]
    assert main([*words, "--by", "barcode", "--bins", "3"]) == 0
    lines = [line.split("\t") for line in Path("rows.tsv").read_text().splitlines()[1:]]
    assert lines == [[*map(str, row)] for row in covered(Path("run"), 3)]
    page = check_page(Path("page.html").read_text())
    shown = page.table("Targets by barcode")
    assert len(shown) == len(want)
    for row, (code, target) in zip(shown, want, strict=True):
        reads_, bases, matches, kmers, seen = want[code, target]
        assert row[0].endswith(f"({code})")
        assert row[1:4] == [target or "unassigned", f"{reads_:,}", f"{bases:,}"]
        if target is not None:
            ratios = [f"{seen / kmers:.4f}", f"{matches / kmers:.4f}"]
            assert row[4:] == [*ratios, f"{seen:,}", said[code, target]]
    missing = page.table("What is missing, by sample")
    assert missing[0][:3] == ["patient 5 (barcode05)", "0", "0 of 20"]
    assert missing[-1][0].startswith("NTC (barcode12)")
    assert any("without a read: patient 5 (barcode05)" in word for word in page.words)
    for row in missing:
        code = row[0].partition("(")[2][:9]
        lacking = [target for (other, target), word in said.items()
                   if other == code and word == "not detected"]  # fmt: skip
        assert row[4] == (", ".join(lacking) or "\N{EN DASH}")
