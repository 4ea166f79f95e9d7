"""Matches kept batches again, some at a time, and replaces the answers that changed.

Answers are compared read by read; each batch with a change becomes a control record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack
import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.core.producers import ProducerState
from streamer.daemon.core.revision import Revision
from streamer.daemon.layout import lay_out
from streamer.daemon.publish import ControlRecord, Publication, settled_record
from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH, REVISION, Content, StoredRecord
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import JournalDamage, JournalExpired, Key
from streamer.journal.store import Journal
from streamer.matching.matcher import StreamMatcher
from streamer.matching.result import BatchResult
from streamer.matching.target_tally import TargetTally
from streamer.protocol.schema import TOPICS
from streamer.protocol.wire import Buffer, Header, raw
from streamer.sequences.read_batch import ReadBatch

PARTS = TOPICS["upgrade"].parts
"""The topics whose rows are answers."""

# the column of a row that names its targets; and columns that are not part of the answer: the
# index of the read and the version of the snapshot
_TARGETS = {"match": "target", "near": "target", "read": "best_target"}
_IGNORED = ("read", "snapshot")

Meanings = dict[object, int]
"""A number for each set of targets, by their names, and for each target."""

Rows = dict[str, NDArray[Any]]


class Answers:
    """Rows by topic, in order of their reads; targets are numbers of ``meanings``, -1 for none."""

    def __init__(self, contents: Mapping[str, Content], meanings: Meanings) -> None:
        self.rows = {topic: _rows(topic, contents.get(topic), meanings) for topic in PARTS}

    def replace(self, others: Answers, reads: NDArray[np.bool_]) -> None:
        """Replace the rows of these reads (bool[reads]) by those of ``others``."""
        for topic, rows in self.rows.items():
            kept = ~reads[rows["read"]]
            both = {c: np.concatenate((v[kept], others.rows[topic][c])) for c, v in rows.items()}
            order = np.argsort(both["read"], kind="stable")
            self.rows[topic] = {column: values[order] for column, values in both.items()}

    def changed(self, others: Answers, reads: int) -> NDArray[np.bool_]:
        """Which of ``reads`` reads have different rows in ``others`` (bool[reads])."""
        differ = np.zeros(reads, np.bool_)
        for topic, rows in self.rows.items():
            theirs = others.rows[topic]
            counts = [np.bincount(some["read"], minlength=reads) for some in (rows, theirs)]
            differ |= counts[0] != counts[1]
            here, there = ~differ[rows["read"]], ~differ[theirs["read"]]
            index = rows["read"][here]
            for column in rows.keys() - {*_IGNORED}:
                differ[index[rows[column][here] != theirs[column][there]]] = True
        return differ

    def totals(self, reads: NDArray[np.bool_]) -> dict[str, int]:
        """The totals of these reads."""
        rows = self.rows["read"]
        chosen = reads[rows["read"]]
        sums = {name: int(rows[name][chosen].sum()) for name in ("matches", "mismatches")}
        return sums | {"reads_on_target": int((rows["best_target"][chosen] >= 0).sum())}


def chosen(topic: str, content: Content, reads: NDArray[np.bool_]) -> Content:
    """The part of a message's content about these reads."""
    columns = content.columns()
    kept = reads[columns["read"]]
    columns = {name: values[kept] for name, values in columns.items()}
    described = [(name, kind, int(kept.sum())) for name, kind, _ in content.described]
    frames = [raw(values) for values in columns.values()]
    return Content(_chosen_fields(topic, content.fields, columns), described, frames)


def _chosen_fields(topic: str, fields: Header, columns: Mapping[str, NDArray[Any]]) -> Header:
    """The fields, reduced to the sets and targets that a row names."""
    column = _TARGETS.get(topic)
    if column is None:
        return fields
    named = set(np.unique(columns[column]).tolist())
    fields = dict(fields)
    if "sets" in fields:
        fields["sets"] = [entry for entry in fields["sets"] if entry[0] in named]
        named = {target for _, targets, *_ in fields["sets"] for target in targets}
    fields["targets"] = [entry for entry in fields["targets"] if entry[0] in named]
    return fields


def _rows(topic: str, content: Content | None, meanings: Meanings) -> Rows:
    if content is None:
        return {c.name: np.zeros(0, _kind(topic, c.name, c.dtype)) for c in TOPICS[topic].columns}
    columns = content.columns()
    rows = {column.name: columns[column.name] for column in TOPICS[topic].columns}
    if (column := _TARGETS.get(topic)) is not None:
        rows[column] = _meant(rows[column], content.fields, meanings)
    return rows


def _kind(topic: str, column: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int64) if column == _TARGETS.get(topic) else dtype


def _meant(numbers: NDArray[Any], fields: Header, meanings: Meanings) -> NDArray[np.int64]:
    """Translate a message's numbers of sets or targets to numbers of ``meanings``."""
    names = dict(fields["targets"])
    meant: dict[int, object] = names
    if "sets" in fields:
        # a large set is known by its first targets and its size
        meant = {n: (*map(names.get, some), *more) for n, some, *more in fields["sets"]}
    present, at = np.unique(numbers, return_inverse=True)
    own = [
        meanings.setdefault(meant[number], len(meanings)) if number in meant else -1
        for number in present.tolist()
    ]
    return np.array(own, np.int64)[at] if own else np.zeros(0, np.int64)


# bases of kept batches in one step, after which new batches may follow; records read for it
_BASES, _RECORDS = 1 << 20, 64

log = structlog.get_logger("revision")


class RevisionStep(NamedTuple):
    """The outcome of a step.

    at: the last record that it covered. batch: number of the next batch, None if there is none.
    settled: whether the revision is over.
    """

    at: int
    batch: int | None
    settled: bool
    control_records: list[ControlRecord]


class KeptBatches:
    """The batches of a journal. records: how many are examined in one step."""

    def __init__(self, journal: Journal, records: int = _RECORDS) -> None:
        self._journal = journal
        self._records = records

    @property
    def extent(self) -> tuple[int, int]:
        """The oldest kept record and the last one."""
        return self._journal.oldest, self._journal.head

    def number(self, after: int = 0) -> int | None:
        """Number of the first kept batch after a record; None if none is recorded."""
        # damage is reported where the batches are read
        with suppress(JournalDamage):
            for record in self._journal.outlines(max(after, self._journal.oldest - 1)):
                if record.kind == BATCH and not record.lost:
                    number: int = msgpack.unpackb(record.meta)["about"]["batch"]
                    return number
        return None

    def revise(
        self,
        revision: Revision,
        place: tuple[int, int],
        at: int,
        matcher: StreamMatcher,
        stored: Dictionary | None,
        tally: TargetTally | None = None,
    ) -> RevisionStep:
        """Match the next batches after ``place`` again; control records are numbered from ``at``.

        stored: as in ``Matched``. tally: counts the batches. After the last batch the revision is
        settled. JournalUnread: nothing was done.
        """
        after, until = place
        batches, after = self._read(after, until)
        control_records: list[ControlRecord] = []
        uncounted: list[BatchResult] = []
        for batch, again in zip(batches, _matched(batches, matcher, stored), strict=True):
            if tally is not None and batch.at > tally.until:
                uncounted.append(again.matched.result)
            control_record = self._revised(at + len(control_records), batch, again, matcher.version)
            if control_record is not None:
                control_records.append(control_record)
        if settled := after >= until:
            kept = self.number()
            number = revision.batch if kept is None else min(kept, revision.batch)
            control_records.append(
                settled_record(at + len(control_records), matcher.version, number)
            )
        if tally is not None:
            tally.add(uncounted)
        return RevisionStep(
            after, batches[-1].about["batch"] + 1 if batches else None, settled, control_records
        )

    def matched(self, matcher: StreamMatcher) -> Iterator[list[BatchResult]]:
        """The current results of all batches, some at a time; ``matcher`` is ``fixed``."""
        oldest, until = self.extent
        after = oldest - 1
        while after < until:
            batches, after = self._read(after, until)
            if batches:
                yield matcher.match([batch.reads for batch in batches], in_stream=False)

    def _read(self, after: int, until: int) -> tuple[list[StoredBatch], int]:
        """Some of the batches after a record, and the last record that they cover."""
        batches: list[StoredBatch] = []
        bases, first = 0, after
        # batches that have expired in the meantime need no answers
        with suppress(JournalExpired):
            try:
                for record in self._journal.records(after, until):
                    after = record.at
                    if record.kind == BATCH:
                        batches.append(StoredBatch(record))
                        bases += batches[-1].about["bases"]
                    if bases >= _BASES or after - first >= self._records:
                        return batches, after
                after = until
            except JournalDamage as damage:
                after = _behind(damage, max(after, first + 1))
        return batches, after

    def _revised(
        self, at: int, batch: StoredBatch, again: Publication, version: int
    ) -> ControlRecord | None:
        """The revision of a batch; None if nothing has changed."""
        reads = batch.about["reads"]
        meanings: Meanings = {}
        contents = {topic: again.content(topic) for topic in again.topics if topic in PARTS}
        before, now = Answers(batch.contents, meanings), Answers(contents, meanings)
        said = batch.about["version"]
        known = True
        try:
            for record in self._journal.about(batch.at):
                if record.lost:
                    known = False  # it was given up
                    continue
                stored = StoredRecord(record)
                retracted, upgraded = _stored_revision(stored)
                said = stored.about["version"]
                before.replace(Answers(upgraded, meanings), _mask(retracted, reads))
        except JournalDamage as damage:
            message = "damaged record: all results of its batch are replaced"
            log.error(message, batch=batch.about["batch"], problem=str(damage))
            known = False
        changed = before.changed(now, reads) if known else np.ones(reads, np.bool_)
        if not changed.any():
            return None
        old, new = before.totals(changed), now.totals(changed)
        totals = {name: count - old[name] for name, count in new.items()}
        about = batch.about | {"version_before": said, "version": version}
        return _revision_record(at, batch, about, contents, changed, totals)


def _matched(
    batches: Sequence[StoredBatch], matcher: StreamMatcher, stored: Dictionary | None
) -> list[Publication]:
    if not batches:
        return []
    results = matcher.match([batch.reads for batch in batches], in_stream=False)
    matched = [
        Matched(0, _accepted(batch, result.batch), result, matcher.dictionary, stored)
        for batch, result in zip(batches, results, strict=True)
    ]
    return [*map(Publication, matched, lay_out(matched, intervals=True))]


def _revision_record(
    at: int,
    batch: StoredBatch,
    about: Header,
    contents: dict[str, Content],
    reads: NDArray[np.bool_],
    totals: dict[str, int],
) -> ControlRecord:
    parts: Header = {}
    described: list[tuple[str, str, int]] = []
    frames: list[Buffer] = []
    for topic, content in contents.items():
        fields, columns, data = chosen(topic, content, reads)
        if columns[0][2]:
            parts[f"{topic}."] = fields
            described += [(f"{topic}.{name}", kind, rows) for name, kind, rows in columns]
            frames += data
    index = np.flatnonzero(reads).astype(np.uint32)
    said = {
        "retract": Content({}, [("read", "uint32", index.size)], [raw(index)]),
        "upgrade": Content({"parts": parts, "totals": totals}, described, frames),
    }
    return ControlRecord(
        at, REVISION, {}, about, said, (batch.names,), subject=batch.at, counts=totals
    )


def _stored_revision(stored: StoredRecord) -> tuple[NDArray[np.uint32], dict[str, Content]]:
    """The reads that a revision names, and the contents of its parts."""
    retract, upgrade = stored.contents["retract"], stored.contents["upgrade"]
    columns = [*zip(upgrade.described, upgrade.frames, strict=True)]
    parts: dict[str, Content] = {}
    for wire, fields in upgrade.fields["parts"].items():
        own = [(column, frame) for column, frame in columns if column[0].startswith(wire)]
        described = [(name.removeprefix(wire), kind, rows) for (name, kind, rows), _ in own]
        parts[wire.removesuffix(".")] = Content(fields, described, [frame for _, frame in own])
    return np.frombuffer(retract.frames[0], np.uint32), parts


def _accepted(batch: StoredBatch, reads: ReadBatch) -> Accepted:
    about = batch.about
    key = Key(about["producer"], about["producer_epoch"], about["producer_seq"], 0, b"")
    producer = ProducerState(key.producer, key.epoch)
    return Accepted(about["batch"], producer, key, 0, reads, batch.names, 0.0)


def _mask(index: NDArray[np.uint32], reads: int) -> NDArray[np.bool_]:
    mask = np.zeros(reads, np.bool_)
    mask[index] = True
    return mask


def _behind(damage: JournalDamage, after: int) -> int:
    """Log a damaged record, which is skipped; returns its number.

    Damage of the index may be of no record: then reading goes on behind ``after``.
    """
    log.error("damaged record: it is not matched again", problem=str(damage))
    return damage.record or after
