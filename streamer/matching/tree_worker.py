"""The worker that keeps the Hybrid Tree Bitmap and emits snapshots from it (thesis 3.3.4, 3.3.13).

New k-mers are merged in bulk on a thread of its own while the engine matches on. A snapshot is
asked for when the tree has grown by a quarter, and swapped in two spans later, as with the thesis's
two streams: by then it is nearly always ready, and which snapshot a chunk sees depends on
the reads alone, never on the clock.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from trie.codes import with_reverse_complements
from trie.cpu.threads import in_background
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.trees.hybrid_tree import HybridTreeBitmap
from trie.trees.shards import sort_unique

FIRST_SNAPSHOT = 4_096
GROWTH = 4
LAG = 2
# k-mers that may wait to be merged, 8 bytes each: an engine that is faster is held back
QUEUED_KMERS = 1 << 27
KMERS_A_THREAD = 1 << 15


@dataclass(slots=True)
class Runs:
    """What one merge takes: k-mers and whether they ascend, the first of them since when."""

    since: float
    parts: list[tuple[NDArray[np.uint64], bool]]


@dataclass(frozen=True, slots=True)
class VersionedSnapshot:
    """A Tree Bitmap and the version of the dictionary that it holds."""

    tree: TreeBitmap
    version: int


class TreeWorker:
    """The Hybrid Tree Bitmap of a growing dictionary, and the snapshot matched against."""

    def __init__(self, dictionary: Dictionary, version: int, threads: int) -> None:
        self._both = dictionary.strands == "both"
        self._tree = HybridTreeBitmap(dictionary.k)
        self._threads = threads
        # one thread: the tree has one writer, and merges and snapshots stay in order
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tree", initializer=in_background)
        self._merges: deque[Future[None]] = deque()
        # the runs that the next merge will take, while it has not begun
        self._open: Runs | None = None
        self._lock = Lock()
        self._waiting = 0
        # seconds that a k-mer had to wait at most until the tree held it
        self.longest_lag = 0.0
        self._pending = 0
        self._held = dictionary.codes.size
        self._asked: tuple[int, Future[VersionedSnapshot]] | None = None
        self._submit(dictionary.codes, True)
        self.current: VersionedSnapshot
        self._swap_in(self._emit(version))

    def add(self, codes: NDArray[np.uint64], *, ascending: bool = False) -> None:
        """Merge new k-mers in the background; ``ascending``: they are sorted already."""
        if codes.size:
            self._submit(codes, ascending)
            self._pending += codes.size

    def end_span(self, version: int, *, wait: bool) -> None:
        """Between two spans: ask for a snapshot when it is due, swap in the one asked for.

        Without ``wait``, where nothing is matched against snapshots, one that is late is swapped in
        when it is there, and the stream is not held up.
        """
        if self._asked is not None:
            left, asked = self._asked
            if left > 1:
                self._asked = (left - 1, asked)
                return
            if not (wait or asked.done()):
                return
            self._asked = None
            self._swap_in(asked)
        if self._pending >= max(FIRST_SNAPSHOT, self._held // GROWTH):
            self._held += self._pending
            self._pending = 0
            self._asked = (LAG, self._emit(version))

    def latest(self, version: int) -> VersionedSnapshot:
        """A snapshot of everything added so far; waits for it."""
        if self._pending or self._asked is not None:
            self._held += self._pending
            self._pending = 0
            self._asked = None
            self._swap_in(self._emit(version))
        return self.current

    def close(self) -> None:
        """Finish the merges under way and end the thread."""
        self._thread.shutdown(wait=True)
        self._check_merges(all_of_them=True)

    def _submit(self, codes: NDArray[np.uint64], ascending: bool) -> None:
        with self._lock:
            if self._open is None:
                self._open = Runs(time.monotonic(), [])
                self._merges.append(self._thread.submit(self._merge, self._open))
            self._open.parts.append((codes, ascending))
            self._waiting += codes.size
        self._check_merges()

    def _merge(self, runs: Runs) -> None:
        """Merge everything that has come since the merge before: the slower, the more at once."""
        with self._lock:
            if self._open is runs:
                self._open = None
        total = sum(codes.size for codes, _ in runs.parts)
        # many threads on little work would only keep the engine from the interpreter
        threads = max(1, min(self._threads, total // KMERS_A_THREAD))
        ready = []
        for codes, ascending in runs.parts:
            if self._both:
                codes = with_reverse_complements(codes, self._tree.k)
            if self._both or not ascending:
                codes = sort_unique(codes, self._tree.k, threads)
            ready.append(codes)
        self._tree.merge(ready, threads=threads)
        with self._lock:
            self._waiting -= total
        self.longest_lag = max(self.longest_lag, time.monotonic() - runs.since)

    def _emit(self, version: int) -> Future[VersionedSnapshot]:
        with self._lock:
            # what comes later is for later snapshots
            self._open = None
        return self._thread.submit(
            lambda: VersionedSnapshot(self._tree.to_tree_bitmap(threads=self._threads), version)
        )

    def _swap_in(self, asked: Future[VersionedSnapshot]) -> None:
        """Wait for a snapshot and use it, unless a merge before it has failed."""
        found = asked.result()
        self._check_merges()
        self.current = found

    def _check_merges(self, *, all_of_them: bool = False) -> None:
        """Raise what a merge has raised, so that no lost k-mer goes unnoticed.

        Waits where more k-mers are queued than memory should hold.
        """
        while self._merges and (
            all_of_them or self._waiting > QUEUED_KMERS or self._merges[0].done()
        ):
            self._merges.popleft().result()
