"""Messages on the wire: honest seeds, and what becomes of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
from crc32c import crc32c

from tests.fuzz.page import TOPICS

_INTEGERS = (
    *(0, 1, 2, 3, 7, -1, 64, 255, 4096, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
)
_TEXTS = (
    *("", "columns", "list", "hello", "batch", "match", "match.", "read.", "beat.", "word."),
    *("x" * 16, "x" * 256, "x" * 257, "é", "\u200b", "a\nb", "\x00", " ", "\U0010ffff", "\u3000"),
    *("odd", "ödd", "honest-0", "honest-1", "odd*", "0123456789abcdef", "status", "drain"),
    *("running", "ended", "failed", "barcode", "a", "t"),
)
_OTHERS = (None, True, False, 1.0, 2.0, 1.5, float("nan"), float("inf"))
_BYTES = (b"", b"\0", b"m", b"\xff" * 4, b"\0" * 8, b"x" * 256, b"x" * 257, b"\x91" * 40)
_DEEP = (60, 520, 990, 1015)


class Mutator:
    """Makes messages from ``seeds``.

    aim: fields that let a header to a socket pass more checks in the current state.
    """

    def __init__(
        self,
        seeds: Sequence[Message],
        aim: Callable[[str, dict[Any, Any], random.Random], dict[str, Any]] = lambda *_: {},
    ) -> None:
        self.aim = aim
        self.seeds: dict[str, list[Sequence[bytes]]] = {}
        self._fields: dict[bytes, dict[Any, Any]] = {}
        keys: dict[str, None] = {}
        for message in seeds:
            self.seeds.setdefault(message.socket, []).append(message.frames)
            for frame in message.frames[:2]:
                fields = self._fields_of(frame)
                keys |= dict.fromkeys(key for key in fields or () if isinstance(key, str))
        self.keys = [*keys]
        self.sockets = [*self.seeds]

    def _fields_of(self, frame: bytes) -> dict[Any, Any] | None:
        """The fields of a header; those of seeds are cached."""
        known = self._fields.get(frame)
        if known is not None:
            return known
        try:
            fields = msgpack.unpackb(frame, strict_map_key=False)
        except Exception:
            return None
        if not isinstance(fields, dict):
            return None
        if len(self._fields) < 4096:
            self._fields[frame] = fields
        return fields

    def make(self, rng: random.Random, socket: str) -> list[bytes]:
        """The frames of a message to a socket."""
        frames = rng.choice(self.seeds[socket])
        return self.changed(rng, socket, frames)

    def changed(self, rng: random.Random, socket: str, frames: Sequence[bytes]) -> list[bytes]:
        """A mutated message, perhaps unchanged."""
        if socket == "feed":
            return [self._damaged(rng, frames[0])] if frames else [b""]
        chance = rng.random()
        if chance < 0.04:
            return [self._damaged(rng, frame) if rng.random() < 0.4 else frame for frame in frames]
        body = list(frames[:-1])
        at = 1 if socket == "message" else 0
        if len(body) > at and chance < 0.85:
            body[at] = self._header(rng, socket, body[at])
        if len(body) > at + 1 and rng.random() < 0.4:
            self._change_frames(rng, body, at + 1)
        if chance > 0.97:
            body.insert(rng.randrange(len(body) + 1), self._bytes(rng))
        made = sealed(body)
        if chance > 0.98:
            made[-1] = rng.choice((b"", b"\0\0\0\0", made[-1][:3], made[-1] + b"\0"))
        return made

    def _header(self, rng: random.Random, socket: str, frame: bytes) -> bytes:
        known = self._fields_of(frame)
        if known is None:
            return self._damaged(rng, frame)
        fields = known | self.aim(socket, known, rng)
        for _ in range(int(rng.random() * 3)):
            chance = rng.random()
            key: Any = rng.choice(self.keys) if chance < 0.5 else self._own_key(rng, fields)
            if chance > 0.9:
                fields.pop(key, None)
            elif chance < 0.01:
                fields[rng.choice((1, b"x", None, 1.5, b"v"))] = 1
            else:
                fields[key] = self._like(rng, fields.get(key))
        try:
            packed: bytes = msgpack.packb(fields)
        except (ValueError, OverflowError, TypeError):
            return self._damaged(rng, frame)
        if rng.random() < 0.01:
            return self._damaged(rng, packed)
        if rng.random() < 0.002 and len(fields) < 15:
            # one more key, whose value is nested too deeply to be printed
            deep = rng.choice(_DEEP)
            key = msgpack.packb(rng.choice(self.keys))
            return bytes([packed[0] + 1]) + packed[1:] + key + b"\x91" * deep + b"\x01"
        return packed

    def _own_key(self, rng: random.Random, fields: dict[Any, Any]) -> Any:
        return rng.choice([*fields]) if fields else "v"

    def _like(self, rng: random.Random, value: Any, depth: int = 0) -> Any:
        """A value like another one, or an arbitrary one."""
        chance = rng.random()
        if chance < 0.25:
            return self.value(rng, depth)
        match value:
            case bool():
                return not value
            case int():
                return (
                    value + rng.choice((-1, 1, 1, 2, 256)) if chance < 0.7 else self._integer(rng)
                )
            case str():
                return rng.choice(_TEXTS) if chance < 0.7 else value + rng.choice(_TEXTS)[:3]
            case bytes():
                return self._damaged(rng, value)
            case list() if value:
                changed = list(value)
                at = rng.randrange(len(changed))
                if chance < 0.4:
                    del changed[at]
                elif chance < 0.6:
                    changed.append(self.value(rng, depth + 1))
                else:
                    changed[at] = self._like(rng, changed[at], depth + 1)
                return changed
            case dict() if value:
                changed = dict(value)
                key = rng.choice([*changed])
                if chance < 0.4:
                    del changed[key]
                else:
                    changed[key] = self._like(rng, changed[key], depth + 1)
                return changed
        return self.value(rng, depth)

    def _integer(self, rng: random.Random) -> int:
        return rng.choice(_INTEGERS) if rng.random() < 0.6 else rng.randrange(20)

    def value(self, rng: random.Random, depth: int = 0) -> Any:
        """Any value."""
        match int(rng.random() * 9):
            case 0 | 1:
                return self._integer(rng)
            case 2 | 3:
                return rng.choice(_TEXTS)
            case 4:
                return rng.choice(_OTHERS)
            case 5:
                return rng.choice(_BYTES)
            case 6 if depth < 4:
                return [self.value(rng, depth + 1) for _ in range(rng.randrange(4))]
            case 7 if depth < 4:
                return {rng.choice((*_TEXTS[:6], 1, b"x")): self.value(rng, depth + 1)}
            case 8:
                return rng.choice((msgpack.ExtType(5, b"odd"), msgpack.Timestamp(7)))
        return 0

    def _change_frames(self, rng: random.Random, body: list[bytes], first: int) -> None:
        """Change one of the frames from ``first`` on."""
        at = rng.randrange(first, len(body))
        chance = rng.random()
        if chance < 0.08:
            del body[at]
        elif chance < 0.12:
            body.append(body[at])
        elif chance < 0.45 and body[at][:1] and body[at][0] >= 0x80:
            body[at] = self._repacked(rng, body[at])
        elif chance < 0.5:
            body[at] = self._bytes(rng)
        else:
            body[at] = self._damaged(rng, body[at])

    def _repacked(self, rng: random.Random, frame: bytes) -> bytes:
        try:
            value = msgpack.unpackb(frame, strict_map_key=False)
            packed: bytes = msgpack.packb(self._like(rng, value))
        except Exception:
            return self._damaged(rng, frame)
        return packed

    def _bytes(self, rng: random.Random) -> bytes:
        return rng.choice(_BYTES) if rng.random() < 0.5 else rng.randbytes(rng.randrange(24))

    def _damaged(self, rng: random.Random, frame: bytes) -> bytes:
        """Change, add or remove bytes; replace numbers of 4 or 8 bytes."""
        size = len(frame)
        chance = rng.random()
        if not size or chance < 0.1:
            return self._bytes(rng)
        at = rng.randrange(size)
        if chance < 0.2:
            return frame[:at]
        if chance < 0.3:
            return frame[:at] + self._bytes(rng) + frame[at:]
        if chance < 0.4:
            return frame + frame[at:]
        if chance < 0.6 and not size % 4:
            width = 4 if size % 8 or rng.random() < 0.4 else 8
            at -= at % width
            number = self._integer(rng) & (2 ** (8 * width) - 1)
            return frame[:at] + number.to_bytes(width, "little") + frame[at + width :]
        changed = bytearray(frame)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(size)
            changed[at] = (
                changed[at] ^ 1 << rng.randrange(8) if chance < 0.8 else rng.randrange(256)
            )
        return bytes(changed)


SOCKETS = ("ingest", "control", "sync", "feed", "answer", "message", "replay")
"""Sockets of the daemon, then those of a producer, a subscriber and a puller."""

_SEALED = 0x80


class Message(NamedTuple):
    """A message to a socket, with all its frames."""

    socket: str
    frames: Sequence[bytes]


def sealed(frames: Sequence[bytes]) -> list[bytes]:
    """Frames followed by their checksum."""
    crc = 0
    for frame in frames:
        crc = crc32c(frame, crc)
    return [*frames, crc.to_bytes(4, "little")]


def encoded(message: Message) -> bytes:
    """A message encoded as an input."""
    frames = message.frames
    right = len(frames) > 1 and sealed(frames[:-1])[-1] == frames[-1]
    kept = frames[:-1] if right else frames
    first = SOCKETS.index(message.socket) | (_SEALED if right else 0)
    parts = [bytes([first])]
    for frame in kept:
        parts += [_length(len(frame)), frame]
    return b"".join(parts)


def decoded(data: bytes) -> Message:
    """The message that an input encodes; any bytes encode one."""
    if not data:
        return Message(SOCKETS[0], [])
    frames = []
    at = 1
    while at < len(data):
        size = shift = 0
        while at < len(data):
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        frames.append(data[at : at + size])
        at += size
    socket = SOCKETS[(data[0] & ~_SEALED) % len(SOCKETS)]
    return Message(socket, sealed(frames) if data[0] & _SEALED else frames)


def _length(size: int) -> bytes:
    made = bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    made.append(size)
    return bytes(made)


STREAM = "0123456789abcdef"
EPOCH = 1_600_000_000_000
_STATE = {"stream": STREAM, "session": 1, "state": "running", "producer": "p", "epoch": EPOCH}
_COUNTS = {"received": 1, "durable": 1, "matched": 0, "credit": 4096}


def _header(fields: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb({"v": 2} | fields)
    return packed


def columns(*reads: tuple[str, bytes], context: dict[str, Any] | None = None) -> list[bytes]:
    """The frames of a batch."""
    ends, letters = [0], b""
    for _, sequence in reads:
        letters += sequence
        ends.append(len(letters))
    frames = [msgpack.packb([name for name, _ in reads]), struct.pack(f"<{len(ends)}q", *ends)]
    return [*frames, letters, *([] if context is None else [msgpack.packb(context)])]


_READS = columns(("r1", b"ACGT"), ("r2", b"NACG"))
_CONTEXT = {
    "channel": struct.pack("<2i", 7, -1),
    "start_time": [20, b"2025-01-06T10:06:36Z" + bytes(20)],
    "run": [["run"], struct.pack("<2i", 0, -1)],
    "barcode": [["barcode04", "é"], struct.pack("<2i", 1, 0)],
    "sample": [[], struct.pack("<2i", -1, -1)],
}


def _ingest() -> list[list[bytes]]:
    made = []
    for name in ("odd", "ödd", "odd-2"):
        for epoch in (EPOCH, EPOCH + 1):
            keys = {"producer": name, "epoch": epoch}
            made.append([_header({"type": "hello", "versions": [2], **keys})])
            made.append([_header({"type": "hello", "need": 512, **keys})])
            for seq in (1, 2, 3, 4):
                batch = {"type": "batch", "seq": seq, **keys}
                mark = {"mark": b"m%d" % seq}
                made.append([_header(batch | {"form": "columns"} | mark), *_READS])
                reads = columns(("r1", b"ACGT"), ("r2", b"uryk"), context=_CONTEXT)
                made.append([_header(batch | {"form": "columns"}), *reads])
                listed = [["r1", "ACGT"], ["é", b"NACGU"]]
                made.append([_header(batch | {"form": "list"}), msgpack.packb(listed)])
            growing = batch | {"form": "columns", "growing": True}
            made.append([_header(growing), *columns(("g", b"ACGTACGT"))])
            made.append([_header(batch | {"form": "columns"}), *columns()])
    for name in ("honest-0", "honest-1"):
        keys = {"producer": name, "epoch": 1_700_000_000_000}
        made.append([_header({"type": "hello", **keys})])
        made.append([_header({"type": "batch", "seq": 1, "form": "columns", **keys}), *_READS])
    return [*map(sealed, made)]


def _control() -> list[list[bytes]]:
    made = []
    for command in ("status", "targets", "panel", "novelty", "drain", "reload", "coverage",
                    "submit", "jobs", "job", "cancel", "retry", "result", "nothing"):  # fmt: skip
        made.append([_header({"id": 1, "command": command})])
    made.append([_header({"command": "status", "subscriptions": True, "id": [1, {"a": b"b"}]})])
    made.append([_header({"command": "targets", "by": "barcode", "first": 0})])
    made.append([_header({"command": "coverage", "target": "a", "bins": 10})])
    for key in ("k" * 64, "k" * 65, 7):
        made.append([_header({"command": "reload", "key": key})])
    made.append([_header({"command": "ask", "form": "columns", "id": 2}), *_READS])
    made.append([_header({"command": "ask", "form": "list"}), msgpack.packb([["r1", "ACGT"]])])
    line = {"line": ["lcs", "a.fa", "b.fa"], "folder": "/tmp"}
    made.append([_header({"command": "submit", "id": 3, **line})])
    made.append([_header({"command": "result", "job": "01234567", "offset": 0})])
    return [*map(sealed, made)]


def _sync() -> list[list[bytes]]:
    made = []
    pull = {"type": "pull", "stream": STREAM, "topics": ["match.", "read"], "credit": 1000}
    for number in (1, 2, 3):
        for fields in (
            pull | {"after": 0},
            pull | {"after": 3, "until": 5},
            pull | {"after": 0, "topics": ["word", "beat.", "x"], "stream": ""},
            {"type": "snapshot", "credit": 100},
            {"type": "credit", "bytes": 100},
            {"type": "heads"},
            {"type": "stop"},
        ):
            made.append([_header({"id": number, **fields})])
    return [*map(sealed, made)]


def _answers() -> list[list[bytes]]:
    state = _STATE | _COUNTS
    welcome = {"type": "welcome", "version": 2, "max_batch_bytes": 4096, "durability": "fsync"}
    refused = {"type": "refused", "reason": "gap", "message": "a batch is missing", "seq": 2}
    fault = {"reason": "base", "read": "r1", "index": 0, "position": 3}
    return [
        sealed([_header(fields)])
        for fields in (
            state | welcome,
            state | welcome | {"mark": b"m", "received": 2},
            state | {"type": "ack"},
            state | {"type": "ack", "received": 3, "durable": 2, "matched": 2},
            state | refused,
            state | refused | {"reason": "credit"},
            state | refused | fault,
            {"type": "refused", "reason": "checksum", "message": "damaged"},
            {"type": "reply", "ok": True},
        )
    ]


ROWS: dict[str, dict[str, tuple[str, list[int]]]] = {
    "match": {"read": ("uint32", [0, 2]), "start": ("int64", [0, 7]), "end": ("int64", [13, 18]),
              "windows": ("int64", [3, 1]), "target": ("uint32", [4, 2**32 - 1])},
    "mismatch": {"read": ("uint32", [0, 2]), "start": ("int64", [0, 7]),
                 "end": ("int64", [13, 18]), "windows": ("int64", [3, 1])},
    "near": {"read": ("uint32", [0, 1]), "start": ("int64", [3, 0]), "end": ("int64", [13, 0]),
             "distance": ("uint8", [0, 2]), "strand": ("uint8", [0, 1]),
             "code": ("uint64", [0, 4**11 - 1]), "target": ("uint32", [4, 2**32 - 1]),
             "snapshot": ("int64", [1, 1]), "best": ("uint8", [0, 1])},
    "ltb": {"read": ("uint32", [0, 2]), "end": ("int64", [4, 0]), "distances": ("uint32", [6, 0]),
            "depths": ("uint32", [0, 1 << 11]), "snapshot": ("int64", [1, 1])},
    "delta": {"code": ("uint64", [4**11 - 1, 0]), "read": ("uint32", [0, 2]),
              "start": ("int64", [0, 9])},
    "word": {"word": ("uint64", [5, 6, 7]), "chunk_base": ("int64", [0, 9]),
             "chunk_version": ("int64", [1, 1]), "chunk_words": ("int64", [1, 2])},
    "read": {"read": ("uint32", [0, 1, 2]), "length": ("int64", [13, 0, 20]),
             "windows": ("int64", [3, 0, 2]), "matches": ("int64", [3, 0, 1]),
             "mismatches": ("int64", [0, 0, 1]), "skipped": ("int64", [0, 0, 8]),
             "best_target": ("int32", [4, -1, -1]), "channel": ("int32", [5, -1, 7]),
             "barcode": ("int32", [-1, 2, 2])},
    "decision": {"read": ("uint32", [0, 1]), "channel": ("int32", [-1, 7]),
                 "barcode": ("int32", [2, -1]), "action": ("uint8", [0, 2]),
                 "target": ("uint32", [4, 2**32 - 1]), "matches": ("int64", [2, 0]),
                 "windows": ("int64", [3, 0]), "bases": ("int64", [13, 0])},
    "retract": {"read": ("uint32", [0, 2])},
}  # fmt: skip
"""By topic, valid rows for three reads and k = 11."""


def _messages() -> list[list[bytes]]:
    """Messages of the feed."""
    stamp = {"stream": STREAM, "epoch": 5, "at": 17, "time": 9}
    origin = {"prev": 3, "batch": 0, "base": 0, "reads": 3, "bases": 33, "producer": "p"}
    origin |= {"producer_epoch": 1, "producer_seq": 1, "version_before": 1, "version": 1, "k": 11}
    named = {"targets": [[4, "phage"], [6, "x"]], "sets": [[4, [4, 6]]], "barcodes": [[2, "b"]]}
    named |= {"distance": 2, "seeded": 1}
    names = msgpack.packb(["a", "b", "ç"])
    made = []

    def about(topic: str, rows: dict[str, tuple[str, list[int]]], **more: Any) -> None:
        described = [[name, kind, len(values)] for name, (kind, values) in rows.items()]
        frames = [np.array(values, kind).tobytes() for kind, values in rows.values()]
        fields = {"topic": f"{topic}."} | stamp | origin | more | {"columns": described}
        made.append(sealed([f"{topic}.".encode(), _header(fields), names, *frames]))

    for topic, rows in ROWS.items():
        about(topic, rows, **named)
    parts = ("match", "mismatch", "near", "ltb", "read")
    joined = {f"{topic}.{name}": column for topic in parts for name, column in ROWS[topic].items()}
    further = {key: named[key] for key in ("targets", "sets", "distance")}
    about(
        "upgrade", joined, parts={f"{topic}.": further for topic in parts}, totals={"matches": -1}
    )
    heads = {f"{topic}.": 17 for topic in TOPICS[:11]}
    totals = {"reads": 3, "bases": 33, "bases_per_second": 1.5}
    status = {"state": "running", "totals": totals}
    rows = {"version": 1, "complete": True}
    shown = ["target", "reads", "bases", "matches", "kmers", "seen", "breadth", "depth"]
    row = ["phage", 1, 13, 3, 9, 3, 0.3, 0.4]
    for topic, fields in (
        ("settled", {"prev": 3, "version": 2, "from_batch": 4}),
        ("beat", {"heads": heads, "state": "running", "totals": totals, "version": 1,
                  "published": ["match.", "beat."]}),
        ("beat", {"heads": heads, "state": "ended", "totals": {}, "epoch": 6, "at": 20}),
        ("status", {"heads": heads, "status": status}),
        ("targets", {"columns": shown, "rows": [row, [None, *row[1:]]], **rows}),
        ("barcodes", {"columns": ["barcode", *shown], "rows": [[None, *row]], **rows}),
        ("enough", {"columns": ["barcode", "group", "target", "reads", "breadth", "depth"],
                    "rows": [["b", None, "phage", 1, 0.3, 0.4]], **rows}),
        ("novelty", {"columns": ["reads", "bases", "kmers", "new"], "rows": [[1, 2, 3, 4]],
                     "version": 1}),
        ("later", {"more": 1}),
        ("denied", {"reason": "denied", "topics": ["match."], "message": "no"}),
    ):  # fmt: skip
        frame = f"{topic}.".encode()
        made.append(sealed([frame, _header({"topic": f"{topic}."} | stamp | fields)]))
    return made


def _replays() -> list[list[bytes]]:
    extent = {"stream": STREAM, "epoch": 5, "oldest": 1, "head": 17, "heads": {"match.": 17}}
    made = [
        [_header({"type": "pulling", "id": 1, "credit": 1000, "unknown": ["x."]})],
        [_header({"type": "reached", "id": 1, "at": 17, **extent})],
        [_header({"type": "reset", "id": 1, "reason": "too-old", "after": 0, **extent})],
        [_header({"type": "lost", "id": 1, "after": 3, "until": 4, "message": "damaged"})],
        [_header({"type": "heads", "id": 1, **extent})],
        [_header({"type": "beat", **extent})],
        [_header({"type": "stopped", "id": 1})],
        [_header({"type": "refused", "id": 1, "reason": "credit", "message": "no room"})],
        [_header({"type": "refused", "reason": "checksum", "message": "damaged"})],
    ]
    state = {"stream": STREAM, "at": 17, "version": 1, "batch": 4, "base": 99, "kmers": 2}
    state |= {"heads": {"match.": 17}, "totals": {"reads": 3}, "parts": 2, "id": 2}
    for part in (1, 2):
        made.append([_header({"type": "snapshot", "part": part, **state}), bytes(8)])
    for frames in _messages():
        topic = frames[0].decode()
        made.append([_header({"type": "message", "id": 1, "topic": topic}), *frames[:-1]])
    return [*map(sealed, made)]


def seeds() -> list[Message]:
    """All of them."""
    of = {"ingest": _ingest(), "control": _control(), "sync": _sync(), "answer": _answers()}
    of |= {"message": _messages(), "replay": _replays()}
    prefixes = [
        b"",
        b"m",
        b"match.",
        b"zzz",
        b"beat",
        b"denied.",
        *(f"{t}.".encode() for t in TOPICS),
    ]
    of["feed"] = [[first + prefix] for prefix in prefixes for first in (b"\1", b"\0")]
    return [Message(socket, frames) for socket, many in of.items() for frames in many]
