"""Approximate string matching (asm): patterns within an edit distance (WsPASM paper).

For a text T[0..n) and a pattern P[0..m), D[i, j] is 0 for i = 0, i for j = 0, D[i-1, j-1] where
T[j-1] = P[i-1], else 1 + the minimum of its three neighbours (equation 1): the fewest edits that
turn some T[s..j) into P[0..i). Every end e >= 1 with D[m, e] <= k is a hit. A gap code in the text
matches nothing; the reverse complement of a pattern is searched left to right like the pattern.

method          where       what
sequential      CPU         equation 1, cell by cell
pasm            CPU, CUDA   equation 3: rows of D in parallel, with the matrix X (algorithm 1)
wspasm          CUDA        algorithm 2: neighbours by warp shuffle, rows in global memory
wspasm-shared   CUDA        the same, text and pattern in shared memory
bit-parallel    CPU, CUDA   the default: differences of D, bit-sliced over text segments

Texts are cut into blocks, and blocks to what an engine can search at once.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm import blocks
from streamer.batch.asm.bit_parallel import BitParallel
from streamer.batch.asm.hit_reports import BestEnds, every_end, runs_of
from streamer.batch.asm.paper import pasm, sequential
from streamer.batch.asm.pattern_masks import Searches, check_patterns, masks_of, searches
from streamer.batch.choice import CardUse, Choice, Device, SearchLane, choose
from streamer.batch.hits import Hits, structured
from streamer.batch.records import Letters, several
from streamer.errors import UsageError, check_choice
from trie.codes import InvalidBaseError, as_letters, encode
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import each_task, in_lanes, usable_cores

ROWS_AT_ONCE = 1 << 24  # approximate hits that all engines find at once
BEST_AT_ONCE = 1 << 21  # the same for the report ``best``, where a hit takes up to 150 bytes
ALWAYS_ENDS = 64  # a block with this few ends is searched however many hits it has
_FEW = 16  # with at most this part of the hits allowed, the next block is twice as long
SHARED_BLOCK = 1 << 26  # most symbols per block with several engines

ENGINES = 2
"""Engines on each GPU: one packs and sends a block while the kernels of the other run.

With one thread just one, as in a worker of a cluster, which searches one block at a time.
"""

Find = Callable[[NDArray[np.uint8], int, Searches, int], list[blocks.EndsFound]]
"""(codes, lead, searches, threads) -> every end in (lead, n] with distance <= k, by search."""

PAPER: dict[str, Find] = {"sequential": sequential, "pasm": pasm}


class PaperEngine:
    """A method of the paper on the CPU."""

    block_size = 1 << 20

    def __init__(self, searches: Searches, method: str, threads: int) -> None:
        self._searches = searches
        self._find = PAPER[method]
        self._threads = threads

    def search(self, block: blocks.Block, limit: int) -> list[blocks.EndsFound]:
        """See ``BitParallel.search``."""
        ends = self._find(block.codes(), block.lead, self._searches, self._threads)
        if sum(map(len, ends)) > limit:
            raise blocks.TooManyError
        return [blocks.in_order(blocks.joined(ends), block.lead, block.symbols.size)]


class GpuEngine:
    """A method on the GPU (gpu/asm)."""

    def __init__(self, searches: Searches, method: str, sharing: int) -> None:
        from gpu.asm import Searcher

        try:
            self._searcher = Searcher(searches.masks, searches.k, method, sharing=sharing)
        except ValueError as error:
            raise UsageError(f"the method '{method}': {error}") from None
        self.block_size = self._searcher.block_size

    def smaller(self) -> bool:
        """Free the GPU's memory and use smaller blocks; False if that is too little."""
        fits = self._searcher.smaller()
        self.block_size = self._searcher.block_size
        return fits

    def search(self, block: blocks.Block, limit: int) -> list[blocks.EndsFound]:
        """See ``BitParallel.search``."""
        from gpu.asm import TooManyHitsError

        if limit < blocks.NO_LIMIT:
            limit = min(limit, self._searcher.most_hits)
        try:
            hits = self._searcher.search(block.symbols, block.lead, limit, letters=block.letters)
        except TooManyHitsError:
            raise blocks.TooManyError from None
        return [blocks.in_order(blocks.EndsFound(*hits), block.lead, block.symbols.size)]


def engine_for(choice: Choice, searches: Searches, threads: int, sharing: int = 1) -> Any:
    """Create the method's engine for these patterns; ``sharing`` of them use its GPU."""
    if choice.device == "cuda":
        return GpuEngine(searches, choice.method, sharing)
    if choice.method == "bit-parallel":
        return BitParallel(searches, threads)
    return PaperEngine(searches, choice.method, threads)


class AsmLane(SearchLane[Any]):
    """Searches blocks, cut if they have more than ``most_hits`` or exceed GPU memory."""

    def __init__(
        self, choice: Choice, searches: Searches, threads: int, most_hits: int, use: CardUse
    ) -> None:
        self._searches = searches
        self._most_hits = most_hits
        self._threads = threads
        self._most_ends = blocks.NO_LIMIT
        super().__init__(choice, use)

    def make(self, choice: Choice) -> Any:
        """Implement ``SearchLane``."""
        return engine_for(choice, self._searches, self._threads, self._use.sharing)

    def smaller(self) -> bool:
        """Implement ``SearchLane``."""
        if self.made is None:
            return False
        fits = bool(self.made.smaller())
        self._most_ends = min(self._most_ends, self.made.block_size)
        return fits

    def fell_back(self) -> None:
        """Use blocks of the CPU's size."""
        self._most_ends = self.engine.block_size

    def search(self, block: blocks.Block) -> Iterator[tuple[blocks.Block, list[blocks.EndsFound]]]:
        """Yield the parts of a block in order, and the hits in each."""
        rest: blocks.Block | None = block
        while rest is not None:
            # a part's results do not depend on where the next one is searched
            part, ends, rest = self.run(partial(self._first, rest))
            yield part, ends

    def _first(
        self, block: blocks.Block
    ) -> tuple[blocks.Block, list[blocks.EndsFound], blocks.Block | None]:
        """Return as much of a block as can be searched at once, its hits, and the rest."""
        while True:
            part, rest = block, None
            if block.ends > self._most_ends:
                part, rest = block.cut(self._most_ends, self._searches.reach)
            limit = self._most_hits if part.ends > ALWAYS_ENDS else blocks.NO_LIMIT
            try:
                ends = self.engine.search(part, limit)
            except blocks.TooManyError:
                # later blocks are probably similar
                self._most_ends = max(ALWAYS_ENDS, part.ends // 2)
                continue
            if rest is not None and sum(map(len, ends)) <= self._most_hits // _FEW:
                self._most_ends = min(2 * self._most_ends, self.engine.block_size)
            return part, ends, rest


class AsmSearch:
    """Patterns prepared for one method on the GPUs of a choice or the CPU, for any texts.

    best: for the report ``best``. block_size: the symbols per block.
    """

    def __init__(self, wanted: Searches, choice: Choice, threads: int, *, best: bool) -> None:
        self._wanted = wanted
        uses = choice.card_uses(sharing=min(ENGINES, threads))
        most = (BEST_AT_ONCE if best else ROWS_AT_ONCE) // len(uses)
        self._lanes = [AsmLane(choice, wanted, threads, most, use) for use in uses]
        size = min(lane.engine.block_size for lane in self._lanes)
        self.block_size = size if len(uses) == 1 else min(size, SHARED_BLOCK)

    def ends(
        self, texts: Iterable[blocks.Texts]
    ) -> Iterator[tuple[blocks.Block, list[blocks.EndsFound]]]:
        """Yield parts of the texts in order, and every end in each."""
        cut = blocks.blocks(texts, self._wanted.k, self._wanted.reach, self.block_size)
        # or the engines of one GPU would pack at the same time, and then wait for it together
        return in_lanes(self._lanes, cut, each_task(AsmLane.search), ready=1)


Report = Literal["all", "best"]
REPORTS: tuple[Report, ...] = ("all", "best")

METHODS: dict[str, tuple[Device, ...]] = {
    "sequential": ("cpu",),
    "pasm": ("cpu", "cuda"),
    "wspasm": ("cuda",),
    "wspasm-shared": ("cuda",),
    "bit-parallel": ("cpu", "cuda"),
}
DEFAULT = "bit-parallel"


@interrupts_as_such()
def search(
    text: Letters | Sequence[Letters],
    patterns: Letters | Sequence[Letters],
    k: int,
    *,
    strands: str = "both",
    report: str = "all",
    method: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    iupac: bool = False,
    gpus: int = 0,
) -> NDArray[np.void]:
    """Find patterns in one or several texts; return a structured array (``streamer.batch.hits``).

    text, patterns: letters (bytes, str or uint8 array), one or a sequence of them; the fields
    ``text`` and ``pattern`` are their indices. Rows are ordered by text, end, pattern, ``+`` before
    ``-``. With report ``all``, the start is -1; with ``best``, start and ``cigar`` are those of one
    optimal alignment, and of hits of a pattern and strand that overlap the nearest stays.
    ``iupac``: an ambiguity code in a pattern matches its bases. ``gpus``: the most GPUs to use, 0
    for all.

    Raises UsageError for an unknown option, DataError for an empty pattern or one not longer than
    k, InvalidBaseError (a ValueError) for a letter that is not DNA.

    >>> from streamer.batch import asm
    >>> hits = asm.search(b"ACGTTGCATTACG", ["TTGCA", "CATTG"], 1, strands="forward", report="best")
    >>> for hit in hits:
    ...     print(hit["start"], hit["end"], hit["distance"], hit["pattern"], hit["cigar"])
    1 6 1 1 1=1X3=
    3 8 0 0 5=
    6 10 1 1 4=1I
    """
    k = operator.index(k)  # accepts NumPy integers
    masks = [masks_of(letters, iupac=iupac) for letters in several(patterns)]
    check_patterns(masks, [str(i) for i in range(len(masks))], k)
    letters = [x if isinstance(x, bytes | str) else as_letters(x) for x in several(text)]
    choice = choose(METHODS, DEFAULT, method, device, gpus=gpus)
    wanted = searches(masks, k, strands)
    threads = threads or usable_cores()
    parts = find(blocks.of_letters(letters, k + 1), wanted, choice, report=report, threads=threads)
    try:
        return structured([hits for _, hits in parts], threads)
    except InvalidBaseError:
        for sequence in letters:
            encode(sequence)  # reports the position in its own text
        raise


def find(
    texts: Iterable[blocks.Texts],
    wanted: Searches,
    choice: Choice,
    *,
    report: str = "all",
    threads: int | None = None,
) -> Iterator[tuple[int, Hits]]:
    """Yield the hits in all texts, in row order, in parts of bounded size.

    Each part, possibly empty, comes with the number of the first text in which later parts may have
    hits. A text that is cut has the ``wanted.reach`` symbols before the cut in both pieces.
    ``threads``: CPU threads; None or 0 means every core. Columns that are constant in a part may be
    read-only views of one value.
    """
    check_choice("report", report, REPORTS)
    best = BestEnds(wanted) if report == "best" else None
    search = AsmSearch(wanted, choice, threads or usable_cores(), best=best is not None)
    first = 0
    for part, ends in search.ends(texts):
        first = part.first
        if best is not None:
            yield first, best.add(runs_of(part, blocks.joined(ends), wanted))
        else:
            yield from ((first, every_end(part, some, wanted)) for some in ends)
    if best is not None:
        # even without rows, for its column cigar
        yield first, best.finish()


__all__ = ["METHODS", "InvalidBaseError", "find", "search", "searches"]
