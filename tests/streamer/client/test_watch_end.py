"""Those who watch a daemon tell its end from its loss, and say which rows never come."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, suppress

import pytest

from streamer.cli import daemon_options
from streamer.client import Control, DaemonLostError, Subscriber
from tests.daemon_kit import process, running, wait_for_line
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

SILENT_SECONDS = 1.0


@pytest.fixture
def daemon(path):
    """A daemon in a process of its own, with the endpoint of its feed."""
    with process(["run", "--config", path, "--set", "feed.beat_seconds=0.05"]) as child:
        wait_for_line(child, '"ready"')
        yield child


@pytest.fixture
def ending(path, daemon):
    """A function that has the daemon end by a signal once it holds."""
    threads = []

    def end(number, holds):
        def work():
            until(holds, "the time to end")
            daemon.send_signal(number)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield end
    for thread in threads:
        thread.join(DEADLINE)


def written(rows):
    """What ``watch -o`` has written so far, beside the file that it makes of it at its end."""
    found = ""
    for part in rows.parent.glob(f".{rows.name}.*.part"):
        with suppress(FileNotFoundError):  # made to see whether the folder can be written
            found += part.read_text()
    return found


def test_watch_tells_a_lost_daemon_from_one_that_ends(
    path, ending, tmp_path, streamer, monkeypatch
):
    monkeypatch.setattr(daemon_options, "ANSWER_SECONDS", SILENT_SECONDS)
    rows = tmp_path / "rows.tsv"
    ending(signal.SIGKILL, lambda: written(rows).count("\n") > 2)
    asked = ("--topic", "beat", "--count", "1000", "-o", rows, "--quiet")
    code, out, err = streamer("watch", "--config", path, *asked)
    assert (code, out) == (1, "")
    assert err == (
        f"streamer: error: ipc://{tmp_path}/feed: no beat for 1 s: the daemon was killed, hangs or "
        "is unreachable; its last results may be missing\n"
    )


def test_a_subscriber_that_waits_is_told_of_a_lost_daemon(path, daemon, tmp_path):
    with ExitStack() as stack:
        options = {"topics": ["read"], "answer_seconds": SILENT_SECONDS}
        feeds = [
            stack.enter_context(Subscriber(f"ipc://{tmp_path}/feed", **options)) for _ in range(2)
        ]
        assert all(feed.wait_for_daemon(DEADLINE) for feed in feeds)
        daemon.kill()
        for feed, wait in zip(feeds, (list, Subscriber.receive), strict=True):
            with pytest.raises(DaemonLostError, match="no beat for 1 s"):
                wait(feed)
            assert feed.lost
            assert not feed.ended


def subscribed(folder):
    """Whether somebody subscribes to the status and to beats."""
    with Control(f"ipc://{folder}/control") as control:
        return {"status.", "beat."} <= set(control.status()["topics"])


def test_top_tells_of_a_lost_daemon(path, ending, tmp_path, streamer, monkeypatch):
    monkeypatch.setitem(Control.__init__.__kwdefaults__, "answer_seconds", SILENT_SECONDS)
    ending(signal.SIGKILL, lambda: subscribed(tmp_path))
    code, _, err = streamer("top", "--config", path, "--every", "0.1")
    assert code == 1
    assert "no answer within 1 s" in err


@pytest.mark.parametrize(
    ("overrides", "never"),
    [
        ((), {"near", "ltb", "delta"}),
        (("matching.distance=1",), {"ltb", "delta"}),
        (("matching.distance=1", "matching.semantics=ltb", "dictionary.mode=grow"), {"near"}),
        (("dictionary.seed_bases=1",), {"near", "ltb"}),
    ],
)
def test_watch_says_which_rows_never_come(path, overrides, never, streamer):
    asked = ("near", "ltb", "delta", "match")
    topics = [word for topic in asked for word in ("--topic", topic)]
    with running(path, ["feed.beat_seconds=0.05", *overrides]) as daemon:
        with Subscriber(daemon.endpoints["feed"], ["beat"]) as feed:
            assert feed.receive(DEADLINE).published == feed.published
        code, _, err = streamer("watch", "--config", path, *topics, "--for", "0.5")
        _, _, quiet = streamer("watch", "--config", path, *topics, "--for", "0.5", "--quiet")
    assert (code, quiet) == (0, "")
    lines = [line.split(", which need")[0] for line in err.splitlines()]
    assert lines == [
        f"streamer: topic {topic}: this daemon has no such rows"
        for topic in asked
        if topic in never
    ]
