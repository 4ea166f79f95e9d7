"""Pages from journals: what a daemon counts, over restarts, reloads, growth and retention."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.client import Control
from streamer.daemon.restore import put_snapshot
from streamer.journal.data_files import data_file
from streamer.journal.reader import JournalReader
from tests.daemon_kit import running, send_batches, write_fasta
from tests.reference.targets import targets_report
from tests.reload_kit import K, batches_of, configured, settle, sources_of
from tests.streamer.reporting.page_reader import check_page, number
from tests.waiting import until

pytestmark = pytest.mark.whole


def page_of(folder, *options):
    """The page of the journal in a folder, and MultiQC's samples."""
    out = folder / "page.html"
    journal = str(folder / "journal")
    assert main(["report", journal, "-o", str(out), "--quiet", *options]) == 0
    content = json.loads((folder / "page_mqc.json").read_text())
    return check_page(out.read_text()), content["data"]


def check(folder, batches, sources, *options):
    """The page has the counts of the definition."""
    page, samples = page_of(folder, *options)
    reads = [read for batch in batches for read in batch]
    for target, count, bases, matches, kmers, seen, *_ in targets_report(reads, K, records=sources):
        name = f"page | {'unassigned' if target == '.' else target}"
        expected = {"reads": count, "bases": bases}
        if target != ".":
            expected |= {"matches": matches, "kmers": kmers, "seen": seen}
        assert {key: samples[name][key] for key in expected} == expected
    lengths = page.table("Lengths of reads")[0]
    assert [number(cell) for cell in lengths[1:3]] == [len(reads), sum(len(r) for _, r in reads)]
    return page


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_counts_over_restarts_and_reloads(tmp_path, mode):
    rng = random.Random(6)
    sources, batches = sources_of(rng), []
    write_fasta(tmp_path / "ref.fa", sources)
    path = configured(tmp_path, f'mode = "{mode}"')
    for _ in range(2):
        with running(path) as daemon, Control(daemon.endpoints["control"]) as control:
            for _ in range(2):
                fresh = batches_of(rng, 6)
                send_batches(daemon, fresh)
                batches += fresh
                # the daemon runs
                page = check(tmp_path, batches, sources)
            sources = sources_of(rng)
            write_fasta(tmp_path / "ref.fa", sources)
            control.reload()
            settle(control)
            check(tmp_path, batches, sources)
    page = check(tmp_path, batches, sources)
    assert ("k", str(K)) in page.facts
    curve = [caption for caption in page.tables if caption == "Novelty curve"]
    assert len(curve) == (mode == "grow")


def test_the_curve_of_a_seeded_dictionary_is_that_of_match(tmp_path):
    rng = random.Random(2)
    batches = batches_of(rng, 8)
    path = configured(tmp_path)
    text = Path(path).read_text().replace('sources = ["ref.fa"]', 'mode = "grow"')
    Path(path).write_text(text)
    with running(path) as daemon:
        send_batches(daemon, batches)
    page, samples = page_of(tmp_path)
    reads = write_fasta(tmp_path / "reads.fa", [read for batch in batches for read in batch])
    out = tmp_path / "curve.tsv"
    given = ["match", str(reads), "--seed", "0", "-k", str(K), "--report", "novelty"]
    assert main([*given, "-o", str(out), "--quiet"]) == 0
    _, bases, kmers, _ = out.read_text().splitlines()[-1].split("\t")
    last = page.table("Novelty curve")[-1]
    assert [number(last[0]), number(last[2])] == [int(bases), int(kmers)]
    assert samples["page"]["bases"] == int(bases)


def test_another_dictionary_is_refused_and_the_right_one_found(tmp_path, capfd):
    rng = random.Random(3)
    sources, batches = sources_of(rng), batches_of(rng, 6)
    write_fasta(tmp_path / "ref.fa", sources)
    with running(configured(tmp_path)) as daemon:
        send_batches(daemon, batches)
    (tmp_path / "ref.fa").rename(tmp_path / "moved.fa")
    journal, out = str(tmp_path / "journal"), str(tmp_path / "page.html")
    assert main(["report", journal, "-o", out, "--quiet"]) == 1
    assert "no such file: give the dictionary of the daemon with --dictionary" in (
        error := capfd.readouterr().err
    )
    assert error.count("\n") == 1
    other = write_fasta(tmp_path / "ref.fa", [("other", "ACGGT" * 30)])
    assert main(["report", journal, "-d", str(other), "-o", out, "--quiet"]) == 1
    assert "not what the kept reads were matched against" in capfd.readouterr().err
    assert not Path(out).exists()
    check(tmp_path, batches, sources, "-d", str(tmp_path / "moved.fa"))


def test_reads_that_are_no_longer_kept_are_counted_as_gone(tmp_path):
    rng = random.Random(8)
    sources = sources_of(rng)
    write_fasta(tmp_path / "ref.fa", sources)
    batches = batches_of(rng, 40)
    sent = sum(map(len, batches))
    overrides = ["journal.keep_bytes=20000"]
    with (
        running(configured(tmp_path), overrides) as daemon,
        Control(daemon.endpoints["control"]) as control,
    ):
        send_batches(daemon, batches)
        # what is behind a snapshot is kept in any case
        put_snapshot(daemon.service._journal)
        until(lambda: control.status()["journal"]["oldest"] > 5, "some are not kept")
    page, samples = page_of(tmp_path)
    kept = sum(row["reads"] for row in samples.values())
    assert 0 < kept < sent
    assert any(f"{sent - kept:,} earlier reads are no longer" in word for word in page.words)


def test_a_damaged_journal_is_an_error_with_its_place(tmp_path, capfd):
    rng = random.Random(4)
    write_fasta(tmp_path / "ref.fa", sources_of(rng))
    with running(configured(tmp_path)) as daemon:
        send_batches(daemon, batches_of(rng, 10))
    with closing(JournalReader(tmp_path / "journal")) as reader:
        rows = [row for row in reader._index.records(0, reader.head) if row.size]
    row = rows[len(rows) // 2]
    damaged = data_file(tmp_path / "journal", row.file)
    data = bytearray(damaged.read_bytes())
    data[row.offset + row.size // 2] ^= 1
    damaged.write_bytes(data)
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "journal"), "-o", str(out), "--quiet"]) == 1
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert f"{damaged}: offset {row.offset}" in error
    assert not out.exists()
