"""What the matcher asks of an engine, whether it runs on the CPU or on CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.matching.events import Events
from streamer.matching.packed import Columns, Letters, PackedReads
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import ReadBatch

LONG_SPAN = 1 << 23
"""Consecutive chunks are matched together up to so many symbols where no snapshot's age counts:
queueing work for a card takes a millisecond, in which it matches 50 million."""

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


class PackedPath(Protocol):
    """Batches of which matches alone are asked, against a dictionary that stays as it is."""

    longest: int
    """Symbols of the longest batch that it takes."""

    def pack(
        self, names: Sequence[str], offsets: NDArray[np.int64], letters: Letters
    ) -> PackedReads:
        """A batch from its joined letters; from any thread. BadReadError names the first bad read.

        The letters must stay as they are.
        """

    def pack_together(
        self, batches: Sequence[Columns], sums: NDArray[np.uint32]
    ) -> list[PackedReads | None]:
        """As ``pack`` of each, in one step; None where that would raise an error.

        sums: uint32, a CRC-32 for each batch, continued over its letters.
        """

    def match(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Events]:
        """What happened in each of the batches, in order."""


class MatchEngine(Protocol):
    """Answers whether windows match, and keeps the k-mers that it learns."""

    walks: bool
    """Whether events come from the snapshot."""

    packed: PackedPath | None
    """A shorter way for batches of which only matches are asked, where there is one."""

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
        snapshot: Callable[[int], VersionedSnapshot] | None,
    ) -> Iterator[SpanFound]:
        """Match the spans in order and fill the arrays in.

        position: of the batch in the stream. snapshot: gives the one to match the span of that
        number with. What a span found is told before that of the next but one is asked for; with
        several cards or more than two streams it may be told later.
        """

    def close(self) -> None:
        """Give back what is held."""
