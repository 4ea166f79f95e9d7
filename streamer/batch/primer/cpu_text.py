"""Search windows in a text of beta on the CPU's cores, and extend starts near the hits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.hook import match_bits, reach_all
from streamer.batch.primer.problem import Alpha, Columns
from streamer.batch.primer.window_scan import FAR, LANES, TILE, minima, runs_of_hits
from streamer.batch.records import Codes
from trie.cpu.threads import run_all, split_range

SEGMENT = 1 << 20
"""The most columns per task; its minima take 16 bits per tile and lane."""

EXTENSION_COST = 6.0  # cost of a column of ``reaches`` relative to one of ``hits``, for equal rows


class BlockHits(NamedTuple):
    """Where windows match within k - 1 differences, int64 each.

    A match ends in text[begin:end]; the best one there has k - 1 - slack differences.
    """

    window: Columns
    begin: Columns
    end: Columns
    slack: Columns


@dataclass(frozen=True)
class CpuText:
    """One text, the alpha to compare with it, and the threads that search it.

    Windows are alpha[firsts:ends], int64[windows] each.
    """

    alpha: Alpha
    codes: Codes
    k: int
    threads: int

    @cached_property
    def _bits(self) -> NDArray[np.uint64]:
        return match_bits(self.alpha.codes)

    @property
    def width(self) -> int:
        """The number of windows that keep all cores busy."""
        return LANES if self.codes.size >= self.threads << 16 else LANES * self.threads

    def part(self, first: int, stop: int) -> CpuText:
        """Return some columns of the text."""
        return CpuText(self.alpha, self.codes[first:stop], self.k, self.threads)

    def hits(self, firsts: Columns, ends: Columns) -> BlockHits:
        """Find where the windows match, in columns of whole tiles."""

        def runs(lowest: NDArray[np.int16], count: int, span: tuple[int, int]) -> Columns:
            return runs_of_hits(lowest, self.k - 1, count, span)

        found = [
            (group[lanes], *rest) for group, (lanes, *rest) in self._scanned(firsts, ends, runs)
        ]
        return BlockHits(*map(np.concatenate, zip(*found, strict=True)))

    def nearest(self, firsts: Columns, ends: Columns) -> tuple[Columns, Columns, Columns]:
        """Find the tile (from, until) where each window is closest, and its differences there."""

        def least(lowest: NDArray[np.int16], count: int, span: tuple[int, int]) -> Any:
            tile = lowest[:, :count].argmin(axis=0)
            return span[0] + TILE * tile, lowest[tile, np.arange(count)]

        where = np.zeros(firsts.size, dtype=np.int64)
        distance = np.full(firsts.size, int(FAR), dtype=np.int64)
        for group, (tiles, lows) in self._scanned(firsts, ends, least):
            nearer = lows < distance[group]
            where[group[nearer]] = tiles[nearer]
            distance[group[nearer]] = lows[nearer]
        return where, np.minimum(where + TILE, self.codes.size), distance

    def _scanned(
        self,
        firsts: Columns,
        ends: Columns,
        look: Callable[[NDArray[np.int16], int, tuple[int, int]], Any],
    ) -> Iterator[tuple[Columns, Any]]:
        """Call ``look`` on minima of LANES windows in a span, for all windows and the whole text.

        Windows of similar length are grouped.
        """
        order = np.argsort(ends - firsts, kind="stable")
        groups = [order[at : at + LANES] for at in range(0, order.size, LANES)]
        spans = self._spans(len(groups), int((ends - firsts).max()))

        def task(group: Columns, span: tuple[int, int]) -> Any:
            lowest = minima(self.codes, self.alpha.codes, firsts[group], ends[group], self.k, span)
            return look(lowest, group.size, span)

        pairs = [(group, span) for group in groups for span in spans]
        found = run_all([partial(task, group, span) for group, span in pairs], self.threads)
        return zip((group for group, _ in pairs), found, strict=True)

    def _spans(self, groups: int, longest: int) -> list[tuple[int, int]]:
        """Split the text into spans: enough for the threads, but long beside their overlaps."""
        size, threads = self.codes.size, self.threads
        wanted = max(-(-size // SEGMENT), -(-2 * threads // groups) if groups < 4 * threads else 1)
        most = max(1, size // (8 * (longest + self.k)))
        return split_range(0, size, min(wanted, most), align=TILE)

    def reaches(self, starts: Columns, floors: Columns, ends: Columns, near: BlockHits) -> Columns:
        """The reaches of starts by windows alpha[:ends] near hits; see ``hook.reach_near``."""
        out = np.empty(starts.size, dtype=np.int64)
        columns = (starts, floors, ends, near.begin, near.end, near.slack)
        parts = 8 * self.threads if out.size > 64 else self.threads
        parts = max(parts, int((near.end - near.begin).sum()) >> 28)
        tasks: list[Callable[[], None]] = [
            partial(
                reach_all, self.alpha.codes, self._bits, self.alpha.ends, self.codes, self.k,
                *(column[first:last] for column in columns), out[first:last],
            )
            for first, last in split_range(0, out.size, parts)
        ]  # fmt: skip
        run_all(tasks, self.threads)
        return out

    def raise_everywhere(self, reach: Columns) -> None:
        """Search the whole text for every start: the plain bit-parallel solution (``hook-row``)."""
        starts = np.flatnonzero(reach < self.alpha.ends)
        for block in range(0, starts.size, 1024):
            r = starts[block : block + 1024]
            r = r[reach[r] < self.alpha.ends[r]]
            zeros = np.zeros(r.size, dtype=np.int64)
            text = BlockHits(zeros, zeros, zeros + self.codes.size, zeros + self.k)
            reach[r] = self.reaches(r, reach[r], r, text)
            self.alpha.raise_later(reach)
