"""Records of the stream other than new batches: a dictionary, a revision, the end of a revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgpack

from streamer.daemon.batch_record import Matched
from streamer.daemon.core.heads import Heads
from streamer.daemon.publish import Content, MatchedGroup
from streamer.daemon.stored_messages import DICTIONARY, SETTLED, frames_of
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import Record
from streamer.protocol.header import Buffer, Header, raw, seal
from streamer.protocol.transport.frames import Message


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A record without the parts that depend on the records before it.

    meta: fields of the record that its messages lack. about: the header fields that its messages
    share. frames: those before the frames of its messages; if it is about a batch, the first has
    the names of the reads. subject: the record that it is about. counts: added to the totals.
    """

    at: int
    kind: str
    meta: Header = field(default_factory=dict)
    about: Header = field(default_factory=dict)
    contents: Mapping[str, Content] = field(default_factory=dict)
    frames: Sequence[Buffer] = ()
    subject: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


class Entry:
    """A control record in its place in the stream, with the interface of ``Publication``."""

    def __init__(self, control_record: ControlRecord, heads: Heads) -> None:
        self.at = control_record.at
        self.counts = control_record.counts
        self.prev = heads.take(control_record.at, control_record.contents)
        self._control_record = control_record

    def message(self, topic: str, header: Header) -> Message:
        """The frames of the message for a topic, ``header`` first in its header."""
        control_record = self._control_record
        fields, described, columns = control_record.contents[topic]
        names = None if control_record.subject is None else control_record.frames[0]
        return seal(
            frames_of(topic, header | control_record.about | fields, names, described, columns)
        )

    def record(self, now: int) -> Record:
        """As the journal stores it; ``now`` is in nanoseconds since 1970."""
        control_record = self._control_record
        topics = [
            [t, self.prev[t], c.fields, c.described] for t, c in control_record.contents.items()
        ]
        meta = {
            "about": control_record.about,
            "counts": control_record.counts,
            "topics": topics,
        } | control_record.meta
        columns = [
            frame for content in control_record.contents.values() for frame in content.frames
        ]
        frames = *control_record.frames, *columns
        return Record(
            self.at,
            control_record.kind,
            msgpack.packb(meta),
            frames,
            None,
            now,
            control_record.subject,
        )


class ControlGroup:
    """Drafts that are recorded and published together; afterwards ``done`` is called."""

    matched: Sequence[Matched] = ()

    def __init__(
        self,
        control_records: Sequence[ControlRecord],
        heads: Heads,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.done = done
        self._drafts = control_records
        self._heads = heads
        self._made: list[Entry] | None = None

    def publications(self, *, intervals: bool) -> list[Entry]:
        """One entry for each control record, with the interface of ``MatchedGroup``."""
        if self._made is None:
            self._made = [Entry(control_record, self._heads) for control_record in self._drafts]
        return self._made


AnyGroup = MatchedGroup | ControlGroup
"""What the engine passes on."""


def dictionary_record(
    at: int,
    version: int,
    fingerprint: int,
    dictionary: Dictionary,
    batch: int,
    *,
    grows: bool,
    sources: Sequence[str] = (),
) -> ControlRecord:
    """The record of a dictionary in use from batch ``batch`` on; a growing one keeps all k-mers.

    at: number of the record. fingerprint: that of the dictionary. sources: the files it was read
    from.
    """
    kmers = int(dictionary.kmers)
    meta = {
        "version": version,
        "fingerprint": fingerprint,
        "kmers": kmers,
        "batch": batch,
        "sources": list(sources),
        # these are in its frames
        "sourced": kmers if grows else 0,
    }
    names = msgpack.packb(list(dictionary.targets.names))
    codes = raw(dictionary.codes) if grows else b""
    return ControlRecord(at, DICTIONARY, meta, frames=(names, codes))


def settled_record(at: int, version: int, batch: int) -> ControlRecord:
    """The record that all answers from batch ``batch`` on are of this dictionary version."""
    content = Content({"version": version, "from_batch": batch}, (), ())
    return ControlRecord(at, SETTLED, contents={"settled": content})
