"""``streamer watch``: every row over restarts, and the end or loss of the daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import pairwise

import pytest
import zmq

from streamer.cli import daemon_options
from streamer.client import Cursor, DaemonLostError, Reset, Subscriber
from streamer.protocol.payloads import encode_notice
from tests.daemon_kit import process, running, settings, wait_for_line
from tests.data_files import ROOT
from tests.forked import Forked
from tests.streamer.client.test_subscriber import daemon, head, send
from tests.waiting import DEADLINE, beside, until

pytestmark = pytest.mark.whole


@pytest.fixture
def growing(tmp_path):
    return settings(tmp_path, "k = 11")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The configuration of a daemon that has five batches of 20 reads."""
    growing = settings(tmp_path_factory.mktemp("kept"), "k = 11")
    with daemon(growing) as (_, endpoints):
        send(endpoints, 1)
        assert head(endpoints) == 6
        yield growing


@pytest.fixture
def place(tmp_path):
    return tmp_path / "place.json"


@pytest.fixture
def watch(place, streamer):
    """Rows (without a header), and what is said, of a watch for so many seconds; exit code 0."""

    def run(growing, *options, seconds=3, code=0, topic="read"):
        asked = ("--topic", topic, "--from-cursor", place, "--for", seconds, *options)
        found, out, err = streamer("watch", "--config", growing, *map(str, asked))
        assert found == code, err
        return out.splitlines()[1:], err

    return run


def batches(rows):
    return [int(row.split("\t")[-1]) for row in rows]


def everything(seeds, count=20):
    return [b for b in range(5 * len(seeds)) for _ in range(count)]


def at(place):
    return Cursor.from_json(place.read_text()).at


def watched(endpoints, growing, place, watch):
    """Rows up to the head of now."""
    rows, last = [], head(endpoints)
    while not place.exists() or at(place) < last:
        rows += watch(growing, seconds=1)[0]
    return rows


def test_a_watch_that_is_killed_loses_nothing(growing, place, watch):
    """What it printed after it last stored its place comes again."""
    command = [sys.executable, "-m", "streamer", "watch", "--config", growing, "--topic", "read"]
    runs = []
    with daemon(growing) as (_, endpoints):
        for seed in range(2):
            send(endpoints, seed)
            with Forked(
                [*command, "--from-cursor", place], stdout=subprocess.PIPE, text=True, cwd=ROOT
            ) as child:
                # the pipe has room for all rows
                wanted = 1 + 3 * (seed + 1)
                until(lambda n=wanted: place.exists() and at(place) >= n, "the place")
                child.kill()
                runs.append(child.stdout.readlines())
        runs.append(["#", *watched(endpoints, growing, place, watch)])
    found = [batches(row for row in rows[1:] if row.endswith("\n")) for rows in runs[:-1]]
    found.append(batches(runs[-1][1:]))
    assert all(one == sorted(one) for one in found)
    assert {b for one in found for b in one} == set(range(10))
    for one, following in pairwise(one for one in found if one):
        # the place is behind a whole batch
        assert following[0] <= one[-1] + 1
        assert following.count(following[0]) == 20


def test_a_file_of_rows_and_its_cursor_agree(kept, place, watch, tmp_path):
    found = tmp_path / "rows.tsv"
    rows = []
    while len(rows) < 100:
        watch(kept, "-o", found, seconds=1)
        rows += found.read_text().splitlines()[1:]
    assert batches(rows) == everything([1])


def test_count_ends_within_a_batch_and_repeats_it(kept, place, watch):
    rows, _ = watch(kept, "--count", 50, seconds=DEADLINE)
    assert batches(rows) == everything([1])[:50]
    # the third batch was not finished
    rows, _ = watch(kept, "--count", 60, seconds=DEADLINE)
    assert batches(rows) == everything([1])[40:]


def test_a_cursor_is_plain_whatever_its_suffix(kept, tmp_path, streamer):
    place = tmp_path / "place.gz"
    for count in (20, 80):
        asked = ("--topic", "read", "--from-cursor", str(place), "--count", str(count))
        code, found, err = streamer("watch", "--config", kept, *asked)
        assert code == 0, err
        assert len(found.splitlines()) == 1 + count
    assert at(place) > 0


def test_a_cursor_of_another_stream(kept, place, watch):
    place.write_text(Cursor("f" * 16, 3).to_json())
    rows, err = watch(kept, code=1, seconds=DEADLINE)
    assert rows == []
    assert err == (
        f"streamer: error: {place}: the cursor is of another stream, as the daemon has another "
        "journal now: delete it to begin with the oldest record that is kept\n"
    )
    assert Cursor.from_json(place.read_text()) == Cursor("f" * 16, 3)


def test_a_cursor_of_the_future(kept, place, watch):
    watch(kept, "--count", 20, seconds=DEADLINE)
    place.write_text(json.dumps(json.loads(place.read_text()) | {"at": 10_000}))
    _, err = watch(kept, code=1, seconds=DEADLINE)
    assert "beyond the end of the stream" in err


@pytest.mark.parametrize("text", ["", '{"stream": 5}'])
def test_what_is_no_cursor(kept, place, watch, text):
    place.write_text(text)
    _, err = watch(kept, code=1)
    assert err == (
        f"streamer: error: {place}: not a cursor: delete it to begin with the oldest record\n"
    )


def test_a_daemon_without_a_journal(growing, place, watch, monkeypatch):
    monkeypatch.setattr(daemon_options, "ANSWER_SECONDS", 0.5)
    with daemon(growing, "journal.durability=none"):
        _, err = watch(growing, code=1)
        assert "is a daemon with a journal running?" in err


def test_event_words_come_live_only(kept, place, watch):
    _, err = watch(kept, "--topic", "word", seconds=1)
    assert "word: not stored by the daemon, so only new messages" in err


def test_no_topic_is_kept(kept, place, watch):
    rows, _ = watch(kept, "--count", "2", topic="beat", seconds=DEADLINE)
    assert len(rows) == 2
    assert at(place) > 0


def test_the_rows_cannot_go_to_the_cursor(growing, place, watch):
    _, err = watch(growing, "-o", place, code=2)
    assert "is named for two outputs" in err


def test_a_sync_endpoint_is_for_a_cursor(growing, streamer):
    code, _, err = streamer("watch", "--config", growing, "--sync", "ipc:///tmp/x")
    assert (code, "--sync is for --from-cursor" in err) == (2, True)


@pytest.mark.parametrize("found", [False, True])
def test_the_oldest_record_expires_between_two_questions(kept, place, watch, monkeypatch, found):
    """Sync tells which one is the oldest, and at the pull another one is."""
    answered = iter((Reset("too-old", "f" * 16, 8), Reset("too-old", "f" * 16, 9)))
    monkeypatch.setattr("streamer.client.Subscriber.receive", lambda *_: next(answered, None))
    if found:
        place.write_text(Cursor("f" * 16, 3).to_json())
        _, err = watch(kept, code=1)
        assert "records after this cursor are no longer kept" in err
    else:
        rows, _ = watch(kept, seconds=1)
        assert rows == []


SILENT_SECONDS = 1.0
BEATS = "feed.beat_seconds=0.05"


def written(rows):
    """What ``watch -o`` has written so far, beside the file that it makes of it at its end."""
    found = ""
    for part in rows.parent.glob(f".{rows.name}.*.part"):
        with suppress(FileNotFoundError):  # made to see whether the folder can be written
            found += part.read_text()
    return found


def test_watch_tells_a_lost_daemon_from_one_that_ends(path, tmp_path, streamer, monkeypatch):
    monkeypatch.setattr(daemon_options, "ANSWER_SECONDS", SILENT_SECONDS)
    rows = tmp_path / "rows.tsv"
    asked = ("--topic", "beat", "--count", "1000", "-o", rows, "--quiet")

    def kill(_):
        until(lambda: written(rows).count("\n") > 2, "some rows")
        child.kill()

    with process(["run", "--config", path, "--set", BEATS]) as child:
        wait_for_line(child, '"ready"')
        with beside(kill):
            code, out, err = streamer("watch", "--config", path, *asked)
    assert (code, out) == (1, "")
    assert err == (
        f"streamer: error: ipc://{tmp_path}/feed: no beat for 1 s: the daemon was killed, hangs or "
        "is unreachable; its last results may be missing\n"
    )


def test_a_subscriber_that_waits_is_told_of_a_lost_daemon(path):
    options = {"topics": ["read"], "answer_seconds": SILENT_SECONDS}
    with running(path, [BEATS]) as daemon:
        for wait in (list, Subscriber.receive):
            with Subscriber(daemon.endpoints["feed"], **options) as feed:
                assert feed.wait_for_daemon(DEADLINE)
                feed._socket.disconnect(daemon.endpoints["feed"])
                with pytest.raises(DaemonLostError, match="no beat for 1 s"):
                    wait(feed)
                assert feed.lost
                assert not feed.ended


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
    with running(path, [BEATS, *overrides]) as live:
        with Subscriber(live.endpoints["feed"], ["beat"]) as feed:
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


def test_watch_says_what_was_dropped(tmp_path, streamer):
    endpoint = f"ipc://{tmp_path}/feed"
    context = zmq.Context()
    feed = context.socket(zmq.XPUB)
    feed.bind(endpoint)

    def publish():
        while feed.poll(DEADLINE * 1000) and feed.recv() != b"\x01beat.":
            pass
        header = {"v": 2, "stream": "0" * 16, "epoch": 5, "time": 9, "heads": {}, "at": 3}
        header |= {"topic": "beat.", "state": "running"}
        for reads in (7, "seven", 7):
            beat = header | {"totals": {"reads": reads}}
            feed.send_multipart(encode_notice("beat", beat))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        asked = ("watch", "--from", endpoint, "--topic", "beat", "--count", "2")
        code, out, err = streamer(*asked)
    finally:
        thread.join(DEADLINE)
        feed.close(linger=0)
        context.term()
    assert (code, len(out.splitlines())) == (0, 3)
    assert err.splitlines() == [
        "streamer: a message was dropped: topic 'beat', record 3: "
        "field 'totals' must be a map of numbers",
    ]
