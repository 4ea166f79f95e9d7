"""What the feed says about one batch: which topics, in which order, with which columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import reports
from streamer.daemon.engine import Matched
from streamer.errors import StreamerError
from streamer.matching.result import MATCH, MISMATCH
from streamer.targets import NO_SET
from streamer.wire import Header
from trie.parallel import run_all, usable_cores

NEAR_TOPICS = {"near": "levenshtein", "ltb": "ltb"}

Columns = dict[str, NDArray[Any]]
Content = tuple[Header, Columns]


_THREADS = 4
_PER_THREAD = 1 << 20


def publications(matched: Sequence[Matched], *, intervals: bool) -> list[Publication]:
    """Those of the batches, in order; with ``intervals`` these are computed now, on threads."""
    # waking a thread takes as long as a batch of some 100,000 symbols
    symbols = sum(m.result.batch.symbols for m in matched)
    threads = min(_THREADS, usable_cores() // 2, symbols // _PER_THREAD)
    return run_all([partial(Publication, m, intervals=intervals) for m in matched], threads)


class Publication:
    """The messages of the batch ``matched``, each computed only when asked for.

    intervals: those of ``match`` and ``mismatch`` are computed now.
    """

    def __init__(self, matched: Matched, *, intervals: bool = False) -> None:
        self.matched = matched
        self._result = matched.result
        self._targets = matched.dictionary.targets
        self._stored = matched.stored
        self._near = matched.result.near
        self._intervals: tuple[Columns, Columns] | None = None
        if intervals:
            found = reports.reads_and_intervals(self._result, self._targets)
            self._summary, sums, self._intervals = found
        else:
            self._summary, sums = reports.reads_and_sums(self._result, self._targets)
        self._sums = sums
        self.counts = {
            "windows": sums.windows,
            "matches": sums.matches,
            "mismatches": sums.windows - sums.matches,
            "skipped": sums.skipped,
            "reads_on_target": sums.reads_on_target,
            "batches": 1,
            "reads": len(self._result.batch),
            "bases": self._result.batch.symbols,
            "new_kmers": int(self._result.new_kmers.size),
        }

    def has(self, topic: str) -> bool:
        """Whether there is something to say; it depends on the stream only, not on who listens."""
        counted = {"match": "matches", "mismatch": "mismatches", "delta": "new_kmers"}
        if topic == "read":
            return True
        if topic in ("near", "ltb"):
            near = self._near
            return near is not None and near.semantics == NEAR_TOPICS[topic] and len(near) > 0
        return self.counts[counted.get(topic, "windows")] > 0

    def content(self, topic: str) -> Content:
        """Header fields and columns of the message for a topic."""
        makers: dict[str, Callable[[], Content]] = {
            "match": lambda: self._events(MATCH),
            "mismatch": lambda: self._events(MISMATCH),
            "near": self._nearest,
            "ltb": self._automaton,
            "delta": self._delta,
            "word": self._words,
            "read": self._reads,
        }
        return makers[topic]()

    def _by_event(self) -> tuple[Columns, Columns]:
        if self._intervals is None:
            self._intervals = reports.intervals_by_event(self._result, self._sums)
        return self._intervals

    def _events(self, event: int) -> Content:
        matched, mismatched = self._by_event()
        if event == MISMATCH:
            return {}, mismatched
        return {"targets": self._targets_of(matched["target"])}, matched

    def _targets_of(self, column: NDArray[np.uint32]) -> list[list[int | str | None]]:
        if self._result.sets is None and self._result.only_set != NO_SET and column.size:
            only = int(self._result.only_set)
            return [[only, self._targets.label(only)]]
        return _named(column, NO_SET, self._targets.label)

    def _nearest(self) -> Content:
        near, stored = self._near, self._stored
        assert near is not None
        assert stored is not None
        best = np.zeros(len(near), dtype=np.uint8)
        best[near.best()] = 1
        columns: Columns = {
            "read": near.read.astype(np.uint32),
            "start": near.start,
            "end": near.end,
            "distance": near.distance,
            "strand": near.strand,
            "code": near.code,
            "target": near.target,
            "snapshot": near.version,
            "best": best,
        }
        targets = _named(near.target, NO_SET, stored.targets.label)
        return {"targets": targets, "distance": near.distance_limit}, columns

    def _automaton(self) -> Content:
        near = self._near
        assert near is not None
        columns: Columns = {
            "read": near.read.astype(np.uint32),
            "end": near.end,
            "distances": near.matches,
            "depths": near.mismatches,
            "snapshot": near.version,
        }
        return {"distance": near.distance_limit}, columns

    def _delta(self) -> Content:
        result = self._result
        offsets = result.batch.offsets
        read = np.searchsorted(offsets, result.new_starts, side="right") - 1
        columns: Columns = {
            "code": result.new_kmers,
            "read": read.astype(np.uint32),
            "start": result.new_starts - offsets[read],
        }
        return {"seeded": result.seeded}, columns

    def _words(self) -> Content:
        empty: Columns = {
            "word": np.zeros(0, np.uint64),
            "chunk_base": np.zeros(0, np.int64),
            "chunk_version": np.zeros(0, np.int64),
            "chunk_words": np.zeros(0, np.int64),
        }
        try:
            chunks = self._result.words()
        except (StreamerError, ValueError, OverflowError) as error:
            return {"error": str(error)}, empty
        if not chunks:
            return {}, empty
        columns: Columns = {
            "word": np.concatenate([chunk.words for chunk in chunks]),
            "chunk_base": np.array([chunk.base for chunk in chunks], dtype=np.int64),
            "chunk_version": np.array([chunk.version for chunk in chunks], dtype=np.int64),
            "chunk_words": np.array([chunk.words.size for chunk in chunks], dtype=np.int64),
        }
        return {}, columns

    def _reads(self) -> Content:
        summary = self._summary
        columns: Columns = {"read": np.arange(summary["read"].size, dtype=np.uint32)}
        columns |= {name: summary[name] for name in reports.READ_COLUMNS[1:]}
        name = self._targets.names.__getitem__
        if self._result.sets is not None:
            return {"targets": _named(columns["best_target"], -1, name)}, columns
        if not self._sums.reads_on_target:
            return {"targets": []}, columns
        only = int(self._targets.members[self._targets.starts[self._result.only_set]])
        return {"targets": [[only, name(only)]]}, columns


def _named(
    indices: NDArray[Any], nothing: int | np.uint32, label: Callable[[int], str | None]
) -> list[list[int | str | None]]:
    """[index, label] of every index that is there, ascending; ``nothing`` stands for none."""
    present = indices[indices != nothing]
    if not present.size:
        return []
    least, most = int(present.min()), int(present.max())
    # mostly there is one
    distinct = [least] if least == most else [int(index) for index in np.unique(present)]
    return [[index, label(index)] for index in distinct]
