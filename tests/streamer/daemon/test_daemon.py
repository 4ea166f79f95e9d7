"""The daemon's results are those of one pass over the reads in the accepted order."""

from __future__ import annotations

import random
import threading

import pytest

from streamer.client import Intervals, NewKmers, Producer, ReadSummaries, Subscriber
from tests.daemon_kit import (
    DEADLINE,
    GENOME,
    follow,
    reads_of,
    rows_of,
    running,
    write_fasta,
)

pytestmark = pytest.mark.whole

TOPICS = ("match", "mismatch", "delta", "read")


def in_order(found, names):
    place = {name: i for i, name in enumerate(names)}
    return sorted(found, key=lambda row: (place[row[0]], int(row[1])))


def expected(streamer, tmp_path, reads, genome, mode, report):
    """What ``streamer match`` says about reads."""
    fasta = write_fasta(tmp_path / f"{report}.fa", reads)
    code, out, err = streamer(
        "match", fasta, "-d", genome, "-k", 11, "--mode", mode, "--report", report, "--quiet"
    )
    assert code == 0, err
    return [tuple(line.split("\t")) for line in out.splitlines()[1:]]


def check_equal(messages, sent, streamer, tmp_path, genome, mode):
    """The feed says of the reads, in the order of acceptance, what ``streamer match`` says."""
    summaries = [m for m in messages if isinstance(m, ReadSummaries)]
    assert [m.origin.batch for m in summaries] == list(range(len(summaries)))
    names = [name for m in summaries for name in m.origin.names]
    reads = [(name, sent[name]) for name in names]
    got = rows_of(
        messages,
        ReadSummaries,
        ["read", "length", "windows", "matches", "mismatches", "skipped", "best_target"],
    )
    assert got == expected(streamer, tmp_path, reads, genome, mode, "reads")
    got = rows_of(messages, Intervals, ["read", "start", "end", "event", "windows", "target"])
    assert in_order(got, names) == expected(streamer, tmp_path, reads, genome, mode, "intervals")
    new = [int(code) for m in messages if isinstance(m, NewKmers) for code in m.code]
    assert (
        len(new)
        == len(set(new))
        == sum(int(m.mismatches.sum()) for m in summaries) * (mode == "grow")
    )


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_several_producers_equal_one_pass(path, tmp_path, genome, streamer, mode):
    made = {f"p{i}": reads_of(GENOME, random.Random(i), 60, prefix=f"p{i}-") for i in range(3)}
    sizes = {"p0": 1, "p1": 7, "p2": 60}
    batches = sum(-(-60 // size) for size in sizes.values())
    failed = []

    def produce(name):
        try:
            with Producer(daemon.endpoints["ingest"], name=name) as producer:
                for at in range(0, 60, sizes[name]):
                    producer.send(made[name][at : at + sizes[name]], timeout=DEADLINE)
                producer.flush(timeout=DEADLINE, matched=True)
        except Exception as error:
            failed.append(error)

    with (
        running(path, [f"dictionary.mode={mode}"]) as daemon,
        Subscriber(daemon.endpoints["feed"], TOPICS) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        threads = [threading.Thread(target=produce, args=(name,)) for name in made]
        for thread in threads:
            thread.start()
        messages = follow(feed, batches)
        for thread in threads:
            thread.join(DEADLINE)
        assert not failed
        totals = daemon.service.status.totals.fields()
    sent = {name: sequence for reads in made.values() for name, sequence in reads}
    assert totals["reads"] == len(sent)
    assert totals["bases"] == sum(map(len, sent.values()))
    check_equal(messages, sent, streamer, tmp_path, genome, mode)
    assert not feed.gaps
