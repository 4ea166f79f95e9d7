"""A client with another key and the routing id of another client gets nothing of that one."""

from __future__ import annotations

import msgpack
import pytest
import zmq

from streamer.daemon.core.rights import Rights
from tests.daemon_kit import DEADLINE, sealed
from tests.keys_kit import PlainClient, guarded, key_folder

pytestmark = pytest.mark.whole

MINE = Rights("mine", send=("mine",), watch=("match",), sync=True, control=("status",))
ROUTE = b"the same"
READS = msgpack.packb([["r", "ACGTACGTACGT"]])


@pytest.fixture
def keys(tmp_path):
    return key_folder(tmp_path / "keys", MINE)


@pytest.fixture
def daemon(tmp_path, keys):
    journal = ["journal.durability=os", f"journal.directory={tmp_path / 'journal'}"]
    with guarded(tmp_path, keys, journal) as made:
        yield made


def client(daemon, socket, keys, routing=ROUTE):
    return PlainClient(zmq.DEALER, daemon.endpoints[socket], keys, routing)


def send(client, *frames, **header):
    client.socket.send_multipart(sealed(msgpack.packb({"v": 2} | header), *frames))


def answers(client, until):
    """The headers of what comes, up to the first one of this type."""
    found = []
    while not found or found[-1]["type"] != until:
        assert client.socket.poll(DEADLINE * 1000)
        found.append(msgpack.unpackb(client.socket.recv_multipart()[0]))
    return found


def hello(client, name):
    send(client, type="hello", producer=name, epoch=1)
    return answers(client, "welcome")


def admitted(daemon, socket, keys):
    """A client whose connection was taken on, once the one with its routing id has gone."""
    while True:
        made = client(daemon, socket, keys)
        send(made, type="hello", producer="mine", epoch=1)
        if made.socket.poll(200):
            return made
        made.__exit__()


def batch(daemon, keys, number):
    with client(daemon, "ingest", keys, b"") as sender:
        hello(sender, "other")
        header = {"type": "batch", "producer": "other", "epoch": 1}
        send(sender, READS, seq=number, form="list", **header)
        answers(sender, "ack")


def test_what_is_said_to_a_producer_is_not_said_to_another_one(daemon, keys):
    with client(daemon, "ingest", keys["all"]) as first:
        hello(first, "other")
    with admitted(daemon, "ingest", keys["mine"]) as second:
        batch(daemon, keys["all"], 1)
        told = answers(second, "welcome") + hello(second, "mine")
    assert {answer["producer"] for answer in told} == {"mine"}


def test_a_pull_is_not_taken_over(daemon, keys):
    with client(daemon, "sync", keys["all"]) as owner:
        send(owner, type="pull", id=1, after=0, credit=1 << 20, topics=["delta"])
        answers(owner, "reached")
        with client(daemon, "sync", keys["mine"]) as thief:
            assert thief.event() == zmq.EVENT_HANDSHAKE_SUCCEEDED
            send(thief, type="heads", id=1)
            batch(daemon, keys["all"], 1)
            # of the pull, which goes on
            assert answers(owner, "message")[-1]["topic"] == "delta."
            assert not thief.socket.poll(100)
