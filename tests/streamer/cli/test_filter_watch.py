"""``streamer filter --watch``: a folder of outputs that follows that of a run."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal

import pytest

from tests.daemon_kit import process, wait_for_line
from tests.data_files import write_fasta
from tests.streamer.cli.test_filter import RECORDS, K, fastq
from tests.streamer.watching.kit import write
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def clean(tmp_path):
    return tmp_path / "clean"


@pytest.fixture
def words(tmp_path):
    return ["-d", write_fasta(tmp_path / "d.fa", RECORDS), "-k", str(K), "--deplete"]


def watch(run, clean, words, *options):
    return ["filter", "--watch", str(run), *words, "-o", str(clean), "--settle", "0.2", *options]


def reads(seed, mate="", count=40):
    return fastq(random.Random(seed), count, mate, barcodes=(None,))[0].decode()


def end(run):
    (run / "final_summary_x.txt").touch()


def files_of(folder):
    """What is below a folder, hidden files too: bytes by path, decompressed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = (
                gzip.decompress(data) if path.suffix == ".gz" else data
            )
    return found


def expected(run, words, streamer, tmp_path, *groups):
    """The same files, each filtered by a command of its own; groups: R1 and R2."""
    found = {}
    paired = {name for group in groups for name in group}
    alone = [(name,) for name in files_of(run) if "fast" in name and name not in paired]
    for names in [*groups, *alone]:
        outputs = [tmp_path / f"alone{at}.fq" for at in range(len(names))]
        more = ["--pairs", "--output2", outputs[1]] if len(names) == 2 else []
        paths = [run / name for name in names]
        assert streamer("filter", *paths, *words, "-o", outputs[0], "-q", *more)[0] == 0
        found |= {name: out.read_bytes() for name, out in zip(names, outputs, strict=True)}
    return found


def test_a_run_from_its_first_file_to_its_summary(run, clean, words, tmp_path, streamer):
    removed, summary = tmp_path / "removed", tmp_path / "s.json"
    options = ["--removed", str(removed), "--summary", str(summary)]
    with process(watch(run, clean, words, *options)) as child:
        wait_for_line(child, "watches")
        write(run / "fastq_pass/barcode01/a_0.fastq.gz", reads(1))
        until((clean / "fastq_pass/barcode01/a_0.fastq.gz").exists, "the first file, filtered")
        write(run / "fastq_pass/barcode01/a_1.fastq.gz", reads(2))
        write(run / "b.fastq", reads(3))
        with gzip.open(run / "c.fastq.gz", "wb") as file:
            file.write(reads(4)[:300].encode())
            file.flush()
            until((clean / "b.fastq").exists, "the next file, filtered")
            assert not (clean / "c.fastq.gz").exists()
            file.write(reads(4)[300:].encode())
        end(run)
        assert child.wait(DEADLINE) == 0
    assert files_of(clean) == expected(run, words, streamer, tmp_path)
    keep = [word if word != "--deplete" else "--keep" for word in words]
    assert files_of(removed) == expected(run, keep, streamer, tmp_path)
    told = json.loads(summary.read_text())["samples"]
    counts = {one["sample"]: one["reads_in"] for one in told}
    assert counts == {"fastq_pass/barcode01": 80, ".": 80}
    out = sum(gzip.open(path).read().count(b"\n+") for path in clean.rglob("a_*"))
    assert [one["reads_out"] for one in told if one["sample"] != "."] == [out]


def test_a_killed_run_goes_on(run, clean, words, tmp_path, streamer):
    """No file is lost or torn, and what had been written is not written again."""
    for number in range(30):
        write(run / f"barcode{number % 3:02}/x{number}.fastq.gz", reads(number, count=100))
    rng, states = random.Random(5), {}
    for _ in range(3):
        with process(watch(run, clean, words)) as child:
            more = len(states) + rng.randrange(1, 5)
            until(lambda more=more: len(files_of(clean)) >= more, "some files")
            child.send_signal(signal.SIGKILL)
            child.wait(DEADLINE)
        done = [path for path in clean.rglob("*.gz") if not path.name.startswith(".")]
        for path in done:
            gzip.decompress(path.read_bytes())
            came_from = run / path.relative_to(clean)
            if path.stat().st_mtime_ns == came_from.stat().st_mtime_ns:
                states.setdefault(path, path.stat().st_ino)
    assert len(states) >= 3
    end(run)
    code, _, told = streamer(*watch(run, clean, words))
    assert code == 0
    assert f"{len(states)} files had been filtered before" in told
    assert {path: path.stat().st_ino for path in states} == states
    found = {name: text for name, text in files_of(clean).items() if "/." not in name}
    assert found == expected(run, words, streamer, tmp_path)
    # nothing is left to do
    assert "30 files had been filtered before" in streamer(*watch(run, clean, words))[2]


def test_mates_are_filtered_together(run, clean, words, tmp_path, streamer):
    names = ["L/S1_S1_L001_R1_001.fastq.gz", "L/S1_S1_L001_R2_001.fastq.gz"]
    with process(watch(run, clean, words)) as child:
        wait_for_line(child, "watches")
        write(run / names[0], reads(1, "/1"))
        write(run / "alone_S2_L001_R1_001.fastq.gz", reads(9))
        write(run / "other.fastq", reads(3))
        until((clean / "other.fastq").exists, "a file without mates")
        assert not (clean / names[0]).exists()
        write(run / names[1], reads(2, "/2"))
        until((clean / names[1]).exists, "the mates")
        end(run)
        assert child.wait(DEADLINE) == 0
    assert files_of(clean) == expected(run, words, streamer, tmp_path, names)
    # R2 has changed: both are filtered again
    write(run / names[1], reads(5, "/2"))
    code, _, told = streamer(*watch(run, clean, words))
    assert code == 0
    assert "3 files had been filtered before" in told
    assert files_of(clean) == expected(run, words, streamer, tmp_path, names)


def test_what_is_given_up_is_named_and_the_rest_is_written(run, clean, words, tmp_path, streamer):
    write(run / "good.fastq.gz", reads(1))
    (run / "cut.fastq.gz").write_bytes(gzip.compress(reads(2).encode())[:-20])
    write(run / "bad.fastq", "@a\nACGT\n+\nIII\n")
    write(run / "half_S1_L001_R2_001.fastq.gz", reads(3))
    write(run / "x_S1_L001_R1_001.fastq.gz", reads(3, "/1"))
    write(run / "x_S1_L001_R2_001.fastq.gz", reads(3, "/2", 39))
    end(run)
    code, _, told = streamer(*watch(run, clean, words, "-q"))
    assert code == 1
    assert "cut.fastq.gz: the compressed stream is truncated" in told
    assert "bad.fastq: record 1 (a)" in told
    assert "there is no half_S1_L001_R1_001.fastq.gz, R1 of its pairs" in told
    assert "x_S1_L001_R2_001.fastq.gz: the file ends after 39 records" in told
    assert len(told.splitlines()) == 4
    assert [*files_of(clean)] == ["good.fastq.gz"]
    (run / "cut.fastq.gz").write_bytes(gzip.compress(reads(2).encode()))
    assert streamer(*watch(run, clean, words, "-q"))[0] == 1
    assert [*files_of(clean)] == ["cut.fastq.gz", "good.fastq.gz"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_an_output_that_cannot_be_written_ends_it(run, clean, words, streamer):
    write(run / "a.fastq", reads(1))
    clean.mkdir()
    os.symlink("/dev/full", clean / "a.fastq")
    end(run)
    code, _, told = streamer(*watch(run, clean, words, "-q"))
    assert code == 1
    assert "a.fastq: cannot write: no space left" in told.lower()


def test_alignments_stay_alignments(run, clean, words, streamer):
    pysam = pytest.importorskip("pysam")
    header = pysam.AlignmentHeader.from_dict({"HD": {"VN": "1.6"}, "RG": [{"ID": "g"}]})
    with pysam.AlignmentFile(str(run / "calls.bam"), "wb", header=header) as file:
        for number, text in enumerate((RECORDS[0][1], "ACCA" * 9)):
            read = pysam.AlignedSegment(header)
            read.query_name, read.query_sequence, read.flag = f"r{number}", text, 4
            read.set_tag("RG", "g")
            file.write(read)
    end(run)
    assert streamer(*watch(run, clean, words))[0] == 0
    with pysam.AlignmentFile(str(clean / "calls.bam"), check_sq=False) as file:
        assert [(read.query_name, read.get_tag("RG")) for read in file] == [("r1", "g")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-o", "-"], "--watch needs -o, a folder"),
        (["-o", "run/clean"], "-o run/clean: is within the folder of --watch, or around it"),
        (["-o", "."], "-o .: is within the folder of --watch, or around it"),
        (["-o", "d.fa"], "-o d.fa: is not a folder"),
        (["-o", "x", "--removed", "x/y"], "--removed x/y: is within the folder of -o"),
        (["-o", "x", "--pairs"], "--watch tells R1 and R2 by the names of the files"),
        (["-o", "x", "run"], "give READS, or --samples, or --watch"),
        (["-o", "x", "--watch", "none"], "none: no such file or directory"),
    ],
)
def test_options_that_do_not_go_together(options, told, run, words, streamer, monkeypatch):
    monkeypatch.chdir(run.parent)
    watched = [] if "--watch" in options else ["--watch", "run"]
    code, _, said = streamer("filter", *watched, *words, *options)
    assert code == (1 if "none" in options else 2)
    assert told in said


def test_settle_and_until_go_with_watch(run, words, streamer):
    write(run / "a.fastq", reads(1))
    for option in (["--settle", "1"], ["--until", "x"]):
        code, _, told = streamer("filter", run / "a.fastq", *words, *option)
        assert code == 2
        assert f"{option[0]} goes with --watch" in told
