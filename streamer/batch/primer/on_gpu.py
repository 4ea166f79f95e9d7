"""The methods on a CUDA device: this module plans the search, ``gpu.primer`` performs it.

A text is searched in growing spans, so that good bounds are known for most of it. In each span

1. the starts that are not at their record's end form blocks f..a (``shared_windows``): with e the
   reach of f, the window alpha[a:e+1] is part of whatever may raise one of their reaches
2. the windows are found in the span: by a scan, or through their pieces where k is small enough
   (``shape_for``)
3. near the hits the reaches of the blocks' starts are raised, on the GPU; matches of thousands of
   rows are left to the CPU (``shared_windows.settle``)

The first span is searched by every start, for there are no bounds yet. If a span has more hits than
the GPU stores, the stored ones raise the reaches, and both halves are searched again.
"""

from __future__ import annotations

import numpy as np

import gpu.primer as device
from gpu.primer import GpuAlpha, GpuHits, GpuText
from gpu.primer.paper import longest_prefixes
from streamer.batch.primer.cpu_text import BlockHits, CpuText
from streamer.batch.primer.problem import CHUNK_SYMBOLS, Alpha, Columns, chunks
from streamer.batch.primer.seeds import MOST_WINDOWS, CutCosts, shape_for
from streamer.batch.primer.shared_windows import RATE, balanced, blocks, settle, stretches
from streamer.batch.records import Codes, reverse_complement
from trie.cpu.threads import usable_cores

EVERYWHERE = 1 << 12
"""Columns per task when a start searches all of them; a task begins one prefix length earlier."""

AT_ONCE = 1 << 22  # approximate tasks per launch
FIRST_SHARE = 32  # the first span is this fraction of the text ...
FIRST = (1 << 13, 1 << 19)  # ... within limits: overlaps must cost little, and bounds need no more
GROWTH = 6  # columns of a span per column seen before
SHARED = 7  # initial starts per block
STARTS_A_HIT = 2.5  # approximate starts followed per hit
HIT_COST = 1.7  # cost of following a start for 32 rows and a column, relative to the scan
BALANCE = 0.5  # ratio of the work at hits to the scan's at which windows stay unchanged
LEAST_TEXT = 1 << 16  # symbols of the shortest text tried when memory is short
PAPER_BATCH = 4096  # starts per launch of the paper's kernels
COSTS = CutCosts(scanned=13, candidate=25, found=100, shared=SHARED)  # operations


def search(
    alpha: Alpha, k: int, method: str, *, both: bool, seen: int = 0
) -> PaperSearch | WindowSearch:
    """Create the search that raises reaches by pieces of beta (``both``: either strand).

    seen: symbols of beta by which the reaches have been raised before.
    """
    if method in ("conventional", "alternative"):
        return PaperSearch(alpha, k, method, both)
    return WindowSearch(alpha, k, method, both, seen)


class PaperSearch:
    """The paper's CUDA solutions, conventional or alternative."""

    def __init__(self, alpha: Alpha, k: int, method: str, both: bool) -> None:
        self._alpha = alpha
        self._k = k
        self._method = method
        self._both = both

    def smaller(self) -> bool:
        """Return False: texts are always searched whole."""
        return False

    def improve(self, pieces: list[Codes], reach: Columns) -> None:
        """Raise the reaches by pieces of beta, and with ``both`` by their reverse complements."""
        if self._both:
            pieces = [turned for piece in pieces for turned in (piece, reverse_complement(piece))]
        for begin, end in self._alpha.bounds():
            for piece in pieces:
                self._improve_record(self._alpha.codes[begin:end], begin, piece, reach[begin:end])

    def _improve_record(self, alpha: Codes, begin: int, piece: Codes, reach: Columns) -> None:
        end = begin + alpha.size
        unfinished = np.flatnonzero(reach < end)
        for at in range(0, unfinished.size, PAPER_BATCH):
            # successive batches of matrices (section 4), until one reaches alpha's end
            starts = unfinished[at : at + PAPER_BATCH]
            lengths, _ = longest_prefixes(self._method, alpha, piece, self._k, starts)
            stops = begin + starts + lengths
            reach[starts] = np.maximum(reach[starts], stops)
            if stops.max() >= end:
                reach[starts[stops >= end][0] :] = end
                return


class WindowSearch:
    """Alpha on the GPU, and what has been learned from the texts so far.

    ``method``: windows (scan for windows), seeds (find them through pieces where that pays) or
    hook-row (search everything for every start).
    """

    def __init__(self, alpha: Alpha, k: int, method: str, both: bool, seen: int) -> None:
        self._alpha = alpha
        self._k = k
        self._both = both
        self._through_pieces = method == "seeds"
        self._bare = method == "hook-row"
        self._window = 0  # symbols of a window of the scan, 0 before the first
        self._seen = seen * (2 if both else 1)  # columns
        self._limit = CHUNK_SYMBOLS  # of a text
        self._text: GpuText | None = None

    def improve(self, records: list[Codes], reach: Columns) -> None:
        """Raise the reaches by records of beta, and with ``both`` by their reverse complements."""
        if self._text is None:
            on_device = GpuAlpha(self._alpha.codes, self._alpha.ends)
            self._text = GpuText(on_device, self._k, both=self._both)
        text = self._text
        limit = min(self._limit, text.most_symbols)
        if sum(record.size + 1 for record in records) <= limit:
            self._improve(text, records, reach)
            return
        for part in chunks(records, self._alpha.longest() + self._k, both=False, limit=limit):
            self._improve(text, part, reach)

    def smaller(self) -> bool:
        """Free the GPU's memory and take texts half as long; False if they are the shortest.

        Pieces overlap by the length of alpha, so texts as short as alpha would be searched many
        times.
        """
        limit = self._limit if self._text is None else min(self._limit, self._text.most_symbols)
        self._text = None
        if limit <= max(LEAST_TEXT, 4 * (self._alpha.longest() + self._k)):
            return False
        self._limit = limit // 2
        return True

    def _improve(self, text: GpuText, records: list[Codes], reach: Columns) -> None:
        text.load(records)
        first = 0
        while first < text.columns:
            columns = text.columns if self._bare else GROWTH * self._seen
            if self._seen == 0 and not self._bare:
                columns = min(FIRST[1], max(FIRST[0], text.columns // FIRST_SHARE))
            stop = min(text.columns, first + -(-columns // device.TILE) * device.TILE)
            if self._bare or self._seen == 0:
                self._everywhere(text, first, stop, reach)
            else:
                self._look(text, first, stop, reach)
            self._seen += stop - first
            first = stop

    def _everywhere(self, text: GpuText, first: int, stop: int, reach: Columns) -> None:
        """Search every start and every column."""
        rows = int(2.2 * self._k + 2 * np.log2(stop - first)) + 8
        starts = np.flatnonzero(reach < self._alpha.ends)
        span = min(EVERYWHERE, stop - first)
        at_once = max(1, min(AT_ONCE, text.most_hits) // -(-(stop - first) // span))
        for at in range(0, starts.size, at_once):
            r = starts[at : at + at_once]
            r = r[reach[r] < self._alpha.ends[r]]
            if r.size:
                each = np.stack([r, r, reach[r] + 1])
                self._raise(text, each, text.everywhere(each, first, stop, span), reach, rows)

    def _look(self, text: GpuText, first: int, stop: int, reach: Columns) -> None:
        """Find the windows of blocks in columns first..stop, and raise reaches near the hits."""
        starts = np.flatnonzero(reach < self._alpha.ends)
        if not starts.size or first == stop:
            return
        lengths = reach[starts] - starts
        through_pieces = self._through_pieces and stop <= device.MOST_COLUMNS
        shape = shape_for(self._k, lengths, COSTS) if through_pieces else None
        if self._window == 0:
            self._window = max(1, int(np.median(lengths)) + 2 - SHARED)
        window = shape.window if shape else self._window
        at, end = stretches(self._alpha, reach, 1)
        spans = blocks(at, end, reach, self._alpha.ends, window)
        dropped = False
        if shape is not None:
            whole = np.flatnonzero(spans[2] - spans[1] == shape.window)[:MOST_WINDOWS]
            some = np.ascontiguousarray(spans[:, whole])
            if some.size:
                table = text.table(some, shape.pieces, shape.symbols, shape.errors)
                dropped |= self._settled(text, some, text.seeded(table, first, stop), reach)
            spans = np.delete(spans, whole, axis=1)
        spent = scanned = 0.0
        for begin in range(0, spans.shape[1], device.MOST_WINDOWS):
            some = np.ascontiguousarray(spans[:, begin : begin + device.MOST_WINDOWS])
            hits = text.scanned(some, first, stop)
            dropped |= self._settled(text, some, hits, reach)
            rows = float(np.median(some[2] - some[0])) + 1
            spent += hits.found * STARTS_A_HIT * HIT_COST * (rows + 16) * (rows + 2 * self._k + 64)
            scanned += 32.0 * float((-(-(some[2] - some[1]) // 32)).sum()) * (stop - first)
        if scanned and shape is None:
            work = (spent + scanned / 64) / (BALANCE * scanned)
            self._window = balanced(self._window, work, RATE, self._k)
        if dropped:
            half = first + -(-(stop - first) // (2 * device.TILE)) * device.TILE
            self._look(text, first, half, reach)
            self._look(text, half, stop, reach)

    def _settled(self, text: GpuText, some: Columns, hits: GpuHits, reach: Columns) -> bool:
        """Raise reaches by hits of blocks; return whether some hits were dropped."""
        rows = some[2] - some[0]
        # long matches are rare, so they are followed again
        usual = int(np.partition(rows, -1 - rows.size // 64)[-1 - rows.size // 64])
        self._raise(text, some, hits, reach, usual + max(8, usual // 16))
        return hits.found > hits.stored

    def _raise(
        self, text: GpuText, some: Columns, hits: GpuHits, reach: Columns, rows: int
    ) -> None:
        remaining, long = text.raise_reaches(some, hits, reach, rows)
        if remaining.size:
            # matches with more rows than a GPU thread can hold
            tile = ((remaining >> np.uint64(12)) & np.uint64((1 << 28) - 1)).astype(np.int64)
            near = hits.offset + hits.step * tile
            slack = (remaining & np.uint64(0xFFF)).astype(np.int64)
            # highest start first among the places of a block, as settle expects
            self._alpha.raise_later(reach)
            order = np.lexsort((-long[1], long[0]))
            long, near, slack = long[:, order], near[order], slack[order]
            host = CpuText(self._alpha, text.codes(), self._k, usable_cores())
            end = np.minimum(near + hits.span, host.codes.size)
            settle(host, reach, long, BlockHits(np.arange(order.size), near, end, slack))
        self._alpha.raise_later(reach)
