"""The engine interface of the matcher, implemented on the CPU and on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import Span
from streamer.matching.events import Events
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch

NO_CODES = np.zeros(0, dtype=np.uint64)
NO_STARTS = np.zeros(0, dtype=np.int64)
NO_EVENTS = np.zeros(0, dtype=np.uint8)
NO_RUNS = np.zeros((0, 4), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class MatchTask:
    """A batch to match, and the arrays for its results, one element per symbol.

    position: of the batch in the stream. snapshot: returns the snapshot for a span, by number; None
    if no span needs one. grows: mismatched k-mers are added. events: uint8, initially zero; empty
    if the engine ``finds_bits`` and depths are not wanted. sets: uint32, initially NO_SET, or None.
    depths: uint8, nodes: uint32, initially zero, or None.
    """

    batch: ReadBatch
    spans: Sequence[Span]
    position: int
    snapshot: Callable[[int], VersionedSnapshot] | None
    grows: bool
    events: NDArray[np.uint8]
    sets: NDArray[np.uint32] | None
    depths: NDArray[np.uint8] | None
    nodes: NDArray[np.uint32] | None


class SpanFound(NamedTuple):
    """The result of matching a span.

    version: of the snapshot it was matched against, 0 without one. codes: uint64, new k-mers in
    stream order, starts: int64, their windows in the batch. ordered: the codes in ascending order,
    if the engine has them so.

    With the first span at least, for the whole batch: events, if they are not in the task's arrays;
    runs, as in ``BatchResult``, if the engine finds them.
    """

    seeding: bool
    chunks: NDArray[np.int64]
    version: int
    codes: NDArray[np.uint64] = NO_CODES
    starts: NDArray[np.int64] = NO_STARTS
    ordered: NDArray[np.uint64] | None = None
    events: Events | None = None
    runs: NDArray[np.int64] | None = None


class MatchEngine(Protocol):
    """Answers whether windows match, and stores the k-mers that it learns."""

    device: Literal["cpu", "cuda"] = "cpu"

    walks: bool = False  # whether events come from walking the snapshot

    finds_bits: bool = False
    """Whether results carry the events of the batch, two bits a symbol."""

    finds_runs: bool = False
    """Whether results carry the runs of matching windows along the dictionary's records."""

    packed: Any = None
    """A faster path for batches that need only matches, if any (``cuda.PackedMatching``)."""

    def __len__(self) -> int:
        """Return the number of known k-mers."""

    def codes(self) -> NDArray[np.uint64]:
        """Return all known k-mers, ascending."""

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Match the spans in order and fill the arrays.

        A span's result is yielded before the snapshot of the next but one is requested; with
        several GPUs or more than two streams it may be later.
        """

    def close(self) -> None:
        """Free what the engine has allocated, if necessary."""
        return


class NearOnly(MatchEngine):
    """Matches nothing exactly; for a fixed dictionary where only a distance is wanted."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary

    def __len__(self) -> int:
        return self._dictionary.codes.size

    def codes(self) -> NDArray[np.uint64]:
        return self._dictionary.codes

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Yield one span, with an empty result."""
        if task.spans:
            yield SpanFound(False, np.concatenate([chunks for _, chunks in task.spans]), 0)
