"""Converts a matched batch to a record of the journal, and back.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...  context

names: a msgpack array. offsets: int64. bases, gaps: the reads as ``trie.codes`` packs them.
learned: uint64, ``BatchResult.learned``. The columns are those of the feed's messages, so a replay
repeats the same content. Event words are not stored. context: as its producer sent it, present if
the meta has ``context``.

The feed's messages about a record, rebuilt from the record without decoding its columns.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...

as ``stored_batch`` describes them. A revision has only the names before its columns; other records
that are not batches have no messages with columns. This module does not import numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.daemon.publish import Content, Publication
from streamer.journal.record import Key, Record
from streamer.protocol.header import PROTOCOL, Buffer, Header, raw, size_of
from streamer.protocol.payloads import decode_context, decode_names, encode_context
from streamer.protocol.schema import LIVE_ONLY
from streamer.sequences.read_batch import ReadBatch
from trie.codes import unpack_codes

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


def to_record(publication: Publication, now: int) -> Record:
    """The record of a batch; ``now`` is in nanoseconds since 1970."""
    matched = publication.matched
    accepted, result = matched.accepted, matched.result
    packed, gaps = result.batch.two_bits()
    frames: list[Buffer] = [
        accepted.names,
        raw(result.batch.offsets),
        packed.data,
        raw(gaps),
        raw(result.learned),
    ]
    topics = []
    for topic, prev in publication.prev.items():
        if topic in LIVE_ONLY:
            topics.append([topic, prev, {}, []])
            continue
        fields, described, columns = publication.content(topic)
        topics.append([topic, prev, fields, described])
        frames += columns
    meta: Header = {"about": publication.about, "counts": publication.counts, "topics": topics}
    context = encode_context(accepted.batch.context)
    if context is not None:
        meta["context"] = True
        frames.append(context)
    key = Key(
        accepted.producer.name, accepted.epoch, accepted.sequence, accepted.content, accepted.mark
    )
    return Record(matched.at, BATCH, msgpack.packb(meta), tuple(frames), key, now)


class StoredBatch:
    """A batch as stored in a record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._meta: Header = msgpack.unpackb(record.meta)
        self.at = record.at
        self.about: Header = self._meta["about"]
        """The header fields that all messages about the batch share."""
        self.counts: dict[str, int] = self._meta["counts"]
        self.prev: dict[str, int] = {topic: prev for topic, prev, *_ in self._meta["topics"]}
        """The topics that it has messages on, each with the last ``at`` before on that topic."""

    @property
    def names(self) -> bytes:
        """The names of its reads, as a msgpack array."""
        return bytes(self._record.frames[0])

    @property
    def reads(self) -> ReadBatch:
        """Its reads."""
        offsets = self.offsets
        bases = unpack_codes(self._array(2, np.uint8), self._array(3, np.int64), int(offsets[-1]))
        names, context = decode_names(self.names), None
        if self._meta.get("context"):
            context = decode_context(self._record.frames[-1], len(names))
        return ReadBatch(names, offsets, bases, context)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The offsets of the reads among its symbols, from 0: int64[reads + 1]."""
        return self._array(1, np.int64)

    @property
    def learned(self) -> NDArray[np.uint64]:
        """``BatchResult.learned``."""
        return self._array(4, np.uint64)

    @property
    def new_kmers(self) -> NDArray[np.uint64]:
        """The k-mers that it added to the dictionary: uint64[k-mers]."""
        codes, _, _ = self._delta()
        return np.frombuffer(codes, np.uint64)

    @property
    def new_starts(self) -> NDArray[np.int64]:
        """``BatchResult.new_starts``."""
        _, reads, starts = self._delta()
        return self.offsets[np.frombuffer(reads, np.uint32)] + np.frombuffer(starts, np.int64)

    def contents(self) -> Iterator[tuple[str, Content]]:
        """Its messages by topic, in order."""
        first = FRAMES_OF_READS
        for topic, _, fields, described in self._meta["topics"]:
            if topic in LIVE_ONLY:
                continue
            stop = first + len(described)
            yield topic, Content(fields, described, self._record.frames[first:stop])
            first = stop

    def _delta(self) -> Sequence[Buffer]:
        for topic, content in self.contents():
            if topic == "delta":
                return content.frames
        return b"", b"", b""

    def _array(self, frame: int, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(self._record.frames[frame], dtype)
