"""What the feed said about a batch, from its record: no column is looked into.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...

as ``stored_batch`` describes them. This module imports no numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgpack

from streamer.journal.record import Record
from streamer.protocol.header import PROTOCOL, Buffer, Header

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
        self.size = len(record.meta) + sum(map(len, record.frames))
        self.prev: Mapping[str, int] = {}
        self._record = record
        self._stream = stream
        self._epoch = epoch
        self._made: dict[str, list[Buffer]] = {}
        if record.kind == BATCH:
            self.prev = {topic: prev for topic, prev, *_ in self._meta["topics"]}

    @cached_property
    def _meta(self) -> Header:
        return dict(msgpack.unpackb(self._record.meta))

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum; KeyError if there is none.

        ``epoch`` and ``time`` are those of now and of the record, all else is as it was.
        """
        if not self._made:
            self._make()
        return self._made[topic]

    def _make(self) -> None:
        record, first = self._record, FRAMES_OF_READS
        names, about = record.frames[0], self._meta["about"]
        for topic, prev, fields, described in self._meta["topics"]:
            wire = f"{topic}."
            stamp = {"v": PROTOCOL, "topic": wire, "stream": self._stream, "epoch": self._epoch}
            stamp |= {"at": record.at, "prev": prev, "time": record.time}
            header = stamp | about | fields | {"columns": described}
            stop = first + len(described)
            self._made[topic] = [
                wire.encode(), msgpack.packb(header), names, *record.frames[first:stop]
            ]  # fmt: skip
            first = stop
