"""What the feed says about one batch: which topics, in which order, with which columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.engine import Matched
from streamer.daemon.layout import Laid, LayoutSource, lay_out
from streamer.daemon.layout_kernels import COLUMNS
from streamer.dictionary.targets import NO_SET
from streamer.errors import StreamerError
from streamer.matching import reports
from streamer.matching.result import MATCH, MISMATCH
from streamer.protocol.checksums import checksum
from streamer.protocol.feed_messages import encode_feed, encode_head
from streamer.protocol.header import Header
from streamer.protocol.transport.sending import Message
from trie.cpu.threads import run_all, usable_cores

Columns = dict[str, NDArray[Any]]
Content = tuple[Header, Columns]


_THREADS = 4
_PER_THREAD = 1 << 20


def publications(matched: Sequence[Matched], *, intervals: bool) -> list[Publication]:
    """Those of the batches, in order; with ``intervals`` these are computed now.

    Batches whose matches have one target set all together, by one thread: it goes over 20,000
    million symbols a second, while waking another takes as long as going over a million.
    """
    plain = iter(_lay_out([m for m in matched if m.result.sets is None], intervals=intervals))
    others = [m for m in matched if m.result.sets is not None]
    threads = 0
    if others:
        symbols = sum(m.result.batch.symbols for m in others)
        threads = min(_THREADS, usable_cores() // 2, symbols // _PER_THREAD)
    found = iter(run_all([partial(Publication, m, intervals=intervals) for m in others], threads))
    return [
        Publication(m, laid=next(plain)) if m.result.sets is None else next(found) for m in matched
    ]


def _lay_out(matched: Sequence[Matched], *, intervals: bool) -> list[Laid]:
    if not matched:
        return []
    sources = [
        LayoutSource(
            m.result, reports.only_target(m.result, m.dictionary.targets), m.accepted.names
        )
        for m in matched
    ]
    return lay_out(sources, intervals=intervals)


class Publication:
    """The messages of the batch ``matched``, each computed only when asked for.

    intervals: those of ``match`` and ``mismatch`` are computed now. laid: what ``lay_out`` says of
    the batch, if it has been asked already; it stands for ``intervals``. topics: those with
    something to say, in order; it depends on the stream, not on who listens.
    """

    def __init__(
        self, matched: Matched, *, intervals: bool = False, laid: Laid | None = None
    ) -> None:
        self.matched = matched
        self._result = matched.result
        self._targets = matched.dictionary.targets
        self._stored = matched.stored
        self._near = matched.result.near
        self._intervals: tuple[Columns, Columns] | None = None
        self._summary: Columns = {}
        if laid is None and self._result.sets is None:
            (laid,) = _lay_out([matched], intervals=intervals)
        self._laid = laid
        if laid is None:
            self._summary, sums = reports.reads_and_sums(self._result, self._targets)
            if intervals:
                self._intervals = reports.intervals_by_event(self._result)
        else:
            sums = reports.Sums(laid.windows, laid.matches, laid.skipped, laid.reads_on_target)
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
        self.topics = self._topics()

    def _topics(self) -> list[str]:
        counts, near = self.counts, self._near
        said = {
            "match": counts["matches"] > 0,
            "mismatch": counts["mismatches"] > 0,
            "near": near is not None and near.semantics == "levenshtein" and len(near) > 0,
            "ltb": near is not None and near.semantics == "ltb" and len(near) > 0,
            "delta": counts["new_kmers"] > 0,
            "word": counts["windows"] > 0,
            "read": True,
        }
        return [topic for topic, there in said.items() if there]

    def message(self, topic: str, header: Header) -> Message:
        """The frames of the message for a topic; ``header`` gets what belongs to the topic."""
        names = self.matched.accepted.names
        if self._laid is None or topic not in COLUMNS:
            extra, columns = self.content(topic)
            return encode_feed(topic, header | extra, names, columns)
        laid = self._with_columns(self._laid, topic)
        header |= self._targets_laid(laid, topic)
        frames = laid.frames(topic)
        found = laid.checksum(topic)
        if found < 0:
            found = checksum(frames.frames())
        return [*encode_head(topic, header, laid.described(topic), found), frames]

    def content(self, topic: str) -> Content:
        """Header fields and columns of the message for a topic."""
        if self._laid is not None and topic in COLUMNS:
            laid = self._with_columns(self._laid, topic)
            return self._targets_laid(laid, topic), laid.columns(topic)
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

    def _with_columns(self, laid: Laid, topic: str) -> Laid:
        if not laid.has(topic):
            # somebody has begun to listen since
            (laid,) = _lay_out([self.matched], intervals=True)
            self._laid = laid
        return laid

    def _targets_laid(self, laid: Laid, topic: str) -> Header:
        targets, held = self._targets, self._result.only_set
        if topic == "match":
            some = held != NO_SET and laid.rows["match"]
            return {"targets": [[int(held), targets.label(int(held))]] if some else []}
        if topic == "read":
            only = laid.target
            return {"targets": [[only, targets.names[only]]] if laid.reads_on_target else []}
        return {}

    def _by_event(self) -> tuple[Columns, Columns]:
        if self._intervals is None:
            self._intervals = reports.intervals_by_event(self._result)
        return self._intervals

    def _events(self, event: int) -> Content:
        matched, mismatched = self._by_event()
        if event == MISMATCH:
            return {}, mismatched
        return {"targets": _named(matched["target"], NO_SET, self._targets.label)}, matched

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
        return {"targets": _named(columns["best_target"], -1, name)}, columns


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
