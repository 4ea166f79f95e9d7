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

READS, LENGTH = 200, 500
GENOME_BASES = 200_000
TOPICS = ("match", "mismatch", "delta", "read", "retract", "upgrade", "settled")
ODD_A_SECOND = 4.0
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


def disturb(folder: Path, rng: random.Random) -> None:
    """Send odd messages to every socket."""
    from tests.faults.soak_clients import SOCKETS, OddMessages

    odd, context = OddMessages(rng), zmq.Context()
    kinds = {name: zmq.XSUB if name == "feed" else zmq.DEALER for name in SOCKETS}
    sockets = {name: _connected(context, kind, folder, name) for name, kind in kinds.items()}
    while not _is_left():
        name = rng.choice(SOCKETS)
        with suppress(zmq.Again):
            sockets[name].send_multipart(odd.make(name), zmq.NOBLOCK)
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


SOCKETS = "ingest", "control", "sync", "feed"

_NUMBERS = 0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan")
_WORDS = "", "columns", "list", "p0", "match", "beat.", "\u200b", "a\nb", "\x00", "x" * 300
_KEYS = (
    *("v", "type", "producer", "epoch", "seq", "form", "mark", "growing", "versions", "need"),
    *("command", "id", "subscriptions", "by", "first", "target", "bins"),
    *("after", "until", "stream", "topics", "credit", "bytes", "unknown"),
)


class OddMessages:
    """Makes odd messages from a seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def make(self, name: str) -> list[bytes]:
        """The frames of a message to a socket."""
        rng = self._rng
        if name == "feed":
            prefix = rng.choice([b"match.", b"", b"zzz", rng.randbytes(rng.randrange(80))])
            return [rng.choice([b"\x01", b"\x00", b"\x02", b""]) + prefix]
        if rng.random() < 0.1:
            return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 12))]
        sealed = seal(self._frames(name))
        if rng.random() < 0.1:
            sealed[-1] = rng.randbytes(rng.randrange(8))
        if rng.random() < 0.02:
            sealed.append(bytes(rng.choice([1, 70_000, 1_100_000])))
        return sealed

    def _frames(self, name: str) -> list[bytes]:
        rng = self._rng
        header = self._header(name)
        for _ in range(rng.randrange(4)):
            if rng.random() < 0.5:
                header[rng.choice(_KEYS)] = self._value()
            else:
                header.pop(rng.choice(_KEYS), None)
        if header.get("type") == "batch":
            # names without an epoch
            header["producer"] = rng.choice(["nobody", "n\u00f6body"])
        try:
            frames = [msgpack.packb(header)]
        except (OverflowError, ValueError):
            frames = [b"\x91" * rng.randrange(1, 60_000) + b"\xc0"]
        if name != "sync" and rng.random() < 0.8:
            frames += self._reads()
        return [self._damaged(frame) if rng.random() < 0.1 else frame for frame in frames]

    def _header(self, name: str) -> Header:
        rng = self._rng
        if name == "control":
            commands = ["status", "targets", "coverage", "novelty", "ask", "reload", "nothing"]
            return {"v": 2, "id": rng.randrange(9), "command": rng.choice(commands)}
        if name == "sync":
            kind = rng.choice(["pull", "snapshot", "credit", "heads", "stop"])
            fields = {"topics": ["read", "match"], "credit": rng.choice([1, 1000, 1 << 20])}
            fields |= {"after": rng.choice([0, 0, 3, 10**9]), "bytes": rng.randrange(1 << 20)}
            return {"v": 2, "type": kind, "id": rng.randrange(6), **fields}
        fields = {"producer": rng.choice(["odd", "\u00f6dd"]), "epoch": rng.choice([1, 2])}
        fields |= {"seq": rng.randrange(3), "form": rng.choice(["columns", "list"]), "mark": b"m"}
        return {"v": 2, "type": rng.choice(["hello", "batch", "batch"]), "versions": [2], **fields}

    def _reads(self) -> list[bytes]:
        rng = self._rng
        if rng.random() < 0.3:
            return [msgpack.packb([["r", "ACGT"], ["s", rng.choice(_WORDS)]])]
        names = [rng.choice(_WORDS) for _ in range(rng.randrange(4))]
        ends = sorted(rng.randrange(50) for _ in names)
        offsets = b"".join(end.to_bytes(8, "little") for end in (0, *ends))
        letters = bytes(rng.choices(b"ACGTNacgtnX", k=ends[-1] if ends else 0))
        context = [msgpack.packb({"channel": rng.randbytes(rng.randrange(20)), "run": None})]
        return [msgpack.packb(names), offsets, letters, *(context if rng.random() < 0.3 else [])]

    def _damaged(self, frame: bytes) -> bytes:
        rng, changed = self._rng, bytearray(frame)
        if not changed or rng.random() < 0.2:
            return b""
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    def _value(self, depth: int = 0) -> Any:
        rng = self._rng
        match rng.randrange(7):
            case 0:
                return rng.choice(_NUMBERS)
            case 1:
                return rng.choice(_WORDS)
            case 2:
                return rng.randbytes(rng.randrange(600))
            case 3:
                return rng.choice([None, True, msgpack.ExtType(5, b"odd"), msgpack.Timestamp(7)])
            case 4 if depth < 4:
                return [self._value(depth + 1) for _ in range(rng.randrange(6))]
            case 5 if depth < 4:
                return {rng.choice(["a", 1, b"x", None]): self._value(depth + 1)}
        return rng.randrange(100)


if __name__ == "__main__":
    role, place, seed, *more = sys.argv[1:]
    given = (more[0], int(more[1]), float(more[2])) if more else ()
    ROLES[role](Path(place), random.Random(seed), *given)
