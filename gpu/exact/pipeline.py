"""The engine of exact matching: runs chunks through kernels, on streams of one or more devices.

    stream A   pack | HtoD | kernels | DtoH |          reconcile | pack | HtoD | ...
    stream B                     pack | HtoD | kernels | DtoH |          reconcile | ...

A growing dictionary stays on the GPU (gpu/exact/kmer_set.py); the thesis sends it again for
each chunk. ``claim`` of a chunk waits for that of the previous chunk, whatever the stream, so that
``decide`` sees every earlier window. With a snapshot, its kernel runs first, and only windows that
it does not match are looked up in the set. A dictionary grows on one device only: on two, chunks
that wait for each other took 4 to 11 times as long.

With a fixed dictionary each device has its own thread, which packs, sends and lands its chunks;
consecutive chunks go to different devices. A stream has the buffers of one chunk:

                pinned                       GPU
    bases       uint32, 2 bits a base   ->   bases
    starts      uint32, a bit a symbol  ->   starts
    matches     uint32, a bit a symbol  <-   matches
    codes       uint64, ordered uint64  <-   the new k-mers of the chunk           (growing)
    words       uint64                  <-   event words                           (on request)
    sets        uint32 a symbol         <-   target sets                           (on request)
    runs        uint32[n, 4]            <-   runs of matches along the text        (on request)

The last four are allocated on first use.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from gpu.card import streams
from gpu.card.cuda_errors import CardMemoryError, translated_driver_errors
from gpu.card.intrinsics import cuda
from gpu.card.memory import Budget, check_room, fetch, send
from gpu.card.packing import PackedChunk, PackedParts, pack_chunk, packed_sizes
from gpu.exact import kmer_set
from gpu.exact.bucket_table import default_method
from gpu.exact.chunk_match import ChunkBuffers, launch
from gpu.exact.device_tree import DeviceTree, clear, device_bytes, expected_bytes, kmer_count
from gpu.exact.expand import copy_into, copy_range
from gpu.exact.kmer_set import DeviceLists, KmerSet, set_bytes
from gpu.exact.reference_index import RUN_WORDS, DeviceIndex, chained, joined_runs
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.index.text_index import TextIndex
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands

RunsOfWords = Callable[[int, int], NDArray[np.int64]]
"""The runs in the words [first, stop) of a chunk."""

PackedArrays = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""The bases and starts of a packed chunk; the arrays may be longer than the chunk."""

# waking a thread takes as long as packing about a million symbols
_PER_THREAD = 1 << 21
# words of ``starts`` worth another thread: their 1.5 MB take three times as long as waking it
LAY_WORDS = 1 << 17
WORDS_STEP = 1 << 20  # event words to allocate at a time
_WORDS_PER_RUN = 8  # for each run that is not the first of its word, at least, in most chunks


def pinned_arrays(max_symbols: int) -> PackedArrays:
    """Pinned memory for a packed chunk."""
    base_words, start_words = packed_sizes(max_symbols)
    return cuda.pinned_array(base_words, np.uint32), cuda.pinned_array(start_words, np.uint32)


class Growth:
    """Buffers of a slot to grow a dictionary: uint32 counts and sums per word, uint64 codes."""

    def __init__(self, max_symbols: int, budget: Budget, stream: Any) -> None:
        words = packed_sizes(max_symbols)[1]
        # two lists, and as much again for sorting
        budget.take("the lists of new k-mers of a chunk", 8 * words + 3 * 8 * max_symbols)
        self.counts = cuda.device_array(words, np.uint32)
        self.sums = cuda.device_array(words, np.uint32)
        self.codes = cuda.device_array(max_symbols, np.uint64)
        self.ordered = cuda.device_array(max_symbols, np.uint64)
        self.total = cuda.device_array(1, np.uint32)
        self.lists = DeviceLists(self.counts, self.sums, self.codes, self.ordered, stream)
        self.pinned_total = cuda.pinned_array(1, np.uint32)
        self.pinned_codes = np.empty(0, np.uint64)
        self.pinned_ordered = np.empty(0, np.uint64)

    def warm(self, number: int) -> None:
        """Pin memory for ``number`` codes, and let the library load what it needs."""
        self.pin(number)
        self.lists.sum(1)
        self.lists.sort(1)

    def pin(self, number: int) -> None:
        """Make sure that ``number`` codes fit in pinned memory; its previous content is lost."""
        if self.pinned_codes.size < number:
            size = min(self.codes.size, 2 * number)
            self.pinned_codes = cuda.pinned_array(size, np.uint64)
            self.pinned_ordered = cuda.pinned_array(size, np.uint64)


class Slot(streams.StreamSlot):
    """A stream and buffers for chunks of at most ``max_symbols`` symbols."""

    def __init__(self, k: int, max_symbols: int, number: int, budget: Budget) -> None:
        super().__init__(number)
        base_words, start_words = packed_sizes(max_symbols)
        budget.take("the buffers of a chunk", 4 * (base_words + 2 * start_words))
        self.k = k
        self.max_symbols = max_symbols
        self.buffers = ChunkBuffers(max_symbols)
        self.pinned = pinned_arrays(max_symbols)
        self.matches = cuda.pinned_array(start_words, np.uint32)
        self.tree: Any = None
        self._budget = budget
        self._growth: Growth | None = None
        self._sets: tuple[Any, NDArray[np.uint32]] | None = None
        self._words: NDArray[np.uint64] | None = None
        self.runs = cuda.device_array(RUN_WORDS, np.uint32)
        self._runs = np.empty(RUN_WORDS, np.uint32)
        self._run_counter = cuda.device_array(1, np.uint32)
        self._counter = cuda.pinned_array(1, np.uint32)

    def pack(self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], threads: int) -> None:
        """Pack a chunk into pinned memory."""
        threads = min(threads, 1 + bases.size // _PER_THREAD)
        out_bases, out_starts = self.pinned
        pack_chunk(
            bases, offsets, self.k, threads=threads, out_bases=out_bases, out_starts=out_starts
        )

    def copy(self, chunk: PackedChunk, threads: int) -> None:
        """Copy a packed chunk into pinned memory."""
        for pinned, array in zip(self.pinned, (chunk.bases, chunk.starts), strict=True):
            copy_into(pinned, array, threads)

    def lay(self, chunks: PackedParts, threads: int) -> None:
        """Concatenate parts of packed chunks in pinned memory."""
        parts = np.array(
            [
                (array_address(p.chunk.bases), array_address(p.chunk.starts), p.first, p.stop)
                for p in chunks.parts
            ],
            np.int64,
        )
        ends = np.cumsum([0, *(part.words for part in chunks.parts)])
        bases, starts = self.pinned
        words = packed_sizes(chunks.symbols)[1]
        run_ranges(partial(_lay, parts, ends, bases, starts), 0, words, threads, grain=LAY_WORDS)

    def upload(self, symbols: int, source: PackedArrays) -> None:
        """Queue the copy of a packed chunk in pinned memory to the GPU."""
        for there, array in zip(self.buffers.views(symbols)[:2], source, strict=True):
            send(array, there, self.stream)

    def download(self, symbols: int) -> None:
        """Queue the copy of the matches to the host."""
        fetch(self.buffers.views(symbols)[2], self.matches, self.stream)

    @property
    def growth(self) -> Growth:
        """The buffers for growing."""
        if self._growth is None:
            self._growth = Growth(self.max_symbols, self._budget, self.stream)
        return self._growth

    @property
    def sets(self) -> tuple[Any, NDArray[np.uint32]]:
        """One uint32 per symbol, on the GPU and pinned."""
        if self._sets is None:
            size = 32 * packed_sizes(self.max_symbols)[1]
            self._budget.take("the target sets of a chunk", 4 * size)
            self._sets = cuda.device_array(size, np.uint32), cuda.pinned_array(size, np.uint32)
        return self._sets

    def make_words(self, symbols: int) -> None:
        """Allocate a match buffer of one word per symbol, which cannot overflow."""
        before = self.buffers.words.size
        if before < symbols:
            size = min(-(-symbols // WORDS_STEP) * WORDS_STEP, self.max_symbols)
            self._budget.take("the match buffer of a chunk", 8 * (size - before))
            self.buffers.words = cuda.device_array(size, np.uint64)
            self._words = cuda.pinned_array(size, np.uint64)

    def make_runs(self, number: int) -> None:
        """Allocate buffers for that number of runs."""
        if self.runs.size < RUN_WORDS * number:
            before, size = self.runs.size, RUN_WORDS * number
            self._budget.take("the runs of matches of a chunk", 4 * (size - before))
            self.runs = cuda.device_array(size, np.uint32)
            self._runs = cuda.pinned_array(size, np.uint32)

    def find_in(self, index: DeviceIndex, symbols: int, *, with_runs: bool) -> None:
        """Queue the kernel of an index for the chunk."""
        if with_runs:
            clear(self._run_counter, self.stream)
        views = self.buffers.views(symbols)
        if symbols:
            index.launch(views, self.runs, self._run_counter, self.stream, with_runs=with_runs)

    def download_runs(self, index: DeviceIndex, symbols: int) -> RunsOfWords:
        """Wait for the runs of matches of the chunk; its matches have been fetched."""
        words = packed_sizes(symbols)[1]
        while RUN_WORDS * (number := words + self._count(self._run_counter)) > self.runs.size:
            self.make_runs(number)
            self.find_in(index, symbols, with_runs=True)
        if number:
            fetch(self.runs, self._runs, self.stream, RUN_WORDS * number)
            self.stream.synchronize()
        rows = self._runs[: RUN_WORDS * number].reshape(-1, RUN_WORDS)
        chains = chained(rows, words)

        def of_words(first: int, stop: int) -> NDArray[np.int64]:
            most = stop - first + min(31 * (stop - first), number - words)
            runs = np.empty((most, RUN_WORDS), np.int64)
            return runs[: joined_runs(rows, chains, self.matches, first, stop, runs)]

        return of_words

    def _count(self, counter: Any) -> int:
        """Wait for what the kernels of the chunk counted."""
        fetch(counter, self._counter, self.stream)
        self.stream.synchronize()
        return int(self._counter[0])

    def download_words(self) -> NDArray[np.uint64]:
        """Wait for the event words of the chunk, in no particular order."""
        assert self._words is not None
        number = self._count(self.buffers.counter)
        assert number <= self._words.size
        if number:
            fetch(self.buffers.words, self._words, self.stream, number)
            self.stream.synchronize()
        return self._words[:number]


@njit(cache=True, nogil=True)
def _lay(parts, ends, to_bases, to_starts, first, stop):
    """Write the words [first, stop) of the ``starts`` of a chunk, and the bases of their windows.

    parts: int64[n, 4], the addresses of a part's bases and starts and its words of ``starts``, from
    and to. ends: int64[n + 1], where each part begins in the chunk, and where the last ends.
    """
    at = first
    for part in range(np.searchsorted(ends, first, side="right") - 1, parts.shape[0]):
        size = min(ends[part + 1], stop) - at
        if size <= 0:
            continue
        begin = parts[part, 2] + at - ends[part]
        # a cut part has one more word, for the ends of its windows; no window starts in it
        own = min(size, parts[part, 3] - begin)
        starts = carray(pointer(np.uint64(parts[part, 1])), begin + own, np.uint32)
        copy_range(starts[begin:], to_starts[at:], 0, own)
        if own < size:
            to_starts[at + own] = 0
        bases = carray(pointer(np.uint64(parts[part, 0])), 2 * (begin + size), np.uint32)
        copy_range(bases[2 * begin :], to_bases[2 * at :], 0, 2 * size)
        at += size
    to_starts[at:stop] = np.uint32(0)


class ExactCard(streams.StreamCard[Slot]):
    """A device with the snapshot in use and the set of k-mers.

    threads: host threads to pack chunks. claimed: the event after the last queued ``claim``.
    """

    def __init__(
        self, k: int, strands: Strands, max_symbols: int, threads: int, share: streams.CardShare
    ) -> None:
        super().__init__(share, partial(Slot, k, max_symbols))
        self.k = k
        self.strands: Strands = strands
        self.threads = threads
        with self.active():
            self.claimed = cuda.event()
            self._tree_ready = cuda.event()
        self.kmers: KmerSet | None = None
        self.index: DeviceIndex | None = None
        self._tree: DeviceTree | None = None
        self._tree_version = 0
        self._tree_size = 0
        # its host arrays may still be in transfer
        self._tree_source: TreeBitmap | None = None

    def prepare_growth(self) -> None:
        """Allocate the buffers for new k-mers before the first chunk: pinning memory is slow."""
        with self.active():
            for slot in self.slots:
                slot.growth.warm(slot.max_symbols)
                slot.stream.synchronize()

    def load(
        self, codes: NDArray[np.uint64], values: NDArray[np.uint64], canonical: bool, expected: int
    ) -> None:
        """Build the set of k-mers from distinct ``codes`` and their ``values``."""
        with self.active():
            stream = self.slots[0].stream
            self.kmers = KmerSet(self.k, canonical, codes.size + expected, self.budget, stream)
            self.kmers.add(codes, values, stream)
            self.kmers.known = codes.size

    def load_index(self, index: TextIndex) -> None:
        """Send the index of a fixed dictionary."""
        with self.active():
            stream = self.slots[0].stream
            self.index = DeviceIndex(index, self.budget, stream)
            stream.synchronize()

    def tree(
        self, tree: TreeBitmap, version: int, method: str, slot: Slot, *, words: bool = False
    ) -> DeviceTree:
        """The snapshot on this device, ready for what is queued next on the slot's stream.

        words: event words are requested, which need a walk whatever the kernel. A new version is
        sent on that stream; chunks in flight keep theirs. Raises CardMemoryError if it does not
        fit.
        """
        if method == "default":
            method = default_method(self.k)
        with_buckets = method == "buckets" and not words
        if (
            self._tree is None
            or self._tree_version != version
            or (with_buckets and self._tree.table is None)
        ):
            self._send(tree, slot, with_buckets)
            self._tree_version = version
        self._tree_ready.wait(slot.stream)
        assert self._tree is not None
        slot.tree = self._tree
        return self._tree

    def _send(self, tree: TreeBitmap, slot: Slot, with_buckets: bool) -> None:
        """Queue the upload of the snapshot that is used from now on."""
        kmers = kmer_count(tree)
        size = device_bytes(self.k, tree.node_count, kmers, with_buckets=with_buckets)
        what = f"a dictionary of {tree.node_count} trie-nodes"
        try:
            self.budget.take(what, size)
        except CardMemoryError:
            self._drop_tree()
            self.budget.take(what, size)
        self._tree = DeviceTree(tree, slot.stream, with_buckets=with_buckets)
        self._tree_ready.record(slot.stream)
        self.budget.give(self._tree_size)
        self._tree_size, self._tree_source = size, tree

    def _drop_tree(self) -> None:
        """Free the old snapshot if old and new do not fit together."""
        for slot in self.slots:
            slot.stream.synchronize()
            slot.tree = None
        self._tree = self._tree_source = None
        self.budget.give(self._tree_size)
        self._tree_size = 0

    def close(self) -> None:
        """Free the memory."""
        super().close()
        self._tree = self._tree_source = self.index = None
        if self.kmers is not None:
            self.kmers.table = None


Snapshot = Callable[[], tuple[TreeBitmap, int]]


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """A chunk to be matched.

    bases: uint8[n], offsets: int64[reads + 1], as gpu.card.packing.pack_chunk takes them; or a
    packed chunk, or parts of packed chunks, without offsets. pinned: the arrays of a packed chunk
    are pinned, do not change and are sent in place. position: of the first symbol in the stream.
    grow: mismatched k-mers are added. snapshot: called when the chunk is queued, returns the Tree
    Bitmap to match with and its version; None: only the set of k-mers is used, or the index.
    method: the kernel. words, sets, runs: also return event words, target sets, runs of matches.
    settled: every earlier chunk must have landed. tag: for the caller.
    """

    bases: NDArray[np.uint8] | PackedChunk | PackedParts
    offsets: NDArray[np.int64] | None = None
    position: int = 0
    grow: bool = False
    snapshot: Snapshot | None = None
    method: str = "default"
    words: bool = False
    sets: bool = False
    runs: bool = False
    settled: bool = False
    pinned: bool = False
    tag: Any = None

    @property
    def symbols(self) -> int:
        """Symbols of the chunk."""
        bases = self.bases
        return bases.size if isinstance(bases, np.ndarray) else bases.symbols


@dataclass(frozen=True, slots=True)
class ChunkFound:
    """The results of a chunk; the arrays are buffers, valid until the next result is requested.

    version: of the snapshot, 0 without one. starts, matches: uint32[ceil(n / 32)], a bit per
    symbol, as in gpu/card/packing.py. codes: uint64, the new k-mers in stream order (their windows
    are those with a start and no match), ordered: the same ascending; None unless it grew. words:
    uint64, event words in no particular order. sets: uint32[n], NO_SET where there is none. runs:
    gives those in a range of words of ``matches``, int64[m, 4], ascending
    (``trie.index.text_index``); thread-safe.
    """

    piece: ChunkPiece
    version: int
    starts: NDArray[np.uint32]
    matches: NDArray[np.uint32]
    codes: NDArray[np.uint64] | None = None
    ordered: NDArray[np.uint64] | None = None
    words: NDArray[np.uint64] | None = None
    sets: NDArray[np.uint32] | None = None
    runs: RunsOfWords | None = None


class ExactFlight(streams.Flight[ChunkFound]):
    """A chunk on a slot of a device; ``buffer`` holds it if it was packed ahead."""

    card: ExactCard
    slot: Slot
    chunk: ChunkPiece
    buffer: PackedArrays | None
    version = 0

    @property
    def base(self) -> np.uint64:
        """The value (gpu/exact/kmer_set.py) of the chunk's first window."""
        return np.uint64(int(kmer_set.STREAM) + self.chunk.position)

    def send(self) -> None:
        """Pack the chunk and queue its copies and kernels."""
        slot, piece = self.slot, self.chunk
        with self.bar("CPU"):
            self._pack()
        with self.bar("HtoD"):
            slot.upload(piece.symbols, self._source())
            tree = None
            if piece.snapshot is not None:
                snapshot, self.version = piece.snapshot()
                tree = self.card.tree(snapshot, self.version, piece.method, slot, words=piece.words)
        with self.bar("kernel"):
            if piece.symbols:
                self._match(tree)
            elif piece.grow:
                clear(slot.growth.total, slot.stream)
            elif piece.runs and self.card.index is not None:
                slot.find_in(self.card.index, 0, with_runs=True)
        with self.bar("DtoH"):
            slot.download(self.chunk.symbols)
            if piece.grow:
                fetch(slot.growth.total, slot.growth.pinned_total, slot.stream)
            if piece.sets:
                fetch(*slot.sets, slot.stream, piece.symbols)

    def _pack(self) -> None:
        slot, piece, threads = self.slot, self.chunk, self.card.threads
        if self.buffer is not None or piece.pinned:
            return
        if isinstance(piece.bases, PackedChunk):
            slot.copy(piece.bases, threads)
        elif isinstance(piece.bases, PackedParts):
            slot.lay(piece.bases, threads)
        elif piece.offsets is not None:
            slot.pack(piece.bases, piece.offsets, threads)

    def _source(self) -> PackedArrays:
        """The pinned arrays to send."""
        piece = self.chunk
        if piece.pinned and isinstance(piece.bases, PackedChunk):
            return piece.bases.bases, piece.bases.starts
        return self.slot.pinned if self.buffer is None else self.buffer

    def _match(self, tree: Any) -> None:
        slot, piece, kmers = self.slot, self.chunk, self.card.kmers
        bases, starts, matches = slot.buffers.views(piece.symbols)
        if piece.words:
            slot.make_words(piece.symbols)
        if tree is not None:
            launch(
                tree, slot.buffers, piece.symbols, method=piece.method, strands=self.card.strands,
                with_words=piece.words, stream=slot.stream,
            )  # fmt: skip
            if not (piece.grow or piece.sets or piece.runs):
                return
        if self.card.index is not None:
            if piece.runs:
                slot.make_runs(starts.size + starts.size // _WORDS_PER_RUN)
            slot.find_in(self.card.index, piece.symbols, with_runs=piece.runs)
            return
        assert kmers is not None
        windows = 32 * starts.size
        # wait for the insertions of other streams
        self.card.claimed.wait(slot.stream)
        if piece.grow:
            kmers.launch(
                kmer_set.claim if tree is None else kmer_set.claim_filtered, windows, slot.stream,
                bases, starts, kmers.table, kmers.shift, self.base, matches,
            )  # fmt: skip
            self.card.claimed.record(slot.stream)
            self._decide()
        elif tree is None:
            kmers.launch(
                kmer_set.find,
                windows,
                slot.stream,
                bases,
                starts,
                kmers.table,
                kmers.shift,
                matches,
            )
        if piece.sets:
            kmers.launch(
                kmer_set.values, windows, slot.stream, bases, starts, kmers.table, kmers.shift,
                slot.sets[0],
            )  # fmt: skip

    def _decide(self) -> None:
        """Queue ``decide``: find first windows among those not matched by earlier chunks."""
        slot, growth, kmers = self.slot, self.slot.growth, self.card.kmers
        assert kmers is not None
        bases, starts, matches = slot.buffers.views(self.chunk.symbols)
        clear(growth.total, slot.stream)
        kmers.launch(
            kmer_set.decide, 32 * starts.size, slot.stream,
            bases, starts, kmers.table, kmers.shift, self.base, matches, growth.counts,
            growth.total,
        )  # fmt: skip

    def land(self) -> ChunkFound:
        """Wait for the results."""
        slot, piece, symbols = self.slot, self.chunk, self.chunk.symbols
        slot.stream.synchronize()
        codes, ordered = self._new() if piece.grow else (None, None)
        words = None
        if piece.words:
            with self.bar("DtoH"):
                words = slot.download_words() if symbols else np.zeros(0, np.uint64)
        runs = None
        if piece.runs and self.card.index is not None:
            with self.bar("DtoH"):
                runs = slot.download_runs(self.card.index, symbols)
        slot.tree = None
        used = packed_sizes(symbols)[1]
        starts, matches = self._source()[1][:used], slot.matches[:used]
        sets = slot.sets[1][:symbols] if piece.sets else None
        return ChunkFound(piece, self.version, starts, matches, codes, ordered, words, sets, runs)

    def _new(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Wait for the new k-mers, in stream order and ascending."""
        slot, growth, kmers = self.slot, self.slot.growth, self.card.kmers
        total = int(growth.pinned_total[0])
        if total:
            assert kmers is not None
            growth.pin(total)
            views = slot.buffers.views(self.chunk.symbols)
            words = views[1].size
            with self.bar("kernel"):
                growth.lists.sum(words)
                kmers.launch(
                    kmer_set.compact, 32 * words, slot.stream, *views, growth.sums, growth.codes
                )
                growth.lists.sort(total)
            with self.bar("DtoH"):
                fetch(growth.codes, growth.pinned_codes, slot.stream, total)
                fetch(growth.ordered, growth.pinned_ordered, slot.stream, total)
            slot.stream.synchronize()
        return growth.pinned_codes[:total], growth.pinned_ordered[:total]


__all__ = ["MAX_CHUNK", "ChunkFound", "ChunkPiece", "Pipeline"]

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk. It bounds a stream's buffers: 17 MB, or 0.6 GB when growing."""

MOST_AHEAD = 8  # most threads that pack ahead, per device
TOGETHER = 1 << 24  # symbols that a thread packs ahead in one task

MOST_TOGETHER = 16
"""Most chunks per such task: pinning a small buffer takes as long as pinning a large one."""

Prepared = tuple[ChunkPiece, PackedArrays | None]


def check_dictionary(
    kmers: int,
    k: int,
    strands: Strands,
    cards: Iterable[int],
    limit: int,
    *,
    in_set: bool,
    walked: str | None,
) -> None:
    """Raise CardMemoryError if a dictionary of so many k-mers cannot fit, before it is built.

    limit: as of ``check_room``. in_set: it becomes a set of k-mers. walked: the kernel that walks
    over its Tree Bitmap, which is refused here if half of what random k-mers take is too much: the
    size of the trie is known only when it is built.
    """
    kmers = min(kmers, 4**k)
    with translated_driver_errors():
        if in_set:
            check_room(f"a set of {kmers:,} k-mers", set_bytes(kmers), cards, limit)
        if walked is not None:
            kmers *= 1 + (strands == "both")
            method = default_method(k) if walked == "default" else walked
            size = expected_bytes(k, kmers, with_buckets=method == "buckets")
            check_room(f"a Tree Bitmap of {kmers:,} k-mers", size // 2, cards, limit)


class Pipeline(streams.StreamEngine[ExactCard, ChunkFound]):
    """Matches chunks in the given order, on one device, or on several if the dictionary is fixed.

    k, strands: of the dictionary. chunk: symbols of the largest chunk (at most MAX_CHUNK). threads:
    host threads, which the devices share. options: see StreamOptions.
    """

    def __init__(
        self,
        k: int,
        strands: Strands = "canonical",
        *,
        chunk: int = 1 << 20,
        threads: int = 1,
        **options: Unpack[streams.StreamOptions],
    ) -> None:
        self.k = k
        self.strands: Strands = strands
        self.chunk = size = min(max(chunk, k), MAX_CHUNK)

        def packing(piece: ChunkPiece, buffer: PackedArrays) -> list[Callable[[], object]]:
            bases, offsets = piece.bases, piece.offsets
            assert isinstance(bases, np.ndarray)
            assert offsets is not None
            out_bases, out_starts = buffer
            return [
                partial(pack_chunk, bases, offsets, k, out_bases=out_bases, out_starts=out_starts)
            ]

        cards = len(options.get("cards", (0,)))
        self.threads = max(threads // cards, 1)
        threads_ahead = min(threads, MOST_AHEAD * cards)
        super().__init__(
            lambda share: ExactCard(k, strands, size, self.threads, share),
            ExactFlight,
            streams.LookAhead(
                threads_ahead,
                lambda: pinned_arrays(size),
                packing,
                most=threads_ahead,
                chunks_per_task=min(max(1, TOGETHER // size), MOST_TOGETHER),
            ),
            **options,
        )

    @property
    def kmers(self) -> KmerSet:
        """The set of k-mers of the first device; with several devices all are equal."""
        kmers = self.cards[0].kmers
        assert kmers is not None, "load() makes the set"
        return kmers

    def load(self, codes: NDArray[np.uint64], sets: NDArray[np.uint32], *, growing: bool) -> None:
        """Build the set of k-mers from distinct ``codes`` (uint64) and their target sets (uint32).

        codes are canonical unless the strands are ``forward``. growing (one device only): leave
        room for a chunk.
        """
        assert not growing or len(self.cards) == 1
        room = self.chunk if growing else 0
        with translated_driver_errors():
            for card in self.cards:
                if growing:
                    card.prepare_growth()
                card.load(codes, sets.astype(np.uint64), self.strands != "forward", room)

    def load_index(self, index: TextIndex) -> None:
        """Send the index of a fixed dictionary; raise CardMemoryError if it does not fit."""
        with translated_driver_errors():
            for card in self.cards:
                card.load_index(index)

    def prepare(self, tree: TreeBitmap, version: int, method: str = "default") -> None:
        """Send a snapshot before the first chunk; raise CardMemoryError if it does not fit."""
        with translated_driver_errors():
            for card in self.cards:
                with card.active():
                    card.tree(tree, version, method, card.slots[0])

    def map(
        self,
        take: Callable[[ChunkFound], streams.Taken],
        pieces: Iterable[ChunkPiece],
        *,
        ahead: bool = False,
    ) -> Iterator[streams.Taken]:
        """``take(result)`` for the result of each chunk, in order; pieces are taken one by one.

        It copies what it needs; each of several devices calls it on its own thread. ahead: threads
        pack chunks before their turn, one thread per chunk. By default a chunk is split over
        threads, and waking them takes as long as packing a million symbols.
        """
        prepared: Iterable[Prepared] = ((piece, None) for piece in pieces)
        if ahead:
            prepared = self._ahead.prepared(pieces)
        if len(self.cards) > 1:
            prepared = map(_as_of_now, prepared)
        return self._taken(prepared, take)

    def _answers(
        self, flights: streams.Flights[ChunkFound], prepared: Iterable[Prepared]
    ) -> Iterator[ChunkFound]:
        for answer in self._with_room(flights, prepared):
            if answer.codes is not None:
                self.kmers.known += answer.codes.size
            yield answer

    def _with_room(
        self, flights: streams.Flights[ChunkFound], prepared: Iterable[Prepared]
    ) -> Iterator[ChunkFound]:
        """The results, while the set is made large enough for each chunk before it is sent."""
        for piece, buffer in prepared:
            if piece.settled or not self._fits(piece, flights):
                yield from flights.drain()
            if piece.grow and not flights.flying:
                self._make_room(piece.symbols)
            yield from flights.queue(piece, buffer)
        yield from flights.drain()

    def _fits(self, piece: ChunkPiece, flights: streams.Flights[ChunkFound]) -> bool:
        """Whether the set has room for the windows in flight and those of this chunk."""
        if not piece.grow:
            return True
        in_flight = sum(flight.chunk.symbols for flight in flights.flying if flight.chunk.grow)
        return self.kmers.room(in_flight + piece.symbols)

    def _make_room(self, windows: int) -> None:
        with translated_driver_errors():
            for card in self.cards:
                assert card.kmers is not None
                if not card.kmers.room(windows):
                    with card.active():
                        card.kmers.enlarge(windows, card.slots[0].stream)


def _as_of_now(prepared: Prepared) -> Prepared:
    """The chunk with the current snapshot, so that other threads need not request it."""
    piece, buffer = prepared
    if piece.snapshot is None:
        return prepared
    snapshot = piece.snapshot()
    return replace(piece, snapshot=lambda: snapshot), buffer
