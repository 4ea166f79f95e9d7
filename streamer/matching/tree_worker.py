"""The worker that grows the Hybrid Tree Bitmap and emits snapshots from it (3.3.4, 3.3.13).

A dedicated thread merges new k-mers in bulk while the engine matches. A snapshot is requested when
the tree has grown by a quarter, and swapped in two spans later, as with the two streams of the
thesis. By then it is nearly always ready, and which snapshot a chunk sees depends on the reads
alone, never on timing.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.errors import SnapshotTooLargeError
from trie.codes import with_reverse_complements
from trie.cpu.stages import StageWork
from trie.cpu.threads import in_background
from trie.snapshots.tree_bitmap import TooManyNodesError, TreeBitmap
from trie.strands import Strands
from trie.trees.hybrid_tree import HybridTreeBitmap
from trie.trees.shards import sort_unique

FIRST_SNAPSHOT = 4_096
GROWTH = 4
LAG = 2
# k-mers that may wait to be merged, 8 bytes each; beyond that, the engine has to wait
QUEUED_KMERS = 1 << 27
KMERS_A_THREAD = 1 << 15

_T = TypeVar("_T")


@dataclass(slots=True)
class Runs:
    """The input of one merge: k-mers, whether they ascend, and when the first of them came."""

    since: float
    parts: list[tuple[NDArray[np.uint64], bool]]


class VersionedSnapshot(NamedTuple):
    """A Tree Bitmap and the version of the dictionary that it holds."""

    tree: TreeBitmap
    version: int


def built(build: Callable[[], TreeBitmap], version: int) -> VersionedSnapshot:
    """Return the snapshot that ``build`` makes; SnapshotTooLargeError if it has too many nodes."""
    try:
        return VersionedSnapshot(build(), version)
    except TooManyNodesError as error:
        raise SnapshotTooLargeError(
            f"the dictionary is too large for a snapshot, which --save, a GPU, --kernel walk and "
            f"--semantics ltb need: {error}; give fewer records or a smaller k"
        ) from error


class TreeWorker:
    """The Hybrid Tree Bitmap of a growing dictionary, and the snapshot matched against.

    codes: uint64, ascending, the k-mers of ``version``.
    """

    def __init__(
        self, k: int, strands: Strands, codes: NDArray[np.uint64], version: int, threads: int
    ) -> None:
        self._both = strands == "both"
        self._tree = HybridTreeBitmap(k)
        self._threads = threads
        # a single thread: the tree has one writer, and merges and snapshots stay in order
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tree", initializer=in_background)
        self._merges: deque[Future[None]] = deque()
        # the runs that the next merge will take, until it begins
        self._open: Runs | None = None
        self._lock = Lock()
        self._waiting = 0
        self.work = StageWork()
        self.awaited = False
        """Whether the stream is waiting for the tree."""
        self._submitted = 0
        # the longest time in seconds until a k-mer was in the tree
        self.longest_lag = 0.0
        self._pending = 0
        self._size = codes.size
        self._requested: tuple[int, Future[VersionedSnapshot]] | None = None
        self._submit(codes, True)
        self.current: VersionedSnapshot
        self._swap_in(self._emit(version))

    @property
    def queued(self) -> int:
        """The number of unfinished merges and snapshots."""
        return self._submitted - self.work.done

    def add(self, codes: NDArray[np.uint64], *, ascending: bool = False) -> None:
        """Merge new k-mers in the background; ``ascending``: they are sorted."""
        if codes.size:
            self._submit(codes, ascending)
            self._pending += codes.size

    def end_span(self, version: int, *, wait: bool) -> None:
        """Between two spans: request a snapshot when one is due, and swap in the one requested.

        Without ``wait``, for a stream that is not matched against snapshots, a late one is swapped
        in once it is ready, without delaying the stream.
        """
        if self._requested is not None:
            spans, requested = self._requested
            if spans > 1:
                self._requested = (spans - 1, requested)
                return
            if not (wait or requested.done()):
                return
            self._requested = None
            self._swap_in(requested)
        if self._pending >= max(FIRST_SNAPSHOT, self._size // GROWTH):
            self._size += self._pending
            self._pending = 0
            self._requested = (LAG, self._emit(version))

    def latest(self, version: int) -> VersionedSnapshot:
        """Return a snapshot of everything added so far; waits for it."""
        if self._pending or self._requested is not None:
            self._size += self._pending
            self._pending = 0
            self._requested = None
            self._swap_in(self._emit(version))
        return self.current

    def close(self) -> None:
        """Finish the merges and end the thread."""
        self._thread.shutdown(wait=True)
        self._check_merges(all_of_them=True)

    def _submit(self, codes: NDArray[np.uint64], ascending: bool) -> None:
        with self._lock:
            if self._open is None:
                self._open = Runs(time.monotonic(), [])
                runs = self._open
                self._merges.append(self._begin("a merge", lambda: self._merge(runs)))
            self._open.parts.append((codes, ascending))
            self._waiting += codes.size
        self._check_merges()

    def _merge(self, runs: Runs) -> None:
        """Merge everything that came since the last merge; slower merging makes larger merges."""
        with self._lock:
            if self._open is runs:
                self._open = None
        total = sum(codes.size for codes, _ in runs.parts)
        # many threads on little work would only keep the engine from the GIL
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
            # later k-mers are for later snapshots
            self._open = None
        return self._begin(
            "a snapshot",
            lambda: built(partial(self._tree.to_tree_bitmap, threads=self._threads), version),
        )

    def _begin(self, what: str, task: Callable[[], _T]) -> Future[_T]:
        """Queue a task in the thread, after those before."""
        self._submitted += 1

        def run() -> _T:
            try:
                with self.work.step(what):
                    return task()
            finally:
                self.work.done += 1

        return self._thread.submit(run)

    def _await(self, task: Future[_T]) -> _T:
        self.awaited = True
        try:
            return task.result()
        finally:
            self.awaited = False

    def _swap_in(self, requested: Future[VersionedSnapshot]) -> None:
        """Wait for a snapshot and use it, unless a merge before it has failed."""
        snapshot = self._await(requested)
        self._check_merges()
        self.current = snapshot

    def _check_merges(self, *, all_of_them: bool = False) -> None:
        """Raise the error of a merge; wait while more k-mers are queued than memory should hold."""
        while self._merges and (
            all_of_them or self._waiting > QUEUED_KMERS or self._merges[0].done()
        ):
            self._await(self._merges.popleft())
