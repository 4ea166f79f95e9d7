"""Messages as inputs of a fuzzer: any bytes are a valid encoding of a message.

The first byte names its socket and whether a checksum is added, so that code behind the checksum is
reached; then come the frames, each preceded by its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

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
