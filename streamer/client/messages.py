"""The messages of the feed as types; the arrays of a message have one length unless noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.client.named_targets import Sets, labels_of
from streamer.protocol.header import Header


@dataclass(frozen=True, slots=True)
class Stamp:
    """The fields that every message has.

    stream: identifies the stream of records. epoch: identifies the run of the daemon. at: number of
    the record that it is about; for a Beat or Status, the last one published. previous: the last
    record before ``at`` with a message on this topic, 0 for none and for a Beat or Status. time:
    nanoseconds since 1970. head: all header fields as sent.
    """

    topic: str
    stream: str
    epoch: int
    at: int
    previous: int
    time: int
    head: Header


@dataclass(frozen=True, slots=True)
class Origin:
    """The batch that a message is about.

    batch: number in the order of acceptance, from 0. base: stream position of its first symbol.
    version_before, version: those of the dictionary before and after it. names: those of all its
    reads; every column ``read`` is an index into them.
    """

    batch: int
    base: int
    producer: str
    producer_epoch: int
    producer_sequence: int
    version_before: int
    version: int
    k: int
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class RecordMessage:
    """A message about a record of the stream."""

    stamp: Stamp


@dataclass(frozen=True, slots=True)
class BatchMessage(RecordMessage):
    """A message about a batch.

    The arrays of its subclasses are the columns of their topics: streamer/protocol/schema.py and
    docs/protocol.md hold their units and meanings.
    """

    origin: Origin


@dataclass(frozen=True, slots=True)
class Intervals(BatchMessage):
    """``match`` and ``mismatch``: maximal runs of windows with one event and one target set.

    sets: the names of the targets in each target set, by its number, which ``target`` holds.
    ``mismatch`` has no targets.
    """

    read: NDArray[np.uint32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    windows: NDArray[np.int64]
    target: NDArray[np.uint32] | None
    sets: Sets

    @property
    def labels(self) -> dict[int, str]:
        """By set, the names of its targets joined by ``;``, at most 8 and then ``...``."""
        return labels_of(self.sets)


@dataclass(frozen=True, slots=True)
class Near(BatchMessage):
    """``near``: for every end with a k-mer within ``limit`` edits, the nearest one.

    sets: as in Intervals.
    """

    limit: int
    read: NDArray[np.uint32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    distance: NDArray[np.uint8]
    strand: NDArray[np.uint8]
    code: NDArray[np.uint64]
    target: NDArray[np.uint32]
    snapshot: NDArray[np.int64]
    best: NDArray[np.uint8]
    sets: Sets

    @property
    def labels(self) -> dict[int, str]:
        """As in Intervals."""
        return labels_of(self.sets)


@dataclass(frozen=True, slots=True)
class Automaton(BatchMessage):
    """``ltb``: the bitmaps (thesis Fig. 31) of every end that has any, within ``limit`` edits."""

    limit: int
    read: NDArray[np.uint32]
    end: NDArray[np.int64]
    distances: NDArray[np.uint32]
    depths: NDArray[np.uint32]
    snapshot: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NewKmers(BatchMessage):
    """``delta``: k-mers added to the dictionary, in stream order; the first ``seeded`` are seeds.

    A code is canonical unless the strands are ``forward``.
    """

    seeded: int
    code: NDArray[np.uint64]
    read: NDArray[np.uint32]
    start: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadSummaries(BatchMessage):
    """``read``: one row for each read of the batch. labels: the names of targets by number.

    channel, barcode, barcodes: as in ReadDecisions.
    """

    read: NDArray[np.uint32]
    length: NDArray[np.int64]
    windows: NDArray[np.int64]
    matches: NDArray[np.int64]
    mismatches: NDArray[np.int64]
    skipped: NDArray[np.int64]
    best_target: NDArray[np.int32]
    labels: dict[int, str]
    channel: NDArray[np.int32]
    barcode: NDArray[np.int32]
    barcodes: dict[int, str]


@dataclass(frozen=True, slots=True)
class ReadDecisions(BatchMessage):
    """``decision``: what to do with each read of the batch. labels: as in ReadSummaries.

    channel: that of the sequencer; barcode: a key of ``barcodes``; both -1 for none.
    action: an index into ``schema.ACTIONS``. target: 0xFFFFFFFF for none.
    """

    read: NDArray[np.uint32]
    channel: NDArray[np.int32]
    barcode: NDArray[np.int32]
    action: NDArray[np.uint8]
    target: NDArray[np.uint32]
    matches: NDArray[np.int64]
    windows: NDArray[np.int64]
    bases: NDArray[np.int64]
    labels: dict[int, str]
    barcodes: dict[int, str]


@dataclass(frozen=True, slots=True)
class Words(BatchMessage):
    """``word``: event words (thesis Fig. 11), chunk after chunk; ``word`` is the longer array.

    error: why there are no words although there were events, else empty.
    """

    word: NDArray[np.uint64]
    chunk_base: NDArray[np.int64]
    chunk_version: NDArray[np.int64]
    chunk_words: NDArray[np.int64]
    error: str


@dataclass(frozen=True, slots=True)
class Retract(BatchMessage):
    """``retract``: earlier messages about these reads are void; an Upgrade follows.

    Its origin has the version of the dictionary that they were made with, and the new one.
    """

    read: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Upgrade(BatchMessage):
    """``upgrade``: the new answers about the reads that the preceding Retract names.

    parts: by topic, the rows that its message would have for these reads; a topic without rows is
    missing. totals: the changes of the totals.
    """

    parts: dict[str, BatchMessage]
    totals: dict[str, int]


@dataclass(frozen=True, slots=True)
class Settled(RecordMessage):
    """``settled``: all answers from batch ``from_batch`` on are of this dictionary version."""

    version: int
    from_batch: int


@dataclass(frozen=True, slots=True)
class Beat:
    """``beat``: the last record of every topic, so that a lost tail is noticed, and the totals.

    state: that of the daemon. published: the topics that this daemon can have messages on; None if
    it does not say.
    """

    stamp: Stamp
    heads: dict[str, int]
    state: str
    totals: dict[str, Any]
    published: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Status:
    """``status``: the daemon has changed its state; heads: as in a Beat."""

    stamp: Stamp
    heads: dict[str, int]
    state: str
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TallyRows:
    """``targets``, ``barcodes``, ``enough``, ``novelty``: rows of counts so far.

    rows: have the columns of the topic, ``schema.TOPICS[topic].shown``.

    version: that of the dictionary; with another one all counts start over. complete: False while
    kept batches are still to be counted.
    """

    stamp: Stamp
    rows: list[list[Any]]
    version: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a topic that were missed: those after record ``after`` up to ``until``."""

    topic: str
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The daemon was restarted with its journal: the stream and its records continue."""

    before: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NewStream:
    """Records and the dictionary start over: another daemon, or the same one without a journal.

    before, stream: equal if the daemon has lost records of the stream that it had published.
    """

    before: str
    stream: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream cannot continue from the cursor; it continues after record ``at`` instead.

    reason: ``too-old`` (records in between are no longer kept), ``stream`` (the cursor is of
    another stream) or ``future`` (the stream ends before it). stream: that of the messages that
    follow.
    """

    reason: str
    stream: str
    at: int


@dataclass(frozen=True, slots=True)
class Done:
    """After the messages queued before this, nothing up to record ``at`` is missing."""

    stream: str
    at: int


Standing = Beat | Status
"""Messages with the current end of the stream."""

Known = RecordMessage | Standing | TallyRows
Message = Known | Gap | NewEpoch | NewStream | Reset
