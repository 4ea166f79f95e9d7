"""The methods on a CUDA device: kernels and memory are ``gpu.primer``'s, the plan is the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer import hook, seeds, windows
from streamer.batch.primer.problem import Alpha, Codes
from streamer.batch.primer.text import joined
from trie.parallel import usable_cores

Columns = NDArray[np.int64]
Improve = Callable[[list[Codes], Columns], None]


class CardText:
    """A text on the card as ``windows.Backend``; matches that outgrow the card's rows end here."""

    def __init__(self, alpha: Alpha, on_card: Any, text: Codes, k: int) -> None:
        from gpu.primer import Text

        self._card = Text(on_card, text, k)
        self.width = self._card.width
        self.rest = self._card.rest
        self.wave = self._card.wave
        self.extension_cost = self._card.extension_cost
        self.best = self._card.best
        self._alpha = alpha
        self._text = text
        self._k = k

    def hits(self, firsts: Columns, ends: Columns) -> tuple[Columns, Columns, Columns, Columns]:
        """As ``scan.hits``."""
        return seeds.runs(self._card.hits(firsts, ends), self._text.size)

    def find(
        self, codes: Codes, firsts: Columns, table: seeds.Table, k: int
    ) -> tuple[Columns, Columns, Columns, Columns]:
        """As ``seeds.Finder.find``."""
        shape, begins = table.shape, table.begins.astype(np.uint32)
        keys = self._card.seeded(firsts, shape.window, shape.symbols, begins, table.entries)
        return seeds.runs(keys, self._text.size)

    def reaches(self, tasks: tuple[Columns, ...]) -> Columns:
        """As ``hook.reaches``."""
        found = self._card.reaches(tasks)
        long = np.flatnonzero(found < 0)
        if long.size:
            begun = (tasks[0][long], -1 - found[long], *(column[long] for column in tasks[2:]))
            found[long] = hook.reaches(
                self._alpha, hook.match_bits(self._alpha.codes), self._text, self._k, begun,
                usable_cores(),
            )  # fmt: skip
        return found


def improver(alpha: Alpha, k: int, method: str) -> Improve:
    """The function that raises reaches by a chunk of beta, with a method that the card has."""
    from gpu.primer import Alpha as CardAlpha

    if method in ("conventional", "alternative"):
        return lambda pieces, reach: _by_the_paper(method, alpha, pieces, k, reach)
    on_card = CardAlpha(alpha.codes, alpha.ends)
    plan = windows.Plan()
    kept = seeds.Kept(plan=plan)

    def improve(pieces: list[Codes], reach: Columns) -> None:
        text = joined(pieces)
        backend = CardText(alpha, on_card, text, k)
        if method == "hook-row":
            _everywhere(alpha, text.size, k, reach, backend)
        elif method == "seeds":
            seeds.improve(
                alpha, text, k, reach, kept,
                lambda part: backend if part is text else CardText(alpha, on_card, part, k),
                lambda: backend,
            )  # fmt: skip
        else:
            windows.improve(alpha, text.size, k, reach, backend, plan)

    return improve


SPAN = 1 << 14
"""Columns of a task of ``hook-row``."""


def _everywhere(alpha: Alpha, size: int, k: int, reach: Columns, backend: CardText) -> None:
    """``hook.everywhere`` on the card: every start and every span of the text."""
    spans = np.arange(0, size, SPAN)
    starts = np.flatnonzero(reach < alpha.ends)
    at_once = max(1, (1 << 20) // spans.size)
    for block in range(0, starts.size, at_once):
        r = starts[block : block + at_once]
        r = r[reach[r] < alpha.ends[r]]
        start = np.repeat(r, spans.size)
        from_ = np.tile(spans, r.size)
        # a match that ends in a span belongs to it; what is behind it another span sees
        known = reach[start]
        tasks = (start, known, known, from_, np.minimum(from_ + SPAN, size), known * 0 + k)
        np.maximum.at(reach, start, backend.reaches(tasks))
        alpha.raise_later(reach)


def _by_the_paper(
    method: str, alpha: Alpha, pieces: list[Codes], k: int, reach: Columns, batch: int = 4096
) -> None:
    from gpu.primer import longest_prefixes

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
