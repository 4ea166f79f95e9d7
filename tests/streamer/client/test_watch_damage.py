"""``streamer watch``: a message that is dropped is said, with its topic and number."""

from __future__ import annotations

import threading

import pytest
import zmq

from streamer.protocol.payloads import encode_notice
from tests.daemon_kit import DEADLINE

pytestmark = pytest.mark.whole


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
