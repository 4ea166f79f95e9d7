"""The k-difference primer problem (primer paper): the shortest substrings of alpha that beta lacks.

For each start r in a record of alpha: the shortest alpha[r:r+c+1] with at least k differences
(insertions, deletions, substitutions) from every substring of beta, where c is the length of the
longest prefix of alpha[r:] within k - 1 differences of some substring. A gap code costs a
difference; substrings do not span records.

    conventional, alternative      the paper's sequential solutions, optimizations 1 and 2
    conventional-coarse, ...       over cores (section 3); the first two also on CUDA (section 4)
    hook-row                       one bit-parallel pass over beta for each start
    windows                        one pass per window shared by several starts
    seeds                          the default: windows found through their pieces where that is
                                   cheaper (small k, large beta), else by ``windows``

All methods return the same rows.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import CardUse, Choice, Device, SearchLane, choose
from streamer.batch.primer.problem import CHUNK_SYMBOLS, Alpha, Columns, chunks, joined
from streamer.batch.records import Codes, Letters, as_records
from streamer.errors import check_choice
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import each_task, in_lanes, split_range, usable_cores
from trie.strands import PRIMER_STRANDS

METHODS: dict[str, tuple[Device, ...]] = {
    "conventional": ("cpu", "cuda"),
    "alternative": ("cpu", "cuda"),
    "conventional-coarse": ("cpu",),
    "alternative-coarse": ("cpu",),
    "alternative-fine": ("cpu",),
    "alternative-coarse-fine": ("cpu",),
    "hook-row": ("cpu", "cuda"),
    "windows": ("cpu", "cuda"),
    "seeds": ("cpu", "cuda"),
}
"""The devices that have each method."""

DEFAULT = "seeds"
LEAST_STARTS = 1 << 10  # starts of alpha worth another GPU

Improve = Callable[[list[Codes], Columns], None]


@interrupts_as_such()
def find(
    alpha: Letters | Sequence[Letters], beta: Letters | Sequence[Letters], k: int, *,
    strands: str = "forward", method: str | None = None, device: str = "auto",
    threads: int | None = None, gpus: int = 0,
) -> NDArray[np.void]:  # fmt: skip
    """Find the shortest substrings of alpha with at least k differences from any in beta.

    ``alpha`` and ``beta`` are letters (bytes, str, uint8 array) or sequences of them; each record
    of alpha is solved against all of beta, with ``strands="both"`` also against its reverse
    complement. ``method`` and ``device`` as in METHODS and ``--device``; ``threads``: None or 0
    means every core. ``gpus``: the most GPUs to use, 0 for all.

    Returns a structured array (problem.FIELDS): alpha int32, start, end, length int64, in order.
    Raises UsageError for an invalid option or a k outside 1..1000 (a k above the length of every
    record is valid and gives no rows), InvalidBaseError for a byte that is not a base.

    >>> from streamer.batch import primer
    >>> alpha = b"ACTG"
    >>> for row in primer.find(alpha, b"AGCAAG", 2):
    ...     print(row["start"], alpha[row["start"] : row["end"]].decode())
    0 ACT
    1 CTG
    """
    k = operator.index(k)  # accepts NumPy integers
    check_choice("strands", strands, PRIMER_STRANDS)
    choice = choose(METHODS, DEFAULT, method, device, gpus=gpus)
    records = Alpha.of([record.codes for record in as_records(alpha)])
    beta_codes = (record.codes for record in as_records(beta))
    return records.rows(reaches(records, beta_codes, k, choice, strands=strands, threads=threads))


def reaches(
    alpha: Alpha, beta: Iterable[Codes], k: int, choice: Choice, *, strands: str = "forward",
    threads: int | None = None,
) -> Columns:  # fmt: skip
    """Return the final reaches (``problem``) for records of beta that come one by one.

    Memory holds one record, and a few chunks of CHUNK_SYMBOLS for each GPU. Several GPUs divide the
    starts of alpha among them for the first chunk, which yields good bounds, and then take chunks
    in turn, if there is one for each.
    """
    k = alpha.solvable(k)
    reach = alpha.first_reaches(k)
    if k > alpha.longest():
        # no solution: beta is read only for its faults
        deque(beta, maxlen=0)
        return reach
    uses = choice.card_uses(max(1, alpha.codes.size // LEAST_STARTS))
    problem = Problem(alpha, k, strands == "both", choice, threads or usable_cores(), reach)
    texts = chunks(beta, alpha.longest() + k, both=False, limit=CHUNK_SYMBOLS)
    seen = 0
    if len(uses) > 1:
        ahead = list(islice(texts, 1 + len(uses)))
        shared = 1 if len(ahead) > len(uses) else len(ahead)
        bounds = split_range(0, alpha.codes.size, len(uses))
        parts = [PrimerLane(problem, *bound, use) for bound, use in zip(bounds, uses, strict=True)]
        _improve(parts, [text for text in ahead[:shared] for _ in parts])
        del parts  # frees memory of the GPUs
        seen = sum(len(piece) for text in ahead[:shared] for piece in text)
        texts = chain(ahead[shared:], texts)
        del ahead
    _improve([PrimerLane(problem, 0, alpha.codes.size, use, seen) for use in uses], texts)
    return reach


def _improve(lanes: list[PrimerLane], texts: Iterable[list[Codes]]) -> None:
    """Raise the reaches by the texts, which the lanes take in turn."""
    deque(in_lanes(lanes, texts, each_task(PrimerLane.improve)), maxlen=0)


@dataclass(frozen=True, slots=True)
class Problem:
    """The state that the lanes of a search share. reach: the best reaches so far (``problem``).

    both: the reverse complements of beta count too.
    """

    alpha: Alpha
    k: int
    both: bool
    choice: Choice
    threads: int
    reach: Columns
    lock: threading.Lock = field(default_factory=threading.Lock)


class PrimerLane(SearchLane[Any]):
    """The starts first..stop of alpha, and the search that raises their reaches on one device.

    seen: symbols of beta that all starts have been compared with before.
    """

    def __init__(
        self, problem: Problem, first: int, stop: int, use: CardUse, seen: int = 0
    ) -> None:
        whole = stop - first == problem.alpha.codes.size
        self._alpha = problem.alpha if whole else problem.alpha.part(first, stop)
        # starts of other lanes count as settled
        self._reach = self._alpha.ends.copy()
        self._reach[: stop - first] = 0
        self._problem = problem
        self._first = first
        self._stop = stop
        self._seen = seen
        super().__init__(problem.choice, use)

    def improve(self, pieces: list[Codes]) -> Iterator[None]:
        """Raise the reaches by a chunk of beta; yields nothing."""
        self._exchange()
        before = self._reach.copy()

        def work() -> None:
            if self.choice.device == "cuda":
                # the GPU makes the reverse complements itself
                self.engine.improve(pieces, self._reach)
                return
            # a GPU that has failed may have left wrong reaches
            self._reach[:] = before
            overlap = self._alpha.longest() + self._problem.k
            both = self._problem.both
            for part in chunks(pieces, overlap, both=both, limit=CHUNK_SYMBOLS):
                self.engine(part, self._reach)

        self.run(work)
        self._exchange()
        yield from ()

    def _exchange(self) -> None:
        """Make the reaches of this lane and those of all lanes the larger of both."""
        own = self._reach[: self._stop - self._first]
        here = self._problem.reach[self._first : self._stop]
        with self._problem.lock:
            np.maximum(here, own + self._first, out=here)
            np.subtract(here, self._first, out=own)

    def make(self, choice: Choice) -> Any:
        """Create the search: a function on the CPU, an object on the GPU."""
        problem = self._problem
        if choice.device == "cpu":
            return on_cpu(self._alpha, problem.k, choice.method, problem.threads)
        from streamer.batch.primer import on_gpu

        return on_gpu.search(
            self._alpha, problem.k, choice.method, both=problem.both, seen=self._seen
        )

    def smaller(self) -> bool:
        """Search shorter texts, if the GPU method can."""
        return bool(self.engine.smaller())


def on_cpu(alpha: Alpha, k: int, method: str, threads: int) -> Improve:
    """Return the function that raises reaches by pieces of beta with a CPU method."""
    if method in ("windows", "seeds", "hook-row"):
        return _bit_parallel(alpha, k, threads, method)
    from streamer.batch.primer import paper

    conventional, other = paper.conventional_longest_prefix, paper.alternative_longest_prefix
    solvers: dict[str, Any] = {
        "conventional": partial(paper.coarse, conventional, threads=1),
        "alternative": partial(paper.coarse, other, threads=1),
        "conventional-coarse": partial(paper.coarse, conventional, threads=threads),
        "alternative-coarse": partial(paper.coarse, other, threads=threads),
        "alternative-fine": partial(paper.fine, threads=threads),
        "alternative-coarse-fine": partial(paper.coarse_fine, threads=threads),
    }
    solver = solvers[method]
    return lambda pieces, reach: solver(alpha, pieces, k, reach=reach)


def _bit_parallel(alpha: Alpha, k: int, threads: int, method: str) -> Improve:
    from streamer.batch.primer import seeds, shared_windows
    from streamer.batch.primer.cpu_text import CpuText

    state = seeds.Seen()

    def improve(pieces: list[Codes], reach: Columns) -> None:
        text = CpuText(alpha, joined(pieces), k, threads)
        if method == "seeds":
            seeds.improve(text, reach, state)
        elif method == "windows":
            shared_windows.improve(text, reach, state.plan)
        else:
            text.raise_everywhere(reach)

    return improve
