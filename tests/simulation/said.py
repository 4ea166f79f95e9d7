"""The content of a message of the feed as bytes, without its time and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import msgpack
import numpy as np

from streamer.client.messages import BatchMessage, RecordMessage, typed
from streamer.daemon.stored_messages import StoredMessages
from streamer.journal.record import Record
from streamer.protocol.payloads import decode_body
from streamer.protocol.schema import LIVE_ONLY
from streamer.protocol.wire import Header

_NOT_COMPARED = ("epoch", "time")


def said(message: RecordMessage) -> bytes:
    """The content of a message."""
    head = sorted((k, v) for k, v in message.stamp.head.items() if k not in _NOT_COMPARED)
    names = [*message.origin.names] if isinstance(message, BatchMessage) else None
    packed: bytes = msgpack.packb([head, names, [*_columns(message)]])
    return packed


def _columns(message: RecordMessage) -> Iterator[bytes]:
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray):
            yield value.tobytes()
        elif field.name == "parts":
            for part in value.values():
                yield from _columns(part)


def stored(record: Record, stream: str) -> dict[str, RecordMessage]:
    """The messages of a record by topic, as a subscriber gets them."""
    messages = StoredMessages(record, stream, 0)
    found = {}
    for topic in messages.prev:
        if topic not in LIVE_ONLY:
            message = typed(decode_body(messages.message(topic)))
            assert isinstance(message, RecordMessage)
            found[topic] = message
    return found


def told(record: Record) -> Iterator[tuple[str, Header, list[bytes]]]:
    """The messages of a record, as a client without this project takes them apart."""
    messages = StoredMessages(record, "0" * 16, 0)
    for topic in messages.prev:
        if topic not in LIVE_ONLY:
            _, header, *frames = messages.message(topic)
            yield topic, msgpack.unpackb(header), [bytes(frame) for frame in frames]
