"""What searches a chunk of text: the CPU methods on all cores, or a card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.hamming import bit_sliced, naive, pigeonhole, pmasm, shift_add
from streamer.batch.hamming.patterns import Oriented
from trie.cpu.threads import run_all, split_range

ON_CPU: dict[str, ModuleType] = {
    "bit-sliced": bit_sliced,
    "pigeonhole": pigeonhole,
    "naive": naive,
    "shift-add": shift_add,
    "pmasm": pmasm,
}
"""Each has ``prepare(patterns)``, and ``scan`` over what that gives."""

LEAST_PART = 1 << 12
"""Windows for which a thread is worth while."""

LEAST_WORDS = 1 << 16
"""Hit words of the smallest buffer."""

MOST_WORDS = 1 << 25
"""Hit words of a chunk, at most, where it has more than a few windows."""

CHUNKS = (1 << 14, 1 << 23)
"""The least and the most windows of a chunk on the CPU."""


class HammingEngine(Protocol):
    """Searches chunks."""

    method: str
    chunk: int
    """Windows of a chunk, so that memory stays bounded if every window matches."""

    def words(self, codes: NDArray[np.uint8], first: int, stop: int) -> list[NDArray[np.uint64]]:
        """Ascending hit words of the windows [first, stop), counted from ``first``.

        They are valid until the next call.
        """


MOST_WINDOWS = 1 << 26
"""Windows of the largest chunk."""

LEAST_CHUNK = 1 << 16
"""Windows of the smallest chunk that is tried where the GPU's memory is short."""


class Chunks:
    """Chunks of texts one after another, by the engine of ``choice``: in smaller ones where the
    GPU's memory is short, by the CPU once it has failed.
    """

    def __init__(self, choice: Choice, patterns: Oriented, threads: int, *, free: bool) -> None:
        self._choice = choice
        self._make = partial(make, patterns=patterns, threads=threads, free=free)
        self._gpu = choice.gpu_or_cpu()
        self._most = MOST_WINDOWS
        self._engine: HammingEngine | None = None
        if choice.device == "cpu":
            self._ready()
        else:
            self._gpu.run(self._ready, self._take_over, self._smaller)

    def next_words(
        self, codes: NDArray[np.uint8], first: int, stop: int
    ) -> tuple[int, list[NDArray[np.uint64]]]:
        """The end of the next chunk of windows [first, stop), and its hit words."""
        search = partial(self._search, codes, first, stop)
        if self._choice.device == "cpu":
            return search()

        def on_cpu() -> tuple[int, list[NDArray[np.uint64]]]:
            self._take_over()
            return search()

        return self._gpu.run(search, on_cpu, self._smaller)

    def _search(
        self, codes: NDArray[np.uint8], first: int, stop: int
    ) -> tuple[int, list[NDArray[np.uint64]]]:
        engine = self._ready()
        end = min(first + engine.chunk, stop)
        return end, engine.words(codes, first, end)

    def _ready(self) -> HammingEngine:
        if self._engine is None:
            self._engine = self._make(self._choice, most=self._most)
        return self._engine

    def _smaller(self) -> bool:
        """Free the engine's memory; it is made again for half the chunk."""
        chunk = self._engine.chunk if self._engine is not None else self._most
        self._engine = None
        self._most = max(LEAST_CHUNK, chunk // 2)
        return chunk > LEAST_CHUNK

    def _take_over(self) -> HammingEngine:
        self._choice = self._choice.on_cpu()
        self._engine = None
        return self._ready()


class HammingCpu:
    """A CPU method on several threads, each with a part of the chunk."""

    def __init__(self, method: str, patterns: Oriented, threads: int) -> None:
        self.method = method
        module = ON_CPU[method]
        self._prepared = module.prepare(patterns)
        self._scan: Callable[..., tuple[int, int, int]] = module.scan
        self._patterns = len(patterns)
        self._threads = threads
        self._buffers: dict[int, list[NDArray[np.uint64]]] = {}
        self.chunk = max(CHUNKS[0], min(CHUNKS[1], MOST_WORDS // len(patterns)))

    def words(self, codes: NDArray[np.uint8], first: int, stop: int) -> list[NDArray[np.uint64]]:
        """As in ``HammingEngine``."""
        parts = min(self._threads, max(1, (stop - first) // LEAST_PART))
        ranges = split_range(first, stop, parts, align=64)
        tasks = [
            partial(self._part, codes, a, b, first, self._buffers.setdefault(i, []))
            for i, (a, b) in enumerate(ranges)
        ]
        return [words for part in run_all(tasks, self._threads) for words in part]

    def _part(
        self,
        codes: NDArray[np.uint8],
        first: int,
        stop: int,
        origin: int,
        buffers: list[NDArray[np.uint64]],
    ) -> list[NDArray[np.uint64]]:
        found: list[NDArray[np.uint64]] = []
        needed = min((stop - first) * self._patterns + 1, max(stop - first, LEAST_WORDS))
        while first < stop:
            if len(buffers) == len(found):
                buffers.append(np.empty(needed, dtype=np.uint64))
            buffer = buffers[len(found)]
            if buffer.size < needed:
                # memory that was never written is not taken from the machine
                buffer = buffers[len(found)] = np.empty(needed, dtype=np.uint64)
            first, count, needed = self._scan(self._prepared, codes, first, stop, origin, buffer)
            needed = max(needed, LEAST_WORDS)
            found.append(buffer[:count])
        return found


def make(
    choice: Choice, patterns: Oriented, threads: int, *, free: bool, most: int = MOST_WINDOWS
) -> HammingEngine:
    """The engine of a method on its device; ``free``: of the default or of a faster one.

    most: windows of a chunk on the GPU at most.
    """
    if choice.device == "cpu":
        faster = free and pigeonhole.pays(patterns)
        return HammingCpu("pigeonhole" if faster else choice.method, patterns, threads)
    from gpu.hamming import CardEngine

    method, index = choice.method, None
    if method == "pigeonhole" or (free and pigeonhole.pays_on_card(patterns)):
        method, index = "pigeonhole", pigeonhole.index_for_card(patterns)
    engine: HammingEngine = CardEngine(
        method, patterns.codes, patterns.ids, patterns.k, index, most
    )
    return engine
