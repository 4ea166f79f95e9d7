"""What the matcher asks of an engine, whether it runs on the CPU or on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.chunks import Span
from streamer.matching.events import Events
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch

if TYPE_CHECKING:
    from streamer.matching.cuda_packed import PackedMatching

NO_CODES = np.zeros(0, dtype=np.uint64)
NO_STARTS = np.zeros(0, dtype=np.int64)
NO_EVENTS = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class MatchTask:
    """A batch to match, and the arrays for its results, an element a symbol.

    position: of the batch in the stream. snapshot: the one to match the span of a number with, None
    if no span needs it. grows: mismatched k-mers are added. events: uint8, zeros at first; empty
    if the engine ``finds_bits`` and depths are not wanted. sets: uint32, NO_SET at first, or None.
    depths: uint8, nodes: uint32, zeros at first, or None.
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
    """What matching a span gave.

    version: of the snapshot it was matched with, 0 without one. codes: uint64, new k-mers in stream
    order, starts: int64, their windows in the batch. ordered: the codes ascending, if the engine
    has them. events: of the whole batch, if they are not in the arrays of the task.
    """

    seeding: bool
    chunks: NDArray[np.int64]
    version: int
    codes: NDArray[np.uint64] = NO_CODES
    starts: NDArray[np.int64] = NO_STARTS
    ordered: NDArray[np.uint64] | None = None
    events: Events | None = None


class MatchEngine(Protocol):
    """Answers whether windows match, and stores the k-mers that it learns."""

    device: Literal["cpu", "cuda"] = "cpu"

    walks: bool = False  # whether events come from the snapshot

    finds_bits: bool = False
    """Whether a result has the events of the batch, two bits a symbol."""

    packed: PackedMatching | None = None
    """A shorter way for batches that need matches alone, if there is one."""

    def __len__(self) -> int:
        """The number of known k-mers."""

    def codes(self) -> NDArray[np.uint64]:
        """All of them, ascending."""

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Match the spans in order and fill the arrays.

        The result of a span comes before the snapshot of the next but one is asked for; with
        several cards or more than two streams it may come later.
        """

    def close(self) -> None:
        """Free what the engine has allocated, if it needs that."""
        return


class NearOnly(MatchEngine):
    """Matches nothing exactly: where only a distance counts and the dictionary is fixed."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary

    def __len__(self) -> int:
        return self._dictionary.codes.size

    def codes(self) -> NDArray[np.uint64]:
        return self._dictionary.codes

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """One span, without a result."""
        if task.spans:
            yield SpanFound(False, np.concatenate([chunks for _, chunks in task.spans]), 0)
