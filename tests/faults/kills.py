"""Kills of the real daemon at random moments and at named points: what was promised must hold.

    python -m tests.faults.kills [KILLS] [--seed N]

Two producers send random reads to a daemon with a growing dictionary. It is
killed again and again, and started again on its journal. Only this process remembers which batches
were called durable. In the end every batch must be in the journal once, with the results that one
matcher gives for the whole stream, and the feed must have said that and nothing else. Half of the
kills come at the points of ``nursery.POINTS``.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH
from streamer.dictionary.targets import Dictionary
from streamer.journal.reader import JournalReader
from streamer.matching import reports
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.faults.nursery import POINTS, Nursery
from tests.faults.plain_client import PlainProducer, PlainSubscriber
from tests.waiting import DEADLINE

K = 9
PRODUCERS = 2
TOPICS = ("match", "mismatch", "delta", "read")
# of one journal, after which it is checked
LIVES = 25
_LONGEST_LIFE = 0.06

CONFIG = """
[dictionary]
k = {k}
[matching]
device = "cpu"
threads = 1
[ingest]
endpoint = "ipc://{folder}/ingest"
[feed]
endpoint = "ipc://{folder}/feed"
beat_seconds = 0.05
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
    """The lives of a daemon on one journal."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        rng: random.Random,
        durability: str = "fsync",
        mistake: str | None = None,
    ) -> None:
        self.config = folder / "streamer.toml"
        text = CONFIG.format(k=K, folder=folder, durability=durability)
        self.config.write_text(text)
        self._nursery = nursery
        self._folder = folder
        self._rng = rng
        self._synced = durability == "fsync"
        self._mistake = mistake
        self._context = zmq.Context()
        endpoint = f"ipc://{folder}/ingest"
        self.producers = [
            PlainProducer(self._context, endpoint, f"p{number}", epoch=1 + number)
            for number in range(PRODUCERS)
        ]
        self.feed = PlainSubscriber(self._context, f"ipc://{folder}/feed", TOPICS)
        self.died = Counter[str]()

    def close(self) -> None:
        for client in (*self.producers, self.feed):
            client.close()
        self._context.term()

    def live_and_die(self) -> None:
        """One life of the daemon, which ends with a kill."""
        rng = self._rng
        # without syncs that point is never reached
        points = [point for point in POINTS if point != "sync" or self._synced]
        point = rng.choice(points) if rng.random() < 0.5 else None
        die = None if point is None else (point, rng.randrange(12))
        self.died[point or "at random"] += 1
        pid = self._nursery.start(self.config, die, self._mistake)
        life = rng.random() * _LONGEST_LIFE
        spoken: float | None = None
        deadline = time.monotonic() + DEADLINE
        for producer in self.producers:
            producer.connect()
        while Path(f"/proc/{pid}").exists() and not _is_zombie(pid):
            self._step(more=True)
            if spoken is None and any(p.spoken for p in self.producers):
                spoken = time.monotonic()
            now = time.monotonic()
            if point is None and spoken is not None and now > spoken + life:
                os.kill(pid, signal.SIGKILL)
                break
            assert now < deadline, f"the daemon neither served nor died ({point})"
        status = self._nursery.wait(pid)
        assert status == -signal.SIGKILL, f"the daemon ended by itself, with {status}"
        self.feed.step()

    def live_to_the_end(self) -> None:
        """The last life: everything becomes durable, then the daemon drains."""
        pid = self._nursery.start(self.config, mistake=self._mistake)
        for producer in self.producers:
            producer.connect()
        deadline = time.monotonic() + DEADLINE
        while not all(producer.finished for producer in self.producers):
            self._step(more=False)
            assert time.monotonic() < deadline, "not all became durable"
        os.kill(pid, signal.SIGTERM)
        assert self._nursery.wait(pid) == 0
        self.feed.step()

    def _step(self, *, more: bool) -> None:
        for producer in self.producers:
            if more and len(producer.batches) - producer.acked < 6:
                producer.add(*self._batch(len(producer.batches) + 1))
            producer.step()
        self.feed.step()
        # until somebody is told something; a look now and then whether the daemon lives
        waiting = zmq.Poller()
        for client in (*self.producers, self.feed):
            waiting.register(client.socket, zmq.POLLIN)
        waiting.poll(1)

    def _batch(self, number: int) -> tuple[list[bytes], bytes]:
        rng = self._rng
        reads = [
            ("".join(rng.choices("ACGTN", (9, 9, 9, 9, 1), k=rng.randrange(60))), f"r{number}.{i}")
            for i in range(rng.randrange(4))
        ]
        offsets = np.cumsum([0, *(len(letters) for letters, _ in reads)]).astype("<i8")
        letters = "".join(letters for letters, _ in reads).encode()
        frames = [msgpack.packb([name for _, name in reads]), offsets.tobytes(), letters]
        return frames, b"mark %d" % number

    def check(self) -> int:
        """Compare journal, feed and one pass over the stream; how many batches there are."""
        with closing(JournalReader.open(self._folder / "journal")) as reader:
            records = [record for record in reader.records(0) if record.kind == BATCH]
            stored = [StoredBatch(record) for record in records]
        keys = [(record.key.producer, record.key.sequence) for record in records if record.key]
        assert len(set(keys)) == len(keys), "twice"
        sent = {(p._name, n): b for p in self.producers for n, b in enumerate(p.batches, 1)}
        assert set(keys) == set(sent), f"lost: {set(sent) - set(keys)}"
        matcher = StreamMatcher.of(
            Dictionary.empty(K, "canonical"), k=K, mode="grow", strands="canonical", threads=1
        )
        heads: dict[str, int] = {}
        for key, batch in zip(keys, stored, strict=True):
            _, (names, offsets, letters) = sent[key]
            reads = ReadBatch.from_letters(
                msgpack.unpackb(names), np.frombuffer(offsets, "<i8"), letters
            )
            assert batch.names == names
            assert np.array_equal(batch.reads.bases, reads.bases)
            self._check_batch(batch, matcher.match(reads), matcher, heads)
        matcher.close()
        return len(keys)

    def _check_batch(
        self, batch: StoredBatch, result: Any, matcher: StreamMatcher, heads: dict[str, int]
    ) -> None:
        about = batch.about
        facts = about["batch"], about["base"], about["version_before"], about["version"]
        expected = result.number, result.base, result.version_before, result.version
        assert facts == expected, f"divergent: {facts}, one pass gives {expected}"
        hits, misses = reports.intervals_by_event(result)
        summary, _ = reports.reads_and_sums(result, matcher.dictionary.targets)
        tables = {"match": hits, "mismatch": misses, "read": summary}
        for topic, content in batch.contents():
            assert batch.prev[topic] == heads.get(topic, 0), f"{topic}: prev"
            heads[topic] = batch.at
            said = self.feed.messages.get((topic, batch.at))
            if said is not None:
                assert said[1][1:] == [bytes(frame) for frame in content.frames], "divergent feed"
                assert said[0]["prev"] == batch.prev[topic]
            for (name, type_name, _), frame in zip(content.described, content.frames, strict=True):
                values = np.frombuffer(frame, type_name)
                if topic == "delta":
                    if name == "code":
                        assert np.array_equal(values, result.new_kmers), "divergent k-mers"
                    continue
                right = np.asarray(tables[topic][name], values.dtype)
                assert np.array_equal(values, right), f"divergent: {topic} {name}"

    def said_only_what_is_stored(self) -> None:
        """Every message of the feed is about a record of the journal."""
        with closing(JournalReader.open(self._folder / "journal")) as reader:
            stored = {r.at: StoredBatch(r) for r in reader.records(0) if r.kind == BATCH}
        for topic, at in self.feed.messages:
            assert at in stored, f"record {at} was published and is not stored"
            assert topic in stored[at].prev


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def nursery(durability: str = "fsync") -> Iterator[tuple[Nursery, Path]]:
    """A nursery, and a folder for its daemons."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="kills-"))
        stack.callback(shutil.rmtree, folder)
        config = folder / "warm.toml"
        config.write_text(CONFIG.format(k=K, folder=folder, durability=durability))
        yield stack.enter_context(Nursery(config, folder / "log")), folder


def run(
    kills: int, seed: int, durability: str = "fsync", mistake: str | None = None
) -> tuple[int, int, Counter[str]]:
    """Kill the daemon so often: batches and feed messages checked, and kills by point.

    mistake: one that the daemon makes. AssertionError says what did not hold.
    """
    rng = random.Random(seed)
    batches = messages = done = 0
    died = Counter[str]()
    with nursery(durability) as (daemons, folder):
        while done < kills:
            own = folder / f"round{done}"
            own.mkdir(mode=0o700)
            one = Round(daemons, own, rng, durability, mistake)
            try:
                for _ in range(min(LIVES, kills - done)):
                    one.live_and_die()
                    done += 1
                one.live_to_the_end()
                batches += one.check()
                one.said_only_what_is_stored()
            except BaseException:
                print((folder / "log").read_text(), file=sys.stderr)
                raise
            finally:
                one.close()
            messages += len(one.feed.messages)
            died += one.died
            shutil.rmtree(own)
    return batches, messages, died


def _main() -> None:
    parser = argparse.ArgumentParser(description="Kill the daemon and check what it promised.")
    parser.add_argument("kills", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=("os", "fsync"), default="fsync")
    asked = parser.parse_args()
    begun = time.monotonic()
    batches, messages, died = run(asked.kills, asked.seed, asked.durability)
    points = ", ".join(f"{count} {point}" for point, count in sorted(died.items()))
    print(
        f"{asked.kills} kills in {time.monotonic() - begun:.0f} s (seed {asked.seed}): {points}; "
        f"{batches} batches and {messages} messages: lost 0, twice 0, divergent 0"
    )


if __name__ == "__main__":
    _main()
