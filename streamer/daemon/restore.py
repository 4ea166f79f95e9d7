"""The state that a daemon continues from: the journal's last snapshot and the records after it.

A snapshot holds the state after a record: a map of counters, the k-mers that the stream brought,
the k-mers that a distance is measured to, and those of the sources. It is made by reading the
journal, as a restart does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgpack
import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.daemon import stored_batch, stored_messages
from streamer.daemon.core.log import SNAPSHOT_AFTER
from streamer.daemon.core.revision import Revision, RevisionCore
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import JournalFull, Record
from streamer.journal.store import Journal
from streamer.matching.matcher import Start
from streamer.matching.novelty import NoveltyCurve
from streamer.matching.result import concatenated
from streamer.matching.spec import MatchSpec
from streamer.protocol.wire import Header, crc32c, raw, size_of

_NO_CODES = np.zeros(0, np.uint64)
# records between two pauses, if only their database rows are read
_SKIMMED_TOGETHER = 8


@dataclass
class Loss:
    """The k-mers of the stream or of sources that were given up with records or a snapshot.

    kmers: how many are known to be lost. unknown: whether there may be more.
    """

    kmers: int = 0
    unknown: bool = False

    def __bool__(self) -> bool:
        return self.unknown or self.kmers > 0

    def __str__(self) -> str:
        known = f"{self.kmers}" if self.kmers else ""
        return f"{known or 'unknown'}{' or more' if known and self.unknown else ''}"

    def add(self, record: Header) -> None:
        """Count a given-up record with this meta."""
        self.kmers += record.get("counts", {}).get("new_kmers", 0) + record.get("sourced", 0)
        self.unknown |= not record


@dataclass
class Restored:
    """The state after record ``at``.

    fingerprint: that of the dictionary read from the sources, 0 before the first. sources: the
    files that it was read from, if stored. targets: the table of targets, and what is one without
    it. unstored: how many k-mers of a growing dictionary are
    only there. heads: by topic, the last record with a message on it.
    counts: the totals. novelty: the curve of new k-mers. core: the revision in progress. grown,
    learned: parts of those of ``Start``. sourced: k-mers as they stood in sources, for a dictionary
    that keeps them for ever. replayed: bytes, new k-mers and records read after the snapshot. loss:
    the k-mers that are missing.
    """

    at: int = 0
    number: int = 0
    position: int = 0
    version: int = 1
    fingerprint: int = 0
    sources: list[str] = field(default_factory=list)
    targets: Sequence[str] = ()
    unstored: int = 0
    heads: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    novelty: NoveltyCurve = field(default_factory=NoveltyCurve)
    core: RevisionCore = field(default_factory=RevisionCore)
    grown: list[NDArray[np.uint64]] = field(default_factory=list)
    learned: list[NDArray[np.uint64]] = field(default_factory=list)
    sourced: list[NDArray[np.uint64]] = field(default_factory=list)
    replayed: list[int] = field(default_factory=lambda: [0, 0, 0])
    loss: Loss = field(default_factory=Loss)

    @classmethod
    def of_snapshot(cls, at: int, meta: Header) -> Restored:
        """The state that a snapshot after record ``at`` has, without its k-mers."""
        fields = {name: meta[name] for name in _FIELDS} | {"counts": Counter(meta["counts"])}
        revision = None if meta["revision"] is None else Revision(*meta["revision"])
        novelty = NoveltyCurve(meta["novelty"])
        return cls(at, **fields, novelty=novelty, core=RevisionCore(revision))

    def start(self, spec: MatchSpec) -> Start:
        """The state that the matcher continues from."""
        sourced = concatenated(self.sourced, _NO_CODES)
        known = sourced
        if spec.near and sourced.size:
            known = Dictionary.empty(spec.k, spec.strands).with_grown(sourced).codes
        grown = concatenated([*self.grown, known], _NO_CODES)
        learned = concatenated([*self.learned, *([sourced] if spec.near else [])], _NO_CODES)
        return Start(self.number, self.position, self.version, grown, learned)

    def add(self, records: Iterable[Record]) -> None:
        """Take in the records that follow.

        A batch without its frames brought no k-mers, and is missing from the curve unless it was
        given up.
        """
        for record in records:
            self.at = record.at
            self.replayed[2] += 1
            self.heads |= dict.fromkeys(
                stored_messages.stored_topics(record.kind, record.meta), record.at
            )
            meta = msgpack.unpackb(record.meta) if record.meta else {}
            if record.kind == stored_messages.BATCH:
                self._count(meta)
            elif record.kind == stored_messages.DICTIONARY:
                self.version, self.fingerprint = meta["version"], meta["fingerprint"]
                self.sources, self.targets = meta["sources"], meta["targets"]
                self.unstored = meta["unstored"]
                if self.version > 1:
                    self.core.reloaded(self.version, record.at, meta["batch"])
            elif record.kind == stored_messages.REVISION:
                self.counts.update(meta["counts"])
            elif record.kind == stored_messages.SETTLED:
                self.core.settled()
            if record.lost:
                self.loss.add(meta)
                if record.kind == stored_messages.BATCH:
                    lost = (meta["counts"][name] for name in ("reads", "bases", "new_kmers"))
                    self.novelty.add_lump(*lost)
                continue
            self.replayed[0] += size_of(record.frames)
            if record.kind == stored_messages.BATCH and record.frames:
                self._learn(stored_batch.StoredBatch(record))
            elif record.kind == stored_messages.DICTIONARY and record.frames:
                self.keep_sourced(np.frombuffer(record.frames[1], np.uint64))
            elif record.about is not None:
                self.core.revised(record.about)

    def keep_sourced(self, codes: NDArray[np.uint64]) -> None:
        """Keep k-mers of sources for ever, as they stand there."""
        if codes.size:
            self.sourced = [np.unique(np.concatenate([*self.sourced, codes]))]

    def _count(self, batch: Header) -> None:
        about, counts = batch["about"], batch["counts"]
        self.number = about["batch"] + 1
        self.position = about["base"] + about["bases"]
        self.version = about["version"]
        self.counts.update(counts)
        self.replayed[1] += counts["new_kmers"]

    def _learn(self, batch: stored_batch.StoredBatch) -> None:
        self.novelty.add(batch.offsets, batch.new_starts)
        # copies: the frames of a record are large
        for codes, parts in ((batch.new_kmers, self.grown), (batch.learned, self.learned)):
            if codes.size:
                parts.append(codes.copy())


_FIELDS = (
    "number", "position", "version", "fingerprint", "heads", "counts", "sources", "targets",
    "unstored",
)  # fmt: skip
_KMERS = ("grown", "learned", "sourced")


def restore(
    journal: Journal, pause: Callable[[], None] = lambda: None, *, learns: bool = True
) -> Restored:
    """The state after the journal's last record; JournalDamage for a record that cannot be read.

    If k-mers were given up, the dictionary gets another version. pause: called after each record
    that was read. learns: whether batches may bring k-mers; if not, they are not read, and the
    curve of new k-mers stays as it is.
    """
    restored = Restored()
    snapshot = journal.snapshot()
    # records make up for k-mers that were given up, if all records are kept
    if snapshot is not None and (snapshot.frames or journal.oldest > 1):
        meta = msgpack.unpackb(snapshot.meta)
        restored = Restored.of_snapshot(snapshot.at, meta)
        if snapshot.frames:
            for name, codes in zip(_KMERS, snapshot.frames, strict=True):
                setattr(restored, name, [np.frombuffer(codes, np.uint64)])
        else:
            _learn_again(journal, restored, meta["sourced"])
    elif journal.oldest > 1:
        restored.loss.unknown = True
    until = journal.head
    first = max(restored.at, journal.oldest - 1)
    for record in journal.history(first, until, skimmed="" if learns else stored_messages.BATCH):
        restored.add([record])
        if record.frames or not record.at % _SKIMMED_TOGETHER:
            pause()
    restored.at = until
    restored.version += bool(restored.loss)
    return restored


def _learn_again(journal: Journal, restored: Restored, of_sources: int) -> None:
    """Take the lost k-mers from the records that still have them; of_sources: k-mers of sources."""
    kept = Restored()
    kept.add(journal.history(journal.oldest - 1, restored.at))
    restored.grown, restored.learned, restored.sourced = kept.grown, kept.learned, kept.sourced
    grown, sourced = (sum(codes.size for codes in some) for some in (kept.grown, kept.sourced))
    restored.loss.kmers = restored.counts["new_kmers"] - grown + of_sources - sourced


def put_snapshot(
    journal: Journal, pause: Callable[[], None] = lambda: None, *, learns: bool = True
) -> None:
    """Store the state after the journal's last record, so that a restart reads only that.

    pause, learns: as in ``restore``.
    """
    restored = restore(journal, pause, learns=learns)
    meta = {name: getattr(restored, name) for name in _FIELDS}
    meta |= {"counts": dict(restored.counts), "revision": restored.core.revision}
    meta["novelty"] = restored.novelty.state
    meta["sourced"] = sum(codes.size for codes in restored.sourced)
    frames = [raw(concatenated(getattr(restored, name), _NO_CODES)) for name in _KMERS]
    journal.put_snapshot(restored.at, msgpack.packb(meta), frames)


def identity(spec: MatchSpec) -> bytes:
    """Identifies what the records of a journal mean; one of another identity cannot be used."""
    values = {
        "k": spec.k,
        "mode": spec.mode,
        "strands": spec.strands,
        "distance": spec.distance or 0,
        "semantics": spec.semantics if spec.near else "exact",
        "seed_bases": spec.seed_bases,
    }
    return " ".join(f"{name}={value}" for name, value in values.items()).encode()


def fingerprint(dictionary: Dictionary) -> int:
    """A checksum of the k-mers, their targets and names; it is never 0."""
    index, grown = dictionary.index, dictionary.grown
    if index.records and not grown.size:
        return index.fingerprint
    own = raw(np.array([index.fingerprint])) if index.records else raw(dictionary.targets.starts)
    return crc32c([raw(grown), own]) or 1


log = structlog.get_logger("daemon")


def restored_of(journal: Journal | None) -> Restored:
    """The state after the journal's last record; without a journal, that of a new daemon.

    A loss is stored with the state. JournalError if the state cannot be read; the journal is then
    closed.
    """
    if journal is None:
        return Restored()
    try:
        restored = restore(journal)
        if restored.loss:
            lost = str(restored.loss)
            message = "k-mers were given up: the stream or the sources may bring them again"
            log.warning(message, kmers=lost)
            # from here on the loss is part of the state
            try:
                put_snapshot(journal)
            except JournalFull as error:
                log.error("the state cannot be stored: it is tried again", why=str(error))
                restored.replayed = [most + 1 for most in SNAPSHOT_AFTER]
        return restored
    except BaseException:
        journal.close()
        raise
