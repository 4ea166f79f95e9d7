"""A batch as stored in a record of the journal.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...  context

names: a msgpack array. offsets: int64. bases, gaps: the reads as ``trie.codes`` packs them.
learned: uint64, ``BatchResult.learned``. The columns are those of the feed's messages, so a replay
repeats the same content. Event words are not stored. context: as its producer sent it, present if
the meta has ``context``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.daemon.stored_messages import Content, stored_contents
from streamer.journal.record import Record
from streamer.protocol.header import Buffer, Header
from streamer.protocol.payloads import decode_context, decode_names
from streamer.protocol.schema import LIVE_ONLY
from streamer.sequences.read_batch import ReadBatch
from trie.codes import unpack_codes


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
        for topic, _, content in stored_contents(self._record, self._meta):
            if topic not in LIVE_ONLY:
                yield topic, content

    def _delta(self) -> Sequence[Buffer]:
        for topic, content in self.contents():
            if topic == "delta":
                return content.frames
        return b"", b"", b""

    def _array(self, frame: int, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(self._record.frames[frame], dtype)
