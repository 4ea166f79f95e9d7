"""``streamer top`` as a process on a terminal, with a real daemon: what it shows, how it ends."""

from __future__ import annotations

import random
import re
import signal

import pytest

from streamer.client import Control, Producer
from tests.daemon_kit import (
    GENOME,
    process,
    reads_of,
    running,
    settings,
    wait_for_line,
    write_fasta,
)
from tests.terminal_kit import terminal
from tests.waiting import until

pytest.importorskip("textual", reason="streamer top as a page needs textual")
pytestmark = pytest.mark.whole

ON = ["answers.targets=true", "feed.beat_seconds=0.05"]
# the alternate screen, and the one before
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


def configuration(folder):
    write_fasta(folder / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])])
    return settings(folder, 'sources = ["genome.fa"]\nk = 11\n')


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return configuration(tmp_path_factory.mktemp("daemon"))


@pytest.fixture(scope="module")
def daemon(path):
    with running(path, ON) as daemon:
        yield daemon


def test_it_shows_a_daemon_and_leaves_the_terminal_as_it_was(path, daemon):
    with terminal(["top", "--config", path, "--every", "0.1"]) as top:
        top.until("left")
        daemon.wait_for_subscriptions("targets", "barcodes", "read", "beat", "status", "novelty")
        with Producer(daemon.endpoints["ingest"], name="sender") as producer:
            producer.send(reads_of(GENOME, random.Random(1), 123))
            producer.flush(matched=True)
        top.until("123")
        top.press("\x1b[C")
        top.until("on target")
        top.press("\t")
        top.until("sender")
        assert not top.is_cooked
        top.press("q")
        assert top.ended() == 0
        assert top.is_cooked
    assert top.output.count(ENTERED) == top.output.count(LEFT) == 1
    # the colours are those of the terminal, light or dark
    assert not re.search(r"\x1b\[[\d;]*[34]8;[25];", top.output)


def subscribed(folder):
    with Control(f"ipc://{folder}/control") as control:
        return {"status.", "beat.", "targets."} <= set(control.status()["topics"])


@pytest.mark.usefixtures("daemon")
def test_ctrl_c_interrupts(path):
    with terminal(["top", "--config", path]) as top:
        top.until("k-mers")
        top.press("\x03")
        assert top.ended() == 130
        assert top.is_cooked
    assert top.output.endswith("streamer: error: interrupted\r\n")


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(path, number):
    with terminal(["top", "--config", path]) as top:
        top.until("k-mers")
        top.child.send_signal(number)
        assert top.ended() == (130 if number == signal.SIGINT else -number)
        assert top.is_cooked
    assert LEFT in top.output


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, 0, "streamer: the daemon has ended\r\n"),
        (signal.SIGKILL, 1, "no answer within 5 s: is the daemon running?\r\n"),
    ],
)
def test_it_ends_with_the_daemon(tmp_path, number, code, said):
    path = configuration(tmp_path)
    with process(["run", "--config", path, "--set", "feed.beat_seconds=0.05"]) as daemon:
        wait_for_line(daemon, '"ready"')
        with terminal(["top", "--config", path]) as top:
            top.until("k-mers")
            until(lambda: subscribed(tmp_path), "top subscribes")
            daemon.send_signal(number)
            assert top.ended() == code
            assert top.is_cooked
    assert top.output.rpartition(LEFT)[2].endswith(said)


def test_without_a_daemon_it_is_one_line(tmp_path):
    endpoint = f"ipc://{tmp_path}/nobody"
    with terminal(["top", "--at", endpoint]) as top:
        assert top.ended() == 1
    assert top.output == (
        f"streamer: error: {endpoint}: no answer within 5 s: is the daemon running?\r\n"
    )


@pytest.mark.usefixtures("daemon")
def test_tables_where_they_are_asked_for_or_the_terminal_cannot_draw(path):
    with terminal(["top", "--config", path, "--count", "2", "--every", "0.01"]) as top:
        assert top.ended() == 0
    assert top.output.count("windows matched") == 2
    with terminal(["top", "--config", path, "--format", "table"]) as top:
        top.until("windows matched")
        top.press("\x03")
        assert top.ended() == 130
    with terminal(["top", "--config", path], TERM="dumb") as top:
        top.until("windows matched")
    assert ENTERED not in top.output
