"""The novelty curve of a daemon: over restarts, on the feed, and as one match of all reads."""

from __future__ import annotations

import random

import pytest

from streamer.cli.app import main
from streamer.client import Control, RefusedError, Subscriber
from streamer.client.message_tables import table
from streamer.client.messages import TallyRows
from streamer.daemon import restore
from streamer.journal.store import Journal
from tests.daemon_kit import controlled, running, send_batches, settings, write_fasta
from tests.reference.novelty import novelty_curve
from tests.reload_kit import batches_of
from tests.waiting import until

pytestmark = pytest.mark.whole

K = 11


def growing(folder, durability="os"):
    path = folder / "streamer.toml"
    text = (folder / settings(folder, f'k = {K}\nmode = "grow"')).read_text()
    text = text.replace("[feed]\n", "[feed]\nbeat_seconds = 0.05\n")
    path.write_text(f'{text}[journal]\ndirectory = "journal"\ndurability = "{durability}"\n')
    return str(path)


def curve_of(daemon):
    with Control(daemon.endpoints["control"]) as control:
        return [list(point) for point in control.novelty()]


def test_the_curve_goes_on_over_restarts(tmp_path):
    """From records alone, from a snapshot, and from a snapshot and records after it."""
    rng, path, reads = random.Random(4), growing(tmp_path), []
    for life in range(4):
        batches = batches_of(rng, 25)
        with running(path) as daemon:
            assert curve_of(daemon) == novelty_curve(reads, K)
            send_batches(daemon, batches)
            reads += [read for batch in batches for read in batch]
            want = novelty_curve(reads, K)
            until(lambda: curve_of(daemon) == want, "the curve")  # noqa: B023
        if life == 1:
            spec = daemon.service.status.config.spec
            journal = Journal(tmp_path / "journal", restore.identity(spec), "os")
            restore.put_snapshot(journal)
            journal.close()
    write_fasta(tmp_path / "reads.fa", reads)
    out = tmp_path / "out.tsv"
    arguments = ["match", str(tmp_path / "reads.fa"), "-k", str(K), "--seed", "0"]
    assert main([*arguments, "--report", "novelty", "-q", "-o", str(out)]) == 0
    rows = [[int(cell) for cell in line.split("\t")] for line in out.read_text().splitlines()[1:]]
    assert rows == novelty_curve(reads, K)


def test_the_feed_says_where_it_ends(tmp_path):
    rng, reads, topic = random.Random(9), [], "novelty"
    with (
        running(growing(tmp_path, "none")) as daemon,
        Subscriber(daemon.endpoints["feed"], [topic]) as feed,
    ):
        daemon.wait_for_subscriptions(topic)
        for _ in range(3):
            batches = batches_of(rng, 6)
            reads += [read for batch in batches for read in batch]
            send_batches(daemon, batches)
            said: list[list[int]] = []
            until(lambda: heard(feed, said) == novelty_curve(reads, K)[-1], "the end of the curve")  # noqa: B023
            # only what has changed
            assert len({tuple(row) for row in said}) == len(said)


def heard(feed, said):
    """The last row that has come; all go to ``said``."""
    while (message := feed.receive(0.05)) is not None:
        assert isinstance(message, TallyRows)
        assert list(table(message).columns) == ["topic", "reads", "bases", "kmers", "new"]
        said += message.rows
    return said[-1] if said else None


def test_a_daemon_that_learns_nothing_says_so(tmp_path):
    write_fasta(tmp_path / "ref.fa", [("one", "ACGTAGCTAGTCGATCGTAC")])
    path = settings(tmp_path, f'k = {K}\nsources = ["ref.fa"]')
    with controlled(path) as (_, control):
        with pytest.raises(RefusedError, match="learns nothing from the reads"):
            control.novelty()
        assert "novelty." not in control.status()["published"]
