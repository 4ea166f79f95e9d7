"""The feed's messages about a record, rebuilt from the record without decoding its columns.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...

as ``stored_batch`` describes them. A revision has only the names before its columns; other records
that are not batches have no messages with columns. This module does not import numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from streamer.journal.record import Record
from streamer.protocol.header import PROTOCOL, Buffer, Header, size_of

BATCH, DICTIONARY, REVISION, SETTLED = "batch", "dictionary", "revision", "settled"
"""Kinds of records."""

FRAMES_OF_READS = 5
"""Frames of a batch before those of the topics."""

_FRAMES_BEFORE = {BATCH: FRAMES_OF_READS, REVISION: 1, SETTLED: 0}
"""The same for each kind of record that has messages."""


def stored_topics(kind: str, meta: bytes) -> dict[str, int]:
    """The topics that a record has messages on, each with the last record before on that topic."""
    if kind not in _FRAMES_BEFORE:
        return {}
    return {topic: prev for topic, prev, *_ in msgpack.unpackb(meta)["topics"]}


def frames_of(
    topic: str,
    header: Header,
    names: Buffer | None,
    described: Sequence[Any],
    columns: Sequence[Buffer],
) -> list[Buffer]:
    """A message without its checksum; names: those of the reads, None if there is no batch."""
    wire = f"{topic}.".encode()
    if names is None:
        return [wire, msgpack.packb(header)]
    return [wire, msgpack.packb(header | {"columns": described}), names, *columns]


class StoredMessages:
    """The messages about a record.

    stream, epoch: the values for their headers.
    """

    def __init__(self, record: Record, stream: str, epoch: int) -> None:
        self.at = record.at
        self.size = len(record.meta) + size_of(record.frames)
        self.prev: Mapping[str, int] = {}
        self._record = record
        self._stamp = {"v": PROTOCOL, "stream": stream, "epoch": epoch}
        self._stamp |= {"at": record.at, "time": record.time}
        self._made: dict[str, list[Buffer]] = {}
        if record.kind in _FRAMES_BEFORE:
            meta = msgpack.unpackb(record.meta)
            self._about = meta["about"]
            self._topics = {topic: more for topic, *more in meta["topics"]}
            self.prev = {topic: prev for topic, (prev, *_) in self._topics.items()}

    def message(self, topic: str) -> Sequence[Buffer]:
        """The frames of the feed's message, without their checksum; KeyError if there is none.

        ``epoch`` is the current one, ``time`` that of the record; all else is as it was.
        """
        if topic not in self._made:
            self._made[topic] = self._make(topic)
        return self._made[topic]

    def _make(self, topic: str) -> list[Buffer]:
        prev, fields, described = self._topics[topic]
        header = self._stamp | {"topic": f"{topic}.", "prev": prev} | self._about | fields
        first = _FRAMES_BEFORE[self._record.kind]
        names = self._record.frames[0] if first else None
        for before, (*_, columns) in self._topics.items():
            if before == topic:
                break
            first += len(columns)
        columns = self._record.frames[first : first + len(described)]
        return frames_of(topic, header, names, described, columns)
