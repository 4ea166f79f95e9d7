"""The socket of a feed with keys: what is applied is applied for the connection that asked."""

from __future__ import annotations

import pytest
import zmq

from streamer.daemon.core.feed import Subscriptions
from streamer.daemon.core.rights import Rights
from streamer.daemon.feed import GuardedSubscriptions
from streamer.daemon.security.gatekeeper import Gatekeeper
from streamer.daemon.security.known_peers import KnownPeers
from streamer.protocol.transport.curve import demand
from tests.daemon_kit import DEADLINE
from tests.keys_kit import PlainClient, key_folder

BEAT = Rights("beat", watch=("beat",))
DELTA = Rights("delta", watch=("delta",))
ATTEMPTS = 200


class Feed:
    """A socket as the feed has it, and what came in the last turn."""

    def __init__(self, folder, context):
        self.gate = Gatekeeper(str(folder), context, lambda: None)
        self.gate.begin()
        self.socket = context.socket(zmq.XPUB)
        self.socket.linger = 0
        self.socket.setsockopt(zmq.XPUB_MANUAL, 1)
        demand(self.socket, self.gate.server.secret, "feed")
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.held = Subscriptions()
        peers = KnownPeers(self.gate, "feed", strict=True)
        self.guarded = GuardedSubscriptions(peers, self.held)

    def turn(self):
        """Take what has come; the messages, and whether each of their connections may stay."""
        taken = []
        assert self.socket.poll(DEADLINE * 1000)
        while True:
            try:
                frame = self.socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self.guarded.caught_up()
                return taken
            taken.append((frame.bytes, self.guarded.obey(self.socket, frame)))

    def close(self):
        self.socket.close()
        self.gate.end()


@pytest.fixture
def keys(tmp_path):
    return key_folder(tmp_path / "keys", BEAT, DELTA)


@pytest.fixture
def feed(tmp_path, keys):
    with zmq.Context() as context:
        made = Feed(tmp_path / "keys", context)
        yield made
        made.close()


def subscribed(feed, client, prefix):
    client.socket.send(b"\x01" + prefix)
    while not any(message == b"\x01" + prefix for message, _ in feed.turn()):
        pass


def test_no_message_makes_libzmq_apply_a_subscription_for_another_connection(feed, keys):
    """Between a message that is no subscription and one of the same key, another key's is taken."""
    wanted = [b"x", b"\x01delta.", b"\x01beat."]
    for _ in range(ATTEMPTS):
        with (
            PlainClient(zmq.XSUB, feed.endpoint, keys["beat"]) as first,
            PlainClient(zmq.XSUB, feed.endpoint, keys["delta"]) as other,
            PlainClient(zmq.XSUB, feed.endpoint, keys["beat"]) as second,
        ):
            clients = first, other, second
            for client in clients:
                subscribed(feed, client, b"nothing")
            for client, message in zip(clients, wanted, strict=True):
                client.socket.send(message)
                # all of them have to wait at once, in this order: else again
                client.socket.poll(20)
            seen = feed.turn()
            feed.socket.send_multipart([b"delta.", b"secret"])
            assert not second.socket.poll(20)
            assert not first.socket.poll(0)
            if [message for message, _ in seen] == wanted:
                # the offender is ended by the feed, the others have been ended
                assert [stays for _, stays in seen] == [False, True, True]
                return
    pytest.fail("they never came in the order that matters")


def test_afterwards_all_goes_on(feed, keys):
    with PlainClient(zmq.XSUB, feed.endpoint, keys["beat"]) as client:
        client.socket.send(b"x")
        while [message for message, _ in feed.turn()] != [b"x"]:
            pass
        with PlainClient(zmq.XSUB, feed.endpoint, keys["delta"]) as other:
            subscribed(feed, other, b"delta.")
            feed.socket.send_multipart([b"delta.", b"a"])
            assert other.socket.poll(DEADLINE * 1000)
            assert not client.socket.poll(0)


@pytest.mark.parametrize("prefix", [b"", b"de"])
def test_what_is_said_to_another_key_is_heard_by_no_prefix(prefix, feed, keys):
    with PlainClient(zmq.XSUB, feed.endpoint, keys["all"]) as client:
        subscribed(feed, client, prefix)
        feed.socket.send_multipart([b"denied." + keys["beat"].public.encode(), b"yours"])
        feed.socket.send_multipart([b"delta.", b"all"])
        assert client.socket.poll(DEADLINE * 1000)
        assert client.socket.recv_multipart() == [b"delta.", b"all"]


def test_a_topic_goes_with_the_last_prefix_of_it(feed, keys):
    with PlainClient(zmq.XSUB, feed.endpoint, keys["all"]) as client:
        for prefix in (b"", b"delta."):
            subscribed(feed, client, prefix)
        client.socket.send(b"\x00")
        while not any(message == b"\x00" for message, _ in feed.turn()):
            pass
        for topic in (b"beat.", b"delta."):
            feed.socket.send_multipart([topic, b""])
        assert client.socket.poll(DEADLINE * 1000)
        assert client.socket.recv_multipart() == [b"delta.", b""]
