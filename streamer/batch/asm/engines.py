"""Engines that search blocks of text, and blocks cut to what an engine can take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.bit_parallel import BitParallel
from streamer.batch.asm.blocks import Block
from streamer.batch.asm.found import NO_LIMIT, EndsFound, TooManyError, in_order, joined
from streamer.batch.asm.paper import pasm, sequential
from streamer.batch.asm.pattern_masks import Searches
from streamer.batch.choice import CardUse, Choice, ChosenEngine
from streamer.errors import UsageError
from trie.cpu.thread_lanes import each_task, in_lanes

ROWS_AT_ONCE = 1 << 24  # hits in memory at once, about
ALWAYS_ENDS = 64  # a block of so few ends is searched however many hits it has
SHARED_BLOCK = 1 << 26  # symbols of a block at most, where there are several GPUs


class AsmEngine(Protocol):
    """A method for some patterns; block_size: symbols of a block at most."""

    @property
    def block_size(self) -> int: ...

    def search(self, block: Block, limit: int) -> list[EndsFound]:
        """Every end beyond the block's lead with a distance <= k, in parts one after another.

        TooManyError above about ``limit``; InvalidBaseError where a letter is not of DNA.
        """


Find = Callable[[NDArray[np.uint8], int, Searches, int], list[EndsFound]]
"""(codes, lead, searches, threads) to every end in (lead, n] with a distance <= k, by search."""

PAPER: dict[str, Find] = {"sequential": sequential.find, "pasm": pasm.find}


class PaperEngine:
    """A method of the paper on the CPU."""

    block_size = 1 << 20

    def __init__(self, searches: Searches, method: str, threads: int) -> None:
        self._searches = searches
        self._find = PAPER[method]
        self._threads = threads

    def search(self, block: Block, limit: int) -> list[EndsFound]:
        """As in ``AsmEngine``."""
        found = self._find(block.codes(), block.lead, self._searches, self._threads)
        if sum(map(len, found)) > limit:
            raise TooManyError
        return [in_order(joined(found), block.lead, block.symbols.size)]


class GpuEngine:
    """A method on the GPU (gpu/asm)."""

    def __init__(self, searches: Searches, method: str) -> None:
        from gpu.asm import Searcher

        try:
            self._searcher = Searcher(searches.masks, searches.k, method)
        except ValueError as error:
            message = f"the method '{method}': {error}"
            raise UsageError(message) from None
        self.smaller = self._searcher.smaller

    @property
    def block_size(self) -> int:
        """Symbols of a block that the GPU has memory for."""
        return self._searcher.block_size

    def search(self, block: Block, limit: int) -> list[EndsFound]:
        """As in ``AsmEngine``."""
        from gpu.asm import TooManyHitsError

        if limit < NO_LIMIT:
            limit = min(limit, self._searcher.most_hits)
        try:
            found = self._searcher.search(block.symbols, block.lead, limit, letters=block.letters)
        except TooManyHitsError:
            raise TooManyError from None
        return [in_order(EndsFound(*found), block.lead, block.symbols.size)]


def engine_for(choice: Choice, searches: Searches, threads: int) -> AsmEngine:
    """The method's engine for these patterns."""
    if choice.device == "cuda":
        return GpuEngine(searches, choice.method)
    if choice.method == "bit-parallel":
        return BitParallel(searches, threads)
    return PaperEngine(searches, choice.method, threads)


class Cutter(ChosenEngine[AsmEngine]):
    """Searches blocks, cut where they have more hits than ROWS_AT_ONCE, or more than the GPU has
    memory for.
    """

    def __init__(
        self, choice: Choice, searches: Searches, threads: int, use: CardUse | None = None
    ) -> None:
        self._searches = searches
        self._threads = threads
        self._most_ends = NO_LIMIT
        super().__init__(choice, use)

    def make(self, choice: Choice) -> AsmEngine:
        """As in ``ChosenEngine``."""
        return engine_for(choice, self._searches, self._threads)

    def smaller(self) -> bool:
        """As in ``ChosenEngine``."""
        if not isinstance(self.made, GpuEngine):
            return False
        fits = self.made.smaller()
        self._most_ends = min(self._most_ends, self.made.block_size)
        return fits

    def fell_back(self) -> None:
        """Cut to blocks of the CPU's size."""
        self._most_ends = self.engine.block_size

    def search(self, block: Block) -> Iterator[tuple[Block, list[EndsFound]]]:
        """The parts of a block in order, and what is in each."""
        rest: Block | None = block
        while rest is not None:
            # the results of one part do not depend on where the next is searched
            part, found, rest = self.run(partial(self._first, rest))
            yield part, found

    def _first(self, block: Block) -> tuple[Block, list[EndsFound], Block | None]:
        """As much of a block as can be searched at once, what is in it, and the rest."""
        while True:
            part, rest = block, None
            if block.ends > self._most_ends:
                part, rest = block.cut(self._most_ends, self._searches.reach)
            limit = ROWS_AT_ONCE if part.ends > ALWAYS_ENDS else NO_LIMIT
            try:
                return part, self.engine.search(part, limit), rest
            except TooManyError:
                # blocks to come are likely to be like this one
                self._most_ends = max(ALWAYS_ENDS, part.ends // 2)


class Cutters:
    """A cutter for each GPU of the choice, side by side, or one on the CPU."""

    def __init__(self, choice: Choice, searches: Searches, threads: int) -> None:
        self._cutters = [Cutter(choice, searches, threads, use) for use in choice.card_uses()]

    @property
    def block_size(self) -> int:
        """Symbols of a block."""
        size = min(cutter.engine.block_size for cutter in self._cutters)
        return size if len(self._cutters) == 1 else min(size, SHARED_BLOCK)

    def search(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, list[EndsFound]]]:
        """The parts of the blocks in order, and what is in each."""
        return in_lanes(self._cutters, blocks, each_task(Cutter.search))
