"""Messages of sync in plain msgpack, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from tests.reference import crc32c as definition


def asked(fields: Mapping[str, Any], body: bytes | None = None) -> list[bytes]:
    """The frames of a request; ``body``: replaces its header."""
    head = msgpack.packb({"v": 2} | dict(fields)) if body is None else body
    return [head, definition.crc32c(head).to_bytes(4, "little")]


def parsed(frames: Sequence[Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Header and further frames of an answer, without its checksum."""
    head, *rest, _ = frames
    return msgpack.unpackb(head), [bytes(frame) for frame in rest]
