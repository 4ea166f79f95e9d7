"""Tasks of ``primer``: some starts of alpha against a chunk of beta; the largest reach wins.

Reaches only grow with more texts of beta, so chunks can be searched in any order. A task gets the
symbols of alpha after its starts that their prefixes are likely to need. If a prefix reaches the
end of those, the task gets more: matching prefixes are short except where alpha and beta are
similar.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from streamer.batch.choice import Choice
from streamer.batch.primer import reaches
from streamer.batch.primer.beta_pieces import CHUNK_SYMBOLS, chunks
from streamer.batch.primer.problem import Alpha, Columns
from streamer.batch.records import Codes
from streamer.cluster.cluster_tasks import ClusterTasks, Work
from streamer.cluster.connecting import Cluster

TASK_SECONDS = 4.0
PAIR_SECONDS = 6e-12  # of a thread, per symbol of alpha, symbol of beta and difference
LEAST_STARTS = 1 << 10
BEHIND = 1 << 12  # initial symbols of alpha after the starts of a task
GROWTH = 8  # growth factor of these where prefixes continue


@dataclass(frozen=True)
class _Primer:
    codes: Codes
    k: int
    choice: Choice
    strands: str
    behind: int


Starts = tuple[int, int, int]
"""First start, one past the last, and the end of their record, in the codes of alpha."""


def _run(shared: _Primer, part: tuple[Starts, list[Codes]]) -> Columns:
    """Return the reaches of some starts for a chunk of beta: int64."""
    (first, stop, end), beta = part
    behind = shared.behind
    while True:
        until = min(end, stop + behind)
        alpha = Alpha.of([shared.codes[first:until]])
        found = reaches(
            alpha, beta, shared.k, shared.choice, strands=shared.strands, threads=1
        )[: stop - first]  # fmt: skip
        # reaches increase with the starts
        if until == end or not found.size or found[-1] < until - first:
            return found + first
        behind *= GROWTH


def _kept(shared: _Primer) -> _Primer:
    return shared


PRIMER = Work(_kept, _run)


def starts_of(alpha: Alpha, k: int, symbols: int) -> list[Starts]:
    """Split all starts into parts within a record, each a task with so many symbols of beta."""
    size = max(LEAST_STARTS, int(TASK_SECONDS / (PAIR_SECONDS * k * max(symbols, 1))))
    return [
        (first, min(first + size, end), end)
        for begin, end in alpha.bounds()
        for first in range(begin, end, size)
    ]


def reaches_there(
    cluster: Cluster, alpha: Alpha, beta: Iterable[Codes], k: int, *, choice: Choice, strands: str
) -> Columns:
    """Like ``streamer.batch.primer.reaches``, on a cluster."""
    k = alpha.solvable(k)
    reach = alpha.first_reaches(k)
    if k > alpha.longest():
        deque(beta, maxlen=0)
        return reach
    shared = _Primer(alpha.codes, k, choice, strands, BEHIND)
    tasks = ClusterTasks(cluster, PRIMER, shared, gpu=choice.device == "cuda")
    given: list[Starts] = []

    def parts() -> Iterator[tuple[Starts, list[Codes]]]:
        for chunk in chunks(beta, alpha.longest() + k, both=False, limit=CHUNK_SYMBOLS):
            symbols = sum(piece.size for piece in chunk)
            for starts in starts_of(alpha, k, symbols):
                given.append(starts)
                yield starts, chunk

    for number, found in enumerate(tasks.in_order(parts())):
        first, stop, _ = given[number]
        np.maximum(reach[first:stop], found, out=reach[first:stop])
    return reach
