"""A dictionary that has reached its limit: what the daemon does, and where it says so."""

from __future__ import annotations

import random

import pytest
from structlog.testing import capture_logs

from streamer.cli.choices import SENT_READS
from streamer.client import Control, NewKmers, Status, Subscriber
from tests.daemon_kit import Raw, follow, list_batch, random_dna, running, settings, write_fasta
from tests.reference import exact as oracle
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

K = 9


def batches_of(count, reads=20, length=40):
    rng = random.Random(3)
    return [
        [(f"b{batch}r{i}", random_dna(rng, length, "ACGTACGTACGTN")) for i in range(reads)]
        for batch in range(count)
    ]


def limited(message):
    """Whether a message of the feed says that the limit is reached."""
    return isinstance(message, Status) and message.status["dictionary"]["limited"]


def test_refuses_until_it_is_started_with_another_limit(tmp_path, streamer):
    """What was accepted is matched without growth; the feed, the status and the log say why."""
    batches = batches_of(3)
    brought = oracle.match_limited(batches, K, 1, mode="grow")[1]
    path = settings(tmp_path, f"k = {K}\nmax_kmers = 1\nat_limit = 'refuse'")
    with (
        running(path) as daemon,
        capture_logs() as logged,
        Subscriber(daemon.endpoints["feed"], ["delta", "read", "status"]) as feed,
        Raw(daemon.endpoints["ingest"]) as raw,
        Control(daemon.endpoints["control"]) as control,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        raw.open()
        with daemon.engine_held():
            for seq in (1, 2):
                raw.send(*list_batch(seq, batches[seq - 1]))
            raw.accepted(2)
        messages = follow(feed, 2)
        until(lambda: control.status()["state"] == "full", "the state full")
        while (answer := raw.receive())["state"] != "full" or answer["matched"] < 2:
            pass
        assert answer["credit"] == 0
        raw.send(*list_batch(3, batches[2]))
        refused = raw.receive_type("refused")
        assert (refused["reason"], refused["state"], refused["credit"]) == ("full", "full", 0)
        assert "max_kmers" in refused["message"]
        deltas = [message for message in messages if isinstance(message, NewKmers)]
        assert [message.code.size for message in deltas] == [len(brought[0])]
        while not any(limited(message) for message in messages):
            messages.append(feed.receive(DEADLINE))
        assert [message.state for message in messages if limited(message)] == ["full"]
        table = streamer("status", "-c", path)[1]
        assert "1 k-mers, reached: batches are refused" in table
        assert control.status()["totals"]["batches"] == 2
    (line,) = (line for line in logged if "limit" in line["event"])
    assert line["event"].endswith("no batches are accepted")
    with (
        running(path, ["dictionary.max_kmers=0"]) as daemon,
        Raw(daemon.endpoints["ingest"]) as raw,
    ):
        raw.open()
        raw.send(*list_batch(1, batches[2]))
        raw.accepted(1)


def test_a_limit_is_for_a_dictionary_that_grows(tmp_path, streamer):
    reads = write_fasta(tmp_path / "r.fa", [("r", "ACGTACGTACGT")])
    code, _, err = streamer("match", reads, "-d", reads, "-k", K, "--max-kmers", 5)
    assert code == 2
    assert "--max-kmers needs a dictionary that grows" in err
    code, _, _ = streamer("match", reads, "--seed", 0, "-k", K, "--max-kmers", -1)
    assert code == 2


def test_seeds_that_were_not_added_are_not_saved(tmp_path, streamer):
    """Both strands: a saved file has the k-mers as they stood in the reads."""
    rng = random.Random(5)
    reads = [(f"r{i}", random_dna(rng, K + 1)) for i in range(2 * SENT_READS + 1000)]
    path, saved = write_fasta(tmp_path / "r.fa", reads), tmp_path / "saved"
    batches = [reads[at : at + SENT_READS] for at in range(0, len(reads), SENT_READS)]
    options = {"strands": "both", "seed": 10**6}
    _, brought, known = oracle.match_limited(batches, K, 5000, **options)
    assert len(brought[0]) == len(known)
    asked = ["match", path, "--seed", 10**6, "-k", K, "--strands", "both", "--max-kmers", 5000]
    asked += ["--mode", "frozen", "--report", "reads", "--device", "cpu", "--quiet"]
    assert streamer(*asked, "--save", saved)[0] == 0
    held = {kmer for _, text in batches[0] for _, kmer in oracle.windows_of(text, K)}
    assert any(oracle.reverse_complement(kmer) in held for kmer in held)
    code, out, _ = streamer(
        "match", path, "-d", saved, "-k", K, "--strands", "both", "-D", 0, "--device", "cpu", "-q"
    )
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert {row[5] for row in rows} == held
    assert len(rows) == sum(
        oracle.stored(kmer, "both") in known
        for _, text in reads
        for _, kmer in oracle.windows_of(text, K)
    )
