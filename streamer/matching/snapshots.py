"""The snapshots of a matcher's dictionary, and the version that the dictionary has.

A fixed dictionary has one snapshot, made on first use. A changing one is followed by a tree worker,
from the start or once a snapshot is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.match_engine import SpanFound
from streamer.matching.tree_worker import TreeWorker, VersionedSnapshot, built
from trie.codes import with_reverse_complements
from trie.snapshots.tree_bitmap import snapshot


class Snapshots:
    """The snapshots of ``dictionary``.

    grows: mismatched k-mers are added, not only seeds; this may end between two batches. version:
    of the dictionary, incremented by every span that adds k-mers.
    """

    def __init__(
        self, dictionary: Dictionary, *, grows: bool, threads: int, version: int = 1
    ) -> None:
        self.version = version
        self._dictionary = dictionary
        self.grows = grows
        self._threads = threads
        self._worker: TreeWorker | None = None
        self._only: VersionedSnapshot | None = None

    @property
    def following(self) -> bool:
        """Whether a tree worker is running."""
        return self._worker is not None

    @property
    def worker(self) -> TreeWorker | None:
        """The tree worker, if there is one."""
        return self._worker

    @property
    def version_in_use(self) -> int:
        """The dictionary version of the snapshot in use."""
        return self.version if self._worker is None else self._worker.current.version

    def follow(self, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Start a tree worker.

        codes: returns the current k-mers of the dictionary (uint64, ascending); called if it has
        changed.
        """
        dictionary = self._dictionary
        if self.version > 1:
            known = codes()
            dictionary = replace(dictionary, codes=known, sets=np.zeros(known.size, np.uint32))
        self._worker = TreeWorker(dictionary, self.version, self._threads)

    def go_back(self, version: int, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Return to that version of the dictionary; ``codes`` as for ``follow``."""
        self.version = version
        if self._worker is not None:
            # it holds k-mers that this version lacks
            self._worker.close()
            self.follow(codes)

    def learn(self, found: SpanFound) -> None:
        """Add the k-mers of a span."""
        self.version += 1
        if self._worker is None:
            return
        if found.ordered is not None:
            self._worker.add(found.ordered, ascending=True)
        else:
            self._worker.add(found.codes)

    def end_span(self, *, wait: bool) -> VersionedSnapshot | None:
        """Between two spans: return the snapshot to use next; None without a tree worker.

        wait: as for ``TreeWorker.end_span``.
        """
        if self._worker is None:
            return None
        self._worker.end_span(self.version, wait=wait)
        return self._worker.current

    def in_use(self) -> VersionedSnapshot:
        """Return the snapshot to match against now."""
        if self._worker is not None:
            # with seeds alone the snapshot must hold all of them; a growing one is used as it grows
            return self._worker.current if self.grows else self._worker.latest(self.version)
        if self._only is None:
            codes = self._dictionary.codes
            if self._dictionary.strands == "both":
                codes = with_reverse_complements(codes, self._dictionary.k)
            self._only = built(partial(snapshot, codes, self._dictionary.k), self.version)
        return self._only

    def latest(self) -> VersionedSnapshot:
        """Return a snapshot of the current dictionary; waits for merges."""
        return self.in_use() if self._worker is None else self._worker.latest(self.version)

    def views(self, seeds: int) -> SpanViews:
        """The snapshots that the spans of a batch see; the first ``seeds`` spans are seeds."""
        if self.grows:
            assert self._worker is not None
            return SpanViews(self._worker.current, 0, None)
        return SpanViews(self.in_use() if seeds else None, seeds, self.in_use)

    def close(self) -> None:
        """Finish the merges."""
        if self._worker is not None:
            self._worker.close()


class SpanViews:
    """The snapshots that the spans of a batch are matched against, by number.

    While the dictionary grows, a span sees the snapshot in use when the last span but one ended,
    the newest that two streams can provide; faster engines see the same one. With a dictionary that
    does not grow, seeds see the state before the batch, and all other spans see everything.
    """

    def __init__(
        self,
        first: VersionedSnapshot | None,
        seeds: int,
        whole: Callable[[], VersionedSnapshot] | None,
    ) -> None:
        self._after: list[VersionedSnapshot | None] = [first]
        self._seeds = seeds
        self._whole = whole

    def span_ended(self, current: VersionedSnapshot) -> None:
        """Note the snapshot in use after the next span."""
        if self._whole is None:
            self._after.append(current)
            self._after[:-3] = [None] * len(self._after[:-3])

    def of(self, span: int) -> VersionedSnapshot:
        """Return the snapshot of a span."""
        if self._whole is not None and span >= self._seeds:
            return self._whole()
        seen = 0 if self._whole is not None else max(span - 1, 0)
        found = self._after[min(seen, len(self._after) - 1)]
        assert found is not None
        return found
