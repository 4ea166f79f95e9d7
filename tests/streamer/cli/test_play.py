"""``streamer play``: the same run as files that grow and as batches of a daemon."""

from __future__ import annotations

import gzip
import random
import re
import signal

import pytest

from streamer.cli import play as module
from tests.daemon_kit import process, running
from tests.data_files import DATA
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

READS = DATA / "lambda_nanopore.fq.gz"


def fastq(path, rng, count, *, barcodes=()):
    """Reads of random letters, with barcodes in their headers; their records."""
    records = []
    for i in range(count):
        length = rng.randrange(400)
        letters = "".join(rng.choices("ACGT", k=length))
        more = f" barcode={rng.choice(barcodes)}" if barcodes else ""
        quality = "".join(rng.choices("!5I", k=length))
        records.append(f"@{path.stem}{i} ch={i}{more}\n{letters}\n+\n{quality}\n")
    path.write_text("".join(records))
    return records


def contents(folder):
    """The text of every FASTQ file, by its path in the folder."""
    found = {}
    for path in sorted(folder.rglob("*.fastq*")):
        read = gzip.open if path.suffix == ".gz" else open
        with read(path, "rt") as file:
            found[str(path.relative_to(folder))] = file.read()
    return found


def records_in(text):
    lines = text.splitlines(keepends=True)
    return ["".join(lines[i : i + 4]) for i in range(0, len(lines), 4)]


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_record_is_in_the_files_byte_for_byte(tmp_path, streamer):
    code, out, err = streamer("play", READS, "--folder", tmp_path / "run", "--speed", 0)
    assert (code, out) == (0, "")
    assert re.search(r"60 reads, 303,596 bases in 1 file, \d+\.\d s of the run", err)
    ((name, text),) = contents(tmp_path / "run").items()
    assert re.fullmatch(r"fastq_pass/FPL\d{5}_pass_[0-9a-f]{8}_[0-9a-f]{8}_0\.fastq\.gz", name)
    with gzip.open(READS, "rt") as file:
        assert sorted(records_in(text)) == sorted(records_in(file.read()))
    flow_cell, _, protocol, run, _ = name.removeprefix("fastq_pass/").split("_")
    (summary,) = (tmp_path / "run").glob("sequencing_summary_*.txt")
    (final,) = (tmp_path / "run").glob("final_summary_*.txt")
    assert final.name == f"final_summary_{flow_cell}_{protocol}_{run}.txt"
    facts = dict(line.split("=") for line in final.read_text().splitlines())
    assert facts["flow_cell_id"] == flow_cell
    assert facts["protocol_run_id"].startswith(protocol)
    assert facts["sequencing_summary_file"] == summary.name
    assert facts["fastq_files_in_final_dest"] == "1"
    header, *rows = (line.split("\t") for line in summary.read_text().splitlines())
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["read_id"] for row in table] == [r[1:].split()[0] for r in records_in(text)]
    assert all(row["filename_fastq"] == name.removeprefix("fastq_pass/") for row in table)


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_files_of_barcodes_end_by_reads_and_by_time(tmp_path, streamer, options):
    rng = random.Random(3)
    named = fastq(tmp_path / "named.fq", rng, 200, barcodes=["barcode02", "unclassified"])
    (tmp_path / "barcode09").mkdir()
    foldered = fastq(tmp_path / "barcode09" / "more.fq", rng, 50)
    inputs = (tmp_path / "named.fq", tmp_path / "barcode09" / "more.fq")
    limits = ("--file-reads", 30, "--file-seconds", 40, "--channels", 3)
    code, _, _ = streamer(
        "play", *inputs, "--folder", tmp_path / "run", "--speed", 0, *limits, *options
    )
    assert code == 0
    found = contents(tmp_path / "run")
    assert sorted(r for text in found.values() for r in records_in(text)) == sorted(
        [*named, *foldered]
    )
    numbers = {}
    for name, text in found.items():
        _, barcode, file = name.split("/")
        number = re.fullmatch(
            rf"FPL\d{{5}}_pass_{barcode}_[0-9a-f]{{8}}_[0-9a-f]{{8}}_(\d+)\.fastq(\.gz)?", file
        )
        assert number[2] == (None if options else ".gz")
        numbers.setdefault(barcode, []).append(int(number[1]))
        for record in records_in(text):
            assert 0 < len(records_in(text)) <= 30
            assert f"barcode={barcode}\n" in record or (
                barcode == "barcode09" and record.startswith("@more")
            )
    assert set(numbers) == {"barcode02", "unclassified", "barcode09"}
    for found_numbers in numbers.values():
        assert sorted(found_numbers) == list(range(len(found_numbers)))
    # some were ended by time
    assert sum(map(len, numbers.values())) > 250 // 30 + 3


def test_equal_seeds_give_equal_files_at_any_speed(tmp_path, streamer):
    reads = tmp_path / "reads.fq"
    fastq(reads, random.Random(1), 120, barcodes=["barcode01", "barcode02"])
    for name, seed, speed in (("a", 5, 0), ("b", 5, 1000), ("c", 6, 0)):
        options = ("--seed", seed, "--speed", speed, "--channels", 4, "--file-seconds", 20, "-q")
        code, _, err = streamer("play", reads, "--folder", tmp_path / name, *options)
        assert (code, err) == (0, "")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "a").keys().isdisjoint(files(tmp_path / "c"))


def test_a_folder_that_has_the_run_is_left_alone(tmp_path, streamer):
    play = ("play", READS, "--folder", tmp_path / "run", "--speed", 0, "-q")
    assert streamer(*play)[0] == 0
    before = files(tmp_path / "run")
    code, _, err = streamer(*play)
    assert code == 1
    assert re.fullmatch(r"streamer: error: .*sequencing_summary_\S*: File exists\n", err)
    assert files(tmp_path / "run") == before


class Clock:
    """Stands in for ``time``: nothing takes time but sleeping."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("speed", [0.5, 1.0, 7.0])
def test_reads_come_when_they_are_complete_and_speed_scales_it(monkeypatch, speed):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    run = module._Playback([str(READS)], speed, 20, 1, lambda _: None)
    reads = 0
    for group in run._live():
        reads += len(group)
        late = clock.now - 1000.0 - group[-1].end / speed
        assert -1e-6 < late <= module._BATCH_SECONDS + module._POLL_SECONDS
        assert clock.now - 1000.0 - group[0].end / speed <= 2 * module._BATCH_SECONDS
    assert reads == 60
    clock.now = 1000.0
    unhurried = module._Playback([str(READS)], 0, 20, 1, lambda _: None)
    assert sum(map(len, unhurried._live())) == 60
    assert clock.now == 1000.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "name either an endpoint (--to) or a folder (--folder)"),
        (["--to", "tcp://127.0.0.1:7", "--folder", "x"], "name either an endpoint"),
    ],
)
def test_one_place_to_play_to(streamer, arguments, problem):
    code, _, err = streamer("play", READS, *arguments)
    assert code == 2
    assert problem in err


def test_what_is_no_fastq_is_one_line(tmp_path, streamer):
    code, _, err = streamer("play", DATA / "lambda.fa.gz", "--folder", tmp_path / "run")
    assert code == 1
    assert "lambda.fa.gz: record 1: not FASTQ, which runs are played from" in err


def test_an_interrupt_completes_the_files(tmp_path):
    reads = tmp_path / "reads.fq"
    records = fastq(reads, random.Random(2), 3000, barcodes=["barcode01", "barcode02"])
    folder = tmp_path / "run"
    arguments = ["play", reads, "--folder", folder, "--speed", "5", "--channels", "9"]
    with process([str(word) for word in arguments]) as child:
        until(lambda: len(list(folder.rglob("*.fastq.gz"))) == 2, "two files")
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=DEADLINE)[1]
    assert child.returncode == 130
    assert err.splitlines() == [
        "streamer: stopped: files complete: 2; there is no final summary",
        "streamer: error: interrupted",
    ]
    assert not list(folder.glob("final_summary*"))
    played = [record for text in contents(folder).values() for record in records_in(text)]
    assert 0 < len(played) < len(records)
    assert set(played) <= set(records)


def test_a_daemon_gets_the_reads_in_the_order_of_the_files(path, tmp_path, streamer):
    assert streamer("play", READS, "--folder", tmp_path / "run", "--speed", 0, "-q")[0] == 0
    (text,) = contents(tmp_path / "run").values()
    with running(path) as daemon:
        names = []
        forward = daemon.service._ingest._forward
        daemon.service._ingest._forward = lambda item: (
            names.extend(item.batch.names),
            forward(item),
        )
        to = ("--to", daemon.endpoints["ingest"], "--speed", 500)
        code, _, err = streamer("play", READS, *to)
    assert code == 0
    assert "60 reads, 303,596 bases acknowledged, " in err
    assert names == [record[1:].split()[0] for record in records_in(text)]


def test_reads_before_a_fault_arrive(path, tmp_path, streamer):
    reads = tmp_path / "reads.fq"
    reads.write_text("@a\nACGT\n+\nIIII\n@b\nA-GT\n+\nIIII\n")
    with running(path) as daemon:
        to = ("--to", daemon.endpoints["ingest"], "--speed", 0, "--channels", 1)
        code, _, err = streamer("play", reads, *to)
    assert code == 1
    assert err.splitlines() == [
        "streamer: 1 of 1 reads sent are acknowledged, the last is a; "
        f"the run has come to its second {err.split('second ')[1].split()[0]}",
        f"streamer: error: {reads}: read b: '-' is not a base",
    ]
    assert daemon.service.status.totals.fields()["reads"] == 1


def test_reads_before_a_record_that_is_no_fastq_are_played(path, tmp_path, streamer):
    reads = tmp_path / "reads.fq"
    records = fastq(reads, random.Random(4), 30)
    reads.write_text("".join(records) + "@x\nACGT\n+\nIII\n")
    problem = "reads.fq: record 31: not valid FASTQ"
    code, _, err = streamer("play", reads, "--folder", tmp_path / "run", "--speed", 0)
    assert (code, problem in err) == (1, True)
    (text,) = contents(tmp_path / "run").values()
    assert sorted(records_in(text)) == sorted(records)
    assert not list((tmp_path / "run").glob("final_summary*"))
    with running(path) as daemon:
        code, _, err = streamer("play", reads, "--to", daemon.endpoints["ingest"], "--speed", 0)
    assert (code, problem in err) == (1, True)
    assert "30 of 30 reads sent are acknowledged" in err
    assert daemon.service.status.totals.fields()["reads"] == 30
