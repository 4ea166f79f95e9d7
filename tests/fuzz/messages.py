"""Messages as inputs of a fuzzer: bytes that always mean a message.

The first byte says which socket it goes to, and whether its checksum is to be added, so that what
is behind a checksum is reached; then come the frames, the length of each in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

SOCKETS = ("ingest", "control", "sync", "feed", "answer", "message", "replay")
"""Of the daemon; then what comes to a producer, to a subscriber, and to who pulls."""

_SEALED = 0x80


class Message(NamedTuple):
    """A message to a socket, all its frames."""

    socket: str
    frames: Sequence[bytes]


def sealed(frames: Sequence[bytes]) -> list[bytes]:
    """Frames with their checksum behind them."""
    crc = 0
    for frame in frames:
        crc = crc32c(frame, crc)
    return [*frames, crc.to_bytes(4, "little")]


def encoded(message: Message) -> bytes:
    """A message as an input."""
    frames = message.frames
    right = len(frames) > 1 and sealed(frames[:-1])[-1] == frames[-1]
    kept = frames[:-1] if right else frames
    first = SOCKETS.index(message.socket) | (_SEALED if right else 0)
    parts = [bytes([first])]
    for frame in kept:
        parts += [_length(len(frame)), frame]
    return b"".join(parts)


def decoded(data: bytes) -> Message:
    """What an input means; any bytes mean something."""
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
