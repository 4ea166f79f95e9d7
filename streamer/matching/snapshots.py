"""The snapshots of a matcher's dictionary, and the version that the dictionary has.

A fixed dictionary has one snapshot, made when it is first asked for. One that changes is followed
by a tree worker, from the beginning or from the first need of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.match_engine import SpanFound
from streamer.matching.tree_worker import TreeWorker, VersionedSnapshot
from trie.codes import with_reverse_complements
from trie.snapshots.tree_bitmap import snapshot


class Snapshots:
    """The snapshots of ``dictionary``.

    grows: mismatched k-mers are added, not only seeds; that may end between two batches. version:
    of the dictionary, one more with every span that brings k-mers.
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
        """Whether there is a tree worker."""
        return self._worker is not None

    @property
    def worker(self) -> TreeWorker | None:
        """The tree worker, if there is one."""
        return self._worker

    @property
    def version_in_use(self) -> int:
        """The version of the dictionary that the snapshot in use is of."""
        return self.version if self._worker is None else self._worker.current.version

    def follow(self, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Start a tree worker.

        codes: returns the k-mers of the dictionary now (uint64, ascending); called if it has
        changed.
        """
        dictionary = self._dictionary
        if self.version > 1:
            known = codes()
            dictionary = replace(dictionary, codes=known, sets=np.zeros(known.size, np.uint32))
        self._worker = TreeWorker(dictionary, self.version, self._threads)

    def go_back(self, version: int, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Return to the dictionary of that version; ``codes`` as for ``follow``."""
        self.version = version
        if self._worker is not None:
            # it has k-mers that were not there then
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
        """Between two spans: the snapshot in use from here on; None without a tree worker.

        wait: as for ``TreeWorker.end_span``.
        """
        if self._worker is None:
            return None
        self._worker.end_span(self.version, wait=wait)
        return self._worker.current

    def in_use(self) -> VersionedSnapshot:
        """The snapshot to match with now."""
        if self._worker is not None:
            # with seeds alone it must hold all of them; a growing one is matched meanwhile
            return self._worker.current if self.grows else self._worker.latest(self.version)
        if self._only is None:
            codes = self._dictionary.codes
            if self._dictionary.strands == "both":
                codes = with_reverse_complements(codes, self._dictionary.k)
            self._only = VersionedSnapshot(snapshot(codes, self._dictionary.k), self.version)
        return self._only

    def latest(self) -> VersionedSnapshot:
        """A snapshot of the dictionary as it is now; waits for merges."""
        return self.in_use() if self._worker is None else self._worker.latest(self.version)

    def views(self, seeds: int) -> SpanViews:
        """The snapshots that the spans of a batch see, of which the first ``seeds`` are seeds."""
        if self.grows:
            assert self._worker is not None
            return SpanViews(self._worker.current, 0, None)
        return SpanViews(self.in_use() if seeds else None, seeds, self.in_use)

    def close(self) -> None:
        """Finish the merges."""
        if self._worker is not None:
            self._worker.close()


class SpanViews:
    """The snapshots that the spans of a batch are matched with, by number.

    While the dictionary grows, a span sees the snapshot that was in use after the last span but
    one before it, which is what two streams can know: an engine that knows more sees no more. On a
    fixed dictionary seeds see what was there before the batch, the other spans all of it.
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
        """The snapshot in use after the next span."""
        if self._whole is None:
            self._after.append(current)
            self._after[:-3] = [None] * len(self._after[:-3])

    def of(self, span: int) -> VersionedSnapshot:
        """The snapshot of a span."""
        if self._whole is not None and span >= self._seeds:
            return self._whole()
        seen = 0 if self._whole is not None else max(span - 1, 0)
        found = self._after[min(seen, len(self._after) - 1)]
        assert found is not None
        return found
