"""The messages of the feed as types; the arrays of a message are equally long unless noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.client.columns import check_columns
from streamer.protocol.feed_messages import FeedMessage, described
from streamer.protocol.header import Header, Reason, WireError, integer, integers, text
from streamer.protocol.schema import BATCH_TOPICS, NO_TARGET, TOPICS
from trie.codes import MAX_K


@dataclass(frozen=True, slots=True)
class Stamp:
    """The fields that every message has.

    epoch: of the daemon. sequence: of the message; previous: of the one before it on its topic.
    time: nanoseconds since 1970. head: all header fields as sent.
    """

    topic: str
    epoch: int
    sequence: int
    previous: int
    time: int
    head: Header


@dataclass(frozen=True, slots=True)
class Origin:
    """The batch that a message is about.

    batch: number in the order of acceptance, from 0. base: stream position of its first symbol.
    version_before, version: of the dictionary before and after it. names: of all its reads, to
    which every column ``read`` is an index.
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
class BatchMessage:
    """A message about a batch.

    The arrays of its subclasses are the columns of their topics: streamer/protocol/schema.py and
    docs/protocol.md hold their units and meanings. labels: the labels of targets by number.
    """

    stamp: Stamp
    origin: Origin


@dataclass(frozen=True, slots=True)
class Intervals(BatchMessage):
    """``match`` and ``mismatch``: maximal runs of windows with one event and one target set.

    ``mismatch`` has no targets.
    """

    read: NDArray[np.uint32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    windows: NDArray[np.int64]
    target: NDArray[np.uint32] | None
    labels: dict[int, str]


@dataclass(frozen=True, slots=True)
class Near(BatchMessage):
    """``near``: the nearest k-mer of every end that has one within ``limit`` edits."""

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
    labels: dict[int, str]


@dataclass(frozen=True, slots=True)
class Automaton(BatchMessage):
    """``ltb``: the bitmaps (thesis Fig. 31) of every end that has one, within ``limit`` edits."""

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
    """``read``: one row a read of the batch."""

    read: NDArray[np.uint32]
    length: NDArray[np.int64]
    windows: NDArray[np.int64]
    matches: NDArray[np.int64]
    mismatches: NDArray[np.int64]
    skipped: NDArray[np.int64]
    best_target: NDArray[np.int32]
    labels: dict[int, str]


@dataclass(frozen=True, slots=True)
class Words(BatchMessage):
    """``word``: event words (thesis Fig. 11), chunk after chunk; ``word`` is the longer array.

    error: why there are none although there were events, else empty.
    """

    word: NDArray[np.uint64]
    chunk_base: NDArray[np.int64]
    chunk_version: NDArray[np.int64]
    chunk_words: NDArray[np.int64]
    error: str


@dataclass(frozen=True, slots=True)
class Beat:
    """``beat``: the last sequence of every topic, so that a lost tail shows, and the totals.

    published: the topics that this daemon can have messages on; None if it does not say.
    """

    stamp: Stamp
    heads: dict[str, int]
    totals: dict[str, Any]
    published: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Status:
    """``status``: the daemon has changed its state (starting, running, draining, ended, failed)."""

    stamp: Stamp
    state: str
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a topic that were missed: those after sequence ``after`` up to ``until``."""

    topic: str
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """Another daemon answers at the endpoint: sequences and the dictionary began anew."""

    before: int
    epoch: int


Message = BatchMessage | Beat | Status | Gap | NewEpoch


def typed(message: FeedMessage) -> BatchMessage | Beat | Status:
    """A decoded message as its type; WireError if it is not as docs/protocol.md says."""
    try:
        return _typed(message)
    except WireError as error:
        raise error.about(described(message.topic, message.header)) from None


def _typed(message: FeedMessage) -> BatchMessage | Beat | Status:
    head = message.header
    stamp = Stamp(message.topic, head["epoch"], head["seq"], head["prev"], head["time"], head)
    if stamp.previous >= stamp.sequence:
        problem = f"its previous message is {stamp.previous}, not an earlier one"
        raise WireError(Reason.MALFORMED, problem)
    if message.topic == "beat":
        return Beat(stamp, _heads(head), _totals(head), _published(head))
    if message.topic == "status":
        status = _map(head, "status")
        return Status(stamp, text(status, "state"), status | {"totals": _totals(status)})
    if message.topic not in BATCH_TOPICS:
        raise WireError(Reason.MALFORMED, "an unknown topic")
    return _about_batch(stamp, message)


_ORIGIN = ("batch", "base", "producer_epoch", "producer_seq", "version_before", "version")


def _about_batch(stamp: Stamp, message: FeedMessage) -> BatchMessage:
    topic, head, columns = message.topic, message.header, message.columns
    batch, base, epoch, sequence, before, version = integers(head, _ORIGIN)
    k = integer(head, "k", 1, MAX_K)
    producer = text(head, "producer")
    origin = Origin(batch, base, producer, epoch, sequence, before, version, k, message.names)
    labels = _labels(head)
    limit = integer(head, "distance") if topic in ("near", "ltb") else 0
    check_columns(TOPICS[topic], columns, reads=len(origin.names), k=k, labels=labels, limit=limit)
    match topic:
        case "match":
            return Intervals(stamp, origin, **columns, labels=labels)
        case "mismatch":
            return Intervals(stamp, origin, **columns, target=None, labels=labels)
        case "near":
            return Near(stamp, origin, limit, **columns, labels=labels)
        case "ltb":
            return Automaton(stamp, origin, limit, **columns)
        case "delta":
            seeded = integer(head, "seeded", 0, columns["code"].size)
            return NewKmers(stamp, origin, seeded, **columns)
        case "read":
            return ReadSummaries(stamp, origin, **columns, labels=labels)
    error = head.get("error", "")
    if not isinstance(error, str):
        raise WireError(Reason.MALFORMED, "field 'error' must be a string")
    return Words(stamp, origin, **columns, error=error)


def _map(header: Header, key: str) -> Header:
    value = header.get(key)
    if not isinstance(value, dict):
        raise WireError(Reason.MALFORMED, f"field '{key}' must be a map")
    return value


def _heads(header: Header) -> dict[str, int]:
    heads = _map(header, "heads")
    for topic in heads:
        integer(heads, topic)
    return heads


def _published(header: Header) -> frozenset[str] | None:
    topics = header.get("published")
    if topics is None:
        return None
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise WireError(Reason.MALFORMED, "field 'published' must be an array of strings")
    return frozenset(topics)


def _totals(header: Header) -> dict[str, Any]:
    totals = _map(header, "totals")
    if not set(map(type, totals.values())) <= {int, float}:
        raise WireError(Reason.MALFORMED, "field 'totals' must be a map of numbers")
    return totals


def _labels(header: Header) -> dict[int, str]:
    """The labels of targets by their numbers."""
    try:
        labels = dict(header.get("targets", ()))
    except (TypeError, ValueError):
        labels = {None: None}
    kinds = set(map(type, labels)), set(map(type, labels.values()))
    if labels and (kinds != ({int}, {str}) or max(labels) > NO_TARGET):
        raise WireError(Reason.MALFORMED, "field 'targets' must hold numbers and labels")
    return labels
