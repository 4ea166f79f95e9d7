"""A daemon that asks for keys, on all its sockets: who may do what, and whose key is gone."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import ExitStack

import msgpack
import pytest
import zmq

from streamer import aio
from streamer.client import (
    Beat,
    Control,
    Cursor,
    Intervals,
    KeysRefusedError,
    Producer,
    RefusedError,
    Subscriber,
    Sync,
)
from streamer.daemon.core.rights import KeyLimits, Rights
from streamer.daemon.security.key_folder import make_keys
from streamer.protocol.keys import ClientKeys
from streamer.protocol.transport.curve import new_pair
from tests.daemon_kit import DEADLINE, sealed
from tests.jobs_kit import LONG, job_folder, wait_for_job
from tests.keys_kit import PlainClient, change, guarded, key_folder
from tests.streamer.web.test_live_page import everything
from tests.waiting import until

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]

MINE = Rights("mine", send=("mine-*",), watch=("match",), sync=True, control=("status",))
READS = [("r", "ACGTACGTACGT")]


@pytest.fixture
def keys(tmp_path):
    return key_folder(tmp_path / "keys", MINE)


@pytest.fixture
def journal(tmp_path):
    return ["journal.durability=os", f"journal.directory={tmp_path / 'journal'}"]


@pytest.fixture
def daemon(tmp_path, keys, journal):
    with guarded(tmp_path, keys, journal) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A daemon whose keys no test changes, and the keys."""
    folder = tmp_path_factory.mktemp("shared")
    made = key_folder(folder / "keys", MINE)
    journal = ["journal.durability=os", f"journal.directory={folder / 'journal'}"]
    with guarded(folder, made, journal) as daemon:
        yield daemon, made


def producer(daemon, keys, name="mine-1"):
    return Producer(daemon.endpoints["ingest"], name=name, answer_seconds=DEADLINE, keys=keys)


def control(daemon, keys):
    return Control(daemon.endpoints["control"], answer_seconds=DEADLINE, keys=keys)


def subscriber(daemon, keys, topics):
    return Subscriber(daemon.endpoints["feed"], topics, answer_seconds=DEADLINE, keys=keys)


def listener(daemon, keys):
    return subscriber(daemon, keys, ["match"])


def sync(daemon, keys):
    return Sync(daemon.endpoints["sync"], answer_seconds=DEADLINE, keys=keys)


def test_each_socket_grants_what_the_key_may_and_denies_the_rest(shared):
    daemon, keys = shared
    mine = keys["mine"]
    with subscriber(daemon, mine, ["match", "beat"]) as feed:
        assert feed.wait_for_daemon(DEADLINE)
        with producer(daemon, mine) as sender:
            # each k-mer twice: the second time it matches
            sender.send(READS)
            sender.send(READS)
            sender.flush(timeout=DEADLINE, matched=True)
        while not isinstance(message := feed.receive(DEADLINE), Intervals):
            assert isinstance(message, Beat)
    with sync(daemon, mine) as asked:
        assert [type(m) for m in asked.pull(["match"])][:1] == [Intervals]
        with pytest.raises(RefusedError, match="may not watch 'delta'") as caught:
            list(asked.pull(["delta"]))
        assert caught.value.reason == "denied"
        with pytest.raises(RefusedError, match="may not fetch snapshots"):
            asked.snapshot()
    with control(daemon, mine) as asked:
        assert asked.status()["security"]["keys"] == 2
        for order in (asked.drain, asked.reload, asked.novelty):
            with pytest.raises(RefusedError, match=r"refused \(denied\): the key 'mine' may not"):
                order()
    other = producer(daemon, mine, "other")
    with pytest.raises(RefusedError, match="may not send as 'other'") as caught:
        other.connect(timeout=DEADLINE)
    other.close()
    assert caught.value.reason == "denied"


def test_a_topic_that_is_denied_is_told_and_never_comes(shared):
    daemon, keys = shared
    with (
        subscriber(daemon, keys["mine"], ["match", "delta"]) as feed,
        producer(daemon, keys["all"]) as sender,
    ):

        def listen():
            while True:
                _sent(sender)
                message = feed.receive(0)
                assert message is None or isinstance(message, Intervals)

        with pytest.raises(RefusedError, match=r"may not watch 'delta\.'") as caught:
            listen()
    assert caught.value.reason == "denied"


def test_what_is_denied_is_not_even_sent(shared):
    """A socket of its own has no other filter than the daemon."""
    daemon, keys = shared
    with PlainClient(zmq.XSUB, daemon.endpoints["feed"], keys["mine"]) as client:
        client.socket.send(b"\x01denied.")
        for prefix in (b"", b"mismatch.", b"denied." + keys["all"].public.encode(), b"beat."):
            client.socket.send(b"\x01" + prefix)
        with producer(daemon, keys["all"]) as sender:
            sender.send(READS)
            sender.flush(timeout=DEADLINE, matched=True)
        seen = {}
        while len(seen) < 2:
            assert client.socket.poll(DEADLINE * 1000)
            topic, head, _ = client.socket.recv_multipart()
            seen[topic] = msgpack.unpackb(head)
        own = b"denied." + keys["mine"].public.encode()
        assert set(seen) == {b"beat.", own}
        assert seen[own]["topics"] == ["", "mismatch."]
        assert seen[own]["reason"] == "denied"


def clients():
    """What makes a client of each socket, and what says that it is still served."""
    return {
        "ingest": (producer, _sent),
        "control": (control, Control.status),
        "feed": (listener, lambda one: one.receive(0.5)),
        "sync": (sync, Sync.heads),
    }


def _sent(sender):
    sender.send(READS)
    sender.flush(timeout=DEADLINE)


def _serve_on(served, client):
    while True:
        served(client)


def test_a_key_that_is_removed_is_shut_out(tmp_path, journal):
    rights = [MINE._replace(name=f"mine-{socket}") for socket in clients()]
    keys = key_folder(tmp_path / "keys", *rights)
    with guarded(tmp_path, keys, journal) as daemon, control(daemon, keys["all"]) as admin:
        for left, (socket, (connect, served)) in zip((4, 3, 2, 1), clients().items(), strict=True):
            client = connect(daemon, keys[f"mine-{socket}"])
            served(client)
            if socket == "feed":
                assert client.wait_for_daemon(DEADLINE)
            change(tmp_path / "keys", f"mine-{socket}")
            until(lambda: admin.status()["security"]["keys"] == left, "the keys read again")  # noqa: B023
            before = admin.status()["totals"]["batches"]
            # the other process reads them by itself, and what is on its way may be answered
            with pytest.raises(KeysRefusedError) as caught:
                _serve_on(served, client)
            # nor does it wait for ever afterwards
            with pytest.raises(KeysRefusedError):
                served(client)
            client.close()
            assert "has no right on this socket" in str(caught.value)
            assert "\n" not in str(caught.value)
            until(lambda: admin.status()["topics"] == [], "the end of its subscriptions")
            assert admin.status()["totals"]["batches"] <= before + 1


@pytest.mark.parametrize("name", ["permissions.toml", "server.key"])
def test_sync_begins_with_the_keys_of_its_daemon(name, tmp_path, daemon, keys):
    """Its process starts with the first client, when the folder may have a fault."""
    path = tmp_path / "keys" / name
    if name == "server.key":
        make_keys(tmp_path / "other", [])
        path.write_text((tmp_path / "other" / name).read_text())
    else:
        path.write_text("[mine")
    with sync(daemon, keys["mine"]) as client:
        client.heads()
    with control(daemon, keys["mine"]) as client:
        client.status()


def test_nothing_more_is_sent_to_a_removed_key_that_ignores_everything(tmp_path, daemon, keys):
    feed = daemon.endpoints["feed"]
    with PlainClient(zmq.SUB, feed, keys["mine"]) as client, control(daemon, keys["all"]) as admin:
        client.socket.subscribe(b"match.")
        until(lambda: admin.status()["topics"] == ["match."], "its subscription")
        change(tmp_path / "keys", "mine")
        until(lambda: not admin.status()["topics"], "the end of its subscription")
        with producer(daemon, keys["all"]) as sender:
            for _ in range(3):
                sender.send(READS)
            sender.flush(timeout=DEADLINE, matched=True)
        assert not client.socket.poll(200)


def test_a_right_that_is_taken_ends_the_subscriptions_to_it(tmp_path, daemon, keys):
    with subscriber(daemon, keys["mine"], ["match"]) as feed:
        assert feed.wait_for_daemon(DEADLINE)
        change(tmp_path / "keys", "mine", watch=["read"])
        with pytest.raises(RefusedError, match=r"may not watch 'match\.'"):
            _serve_on(lambda one: one.receive(1.0), feed)


def test_a_client_is_told_why_it_is_not_admitted(shared):
    daemon, keys = shared
    for given, said in (
        (ClientKeys("w", *new_pair(), keys["all"].server), "has no right on this socket"),
        (None, r"the daemon needs a key \(--keys FILE\)"),
        (keys["all"]._replace(server=new_pair().public), "the daemon's key is not"),
    ):
        for connect, served in clients().values():
            client = connect(daemon, given)
            with pytest.raises(KeysRefusedError, match=f"not admitted: .*{said}"):
                _serve_on(served, client)
            client.close()


def test_asyncio_clients_are_told_too(shared):
    daemon, keys = shared

    async def refused():
        wrong = ClientKeys("w", *new_pair(), keys["all"].server)
        async with aio.Producer(daemon.endpoints["ingest"], keys=wrong) as sender:
            await sender.connect(timeout=DEADLINE)

    async def served():
        given = {"keys": keys["mine"], "answer_seconds": DEADLINE}
        async with aio.Producer(daemon.endpoints["ingest"], name="mine-a", **given) as sender:
            await sender.send(READS)
        async with aio.Subscriber(daemon.endpoints["feed"], ["match"], **given) as feed:
            return await feed.wait_for_daemon(DEADLINE)

    with pytest.raises(KeysRefusedError):
        asyncio.run(refused())
    assert asyncio.run(served())


def test_a_subscriber_heals_over_sync_with_its_key(shared):
    daemon, keys = shared
    with producer(daemon, keys["mine"]) as sender:
        sender.send(READS)
        sender.send(READS)
        sender.flush(timeout=DEADLINE, matched=True)
    feed, replay = daemon.endpoints["feed"], daemon.endpoints["sync"]
    with sync(daemon, keys["mine"]) as asked:
        extent = asked.heads()
    start = Cursor(extent.stream, extent.oldest - 1)
    given = {"answer_seconds": DEADLINE, "keys": keys["mine"]}
    with Subscriber(feed, ["match"], sync=replay, cursor=start, **given) as healing:
        assert isinstance(healing.receive(DEADLINE), Intervals)


def test_connections_of_a_key_are_limited(tmp_path, journal):
    limited = Rights("few", control=("status",), limits=KeyLimits(connections=2))
    keys = key_folder(tmp_path / "keys", limited)
    with guarded(tmp_path, keys) as daemon:
        first, second = (control(daemon, keys["few"]) for _ in range(2))
        with first, second:
            first.status()
            second.status()
            third = control(daemon, keys["few"])
            with third, pytest.raises(RefusedError, match="has 2 connections already"):
                third.status()
            # others are not concerned, nor those that were there
            with control(daemon, keys["all"]) as other:
                other.status()
            first.status()
        with control(daemon, keys["few"]) as later:

            def admitted():
                try:
                    return later.status()
                except RefusedError:
                    return None

            until(admitted, "room after the others have gone")


def test_keys_at_other_addresses(tmp_path, keys, journal):
    addresses = {"ingest": "0.0.0.0", "feed": "[::]", "sync": "[::]", "control": "0.0.0.0"}
    at = [f"{name}.endpoint=tcp://{address}:*" for name, address in addresses.items()]
    with guarded(tmp_path, keys, [*journal, *at]) as daemon, control(daemon, keys["all"]) as admin:
        assert admin.status()["security"] == {"keys": 2, "refused": 0}
        with sync(daemon, keys["mine"]) as client:
            client.heads()


def test_sockets_stay_private(shared):
    daemon, _ = shared
    for name, endpoint in daemon.endpoints.items():
        mode = os.stat(endpoint.removeprefix("ipc://")).st_mode
        assert stat.S_IMODE(mode) == 0o600, name


def test_the_daemon_gives_its_own_clients_keys(tmp_path, keys):
    """The watcher sends, and the page follows feed and control."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.fasta").write_text("ignored")
    (folder / "a.fastq").write_text("@r\nACGTACGTACGT\n+\nIIIIIIIIIIII\n")
    overrides = [
        f"watch.directory={folder}",
        f"watch.ledger={tmp_path / 'ledger'}",
        "watch.settle=0",
        "web.endpoint=127.0.0.1:0",
        "samples.run=monday",
    ]
    with guarded(tmp_path, keys, overrides) as daemon, control(daemon, keys["all"]) as admin:
        until(lambda: admin.status()["totals"]["reads"] == 1, "the read of the folder")
        until(lambda: "beat." in admin.status()["topics"], "the page's subscriptions")
        page = daemon.endpoints["web"]
        until(lambda: everything(page)["rows"]["run"] == "monday", "the page's answer of control")
        assert admin.status()["security"] == {"keys": 2, "refused": 0}
    # nothing of these keys is on the disk
    assert sorted(path.name for path in (tmp_path / "keys" / "clients").iterdir()) == [
        "all.key",
        "mine.key",
    ]


OWN = ("submit", "jobs", "job", "cancel", "retry", "result")
CLIENTS = (
    Rights("ann", control=OWN, limits=KeyLimits(jobs=2)),
    Rights("ben", control=OWN),
    Rights("chief", control=("jobs", "job", "cancel", "all-jobs")),
    Rights("watcher", control=("status", "jobs")),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("jobs")
    job_folder(made)
    return made


@pytest.fixture(scope="module")
def job_clients(folder):
    """A control connection of each key, by its name."""
    keys = key_folder(folder / "keys", *CLIENTS)
    overrides = [f"jobs.directories=['{folder}/data']", f"jobs.results={folder / 'results'}"]
    overrides.append("jobs.nice=0")
    with guarded(folder, keys, overrides) as daemon, ExitStack() as stack:
        endpoint = daemon.endpoints["control"]
        yield {
            name: stack.enter_context(Control(endpoint, answer_seconds=DEADLINE, keys=own))
            for name, own in keys.items()
        }


def submit(client, folder):
    """A job that takes long; its number."""
    return client.submit(LONG, f"{folder}/data")["id"]


def test_a_key_sees_its_own_jobs(job_clients, folder):
    ann, ben, chief = job_clients["ann"], job_clients["ben"], job_clients["chief"]
    job = submit(ann, folder)
    assert ben.jobs() == []
    for command in ("job", "cancel", "retry", "result"):
        with pytest.raises(RefusedError, match="there is no job") as caught:
            ben.request(command, job=job)
        with pytest.raises(RefusedError) as other:
            ben.request(command, job="ffffffff")
        # as for one that there is not
        assert caught.value.reason == other.value.reason
        assert str(caught.value) == str(other.value).replace("ffffffff", job)
    assert [(one["id"], one["owner"]) for one in chief.jobs()] == [(job, "ann")]
    assert [one["id"] for one in job_clients["all"].jobs()] == [job]
    chief.cancel(job)
    assert wait_for_job(ann, job, "cancelled")["reason"] == "cancelled"


def test_what_is_not_allowed_is_denied(job_clients, folder):
    watcher, before = job_clients["watcher"], len(job_clients["all"].jobs())
    assert watcher.jobs() == []
    for call in (lambda: submit(watcher, folder), lambda: watcher.cancel("x")):
        with pytest.raises(RefusedError, match="the key 'watcher' may not ask for") as caught:
            call()
        assert caught.value.reason == "denied"
    assert len(job_clients["all"].jobs()) == before


def test_jobs_of_a_key_are_limited(job_clients, folder):
    ann, ben = job_clients["ann"], job_clients["ben"]
    jobs = [submit(ann, folder) for _ in range(2)]
    with pytest.raises(RefusedError, match="the key 'ann' has 2 jobs that wait or run") as caught:
        submit(ann, folder)
    assert caught.value.reason == "denied"
    # others have their own
    submit(ben, folder)
    ann.cancel(jobs[1])
    third = submit(ann, folder)
    with pytest.raises(RefusedError, match="its limit"):
        ann.retry(jobs[1])
    change(folder / "keys", "ann", jobs=3)

    def runs_again():
        try:
            return ann.retry(jobs[1])
        except RefusedError:
            return None

    until(runs_again, "the new limit")
    assert ann.job(third)["state"] == ann.job(jobs[1])["state"] == "waiting"


def test_a_plain_client_written_from_the_protocol(tmp_path, keys):
    """pyzmq and msgpack only, over TCP."""
    overrides = ["ingest.endpoint=tcp://127.0.0.1:*", "feed.endpoint=tcp://127.0.0.1:*"]
    with guarded(tmp_path, keys, overrides) as daemon:
        at = daemon.endpoints
        with (
            PlainClient(zmq.SUB, at["feed"], keys["mine"]) as feed,
            PlainClient(zmq.DEALER, at["ingest"], keys["mine"]) as client,
        ):
            feed.socket.subscribe(b"match.")
            feed.socket.subscribe(b"beat.")
            assert feed.socket.poll(DEADLINE * 1000)

            def exchange(kind, *frames, **fields):
                header = {"v": 2, "type": kind, "producer": "mine-p", "epoch": 1} | fields
                client.socket.send_multipart(sealed(msgpack.packb(header), *frames))
                assert client.socket.poll(DEADLINE * 1000)
                return msgpack.unpackb(client.socket.recv_multipart()[0])

            assert exchange("hello")["type"] == "welcome"
            reads = msgpack.packb([["r", "ACGTACGTACGT"]])
            for seq in (1, 2):
                answer = exchange("batch", reads, seq=seq, form="list")
                assert answer["type"] == "ack", answer
            header = {"v": 2, "type": "hello", "producer": "other", "epoch": 1}
            client.socket.send_multipart(sealed(msgpack.packb(header)))
            while True:
                assert client.socket.poll(DEADLINE * 1000)
                answer = msgpack.unpackb(client.socket.recv_multipart()[0])
                if answer["type"] == "refused":
                    break
            assert answer["reason"] == "denied"
            while feed.socket.recv_multipart()[0] != b"match.":
                pass
