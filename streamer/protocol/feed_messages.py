"""Messages of the feed: topic, header, then the names of a batch and columns of numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.protocol.batch_messages import decode_names
from streamer.protocol.header import (
    PROTOCOL,
    UNPACK_ERRORS,
    Buffer,
    Header,
    Reason,
    WireError,
    integers,
    not_msgpack,
    raw,
    seal,
    text_keys,
    unseal,
)
from streamer.protocol.schema import FEED, RECORD_TOPICS, TOPICS
from streamer.sequences.packed_names import PackedNames

Columns = dict[str, NDArray[Any]]

DENIED_TOPIC = "denied."
"""Subscribe to exactly this to be told what one's own key may not watch."""

_STAMP = ("at", "prev", "epoch", "time")
_NOTICE_STAMP = ("at", "epoch", "time")
_STREAM_DIGITS = 16
_TOPIC_FRAMES = {topic.name: topic.wire.encode() for topic in FEED}
_WIRE = {topic.name: topic.wire for topic in FEED}
_NAMES = {topic.wire.encode(): topic.name for topic in FEED}
# cached, because NumPy makes a dtype's name, or a dtype from a name, again each time
_DTYPES = {column.type_name: column.dtype for topic in FEED for column in topic.columns}
_TYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message of the feed, its checksum verified.

    topic: its name without the dot, empty if unknown, since a later daemon may have more. header:
    as sent. names: those of all reads of the batch, indexed by column ``read``. columns: arrays by
    name, without unknown types; empty for topics that are not about a batch.
    """

    topic: str
    header: Header
    names: Sequence[str]
    columns: Columns


def encode_feed(topic: str, header: Header, names: bytes, columns: Columns) -> list[Buffer]:
    """The frames of a message about a batch; ``header`` gets the columns."""
    head = encode_head(topic, header, describe(columns))
    return seal([*head, names, *(raw(values) for values in columns.values())])


def describe(columns: Columns) -> list[tuple[str, str, int]]:
    """Name, type and rows of each column."""
    return [(name, _TYPE_NAMES[values.dtype], values.size) for name, values in columns.items()]


def encode_head(
    topic: str, header: Header, described: Sequence[tuple[str, str, int]]
) -> list[Buffer]:
    """The topic and the header of a message about a batch; ``header`` gets the columns.

    described: name, type and rows of each column.
    """
    header["columns"] = described
    return [_TOPIC_FRAMES[topic], msgpack.packb(header)]


def encode_notice(topic: str, header: Header) -> list[Buffer]:
    """The frames of a message that is not about a batch: it only has a header."""
    return seal([_TOPIC_FRAMES[topic], msgpack.packb(header)])


def encode_denied(key: str, header: Header) -> list[Buffer]:
    """The frames of a message that tells the owner of a public key what it may not watch."""
    about = {"topic": DENIED_TOPIC, "reason": Reason.DENIED.value}
    return seal([f"{DENIED_TOPIC}{key}".encode(), msgpack.packb(header | about)])


def described(topic: str, header: Header) -> str:
    """A message's topic and record, for error messages."""
    at = header.get("at")
    return f"topic '{topic[:40]}', record {at if type(at) is int else 'unnumbered'}"


def decode_feed(
    frames: Sequence[Buffer], crc: int | None = None, previous: Sequence[str] = ()
) -> FeedMessage:
    """Decode a message of the feed; WireError if it is damaged or of another protocol.

    The columns are views of the frames. crc: the checksum of all frames but the last, if known.
    previous: the names in the previous message, which are reused if they are the same.
    """
    return decode_body(unseal(frames, header=1, crc=crc), previous)


def decode_body(frames: Sequence[Buffer], previous: Sequence[str] = ()) -> FeedMessage:
    """As ``decode_feed``, but from frames without the checksum, which was verified before."""
    if len(frames) < 2:
        raise WireError(Reason.MALFORMED, "a message has a topic and a header")
    topic = _NAMES.get(bytes(frames[0]), "")
    try:
        header = msgpack.unpackb(frames[1], object_hook=text_keys)
    except UNPACK_ERRORS as error:
        raise not_msgpack(f"{_shown(frames)}: the header", error) from None
    version = header.get("v") if isinstance(header, dict) else None
    if type(version) is not int or version != PROTOCOL:
        raise WireError(Reason.VERSION, f"{_shown(frames)}: not protocol version {PROTOCOL}")
    if not topic:
        return FeedMessage("", header, (), {})
    try:
        return _decode(topic, header, frames[2:], previous)
    except WireError as error:
        raise error.about(described(topic, header)) from None


def _shown(frames: Sequence[Buffer]) -> str:
    topic = bytes(frames[0]).decode("ascii", "replace")
    return f"topic '{topic.removesuffix('.')[:40]}'"


def _decode(
    topic: str, header: Header, data: Sequence[Buffer], previous: Sequence[str]
) -> FeedMessage:
    if header.get("topic") != _WIRE[topic]:
        raise WireError(Reason.MALFORMED, "the header names another topic")
    stream = header.get("stream")
    if not isinstance(stream, str) or len(stream) != _STREAM_DIGITS:
        raise WireError(Reason.MALFORMED, f"field 'stream' must have {_STREAM_DIGITS} characters")
    if not TOPICS[topic].columns:
        integers(header, _STAMP if topic in RECORD_TOPICS else _NOTICE_STAMP)
        return FeedMessage(topic, header, (), {})
    integers(header, _STAMP)
    if not data:
        raise WireError(Reason.MALFORMED, "no names")
    packed = bytes(data[0])
    same = isinstance(previous, PackedNames) and previous.packed == packed
    names = previous if same else decode_names(packed)
    return FeedMessage(topic, header, names, decode_columns(header, data[1:]))


def decode_columns(header: Header, frames: Sequence[Buffer]) -> Columns:
    """The columns that a header describes, without unknown types; WireError if they do not fit."""
    entries = header.get("columns")
    if not isinstance(entries, list) or len(entries) != len(frames):
        raise WireError(Reason.MALFORMED, "columns and frames do not agree")
    columns: Columns = {}
    for entry, frame in zip(entries, frames, strict=True):
        # plain steps: a match pattern takes six times as long as all of them
        if not isinstance(entry, list) or len(entry) < 3:
            raise WireError(Reason.MALFORMED, "a column without a description")
        name, type_name, rows = entry[:3]
        if not isinstance(type_name, str) or not isinstance(name, str) or type(rows) is not int:
            raise WireError(Reason.MALFORMED, "a column without a description")
        dtype = _DTYPES.get(type_name)
        if dtype is None:
            continue
        if len(frame) != rows * dtype.itemsize or name in columns:
            raise WireError(
                Reason.MALFORMED, f"column '{name[:40]}' has the wrong length or comes twice"
            )
        values = np.frombuffer(frame, dtype)
        columns[name] = values if sys.byteorder == "little" else values.byteswap()
    return columns
