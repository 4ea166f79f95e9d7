"""The snapshots of a matcher's dictionary, and the version that the dictionary has.

One that stays as it is has one snapshot, made when it is first asked for. One that changes is
followed by a tree worker, once anyone asks for snapshots, or from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.engine import SpanFound
from streamer.matching.spans import SpanViews
from streamer.matching.tree_worker import TreeWorker, VersionedSnapshot
from trie.codes import with_reverse_complements
from trie.snapshots.tree_bitmap import snapshot


class Snapshots:
    """The snapshots of ``dictionary``; ``grows``: mismatched k-mers are added, not seeds alone.

    version: of the dictionary, one more with every span that brings k-mers.
    """

    def __init__(self, dictionary: Dictionary, *, grows: bool, threads: int) -> None:
        self.version = 1
        self._dictionary = dictionary
        self._grows = grows
        self._threads = threads
        self._worker: TreeWorker | None = None
        self._only: VersionedSnapshot | None = None

    @property
    def following(self) -> bool:
        """Whether there is a tree worker."""
        return self._worker is not None

    @property
    def version_in_use(self) -> int:
        """The version of the dictionary that the snapshot in use is of."""
        return self.version if self._worker is None else self._worker.current.version

    def follow(self, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """Have a tree worker from now on.

        codes: gives the k-mers of the dictionary as it is now (uint64, ascending); asked for if it
        has changed.
        """
        held = self._dictionary
        if self.version > 1:
            known = codes()
            sets = np.zeros(known.size, np.uint32)
            held = Dictionary(held.k, held.strands, known, sets, held.targets)
        self._worker = TreeWorker(held, self.version, self._threads)

    def go_back(self, version: int, codes: Callable[[], NDArray[np.uint64]]) -> None:
        """To the dictionary of that version; ``codes`` as for ``follow``."""
        self.version = version
        if self._worker is not None:
            # it has k-mers that were not there then
            self._worker.close()
            self.follow(codes)

    def learn(self, found: SpanFound) -> None:
        """Add the k-mers that a span has brought."""
        self.version += 1
        if self._worker is None:
            return
        if found.ordered is not None:
            self._worker.add(found.ordered, ascending=True)
        elif found.codes is not None:
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
            # what only seeds change is whole once they are in; what grows is matched meanwhile
            return self._worker.current if self._grows else self._worker.latest(self.version)
        if self._only is None:
            codes = self._dictionary.codes
            if self._dictionary.strands == "both":
                codes = with_reverse_complements(codes, self._dictionary.k)
            self._only = VersionedSnapshot(snapshot(codes, self._dictionary.k), self.version)
        return self._only

    def latest(self) -> VersionedSnapshot:
        """A snapshot of the dictionary as it is now; waits for what is being merged."""
        return self.in_use() if self._worker is None else self._worker.latest(self.version)

    def views(self, seeds: int) -> SpanViews:
        """Which snapshot each span of a batch sees, of which the first ``seeds`` are seeds."""
        if self._grows:
            assert self._worker is not None
            return SpanViews(self._worker.current, 0, None)
        return SpanViews(self.in_use() if seeds else None, seeds, self.in_use)

    def close(self) -> None:
        """Finish what is being merged."""
        if self._worker is not None:
            self._worker.close()
