"""The lives of a daemon on one journal, each ended by a kill, and its clients."""

from __future__ import annotations

import os
import random
import signal
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from tests.daemon_kit import Reads
from tests.faults.nursery import POINTS, REVISE, Nursery
from tests.faults.plain_client import (
    Header,
    Key,
    PlainControl,
    PlainFold,
    PlainHealer,
    PlainProducer,
    PlainPuller,
    fetch_state,
)
from tests.waiting import DEADLINE

PRODUCERS = 2
TOPICS = ("match", "mismatch", "delta", "read", "retract", "upgrade", "settled")
# the share of lives in which the subscriber heals and follows the feed, and for how many seconds
_HEALING, _LONGEST_HEALED = 0.1, 0.3
# the most batches of a producer in one life
_MOST_BATCHES = 30
# read names so long that the messages of the last life exceed what may wait for a stopped peer
_LAST_BATCHES, _LONG_NAME = 40, "n" * 8000

_CONFIG = """
[dictionary]
{dictionary}
[matching]
device = "cpu"
threads = 1
[ingest]
endpoint = "ipc://{folder}/ingest"
[feed]
endpoint = "ipc://{folder}/feed"
beat_seconds = 0.05
buffer_bytes = 1048576
[control]
endpoint = "ipc://{folder}/control"
[sync]
endpoint = "ipc://{folder}/sync"
[journal]
durability = "{durability}"
directory = "{folder}/journal"
[log]
level = "warning"
"""


class Round:
    """Producers, a subscriber that misses messages, one that reads nothing, and a daemon.

    sent: by producer and sequence, the reads of every batch. died: kills by their points.
    """

    dictionary = ""
    points: tuple[str, ...] = POINTS
    longest_life = 0.06

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        rng: random.Random,
        durability: str = "fsync",
        mistake: str | None = None,
    ) -> None:
        self.folder = folder
        self.rng = rng
        self.config = self.configure(folder, durability)
        self._nursery = nursery
        # without syncs this point is never reached
        self._points = [point for point in self.points if point != "sync" or durability == "fsync"]
        self._mistake = mistake
        self.context = zmq.Context()
        self.producers = [
            PlainProducer(self.context, self.at("ingest"), f"p{number}", epoch=1 + number)
            for number in range(PRODUCERS)
        ]
        self.sent: dict[tuple[str, int], Reads] = {}
        self.feed = PlainHealer(self.context, self.at("feed"), self.at("sync"), TOPICS, rng)
        self.control = PlainControl(self.context, self.at("control"))
        self._stalled = self.context.socket(zmq.SUB)
        self._stalled.setsockopt(zmq.LINGER, 0)
        self._stalled.setsockopt(zmq.RCVHWM, 1)
        self._stalled.subscribe("")
        self._stalled.connect(self.at("feed"))
        self.everything: PlainPuller | None = None
        self.died = Counter[str]()
        self._most = 0

    @classmethod
    def configure(cls, folder: Path, durability: str) -> Path:
        """Write the configuration of a daemon in a folder."""
        config = folder / "streamer.toml"
        options = {"folder": folder, "durability": durability}
        dictionary = cls.dictionary.format(folder=folder)
        config.write_text(_CONFIG.format(dictionary=dictionary, **options))
        return config

    def at(self, name: str) -> str:
        """An endpoint."""
        return f"ipc://{self.folder}/{name}"

    def close(self) -> None:
        for client in (*self.producers, self.feed, self.control, self._stalled):
            client.close()
        if self.everything is not None:
            self.everything.close()
        self.context.term()

    # ---- lives ----------------------------------------------------------------------------------

    def live_and_die(self) -> None:
        """Run one life of the daemon, which ends with a kill."""
        rng = self.rng
        point = rng.choice(self._points) if rng.random() < 0.5 and self._points else None
        die = None if point is None else (point, rng.randrange(4 if point == REVISE else 12))
        self.died[point or "at random"] += 1
        pid = self._nursery.start(self.config, die, self._mistake)
        heals = rng.random() < _HEALING
        life = rng.random() * (_LONGEST_HEALED if heals else self.longest_life)
        spoken: float | None = None
        deadline = time.monotonic() + DEADLINE
        for producer in self.producers:
            producer.connect()
        self._most = _MOST_BATCHES + max(len(producer.batches) for producer in self.producers)
        while not _has_ended(pid):
            self._step(more=True, heals=heals)
            now = time.monotonic()
            served = any(producer.spoken for producer in self.producers)
            if spoken is None and served and not (heals and self.feed.missing):
                spoken = now
            if spoken is not None:
                self.disturb(often=point == REVISE)
                if point is None and now > spoken + life:
                    os.kill(pid, signal.SIGKILL)
                    break
            assert now < deadline, f"the daemon neither served nor died ({point})"
        status = self._nursery.wait(pid)
        assert status == -signal.SIGKILL, f"the daemon ended by itself, with {status}"
        self.feed.step()
        self.feed.leave_sync()

    def live_to_the_end(self) -> None:
        """Run the last life: everything becomes durable and is heard, then the daemon drains."""
        pid = self._nursery.start(self.config, mistake=self._mistake)
        for producer in self.producers:
            producer.connect()
            for _ in range(_LAST_BATCHES):
                self._add(producer, _LONG_NAME)
        self.until(lambda: all(producer.finished for producer in self.producers), "all are durable")
        self.settle()
        self.until(self._is_pulled, "everything is pulled")
        self.until(self._is_healed, "the subscriber is complete")
        state = fetch_state(self.context, self.at("sync"), int(DEADLINE * 1000))
        totals = self.status()["totals"]
        os.kill(pid, signal.SIGTERM)
        assert self._nursery.wait(pid) == 0
        self.feed.step(faults=False)
        assert self.feed.ended, "the end was not announced"
        assert not self.feed.missing
        assert self.everything is not None
        compare_feeds(self.everything, self.feed, state, totals)

    def _is_pulled(self) -> bool:
        pull = self.everything
        if pull is None or pull.silent:
            if pull is not None:
                pull.close()
            pull = self.everything = PlainPuller(self.context, self.at("sync"), TOPICS)
        while pull.step():
            pass
        return pull.at == pull.head > 0

    def _is_healed(self) -> bool:
        assert self.everything is not None
        heads = ((topic, self.everything.heads.get(f"{topic}.", 0)) for topic in TOPICS)
        return not self.feed.missing and all(self.feed.last[t] >= at for t, at in heads)

    def until(self, holds: Any, what: str, *, more: bool = False) -> None:
        """Continue until a condition holds."""
        deadline = time.monotonic() + DEADLINE
        while not holds():
            self._step(more=more, heals=True)
            assert time.monotonic() < deadline, f"waited in vain: {what}"

    def status(self) -> dict[str, Any]:
        """The daemon's status."""
        number = self.control.ask("status")
        self.until(lambda: number in self.control.replies, "a status")
        status: dict[str, Any] = self.control.replies[number]["status"]
        return status

    def _step(self, *, more: bool, heals: bool) -> None:
        for producer in self.producers:
            if more and len(producer.batches) < min(producer.acked + 6, self._most):
                self._add(producer)
            producer.step()
        self.feed.step()
        self.control.step()
        if heals:
            self.feed.heal()
        # wait until a client gets something; check now and then whether the daemon lives
        waiting = zmq.Poller()
        for client in (*self.producers, self.feed, self.control):
            waiting.register(client.socket, zmq.POLLIN)
        waiting.poll(1)

    def _add(self, producer: PlainProducer, name: str = "r") -> None:
        number = len(producer.batches) + 1
        reads = [(f"{name}{number}.{i}", self.read()) for i in range(self.rng.randrange(4))]
        self.sent[producer.name, number] = reads
        offsets = np.cumsum([0, *(len(letters) for _, letters in reads)]).astype("<i8")
        letters = "".join(letters for _, letters in reads).encode()
        frames = [msgpack.packb([name for name, _ in reads]), offsets.tobytes(), letters]
        producer.add(frames, b"mark %d" % number)

    # ---- parts that kinds of rounds replace -----------------------------------------------------

    def disturb(self, *, often: bool) -> None:
        """Further actions while the daemon lives."""

    def settle(self) -> None:
        """Wait until everything that follows from the accepted batches was published."""

    @abstractmethod
    def read(self) -> str:
        """The letters of a random read."""

    @abstractmethod
    def check(self) -> int:
        """Compare the journal with one pass over the stream; returns the number of batches."""


def _has_ended(pid: int) -> bool:
    """Whether a process has ended, reaped by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def compare_feeds(
    everything: PlainPuller,
    healer: PlainHealer,
    state: tuple[Header, bytes],
    totals: dict[str, Any],
) -> None:
    """AssertionError if they differ. state: the stored one, its k-mers; totals: the daemon's."""
    pulled, heard = everything.messages, healer.messages
    extra = set(heard) - set(pulled)
    assert not extra, f"published and not stored: {extra}"
    lost = set(pulled) - set(healer.order)
    assert not lost, f"lost by the subscriber, unnoticed: {lost}"
    assert all(heard[key] == message for key, message in pulled.items()), "said differently"
    stored, kmers = state
    tail = [key for key in everything.order if key[1] > stored["at"]]
    later = _totals(everything, tail)
    for name, count in _totals(everything, everything.order).items():
        sums = stored["totals"].get(name, 0) + later[name], count, totals[name]
        assert len({*sums}) == 1, f"divergent: {name} after the stored state: {sums}"
    all_kmers = _kmers(everything, everything.order)
    assert kmers + _kmers(everything, tail) == all_kmers, "divergent: k-mers after the stored state"


def _totals(everything: PlainPuller, keys: Sequence[Key]) -> Counter[str]:
    fold = PlainFold()
    for topic, at in keys:
        fold.take(topic, *everything.messages[topic, at])
    return fold.totals


def _kmers(everything: PlainPuller, keys: Sequence[Key]) -> bytes:
    """They are in the first column, after the names."""
    return b"".join(everything.messages[key][1][1] for key in keys if key[0] == "delta")
