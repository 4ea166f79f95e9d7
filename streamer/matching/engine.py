"""What the matcher asks of an engine, whether it runs on the CPU or on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.matching.tree_worker import VersionedSnapshot
from streamer.reads import ReadBatch

Span = tuple[bool, NDArray[np.int64]]
"""Whether its windows are seeds, and its consecutive chunks (int64[chunks, 2])."""


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """The results of a batch, a symbol an element, for an engine to fill in.

    events: uint8, zeros at first. sets: uint32, NO_SET at first, or None. depths: uint8, nodes:
    uint32, zeros at first, or None.
    """

    events: NDArray[np.uint8]
    sets: NDArray[np.uint32] | None
    depths: NDArray[np.uint8] | None
    nodes: NDArray[np.uint32] | None


@dataclass(frozen=True, slots=True)
class SpanFound:
    """What became of a span.

    version: of the snapshot it was matched with, 0 without one. codes: uint64, new k-mers in stream
    order, starts: int64, their windows in the batch; None if the dictionary could not grow.
    ordered: the codes ascending, if the engine has them.
    """

    seeding: bool
    chunks: NDArray[np.int64]
    version: int
    codes: NDArray[np.uint64] | None = None
    starts: NDArray[np.int64] | None = None
    ordered: NDArray[np.uint64] | None = None


class MatchEngine(Protocol):
    """Answers whether windows match, and keeps the k-mers that it learns."""

    walks: bool
    """Whether events come from the snapshot."""

    span_symbols: int
    """Chunks shorter than this are put together; 0: where no snapshot is asked for, all of them."""

    def __len__(self) -> int:
        """The k-mers known."""

    def codes(self) -> NDArray[np.uint64]:
        """All of them, ascending."""

    def run(
        self,
        batch: ReadBatch,
        spans: Sequence[Span],
        position: int,
        arrays: BatchArrays,
        snapshot: Callable[[], VersionedSnapshot] | None,
    ) -> Iterator[SpanFound]:
        """Match the spans in order and fill the arrays in.

        position: of the batch in the stream. snapshot: gives the one to match a span with.
        What a span found is told before the snapshot of the next but one is asked for.
        """

    def close(self) -> None:
        """Give back what is held."""
