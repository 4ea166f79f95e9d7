"""Odd and damaged messages to every socket of a daemon: none of their batches may be accepted.

Each lacks something, or its key (producer, epoch, sequence) is taken.
"""

from __future__ import annotations

import random
from typing import Any

import msgpack

from tests.faults.plain_client import Header, seal

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
