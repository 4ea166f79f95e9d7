"""The daemon with a distance: its feed says of every read what ``streamer match`` says."""

from __future__ import annotations

import random

import pytest

from streamer.client import Automaton, Near, Producer, Subscriber
from tests.daemon_kit import DEADLINE, follow, random_dna, rows_of, running, settings, write_fasta
from tests.streamer.matching.test_match_near import edited, near

pytestmark = pytest.mark.whole

BARCODES = [(f"NB{i:02}", random_dna(random.Random(i), 24)) for i in range(12)]


def barcoded(count):
    rng = random.Random(count)
    reads = []
    for i in range(count):
        barcode = edited(rng, BARCODES[i % 12][1], i % 5)
        text = random_dna(rng, 10) + barcode + random_dna(rng, 30)
        reads.append((f"r{i}", near.reverse_complement(text) if i % 2 else text))
    return [*reads, ("empty", "")]


def feed_of(path, overrides, reads, topics, batch=10):
    """The messages that a daemon sends about reads."""
    with (
        running(path, overrides) as daemon,
        Subscriber(daemon.endpoints["feed"], [*topics, "read"]) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        with Producer(daemon.endpoints["ingest"]) as producer:
            for at in range(0, len(reads), batch):
                producer.send(reads[at : at + batch], timeout=DEADLINE)
            producer.flush(timeout=DEADLINE, matched=True)
        return follow(feed, -(-len(reads) // batch))


def expected(streamer, fasta, *arguments):
    code, out, err = streamer("match", fasta, *arguments, "--quiet", "--device", "cpu")
    assert code == 0, err
    return [tuple(line.split("\t")) for line in out.splitlines()[1:]]


@pytest.mark.parametrize("strands", [None, "forward"])
def test_barcodes_by_read(strands, tmp_path, streamer):
    dictionary = write_fasta(tmp_path / "barcodes.fa", BARCODES)
    reads = barcoded(35)
    fasta = write_fasta(tmp_path / "reads.fa", reads)
    path = settings(tmp_path, f'sources = ["{dictionary.name}"]\nk = 24\n')
    chosen = ["matching.distance=3", "matching.device=cpu"]
    chosen += [f"dictionary.strands={strands}"] if strands else []
    messages = feed_of(path, chosen, reads, ["near"])
    run = ("-d", dictionary, "-k", 24, "--distance", 3)
    run += ("--strands", strands) if strands else ()
    columns = ["read", "start", "end", "distance", "strand", "kmer", "target"]
    got = rows_of(messages, Near, [*columns, "best"])
    want = expected(streamer, fasta, *run)
    assert len(want) > 20
    assert [row[:-1] for row in got] == want
    best = [row[:-1] for row in got if row[-1] == "1"]
    assert best == expected(streamer, fasta, *run, "--report", "best")
    for message in messages:
        if isinstance(message, Near):
            assert message.limit == 3
            assert set(message.snapshot.tolist()) == {1}


def test_a_growing_dictionary_names_its_snapshots(tmp_path):
    rng = random.Random(31)
    genome = random_dna(rng, 400)
    reads = [("genome", genome), ("near", edited(rng, genome[100:200], 6, "ACGT"))]
    path = settings(tmp_path, 'k = 15\nmode = "grow"\n')
    messages = feed_of(
        path, ["matching.distance=2", "matching.device=cpu"], reads, ["near", "delta"], batch=1
    )
    found = [message for message in messages if isinstance(message, Near)]
    # the first batch sees the empty dictionary; the second what the first has brought
    assert [message.origin.batch for message in found] == [1]
    assert set(found[0].snapshot.tolist()) == {found[0].origin.version_before} == {2}
    got = rows_of(found, Near, ["start", "end", "distance", "strand", "kmer"])
    kmers = near.dictionary_of([("g", genome)], 15)
    want = near.nearest(kmers, reads[1][1], 2)
    assert got == [tuple(map(str, row)) for row in want]
    assert len(got) > 50


def test_the_automaton(tmp_path, streamer):
    dictionary = write_fasta(tmp_path / "barcodes.fa", BARCODES)
    reads = barcoded(12)
    fasta = write_fasta(tmp_path / "reads.fa", reads)
    path = settings(tmp_path, f'sources = ["{dictionary.name}"]\nk = 12\n')
    chosen = ["matching.distance=2", "matching.semantics=ltb", "matching.device=cpu"]
    messages = feed_of(path, chosen, reads, ["ltb"])
    got = rows_of(messages, Automaton, ["read", "end", "distances", "depths"])
    run = ("-d", dictionary, "-k", 12, "--distance", 2, "--semantics", "ltb")
    assert got == expected(streamer, fasta, *run)
    assert any(row[2] != "." for row in got)
