"""What a daemon goes on from: the journal's last snapshot, and the records after it.

A snapshot is a record's worth of state: a map of counters, the k-mers that the stream brought, and
those that a distance is measured to. It is made by reading the journal, as a restart does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH, stored_topics
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import Outline, Record
from streamer.journal.store import Journal
from streamer.matching.matcher import Start
from streamer.matching.result import concatenated
from streamer.matching.spec import MatchSpec
from streamer.protocol.checksums import crc32c
from streamer.protocol.header import Header, raw, size_of

DICTIONARY = "dictionary"

_NO_CODES = np.zeros(0, np.uint64)


@dataclass
class Loss:
    """k-mers that the stream had added, and that were given up with records or a snapshot.

    kmers: how many are known of. unknown: whether there may be more.
    """

    kmers: int = 0
    unknown: bool = False

    def __bool__(self) -> bool:
        return self.unknown or self.kmers > 0

    def __str__(self) -> str:
        known = f"{self.kmers}" if self.kmers else ""
        return f"{known or 'unknown'}{' or more' if known and self.unknown else ''}"

    def add(self, record: Header) -> None:
        """A record with this meta was given up."""
        self.kmers += record.get("counts", {}).get("new_kmers", 0)
        self.unknown |= not record


@dataclass
class Restored:
    """The state after record ``at``.

    fingerprint: of the dictionary that the sources gave, 0 before the first. heads: by topic, the
    last record with a message on it. counts: the totals. grown, learned: parts of those of
    ``Start``. replayed: bytes, new k-mers and records read after the snapshot. loss: what of them
    is missing.
    """

    at: int = 0
    number: int = 0
    position: int = 0
    version: int = 1
    fingerprint: int = 0
    heads: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    grown: list[NDArray[np.uint64]] = field(default_factory=list)
    learned: list[NDArray[np.uint64]] = field(default_factory=list)
    replayed: list[int] = field(default_factory=lambda: [0, 0, 0])
    loss: Loss = field(default_factory=Loss)

    @property
    def start(self) -> Start:
        """Where the matcher goes on."""
        grown, learned = concatenated(self.grown, _NO_CODES), concatenated(self.learned, _NO_CODES)
        return Start(self.number, self.position, self.version, grown, learned)

    def add(self, records: Iterable[Record | Outline]) -> None:
        """Take in the records that follow; of an Outline only its numbers are left."""
        for record in records:
            self.at = record.at
            self.replayed[2] += 1
            self.heads |= dict.fromkeys(stored_topics(record.kind, record.meta), record.at)
            meta = msgpack.unpackb(record.meta) if record.meta else {}
            if record.kind == BATCH:
                self._count(meta)
            elif record.kind == DICTIONARY:
                self.version, self.fingerprint = meta["version"], meta["fingerprint"]
            if isinstance(record, Outline):
                self.loss.add(meta)
                continue
            self.replayed[0] += size_of(record.frames)
            if record.kind == BATCH:
                self._learn(StoredBatch(record))

    def _count(self, batch: Header) -> None:
        about, counts = batch["about"], batch["counts"]
        self.number = about["batch"] + 1
        self.position = about["base"] + about["bases"]
        self.version = about["version"]
        self.counts.update(counts)
        self.replayed[1] += counts["new_kmers"]

    def _learn(self, batch: StoredBatch) -> None:
        # copies: the frames of a record are large
        for codes, parts in ((batch.new_kmers, self.grown), (batch.learned, self.learned)):
            if codes.size:
                parts.append(codes.copy())


_COUNTERS = ("number", "position", "version", "fingerprint", "heads", "counts")


def restore(journal: Journal) -> Restored:
    """The state after the journal's last record; JournalDamage for a record that cannot be read.

    Without k-mers that were given up the dictionary is another version.
    """
    restored = Restored()
    snapshot = journal.snapshot()
    # records make up for k-mers that were given up, if all of them are kept
    if snapshot is not None and (snapshot.frames or journal.oldest > 1):
        meta = msgpack.unpackb(snapshot.meta)
        counters = {name: meta[name] for name in _COUNTERS} | {"counts": Counter(meta["counts"])}
        restored = Restored(snapshot.at, **counters)
        if snapshot.frames:
            grown, learned = (np.frombuffer(frame, np.uint64) for frame in snapshot.frames)
            restored.grown, restored.learned = [grown], [learned]
        else:
            _learn_again(journal, restored)
    elif journal.oldest > 1:
        restored.loss.unknown = True
    until = journal.head
    restored.add(journal.history(max(restored.at, journal.oldest - 1), until))
    restored.at = until
    restored.version += bool(restored.loss)
    return restored


def _learn_again(journal: Journal, restored: Restored) -> None:
    """Of the k-mers until then, take those that records still have."""
    kept = Restored()
    kept.add(journal.history(journal.oldest - 1, restored.at))
    restored.grown, restored.learned = kept.grown, kept.learned
    found = sum(codes.size for codes in kept.grown)
    restored.loss.kmers = restored.counts["new_kmers"] - found


def put_snapshot(journal: Journal) -> None:
    """Store the state after the journal's last record, so that a restart reads no more than it."""
    restored = restore(journal)
    start = restored.start
    meta = {name: getattr(restored, name) for name in _COUNTERS}
    meta["counts"] = dict(restored.counts)
    journal.put_snapshot(restored.at, msgpack.packb(meta), (raw(start.grown), raw(start.learned)))


def identity(spec: MatchSpec) -> bytes:
    """What the records of a journal mean: one of another identity cannot be gone on with."""
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
    """A checksum of k-mers, their targets and names, which is never 0."""
    names = "\0".join(dictionary.targets.names).encode()
    return crc32c([raw(dictionary.codes), raw(dictionary.sets), names]) or 1


def dictionary_record(
    at: int, version: int, fingerprint: int, dictionary: Dictionary, now: int
) -> Record:
    """The record of a dictionary that begins with ``version``; its fingerprint is known."""
    meta = {
        "version": version,
        "fingerprint": fingerprint,
        "kmers": int(dictionary.codes.size),
    }
    names = msgpack.packb(list(dictionary.targets.names))
    return Record(at, DICTIONARY, msgpack.packb(meta), (names,), None, now)
