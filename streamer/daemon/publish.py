"""The records of the stream: which messages they have, and what of them the journal stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.daemon.batch_record import Matched
from streamer.daemon.layout import LAID_OUT, Laid, distinct, lay_out
from streamer.daemon.stored_messages import BATCH, DICTIONARY, SETTLED, Content
from streamer.dictionary.target_sets import TargetSets, bounds_of
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.journal.record import Record
from streamer.matching.decisions import Decisions
from streamer.matching.match_engine import NO_CODES
from streamer.protocol.checksum_kernels import combine
from streamer.protocol.payloads import Columns, describe, encode_context, encode_feed, encode_head
from streamer.protocol.schema import LIVE_ONLY, TOPICS
from streamer.protocol.transport.frames import Message
from streamer.protocol.wire import SEAL_BYTES, Buffer, Header, crc32c, raw, seal, size_of
from streamer.sequences.context import ReadContext
from streamer.sequences.read_batch import ReadBatch
from trie.windows import NO_SET

# the most targets named of a set: thousands of genomes may hold a k-mer, and every batch names the
# sets that it matches
_SET_TARGETS = 64


class Group:
    """Records that are committed and published together; ``done`` is called afterwards.

    matched: batches that were matched together. control: other records. heads: by topic, the last
    record with a message on it, up to those that messages were made of; it is kept up to date.
    """

    def __init__(
        self,
        heads: dict[str, int],
        matched: Sequence[Matched] = (),
        control: Sequence[ControlRecord] = (),
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.matched = matched
        self.done = done
        self._heads = heads
        self._control = control
        self._made: list[Publication | ControlRecord] = []

    def publications(self, *, intervals: bool) -> Sequence[Publication | ControlRecord]:
        """The records, made on the first call; ``match`` and ``mismatch`` only if ``intervals``.

        Call it for one group after the other, in order.
        """
        if not self._made:
            laid = lay_out(self.matched, intervals=intervals)
            self._made += map(Publication, self.matched, laid)
            self._made += self._control
            for record in self._made:
                record.prev = {topic: self._heads.get(topic, 0) for topic in record.topics}
                self._heads.update(dict.fromkeys(record.prev, record.at))
        return self._made


@dataclass(slots=True)
class ControlRecord:
    """A record of the stream that is no new batch: a dictionary, a revision, the end of one.

    meta: fields of the record that its messages lack. about: the header fields that its messages
    share. contents: those of its messages, by topic. frames: those before the frames of its
    messages; if it is about a batch, the first has the names of the reads. subject: the record that
    it is about. counts: added to the totals. prev: as in ``Publication``.
    """

    at: int
    kind: str
    meta: Header = field(default_factory=dict)
    about: Header = field(default_factory=dict)
    contents: Mapping[str, Content] = field(default_factory=dict)
    frames: Sequence[Buffer] = ()
    subject: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    prev: Mapping[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> Iterable[str]:
        """The topics that it has messages on, in order."""
        return self.contents

    def message(self, topic: str, header: Header) -> Message:
        """The frames of the message for a topic, ``header`` first in its header."""
        names = None if self.subject is None else self.frames[0]
        return seal(self.contents[topic].message(topic, header | self.about, names))

    def record(self, now: int) -> Record:
        """The record for the journal; ``now`` is in nanoseconds since 1970."""
        meta, frames = _stored(self, self.contents)
        meta = msgpack.packb(meta | self.meta)
        return Record(self.at, self.kind, meta, (*self.frames, *frames), None, now, self.subject)


# of a topic that is live only
_LIVE = Content({}, (), ())


def _stored(
    record: Publication | ControlRecord, contents: Mapping[str, Content]
) -> tuple[Header, list[Buffer]]:
    """The meta of a record, and the columns of its messages; live-only topics have no content."""
    topics: list[Any] = []
    columns: list[Buffer] = []
    for topic, prev in record.prev.items():
        content = contents.get(topic, _LIVE)
        topics.append([topic, prev, content.fields, content.described])
        columns += content.frames
    return {"about": record.about, "counts": record.counts, "topics": topics}, columns


def dictionary_record(
    at: int,
    version: int,
    fingerprint: int,
    dictionary: Dictionary,
    batch: int,
    kept: NDArray[np.uint64] = NO_CODES,
    *,
    grows: bool = False,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> ControlRecord:
    """The record of a dictionary in use from batch ``batch`` on.

    at: number of the record. fingerprint: that of the dictionary. kept: k-mers of sources that are
    stored, as a growing dictionary knows them for ever. sources: the files it was read from.
    targets: the table that names them, and what is a target without it.
    """
    kmers = int(dictionary.kmers)
    meta = {
        "version": version,
        "fingerprint": fingerprint,
        "kmers": kmers,
        "batch": batch,
        "sources": list(sources),
        "targets": list(targets),
        # these are in its frames
        "sourced": kept.size,
        "unstored": kmers if grows and dictionary.is_large else 0,
    }
    names = msgpack.packb(list(dictionary.targets.names))
    return ControlRecord(at, DICTIONARY, meta, frames=(names, raw(kept)))


def settled_record(at: int, version: int, batch: int) -> ControlRecord:
    """The record that all answers from batch ``batch`` on are of this dictionary version."""
    content = Content({"version": version, "from_batch": batch}, (), ())
    return ControlRecord(at, SETTLED, contents={"settled": content})


class Publication:
    """A matched batch as a record of the stream, with its messages.

    at: number of the record. topics: those that have a message, in order. prev: the same, each with
    the last record before on that topic; they depend on the stream, not on the subscribers. counts:
    added to the totals.
    """

    def __init__(self, matched: Matched, laid: Laid) -> None:
        self.at = matched.at
        self.matched = matched
        self.prev: Mapping[str, int] = {}
        self._laid = laid
        self._contents: dict[str, tuple[Header, Columns]] = {}
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
            "decision": matched.decides,
        }
        self.topics = [topic for topic, there in present.items() if there]

    def content(self, topic: str) -> Content:
        """The content of the message on a topic. Its frames live as long as this."""
        if topic in LAID_OUT:
            laid = self._laid
            _, *views = laid.frames(topic)[0].views()
            fields, columns = self._further(topic)
            return Content(
                self._fields(topic) | fields,
                [*laid.described(topic), *describe(columns)],
                [*views, *(raw(values) for values in columns.values())],
            )
        fields, columns = self._content(topic)
        return Content(fields, describe(columns), [raw(values) for values in columns.values()])

    def _content(self, topic: str) -> tuple[Header, Columns]:
        if topic not in self._contents:
            self._contents[topic] = _CONTENT[topic](self.matched)
        return self._contents[topic]

    def _further(self, topic: str) -> tuple[Header, Columns]:
        """The columns of a topic besides the laid-out ones: the context of reads, if known."""
        context = self.matched.result.batch.context
        if topic != "read" or context is None:
            return {}, {}
        return context_content(context)

    def _fields(self, topic: str) -> Header:
        targets = self.matched.dictionary.targets
        if topic == "mismatch":
            return {}
        numbers = self._laid.targets[topic]
        return (
            _sets(targets, numbers) if topic == "match" else {"targets": _named(targets, numbers)}
        )

    @cached_property
    def about(self) -> Header:
        """The fields that the headers of all messages share."""
        key, result = self.matched.accepted.key, self.matched.result
        return {
            "batch": result.number,
            "base": result.base,
            "reads": self.counts["reads"],
            "bases": self.counts["bases"],
            "producer": key.producer,
            "producer_epoch": key.epoch,
            "producer_seq": key.sequence,
            "version_before": result.version_before,
            "version": result.version,
            "k": result.k,
        }

    def message(self, topic: str, header: Header) -> Message | None:
        """The frames of the message for a topic, ``header`` first in its header.

        None for a topic that nobody subscribed to when the batch was matched.
        """
        matched = self.matched
        if topic == "word" and matched.result.depths is None:
            return None
        if topic == "decision" and matched.decisions is None:
            return None
        header = header | self.about
        if topic in LAID_OUT:
            return self._laid_out(topic, header)
        fields, columns = self._content(topic)
        names, growing = matched.accepted.names, matched.accepted.growing
        if topic == "decision" and growing is not None:
            names = growing.names
            header |= {"reads": len(growing.batch), "bases": growing.batch.symbols}
        return encode_feed(topic, header | fields, names, columns)

    def record(self, now: int) -> Record:
        """The record for the journal, see ``StoredBatch``; now: in nanoseconds since 1970."""
        accepted, result = self.matched.accepted, self.matched.result
        packed, gaps = result.batch.two_bits()
        reads = accepted.names, raw(result.batch.offsets), packed.data, raw(gaps)
        stored = {topic: self.content(topic) for topic in self.prev if topic not in LIVE_ONLY}
        meta, frames = _stored(self, stored)
        context = encode_context(accepted.batch.context)
        if context is not None:
            meta["context"] = True
            frames.append(context)
        of_all = *reads, raw(result.learned), *frames
        return Record(self.at, BATCH, msgpack.packb(meta), of_all, accepted.key, now)

    def _laid_out(self, topic: str, header: Header) -> Message:
        laid = self._laid
        frames, crc = laid.frames(topic)
        fields, columns = self._further(topic)
        described = [*laid.described(topic), *describe(columns)]
        head = encode_head(topic, header | self._fields(topic) | fields, described)
        crc = combine(crc32c(head), crc, laid.size(topic))
        further = [raw(values) for values in columns.values()]
        if further:
            crc = combine(crc, crc32c(further), size_of(further))
        return [*head, frames, *further, crc.to_bytes(SEAL_BYTES, "little")]


def _named(targets: TargetSets, numbers: Iterable[int]) -> list[list[object]]:
    return [[number, targets.names[number]] for number in numbers]


def _sets(targets: TargetSets, numbers: list[int]) -> Header:
    """Sets of targets, and the names of all targets in them, once each.

    A large set is given by its first targets and its size.
    """
    at = np.array(numbers, np.int64)
    first, sizes = targets.starts[at], targets.starts[at + 1] - targets.starts[at]
    shown = np.minimum(sizes, _SET_TARGETS)
    bounds = bounds_of(shown)
    members = targets.members[np.repeat(first - bounds[:-1], shown) + np.arange(bounds[-1])]
    listed, cuts = members.tolist(), bounds.tolist()
    sets: list[list[Any]] = [
        [number, listed[begin:end]]
        for number, (begin, end) in zip(numbers, pairwise(cuts), strict=True)
    ]
    for row in np.flatnonzero(sizes > shown).tolist():
        sets[row].append(int(sizes[row]))
    return {"sets": sets, "targets": _named(targets, np.unique(members).tolist())}


def _columns(topic: str, *values: object) -> Columns:
    columns = TOPICS[topic].columns
    return {c.name: np.asarray(v, c.dtype) for c, v in zip(columns, values, strict=True)}


def _near(matched: Matched) -> tuple[Header, Columns]:
    near, stored = matched.result.near, matched.stored
    assert near is not None
    assert stored is not None
    best = np.zeros(len(near), dtype=np.uint8)
    best[near.best()] = 1
    numbers = near.start, near.end, near.distance, near.strand, near.code, near.target, near.version
    fields = _sets(stored.targets, distinct(near.target, NO_SET))
    fields["distance"] = near.distance_limit
    return fields, _columns("near", near.read, *numbers, best)


def _ltb(matched: Matched) -> tuple[Header, Columns]:
    near = matched.result.near
    assert near is not None
    columns = _columns("ltb", near.read, near.end, near.matches, near.mismatches, near.version)
    return {"distance": near.distance_limit}, columns


def _delta(matched: Matched) -> tuple[Header, Columns]:
    result = matched.result
    offsets = result.batch.offsets
    read = np.searchsorted(offsets, result.new_starts, side="right") - 1
    starts = result.new_starts - offsets[read]
    return {"seeded": result.seeded}, _columns("delta", result.new_kmers, read, starts)


def _word(matched: Matched) -> tuple[Header, Columns]:
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


def _decision(matched: Matched) -> tuple[Header, Columns]:
    assert matched.decisions is not None
    return matched.decisions


def decision_content(
    batch: ReadBatch, decisions: Decisions, targets: TargetSets, rows: NDArray[np.int64]
) -> tuple[Header, Columns]:
    """The header fields and columns that say what to do with these reads of a batch."""
    context = batch.context
    if context is None:
        nothing = np.full(len(batch), -1)
        fields: Header = {"barcodes": []}
        known = {"channel": nothing, "barcode": nothing}
    else:
        fields, known = context_content(context)
    target = decisions.target[rows].astype(np.uint32)
    counts = decisions.matches, decisions.windows, decisions.bases
    further = (values[rows] for values in (*known.values(), decisions.action))
    columns = _columns("decision", rows, *further, target, *(values[rows] for values in counts))
    return {"targets": _named(targets, distinct(target, NO_SET))} | fields, columns


def context_content(context: ReadContext) -> tuple[Header, Columns]:
    """The header fields and columns with the channel and barcode of reads."""
    names = [[number, name] for number, name in enumerate(context.barcode.labels)]
    values = context.channel, context.barcode.index
    columns = zip(TOPICS["read"].optional, values, strict=True)
    return {"barcodes": names}, {c.name: np.ascontiguousarray(v, c.dtype) for c, v in columns}


_CONTENT: dict[str, Callable[[Matched], tuple[Header, Columns]]] = {
    "near": _near,
    "ltb": _ltb,
    "delta": _delta,
    "word": _word,
    "decision": _decision,
}
