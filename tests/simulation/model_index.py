"""The model journal's index: consecutive transactions, and their combined state.

Each is preceded by its length and a checksum that continues that of the previous one, so data that
an earlier life left beyond the end is never mistaken for a transaction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from streamer.journal.record import Key, Received
from streamer.protocol.header import crc32c

_HEAD = struct.Struct("<II")


class Row(NamedTuple):
    """The index entry of a record."""

    at: int
    kind: str
    meta: bytes
    offset: int
    lengths: list[int]
    sum: int
    key: list[Any] | None
    time: int
    about: int | None
    lost: bool = False


class StoredSnapshot(NamedTuple):
    """The index entry of a snapshot; without a file it was given up."""

    at: int
    file: str
    lengths: list[int]
    sum: int
    meta: bytes


@dataclass
class Committed:
    """The state after the transactions so far."""

    stream: str = ""
    epoch: int = 0
    head: int = 0
    oldest: int = 1
    rows: dict[int, Row] = field(default_factory=dict)
    producers: dict[str, Received] = field(default_factory=dict)
    contents: dict[tuple[str, int, int], int] = field(default_factory=dict)
    snapshot: StoredSnapshot | None = None
    # the ends of the data and of the index
    data_end: int = 0
    end: int = 0
    _chain: int = 0

    @classmethod
    def read(cls, index: bytes) -> Committed:
        """Read all complete transactions of an index."""
        found = cls()
        while found.take(index[found.end :]):
            pass
        return found

    def packed(self, change: dict[str, Any]) -> bytes:
        """The next transaction."""
        body: bytes = msgpack.packb(change)
        return _HEAD.pack(len(body), self._sum(body)) + body

    def take(self, data: bytes) -> bool:
        """Apply the transaction at the beginning of ``data``; returns whether there is one."""
        if len(data) < _HEAD.size:
            return False
        size, crc = _HEAD.unpack(data[: _HEAD.size])
        body = data[_HEAD.size : _HEAD.size + size]
        if not size or len(body) < size or self._sum(body) != crc:
            return False
        self._apply(msgpack.unpackb(body))
        self.end += _HEAD.size + size
        self._chain = crc
        return True

    def _sum(self, body: bytes) -> int:
        return crc32c([self._chain.to_bytes(4, "little"), body])

    def _apply(self, change: dict[str, Any]) -> None:
        self.stream = change.get("stream", self.stream)
        self.epoch = change.get("epoch", self.epoch)
        for fields in change.get("rows", ()):
            row = Row(*fields)
            self._forget(row.at)
            self.rows[row.at] = row
            self.head = max(self.head, row.at)
            self.data_end = max(self.data_end, row.offset + sum(row.lengths))
            if row.key is not None:
                key = Key(*row.key)
                self.producers[key.producer] = Received(*key[:3], key.mark, row.time)
                self.contents[key[:3]] = key.content
        for name, epoch, time in change.get("begun", ()):
            before = self.producers.get(name)
            self.producers[name] = Received(name, epoch, 0, before.mark if before else b"", time)
        self.oldest = change.get("oldest", self.oldest)
        for at in [at for at in self.rows if at < self.oldest]:
            self._forget(at)
        if "snapshot" in change:
            self.snapshot = StoredSnapshot(*change["snapshot"])

    def _forget(self, at: int) -> None:
        row = self.rows.pop(at, None)
        if row is not None and row.key is not None:
            del self.contents[Key(*row.key)[:3]]
