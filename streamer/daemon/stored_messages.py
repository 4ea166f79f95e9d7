"""What the feed said about a batch, from its record: no column is looked into.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...

as ``stored_batch`` describes them. This module imports no numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from streamer.journal.record import Record
from streamer.protocol.header import PROTOCOL, Buffer, size_of

BATCH = "batch"
"""Kind of a record about a batch."""

FRAMES_OF_READS = 5
"""Frames before those of the topics."""


def stored_topics(kind: str, meta: bytes) -> dict[str, int]:
    """The topics that a record has messages on; of each the last record before with one."""
    if kind != BATCH:
        return {}
    return {topic: prev for topic, prev, *_ in msgpack.unpackb(meta)["topics"]}


class StoredMessages:
    """The messages about a record; none for one that is about no batch.

    stream, epoch: what their headers are to name.
    """

    def __init__(self, record: Record, stream: str, epoch: int) -> None:
        self.at = record.at
        self.size = len(record.meta) + size_of(record.frames)
        self.prev: Mapping[str, int] = {}
        self._record = record
        self._stamp = {"v": PROTOCOL, "stream": stream, "epoch": epoch}
        self._stamp |= {"at": record.at, "time": record.time}
        self._made: dict[str, list[Buffer]] = {}
        if record.kind == BATCH:
            meta = msgpack.unpackb(record.meta)
            self._about = meta["about"]
            self._topics = {topic: more for topic, *more in meta["topics"]}
            self.prev = {topic: prev for topic, (prev, *_) in self._topics.items()}

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum; KeyError if there is none.

        ``epoch`` and ``time`` are those of now and of the record, all else is as it was.
        """
        if topic not in self._made:
            self._made[topic] = self._make(topic)
        return self._made[topic]

    def _make(self, topic: str) -> list[Buffer]:
        wire = f"{topic}."
        prev, fields, described = self._topics[topic]
        further = {"topic": wire, "prev": prev, "columns": described}
        header = msgpack.packb(self._stamp | further | self._about | fields)
        first = FRAMES_OF_READS
        for before, (*_, columns) in self._topics.items():
            if before == topic:
                break
            first += len(columns)
        frames = self._record.frames
        return [wire.encode(), header, frames[0], *frames[first : first + len(described)]]
