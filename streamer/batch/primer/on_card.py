"""The methods on a CUDA device: what is looked for where is planned here, ``gpu.primer`` does it.

A text is looked at in spans that grow with what has been seen, so that good bounds are known where
most of it is looked at. In each

1. the starts that are not at their record's end form blocks f..a (``windows``): with e the reach of
   f, the window alpha[a:e+1] lies in whatever may raise one of their reaches
2. the windows are found in the span: by a scan, or through their pieces where k is small enough
   (``shape_for``)
3. where one was found, the reaches of the block's starts are raised, on the card; matches of
   thousands of rows are the host's (``windows.settle``)

The first span of all is looked at by every start, for there are no bounds yet. Where a span has
more hits than the card keeps, those that were kept raise the reaches, and its halves are looked at
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.primer import windows
from streamer.batch.primer.problem import Alpha, Codes
from streamer.batch.primer.scan import Cores
from streamer.batch.primer.shapes import CutCosts, shape_for
from streamer.batch.primer.text import CHUNK_SYMBOLS, chunks, turned
from trie.cpu.threads import usable_cores

Columns = NDArray[np.int64]
Improve = Callable[[list[Codes], Columns], None]

EVERYWHERE = 1 << 12
"""Columns of a task of a start that looks at all of them; it begins a prefix's length ahead."""

AT_ONCE = 1 << 22
"""Tasks of a launch, about."""

FIRST_SHARE = 32
"""The first span is so small a part of the text at most ..."""

FIRST = (1 << 13, 1 << 19)
"""... and so many columns: not so few that overlaps cost more, and no more than bounds need."""

GROWTH = 6
"""Columns of a span, for each that was seen before."""

SHARED = 7
"""Starts of a block at first."""

STARTS_A_HIT = 2.5
"""Starts that are followed at a hit, about."""

HIT_COST = 1.7
"""Following a start for 32 rows and a column, in those of the scan."""

BALANCE = 0.5
"""Work at hits against the scan's, at which windows stay as they are."""

RATE = 0.7
"""How fast the logarithm of the hits falls with the length of windows, roughly."""

LEAST_TEXT = 1 << 16
"""Symbols of the shortest text that is tried where memory is short."""

COSTS = CutCosts(scanned=13, candidate=25, found=100, shared=SHARED)
"""Operations."""


@dataclass
class CardBackend:
    """Records of alpha on the card, and what the texts before have told.

    ``window``: symbols of a window of the scan, 0 before the first. ``seen``: columns looked at.
    ``limit``: symbols of a text at most, fewer where memory is short. ``counts`` for benchmarks:
    spans, windows, hits.
    """

    alpha: Alpha
    k: int
    both: bool
    filtered: bool
    bare: bool = False
    """Every start looks at everything (``hook-row``)."""

    window: int = 0
    seen: int = 0
    limit: int = CHUNK_SYMBOLS
    text: Any = None
    counts: dict[str, int] = field(default_factory=dict)

    def improve(self, records: list[Codes], reach: Columns) -> None:
        """Raise the reaches by records of beta, with ``both`` by their reverse complements too."""
        if self.text is None:
            from gpu.primer import DeviceAlpha, Text

            on_card = DeviceAlpha(self.alpha.codes, self.alpha.ends)
            self.text = Text(on_card, self.k, both=self.both)
        limit = min(self.limit, self.text.most_symbols)
        if sum(record.size + 1 for record in records) <= limit:
            self._improve(records, reach)
            return
        for part in chunks(records, self.alpha.longest() + self.k, both=False, limit=limit):
            self._improve(part, reach)

    def smaller(self) -> bool:
        """Free all that is on the GPU and take texts half as long; False if they are the shortest.

        Pieces overlap by all of alpha, so that texts as short as it would be searched many times.
        """
        most = self.limit if self.text is None else min(self.limit, self.text.most_symbols)
        self.text = None
        if most <= max(LEAST_TEXT, 4 * (self.alpha.longest() + self.k)):
            return False
        self.limit = most // 2
        return True

    def _improve(self, records: list[Codes], reach: Columns) -> None:
        from gpu.primer import TILE

        text = self.text
        text.load(records)
        first = 0
        while first < text.columns:
            columns = text.columns if self.bare else GROWTH * self.seen
            if self.seen == 0 and not self.bare:
                columns = min(FIRST[1], max(FIRST[0], text.columns // FIRST_SHARE))
            stop = min(text.columns, first + -(-columns // TILE) * TILE)
            if self.bare or self.seen == 0:
                self._everywhere(text, first, stop, reach)
            else:
                self._look(text, first, stop, reach)
            self.seen += stop - first
            self._count("spans", 1)
            first = stop

    def _count(self, what: str, number: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _everywhere(self, text: Any, first: int, stop: int, reach: Columns) -> None:
        """Every start and every column."""
        rows = int(2.2 * self.k + 2 * np.log2(stop - first)) + 8
        starts = np.flatnonzero(reach < self.alpha.ends)
        span = min(EVERYWHERE, stop - first)
        at_once = max(1, min(AT_ONCE, text.most_hits) // -(-(stop - first) // span))
        for at in range(0, starts.size, at_once):
            r = starts[at : at + at_once]
            r = r[reach[r] < self.alpha.ends[r]]
            if r.size:
                blocks = np.stack([r, r, reach[r] + 1])
                self._raise(text, blocks, text.everywhere(blocks, first, stop, span), reach, rows)

    def _look(self, text: Any, first: int, stop: int, reach: Columns) -> None:
        """Windows of blocks in columns first..stop, and what their hits raise."""
        starts = np.flatnonzero(reach < self.alpha.ends)
        if not starts.size or first == stop:
            return
        lengths = reach[starts] - starts
        through_pieces = self.filtered and stop <= _most_columns()
        shape = shape_for(self.k, lengths, COSTS) if through_pieces else None
        if self.window == 0:
            self.window = max(1, int(np.median(lengths)) + 2 - SHARED)
        window = shape.window if shape else self.window
        blocks = np.stack(windows.blocks(
            *windows.stretches(self.alpha, reach, 1), reach, self.alpha.ends, window
        ))  # fmt: skip
        self._count("windows", blocks.shape[1])
        dropped = False
        if shape is not None:
            whole = blocks[2] - blocks[1] == shape.window
            some = np.ascontiguousarray(blocks[:, whole])
            if some.size:
                table = text.table(some, shape.pieces, shape.symbols, shape.errors)
                dropped |= self._settled(text, some, text.seeded(table, first, stop), reach)
            blocks = np.ascontiguousarray(blocks[:, ~whole])
        spent = scanned = 0.0
        for at in range(0, blocks.shape[1], _most_windows()):
            some = np.ascontiguousarray(blocks[:, at : at + _most_windows()])
            hits = text.scanned(some, first, stop)
            dropped |= self._settled(text, some, hits, reach)
            rows = float(np.median(some[2] - some[0])) + 1
            spent += hits.found * STARTS_A_HIT * HIT_COST * (rows + 16) * (rows + 2 * self.k + 64)
            scanned += 32.0 * float((-(-(some[2] - some[1]) // 32)).sum()) * (stop - first)
        if scanned and shape is None:
            change = round(np.log((spent + scanned / 64) / (BALANCE * scanned)) / RATE)
            self.window = max(1, min(self.window + max(-4, min(4, change)), 3 * self.k + 64))
        if dropped:
            half = first + _half(stop - first)
            self._look(text, first, half, reach)
            self._look(text, half, stop, reach)

    def _settled(self, text: Any, blocks: Columns, hits: Any, reach: Columns) -> bool:
        """Raise reaches by hits; whether some were dropped."""
        self._count("hits", hits.found)
        rows = blocks[2] - blocks[0]
        # long matches are few: they are followed again
        usual = int(np.partition(rows, -1 - rows.size // 64)[-1 - rows.size // 64])
        self._raise(text, blocks, hits, reach, usual + max(8, usual // 16))
        return bool(hits.found > hits.kept)

    def _raise(self, text: Any, blocks: Columns, hits: Any, reach: Columns, rows: int) -> None:
        left, long = text.raise_reaches(blocks, hits, reach, rows)
        if left.size:
            # matches of more rows than a thread of the card may have
            self._count("long", left.size)
            tile = ((left >> np.uint64(12)) & np.uint64((1 << 28) - 1)).astype(np.int64)
            near = hits.offset + hits.step * tile
            slack = (left & np.uint64(0xFFF)).astype(np.int64)
            # of the places of a block the one with the highest start first, as settle expects
            self.alpha.raise_later(reach)
            order = np.lexsort((-long[1], long[0]))
            long, near, slack = long[:, order], near[order], slack[order]
            codes = text.codes()
            backend = Cores(self.alpha, codes, self.k, usable_cores())
            windows.settle(
                self.alpha, self.k, reach, backend, windows.Plan(), long[0], long[1],
                long[2], near,
                np.minimum(near + hits.span, codes.size), slack,
            )  # fmt: skip
        self.alpha.raise_later(reach)


def _most_windows() -> int:
    from gpu.primer import MOST_WINDOWS

    return MOST_WINDOWS


def _most_columns() -> int:
    """How far pieces can be looked for; behind that windows are scanned for."""
    from gpu.primer import MOST_COLUMNS

    return MOST_COLUMNS


def _half(columns: int) -> int:
    from gpu.primer import TILE

    return -(-columns // (2 * TILE)) * TILE


class GpuImprover:
    """Raises reaches by chunks of beta with a method that the GPU has: in smaller pieces where its
    memory is short, and with ``cpu`` (made when it is needed) once it has failed.
    """

    def __init__(
        self,
        alpha: Alpha,
        k: int,
        choice: Choice,
        cpu: Callable[[Choice], Improve],
        *,
        both: bool,
    ) -> None:
        self._alpha = alpha
        self._k = k
        self._both = both
        self._choice = choice
        self._gpu = choice.gpu_or_cpu()
        self._card: CardBackend | None = None
        if choice.method not in ("conventional", "alternative"):
            filtered, bare = choice.method == "seeds", choice.method == "hook-row"
            self._card = CardBackend(alpha, k, both, filtered, bare)
        self._make_cpu = cpu
        self._cpu: Improve | None = None

    def __call__(self, pieces: list[Codes], reach: Columns) -> None:
        """Raise the reaches by pieces of beta, with ``both`` by their reverse complements too."""
        before = reach.copy()

        def on_gpu() -> None:
            if self._card is not None:
                self._card.improve(pieces, reach)
            else:
                by_the_paper(
                    self._choice.method, self._alpha, pieces, self._k, reach, both=self._both
                )

        def on_cpu() -> None:
            # nothing is taken from a GPU that has gone wrong
            reach[:] = before
            self._by_cpu(pieces, reach)

        self._gpu.run(on_gpu, on_cpu, self._smaller)

    def _smaller(self) -> bool:
        return self._card is not None and self._card.smaller()

    def _by_cpu(self, pieces: list[Codes], reach: Columns) -> None:
        if self._cpu is None:
            self._card = None
            self._cpu = self._make_cpu(self._choice.on_cpu())
        # the CPU needs the reverse complements in its chunks
        for part in chunks(pieces, self._alpha.longest() + self._k, both=self._both):
            self._cpu(part, reach)


def by_the_paper(
    method: str, alpha: Alpha, pieces: list[Codes], k: int, reach: Columns, *, both: bool,
    batch: int = 4096,
) -> None:  # fmt: skip
    """Raise the reaches by the paper's CUDA solutions, conventional or alternative."""
    from gpu.primer import longest_prefixes

    if both:
        pieces = [oriented for piece in pieces for oriented in (piece, turned(piece))]
    for begin, end in zip(alpha.offsets[:-1].tolist(), alpha.offsets[1:].tolist(), strict=True):
        for piece in pieces:
            open_ = np.flatnonzero(reach[begin:end] < end)
            for at in range(0, open_.size, batch):
                # successive batches of matrices (section 4), until one says that alpha has ended
                starts = open_[at : at + batch]
                lengths, _ = longest_prefixes(method, alpha.codes[begin:end], piece, k, starts)
                found = begin + starts + lengths
                reach[begin + starts] = np.maximum(reach[begin + starts], found)
                if found.max() >= end:
                    reach[begin + starts[found >= end][0] : end] = end
                    break
