"""The nearest k-mer at every end of a read on GPUs: the engine, launches, and the tables of pieces.

A chunk begins k + D - 1 symbols before the first end that it answers (thesis 3.3.5), so results do
not depend on where chunks are cut. Threads pack chunks ahead into pinned buffers, half a byte per
symbol. Hits come back as 8 bytes each. If there is more than one per 32 symbols, the chunk is
matched again for the words of all ends, 4 bytes each, and so are the next ones until hits are few.
A dictionary, if it grows, may be several sets of patterns; a chunk is uploaded once and matched
against each in turn.

Of a set only the codes are uploaded, and the GPU builds the tables of pieces
(trie/levenshtein/piece_index.py):

    count_keys     a thread per pattern: count its keys in their buckets
    share_buckets  a thread per BUCKETS buckets: adjacent places for their entries, by one atomic
                   addition
    place_entries  a thread per pattern: an entry and a rank into the next place of its buckets

Buckets of different threads come in any order, and so do the entries of a bucket (end : begin):
answers do not depend on the order. Keys are planar: the low bits of a piece, the first symbol's
lowest, and above them its high bits.

Operations: about 60 per pattern and 15 per key. Bytes: 8 per pattern, twice; per key 4 counted and
4 placed with atomics, 12 written; 16 per bucket.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gpu.card import streams
from gpu.card.cuda_errors import driver_errors, translated_driver_errors
from gpu.card.intrinsics import (
    SIMULATED,
    cuda,
    device_function,
    numba_type,
    reverse_long,
    reverse_word,
)
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.card.memory import Budget, check_room, fetch, send
from gpu.exact.device_tree import clear
from gpu.exact.window_bits import every_other
from gpu.levenshtein import search
from gpu.levenshtein.search import PLANES, packing, plane_words
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein.piece_index import HIGH_SHIFT, PIECE_SHIFT, PieceCosts, Scheme, choose
from trie.windows import check_batch

INDEX_THREADS = 128  # threads per block; any multiple of 32
BUCKETS = 8  # consecutive buckets per thread: one sector of counts


@device_function
def planes_of(codes, pattern, k):
    """The low and the high bits of a pattern's symbols, the first lowest.

    Patterns beyond the codes are their reverse complements, in the same order.
    """
    number = np.uint32(codes.size)
    unused = np.uint64(np.uint32(np.uint32(64) - np.uint32(k + k)))
    if pattern < number:
        # reversed, the high bit of a symbol comes first
        code = np.uint64(reverse_long(codes[pattern]) >> unused)
        return every_other(np.uint64(code >> np.uint64(1))), every_other(code)
    code = np.uint64(np.uint64(~codes[np.uint32(pattern - number)]) << unused)
    code = np.uint64(code >> unused)
    return every_other(code), every_other(np.uint64(code >> np.uint64(1)))


@device_function
def key_of(low, high, k, spacing, width, paired, table, anchor):
    """The bucket of a piece, or of a pair of pieces, over all tables."""
    mask = np.uint32(np.uint32(np.uint32(1) << width) - np.uint32(1))
    offset = np.uint32(anchor * spacing)
    key = np.uint32(np.uint32(low >> offset) & mask)
    key = np.uint32(key | np.uint32(np.uint32(np.uint32(high >> offset) & mask) << width))
    if paired != np.uint32(0):
        double = np.uint32(width + width)
        offset = np.uint32(offset + np.uint32(np.uint32(table + np.uint32(1)) * spacing))
        other = np.uint32(np.uint32(low >> offset) & mask)
        other = np.uint32(other | np.uint32(np.uint32(np.uint32(high >> offset) & mask) << width))
        key = np.uint32(np.uint32(key << double) | other)
        key = np.uint32(key + np.uint32(table << np.uint32(double + double)))
    return key


def count_keys(codes, patterns, k, distance, spacing, width, tables, paired, counts):
    """counts[b] += the keys in bucket b, uint32[B]; launch and other arguments as ``place``."""
    pattern = np.uint32(cuda.grid(1))
    if pattern >= patterns:
        return
    low, high = planes_of(codes, pattern, k)
    for table in range(tables):
        for anchor in range(np.uint32(np.uint32(distance + np.uint32(1)) - np.uint32(table))):
            key = key_of(low, high, k, spacing, width, paired, np.uint32(table), np.uint32(anchor))
            cuda.atomic.add(counts, key, np.uint32(1))


def share_buckets(counts, total, buckets):
    """buckets uint64[B]: 63-32 end | 31-0 first entry; counts becomes the latter.

    total uint32[1], 0 before: the entries so far. One thread per BUCKETS buckets.
    """
    first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(BUCKETS))
    stop = min(np.uint32(first + np.uint32(BUCKETS)), np.uint32(counts.size))
    number = np.uint32(0)
    for bucket in range(first, stop):
        number = np.uint32(number + counts[bucket])
    begin = np.uint32(0)
    if number != np.uint32(0):
        begin = np.uint32(cuda.atomic.add(total, 0, number))
    for bucket in range(first, stop):
        end = np.uint32(begin + counts[bucket])
        buckets[bucket] = np.uint64(np.uint64(np.uint64(end) << np.uint64(32)) | np.uint64(begin))
        counts[bucket] = begin
        begin = end


def place_entries(
    codes, patterns, k, distance, spacing, width, tables, paired, counts, entries, ranks
):
    """Fill entries uint64[E] and ranks uint32[E] of the tables; one thread per pattern.

    codes uint64[n]: the stored k-mers. patterns uint32: n, or 2 n with the reverse complements. k,
    distance, spacing, width, tables, paired uint32: the scheme. counts uint32[B]: the next place of
    each bucket.
    """
    pattern = np.uint32(cuda.grid(1))
    if pattern >= patterns:
        return
    low, high = planes_of(codes, pattern, k)
    rest = np.uint32(np.uint32(32) - k)
    low_back = np.uint32(reverse_word(low) >> rest)
    high_back = np.uint32(reverse_word(high) >> rest)
    for table in range(tables):
        for anchor in range(np.uint32(np.uint32(distance + np.uint32(1)) - np.uint32(table))):
            key = key_of(low, high, k, spacing, width, paired, np.uint32(table), np.uint32(anchor))
            offset = np.uint32(np.uint32(anchor) * spacing)
            on = np.uint32(offset + width)
            behind = np.uint32(k - on)
            back = np.uint32(k - offset)
            around_low = np.uint64(np.uint32(low >> on))
            around_high = np.uint64(np.uint32(high >> on))
            if offset != np.uint32(0):
                before = np.uint32(np.uint32(low_back >> back) << behind)
                around_low = np.uint64(around_low | np.uint64(before))
                before = np.uint32(np.uint32(high_back >> back) << behind)
                around_high = np.uint64(around_high | np.uint64(before))
            entry = np.uint64(around_low | np.uint64(around_high << np.uint64(HIGH_SHIFT)))
            entry = np.uint64(
                entry | np.uint64(np.uint64(np.uint32(anchor)) << np.uint64(PIECE_SHIFT))
            )
            at = np.uint32(cuda.atomic.add(counts, key, np.uint32(1)))
            entries[at] = entry
            ranks[at] = pattern


GPU_COSTS = PieceCosts(
    ((2**17, 3.0), (2**25, 5.0), (2**26, 9.0), (float("inf"), 16.0)), candidate=0.0, verify=0.5
)
"""Picoseconds on an H200 for a look-up in L1, L2 (twice) or memory, and to verify besides (D = 1:
2, 2: 4.5, 3: 8); see PieceCosts.
"""


def gpu_scheme(patterns: Patterns) -> Scheme:
    """The cheapest scheme on a GPU."""
    return choose(patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)


def changes_soon(patterns: Patterns) -> bool:
    """Whether four times as many patterns would use a scheme of the other kind."""
    later = choose(4 * patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)
    return later.paired != gpu_scheme(patterns).paired


class DeviceIndex:
    """The tables of patterns on the current device, queued on ``stream``.

    buckets uint64[B], entries uint64[E], ranks uint32[E], as the kernels read them. scheme: None
    for the cheapest. The codes must live until ``stream`` has been synchronized.
    """

    def __init__(
        self, patterns: Patterns, scheme: Scheme | None = None, *, stream: Any = 0
    ) -> None:
        scheme = self.scheme = gpu_scheme(patterns) if scheme is None else scheme
        number = patterns.words.size
        size = scheme.entries * number
        self.buckets = cuda.device_array(_buckets(scheme), np.uint64, stream=stream)
        self.entries = cuda.device_array(size, np.uint64, stream=stream)
        self.ranks = cuda.device_array(size, np.uint32, stream=stream)
        # a blocking copy: pinning memory would cost more than it gains
        codes = cuda.to_device(patterns.codes, stream=stream)
        counts = cuda.device_array(_buckets(scheme), np.uint32, stream=stream)
        total = cuda.device_array(1, np.uint32, stream=stream)
        clear(counts, stream)
        clear(total, stream)
        numbers = (
            number, scheme.k, scheme.distance, scheme.spacing, scheme.width, len(scheme.gaps),
            scheme.paired,
        )  # fmt: skip
        of_scheme = [np.uint32(value) for value in numbers]

        def run(function: Any, threads: int, *arguments: Any) -> None:
            with_threads(plain(function), threads, INDEX_THREADS, stream)(*arguments)

        run(count_keys, number, codes, *of_scheme, counts)
        run(share_buckets, -(-counts.size // BUCKETS), counts, total, self.buckets)
        run(place_entries, number, codes, *of_scheme, counts, self.entries, self.ranks)

    @staticmethod
    def nbytes(patterns: Patterns, scheme: Scheme | None = None) -> int:
        """Bytes on the GPU while the tables are built."""
        return table_bytes(gpu_scheme(patterns) if scheme is None else scheme, patterns.words.size)


def check_tables(
    sizes: Iterable[int], k: int, distance: int, cards: Iterable[int], limit: int
) -> None:
    """Raise CardMemoryError if the tables of sets of so many patterns cannot fit, before they are.

    limit: as of ``check_room``.
    """
    sizes = list(sizes)
    tables = sum(table_bytes(choose(size, k, distance, GPU_COSTS), size) for size in sizes)
    check_room(f"{sum(sizes):,} k-mers within a distance of {distance}", tables, cards, limit)


def table_bytes(scheme: Scheme, patterns: int) -> int:
    """Bytes on the GPU while the tables of so many patterns are built."""
    return 12 * _buckets(scheme) + (12 * scheme.entries + 8) * patterns


def _buckets(scheme: Scheme) -> int:
    return int(len(scheme.gaps) * 4**scheme.key_symbols)


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


def _packing(chunk: streams.BatchChunk, planes: Planes) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, planes)


class _NearSlot(streams.StreamSlot):
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


class _NearCard(streams.StreamCard[_NearSlot]):
    """A device with the tables of the sets in use."""

    def __init__(self, size: int, share: streams.CardShare) -> None:
        super().__init__(share, partial(_NearSlot, size))
        self._tables: dict[int, tuple[Patterns, DeviceIndex]] = {}
        self.indexes: list[DeviceIndex] = []

    def load(self, sets: Sequence[Patterns]) -> bool:
        """Load the tables of these sets and drop others; whether a set was added to old ones."""
        grown = any(id(patterns) not in self._tables for patterns in sets) and bool(self._tables)
        wanted = {id(patterns) for patterns in sets}
        for key in [key for key in self._tables if key not in wanted]:
            self.budget.give(DeviceIndex.nbytes(self._tables.pop(key)[0]))
        with self.active():
            stream = self.slots[0].stream
            for patterns in sets:
                if id(patterns) not in self._tables:
                    what = f"an index of {patterns.words.size} patterns"
                    self.budget.take(what, DeviceIndex.nbytes(patterns))
                    self._tables[id(patterns)] = patterns, DeviceIndex(patterns, stream=stream)
                    stream.synchronize()
        self.indexes = [self._tables[id(patterns)][1] for patterns in sets]
        return grown

    def close(self) -> None:
        """Free the memory."""
        super().close()
        self._tables.clear()
        self.indexes = []


class _NearFlight(streams.Flight[list[SetHits]]):
    """A chunk on a slot, and the pinned planes it was sent from."""

    card: _NearCard
    slot: _NearSlot
    chunk: streams.BatchChunk
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
        slot, chunk, listed = self.slot, self.chunk, self.slot.found
        slot.stream.synchronize()
        if not slot.dense and int(listed[0]) >= listed.size:
            slot.dense = True
            self._match(index)
            slot.stream.synchronize()
        if slot.dense:
            words = slot.all_words()[chunk.lead : chunk.symbols]
            at = np.flatnonzero(words != NOTHING)
            # the list has an end once per piece that reaches it
            slot.dense = at.size > listed.size // 8
            return at + chunk.lead, words[at]
        behind = int(listed[0]) + 1
        if behind > slot.first.size:
            rest = slice(slot.first.size, behind)
            slot.buffers.found[rest].copy_to_host(listed[rest], stream=slot.stream)
            slot.stream.synchronize()
        hits = np.sort(listed[1:behind])
        ends = (hits >> np.uint64(32)).astype(np.int64)
        least = np.flatnonzero(np.diff(ends, prepend=-1))
        return ends[least], hits[least].astype(np.uint32)


class NearEngine(streams.StreamEngine[_NearCard, list[SetHits]]):
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
        **options: Unpack[streams.StreamOptions],
    ) -> None:
        self._distance = distance
        self._overlap = k + distance - 1
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._compiling: Thread | None = None
        size = self._chunk + self._overlap
        threads = min(threads, MOST_AHEAD)

        def planes() -> Planes:
            return cuda.pinned_array(PLANES * plane_words(size), np.uint32)

        ahead = streams.LookAhead(threads, planes, _packing, most=2 * threads)
        super().__init__(partial(_NearCard, size), _NearFlight, ahead, **options)

    def match(
        self,
        take: Callable[[list[SetHits]], streams.Taken],
        sets: Sequence[Patterns],
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        first: int,
        stop: int,
    ) -> Iterator[streams.Taken]:
        """``take(found)`` for each chunk of the ends first + 1 .. stop, on its device's thread.

        found: (set, ends int64 ascending, words uint32) for each of ``sets``, whose tables
        stay on the devices while the same objects are passed. Raises BatchShapeError if the offsets
        do not describe the bases.
        """
        if not sets:
            return
        with translated_driver_errors():
            grown = [card.load(sets) for card in self.cards]
            if any(grown) and any(changes_soon(patterns) for patterns in sets):
                self._compile_ahead()
        bases, offsets = check_batch(bases, offsets)
        chunks = streams.overlapping(bases, offsets, range(first, stop, self._chunk), self._overlap)
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
