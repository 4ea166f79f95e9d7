"""The feed's messages about a record, rebuilt from the record without decoding its columns.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...

as ``stored_batch`` describes them. A revision has only the names before its columns; other records
that are not batches have no messages with columns. This module does not import numba.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.journal.record import Record
from streamer.protocol.wire import PROTOCOL, Buffer, Header, size_of

BATCH, DICTIONARY, REVISION, SETTLED = "batch", "dictionary", "revision", "settled"
"""Kinds of records."""

FRAMES_OF_READS = 5
"""Frames of a batch before those of the topics."""

_FRAMES_BEFORE = {BATCH: FRAMES_OF_READS, REVISION: 1, SETTLED: 0}
"""The same for each kind of record that has messages."""


class Content(NamedTuple):
    """The content of a message: header fields, described columns, their frames."""

    fields: Header
    described: Sequence[tuple[str, str, int]]
    frames: Sequence[Buffer]

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name."""
        described = zip(self.described, self.frames, strict=True)
        return {name: np.frombuffer(frame, kind) for (name, kind, _), frame in described}

    def message(self, topic: str, header: Header, names: Buffer | None) -> list[Buffer]:
        """The message without its checksum; names: those of the reads, None without a batch."""
        wire, header = f"{topic}.".encode(), header | self.fields
        if names is None:
            return [wire, msgpack.packb(header)]
        return [wire, msgpack.packb(header | {"columns": self.described}), names, *self.frames]


def stored_topics(kind: str, meta: bytes) -> dict[str, int]:
    """The topics that a record has messages on, each with the last record before on that topic."""
    if kind not in _FRAMES_BEFORE:
        return {}
    return {topic: prev for topic, prev, *_ in msgpack.unpackb(meta)["topics"]}


class StoredRecord:
    """A record of the stream as stored.

    about: the header fields that all messages about it share. prev: the topics that it has messages
    on, in order, each with the last record before on that topic. contents: those of its messages;
    live-only topics have none.
    """

    def __init__(self, record: Record) -> None:
        self.at = record.at
        self.frames = record.frames
        self.meta: Header = msgpack.unpackb(record.meta)
        self.about: Header = self.meta["about"]
        self.prev: dict[str, int] = {}
        self.contents: dict[str, Content] = {}
        first = _FRAMES_BEFORE.get(record.kind, 0)
        for topic, prev, fields, described in self.meta["topics"]:
            stop = first + len(described)
            self.prev[topic] = prev
            self.contents[topic] = Content(fields, described, record.frames[first:stop])
            first = stop


class StoredMessages(StoredRecord):
    """The messages about a record.

    stream, epoch: the values for their headers.
    """

    def __init__(self, record: Record, stream: str, epoch: int) -> None:
        super().__init__(record)
        self.size = len(record.meta) + size_of(record.frames)
        self._names = record.frames[0] if _FRAMES_BEFORE.get(record.kind) else None
        self._stamp = {"v": PROTOCOL, "stream": stream, "epoch": epoch}
        self._stamp |= {"at": record.at, "time": record.time}
        self._made: dict[str, list[Buffer]] = {}

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum; KeyError if there is none.

        ``epoch`` is the current one, ``time`` that of the record; all else is as it was.
        """
        if topic not in self._made:
            header = self._stamp | {"topic": f"{topic}.", "prev": self.prev[topic]} | self.about
            self._made[topic] = self.contents[topic].message(topic, header, self._names)
        return self._made[topic]
