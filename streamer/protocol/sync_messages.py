"""Messages on the sync socket: requests of a client, and the parts of any message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamer.protocol.header import PROTOCOL, Buffer, Header, pack, seal, unpack, unseal


def request(kind: str, number: int, **fields: Any) -> list[Buffer]:
    """The frames of a request; number: its id, which the answers repeat."""
    return seal([pack({"v": PROTOCOL, "type": kind, "id": number} | fields)])


def opened(frames: Sequence[Buffer], crc: int | None = None) -> tuple[Header, Sequence[Buffer]]:
    """The header and the frames after it; WireError if the message is damaged.

    crc: the checksum of all frames but the last, if known.
    """
    head, *body = unseal(frames, crc=crc)
    return unpack(head), body
