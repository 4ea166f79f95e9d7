"""``Sync``: what it returns equals what the journal holds."""

from __future__ import annotations

import random
import threading

import msgpack
import numpy as np
import pytest
import zmq

from streamer.client import (
    Cursor,
    CursorError,
    DaemonSilentError,
    Gap,
    ReadSummaries,
    RefusedError,
    Sync,
)
from tests.daemon_kit import sealed
from tests.stored_batches import STORED, said
from tests.streamer.daemon.test_sync import serving, snapshot_meta
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def sync(served):
    with Sync(served.worker.endpoint, answer_seconds=DEADLINE) as made:
        yield made


def keys(messages):
    return [(message.stamp.topic, message.stamp.at) for message in messages]


def test_pull_returns_every_message_once_and_in_order(served, sync):
    served.commit(40)
    messages = list(sync.pull(["delta.", "read"]))
    assert keys(messages) == list(said(served.records, ["delta", "read"]))
    assert sync.cursor == Cursor(served.journal.stream, 40)
    for message in messages:
        assert message.stamp.stream == served.journal.stream
        assert message.origin.batch == message.stamp.at - 1
        columns = said(served.records[message.stamp.at - 1 :][:1], [message.stamp.topic])
        ((_, first, *_),) = columns.values()
        assert list(message.origin.names) == [f"read{i}" for i in range(20)]
        column = message.read if isinstance(message, ReadSummaries) else message.code
        assert column.tobytes() == first


def test_pull_goes_on_from_its_cursor_at_any_message(served, sync):
    served.commit(30)
    want = list(said(served.records, STORED))
    rng = random.Random(6)
    got, cursor = [], None
    while len(got) < len(want):
        for message, _ in zip(sync.pull(STORED, cursor), range(rng.randint(1, 9)), strict=False):
            got += keys([message])
            cursor = sync.cursor
            # as it is stored
            cursor = Cursor.from_json(cursor.to_json())
    assert got == want


def test_pull_follows_the_stream(served, sync):
    served.commit(5)
    pulled = sync.pull(["read"], follow=True)
    adding = threading.Thread(target=served.commit, args=(200,))
    got = [next(pulled)]
    adding.start()
    while len(got) < 205:
        got.append(next(pulled))
    adding.join()
    pulled.close()
    assert [at for _, at in keys(got)] == list(range(1, 206))


def test_pull_until(served, sync):
    served.commit(20)
    cursor = Cursor(served.journal.stream, 4)
    assert [at for _, at in keys(sync.pull(["read"], cursor, until=9))] == [5, 6, 7, 8, 9]
    assert list(sync.pull(["read"], Cursor(served.journal.stream, 9), until=9)) == []


@pytest.mark.parametrize(
    ("at", "stream", "reason"), [(8, None, "future"), (1, "0123456789abcdef", "stream")]
)
def test_cursors_that_cannot_be(served, sync, at, stream, reason):
    served.commit(7)
    with pytest.raises(CursorError) as caught:
        list(sync.pull(["read"], Cursor(stream or served.journal.stream, at)))
    assert (caught.value.reason, caught.value.oldest, caught.value.head) == (reason, 1, 7)


def test_heads(served, sync):
    served.commit(12)
    found = sync.heads()
    assert (found.stream, found.epoch) == (served.journal.stream, served.journal.epoch)
    assert (found.oldest, found.head, found.heads) == (1, 12, served.batches.heads)


@pytest.mark.parametrize("kmers", [0, 3_000_000])
def test_snapshot(served, sync, kmers):
    served.commit(12)
    codes = np.random.default_rng(1).integers(0, 1 << 40, kmers, np.uint64)
    served.journal.put_snapshot(9, snapshot_meta(9), (codes.tobytes(), b""))
    state = sync.snapshot()
    assert state.cursor == Cursor(served.journal.stream, 9)
    assert (state.version, state.batch, state.base) == (9, 9, 5)
    assert (dict(state.heads), dict(state.totals)) == ({"read": 9}, {"reads": 77})
    assert np.array_equal(state.kmers, codes)
    assert [at for _, at in keys(sync.pull(["read"], state.cursor))] == [10, 11, 12]


def test_a_pull_after_one_that_was_given_up_gets_its_own(served, sync):
    served.commit(300)
    next(sync.pull(["read"]))
    assert keys(sync.pull(["delta"])) == list(said(served.records, ["delta"]))
    assert sync.heads().head == 300


def test_nobody_answers(tmp_path):
    with Sync(f"ipc://{tmp_path}/nobody", answer_seconds=0.1) as sync:
        for ask in (sync.heads, sync.snapshot, lambda: list(sync.pull(["read"]))):
            with pytest.raises(DaemonSilentError):
                ask()


def test_heads_may_be_refused(tmp_path):
    """As to a connection beyond those of its key."""
    endpoint = f"ipc://{tmp_path}/sync"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(endpoint)

        def refuse():
            route, head, _ = socket.recv_multipart()
            said = {"v": 2, "type": "refused", "id": msgpack.unpackb(head)["id"]}
            said |= {"reason": "denied", "message": "too many connections"}
            socket.send_multipart([route, *sealed(msgpack.packb(said))])

        refusing = threading.Thread(target=refuse)
        refusing.start()
        with (
            Sync(endpoint, answer_seconds=DEADLINE) as made,
            pytest.raises(RefusedError, match="too many connections") as caught,
        ):
            made.heads()
        assert caught.value.reason == "denied"
        refusing.join()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"stream": "a"}', '{"stream": "a", "at": -1}', '{"stream": "a", "at": 1.5}',
     '{"stream": "a", "at": 1, "ahead": {"read": "x"}}', '{"stream": "a", "at": 1, "ahead": 3}',
     '{"stream": "a", "at": true}', '{"stream": "a", "at": 9223372036854775808}'],
)  # fmt: skip
def test_what_is_no_cursor(text):
    from streamer.errors import StreamerError

    with pytest.raises(StreamerError, match="not a cursor"):
        Cursor.from_json(text)


def test_damage_leaves_a_gap_on_each_topic(served, sync):
    """Also at the end, behind which no message shows it."""
    served.commit(30)
    for at in (12, 30):
        (row,) = served.journal._index.records(at - 1, at)
        with (served.journal.directory / f"records-{row.file:08d}").open("r+b") as data:
            data.seek(row.offset + 3)
            byte = data.read(1)
            data.seek(row.offset + 3)
            data.write(bytes([byte[0] ^ 4]))
    topics = ("delta", "read", "word")
    found = list(sync.pull(topics))
    gaps = [message for message in found if isinstance(message, Gap)]
    want = list(said(served.records, topics))
    for topic in ("delta", "read"):
        there = [at for name, at in want if name == topic]
        missing = [
            Gap(topic, max([a for a in there if a < at], default=0), at)
            for at in there
            if at in (12, 30)
        ]
        assert [gap for gap in gaps if gap.topic == topic] == missing
    assert not [gap for gap in gaps if gap.topic == "word"]
    came = [message for message in found if not isinstance(message, Gap)]
    assert keys(came) == [one for one in want if one[1] not in (12, 30)]
    assert sync.cursor == Cursor(served.journal.stream, 30)
