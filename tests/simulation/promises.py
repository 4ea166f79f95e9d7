"""What must hold under any fault, checked from what clients saw and what the journal holds.

Nothing here asks a core. Clients report what they received; the journal is read when a daemon has
recovered, before a bit is flipped or records expire, and at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack
import numpy as np

from streamer.client.core.subscriber import Cursor
from streamer.client.messages import NewKmers, ReadSummaries, RecordMessage, Reset, Upgrade
from streamer.daemon.stored_batch import StoredBatch
from streamer.journal.record import JournalDamage, Record
from streamer.protocol.wire import Header
from tests.simulation.model_journal import JournalModel, OwnedJournal, Row
from tests.simulation.said import said, stored
from tests.simulation.single_pass import LossyStart, SinglePass

if TYPE_CHECKING:
    from tests.simulation.producer_host import Job
    from tests.simulation.subscriber_host import Heard


class Violation(Exception):
    """A broken promise."""


def violated(kind: str, text: str) -> NoReturn:
    """Raise a Violation; kind: one word."""
    raise Violation(f"{kind}: {text}")


@dataclass(frozen=True)
class Learned:
    """A record as it was committed."""

    row: Row
    record: Record


class Promises:
    """Remembers what was promised; raises Violation.

    grows, limit: as in ``ToyMatcher``. sources: the dictionaries by their fingerprints.
    """

    def __init__(self, *, grows: bool, limit: int = 0) -> None:
        self._grows, self._limit = grows, limit
        # records with a flipped bit, whether there ever was one, and records that were given up
        self._flipped: set[int] = set()
        self._damaged = False
        self._given_up: frozenset[int] = frozenset()
        self.sources: dict[int, frozenset[int]] = {}
        self._records: dict[int, Learned] = {}
        self._starts: list[LossyStart] = []
        # the last record and the oldest one kept, at several moments
        self._kept: list[tuple[int, int]] = []
        self._durable: dict[str, int] = {}
        self._epochs: dict[int, int] = {}
        self._heard: list[Heard] = []
        self._journal: OwnedJournal | None = None

    # ---- what clients see -------------------------------------------------------------------

    def durable(self, name: str, batches: int) -> None:
        """A producer was told that the first ``batches`` of its file are durable."""
        self._durable[name] = max(batches, self._durable.get(name, 0))

    def resumed(self, name: str, batches: int) -> None:
        """A producer was told to resume after the first ``batches`` of its file."""
        if batches < (durable := self._durable.get(name, 0)):
            violated("lost", f"{name} is at batch {batches}, but {durable} were durable")

    def session(self, life: int, header: Header) -> None:
        """A start of the daemon has told a producer its epoch."""
        epoch = header["session"]
        if self._epochs.setdefault(life, epoch) != epoch:
            violated("wrong", f"start {life} of the daemon has named two epochs")
        for other, used in self._epochs.items():
            if (other < life) != (used < epoch) and other != life:
                violated("epoch", f"start {life} has epoch {epoch}, start {other} had {used}")

    def watches(self, heard: Heard) -> None:
        """A subscriber begins."""
        self._heard.append(heard)

    def follows(self, name: str, topic: str, before: dict[int, Any], at: int) -> None:
        """A subscriber received a message on a topic, after those in ``before``."""
        if before and (last := next(reversed(before))) >= at:
            kind = "twice" if at in before else "order"
            violated(kind, f"{name} has {topic} {at} after {last}")

    def reset(self, name: str, cursor: Cursor | None, reset: Reset) -> None:
        """A subscriber was told that the stream cannot continue from its cursor."""
        assert self._journal is not None
        right = reset.reason == "too-old" and 0 < reset.at < self._journal.oldest
        if not right or cursor is None or cursor.at > reset.at:
            violated("wrong", f"{name} at {cursor} was reset: {reset}")

    def memory(self, used: int, limit: int) -> None:
        """Check the bytes of batches in the daemon."""
        if not 0 <= used <= limit:
            violated("memory", f"{used} bytes are in the daemon, the limit is {limit}")

    def reported(self, at: int) -> None:
        """A damaged record was reported."""
        if at not in self._flipped:
            violated("wrong", f"record {at} was reported as damaged, it is not")

    def unexpected(self, name: str, what: object) -> None:
        """A client received something that it must not."""
        if isinstance(what, Violation | AssertionError):
            raise what
        violated("unexpected", f"{name}: {what!r}")

    def flips(self, journal: JournalModel, at: int | None) -> None:
        """A bit of a record, or of the snapshot (None), is about to flip."""
        self.learn(journal)
        self._damaged = True
        if at is not None:
            self._flipped.add(at)

    # ---- what the journal holds -------------------------------------------------------------

    def learn(self, journal: JournalModel) -> None:
        """Remember what is committed now."""
        for at in range(max([journal.oldest, *self._records.keys()]), journal.head + 1):
            row = journal.committed.rows[at]
            if at not in self._records and not row.lost:
                try:
                    self._records[at] = Learned(row, journal.record(row))
                except JournalDamage:
                    violated("lost", f"record {at} is damaged, nobody has flipped a bit")
        self._kept.append((journal.head, journal.oldest))

    def recovered(self, journal: OwnedJournal) -> None:
        """A start of the daemon has opened its journal."""
        self._journal = journal
        if self._records and journal.head < (last := max(self._records)):
            violated("lost", f"{last} records were committed, {journal.head} are left")
        rows, snapshot = journal.committed.rows, journal.committed.snapshot
        self._given_up = frozenset(at for at, row in rows.items() if row.lost)
        for at in self._given_up:
            self.reported(at)
        if self._damaged:
            at, whole = (snapshot.at, bool(snapshot.file)) if snapshot else (0, False)
            start = LossyStart(journal.head, journal.oldest, at, whole, self._given_up)
            self._starts.append(start)
        for at, learned in self._records.items():
            kept = at >= journal.oldest and at not in self._given_up
            if kept and rows[at] != learned.row:
                violated("lost", f"record {at} is another one after a restart")
        self.learn(journal)
        marks = {known.producer: int(known.mark or b"0") for known in journal.producers()}
        for name in self._durable:
            self.resumed(name, marks.get(name, 0))
        for heard in self._heard:
            said_up_to = max((max(by_record) for by_record in heard.messages.values()), default=0)
            if said_up_to > journal.head:
                text = f"record {said_up_to} was published, the journal ends with {journal.head}"
                violated("lost", text)

    # ---- in the end -------------------------------------------------------------------------

    def finish(self, journal: JournalModel, jobs: Sequence[Job], totals: Counter[str]) -> int:
        """Compare everything with one pass over the stream; returns how many messages that were.

        totals: those of the daemon.
        """
        self.learn(journal)
        records = [self._records[at].record for at in sorted(self._records)]
        if [record.at for record in records] != [*range(1, journal.head + 1)]:
            violated("lost", "records are missing")
        self._check_files(records, jobs)
        SinglePass(
            records,
            grows=self._grows,
            limit=self._limit,
            sources=self.sources,
            starts=self._starts,
            flipped=self._flipped,
            kept=self._oldest_after,
            diverges=self._diverges,
        ).check()
        counts = Counter[str]()
        messages: dict[str, dict[int, RecordMessage]] = {}
        for record in records:
            counts.update(msgpack.unpackb(record.meta).get("counts", {}))
            for topic, message in stored(record, journal.stream).items():
                messages.setdefault(topic, {})[record.at] = message
        if any(counts[name] != totals[name] for name in counts | totals):
            self._diverges(f"the totals are {totals}, the records come to {counts}")
        truth = {
            topic: {at: said(message) for at, message in found.items()}
            for topic, found in messages.items()
        }
        for heard in self._heard:
            self._check_heard(heard, truth)
            if heard.state is not None:
                self._check_fold(heard, messages)
        return sum(len(found) for heard in self._heard for found in heard.messages.values())

    def _oldest_after(self, at: int) -> int:
        """The oldest record that was kept soon after record ``at`` was committed."""
        return next(oldest for head, oldest in self._kept if head >= at)

    def _diverges(self, text: str) -> None:
        violated("divergent", text)

    def _check_files(self, records: Sequence[Record], jobs: Sequence[Job]) -> None:
        """Every batch of every file took effect once, in the order of the file."""
        for job in jobs:
            kept = [r for r in records if r.key is not None and r.key.producer == job.name]
            marks = [int(record.key.mark) for record in kept if record.key is not None]
            if len(set(marks)) < len(marks):
                violated("twice", f"batches of {job.name}: {marks}")
            if marks != [*range(1, len(job.batches) + 1)]:
                violated("lost", f"batches of {job.name}: {marks} of {len(job.batches)}")
            for record, frames in zip(kept, job.batches, strict=True):
                batch = StoredBatch(record)
                letters = np.array([*b"ACGTN"], np.uint8)[batch.reads.bases].tobytes()
                if batch.names != bytes(frames[0]) or letters != bytes(frames[2]):
                    self._diverges(f"record {record.at} has other reads than were sent")

    def _check_heard(self, heard: Heard, truth: dict[str, dict[int, bytes]]) -> None:
        for topic in heard.topics:
            there, had = truth.get(topic, {}), heard.messages.get(topic, {})
            for at, content in had.items():
                if there.get(at) != content:
                    self._diverges(f"{heard.name} has another {topic} {at} than the journal")
            gaps = [gap[1:] for gap in heard.gaps if gap[0] == topic]
            start = heard.start
            if start is None:
                start = min([*had, *(until for _, until in gaps)], default=2**63)
            last = max([*had, *(until for _, until in gaps)], default=0) if heard.over else 2**63
            for at in there:
                if start < at <= last and at not in had and not _within(at, [*gaps, *heard.resets]):
                    violated("gap", f"{heard.name} lacks {topic} {at} and has not noticed")
                healed = heard.start is not None and at not in had and _within(at, gaps)
                if healed and at not in self._flipped and at > (start or 0):
                    violated("gap", f"{heard.name} lacks {topic} {at}, which is in the journal")

    def _check_fold(self, heard: Heard, messages: dict[str, dict[int, RecordMessage]]) -> None:
        """A fetched state plus what followed it equals everything."""
        state = heard.state
        assert state is not None
        if heard.gaps or heard.resets or self._damaged:
            return
        everything = _fold(messages, 0)
        kmers, counts = _fold(messages, state.cursor.at)
        folded = Counter({name: state.totals.get(name, 0) for name in _FOLDED})
        folded.update(counts)
        if everything != ([*state.kmers.tolist(), *kmers], folded):
            self._diverges(f"the state at {state.cursor.at} and what follows it")


_FOLDED = ("reads", "matches", "mismatches")


def _fold(
    messages: dict[str, dict[int, RecordMessage]], after: int
) -> tuple[list[int], Counter[str]]:
    """New k-mers and totals of the records after one."""
    kmers: list[int] = []
    counts = Counter[str](dict.fromkeys(_FOLDED, 0))
    for topic in ("delta", "read", "upgrade"):
        for at, message in messages.get(topic, {}).items():
            if at <= after:
                continue
            match message:
                case NewKmers():
                    kmers += message.code.tolist()
                case ReadSummaries():
                    counts["reads"] += message.read.size
                    counts["matches"] += int(message.matches.sum())
                    counts["mismatches"] += int(message.mismatches.sum())
                case Upgrade():
                    counts.update({name: message.totals.get(name, 0) for name in _FOLDED})
    return kmers, counts


def _within(at: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(after < at <= until for after, until in ranges)
