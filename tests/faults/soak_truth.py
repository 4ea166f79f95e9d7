"""What a soak knows: what was acknowledged, what the feed published, what sync replayed since.

Everything is compared as it comes and then forgotten, so that the tester itself does not grow:
eight bytes are kept for each batch.
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack

from streamer.daemon.stored_messages import BATCH
from streamer.journal.reader import JournalReader
from tests.faults.plain_client import Key, PlainHealer, PlainPuller

# compared messages to remember, as the feed may bring one of them again later
_REMEMBERED = 20_000

Run = tuple[str, int]
"""A producer's name and epoch."""


class LatencyHealer(PlainHealer):
    """Records for each batch the milliseconds from when it was due until it was published."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.latencies: list[float] = []

    def _hear(self, frames: list[bytes]) -> None:
        if frames[0] == b"read.":
            due = int(msgpack.unpackb(frames[2])[0])
            self.latencies.append((msgpack.unpackb(frames[1])["time"] - due) / 1e6)
        super()._hear(frames)


class Truth:
    """acked: batches of each run reported as durable. compared: messages on feed and sync."""

    def __init__(self) -> None:
        self.acked: dict[Run, int] = {}
        self.compared = 0
        self._at: dict[Run, array[int]] = {}
        """By run, the record of each of its batches."""
        self._applied: set[Key] = set()
        self._recent: set[Key] = set()
        self._recently: deque[Key] = deque()

    @property
    def batches(self) -> int:
        """How many batches sync has replayed."""
        return sum(map(len, self._at.values()))

    @property
    def is_complete(self) -> bool:
        """Whether everything acknowledged has been replayed."""
        return all(len(self._at.get(run, ())) >= count for run, count in self.acked.items())

    def compare(self, puller: PlainPuller, healer: PlainHealer) -> None:
        """Compare and forget what both have so far; AssertionError says what does not hold."""
        bad = [a for a in puller.answers if a["type"] in ("lost", "reset", "refused")]
        assert not bad, f"sync: {bad[0]}"
        puller.answers.clear()
        if healer.missing:
            return  # the healer still needs what it has heard
        self._applied.update(healer.order)
        healer.order.clear()
        done = 0
        for key in puller.order:
            topic, at = key
            if key not in puller.messages:
                done += 1  # the last one is kept
                continue
            if at > healer.last[topic]:
                break
            header, frames = puller.messages.pop(key)
            assert key in self._applied, f"lost by the subscriber, unnoticed: {key}"
            self._applied.remove(key)
            assert healer.messages.pop(key) == (header, frames), f"divergent: {key}"
            if topic == "read":
                self._count(header, at)
            self._remember(key)
            self.compared += 1
            done += 1
        # the next one is compared with it
        del puller.order[: max(0, min(done, len(puller.order) - 1))]
        low = min(puller.at, *healer.last.values())
        for key in [key for key in healer.messages if key[1] <= low]:
            assert key in self._recent, f"published and not stored, or twice: {key}"
            del healer.messages[key]

    def _count(self, header: dict[str, Any], at: int) -> None:
        run = header["producer"], header["producer_epoch"]
        records = self._at.setdefault(run, array("q"))
        expected = len(records) + 1
        assert header["producer_seq"] == expected, (
            f"lost or twice: {run} has {header['producer_seq']} where {expected} follows"
        )
        records.append(at)

    def _remember(self, key: Key) -> None:
        self._recent.add(key)
        self._recently.append(key)
        if len(self._recently) > _REMEMBERED:
            self._recent.discard(self._recently.popleft())

    def check_journal(self, directory: Path) -> tuple[int, int]:
        """Check the journal of an ended daemon; returns its batches, and those that expired.

        AssertionError says what was lost or duplicated.
        """
        for run, count in self.acked.items():
            there = len(self._at.get(run, ()))
            assert there >= count, f"lost: {run} has {count} acknowledged, {there} stored"
        with closing(JournalReader(directory)) as reader:
            oldest = reader.oldest
            found = [
                (record.key.producer, record.key.epoch, record.key.sequence, record.at)
                for record in reader.records(oldest - 1)
                if record.kind == BATCH and record.key
            ]
        assert len({key[:3] for key in found}) == len(found), "twice in the journal"
        known = {
            (*run, number, at)
            for run, records in self._at.items()
            for number, at in enumerate(records, 1)
            if at >= oldest
        }
        missing, more = known - {*found}, {*found} - known
        assert not missing, f"lost: {sorted(missing)[:3]}"
        assert not more, f"stored and never replayed: {sorted(more)[:3]}"
        return len(found), self.batches - len(found)
