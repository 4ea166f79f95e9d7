"""Channel and barcode of reads on the topic ``read``: live, replayed, and in a revision."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamer.client import Control, Producer, Subscriber
from streamer.client.message_tables import table
from streamer.client.messages import ReadSummaries, Upgrade
from streamer.client.sync import Sync
from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.read_batch import ReadBatch
from tests.daemon_kit import running, write_fasta
from tests.reload_kit import GENOME, configured, settle
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


def batch_of(rng, number, count, known):
    """A batch and, of each read, its name, channel and barcode."""
    reads = [
        (f"b{number}-{n}", GENOME[(at := rng.randrange(2900)) : at + 60]) for n in range(count)
    ]
    offsets = np.cumsum([0, *(len(letters) for _, letters in reads)])
    batch = ReadBatch.from_letters(
        [name for name, _ in reads], offsets, "".join(x for _, x in reads).encode()
    )
    said = [
        (name, rng.choice([None, 1, 512]), rng.choice([None, "barcode01", "barcode07"]))
        for name, _ in reads
    ]
    if not known:
        return batch, [(name, None, None) for name, *_ in said]
    none = LabelColumn.same(None, count)
    labels = ["unused", "barcode07", "barcode01"]
    context = ReadContext(
        np.array([-1 if channel is None else channel for _, channel, _ in said], np.int32),
        np.zeros(count, "S1"),
        none,
        LabelColumn(
            labels, np.array([-1 if b is None else labels.index(b) for *_, b in said], np.int32)
        ),
        none,
    )
    return ReadBatch(batch.names, batch.offsets, batch.bases, context), said


def rows_of(message):
    """As ``streamer watch`` shows them."""
    assert isinstance(message, ReadSummaries)
    columns = table(message).columns
    assert list(columns)[-3:] == ["channel", "barcode", "batch"]
    barcodes = [message.barcodes.get(number) for number in message.barcode.tolist()]
    channels = [None if channel < 0 else channel for channel in message.channel.tolist()]
    names = [message.origin.names[read] for read in message.read.tolist()]
    return list(zip(names, channels, barcodes, strict=True))


@pytest.mark.parametrize("targets", [1, 2])
def test_rows_of_reads_have_their_context(tmp_path, targets):
    rng = random.Random(targets)
    pieces = [(f"t{n}", GENOME[700 * n : 700 * n + 900]) for n in range(targets)]
    write_fasta(tmp_path / "ref.fa", pieces)
    path = configured(tmp_path)
    made = [batch_of(rng, n, count, n % 2 == 0) for n, count in enumerate((3, 4, 0, 0, 5, 1))]
    want = [said for _, said in made]
    with running(path) as daemon, Subscriber(daemon.endpoints["feed"], ["read"]) as feed:
        daemon.wait_for_subscriptions("read")
        with Producer(daemon.endpoints["ingest"]) as producer:
            for batch, _ in made:
                producer.send(batch)
            producer.flush(matched=True, timeout=DEADLINE)
        assert [rows_of(feed.receive(DEADLINE)) for _ in made] == want
    contexts = {row[0]: row for rows in want for row in rows}
    with running(path) as daemon, Control(daemon.endpoints["control"]) as control:
        write_fasta(tmp_path / "ref.fa", [("other", GENOME[1500:2900])])
        control.reload()
        settle(control)
        with Sync(daemon.endpoints["sync"]) as sync:
            stored = list(sync.pull(["read", "retract", "upgrade"]))
    assert [rows_of(m) for m in stored if isinstance(m, ReadSummaries)] == want
    upgraded = [row for m in stored if isinstance(m, Upgrade) for row in rows_of(m.parts["read"])]
    assert upgraded
    assert all(contexts[row[0]] == row for row in upgraded)
