"""A batch as stored in a record of the journal.

A record's meta is a msgpack map; its frames are

    names  offsets  bases  gaps  learned  columns of the first topic  of the next  ...  context

names: a msgpack array. offsets: int64. bases, gaps: the reads as ``trie.codes`` packs them.
learned: uint64, ``BatchResult.learned``. The columns are those of the feed's messages, so a replay
repeats the same content. Event words are not stored. context: as its producer sent it, present if
the meta has ``context``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.stored_messages import StoredRecord
from streamer.protocol.payloads import decode_context, decode_names
from streamer.protocol.wire import Buffer
from streamer.sequences.read_batch import ReadBatch
from trie.codes import unpack_codes


class StoredBatch(StoredRecord):
    """A batch as stored in a record."""

    @property
    def names(self) -> bytes:
        """The names of its reads, as a msgpack array."""
        return bytes(self.frames[0])

    @property
    def reads(self) -> ReadBatch:
        """Its reads."""
        offsets = self.offsets
        bases = unpack_codes(self._array(2, np.uint8), self._array(3, np.int64), int(offsets[-1]))
        names, context = decode_names(self.names), None
        if self.meta.get("context"):
            context = decode_context(self.frames[-1], len(names))
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

    def _delta(self) -> Sequence[Buffer]:
        content = self.contents.get("delta")
        return (b"", b"", b"") if content is None else content.frames

    def _array(self, frame: int, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(self.frames[frame], dtype)
