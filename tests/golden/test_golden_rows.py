"""Rows of commands and sessions of daemons, as they were recorded.

The rows were recorded once and reviewed; ``--update-golden`` records them anew. A short output is
kept whole, of a longer one the first rows, the number of rows and the SHA-256 of all of it.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import re
import shutil
from pathlib import Path

import msgpack
import pytest
import zmq

from tests.daemon_kit import (
    GENOME,
    Raw,
    columns_batch,
    list_batch,
    random_dna,
    reads_of,
    running,
    settings,
    write_fasta,
)
from tests.data_files import DATA
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

HERE = Path(__file__).parent
KEPT_LINES = 40

NANOPORE = "lambda_nanopore.fq.gz"
NEAR = f"match {NANOPORE} -d ont_native_barcodes_24.fa.gz -k 24"
TEXT = "read.fq lambda.fa.gz"

CASES = [
    *(f"match lambda_sim.fq.gz -d lambda.fa.gz -k 21 --report {report} --strands {strands}"
      for report in ("windows", "intervals", "reads")
      for strands in ("forward", "canonical", "both")),
    *(f"match lambda_sim.fq.gz -d lambda.fa.gz -k {k} --report reads"
      for k in (1, 2, 3, 11, 16, 31)),
    f"match {NANOPORE} -d lambda.fa.gz -k 15 --kernel walk",
    f"match {NANOPORE} -d lambda.fa.gz -k 15 --mode grow --report reads",
    "match lambda_sim.fq.gz --seed 5000 -k 21 --report windows",
    "match lambda_sim.fq.gz --seed 0 -k 12 --strands both --chunk 700 --report intervals",
    "match lambda_sim.fq.gz -d ont_pcr_barcodes_96.fa.gz -d lambda.fa.gz -k 9 --format jsonl",
    f"{NEAR} --distance 3",
    f"{NEAR} --distance 2 --report best --strands forward --format jsonl",
    f"{NEAR} --distance 1 --mode grow --chunk 5000",
    f"{NEAR} --distance 2 --semantics ltb",
    "match lambda_sim.fq.gz -d lambda.fa.gz -k 15 --distance 1 --semantics ltb --strands both",
    *(f"asm lambda.fa.gz --patterns ont_pcr_barcodes_96.fa.gz -k 8 --report {report} "
      f"--strands {strands}"
      for report in ("all", "best")
      for strands in ("forward", "reverse", "both")),
    f"asm {NANOPORE} --patterns ont_native_barcodes_24.fa.gz -k 5 --report best --format jsonl",
    "asm lambda.fa.gz --pattern ACGTNNRYACGT -k 1 --iupac",
    "asm read.fq --pattern GATTACAGATTACA -k 4 --method sequential",
    "hamming lambda.fa.gz --patterns ont_pcr_barcodes_96.fa.gz -k 10",
    "hamming lambda_sim.fq.gz --pattern GATTACAGATTACA -k 4 --strands reverse --format jsonl",
    "hamming read.fq --pattern ACGTACGT -k 3 --method shift-add",
    f"lcs {TEXT}",
    f"lcs {TEXT} --identity --format jsonl",
    f"lcs {TEXT} --method systolic --length-only",
    f"primer {TEXT} -k 5",
    f"primer {TEXT} -k 8 --strands both --format jsonl",
    f"primer {TEXT} -k 3 --method hook-row",
    "primer read.fq ont_pcr_barcodes_96.fa.gz -k 5 --strands both --pairs 10 --product 300-500",
]  # fmt: skip

FILES = {
    f"lcs {TEXT}": ("--sequence", "--blocks"),
    f"primer {TEXT} -k 5": ("--bed", "--fasta"),
    f"primer {TEXT} -k 5 --known ont_native_barcodes_24.fa.gz": ("--known-table",),
}
"""Options of a command that write a file besides its rows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The test data, and the beginning of one long read."""
    copy = Path(shutil.copytree(DATA, tmp_path_factory.mktemp("golden") / "data"))
    with gzip.open(copy / NANOPORE, "rb") as reads:
        record = [reads.readline().rstrip()[:1200] + b"\n" for _ in range(4)]
    (copy / "read.fq").write_bytes(b"".join(record))
    return copy


def recorded(output: str) -> str:
    """What is kept of an output."""
    lines = output.splitlines(keepends=True)
    if len(lines) <= KEPT_LINES:
        return output
    digest = hashlib.sha256(output.encode()).hexdigest()
    return "".join(lines[:KEPT_LINES]) + f"... {len(lines)} lines, SHA-256 {digest}\n"


def compare(command: str, output: str, update: bool) -> None:
    """The output of a command line against what is recorded of it."""
    path = HERE / "rows" / (re.sub(r"[^\w.-]+", "_", command) + ".txt")
    text = f"$ streamer {command}\n{recorded(output)}"
    if update:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("command", CASES)
def test_rows(command, streamer, folder, monkeypatch, update_golden):
    monkeypatch.chdir(folder)
    code, out, said = streamer(*command.split(), "--quiet")
    assert (code, said) == (0, "")
    compare(command, out, update_golden)


@pytest.mark.parametrize("command", FILES)
def test_files(command, streamer, folder, monkeypatch, update_golden, tmp_path):
    monkeypatch.chdir(folder)
    made = {option: tmp_path / option.strip("-") for option in FILES[command]}
    options = [word for option, path in made.items() for word in (option, path)]
    code, _, said = streamer(*command.split(), "--quiet", *options)
    assert (code, said) == (0, "")
    for option, path in made.items():
        compare(f"{command} {option}", path.read_text(), update_golden)


def test_every_record_has_its_command():
    recorded_commands = {
        path.read_text().split("\n", 1)[0] for path in (HERE / "rows").glob("*.txt")
    }
    expected = {f"$ streamer {command}" for command in CASES}
    expected |= {f"$ streamer {c} {option}" for c, options in FILES.items() for option in options}
    assert recorded_commands == expected


VARYING = {"stream", "time", "message"}
BATCH_TOPICS = {b"match.", b"mismatch.", b"near.", b"ltb.", b"delta.", b"word.", b"read."}

KEPT_BYTES = 64

SETUPS = {
    "frozen": ["dictionary.mode='frozen'"],
    "grow": ["dictionary.mode='grow'", "matching.chunk_bases=500"],
    "near": ["matching.distance=1", "dictionary.strands='both'"],
    "ltb": ["matching.distance=1", "matching.semantics='ltb'", "dictionary.strands='forward'"],
}


def reads(seed):
    """Reads from the genome, and some from elsewhere."""
    rng = random.Random(seed)
    return [*reads_of(GENOME, rng, 12, f"b{seed}-"), (f"other{seed}", random_dna(rng, 90))]


def shown(header):
    """A header as a line of text."""
    kept = {key: value for key, value in header.items() if key not in VARYING}
    return str(dict(sorted(kept.items())))


def batches():
    """Two batches as lists, one as columns, and two that are refused."""
    yield list_batch(1, reads(1))
    yield list_batch(2, reads(2))
    made = reads(3)
    offsets = [sum(len(letters) for _, letters in made[:i]) for i in range(len(made) + 1)]
    letters = "".join(letters for _, letters in made).encode()
    yield columns_batch(3, [name for name, _ in made], offsets, letters)
    yield list_batch(4, [["bad", "ACGT!"]])
    yield list_batch(9, [["late", "ACGT"]])


@pytest.mark.parametrize("setup", SETUPS)
def test_session(setup, tmp_path, update_golden):
    genome = write_fasta(
        tmp_path / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])]
    )
    path = settings(tmp_path, f'sources = ["{genome.name}"]\nk = 11\n')
    lines = []
    with running(path, SETUPS[setup]) as daemon, Raw(daemon.endpoints["feed"], zmq.SUB) as feed:
        for topic in BATCH_TOPICS:
            feed.socket.subscribe(topic)
        daemon.wait_for_subscriptions(*(topic.decode()[:-1] for topic in BATCH_TOPICS))
        with Raw(daemon.endpoints["ingest"]) as raw:
            raw.open(epoch=1)
            for number, (header, *frames) in enumerate(batches(), 1):
                raw.send(header, *frames)
                if number <= 3:
                    answer = raw.accepted(number, matched=number)
                else:
                    answer = raw.receive_type("refused")
                lines.append(f"ingest {shown(answer)}")
        lines += told(feed.socket, batches=3)
    text = "\n".join(lines) + "\n"
    record = HERE / f"session_{setup}.txt"
    if update_golden:
        record.write_text(text)
    assert text == record.read_text()


def told(feed, batches):
    """The messages of the feed about these batches."""
    seen = 0
    while seen < batches:
        assert feed.poll(DEADLINE * 1000), "the feed is silent"
        topic, header, *frames, _ = feed.recv_multipart()
        yield f"feed {topic.decode()} {shown(msgpack.unpackb(header, strict_map_key=False))}"
        for frame in frames:
            digest = hashlib.sha256(frame).hexdigest()
            yield f"    {len(frame)} bytes {frame[:KEPT_BYTES].hex()} SHA-256 {digest}"
        seen += topic == b"read."


def test_the_recorded_topics():
    """Every topic about a batch occurs in one of the sessions."""
    texts = "".join((HERE / f"session_{setup}.txt").read_text() for setup in SETUPS)
    assert all(f"feed {topic.decode()} " in texts for topic in BATCH_TOPICS)
