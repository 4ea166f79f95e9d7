"""Shared by the tests of the daemon: daemons in this process and in others, raw sockets, reads."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgpack
import zmq
from crc32c import crc32c

from streamer.cli.job_lines import parse_line
from streamer.client import Control, Producer, ReadSummaries, Subscriber
from streamer.client.message_tables import table
from streamer.daemon import config, logs
from streamer.daemon.core.ingest import IngestCore, Settings
from streamer.daemon.core.life import RUNNING
from streamer.daemon.core.producers import ProducerState
from streamer.daemon.service import Service
from streamer.protocol.wire import PROTOCOL, Header
from tests.data_files import ROOT
from tests.forked import Forked
from tests.reference import crc32c as definition
from tests.waiting import DEADLINE, until

Reads = list[tuple[str, str]]


def random_dna(rng: random.Random, length: int, letters: str = "ACGT") -> str:
    return "".join(rng.choices(letters, k=length))


def reads_of(genome: str, rng: random.Random, count: int, prefix: str = "read") -> Reads:
    """Pieces of a genome, either strand, with errors, gap letters and some that are too short."""
    made: Reads = []
    swap = str.maketrans("ACGT", "TGCA")
    for i in range(count):
        length = rng.choice((0, 3, 30, 80, 150, 400))
        start = rng.randrange(max(1, len(genome) - length))
        bases = list(genome[start : start + length])
        for _ in range(length // 60):
            bases[rng.randrange(length)] = rng.choice("ACGTN")
        text = "".join(bases)
        made.append((f"{prefix}{i}", text.translate(swap)[::-1] if i % 2 else text))
    return made


def write_fasta(path: Path, reads: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in reads))
    return path


def settings(folder: Path, dictionary: str = "") -> str:
    """A configuration file in ``folder``, with sockets there and this ``[dictionary]``."""
    text = f"[dictionary]\n{dictionary}\n" + "".join(
        f'[{name}]\nendpoint = "ipc://{folder}/{name}"\n'
        for name in ("ingest", "feed", "control", "sync")
    )
    path = folder / "streamer.toml"
    path.write_text(text)
    return str(path)


def stacks() -> str:
    """The stack of every thread of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    )


class Running:
    """A daemon in threads of this process."""

    def __init__(self, path: str, overrides: Sequence[str] = ()) -> None:
        logs.configure("warning", "json")
        self.service = Service(config.load(path, overrides), parse_job=parse_line)
        self.endpoints = self.service.start()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._wait, name="service", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self.service.wait()
        except BaseException as error:
            self.error = error

    def wait_until_open(self) -> None:
        """Return once there is credit."""
        assert self.service._engine.ready.wait(DEADLINE), f"it did not load:\n{stacks()}"
        if self.service._engine.error is not None:
            raise self.service._engine.error
        with Raw(self.endpoints["ingest"]) as raw:
            raw.open()

    def wait_for_subscriptions(self, *topics: str) -> None:
        """Return once all these topics are subscribed to; without one, once none is."""
        with Control(self.endpoints["control"]) as control:

            def hold() -> bool:
                held = control.status()["topics"]
                return {f"{topic}." for topic in topics} <= set(held) if topics else not held

            until(hold, f"subscriptions to {topics}")

    def join(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), f"the daemon did not end:\n{stacks()}"
        assert not self.service.stuck

    @contextmanager
    def engine_held(self) -> Iterator[None]:
        """In this context, the engine matches nothing."""
        slots = self.service._engine.slots
        for _ in range(3):
            assert slots.acquire(timeout=DEADLINE)
        try:
            yield
        finally:
            slots.release(3)


@contextmanager
def running(path: str, overrides: Sequence[str] = ()) -> Iterator[Running]:
    """A daemon that is drained at the end, and must not have failed."""
    made = Running(path, overrides)
    with drained(made):
        made.wait_until_open()
        yield made


@contextmanager
def controlled(path: str, overrides: Sequence[str] = ()) -> Iterator[tuple[Running, Control]]:
    """A daemon that is drained at the end, and a client of its control."""
    with running(path, overrides) as daemon, Control(daemon.endpoints["control"]) as control:
        yield daemon, control


@contextmanager
def drained(daemon: Running) -> Iterator[None]:
    """Drain the daemon at the end; it must not have failed."""
    try:
        yield
    finally:
        daemon.service.drain("the test is over")
        daemon.join()
    if daemon.error is not None:
        raise daemon.error


@contextmanager
def collecting(path: str, overrides: Sequence[str] = ()) -> Iterator[tuple[Running, list[str]]]:
    """A daemon, and the names of the reads that it has accepted."""
    names: list[str] = []
    with running(path, overrides) as daemon:
        forward = daemon.service._ingest._forward

        def collect(item: Any) -> None:
            names.extend(item.batch.names)
            forward(item)

        daemon.service._ingest._forward = collect
        yield daemon, names


def sealed(*frames: bytes) -> list[bytes]:
    """A message: the frames and their checksum."""
    return [*frames, crc32c(b"".join(frames)).to_bytes(4, "little")]


class Raw:
    """A client with plain ZeroMQ and msgpack, independent of this project."""

    def __init__(self, endpoint: str, kind: int = zmq.DEALER) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 0
        self.socket.connect(endpoint)

    def send(self, header: Any, *frames: bytes) -> None:
        first = header if isinstance(header, bytes) else msgpack.packb(header)
        self.socket.send_multipart(sealed(first, *frames))

    def receive(self) -> dict[str, Any]:
        assert self.socket.poll(DEADLINE * 1000), "no answer"
        header, seal = self.socket.recv_multipart()
        assert [header, seal] == sealed(header)
        answer: dict[str, Any] = msgpack.unpackb(header)
        return answer

    def receive_type(self, kind: str) -> dict[str, Any]:
        """The next answer of this type; others are skipped."""
        while True:
            answer = self.receive()
            if answer["type"] == kind:
                return answer

    def open(self, epoch: int = 1) -> None:
        """Greet until there is credit."""

        def credit() -> Any:
            self.send({"v": 2, "type": "hello", "producer": "raw", "epoch": epoch})
            return self.receive_type("welcome")["credit"]

        until(credit, "credit")

    def accepted(self, batches: int, **counts: int) -> dict[str, Any]:
        """The first acknowledgement of this many batches (and ``matched`` of them).

        Others may come before it, even without a message, when credit has become free.
        """
        wanted = {"received": batches} | counts
        while True:
            answer = self.receive_type("ack")
            if all(answer[key] >= count for key, count in wanted.items()):
                return answer

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()


def list_batch(seq: Any, reads: Any, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """A batch in the list form."""
    frame = msgpack.packb([list(read) for read in reads])
    header = {"v": 2, "type": "batch", "producer": "raw", "epoch": 1, "seq": seq, "form": "list"}
    return header | fields, frame


def columns_batch(seq: int, names: Any, offsets: list[int], letters: bytes, **fields: Any) -> Any:
    """A batch in the form of columns: (header, names, offsets, letters)."""
    frames = [
        msgpack.packb(names),
        b"".join(offset.to_bytes(8, "little", signed=True) for offset in offsets),
        letters,
    ]
    header = {"v": 2, "type": "batch", "producer": "raw", "epoch": 1, "seq": seq, "form": "columns"}
    return (header | fields, *frames)


@contextmanager
def process(
    arguments: Sequence[str],
    code: str = "",
    stderr: int = subprocess.PIPE,
    stdin: IO[str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """``streamer`` with these arguments in its own process, which is always ended."""
    start = ["-c", code] if code else ["-m", "streamer"]
    child = Forked(
        [sys.executable, *start, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    # a child that hangs is killed, which also ends the wait for its output
    watch = threading.Timer(DEADLINE, child.kill)
    watch.start()
    try:
        yield child
    finally:
        watch.cancel()
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=DEADLINE)


def wait_for_line(child: subprocess.Popen[str], word: str) -> str:
    """Read the child's standard error until a line holds the word."""
    assert child.stderr is not None
    seen = []
    for line in child.stderr:
        seen.append(line)
        if word in line:
            return line
    raise AssertionError(f"'{word}' was never printed: {''.join(seen)}")


GENOME = random_dna(random.Random(7), 4000)


def genome_settings(folder: Path) -> str:
    """A configuration file in ``folder``, with a dictionary of two parts of GENOME that overlap."""
    write_fasta(folder / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])])
    return settings(folder, 'sources = ["genome.fa"]\nk = 11\n')


def send_batches(daemon: Running, batches: Iterable[Any], name: str | None = None) -> None:
    """Batches, sent and matched."""
    with Producer(daemon.endpoints["ingest"], name=name) as producer:
        for batch in batches:
            producer.send(batch)
        producer.flush(matched=True, timeout=DEADLINE)


def send_reads(daemon: Running, seed: int = 1) -> None:
    """Three batches of 40 reads of GENOME, sent and matched."""
    rng = random.Random(seed)
    send_batches(daemon, (reads_of(GENOME, rng, 40) for _ in range(3)), "sender")


GOOD = list_batch(1, [["r", "ACGT"]])


def rows_of(messages: Any, kind: Any, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows of these messages of a kind, as ``streamer match`` writes them."""
    rows = [row for m in messages if isinstance(m, kind) for row in table(m).records()]
    return [tuple("." if row[name] is None else str(row[name]) for name in columns) for row in rows]


def follow(feed, batches):
    """All messages about the first ``batches`` batches, and no others."""
    messages, seen = [], 0
    while seen < batches:
        message = feed.receive(DEADLINE)
        assert message is not None, f"only {seen} of {batches} batches came"
        seen += isinstance(message, ReadSummaries)
        messages.append(message)
    return messages


def asked(fields: Mapping[str, Any], body: bytes | None = None) -> list[bytes]:
    """The frames of a request; ``body``: replaces its header."""
    head = msgpack.packb({"v": 2} | dict(fields)) if body is None else body
    return [head, definition.crc32c(head).to_bytes(4, "little")]


def parsed(frames: Sequence[Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Header and further frames of an answer, without its checksum."""
    head, *rest, _ = frames
    return msgpack.unpackb(head), [bytes(frame) for frame in rest]


NOW = 1_700_000_000_000
SETTINGS = Settings("0123456789abcdef", 3, "fsync", 1000, 400)


class Peer:
    """A core, with its input and output."""

    def __init__(
        self, durability: str = "fsync", settings: Settings = SETTINGS, **options: Any
    ) -> None:
        self.core = IngestCore(settings._replace(durability=durability), **options)
        self.core.tick(0, NOW)
        self.core.life(RUNNING)
        self.accepted: list[Any] = []

    def send(self, header: Header, size: int = 10, content: int = 1, route: bytes = b"r") -> Any:
        """Send a message; returns the immediate answer, None if it is an acknowledgement."""
        offer = self.core.message(route, header, size, content)
        if offer is not None:
            self.accepted.append(self.core.accept(offer, None, b""))
        return self.core._answers[-1][1] if self.core._answers else None

    def hello(self, epoch: int = 1, route: bytes = b"r", **more: Any) -> Any:
        return self.send(hello(epoch, **more), route=route)

    def answers(self, route: bytes = b"r") -> list[Header]:
        return [answer for to, answer in self.core.answers() if to == route]

    def producer(self, name: str = "p") -> ProducerState:
        found = self.core.producers.find(name)
        assert found is not None
        return found


def hello(epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return {"v": PROTOCOL, "type": "hello", "producer": name, "epoch": epoch} | more


def batch(seq: int, epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return hello(epoch, name) | {"type": "batch", "seq": seq} | more


def reason(answer: Header | None) -> str:
    assert answer is not None
    assert answer["type"] == "refused"
    return str(answer["reason"])


def feed_of(path, overrides, reads, topics, batch=10):
    """The messages that a daemon sends about reads."""
    with (
        running(path, overrides) as daemon,
        Subscriber(daemon.endpoints["feed"], [*topics, "read"]) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        with Producer(daemon.endpoints["ingest"]) as producer:
            for at in range(0, len(reads), batch):
                producer.send(reads[at : at + batch], timeout=DEADLINE)
            producer.flush(timeout=DEADLINE, matched=True)
        return follow(feed, -(-len(reads) // batch))
