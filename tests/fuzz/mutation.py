"""Odd messages from real ones, by changes of fields, frames and bytes from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

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
