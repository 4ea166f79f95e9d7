"""The daemon from socket to feed: bases a second from producers to a subscriber.

Producers, daemon and subscriber are separate processes on this machine, over loopback. A producer
makes one batch, or with an index different ones of 32 MB together, and sends them again and again,
encoding each every time. The clock runs from the first batch sent to the last ``read`` message at
the subscriber, which receives and checks all of them.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import structlog

from benchmarks.disk_rate import group_bytes, seconds_alone
from benchmarks.durability import latency, recovery, replay
from benchmarks.index import sample
from benchmarks.inputs import LETTERS, Codes, half_hit, random_codes
from benchmarks.jobs import jobs
from benchmarks.pages import pages
from benchmarks.suite import Row, Sheet
from streamer.client import Producer, Subscriber
from streamer.client.messages import ReadSummaries
from streamer.dictionary.index import Index

Busy = Callable[[], dict[str, float]]  # the seconds that each thread of the daemon has been busy
GENOME = 1_000_000
_TIMEOUT = 600.0


_THREADS = ("engine", "feed", "ingest", "journal")


def tables(
    device: str, k: int = 21, producers: int = 4, bases: int = 1 << 31,
    durabilities: Sequence[str] = ("none",), seconds: float = 20.0,
    kmers: int = 10_000_000, restarts: int = 100, pairs: int = 6, index: Path | None = None,
) -> list[Sheet]:  # fmt: skip
    """TCP and local sockets, batches of 1 and 4 MB, ``bases`` each; then the journal."""
    return [
        Sheet(
            "Daemon, socket to feed", daemon, device, k, producers, bases, durabilities,
            index, section="speed",
        ),
        Sheet("Latency at half load, CPU", latency, durabilities, seconds, section="latency"),
        Sheet("Latency with 50 open pages, CPU", pages, seconds, pairs, section="pages"),
        Sheet("Latency beside batch jobs, CPU", jobs, seconds, pairs, section="jobs"),
        Sheet("Replay, CPU", replay, durabilities, bases >> 2, section="replay"),
        Sheet("Restart after a kill, CPU", recovery, kmers, restarts, section="restart"),
    ]  # fmt: skip


def daemon(
    device: str, k: int, producers: int, bases: int, durabilities: Sequence[str] = ("none",),
    index: Path | None = None, batch_bytes: Sequence[int] = (1 << 20, 1 << 22),
    transports: Sequence[str] = ("tcp", "ipc"), gpus: int = 1,
) -> Iterator[Row]:  # fmt: skip
    """A row for every transport, durability and size of batch; about ``bases`` bases each.

    Half of the reads (of 1,000 bases) are from the dictionary, a random genome of 1 M bases or an
    index, which has its own k. With a synced journal, ``disk alone s`` is the time of writing and
    syncing the same bytes in the same groups with nothing else running: the lower bound for the
    journal.
    """
    genome = random_codes(GENOME, 1)
    if index:
        known = Index.open(str(index))
        genome, k = sample(known), known.k
    for transport, durability in product(transports, durabilities):
        with (
            tempfile.TemporaryDirectory() as folder,
            _serving(Path(folder), transport, durability, device, k, genome, index, gpus) as (
                endpoints,
                busy,
            ),
        ):
            records = 0
            for size in batch_bytes:
                count = max(1, bases // (producers * size))
                row: Row = {"transport": transport, "durability": durability}
                row |= {"producers": producers, "batch bytes": size}
                # an index is larger than any cache
                made = max(1, (1 << 25) // size) if index else 1
                row |= _measured(endpoints, busy, genome, producers, size, count, made)
                row["disk alone s"] = None
                if durability == "fsync":
                    # after the dictionary and the first batch of each producer
                    first = records + producers + (records == 0)
                    groups = group_bytes(Path(folder) / "journal", first)
                    row["disk alone s"] = seconds_alone(Path(folder), groups)
                    records = first + producers * count
                yield row


def _measured(
    endpoints: dict[str, str], busy: Busy, genome: Codes, producers: int, size: int, count: int,
    made: int,
) -> Row:  # fmt: skip
    context = multiprocessing.get_context("spawn")
    go = context.Barrier(producers + 2)
    said: Any = context.Queue()
    reads = producers * len(half_hit(genome, size, 0))  # of one batch each
    jobs: list[tuple[Any, ...]] = [(_subscribe, endpoints["feed"], reads, reads * count)]
    jobs += [
        (_produce, endpoints["ingest"], genome, size, count, range(n, made * producers, producers))
        for n in range(producers)
    ]
    children = [
        context.Process(target=job, args=(*given, go, said), daemon=True) for job, *given in jobs
    ]
    try:
        for child in children:
            child.start()
        go.wait(_TIMEOUT)  # subscribed
        go.wait(_TIMEOUT)  # warm
        before = busy()
        begin = time.perf_counter()
        clients: dict[str, float] = {}
        for _ in children:
            name, spent, *rest = said.get(timeout=_TIMEOUT)
            clients[name] = max(clients.get(name, 0.0), spent)
            if rest:
                took = time.perf_counter() - begin
                seen, missed = rest
        after = busy()
    finally:
        for child in children:
            child.join(5.0)
            child.kill()
    row = {"GB": seen / 1e9, "s": took, "bases/s": seen / took, "messages missed": missed}
    # shows what limits the speed: the busy seconds of each daemon thread, and the most of any
    # client
    row |= {f"{name} busy s": after[name] - before[name] for name in after}
    return row | {f"{name} busy s": spent for name, spent in clients.items()}


@contextmanager
def _serving(
    folder: Path, transport: str, durability: str, device: str, k: int, genome: Codes,
    index: Path | None, gpus: int,
) -> Iterator[tuple[dict[str, str], Busy]]:  # fmt: skip
    """A daemon in its own process: its endpoints, and a function for its threads' busy seconds."""
    source = index or folder / "genome.fa"
    if index is None:
        source.write_bytes(b">genome\n" + LETTERS[genome].tobytes() + b"\n")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    given = (folder, transport, durability, device, k, source, gpus, there)
    child = context.Process(target=_serve, args=given)
    child.start()

    def busy() -> dict[str, float]:
        here.send("busy?")
        answer: dict[str, float] = here.recv()
        return answer

    try:
        if not here.poll(_TIMEOUT):
            raise TimeoutError("the daemon did not start")
        yield here.recv(), busy
        here.send("end")
        child.join(30.0)
    finally:
        child.kill()


def _serve(
    folder: Path, transport: str, durability: str, device: str, k: int, source: Path, gpus: int,
    pipe: Any,
) -> None:  # fmt: skip
    from streamer.daemon.config import load
    from streamer.daemon.core.life import RUNNING
    from streamer.daemon.service import Service

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    overrides = [
        f"dictionary.k={k}",
        f"dictionary.sources=['{source.resolve()}']",
        f"matching.device='{device}'",
        f"matching.gpus={gpus}",
        f"ingest.memory_bytes={1 << 29}",
        f"feed.buffer_bytes={1 << 30}",
        f"journal.durability='{durability}'",
        f"journal.directory='{folder / 'journal'}'",
    ]
    for name in ("ingest", "feed", "control", "sync"):
        place = "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{folder / name}"
        overrides.append(f"{name}.endpoint='{place}'")
    service = Service(load(None, overrides))
    endpoints = service.start()
    ended = threading.Thread(target=service.wait, daemon=True)
    ended.start()
    while service.status.state != RUNNING and ended.is_alive():
        time.sleep(0.05)
    pipe.send(endpoints)
    while pipe.recv() != "end":
        clocks = {
            thread.name: time.pthread_getcpuclockid(thread.ident)
            for thread in threading.enumerate()
            if thread.name in _THREADS and thread.ident is not None
        }
        busy = {name: time.clock_gettime(clock) for name, clock in clocks.items()}
        pipe.send({name: busy.get(name, 0.0) for name in _THREADS})
    service.drain("the measurement is over")
    ended.join(30.0)


def _produce(
    endpoint: str, genome: Codes, size: int, count: int, seeds: range, go: Any, said: Any
) -> None:
    batches = [half_hit(genome, size, seed) for seed in seeds]
    with Producer(endpoint, name=f"bench{seeds.start}", answer_seconds=_TIMEOUT) as producer:
        go.wait(_TIMEOUT)
        # compilation and the setup at the daemon's first batch do not count
        producer.send(batches[0], timeout=_TIMEOUT)
        producer.flush(timeout=_TIMEOUT, matched=True)
        go.wait(_TIMEOUT)
        before = time.process_time()
        for number in range(count):
            producer.send(batches[number % len(batches)], timeout=_TIMEOUT)
        producer.flush(timeout=_TIMEOUT, matched=True)
        said.put(("producer", time.process_time() - before))


def _subscribe(endpoint: str, before: int, reads: int, go: Any, said: Any) -> None:
    gc.set_threshold(300_000, 20, 100)  # as in ``streamer watch``
    with Subscriber(endpoint, ("match", "mismatch", "read")) as feed:
        feed.wait_for_daemon(_TIMEOUT)
        go.wait(_TIMEOUT)
        _listen(feed, before)
        go.wait(_TIMEOUT)
        begun = time.process_time()
        seen = _listen(feed, reads)
        said.put(("subscriber", time.process_time() - begun, seen, feed.gaps))


def _listen(feed: Subscriber, reads: int) -> int:
    """Receive this many reads; returns their bases."""
    seen = bases = 0
    while seen < reads:
        message = feed.receive(_TIMEOUT)
        if message is None:
            break
        if isinstance(message, ReadSummaries):
            seen += message.read.size
            bases += int(message.length.sum())
    return bases
