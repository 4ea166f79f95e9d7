"""The frames of a session with the daemon, socket by socket, are those that are recorded.

Left out is what differs from run to run: times and random streams; and texts for people.
``--update-golden`` records the session anew.
"""

from __future__ import annotations

import hashlib
import random
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
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

HERE = Path(__file__).parent
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
