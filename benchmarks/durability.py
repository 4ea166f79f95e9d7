"""The cost and benefit of a journal: latency from socket to feed, replay, and time to restart.

Daemon, producer and subscribers are separate processes, over local sockets, on the CPU.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import LETTERS, batch_of, cut, half_hit, random_codes
from benchmarks.serving import SECONDS, Endpoints, serving
from benchmarks.suite import Row
from streamer.client import Control, Producer, Subscriber, Sync
from streamer.client.messages import ReadSummaries
from streamer.sequences.read_batch import ReadBatch

READS = 200  # of 1,000 bases, in each batch whose latency is measured
TOPICS = ("match", "mismatch", "read")
_GENOME = 1_000_000
_WARM = 20  # warm-up batches that do not count
_GROWN_BATCH = 1_000_000

_LAST = [("last", b"ACGT")]  # tells the listener to end

Seconds = NDArray[np.float64]


def latency(durabilities: Sequence[str], seconds: float) -> Iterator[Row]:
    """The time from when a batch was due to the last message about it, at half load.

    Full load is the rate of one producer over ``seconds``. Then batches are due at half that rate
    for as long: with nothing else, with repeated replays of the whole journal, and with a
    subscriber that has stopped reading.
    """
    for durability in durabilities:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with serving(folder, frozen_daemon(folder, durability)) as (endpoints, _):
                took, _ = times_of(endpoints, None, seconds)
                rate = took.size / took[-1]
                for beside in ("nothing", "a replay", "a stuck subscriber"):
                    if durability == "none" and beside == "a replay":
                        continue
                    with _other_client(beside, endpoints):
                        arrived, due = times_of(endpoints, rate / 2, seconds)
                    late = (arrived - due) * 1e3
                    yield {
                        "durability": durability,
                        "beside": beside,
                        "batches/s": rate / 2,
                        "p50 ms": float(np.percentile(late, 50)),
                        "p99 ms": float(np.percentile(late, 99)),
                        "most ms": float(late.max()),
                    }


def replay(durabilities: Sequence[str], bases: int) -> Iterator[Row]:
    """Bases a second into the feed with batches of 1 MB, and for a replay of the same records."""
    for durability in durabilities:
        if durability == "none":
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with serving(folder, frozen_daemon(folder, durability)) as (endpoints, _):
                batch = half_hit(random_codes(_GENOME, 1), 1 << 20, 0)
                count = max(2, bases >> 20)
                took, _ = times_of(endpoints, None, SECONDS, batch, count)
                begun = time.perf_counter()
                with Sync(endpoints["sync"], answer_seconds=SECONDS) as sync:
                    pulled = sum(
                        int(message.length.sum())
                        for message in sync.pull(TOPICS)
                        if isinstance(message, ReadSummaries)
                    )
                again = pulled / (time.perf_counter() - begun)
            size = int(batch.offsets[-1])
            live = size * count / took[-1]
            yield {
                "durability": durability,
                "GB": size * count / 1e9,
                "live bases/s": live,
                "replay bases/s": again,
                "ratio": again / live,
            }


def recovery(kmers: int, restarts: int) -> Iterator[Row]:
    """Seconds from the start of ``streamer run`` to the state running, each time after a kill."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [
            "dictionary.mode=grow",
            "dictionary.max_kmers=0",
            *_journal(folder, "fsync"),
        ]
        with serving(folder, settings) as (endpoints, process):
            with Producer(endpoints["ingest"], answer_seconds=SECONDS) as producer:
                for number in range(-(-kmers // _GROWN_BATCH)):
                    codes = random_codes(_GROWN_BATCH, number)
                    producer.send(batch_of(codes, cut(codes.size, 1_000)), timeout=SECONDS)
                producer.flush(timeout=SECONDS, matched=True)
            process.kill()
        took = []
        for _ in range(restarts):
            begun = time.perf_counter()
            with serving(folder, settings) as (endpoints, process):
                took.append(time.perf_counter() - begun)
                with Control(endpoints["control"], answer_seconds=SECONDS) as control:
                    known = control.status()["dictionary"]["kmers"]
                process.kill()
        yield {
            "k-mers": known,
            "restarts": restarts,
            "p50 s": float(np.percentile(took, 50)),
            "p99 s": float(np.percentile(took, 99)),
        }


def frozen_daemon(folder: Path, durability: str) -> list[str]:
    """Settings of a daemon with a random genome of 1 M bases as its dictionary."""
    letters = LETTERS[random_codes(_GENOME, 1)]
    (folder / "genome.fa").write_bytes(b">genome\n" + letters.tobytes() + b"\n")
    source = f"dictionary.sources=['{folder / 'genome.fa'}']"
    return ["dictionary.k=21", source, *_journal(folder, durability)]


def _journal(folder: Path, durability: str) -> list[str]:
    return [f"journal.durability={durability}", f"journal.directory={folder / 'journal'}"]


# ---- the clients ----------------------------------------------------------------------------


def times_of(
    endpoints: Endpoints, rate: float | None, seconds: float,
    batch: ReadBatch | None = None, most: int = 1 << 40,
) -> tuple[Seconds, Seconds]:  # fmt: skip
    """For each batch, when it was published and when it was due, in seconds since the first was."""
    if batch is None:
        batch = half_hit(random_codes(_GENOME, 1), READS * 1_000, 0)
    count = most if rate is None else int(rate * seconds)
    context = multiprocessing.get_context("spawn")
    said: Any = context.Queue()
    go = context.Barrier(2)
    children = [
        context.Process(target=_listen, args=(endpoints["feed"], go, said), daemon=True),
        context.Process(
            target=_send,
            args=(endpoints["ingest"], batch, rate, count, seconds, go, said),
            daemon=True,
        ),
    ]
    try:
        for child in children:
            child.start()
        answers = dict(said.get(timeout=SECONDS) for _ in children)
    finally:
        for child in children:
            child.join(5.0)
            child.kill()
    due: Seconds = answers["due"]
    arrived: Seconds = answers["arrived"]
    return arrived - due[0], due - due[0]


@contextmanager
def _other_client(what: str, endpoints: Endpoints) -> Iterator[None]:
    """Run another client of the daemon meanwhile."""
    if what == "nothing":
        yield
        return
    job, at = (_pull, "sync") if what == "a replay" else (_stand, "feed")
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=job, args=(endpoints[at], ready), daemon=True)
    child.start()
    try:
        ready.wait(SECONDS)
        yield
    finally:
        child.kill()
        child.join()


def _pull(endpoint: str, ready: Any) -> None:
    with Sync(endpoint, answer_seconds=SECONDS) as sync:
        while True:
            for _ in sync.pull(TOPICS):
                ready.set()


def _stand(endpoint: str, ready: Any) -> None:
    with Subscriber(endpoint, TOPICS) as feed:
        feed.wait_for_daemon(SECONDS)
        ready.set()
        time.sleep(SECONDS)


def _send(
    endpoint: str, batch: ReadBatch, rate: float | None, count: int, seconds: float,
    go: Any, said: Any,
) -> None:  # fmt: skip
    with Producer(endpoint, answer_seconds=SECONDS) as producer:
        go.wait(SECONDS)
        for _ in range(_WARM):
            producer.send(batch, timeout=SECONDS)
        producer.flush(timeout=SECONDS, matched=True)
        begun = time.monotonic()
        due: list[float] = []
        while len(due) < count and time.monotonic() < begun + seconds:
            at = time.monotonic() if rate is None else begun + len(due) / rate
            time.sleep(max(0.0, at - time.monotonic()))
            due.append(at)
            producer.send(batch, timeout=SECONDS)
        producer.flush(timeout=SECONDS, matched=True)
        producer.send(_LAST, timeout=SECONDS)
        producer.flush(timeout=SECONDS, matched=True)
    said.put(("due", np.array(due)))


def _listen(endpoint: str, go: Any, said: Any) -> None:
    arrived = []
    with Subscriber(endpoint, TOPICS) as feed:
        feed.wait_for_daemon(SECONDS)
        go.wait(SECONDS)
        while (message := feed.receive(SECONDS)) is not None:
            if isinstance(message, ReadSummaries):
                if message.read.size == len(_LAST):
                    break
                arrived.append(time.monotonic())
    said.put(("arrived", np.array(arrived[_WARM:])))
