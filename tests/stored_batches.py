"""Records of batches as the daemon stores them, with random contents instead of matches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgpack
import numpy as np

from streamer.daemon.stored_messages import BATCH, FRAMES_OF_READS
from streamer.journal.record import Key, Record
from streamer.protocol.schema import TOPICS, Column

STORED = ("match", "mismatch", "delta", "read")
K = 11

_FIELDS = {
    "match": {"sets": [[0, [0]]], "targets": [[0, "t"]]},
    "delta": {"seeded": 0},
    "read": {"targets": [[0, "t"]]},
}
_VALUES = {"start": 0, "end": K, "windows": 1, "target": 0, "length": K, "matches": 1}
_VALUES |= {"mismatches": 0, "skipped": 0, "best_target": 0}


def taken(heads: dict[str, int], at: int, topics: Iterable[str]) -> dict[str, int]:
    """The heads of the topics before record ``at``, which has messages on them."""
    before = {topic: heads.get(topic, 0) for topic in topics}
    heads |= dict.fromkeys(before, at)
    return before


class Batches:
    """Makes the records of a stream, one after the other."""

    def __init__(self, seed: int = 1, topics: Sequence[str] = STORED) -> None:
        self.rng = random.Random(seed)
        self.heads: dict[str, int] = {}
        self.at = 0
        self._topics = topics
        self.kmers = 0

    def record(self, rows: int = 20) -> Record:
        """The next record; some topics have no message."""
        rng = self.rng
        self.at += 1
        there = [topic for topic in self._topics if topic == "read" or rng.random() < 0.6]
        prev = taken(self.heads, self.at, [*there, "word"])
        names = msgpack.packb([f"read{i}" for i in range(rows)])
        frames: list[bytes] = [names, *(rng.randbytes(8) for _ in range(FRAMES_OF_READS - 1))]
        topics: list[list[object]] = []
        for topic, before in prev.items():
            columns = TOPICS[topic].columns if topic != "word" else ()
            described = [[column.name, column.type_name, rows] for column in columns]
            topics.append([topic, before, _FIELDS.get(topic, {}), described])
            frames += [self._values(column, rows).tobytes() for column in columns]
        about = {"batch": self.at - 1, "base": 100 * self.at, "reads": rows, "bases": 100}
        about |= {"producer": "p", "producer_epoch": 1, "producer_seq": self.at, "k": K}
        about |= {"version_before": 1, "version": 1}
        meta = msgpack.packb({"about": about, "counts": {"reads": rows}, "topics": topics})
        key = Key("p", 1, self.at, 0, b"")
        return Record(self.at, BATCH, meta, tuple(frames), key, self.at * 1000)

    def _values(self, column: Column, rows: int) -> np.ndarray:
        match column.name:
            case "read":
                values = np.arange(rows)
            case "code":
                values = np.array([self.rng.randrange(4**K) for _ in range(rows)])
            case name:
                values = np.full(rows, _VALUES[name])
        return values.astype(column.dtype)

    def records(self, count: int, rows: int = 20) -> list[Record]:
        return [self.record(rows) for _ in range(count)]


def said(records: Sequence[Record], topics: Sequence[str]) -> dict[tuple[str, int], list[bytes]]:
    """By (topic, at), the frames after the header in the feed's message: names and columns."""
    found = {}
    for record in records:
        if record.kind != BATCH:
            continue
        first = FRAMES_OF_READS
        for topic, _, _, described in msgpack.unpackb(record.meta)["topics"]:
            columns = record.frames[first : first + len(described)]
            first += len(described)
            if topic in topics and topic != "word":
                found[topic, record.at] = [bytes(f) for f in (record.frames[0], *columns)]
    return found
