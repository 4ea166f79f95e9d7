"""``streamer send --threads``: several threads read and encode what one does, in its order."""

from __future__ import annotations

import gzip
import random

import pytest

from streamer.cli.send_files import Files, SendMark
from streamer.client.client_errors import DaemonError
from streamer.client.producer import EncodedBatch, encoded, parts
from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.protocol.wire import size_of
from streamer.sequences.files import read_batches
from tests.daemon_kit import collecting
from tests.streamer.sequences.kit import bgzf_blocks, rows_of, set_sizes

pytestmark = pytest.mark.whole


def fastq(rng, prefix, records, *, faulty=None):
    """Records, some with a context; ``faulty`` has an impossible letter."""
    lines = []
    for number in range(records):
        bases = "".join(rng.choices("ACGTacgtNR", k=rng.choice((1, 20, 150))))
        if number == faulty:
            bases += "!"
        field = f" ch={rng.randrange(512)} barcode=barcode0{rng.randrange(4)}"
        qualities = "@" * len(bases)
        lines.append(f"@{prefix}{number}{field * rng.randrange(2)}\n{bases}\n+\n{qualities}\n")
    return "".join(lines)


def known_of(reads):
    """Channel and barcode of each read; a batch of reads without any has no context."""
    if reads.context is None:
        return [-1] * len(reads), [None] * len(reads)
    return reads.context.channel.tolist(), reads.context.barcode.texts()


def sent(paths, threads, start=None):
    """(name, codes), channel, barcode and mark of each read, what is said, and what ends it."""
    notes, rows, ended = [], [], ""
    files = Files(
        paths, start=start, marked=True, batch_bases=3000, batch_reads=40, on_bytes=len_of,
        note=notes.append, threads=threads,
    )  # fmt: skip
    try:
        for piece in files:
            reads = piece.reads.decoded() if isinstance(piece.reads, EncodedBatch) else piece.reads
            assert piece.reads.symbols == reads.symbols
            marks = [piece.mark(done) for done in range(1, len(reads) + 1)]
            rows += zip(rows_of(reads), *known_of(reads), marks, strict=True)
    except DataError as error:
        ended = str(error)
    return rows, notes, ended, files.reads, files.bases, files.resume_hint(files.reads)


def len_of(size):
    """Takes how far the files have been read."""
    assert size >= 0


@pytest.mark.parametrize("seed", range(3))
def test_threads_read_what_one_does(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    set_sizes(monkeypatch, region=rng.choice((500, 4000)), block=rng.choice((300, 5000)))
    paths = [str(tmp_path / name) for name in ("a.fq", "b.fq.gz", "c.fq")]
    faulty = rng.choice((None, rng.randrange(300)))
    texts = [fastq(rng, "a", 300), fastq(rng, "b", 200), fastq(rng, "c", 300, faulty=faulty)]
    texts[0] += "@a7\nACGT\n+\nIIII\n"
    for path, text in zip(paths, texts, strict=True):
        with gzip.open(path, "wt") if path.endswith("gz") else open(path, "w") as file:
            file.write(text)
    whole = sent(paths, 1)
    assert len(whole[0]) == 501 + (300 if faulty is None else faulty)
    assert ("c.fq: record" in whole[2]) == (faulty is not None)
    assert [note for note in whole[1] if "the name a7 comes again" in note]
    assert sent(paths, 4) == whole
    for at in rng.sample(range(len(whole[0])), 3):
        start = SendMark.unpack(whole[0][at][-1], paths, "x")
        rest = sent(paths, 1, start)
        assert rest[0] == whole[0][at + 1 :]
        assert sent(paths, 4, start) == rest


@pytest.mark.parametrize("suffix", ["fq.bgz", "bam"])
def test_threads_read_compressed_blocks(tmp_path, monkeypatch, suffix):
    rng = random.Random(9)
    set_sizes(monkeypatch, region=4000, block=3000)
    path = tmp_path / f"a.{suffix}"
    text = fastq(rng, "a", 400)
    if suffix == "bam":
        pytest.importorskip("pysam")
        from tests.streamer.sequences.test_sequence_files import written

        records = zip(*[iter(text.splitlines())] * 4, strict=True)
        written(path, [(head[1:].split()[0], 4, None, bases, []) for head, bases, *_ in records])
    else:
        content = text.encode()
        blocks = bgzf_blocks(content, *range(700, len(content), 700))
        path.write_bytes(b"".join((*blocks, END_BLOCK)))
    whole = sent([str(path)], 1)
    assert len(whole[0]) == 400
    assert whole[2] == ""
    assert sent([str(path)], 4) == whole
    start = SendMark.unpack(whole[0][150][-1], [str(path)], "x")
    assert sent([str(path)], 4, start)[0] == whole[0][151:]


def test_a_daemon_gets_them_once_and_in_order(path, tmp_path, monkeypatch, streamer):
    set_sizes(monkeypatch, region=2000, block=2000)
    rng = random.Random(1)
    reads = tmp_path / "a.fq"
    reads.write_text(fastq(rng, "a", 400, faulty=300))
    with collecting(path) as (daemon, names):
        send = ("send", reads, "--to", daemon.endpoints["ingest"], "--name", "x", "--threads", 4)
        code, _, err = streamer(*send, "--batch-reads", 7)
        assert code == 1
        assert "record 301 (a300), position" in err
        reads.write_text(reads.read_text().replace("!\n", "A\n"))
        code, _, err = streamer(*send, "--batch-reads", 9, "--resume")
        assert code == 0, err
    assert names == [f"a{number}" for number in range(400)]


@pytest.fixture
def batch(tmp_path):
    (tmp_path / "a.fq").write_text(fastq(random.Random(2), "a", 50))
    (made,) = read_batches([str(tmp_path / "a.fq")], context=True)
    return made


def test_a_batch_that_is_encoded_is_split_as_one_that_is_not(batch):
    made = encoded(batch)
    assert isinstance(made, EncodedBatch)
    (whole,) = parts(made, 10**6, "the daemon")
    assert whole.frames is made.frames
    most = size_of(made.frames) // 3
    both = [[*parts(some, most, "the daemon", str)] for some in (made, batch)]
    assert both[0] == both[1]
    assert len(both[0]) > 3
    with pytest.raises(DaemonError, match=r"read a\d+: a message of \d+ bytes exceeds 1"):
        list(parts(made, 1, "the daemon"))


def test_labels_beyond_one_message_are_not_encoded_ahead(batch, monkeypatch):
    monkeypatch.setattr("streamer.protocol.payloads.MAX_LABELS", 2)
    made = encoded(batch)
    assert made is batch
    barcodes = []
    for part in parts(made, 10**6, "the daemon"):
        reads = EncodedBatch(batch.names[: part.reads], part.frames, part.checksum).decoded()
        barcodes += known_of(reads)[1]
    assert barcodes == batch.context.barcode.texts()
