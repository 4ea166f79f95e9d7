"""Odd and damaged messages to every socket of a daemon that is killed now and then.

    python -m tests.faults.odd [MESSAGES] [--seed N]

Honest producers and a subscriber work at the same time. None of the odd batches may be accepted:
each lacks something, or its key (producer, epoch, sequence) is taken. In the end the journal and
the feed are compared with one pass over what the honest producers sent.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import zmq

from tests.faults.growing import Growing
from tests.faults.kills import nursery
from tests.faults.plain_client import Header, seal

SOCKETS = "ingest", "control", "sync", "feed"
# lives of a round; odd messages of one step, and of a life's end
LIVES, _AT_ONCE, _IN_THE_END = 4, 40, 400
_NUMBERS = 0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan")
_WORDS = "", "columns", "list", "p0", "match", "beat.", "\u200b", "a\nb", "\x00", "x" * 300
_KEYS = (
    *("v", "type", "producer", "epoch", "seq", "form", "mark", "growing", "versions", "need"),
    *("command", "id", "subscriptions", "by", "first", "target", "bins"),
    *("after", "until", "stream", "topics", "credit", "bytes", "unknown"),
)


class OddMessages:
    """Makes odd messages from a seed. taken: header fields and frames of accepted batches."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.taken: list[tuple[Header, list[bytes]]] = []

    def make(self, name: str) -> list[bytes]:
        """The frames of a message to a socket."""
        rng = self._rng
        if name == "feed":
            prefix = rng.choice([b"match.", b"", b"zzz", rng.randbytes(rng.randrange(80))])
            return [rng.choice([b"\x01", b"\x00", b"\x02", b""]) + prefix]
        if rng.random() < 0.1:
            return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 12))]
        frames = self._conflict() if self.taken and rng.random() < 0.1 else self._frames(name)
        sealed = seal(frames)
        if rng.random() < 0.1:
            sealed[-1] = rng.randbytes(rng.randrange(8))
        if rng.random() < 0.02:
            sealed.append(bytes(rng.choice([1, 70_000, 1_100_000])))
        return sealed

    def _conflict(self) -> list[bytes]:
        """Different content under a key that is taken, or the same content again."""
        header, frames = self._rng.choice(self.taken)
        if self._rng.random() < 0.5:
            frames = [msgpack.packb(["other"]), bytes(8) + b"\x04" + bytes(7), b"ACGT"]
        return [msgpack.packb(header), *frames]

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


class Odd(Growing):
    """A round with odd messages. odd: how many were sent, by socket."""

    points = ()
    longest_life = 1.0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.odd = Counter[str]()
        self._make = OddMessages(self.rng)
        self._sockets = [(name, self._socket(name)) for name in SOCKETS for _ in range(2)]

    def disturb(self, *, often: bool) -> None:
        one = self.producers[0]
        header = {"v": 2, "type": "batch", "producer": one.name, "epoch": one.epoch}
        self._make.taken = [
            (header | {"seq": seq, "form": "columns"}, frames)
            for seq, (_, frames) in enumerate(one.batches[: one.acked][-3:], max(1, one.acked - 2))
        ]
        for _ in range(_AT_ONCE):
            self._disturb_one()

    def settle(self) -> None:
        while self.odd.total() % _IN_THE_END:
            self._disturb_one()
        # answered after everything before it
        self.status()

    def close(self) -> None:
        for _, socket in self._sockets:
            socket.close()
        super().close()

    def _disturb_one(self) -> None:
        number = self.rng.randrange(len(self._sockets))
        name, socket = self._sockets[number]
        with suppress(zmq.Again):
            socket.send_multipart(self._make.make(name), zmq.NOBLOCK)
            self.odd[name] += 1
        if self.rng.random() < 0.01:
            socket.close()
            socket = self._socket(name)
            self._sockets[number] = name, socket
        with suppress(zmq.Again):
            while True:
                socket.recv_multipart(zmq.NOBLOCK)

    def _socket(self, name: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.XSUB if name == "feed" else zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 50)
        socket.setsockopt(zmq.RECONNECT_IVL, 5)
        if name != "feed" and self.rng.random() < 0.3:
            socket.setsockopt(zmq.ROUTING_ID, self.rng.choice([b"same", b"x" * 200]))
        socket.connect(self.at(name))
        return socket


def run(messages: int, seed: int) -> tuple[Counter[str], int, int]:
    """Send at least ``messages`` in rounds; returns odd messages by socket, kills, other batches.

    AssertionError says what did not hold.
    """
    odd, kills, batches = Counter[str](), 0, 0
    folder = Path(tempfile.mkdtemp(prefix="odd-"))
    try:
        with nursery(folder) as daemons:
            while odd.total() < messages:
                own = folder / f"round-{seed}"
                own.mkdir(mode=0o700)
                one = Odd(daemons, own, random.Random(seed))
                try:
                    for _ in range(LIVES):
                        one.live_and_die()
                    one.live_to_the_end()
                    batches += one.check()
                except BaseException:
                    print(f"round {seed} failed; its log:", file=sys.stderr)
                    print((own / "log").read_text(), file=sys.stderr)
                    raise
                finally:
                    one.close()
                odd, kills, seed = odd + one.odd, kills + LIVES, seed + 1
    finally:
        shutil.rmtree(folder)
    return odd, kills, batches


def _main() -> None:
    parser = argparse.ArgumentParser(description="Send a daemon what it does not expect.")
    parser.add_argument("messages", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    asked = parser.parse_args()
    begun = time.monotonic()
    odd, kills, batches = run(asked.messages, asked.seed)
    sent = ", ".join(f"{count} to {name}" for name, count in odd.items())
    print(
        f"{odd.total()} odd messages in {time.monotonic() - begun:.0f} s: {sent}; {kills} kills, "
        f"{batches} batches of others: lost 0, twice 0, divergent 0"
    )


if __name__ == "__main__":
    _main()
