"""The nearest k-mer at every end of a chunk on the GPU: buffers and launches.

``launch`` queues the kernels of one chunk (gpu/levenshtein/search.py) on a stream, over buffers
that the caller owns (gpu/levenshtein.py).

Chunks through the Levenshtein kernels, on one or more devices (gpu/card/streams).

A chunk begins k + D - 1 symbols before the first end that it answers (thesis 3.3.5), so results do
not depend on where chunks are cut. Threads pack chunks ahead into pinned buffers, half a byte per
symbol. Hits come back as 8 bytes each. If there is more than one per 32 symbols, the chunk is
matched again for the words of all ends, 4 bytes each, and so are the next ones until hits are few.
A dictionary, if it grows, may be several sets of patterns; a chunk is uploaded once and matched
against each in turn. Each of several devices has its own thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import driver_errors, translated_driver_errors
from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.launch import made, plain, with_threads
from gpu.card.memory import Budget, fetch, send
from gpu.card.streams import (
    BatchChunk,
    CardShare,
    Flight,
    LookAhead,
    StreamCard,
    StreamEngine,
    StreamOptions,
    StreamSlot,
    Taken,
    overlapping,
)
from gpu.levenshtein import search
from gpu.levenshtein.device_index import DeviceIndex, changes_soon
from gpu.levenshtein.search import PLANES, packing, plane_words
from trie.levenshtein import NOTHING, Patterns
from trie.windows import check_batch

HITS_SHARE = 32
"""Symbols per place in the hit list; if it overflows, the words of all ends are downloaded."""

FILL_BLOCKS = 2048

FULL_WARPS = 1 << 14
"""Warps that fill a large GPU; shorter chunks get fewer groups of places per warp."""

MOST_GROUPS = 16


def compile_scans(distance: int) -> None:
    """Compile the scans for both kinds of scheme on the current device, which takes seconds."""
    if not SIMULATED:
        types = tuple(numba_type(name) for name in search.ARGUMENTS)
        for paired in (False, True):
            made(search.scan, distance, paired).compile(types)


class NearBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    planes: uint32, concatenated. found: uint64, the number of hits and then the hits. out: uint32,
    one word per end.
    """

    def __init__(self, max_symbols: int) -> None:
        self.max_symbols = max_symbols
        self.planes = cuda.device_array(PLANES * plane_words(max_symbols), np.uint32)
        self.out = cuda.device_array(max(max_symbols, 1), np.uint32)
        self.found = cuda.device_array(found_size(max_symbols), np.uint64)
        self.no_words = self.out[:0]
        self._views: tuple[int, Any] = (-1, None)

    def views(self, symbols: int) -> tuple[list[Any], Any, Any]:
        """Each plane, the words and all planes of a chunk; cached because slicing is slow."""
        if self._views[0] != symbols:
            words = plane_words(symbols)
            planes = [self.planes[i * words : (i + 1) * words] for i in range(PLANES)]
            self._views = symbols, (planes, self.out[:symbols], self.planes[: PLANES * words])
        views: tuple[list[Any], Any, Any] = self._views[1]
        return views

    @staticmethod
    def nbytes(max_symbols: int) -> int:
        """Bytes on the GPU."""
        return 4 * (PLANES * plane_words(max_symbols) + max_symbols) + 8 * found_size(max_symbols)

    def upload(self, planes: NDArray[np.uint32], symbols: int, stream: Any = 0) -> None:
        """Queue the copy of a chunk's planes, the beginning of ``planes``."""
        send(planes, self.views(symbols)[2], stream)


def found_size(max_symbols: int) -> int:
    """The size (in uint64) of the hit list of a chunk and its length."""
    return max_symbols // HITS_SHARE + 2


def launch(
    index: DeviceIndex,
    buffers: NearBuffers,
    symbols: int,
    lead: int,
    stream: Any = 0,
    *,
    all_words: bool = False,
) -> None:
    """Queue the kernels for the chunk of ``symbols`` symbols in the buffers.

    Only ends after symbol ``lead`` count; matches may begin before it. Afterwards ``buffers.found``
    has the hits as listed by the scan, which may be more than fit; or with ``all_words``,
    ``buffers.out`` has the words (index: end - 1).
    """
    assert symbols <= buffers.max_symbols
    assert MOST_GROUPS <= search.MOST_GROUPS
    scheme, threads = index.scheme, search.THREADS
    planes, out, _ = buffers.views(symbols)
    if not all_words:
        out = buffers.no_words
    words = min(out.size, FILL_BLOCKS * threads)
    with_threads(plain(search.fill), words, threads, stream)(out, buffers.found)
    if symbols <= lead:
        return
    scan = made(search.scan, scheme.distance, scheme.paired)
    groups = min(max(symbols // (32 * FULL_WARPS), 1), MOST_GROUPS)
    numbers = (symbols, lead, groups, scheme.k, scheme.spacing, scheme.width, len(scheme.gaps))
    # a warp processes ``groups`` * 32 places
    with_threads(scan, -(-symbols // groups), threads, stream)(
        *planes, *map(np.uint32, numbers), index.buckets, index.entries, index.ranks,
        buffers.found, out,
    )  # fmt: skip


MAX_CHUNK = 1 << 26
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.3 GB on the GPU, 0.3 pinned."""

FIRST_HITS = 1 << 14  # hits downloaded together with their number, before it is known
MOST_AHEAD = 16  # most threads that pack: these read as fast as memory allows
Planes = NDArray[np.uint32]
SetHits = tuple[int, NDArray[np.int64], NDArray[np.uint32]]


def _packing(chunk: BatchChunk, planes: Planes) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, planes)


class _NearSlot(StreamSlot):
    """A stream and the buffers of a chunk on it."""

    def __init__(self, size: int, number: int, budget: Budget) -> None:
        super().__init__(number)
        budget.take("the buffers of a chunk", NearBuffers.nbytes(size))
        self.buffers = NearBuffers(size)
        self.found = cuda.pinned_array(self.buffers.found.size, np.uint64)
        self.first = self.buffers.found[: FIRST_HITS + 1]
        # whether there were too many hits for the list
        self.dense = False
        self._words: NDArray[np.uint32] | None = None

    def all_words(self) -> NDArray[np.uint32]:
        """Pinned memory for the words of all ends."""
        if self._words is None:
            self._words = cuda.pinned_array(self.buffers.max_symbols, np.uint32)
        return self._words


class _NearCard(StreamCard[_NearSlot]):
    """A device with the tables of the sets in use."""

    def __init__(self, size: int, share: CardShare) -> None:
        super().__init__(share, partial(_NearSlot, size))
        self._tables: dict[int, tuple[Patterns, DeviceIndex]] = {}
        self.indexes: list[DeviceIndex] = []

    def load(self, sets: Sequence[Patterns]) -> bool:
        """Load the tables of these sets and drop others; whether a set was added to old ones."""
        grown = any(id(one) not in self._tables for one in sets) and bool(self._tables)
        wanted = {id(one) for one in sets}
        for key in [key for key in self._tables if key not in wanted]:
            self.budget.give(DeviceIndex.nbytes(self._tables.pop(key)[0]))
        with self.active():
            stream = self.slots[0].stream
            for one in sets:
                if id(one) not in self._tables:
                    what = f"an index of {one.words.size} patterns"
                    self.budget.take(what, DeviceIndex.nbytes(one))
                    self._tables[id(one)] = one, DeviceIndex(one, stream=stream)
                    stream.synchronize()
        self.indexes = [self._tables[id(one)][1] for one in sets]
        return grown

    def close(self) -> None:
        """Free the memory."""
        super().close()
        self._tables.clear()
        self.indexes = []


class _NearFlight(Flight[list[SetHits]]):
    """A chunk on a slot, and the pinned planes it was sent from."""

    card: _NearCard
    slot: _NearSlot
    chunk: BatchChunk
    buffer: Planes

    def send(self) -> None:
        """Upload the chunk and match it against the first set."""
        with self.bar("HtoD"):
            self.slot.buffers.upload(self.buffer, self.chunk.symbols, self.slot.stream)
        self._match(self.card.indexes[0])

    def land(self) -> list[SetHits]:
        """Match the chunk against the other sets too: ends and words of each."""
        answers = []
        for number, index in enumerate(self.card.indexes):
            if number:
                self._match(index)
            with self.bar("CPU"):
                at, words = self._hits(index)
            answers.append((number, at + self.chunk.origin + 1, words))
        return answers

    def _match(self, index: DeviceIndex) -> None:
        slot, chunk, buffers = self.slot, self.chunk, self.slot.buffers
        with self.bar("kernel"):
            launch(index, buffers, chunk.symbols, chunk.lead, slot.stream, all_words=slot.dense)
        with self.bar("DtoH"):
            if slot.dense:
                fetch(buffers.views(chunk.symbols)[1], slot.all_words(), slot.stream)
            else:
                fetch(slot.first, slot.found, slot.stream)

    def _hits(self, index: DeviceIndex) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Wait for ends - 1 in the chunk, ascending, and their words."""
        slot, chunk, found = self.slot, self.chunk, self.slot.found
        slot.stream.synchronize()
        if not slot.dense and int(found[0]) >= found.size:
            slot.dense = True
            self._match(index)
            slot.stream.synchronize()
        if slot.dense:
            words = slot.all_words()[chunk.lead : chunk.symbols]
            at = np.flatnonzero(words != NOTHING)
            # the list has an end once per piece that reaches it
            slot.dense = at.size > found.size // 8
            return at + chunk.lead, words[at]
        behind = int(found[0]) + 1
        if behind > slot.first.size:
            rest = slice(slot.first.size, behind)
            slot.buffers.found[rest].copy_to_host(found[rest], stream=slot.stream)
            slot.stream.synchronize()
        hits = np.sort(found[1:behind])
        ends = (hits >> np.uint64(32)).astype(np.int64)
        least = np.flatnonzero(np.diff(ends, prepend=-1))
        return ends[least], hits[least].astype(np.uint32)


class NearEngine(StreamEngine[_NearCard, list[SetHits]]):
    """Matches batches within ``distance`` edits of k-mers.

    chunk: most symbols in a chunk, without its overlap. threads: host threads. options: see
    StreamOptions.
    """

    def __init__(
        self,
        k: int,
        distance: int,
        *,
        chunk: int = 1_000_000,
        threads: int = 1,
        **options: Unpack[StreamOptions],
    ) -> None:
        self._distance = distance
        self._overlap = k + distance - 1
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._compiling: Thread | None = None
        size = self._chunk + self._overlap
        threads = min(threads, MOST_AHEAD)

        def planes() -> Planes:
            return cuda.pinned_array(PLANES * plane_words(size), np.uint32)

        ahead = LookAhead(threads, planes, _packing, most=2 * threads)
        super().__init__(partial(_NearCard, size), _NearFlight, ahead, **options)

    def match(
        self,
        take: Callable[[list[SetHits]], Taken],
        sets: Sequence[Patterns],
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        first: int,
        stop: int,
    ) -> Iterator[Taken]:
        """``take(found)`` for each chunk of the ends first + 1 .. stop, on its device's thread.

        found: (set, ends int64 ascending, words uint32) for each of ``sets``, whose tables
        stay on the devices while the same objects are passed. Raises BatchShapeError if the offsets
        do not describe the bases.
        """
        if not sets:
            return
        with translated_driver_errors():
            grown = [card.load(sets) for card in self.cards]
            if any(grown) and any(changes_soon(one) for one in sets):
                self._compile_ahead()
        bases, offsets = check_batch(bases, offsets)
        chunks = overlapping(bases, offsets, range(first, stop, self._chunk), self._overlap)
        yield from self._taken(self._ahead.prepared(chunks), take)

    def _compile_ahead(self) -> None:
        """Compile once, ahead of time, what a larger dictionary needs: the stream never waits."""
        if self._compiling is None:
            self._compiling = Thread(target=self._compile, name="compile")
            self._compiling.start()

    def _compile(self) -> None:
        usual = sys.getswitchinterval()
        # numba's compiler holds the GIL: each call of the stream would wait 5 ms for its turn
        sys.setswitchinterval(1e-4)
        try:
            # errors are reported when the kernel is launched
            with suppress(*driver_errors()):
                for card in self.cards:
                    with card.active():
                        compile_scans(self._distance)
        finally:
            sys.setswitchinterval(usual)
