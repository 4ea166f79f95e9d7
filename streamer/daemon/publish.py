"""The messages of the feed about one batch: which topics, in which order, with which columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamer.daemon.batch_record import Matched
from streamer.daemon.layout import Laid, distinct, lay_out
from streamer.daemon.layout_kernels import LAID_OUT
from streamer.dictionary.targets import NO_SET
from streamer.errors import StreamerError
from streamer.protocol.checksums import combine, crc32c
from streamer.protocol.feed_messages import Columns, encode_feed, encode_head
from streamer.protocol.header import SEAL_BYTES, Header
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.sending import Message


def publications(group: Sequence[Matched], *, intervals: bool) -> list[Publication]:
    """One for each batch; only with ``intervals`` they have messages ``match`` and ``mismatch``."""
    laid = lay_out(group, intervals=intervals)
    return [Publication(*pair) for pair in zip(group, laid, strict=True)]


class Publication:
    """The messages of a batch.

    topics: those that have a message, in order. They depend on the stream, not on who listens.
    """

    def __init__(self, matched: Matched, laid: Laid) -> None:
        self.matched = matched
        self._laid = laid
        result, near = matched.result, matched.result.near
        windows, matches, skipped, on_target = laid.sums
        self.counts = {
            "windows": windows,
            "matches": matches,
            "mismatches": windows - matches,
            "skipped": skipped,
            "reads_on_target": on_target,
            "batches": 1,
            "reads": len(result.batch),
            "bases": result.batch.symbols,
            "new_kmers": int(result.new_kmers.size),
        }
        semantics = near.semantics if near is not None and len(near) else ""
        present = {
            "match": matches > 0,
            "mismatch": windows > matches,
            "near": semantics == "levenshtein",
            "ltb": semantics == "ltb",
            "delta": result.new_kmers.size > 0,
            "word": windows > 0,
            "read": True,
        }
        self.topics = [topic for topic, there in present.items() if there]

    def message(self, topic: str, header: Header) -> Message:
        """The frames of the message for a topic; ``header`` gets the fields of the topic."""
        if topic in LAID_OUT:
            return self._laid_out(topic, header)
        fields, columns = _CONTENT[topic](self.matched)
        return encode_feed(topic, header | fields, self.matched.accepted.names, columns)

    def _laid_out(self, topic: str, header: Header) -> Message:
        laid, targets = self._laid, self.matched.dictionary.targets
        if topic != "mismatch":
            label = targets.label if topic == "match" else targets.names.__getitem__
            header["targets"] = [[number, label(number)] for number in laid.targets[topic]]
        frames, crc = laid.frames(topic)
        head = encode_head(topic, header, laid.described(topic))
        crc = combine(crc32c(head), crc, laid.size(topic))
        return [*head, frames, crc.to_bytes(SEAL_BYTES, "little")]


def _columns(topic: str, *values: object) -> Columns:
    columns = TOPICS[topic].columns
    return {c.name: np.asarray(v, c.dtype) for c, v in zip(columns, values, strict=True)}


Content = tuple[Header, Columns]


def _near(matched: Matched) -> Content:
    near, stored = matched.result.near, matched.stored
    assert near is not None
    assert stored is not None
    best = np.zeros(len(near), dtype=np.uint8)
    best[near.best()] = 1
    numbers = near.start, near.end, near.distance, near.strand, near.code, near.target, near.version
    targets = [[i, stored.targets.label(i)] for i in distinct(near.target, NO_SET)]
    fields = {"targets": targets, "distance": near.distance_limit}
    return fields, _columns("near", near.read, *numbers, best)


def _ltb(matched: Matched) -> Content:
    near = matched.result.near
    assert near is not None
    columns = _columns("ltb", near.read, near.end, near.matches, near.mismatches, near.version)
    return {"distance": near.distance_limit}, columns


def _delta(matched: Matched) -> Content:
    result = matched.result
    offsets = result.batch.offsets
    read = np.searchsorted(offsets, result.new_starts, side="right") - 1
    starts = result.new_starts - offsets[read]
    return {"seeded": result.seeded}, _columns("delta", result.new_kmers, read, starts)


def _word(matched: Matched) -> Content:
    fields: Header = {}
    chunks: list[Any] = []
    try:
        chunks = matched.result.words()
    except (StreamerError, ValueError, OverflowError) as error:
        fields = {"error": str(error)}
    words = [chunk.words for chunk in chunks]
    return fields, _columns(
        "word",
        np.concatenate([np.zeros(0, np.uint64), *words]),
        [chunk.base for chunk in chunks],
        [chunk.version for chunk in chunks],
        [part.size for part in words],
    )


_CONTENT: dict[str, Callable[[Matched], Content]] = {
    "near": _near,
    "ltb": _ltb,
    "delta": _delta,
    "word": _word,
}
