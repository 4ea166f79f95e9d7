"""Answers for connections without room: in order, without a hole, or none."""

from __future__ import annotations

from streamer.daemon.core.sync import Stored, SyncLimits
from streamer.daemon.replay import MOST_HELD, HandedOver, SyncReplay
from tests.daemon_sync import asked, parsed
from tests.sync_records import STREAM

LIMITS = SyncLimits(4, 4, 1 << 22, 1 << 25)
RECORDS = 2 * MOST_HELD


class Journal:
    """Records with a message of a few bytes each, or more."""

    def __init__(self, size):
        self._size = size

    def look(self):
        return Stored(STREAM, 1, 1, RECORDS, {"read": RECORDS})

    def after(self, at):
        return SmallRecord(at + 1, self._size) if at < RECORDS else None


class SmallRecord:
    def __init__(self, at, size):
        self.at, self.prev, self.size = at, {"read": at - 1}, size

    def message(self, topic):
        return [b"read.", bytes(self.size), self.at.to_bytes(8, "little")]


def replayed(has_room, size=0, turns=50):
    """The answers that a connection gets; has_room: at the n-th try, from 0."""
    tries, got = [], []

    def hand_over(route, frames):
        tries.append(route)
        if not has_room(len(tries) - 1):
            return HandedOver.FULL
        got.append(parsed(frames))
        return HandedOver.SENT

    replay = SyncReplay(Journal(size), LIMITS, lambda: 1.0, hand_over, lambda *_: None)
    replay.see()
    request = {"type": "pull", "id": 1, "after": 0, "stream": STREAM, "topics": ["read"]}
    replay.core.hear(b"it", asked(request | {"credit": 1 << 22}), 1.0)
    for _ in range(turns):
        replay.turn()
        replay.send()
    return [int.from_bytes(body[-1], "little") for head, body in got if head["type"] == "message"]


def test_what_waits_for_room_comes_in_order():
    assert replayed(lambda n: True) == [*range(1, RECORDS + 1)]
    some = replayed(lambda n: n % 3 == 2, size=600, turns=3 * RECORDS)
    assert some == [*range(1, RECORDS + 1)]


def test_nothing_comes_behind_what_was_forgotten():
    """There is room again as soon as too much waits."""
    got = replayed(lambda n: n != 5)
    assert got == [*range(1, len(got) + 1)]
    assert len(got) < RECORDS - MOST_HELD
