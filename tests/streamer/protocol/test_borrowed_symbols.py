"""The plain paths that stand in for borrowed functions of libzmq and ISA-L change no frame."""

from __future__ import annotations

import random

import pytest

from streamer.cli.app import main
from streamer.client import Producer, Subscriber
from streamer.client.message_tables import table
from streamer.protocol.transport.frames import LIBZMQ
from streamer.protocol.wire import ISA_L
from tests.daemon_kit import GENOME, follow, reads_of, running
from trie.cpu.borrowed import Borrowed

pytestmark = pytest.mark.whole

TOPICS = ("match", "mismatch", "word", "read")


@pytest.fixture
def take_away(monkeypatch):
    """Takes one function of a library away from this process."""

    def take(library, function):
        functions = [name if name != function else "gone" for name in library._functions]
        bare = Borrowed(library.library, library._module, functions)
        for name in ("missing", "addresses"):
            monkeypatch.setattr(library, name, getattr(bare, name))

    return take


def session(path):
    """What a subscriber receives of three batches: a header and rows a message."""
    with running(path) as daemon, Subscriber(daemon.endpoints["feed"], TOPICS) as feed:
        assert feed.wait_for_daemon(60)
        daemon.wait_for_subscriptions(*TOPICS)
        with Producer(daemon.endpoints["ingest"], name="p") as producer:
            for seed in range(3):
                producer.send(reads_of(GENOME, random.Random(seed), 40))
        heads = (
            "topic",
            "columns",
            "sets",
            "targets",
            "at",
            "prev",
            "batch",
            "base",
            "reads",
            "producer_seq",
        )
        return [
            ({key: message.stamp.head.get(key) for key in heads}, table(message).records())
            for message in follow(feed, 3)
        ]


@pytest.mark.parametrize("function", LIBZMQ._functions)
def test_each_function_of_libzmq_can_be_missing(function, take_away):
    take_away(LIBZMQ, function)
    assert LIBZMQ.missing == ["gone"]


def test_a_session_without_borrowed_symbols(path, take_away):
    want = session(path)
    assert {head["topic"] for head, _ in want} == {f"{topic}." for topic in TOPICS}
    for library, function in ((LIBZMQ, "zmq_msg_recv"), (ISA_L, "crc32_iscsi")):
        take_away(library, function)
        assert session(path) == want


def test_devices_shows_the_choice(take_away, capsys):
    assert main(["devices", "--debug"]) == 0
    shown = capsys.readouterr().err.splitlines()
    for library in ("libzmq", "ISA-L", "ISA-L inflate"):
        assert f"streamer: {library} symbols: borrowed" in shown
    take_away(LIBZMQ, "zmq_send")
    assert main(["devices", "--debug"]) == 0
    assert "streamer: libzmq symbols: plain (gone missing)\n" in capsys.readouterr().err
    assert main(["devices"]) == 0
    assert "symbols" not in capsys.readouterr().err
