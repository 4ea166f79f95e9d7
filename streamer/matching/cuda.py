"""The matcher's engine on CUDA devices. Import it only when a GPU is requested.

Match packed batches against a fixed dictionary on CUDA devices, if only matches are wanted.

    letters, as they come ──pack, one thread a batch──▶ 2 bits a base, a bit a window ──┐
    codes ──pack, on threads──────────────────────────▶ ...                            ├─▶ a chunk
    ...                                                                                ┘
    a bit a window ◀── a chunk

Batches begin and are cut at word boundaries only, so a batch's bits are words of the chunk's:
nothing is shifted, and no byte per symbol is written. The words of all batches lie in one array, a
chunk's in a row, so each chunk is copied out at once.

Pack batches that arrived together, with one kernel call on each of a few threads.

The kernel computes their checksums too, while the letters are in the core's cache.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from gpu.card import packing
from gpu.card.cuda_errors import translated_driver_errors
from gpu.exact import ChunkFound, ChunkPiece, CudaEngineError, Pipeline
from gpu.exact.chunk_match import TooManyWordNodesError
from gpu.exact.expand import copied, copy_into, mismatched, scatter_words
from gpu.exact.pipeline import MAX_CHUNK, check_dictionary
from streamer.dictionary.index import Index
from streamer.dictionary.targets import Dictionary
from streamer.matching import match_engine
from streamer.matching.events import Bits, Events, add_bits, no_bits
from streamer.matching.record_runs import NO_RUNS, Runs, moved, runs_in_text, runs_of_places
from streamer.matching.result import concatenated
from streamer.matching.spec import MatchSpec
from streamer.matching.tree_worker import VersionedSnapshot
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.wire import crc32c_address
from streamer.sequences.read_batch import BadReadError, Letters, RawReads, ReadBatch
from trie.codes import LETTER_TO_CODE, InvalidBaseError, check_k, encode, reverse_codes
from trie.cpu import array_pool
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, run_ranges, split_range
from trie.windows import MATCH, NO_SET, ascending

# letters worth another thread: waking one takes as long as half a million of them
_PACKED_PER_THREAD = 1 << 22


def pack_batches(
    batches: Sequence[RawReads], sums: NDArray[np.uint32], k: int, threads: int = 1
) -> list[packing.PackedChunk | None]:
    """Pack the letters of every batch as ``gpu.card.packing.pack_letters`` does; None for errors.

    sums: uint32, a CRC-32C for each batch, continued over its letters; needs a ``crc32c_address``.
    """
    check_k(k)
    sizes = [(len(letters), offsets.size) for _, offsets, letters in batches]
    words = [packing.packed_sizes(size if size <= packing.MAX_SYMBOLS else 0) for size, _ in sizes]
    ends = np.zeros((len(batches) + 1, 2), dtype=np.int64)
    np.cumsum(words, axis=0, out=ends[1:])
    bases, starts = (np.empty(total, dtype=np.uint32) for total in ends[-1].tolist())
    data = [np.frombuffer(letters, np.uint8) for _, _, letters in batches]
    offsets = [np.ascontiguousarray(offsets, dtype=np.int64) for _, offsets, _ in batches]
    places = np.array(
        [[array_address(array) for array in of_one] for of_one in zip(data, offsets, strict=True)],
        dtype=np.uint64,
    )
    results = np.zeros(len(batches), dtype=np.int64)
    threads = min(threads, 1 + sum(size for size, _ in sizes) // _PACKED_PER_THREAD)
    there = np.uint64(crc32c_address()), places, np.array(sizes, dtype=np.int64)
    pack = partial(_pack, *there, LETTER_TO_CODE, k, bases, starts, ends, results, sums)
    run_each(pack, split_range(0, len(batches), threads), threads)
    return [
        packing.PackedChunk(k, size, bases[a:b], starts[c:d], result == packing.GAPS)
        if result < 0
        else None
        for (size, _), (a, c), (b, d), result in zip(
            sizes, ends.tolist(), ends[1:].tolist(), results.tolist(), strict=False
        )
    ]


@njit(cache=True, nogil=True)
def _pack(address, places, sizes, table, k, bases, starts, ends, results, sums, first, stop):
    """Pack batches first..stop - 1; ``results``: of ``pack_letters_into``, negative on success."""
    for i in range(first, stop):
        symbols = sizes[i, 0]
        if symbols > packing.MAX_SYMBOLS or sizes[i, 1] == 0:
            continue
        letters = carray(pointer(places[i, 0]), symbols, np.uint8)
        offsets = carray(pointer(places[i, 1]), sizes[i, 1], np.int64)
        if offsets[0] != 0 or offsets[-1] != symbols or not ascending(offsets):
            continue
        if symbols:
            sums[i] = continue_crc32c(address, sums[i], places[i, 0], symbols)
        packed = bases[ends[i, 0] : ends[i + 1, 0]]
        packed[packed.size - packing.SPARE_WORDS :] = np.uint32(0)
        mask = starts[ends[i, 1] : ends[i + 1, 1]]
        results[i] = packing.pack_letters_into(letters, table, offsets, k, packed, mask)


# chunk lengths are multiples of this
_STEP = 1 << 19
# threads that pack batches: each does 3 GB a second
PACKERS = 3
# least symbols of a chunk worth another GPU
_PER_CARD = 1 << 22
# symbols worth another chunk for the same GPU, which matches them in the time of a chunk's calls
_PER_ROUND = 1 << 24
# chunks for a GPU from which further ones would not overlap more
_ROUNDS = 4
# symbols worth another thread
_PER_THREAD = 1 << 21
# words of runs worth another thread
_WORDS_PER_THREAD = 1 << 16
_NO_GAPS = np.zeros(0, np.int64)


class PackedReads(ReadBatch):
    """Reads as sent by a producer, in ``packed`` form too; base codes are made on demand.

    letters: bases and ambiguity codes only; they must not change.
    """

    __slots__ = ("_codes", "letters", "packed")

    packed: packing.PackedChunk
    letters: Letters
    _codes: NDArray[np.uint8] | None

    def __init__(
        self,
        names: Sequence[str],
        offsets: NDArray[np.int64],
        letters: Letters,
        packed: packing.PackedChunk,
    ) -> None:
        values = (names, offsets, letters, packed, None, None)
        fields = ("names", "offsets", "letters", "packed", "_codes", "context")
        for name, value in zip(fields, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def bases(self) -> NDArray[np.uint8]:
        """uint8 base codes of all reads, one after the other."""
        if self._codes is None:
            object.__setattr__(self, "_codes", encode(self.letters))
        assert self._codes is not None
        return self._codes

    def two_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Like ``ReadBatch.two_bits``, from the packed form."""
        if self.packed.gaps:
            return super().two_bits()
        words = np.empty((self.symbols + 15) // 16, np.uint32)
        reverse_codes(self.packed.bases, words)
        return words.astype("<u4", copy=False).view(np.uint8)[: (self.symbols + 3) // 4], _NO_GAPS


class PackedMatching:
    """Matches with ``engine``; packs on up to ``threads`` threads.

    in_text: against the index that the engine has, else against snapshots with the kernel
    ``method``. index: runs along its text are found, too; None: only bits.
    """

    longest = packing.MAX_SYMBOLS

    def __init__(
        self, engine: Pipeline, method: str, threads: int, *, in_text: bool, index: Index | None
    ) -> None:
        self._engine = engine
        self._method = method
        self._threads = threads
        self._in_text = in_text
        self._index = index
        # a segment of one word that is cut takes two
        self._step = min(_STEP, engine.chunk // 64 * 32)
        assert self._step, "chunks of at least 64 symbols"
        self._room = engine.chunk // self._step * self._step // 32

    def pack(
        self, names: Sequence[str], offsets: NDArray[np.int64], letters: Letters
    ) -> PackedReads:
        """Make a batch from its joined letters; BadReadError names the first bad read. Thread-safe.

        The letters must not change.
        """
        try:
            packed = packing.pack_letters(letters, offsets, self._engine.k)
        except InvalidBaseError as error:
            raise BadReadError.at(offsets, error) from None
        return PackedReads(names, offsets, letters, packed)

    def pack_batches(
        self, batches: Sequence[RawReads], sums: NDArray[np.uint32]
    ) -> list[PackedReads | None]:
        """Pack several batches in one step, as ``pack`` does; None instead of errors.

        sums: uint32, a CRC-32C for each batch, continued over its letters.
        """
        threads = min(PACKERS, self._threads // 4)
        packed = pack_batches(batches, sums, self._engine.k, threads)
        return [
            None if chunk is None else PackedReads(*batch, chunk)
            for batch, chunk in zip(batches, packed, strict=True)
        ]

    def match(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[match_engine.Found]:
        """Return what is found of each batch, in order."""
        # of all batches, one after the other, as the chunks find them
        matches = array_pool.empty(sum(map(_words, batches)), np.uint32)
        waiting: deque[packing.PackedChunk] = deque()
        done = 0
        runs = NO_RUNS
        copied_out = partial(self._copied_out, matches)
        for stop, new in self._engine.map(copied_out, self._pieces(batches, snapshot, waiting)):
            runs = np.concatenate((runs, new)) if len(runs) else new
            while waiting and done + waiting[0].starts.size <= stop:
                packed = waiting.popleft()
                first, done = done, done + packed.starts.size
                count = np.searchsorted(runs[:, 0], 32 * done)
                own, runs = moved(runs[:count], -32 * first), runs[count:]
                events = Events(packed.symbols, (packed.starts, matches[first:done]))
                yield match_engine.Found(events, own)

    def _copied_out(self, matches: NDArray[np.uint32], chunk: ChunkFound) -> tuple[int, Runs]:
        """Copy a result to its place in ``matches``; returns where it ends, and its runs."""
        first, stop = chunk.piece.tag
        copy_into(matches[first:stop], chunk.matches[: stop - first], self._engine.threads)
        return int(stop), _runs_of(self._index, chunk, 32 * first, self._engine.threads)

    def _pieces(
        self,
        batches: Sequence[ReadBatch],
        snapshot: Callable[[], VersionedSnapshot],
        waiting: deque[packing.PackedChunk],
    ) -> Iterator[ChunkPiece]:
        """The chunks with their places among all words; ``waiting`` gets the packed batches."""
        parts: list[packing.Segment] = []
        begin = end = 0
        rest = room = self._shared_room(sum(map(_words, batches)))
        for batch in batches:
            packed = self._packed(batch)
            waiting.append(packed)
            words = packed.starts.size
            first = 0
            while True:
                # everything left, or as much as fits in addition to the ends of its windows
                stop = words if words - first <= rest else first + rest - 1
                if stop > first or words == 0:
                    parts.append(packing.Segment(packed, first, stop))
                    rest -= parts[-1].words
                    end += stop - first
                    first = stop
                if first == words:
                    break
                yield self._piece(parts, snapshot, (begin, end))
                parts, rest, begin = [], room, end
        if parts:
            yield self._piece(parts, snapshot, (begin, end))

    def _shared_room(self, words: int) -> int:
        """Return the words per chunk: as many as fit, or fewer so that every GPU gets as many.

        Several chunks for each GPU overlap their transfers, but calls take as long for any chunk.
        """
        share = -(-words // len(self._engine.cards))
        # a cut takes one word
        rounds = max(-(-share // (self._room - 1)), min(32 * share // _PER_ROUND, _ROUNDS), 1)
        size = max(-(-share // rounds) + 1, _PER_CARD // 32)
        step = self._step // 32
        return min(-(-size // step) * step, self._room)

    def _piece(
        self,
        parts: list[packing.Segment],
        snapshot: Callable[[], VersionedSnapshot],
        place: tuple[int, int],
    ) -> ChunkPiece:
        chunk = packing.PackedParts(parts, self._step)
        return ChunkPiece(
            chunk, snapshot=None if self._in_text else snapshot, method=self._method,
            runs=self._index is not None, tag=place,
        )  # fmt: skip

    def _packed(self, batch: ReadBatch) -> packing.PackedChunk:
        if isinstance(batch, PackedReads):
            return batch.packed
        threads = min(self._threads, 1 + batch.symbols // _PER_THREAD)
        return packing.pack_chunk(batch.bases, batch.offsets, self._engine.k, threads=threads)


def _runs_of(index: Index | None, chunk: ChunkFound, first: int, threads: int) -> Runs:
    """The runs of a chunk, if any were sought; first: its place in the batches."""
    if index is not None and chunk.runs is not None:
        joined = chunk.runs

        def found(begin: int, end: int) -> Runs:
            return runs_in_text(index, [joined(begin, end)])

        parts = run_ranges(found, 0, chunk.matches.size, threads, grain=_WORDS_PER_THREAD)
        runs = concatenated(parts, NO_RUNS)
    elif index is not None and chunk.sets is not None and chunk.piece.offsets is not None:
        runs = runs_of_places(index, chunk.sets, chunk.piece.offsets, threads)
    else:
        return NO_RUNS
    return moved(runs, first)


def _words(batch: ReadBatch) -> int:
    """Words of a bit per symbol."""
    return packing.packed_sizes(batch.symbols)[1]


__all__ = ["LONGEST_CHUNK", "CudaEngine", "CudaEngineError"]

# number of pieces of a batch from which threads pack them ahead, one each
STAGED_FROM = 8
# two words of 32 symbols: parts of packed batches are made of words
LEAST_CHUNK = 64
# packed chunks take little memory, and calls from Python as long as for short ones
PACKED_SPANS = 4
# fits the buffers together with the other chunks of its span
LONGEST_CHUNK = MAX_CHUNK - match_engine.LONG_SPAN


class CudaEngine(match_engine.MatchEngine):
    """Matches against ``dictionary`` on the GPUs numbered ``spec.cards``.

    The kernel ``auto`` or ``index`` is the fastest: it uses the text of a frozen dictionary, where
    it suits, or the set of k-mers of a growing one. The others match the snapshot and look up what
    it lacks in the set. runs: find them, too. halvings: how often to halve the longest spans
    (``spans_of``), to make buffers smaller. Raises CudaEngineError with one line if a GPU fails or
    has too little memory.
    """

    device = "cuda"

    def __init__(
        self,
        dictionary: Dictionary,
        spec: MatchSpec,
        *,
        runs: bool,
        chunk: int,
        threads: int,
        halvings: int = 0,
    ) -> None:
        self._k = dictionary.k
        self._threads = threads
        kernel = spec.exact_kernel
        self._method = "default" if kernel in ("auto", "index") else kernel
        self._in_text = dictionary.is_text and not (spec.changes or spec.uses_snapshot)
        # the text or a set of k-mers makes the snapshot unnecessary, unless its kernel is requested
        self._walks = not (spec.changes or self._in_text) or self._method != "default"
        self._halvings = halvings
        self._chunk = max(chunk + max(1, match_engine.LONG_SPAN >> halvings), LEAST_CHUNK)
        self._stream_chunk = chunk
        self._dictionary = dictionary
        self._wants_runs = runs
        self._has_set = spec.changes or (runs and not self._in_text)
        packs = not self._has_set and spec.distance is None
        check_dictionary(
            dictionary.most_kmers, self._k, dictionary.strands, spec.cards or (0,),
            spec.device_bytes, in_set=self._has_set, walked=self._method if self._walks else None,
        )  # fmt: skip
        self._engine = Pipeline(
            self._k, dictionary.strands, streams=spec.streams, cards=spec.cards,
            chunk=PACKED_SPANS * self._chunk if packs else self._chunk,
            memory_bytes=spec.device_bytes, threads=threads,
        )  # fmt: skip
        if self._has_set:
            places = dictionary.places if runs else np.full(dictionary.kmers, NO_SET, np.uint32)
            self._engine.load(dictionary.codes, places, growing=spec.changes)
        if self._in_text:
            self._engine.load_index(dictionary.index.text)
        self._packed: PackedMatching | None = None
        if packs:
            self._packed = PackedMatching(
                self._engine, self._method, threads, in_text=self._in_text,
                index=dictionary.index if runs and self._in_text else None,
            )  # fmt: skip
            self.make_batch = self._packed.pack
            self.make_together = self._packed.pack_batches

    def __len__(self) -> int:
        return self._engine.kmers.known if self._has_set else self._dictionary.kmers

    def codes(self) -> NDArray[np.uint64]:
        if not self._has_set:
            return self._dictionary.codes
        with translated_driver_errors():
            return self._engine.kmers.codes()

    def prepare(self, snapshot: Callable[[], VersionedSnapshot]) -> None:
        """Upload the snapshot of a fixed dictionary, if it is needed.

        Raises CudaEngineError if it does not fit.
        """
        if self._walks:
            fixed = snapshot()
            self._engine.prepare(fixed.tree, fixed.version, self._method)

    def close(self) -> None:
        """Free the memory on the GPUs."""
        self._engine.close()

    def find(
        self, batches: Sequence[ReadBatch], snapshot: Callable[[], VersionedSnapshot]
    ) -> Iterator[match_engine.Found]:
        path = self._packed
        if path is not None and all(batch.symbols <= path.longest for batch in batches):
            yield from path.match(batches, snapshot)
            return
        for batch in batches:
            spans = match_engine.spans_of(
                batch.offsets, self._k, self._stream_chunk, 0, aging=False, halvings=self._halvings
            )
            bits, parts = no_bits(batch.symbols), list[Runs]()
            task = match_engine.MatchTask(
                batch, spans, 0, lambda _: snapshot(), False, bits, parts, None, None
            )
            deque(self.run(task), maxlen=0)
            yield match_engine.Found(Events(batch.symbols, bits), concatenated(parts, NO_RUNS))

    def run(self, task: match_engine.MatchTask) -> Iterator[match_engine.SpanFound]:
        """Like ``MatchEngine.run``; with two streams, a result comes while the next span runs."""
        try:
            ahead = len(task.spans) >= STAGED_FROM and self._threads > 1
            copied_out = partial(self._copied_out, task)
            for span, bits, runs in self._engine.map(copied_out, self._pieces(task), ahead=ahead):
                for part, whole in zip(bits, task.bits, strict=True):
                    add_bits(part, int(span.chunks[0, 0]), whole)
                task.runs.append(runs)
                yield span
        except TooManyWordNodesError as error:
            raise CudaEngineError(str(error)) from error

    def _pieces(self, task: match_engine.MatchTask) -> Iterator[ChunkPiece]:
        seeded_before = False
        words = task.depths is not None
        for number, (seeding, chunks) in enumerate(task.spans):
            start, stop = int(chunks[0, 0]), int(chunks[-1, 1])
            walks = words or (self._walks and not seeding)
            yield ChunkPiece(
                task.batch.bases[start:stop],
                match_engine.slice_reads(task.batch.offsets, start, stop),
                task.position + start,
                grow=seeding or task.grows,
                snapshot=partial(task.snapshot, number) if walks else None,
                method=self._method,
                words=words,
                sets=self._wants_runs and self._has_set,
                runs=self._wants_runs and self._in_text,
                settled=seeded_before and not seeding,
                tag=(seeding, chunks),
            )
            seeded_before = seeding

    def _copied_out(
        self, task: match_engine.MatchTask, chunk: ChunkFound
    ) -> tuple[match_engine.SpanFound, Bits, Runs]:
        """Copy a result out of the engine's buffers; called on the thread of its GPU."""
        threads = self._engine.threads
        seeding, chunks = chunk.piece.tag
        start = int(chunks[0, 0])
        # no window of this span starts later, but one of the next may
        stop = max(int(chunks[-1, 1]) - self._k + 1, start)
        starts = chunk.starts.copy()
        matches = starts if seeding else chunk.matches & starts
        runs = _runs_of(self._dictionary.index, chunk, start, threads)
        if chunk.words is not None and task.depths is not None and task.nodes is not None:
            depths = task.depths[start:stop]
            scatter_words(chunk.words, depths, task.nodes[start:stop], threads)
            depths[Events(stop - start, (starts, matches)).codes == MATCH] = self._k
        span = match_engine.SpanFound(seeding, chunks, chunk.version)
        if chunk.codes is not None and chunk.ordered is not None:
            span = span._replace(
                codes=copied(chunk.codes, threads),
                starts=mismatched(chunk.starts, chunk.matches, start, threads),
                ordered=copied(chunk.ordered, threads),
            )
        return span, (starts, matches), runs
