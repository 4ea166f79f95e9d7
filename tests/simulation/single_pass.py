"""One pass over the stream: the expected content of every record, given the order of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgpack
import numpy as np

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.core.producers import ProducerState
from streamer.daemon.publish import Group
from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH, DICTIONARY, REVISION, SETTLED, stored_topics
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import Record
from streamer.matching.events import Events
from streamer.matching.matcher import Start
from streamer.matching.result import BatchResult
from streamer.sequences.read_batch import ReadBatch
from tests.faults.plain_client import PlainFold
from tests.simulation.said import told
from trie.codes import GAP
from trie.windows import MATCH, MISMATCH


class LossyStart(NamedTuple):
    """A start after damage, from a snapshot and some of the records after it.

    head, oldest: the last record at the time, and the oldest one kept. snapshot: its record, 0 for
    none. whole: whether its k-mers were intact.
    """

    head: int
    oldest: int
    snapshot: int
    whole: bool
    given_up: frozenset[int]


@dataclass
class PassState:
    """The state after a record. grown, sourced: k-mers of the stream and earlier dictionaries."""

    number: int = 0
    position: int = 0
    version: int = 1
    fingerprint: int = 0
    grown: set[int] = field(default_factory=set)
    sourced: set[int] = field(default_factory=set)
    heads: dict[str, int] = field(default_factory=dict)

    def take(self, record: Record, *, learns: bool = True) -> None:
        """Advance past a record; learns: whether to add its k-mers."""
        self.heads.update(dict.fromkeys(stored_topics(record.kind, record.meta), record.at))
        meta = msgpack.unpackb(record.meta)
        if record.kind == DICTIONARY:
            self.version, self.fingerprint = meta["version"], meta["fingerprint"]
        elif record.kind == BATCH:
            about = meta["about"]
            self.number = about["batch"] + 1
            self.position = about["base"] + about["bases"]
            self.version = about["version"]
        if learns:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Add the k-mers of a record."""
        if record.kind == DICTIONARY:
            self.sourced.update(np.frombuffer(record.frames[1], np.uint64).tolist())
        elif record.kind == BATCH:
            self.grown.update(StoredBatch(record).new_kmers.tolist())


class SinglePass:
    """Matches the accepted batches again.

    grows, limit: as in ``ToyMatcher``. sources: the dictionaries by their fingerprints. starts:
    those after damage. flipped: records with a flipped bit. kept: returns the oldest record kept
    soon after a record was committed. diverges: called with each difference.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        grows: bool,
        limit: int,
        sources: Mapping[int, frozenset[int]],
        starts: Sequence[LossyStart],
        flipped: set[int],
        kept: Callable[[int], int],
        diverges: Callable[[str], None],
    ) -> None:
        self._records = records
        self._grows, self._limit = grows, limit
        self._sources = sources
        self._starts = starts
        self._flipped = flipped
        self._kept = kept
        self._diverges = diverges
        self._fold = PlainFold()
        self._history = [PassState()]

    def check(self) -> None:
        """Compare all records."""
        unsettled = 0
        for record in self._records:
            for start in self._starts:
                if start.head == record.at - 1:
                    self._history[-1] = self._begun(start)
            state = deepcopy(self._history[-1])
            if record.kind == BATCH:
                self._check_batch(state, record)
            elif record.kind == DICTIONARY:
                self._check_dictionary(state, record)
                unsettled = state.version + 1 if state.fingerprint else 0
            elif record.kind == SETTLED:
                self._check_settled(state, record)
                unsettled = 0
            for message in told(record):
                self._fold.take(*message)
            state.take(record)
            self._history.append(state)
        if unsettled:
            self._diverges(f"kept batches were never matched with version {unsettled}")

    def _begun(self, start: LossyStart) -> PassState:
        """The state at a start after damage; if k-mers were given up it has another version."""
        first, lost = start.snapshot, 0
        if not first or (not start.whole and start.oldest == 1):
            state, first = PassState(), 0
        else:
            state = deepcopy(self._history[first])
            if not start.whole:
                state.grown, state.sourced = set(), set()
                lost = sum(map(_added, self._records[:first]))
                for record in self._records[start.oldest - 1 : first]:
                    if record.at not in start.given_up:
                        state.learn(record)
                        lost -= _added(record)
                lost += len(self._history[first].sourced) - len(state.sourced)
        for record in self._records[first : start.head]:
            given_up = record.at in start.given_up
            state.take(record, learns=not given_up)
            if given_up:
                lost += _added(record) + msgpack.unpackb(record.meta).get("sourced", 0)
        state.version += lost != 0
        return state

    def _check_dictionary(self, state: PassState, record: Record) -> None:
        meta = msgpack.unpackb(record.meta)
        expected = state.version + (state.fingerprint != 0), state.number
        if (meta["version"], meta["batch"]) != expected:
            self._diverges(f"record {record.at}: the dictionary has other numbers than {expected}")

    def _check_batch(self, state: PassState, record: Record) -> None:
        expected = self._made(state, record)
        if (expected.meta, expected.frames) != (record.meta, record.frames):
            self._diverges(f"record {record.at}: one pass over the stream gives another one")

    def _made(self, state: PassState, record: Record) -> Record:
        """The expected record for the reads of ``record``, matched in this state."""
        known = np.array(sorted(state.grown | state.sourced), np.uint64)
        start = Start(state.number, state.position, state.version, known)
        dictionary = dictionary_of(self._sources[state.fingerprint])
        matcher = ToyMatcher(dictionary, start, grows=self._grows, limit=self._limit)
        key, batch = record.key, StoredBatch(record)
        assert key is not None
        producer = ProducerState(key.producer, key.epoch)
        item = Accepted(state.number, producer, key, 0, batch.reads, batch.names, 0.0)
        matched = Matched(record.at, item, matcher.match([batch.reads])[0], dictionary)
        (made,) = Group(dict(state.heads), [matched]).publications(intervals=True)
        # its frames live as long as the objects they were made of
        expected = made.record(record.time)
        return replace(expected, frames=tuple(bytes(frame) for frame in expected.frames))

    def _check_settled(self, state: PassState, record: Record) -> None:
        """All batches from one on must now have the answers of the last dictionary."""
        ((_, _, fields, _),) = msgpack.unpackb(record.meta)["topics"]
        if self._grows:
            return
        first, counts = self._kept(record.at), self._fold.answers()
        for batch in self._records[: record.at - 1]:
            if batch.kind != BATCH or batch.at in self._flipped:
                continue
            number = msgpack.unpackb(batch.meta)["about"]["batch"]
            if batch.at >= first and number < fields["from_batch"]:
                self._diverges(f"record {record.at} leaves out batch {number}, which is kept")
            if number < fields["from_batch"]:
                continue
            then = deepcopy(self._history[batch.at - 1])
            then.version, then.fingerprint = state.version, state.fingerprint
            expected = PlainFold()
            for message in told(self._made(then, batch)):
                expected.take(*message)
            if counts[number] != expected.answers()[number]:
                self._diverges(
                    f"record {record.at} says that all is of version {state.version}, "
                    f"but of batch {number} other answers count"
                )


def _added(record: Record) -> int:
    """How many k-mers a record added, as it states."""
    counts = msgpack.unpackb(record.meta).get("counts", {})
    added: int = 0 if record.kind == REVISION else counts.get("new_kmers", 0)
    return added


K = 4


def dictionary_of(codes: Iterable[int]) -> Dictionary:
    """A dictionary of k-mers without targets."""
    return Dictionary.empty(K, "forward").with_grown(np.array([*codes], np.uint64))


class ToyMatcher:
    """Matches in the given order. grows: whether it adds every k-mer that it does not hold.

    limit: a batch only adds k-mers if fewer are known before it, 0: always.
    It has the parts of ``StreamMatcher`` that the daemon uses.
    """

    def __init__(self, dictionary: Dictionary, start: Start, *, grows: bool, limit: int) -> None:
        self.number, self.version = start.number, start.version
        self.dictionary = dictionary
        self.fixed = not grows
        self._limit = limit
        self.known = {*dictionary.codes.tolist(), *start.grown.tolist()}
        self._position = start.position

    def succeed(self, before: ToyMatcher) -> None:
        """Continue the stream from another matcher."""
        self.number, self._position = before.number, before._position

    def match(self, batches: Sequence[ReadBatch], *, in_stream: bool = True) -> list[BatchResult]:
        """The results of the next batches, or of others."""
        assert in_stream or self.fixed
        results = []
        for batch in batches:
            results.append(self._match(batch))
            if in_stream:
                self.number += 1
                self._position += batch.symbols
        return results

    def _match(self, batch: ReadBatch) -> BatchResult:
        bases, offsets = batch.bases.tolist(), batch.offsets.tolist()
        events = np.zeros(len(bases), np.uint8)
        new: dict[int, int] = {}
        grows = not self.fixed and (not self._limit or len(self.known) < self._limit)
        for begin, end in zip(offsets, offsets[1:], strict=False):
            for start in range(begin, end - K + 1):
                code = _code(bases[start : start + K])
                if code is None:
                    continue
                if code in self.known:
                    events[start] = MATCH
                    continue
                events[start] = MISMATCH
                if grows:
                    self.known.add(code)
                    new[code] = start
        before, self.version = self.version, self.version + bool(new)
        return BatchResult(
            self.number,
            self._position,
            batch,
            K,
            Events.of(events),
            before,
            self.version,
            new_kmers=np.array([*new], np.uint64),
            new_starts=np.array([*new.values()], np.int64),
        )


def _code(bases: Sequence[int]) -> int | None:
    code = 0
    for base in bases:
        if base == GAP:
            return None
        code = 4 * code + base
    return code
