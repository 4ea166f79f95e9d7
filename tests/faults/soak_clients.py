"""Clients of a soak, each a process that may be killed at any time.

    python -m tests.faults.soak_clients ROLE FOLDER SEED [NAME EPOCH RATE]

They end with their standard input, and so with the process that started them.
"""

from __future__ import annotations

import random
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from tests.faults.plain_client import Header, PlainProducer, PlainPuller, seal
from tests.fuzz.mutation import Mutator, seeds

READS, LENGTH = 200, 500
GENOME_BASES = 200_000
TOPICS = ("match", "mismatch", "delta", "read", "retract", "upgrade", "settled")
ODD_A_SECOND = 4.0
SOCKETS = "ingest", "control", "sync", "feed"
# seconds between two passes of a reader over all that is kept
REST_SECONDS = 20.0


def genome() -> bytes:
    """The genome that all reads and sources come from."""
    return bytes(random.Random(19).choices(b"ACGT", k=GENOME_BASES))


def _is_left() -> bool:
    """Whether standard input was closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.buffer.read1(1)


def _connected(context: zmq.Context[Any], kind: int, folder: Path, name: str) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"ipc://{folder}/{name}")
    return socket


def _frames(rng: random.Random, letters: bytes, due: int) -> list[bytes]:
    """A batch in columns; the name of its first read is the time at which it was due."""
    starts = [rng.randrange(len(letters) - LENGTH) for _ in range(READS)]
    names = [str(due), *map(str, range(1, READS))]
    offsets = np.arange(READS + 1, dtype="<i8") * LENGTH
    text = b"".join(letters[start : start + LENGTH] for start in starts)
    return [msgpack.packb(names), offsets.tobytes(), text]


def produce(folder: Path, rng: random.Random, name: str, epoch: int, rate: float) -> None:
    """Send at a steady rate until standard input ends, then until everything is durable.

    Prints the number of durable batches whenever it changes.
    """
    letters = genome()
    producer = PlainProducer(zmq.Context(), f"ipc://{folder}/ingest", name, epoch)
    producer.connect()
    told, left = 0, False
    due = time.time_ns()
    while not (left and producer.finished):
        left = left or _is_left()
        now = time.time_ns()
        while not left and due <= now and len(producer.batches) < producer.acked + 64:
            producer.add(_frames(rng, letters, due), b"%d" % (len(producer.batches) + 1))
            due += int(1e9 / rate)
        producer.step()
        if producer.acked > told:
            for at in range(told, producer.acked):
                producer.batches[at] = producer.batches[at][0], []
            told = producer.acked
            print(told, flush=True)
        producer.socket.poll(max(0, min(50, (due - time.time_ns()) // 1_000_000)))
    producer.close()


def subscribe(folder: Path, rng: random.Random) -> None:
    """Take everything."""
    socket = _connected(zmq.Context(), zmq.SUB, folder, "feed")
    socket.subscribe("")
    while not _is_left():
        if socket.poll(50):
            socket.recv_multipart(copy=False)


def read(folder: Path, rng: random.Random) -> None:
    """Repeatedly pull all that is kept, with pauses."""
    context = zmq.Context()
    stream, after = "", 0
    while not _is_left():
        puller = PlainPuller(context, f"ipc://{folder}/sync", TOPICS, stream=stream, after=after)
        stream, after = "", 0
        while not (_is_left() or puller.silent or puller.at == puller.head > 0):
            puller.step(50)
            puller.messages.clear()
            del puller.order[:-1]
            answer = puller.answers.pop() if puller.answers else {"type": ""}
            if answer["type"] == "reset":
                # the oldest records have expired
                stream, after = answer["stream"], answer["oldest"] - 1
                break
        else:
            select.select([sys.stdin], [], [], rng.random() * REST_SECONDS)
        puller.close()


def stand_still(folder: Path, rng: random.Random) -> None:
    """Ask for everything on every socket, but read nothing."""
    context = zmq.Context()
    feed = _connected(context, zmq.SUB, folder, "feed")
    feed.setsockopt(zmq.RCVHWM, 1)
    feed.subscribe("")
    sync = _connected(context, zmq.DEALER, folder, "sync")
    pull = {"v": 2, "type": "pull", "id": 1, "stream": "", "after": 0, "topics": list(TOPICS)}
    sync.send_multipart(seal([msgpack.packb(pull | {"credit": 1 << 30})]))
    ingest = _connected(context, zmq.DEALER, folder, "ingest")
    hello = {"v": 2, "type": "hello", "versions": [2], "producer": "still", "epoch": 1}
    ingest.send_multipart(seal([msgpack.packb(hello)]))
    control = _connected(context, zmq.DEALER, folder, "control")
    for number in range(100):
        ask = {"v": 2, "command": "status", "id": number}
        control.send_multipart(seal([msgpack.packb(ask)]))
    sys.stdin.read()


def _without_epoch(socket: str, header: Header, _: random.Random) -> Header:
    """Batches come from a producer that has never said hello, so that none is accepted."""
    return {"producer": "nobody"} if header.get("type") == "batch" else {}


def _is_harmless(frames: list[bytes]) -> bool:
    """Whether a message neither drains the daemon nor brings it a batch."""
    known = b"".join(frames)
    return b"drain" not in known and (b"batch" in known) == (b"nobody" in known)


def disturb(folder: Path, rng: random.Random) -> None:
    """Send mutated messages to every socket of the daemon."""
    mutator, context = Mutator(seeds(), _without_epoch), zmq.Context()
    kinds = {name: zmq.XSUB if name == "feed" else zmq.DEALER for name in SOCKETS}
    sockets = {name: _connected(context, kind, folder, name) for name, kind in kinds.items()}
    while not _is_left():
        name = rng.choice(SOCKETS)
        frames = mutator.make(rng, name)
        if name != "feed" and rng.random() < 0.02:
            frames.append(bytes(rng.choice([1, 70_000, 1_100_000])))
        if _is_harmless(frames):
            with suppress(zmq.Again):
                sockets[name].send_multipart(frames, zmq.NOBLOCK)
        with suppress(zmq.Again):
            while True:
                sockets[name].recv_multipart(zmq.NOBLOCK)
        select.select([sys.stdin], [], [], 1 / ODD_A_SECOND)


ROLES = {
    "produce": produce,
    "subscribe": subscribe,
    "read": read,
    "stand still": stand_still,
    "disturb": disturb,
}


if __name__ == "__main__":
    role, place, seed, *more = sys.argv[1:]
    given = (more[0], int(more[1]), float(more[2])) if more else ()
    ROLES[role](Path(place), random.Random(seed), *given)
