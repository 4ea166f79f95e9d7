"""The messages of the feed as types; arrays of one message are equally long unless said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.client.columns import KINDS, check_columns
from streamer.protocol.feed_messages import FeedMessage, described
from streamer.protocol.header import Header, Reason, WireError, integer, integers, text
from trie.codes import MAX_K


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every message carries.

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
class Intervals:
    """``match`` and ``mismatch``: maximal runs of windows with one event and one target set.

    read uint32, start, end, windows int64. target uint32: a key of ``labels``, NO_TARGET for none
    (``mismatch`` has none at all).
    """

    stamp: Stamp
    origin: Origin
    read: NDArray[np.uint32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    windows: NDArray[np.int64]
    target: NDArray[np.uint32] | None
    labels: dict[int, str]


@dataclass(frozen=True, slots=True)
class Near:
    """``near``: the nearest k-mer of every end that has one within ``limit`` edits.

    read uint32, start, end int64; distance uint8, strand uint8 (0 is ``+``), code uint64 (the k-mer
    as stored), target uint32: a key of ``labels``, NO_TARGET for none. snapshot int64: the version
    of the dictionary that was matched against. best uint8: 1 in the best row of a run of adjacent
    ends.
    """

    stamp: Stamp
    origin: Origin
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
class Automaton:
    """``ltb``: the bitmaps (thesis Fig. 31) of every end that has one, within ``limit`` edits.

    read uint32, end int64; distances uint32 (bit e: distance e), depths uint32 (bit h + 1: a
    mismatch below depth h), snapshot int64 as in ``Near``.
    """

    stamp: Stamp
    origin: Origin
    limit: int
    read: NDArray[np.uint32]
    end: NDArray[np.int64]
    distances: NDArray[np.uint32]
    depths: NDArray[np.uint32]
    snapshot: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NewKmers:
    """``delta``: k-mers added to the dictionary, in stream order; the first ``seeded`` are seeds.

    code uint64 (canonical unless the strands are ``forward``), read uint32, start int64 (of the
    window in its read).
    """

    stamp: Stamp
    origin: Origin
    seeded: int
    code: NDArray[np.uint64]
    read: NDArray[np.uint32]
    start: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadSummaries:
    """``read``: one row a read of the batch.

    read uint32; length, windows, matches, mismatches, skipped int64; best_target int32: a key of
    ``labels``, -1 for none.
    """

    stamp: Stamp
    origin: Origin
    read: NDArray[np.uint32]
    length: NDArray[np.int64]
    windows: NDArray[np.int64]
    matches: NDArray[np.int64]
    mismatches: NDArray[np.int64]
    skipped: NDArray[np.int64]
    best_target: NDArray[np.int32]
    labels: dict[int, str]


@dataclass(frozen=True, slots=True)
class Words:
    """``word``: event words (thesis Fig. 11), chunk after chunk.

    word uint64[words]. For every chunk: chunk_base int64, stream position to which indices in its
    words are relative; chunk_version int64, of its snapshot; chunk_words int64, how many words.
    error: why there are none although there were events, else empty.
    """

    stamp: Stamp
    origin: Origin
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


BatchMessage = Intervals | Near | Automaton | NewKmers | ReadSummaries | Words
Message = BatchMessage | Beat | Status | Gap | NewEpoch


_ABOUT = ("batch", "base", "producer_epoch", "producer_seq", "version_before", "version")


def typed(message: FeedMessage) -> BatchMessage | Beat | Status:
    """A decoded message as its type; WireError if it is not as docs/protocol.md has it."""
    try:
        return _typed(message)
    except WireError as error:
        raise error.about(described(message.topic, message.header)) from None


def _typed(message: FeedMessage) -> BatchMessage | Beat | Status:
    topic, head, columns = message.topic, message.header, message.columns
    stamp = Stamp(topic, head["epoch"], head["seq"], head["prev"], head["time"], head)
    if stamp.previous >= stamp.sequence:
        problem = f"the message before it is {stamp.previous}"
        raise WireError(Reason.MALFORMED, problem)
    if topic == "beat":
        return Beat(stamp, _heads(head), _totals(head), _published(head))
    if topic == "status":
        status = _map(head, "status")
        return Status(stamp, text(status, "state"), status | {"totals": _totals(status)})
    if topic not in KINDS:
        raise WireError(Reason.MALFORMED, "an unknown topic")
    batch, base, epoch, sequence, before, version = integers(head, _ABOUT)
    k = integer(head, "k", 1, MAX_K)
    producer = text(head, "producer")
    origin = Origin(batch, base, producer, epoch, sequence, before, version, k, message.names)
    labels = _labels(head)
    limit = integer(head, "distance") if topic in ("near", "ltb") else 0
    check_columns(topic, columns, reads=len(origin.names), k=k, labels=labels, limit=limit)
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
    if labels and kinds != ({int}, {str}):
        raise WireError(Reason.MALFORMED, "field 'targets' must hold numbers and labels")
    return labels
