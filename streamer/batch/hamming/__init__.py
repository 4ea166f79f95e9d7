"""Search with k mismatches for many patterns of one length (PMASM paper).

Definition 2 of the paper: every start s and pattern P such that the Hamming distance of P and
text[s : s + m] is at most k. A gap code is a mismatch, in the text and in a pattern. Rows are
ordered by text, end, pattern and strand (``+`` first); for strand ``-``, the reverse complement of
the pattern is searched for, left to right in the text as given.

Every method gives the same hits. The default is ``bit-sliced``, or ``pigeonhole`` where that is
likely faster, with hundreds of patterns; the others are the paper's. Texts are searched chunk by
chunk, by a CPU method on all cores or by GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import CardUse, Choice, Device, SearchLane, choose
from streamer.batch.hamming import bit_sliced, paper, pigeonhole
from streamer.batch.hamming.problem import Oriented, columns, orient
from streamer.batch.hits import Hits, concatenate
from streamer.batch.records import Letters, NamedSequence, as_records
from streamer.sequences.record_buffer import TextPiece
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import each_task, in_lanes, run_chains, split_range, usable_cores


class CpuMethod(NamedTuple):
    """A method on the CPU.

    prepare: converts patterns to the last arguments of ``scan``. most_windows(patterns, cells): how
    many windows a call of ``scan`` may take if comparing as many symbols one by one takes a tenth
    of a second; less than 1 stands for 1. scan(codes, first, stop, origin, ids, k, words,
    *prepared): writes to ``words`` the hit words of as many of the windows [first, stop) as fit,
    with starts counted from ``origin``; returns where it stopped, the number of words, and how many
    the next window or block needs. ids: uint64[r], shifted as in a hit word.
    """

    prepare: Callable[[Oriented], tuple[Any, ...]]
    most_windows: Callable[[Oriented, int], int]
    scan: Callable[..., tuple[int, int, int]]


ON_CPU = {
    "bit-sliced": CpuMethod(bit_sliced.prepare, bit_sliced.most_windows, bit_sliced.scan),
    "pigeonhole": CpuMethod(pigeonhole.prepare, pigeonhole.most_windows, pigeonhole.scan),
    "naive": CpuMethod(paper.naive_patterns, paper.most_windows, paper.naive),
    "shift-add": CpuMethod(paper.shift_add_state, paper.shift_add_windows, paper.shift_add),
    "pmasm": CpuMethod(paper.pmasm_memory, paper.most_windows, paper.pmasm),
}

LEAST_PART = 1 << 12  # windows worth another thread
LEAST_WORDS = 1 << 16  # hit words of the smallest buffer
MOST_WORDS = 1 << 25  # most hit words per chunk, unless it has only a few windows
CHUNKS = (1 << 14, 1 << 23)  # the least and the most windows of a chunk on the CPU
MOST_WINDOWS = 1 << 26  # windows of the largest chunk
MOST_CELLS = 1 << 27  # symbols compared per call of ``scan``: Ctrl-C is noticed only between two
LEAST_SHARE = 1 << 22  # windows worth another GPU; a multiple of 64
LEAST_CHUNK = 1 << 16  # windows of the smallest chunk tried when GPU memory is short


@dataclass(frozen=True, slots=True)
class SearchedText:
    """Concatenated base codes of texts, where each begins (int64[texts + 1]), and their names.

    Of a text that is cut, ``length`` - 1 symbols are repeated.
    """

    codes: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    names: Sequence[str] = ()

    @classmethod
    def of(cls, piece: TextPiece) -> SearchedText:
        """A piece; if symbols of its first text precede it, that begins before 0."""
        reads, offsets = piece.reads, piece.reads.offsets
        if piece.start:
            offsets = offsets.copy()
            offsets[0] -= piece.start
        return cls(reads.bases, offsets, reads.names)


Bounds = tuple[int, int]
"""A half-open range of windows."""

TextPart = tuple[SearchedText, int, int, Bounds | None]
"""A text, a range of its windows, and the next range for the same GPU."""

FoundPart = tuple[SearchedText, int, list[NDArray[np.uint64]]]
"""A text, the first of some of its windows, and their hit words, relative to that."""


class HammingLane(SearchLane[Any]):
    """Searches texts chunk by chunk, in smaller chunks if GPU memory is short."""

    def __init__(
        self, choice: Choice, patterns: Oriented, threads: int, free: bool, use: CardUse
    ) -> None:
        self._patterns, self._threads, self._free = patterns, threads, free
        self._most = MOST_WINDOWS
        super().__init__(choice, use)

    def make(self, choice: Choice) -> Any:
        """Implement ``SearchLane``."""
        return engine_for(choice, self._patterns, self._threads, free=self._free, most=self._most)

    def smaller(self) -> bool:
        """Free the engine's memory; it will be recreated for half the chunk."""
        chunk = self.made.chunk if self.made is not None else self._most
        self.made = None
        self._most = max(LEAST_CHUNK, chunk // 2)
        return bool(chunk > LEAST_CHUNK)

    def words(self, part: TextPart) -> Iterator[FoundPart]:
        """Yield the hit words of a part, chunk by chunk; valid until the next are requested."""
        text, first, stop, then = part
        while first < stop:
            begin = first
            first, words = self.run(partial(self._chunk, text.codes, begin, stop, then))
            yield text, begin, words

    def _chunk(
        self, codes: NDArray[np.uint8], first: int, stop: int, then: Bounds | None
    ) -> tuple[int, list[NDArray[np.uint64]]]:
        """Return the end of the next chunk of windows [first, stop), and its hit words."""
        end = min(first + self.engine.chunk, stop)
        return end, self.engine.words(codes, first, end, then)


class HammingCpu:
    """A CPU method on several threads, each on a part of a chunk of up to ``chunk`` windows."""

    def __init__(self, method: str, patterns: Oriented, threads: int) -> None:
        self.method = method
        self._prepared = ON_CPU[method].prepare(patterns)
        self._scan = ON_CPU[method].scan
        self._ids, self._k = patterns.ids_in_place, patterns.k
        self._threads = threads
        self._most = max(1, ON_CPU[method].most_windows(patterns, MOST_CELLS))
        self._buffers: dict[int, list[NDArray[np.uint64]]] = {}
        self.chunk = max(CHUNKS[0], min(CHUNKS[1], MOST_WORDS // len(patterns)))

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, then: Bounds | None = None
    ) -> list[NDArray[np.uint64]]:
        """Return ascending hit words of the windows [first, stop), relative to ``first``.

        They are valid until the next call, probably for ``then`` (None: the following windows).
        """
        parts = min(self._threads, max(1, (stop - first) // LEAST_PART))
        ranges = split_range(first, stop, parts, align=64)
        hits: list[list[NDArray[np.uint64]]] = [[] for _ in ranges]
        chains = [
            self._steps(codes, *bounds, first, self._buffers.setdefault(i, []), hits[i])
            for i, bounds in enumerate(ranges)
        ]
        run_chains(chains, self._threads)
        return [words for part in hits for words in part]

    def _steps(
        self,
        codes: NDArray[np.uint8],
        first: int,
        stop: int,
        origin: int,
        buffers: list[NDArray[np.uint64]],
        hits: list[NDArray[np.uint64]],
    ) -> Iterator[Callable[[], None]]:
        """Yield the steps, a call of the kernel each, that append the hit words to ``hits``."""
        needed = min((stop - first) * self._ids.size + 1, max(stop - first, LEAST_WORDS))

        def step() -> None:
            nonlocal first, needed
            if needed:
                if len(buffers) == len(hits):
                    buffers.append(np.empty(0, dtype=np.uint64))
                if buffers[len(hits)].size < needed:
                    # untouched memory costs nothing
                    buffers[len(hits)] = np.empty(needed, dtype=np.uint64)
                hits.append(buffers[len(hits)][:0])
            buffer, used = buffers[len(hits) - 1], hits[-1].size
            first, count, more = self._scan(
                codes, first, min(first + self._most, stop), origin, self._ids, self._k,
                buffer[used:], *self._prepared,
            )  # fmt: skip
            hits[-1] = buffer[: used + count]
            needed = more and max(more, LEAST_WORDS)

        while first < stop:
            yield step


def engine_for(
    choice: Choice, patterns: Oriented, threads: int, *, free: bool, most: int = MOST_WINDOWS
) -> Any:
    """Create the engine of a method on its device; ``free``: choose the fastest method.

    most: the most windows per chunk on the GPU.
    """
    on_gpu = choice.device == "cuda"
    faster = free and pigeonhole.pays(patterns, on_gpu=on_gpu)
    method = "pigeonhole" if faster else choice.method
    if not on_gpu:
        return HammingCpu(method, patterns, threads)
    from gpu.hamming import searcher_for

    index = pigeonhole.make_index(patterns, on_gpu=True) if method == "pigeonhole" else None
    return searcher_for(method, patterns.codes, patterns.ids_in_place, patterns.k, index, most)


METHODS: dict[str, tuple[Device, ...]] = {
    "bit-sliced": ("cpu", "cuda"),
    "pigeonhole": ("cpu", "cuda"),
    "naive": ("cpu", "cuda"),
    "shift-add": ("cpu", "cuda"),
    "pmasm": ("cpu",),
    "pmasm-thread": ("cuda",),
    "pmasm-block-thread": ("cuda",),
    "pmasm-shared": ("cuda",),
}
"""The devices that have each method."""

DEFAULT = "bit-sliced"
ROWS_AT_ONCE = 1 << 22  # most rows per ``Hits`` that ``find`` yields


class HammingSearch:
    """Patterns prepared for one method on one device, for any number of texts.

    patterns: records of one length, 1 to 256. k: mismatches allowed, below it. strands: forward,
    reverse or both. choice: from ``choose``. free: no method was requested. threads: 0 means every
    core. source: what errors call the patterns. Raises UsageError and DataError as
    ``orient`` does.
    """

    def __init__(
        self,
        patterns: Sequence[NamedSequence],
        k: int,
        *,
        strands: str = "both",
        choice: Choice,
        free: bool = False,
        threads: int = 0,
        source: str = "patterns",
    ) -> None:
        oriented = orient(patterns, k, strands, source=source)
        self._threads = threads or usable_cores()
        self.length = oriented.length
        self._lanes = [
            HammingLane(choice, oriented, self._threads, free, use) for use in choice.card_uses()
        ]

    def find(self, texts: Iterable[SearchedText]) -> Iterator[tuple[SearchedText, Hits]]:
        """Yield the hits in batches of texts, in order, a few million rows at a time.

        Several GPUs search several batches at once.
        """
        parts = (part for text in texts for part in self._parts(text))
        # the hit words of a chunk are valid until the next ones are requested
        for text, first, words in in_lanes(self._lanes, parts, each_task(HammingLane.words)):
            for share in _shares(words):
                yield text, columns(share, first, text.offsets, self.length, self._threads)

    def _parts(self, text: SearchedText) -> Iterator[TextPart]:
        """Yield the windows of a text; for several GPUs, in parts so that each gets some."""
        stop = text.codes.size - self.length + 1
        count = len(self._lanes)
        if count == 1:
            yield text, 0, stop, None
            return
        chunk = min(lane.engine.chunk for lane in self._lanes)
        step = min(chunk, max(LEAST_SHARE, -(-stop // count // 64) * 64))
        for first in range(0, stop, step):
            later = min(first + count * step, stop)
            yield text, first, min(first + step, stop), (later, min(later + step, stop))


def _shares(words: list[NDArray[np.uint64]]) -> Iterator[list[NDArray[np.uint64]]]:
    """Split the hit words of a chunk into parts of up to ROWS_AT_ONCE."""
    if sum(part.size for part in words) <= ROWS_AT_ONCE:
        yield words
        return
    for part in words:
        for first in range(0, part.size, ROWS_AT_ONCE):
            yield [part[first : first + ROWS_AT_ONCE]]


@interrupts_as_such()
def search(
    text: Letters | Sequence[Letters],
    patterns: Letters | Sequence[Letters],
    k: int,
    *,
    strands: str = "both",
    method: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    gpus: int = 1,
) -> NDArray[np.void]:
    """Find every window of one or several texts within k mismatches of a pattern.

    text, patterns: letters (bytes, str or uint8), or several of them. Returns a structured array
    with the fields text, start, end, distance, strand, pattern (streamer.batch.hits.FIELDS), text
    and pattern by number. gpus: the most GPUs to use, 0 for all.

    Raises UsageError for invalid options, DataError for patterns that are empty, of different
    lengths, above 256 symbols or not longer than k, InvalidBaseError (a ValueError) for a letter
    that is not DNA, StreamerError if CUDA is requested but not usable.

    >>> from streamer.batch import hamming
    >>> hits = hamming.search(b"ACGTTGCATTACG", ["TTGCA", "CATTG"], 1, strands="forward")
    >>> for hit in hits:
    ...     print(hit["start"], hit["end"], hit["distance"], hit["pattern"])
    1 6 1 1
    3 8 0 0
    6 11 1 1
    """
    choice = choose(METHODS, DEFAULT, method, device, gpus=gpus)
    prepared = HammingSearch(
        as_records(patterns), k, strands=strands, choice=choice, free=method is None,
        threads=threads or 0,
    )  # fmt: skip
    texts = [record.codes for record in as_records(text)]
    codes = texts[0] if len(texts) == 1 else np.concatenate([np.empty(0, np.uint8), *texts])
    offsets = np.concatenate([[0], np.cumsum(list(map(len, texts)))]).astype(np.int64)
    parts = prepared.find([SearchedText(codes, offsets)])
    return concatenate([hits for _, hits in parts]).structured()
