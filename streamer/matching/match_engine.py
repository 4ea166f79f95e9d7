"""The engine interface of the matcher, implemented on the CPU and on CUDA devices.

Cut a batch of reads into chunks of the stream (thesis 3.3.5, Fig. 10), grouped into spans.

A chunk is at most ``chunk`` consecutive symbols of the stream. Where a cut falls inside a read, the
next chunk starts k-1 symbols earlier, but never in another read, so every window lies in exactly
one chunk. A span is a group of consecutive chunks that are matched together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.events import Bits, Events, no_bits
from streamer.matching.record_runs import NO_RUNS, Runs
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.sequences.read_batch import Letters, RawReads, ReadBatch
from trie.cpu.jit import njit

Span = tuple[bool, NDArray[np.int64]]
"""A span: whether its windows are seeds, and its chunks (int64[chunks, 2])."""

LONG_SPAN = 1 << 23
"""Symbols per span if the snapshot's age does not matter: queueing work for a GPU takes a
millisecond, in which it matches 50 million.
"""

# smaller chunks share a snapshot: swapping one in costs more than matching them
SHORT_SPAN = 65_536


def chunk_bounds(
    offsets: NDArray[np.int64], k: int, chunk: int, start: int = 0, stop: int | None = None
) -> NDArray[np.int64]:
    """Return int64[chunks, 2]: the first symbol of each chunk and the one after its last.

    offsets: int64[reads + 1] of the batch; only symbols in [start, stop) are divided.
    """
    stop = int(offsets[-1]) if stop is None else stop
    # keep to machine integers: no chunk exceeds the whole range
    chunk = min(chunk, max(stop - start, k))
    longest = (stop - start) // max(chunk - k + 1, 1) + offsets.size + 1
    bounds = np.empty((longest, 2), dtype=np.int64)
    return bounds[: _cut(offsets, k, chunk, start, stop, bounds)]


@njit(cache=True)
def _cut(offsets, k, chunk, start, stop, bounds):
    count = 0
    read = 0
    while start < stop:
        end = min(start + chunk, stop)
        bounds[count, 0] = start
        bounds[count, 1] = end
        count += 1
        if end == stop:
            break
        while offsets[read + 1] <= end:
            read += 1
        start = max(end - (k - 1), offsets[read])
    return count


def slice_reads(offsets: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Return the offsets of the (partial) reads in symbols [start, stop), relative to ``start``."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    return np.clip(offsets[first : last + 1], start, stop) - start


def spans_of(
    offsets: NDArray[np.int64], k: int, chunk: int, seed_end: int, *, aging: bool, halvings: int = 0
) -> list[Span]:
    """Return the spans of a batch; the windows inside its first ``seed_end`` symbols are seeds.

    aging: the snapshot ages within the batch, so spans are short. halvings: how often to halve the
    longest spans, for a GPU with little memory.
    """
    longest = max(1, LONG_SPAN >> halvings)
    total = int(offsets[-1])
    spans: list[Span] = []
    begin = 0
    if seed_end:
        seeds = chunk_bounds(offsets, k, chunk, 0, seed_end)
        spans += [(True, part) for part in _grouped(seeds, longest)]
        if seed_end == total:
            return spans
        read_start = int(offsets[np.searchsorted(offsets, seed_end, side="right") - 1])
        begin = max(seed_end - k + 1, read_start)
    chunks = chunk_bounds(offsets, k, chunk, begin)
    if not len(chunks):
        return spans
    return spans + [(False, part) for part in _grouped(chunks, SHORT_SPAN if aging else longest)]


def _grouped(chunks: NDArray[np.int64], span: int) -> list[NDArray[np.int64]]:
    """Group consecutive chunks into runs of at least ``span`` symbols."""
    group = np.concatenate(([0], np.cumsum(chunks[:, 1] - chunks[:, 0])[:-1])) // span
    return np.split(chunks, np.flatnonzero(np.diff(group)) + 1)


NO_CODES = np.zeros(0, dtype=np.uint64)
NO_STARTS = np.zeros(0, dtype=np.int64)


class Found(NamedTuple):
    """The events of a batch, and its runs as in ``BatchResult``, empty unless asked for."""

    events: Events
    runs: Runs


@dataclass(frozen=True, slots=True)
class MatchTask:
    """A batch to match span by span, with arrays for its results.

    position: of the batch in the stream. snapshot: returns the snapshot for a span, by number.
    grows: mismatched k-mers are added. bits: of ``Events``, initially zero. runs: receives those of
    the batch, ascending. depths: uint8, nodes: uint32, initially zero, an element per symbol; or
    None.
    """

    batch: ReadBatch
    spans: Sequence[Span]
    position: int
    snapshot: Callable[[int], VersionedSnapshot]
    grows: bool
    bits: Bits
    runs: list[Runs]
    depths: NDArray[np.uint8] | None
    nodes: NDArray[np.uint32] | None


class SpanFound(NamedTuple):
    """The result of matching a span.

    version: of the snapshot it was matched against, 0 without one. codes: uint64, new k-mers in
    stream order, starts: int64, their windows in the batch. ordered: the codes in ascending order,
    if the engine has them so.
    """

    seeding: bool
    chunks: NDArray[np.int64]
    version: int
    codes: NDArray[np.uint64] = NO_CODES
    starts: NDArray[np.int64] = NO_STARTS
    ordered: NDArray[np.uint64] | None = None


MakeBatch = Callable[[Sequence[str], NDArray[np.int64], Letters], ReadBatch]
MakeTogether = Callable[[Sequence[RawReads], NDArray[np.uint32]], Sequence[ReadBatch | None]]
"""The second argument: a CRC-32C per batch, to continue over its letters in the same pass."""


class MatchEngine(Protocol):
    """Answers whether windows match, and stores the k-mers that it learns."""

    device: Literal["cpu", "cuda"] = "cpu"

    make_batch: MakeBatch = staticmethod(ReadBatch.from_letters)
    """Makes a batch of the form that is cheapest to match, from names, offsets and letters."""

    make_together: MakeTogether | None = None
    """Makes many batches at once, if possible."""

    def __len__(self) -> int:
        """Return the number of known k-mers."""

    def codes(self) -> NDArray[np.uint64]:
        """Return all known k-mers, ascending."""

    def find(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Found]:
        """Look up batches and add nothing; ``snapshot`` returns that of the dictionary."""

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Match the spans in order; the arrays are filled after the last.

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
        return self._dictionary.kmers

    def codes(self) -> NDArray[np.uint64]:
        return self._dictionary.codes

    def find(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[Found]:
        """Yield an empty result for each batch."""
        for batch in batches:
            yield Found(Events(batch.symbols, no_bits(batch.symbols)), NO_RUNS)

    def run(self, task: MatchTask) -> Iterator[SpanFound]:
        """Yield one span, with an empty result."""
        if task.spans:
            yield SpanFound(False, np.concatenate([chunks for _, chunks in task.spans]), 0)
