"""How the page follows a daemon that is slow."""

from __future__ import annotations

import asyncio
import threading

from streamer.matching.target_tally import Panel
from streamer.web.follower import Follower
from streamer.web.model import RunModel
from tests.waiting import DEADLINE

STATUS = {
    "stream": "s", "totals": {"reads": 1, "bases": 1}, "queue": {"bytes": 0},
    "durations": {"bounds": [1.0], "counts": [0, 0]},
}  # fmt: skip


class SlowControl:
    """Has 100,000 targets, say: they come once they may."""

    def __init__(self):
        self.may = threading.Event()

    def status(self):
        return STATUS

    def targets(self, **_):
        assert self.may.wait(DEADLINE)
        return [], [["t", 1, 10, 1, 1, 1, 1.0, 1.0]]

    def novelty(self):
        return []

    def close(self):
        self.may.set()


def test_pages_hear_something_while_rows_come(tmp_path, monkeypatch):
    control = SlowControl()
    monkeypatch.setattr(Follower, "_open", lambda self: control)

    async def follow():
        ticks = asyncio.Semaphore(0)
        model = RunModel(Panel())
        follower = Follower(
            model, f"ipc://{tmp_path}/feed", f"ipc://{tmp_path}/c", ticks.release, seconds=0.01
        )
        following = asyncio.create_task(follower.run())
        try:
            for _ in range(5):
                await ticks.acquire()
            assert model.stale
            control.may.set()
            while model.stale:
                await ticks.acquire()
            assert [row[0] for row in model.rows.fields()["targets"]] == ["t"]
        finally:
            control.may.set()
            following.cancel()

    asyncio.run(asyncio.wait_for(follow(), DEADLINE))
