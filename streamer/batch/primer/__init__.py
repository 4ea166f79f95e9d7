"""The k-difference primer problem (primer paper): the shortest substrings of alpha that beta lacks.

For each start r of a record of alpha: the shortest alpha[r:r+c+1] with at least k differences
(insertions, deletions, substitutions) from every substring of beta, where c is the length of the
longest prefix of alpha[r:] within k - 1 differences of some substring. A gap code costs a
difference; substrings do not cross the ends of records.

    conventional, alternative      the paper's sequential solutions, optimizations 1 and 2
    conventional-coarse, ...       over cores (section 3); the first two also on CUDA (section 4)
    hook-row                       one bit-parallel pass over beta for each start
    windows                        a pass for the window that several starts share
    seeds                          the default: windows found through their pieces where that is
                                   cheaper (small k, large beta), else by ``windows``

All methods return the same rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice, Device, choose
from streamer.batch.primer.problem import MAX_K, Alpha, Columns
from streamer.batch.primer.text import CHUNK_SYMBOLS, chunks, joined
from streamer.batch.records import Codes, Letters, as_records
from streamer.errors import UsageError
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import usable_cores
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

DEFAULTS: dict[Device, str] = {"cpu": "seeds", "cuda": "seeds"}

Improve = Callable[[list[Codes], Columns], None]


@interrupts_as_such()
def find(
    alpha: Letters | Sequence[Letters], beta: Letters | Sequence[Letters], k: int, *,
    strands: str = "forward", method: str | None = None, device: str = "auto",
    threads: int | None = None,
) -> NDArray[np.void]:  # fmt: skip
    """The shortest substrings of alpha with at least k differences from every substring of beta.

    ``alpha`` and ``beta`` are letters (bytes, str, uint8 array) or sequences of them; each record
    of alpha is solved against all of beta, with ``strands="both"`` also against its reverse
    complement. ``method`` and ``device`` as METHODS and ``--device``; ``threads`` None or 0 is
    every core.

    A structured array (problem.FIELDS): alpha int32, start, end, length int64, in order. Raises
    UsageError for an option or a k out of 1..1000, InvalidBaseError for a byte that is no base.
    """
    k = operator.index(k)  # accepts NumPy integers
    check(k, strands)
    choice = choose(METHODS, DEFAULTS, method, device)
    records = Alpha.of([record.codes for record in as_records(alpha)])
    beta_codes = (record.codes for record in as_records(beta))
    return records.rows(reaches(records, beta_codes, k, choice, strands=strands, threads=threads))


def check(k: int, strands: str) -> None:
    """UsageError for what is out of range."""
    if not 1 <= k <= MAX_K:
        message = f"k is {k}, it must lie in 1..{MAX_K}"
        raise UsageError(message)
    if strands not in PRIMER_STRANDS:
        message = f"unknown strands '{strands}'; there are {', '.join(PRIMER_STRANDS)}"
        raise UsageError(message)


def reaches(
    alpha: Alpha,
    beta: Iterable[Codes],
    k: int,
    choice: Choice,
    *,
    strands: str = "forward",
    threads: int | None = None,
    chunk: int = CHUNK_SYMBOLS,
) -> Columns:
    """The final reaches (``problem``) for records of beta that come one by one.

    Memory holds one record and one chunk of ``chunk`` symbols at a time.
    """
    reach = alpha.first_reaches(k)
    both = strands == "both"
    improve = improver(alpha, k, choice, threads or usable_cores(), both=both)
    # a GPU makes the reverse complement itself
    on_host = both and choice.device == "cpu"
    for pieces in chunks(beta, alpha.longest() + k, both=on_host, limit=chunk):
        improve(pieces, reach)
    return reach


def improver(alpha: Alpha, k: int, choice: Choice, threads: int, *, both: bool) -> Improve:
    """The function that raises reaches by a chunk of beta, with the method of the choice.

    With ``both`` a GPU adds the reverse complements of a chunk; the CPU expects them in it.
    """
    if choice.device == "cuda":
        from streamer.batch.primer import on_gpu

        cpu = partial(improver, alpha, k, threads=threads, both=both)
        return on_gpu.GpuImprover(alpha, k, choice, cpu, both=both)
    if choice.method in ("windows", "seeds", "hook-row"):
        return _bit_parallel(alpha, k, threads, choice.method)
    from streamer.batch.primer.paper import alternative, conventional, cores

    solvers: dict[str, Any] = {
        "conventional": partial(cores.coarse, conventional.longest_prefix, threads=1),
        "alternative": partial(cores.coarse, alternative.longest_prefix, threads=1),
        "conventional-coarse": partial(cores.coarse, conventional.longest_prefix, threads=threads),
        "alternative-coarse": partial(cores.coarse, alternative.longest_prefix, threads=threads),
        "alternative-fine": partial(cores.fine, threads=threads),
        "alternative-coarse-fine": partial(cores.coarse_fine, threads=threads),
    }
    solver = solvers[choice.method]
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
