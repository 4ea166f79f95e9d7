"""The primer problem: the paper's tables repeated, beside the fast methods.

Sequences are random; the paper's are homologous genes, but the work of its methods hardly depends
on the symbols. If a method would take hours, ``starts`` starts are measured, and the time for all
is extrapolated by |alpha| / starts. Ratios are to the paper's best sequential method (alternative,
optimization 2) in the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Codes, random_codes
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_and_result, least_seconds
from streamer.batch.choice import Choice, Device
from streamer.batch.primer import paper as alternative
from streamer.batch.primer import paper as conventional
from streamer.batch.primer import paper as cores
from streamer.batch.primer import reaches
from streamer.batch.primer.problem import Alpha
from trie.cpu.threads import usable_cores


class Size(NamedTuple):
    """Lengths of alpha and beta, and k."""

    m: int
    n: int
    k: int

    def sequences(self, share: int = 1) -> tuple[Codes, Codes]:
        """Random alpha, and beta of 1 / ``share`` of its length."""
        return random_codes(self.m, 1), random_codes(self.n // share, 2)


SIZE = Size(43_606, 241_494, 100)
TABLE_5 = Size(107_280, 1_088_386, 100)
TABLE_4 = Size(107_280, 2_220_391, 256)
SMALL_K = tuple(Size(29_903, 8_000_000, k) for k in (1, 2, 3))
SMALL_K_ON_GPU = tuple(Size(29_903, 9_312_488, k) for k in (4, 5, 6))
HOST = Size(29_903, 3_100_000_000, 6)  # a virus and a random host genome

PAPER_SECONDS = {
    "conventional": 12_216.1,
    "alternative": 8_230.9,
    "conventional-coarse": 2_067.2,
    "alternative-coarse": 1_481.1,
    "alternative-fine": 1_544.1,
    "alternative-coarse-fine": 2_114.8,
}
"""Tables 1 and 2, with optimizations 1, 2 and 3; Intel Xeon, 4 cores, 8 threads."""

PAPER_COMPARISONS = {"conventional": 243e10, "alternative": 137e10}
PAPER_BEST = {TABLE_5: 118.5e8, SIZE: 118.0e8}  # comparisons a second of Table 5

PAPER_ON_GPU = (
    ("conventional", 3, "conventional 1+3+4+5", 98.5e8, 274e10),
    ("alternative", 0, "alternative 3+4", 76.0e8, None),
    ("alternative", 3, "alternative 3+4+5+6", 118.0e8, 137e10),
)
"""Table 3: method, prefetch factor, name, comparisons a second, comparisons; Quadro M4000."""

PAPER_MISSES = {1: (8_193.3, 0.49, 0.001), 2: (7_453.7, 0.015, 0.0), 3: (7_401.4, 0.0, 0.0)}
"""Table 4: seconds, and the shares of alpha and beta that were missed, by factor c."""


def tables(
    device: Device, starts: int = 0, size: tuple[int, int, int] | None = None
) -> list[Sheet]:
    """The paper's tables on ``starts`` starts (0: by default), at its sizes or at ``size``."""
    given = Size(*size) if size else None
    at, large = given or SIZE, given or TABLE_4
    sizes = (given,) if given else (SIZE, TABLE_5, TABLE_4)
    growing_ = Sheet("Sizes (Fig. 10, Table 5)", growing, device, sizes, section="growing")
    if device == "cuda":
        number = starts or 1056
        share = 1 if given else 16  # 1 / share of beta is used if a method would take hours
        small = (given,) if given else SMALL_K_ON_GPU
        small_k = small, device, ("windows", "seeds", "hook-row"), "both"
        some = large, number, share
        return [
            Sheet("Methods (Table 3, Fig. 7)", on_gpu, at, number, section="methods"),
            Sheet("Speculative prefetch (Table 4)", prefetch, *some, section="prefetch"),
            Sheet("Threads a block (Fig. 9)", block_sizes, *some, section="blocks"),
            Sheet("Filter for small k, both strands", filtered, *small_k, section="filter"),
            Sheet("A host genome, both strands", host_genome, given or HOST, section="filter"),
            growing_,
        ]
    number = starts or 16
    return [
        Sheet("Methods (Tables 1, 2)", on_cores, at, number, section="methods"),
        Sheet("By threads (Fig. 5)", scaling, at, number, section="scaling"),
        Sheet("Filter for small k", filtered, SMALL_K, section="filter"),
        growing_,
    ]


def _sample(alpha: Codes, beta: Codes, k: int, starts: int) -> tuple[Alpha, int]:
    """A part of alpha in which about ``starts`` starts are processed before its end is reached."""
    whole = Alpha.of([alpha[: min(alpha.size, starts + 4 * k + 100)]])
    reach = reaches(whole, [beta], k, Choice("windows", "cpu"))
    length = int(reach[min(starts, reach.size) - 1])
    processed = int((reach < length).sum()) + 1
    return Alpha.of([alpha[:length]]), processed


def on_cores(size: Size, starts: int, threads: Sequence[int] | None = None) -> list[Row]:
    """Tables 1 and 2: the paper's methods on some starts, the default on all, and ratios."""
    m, _, k = size
    alpha, beta = size.sequences()
    some, number = _sample(alpha, beta, k, starts)
    whole = Alpha.of([alpha])
    all_cores = usable_cores()
    rows: list[Row] = []

    def add(method: str, used: int, over: Alpha, share: float) -> None:
        run = partial(reaches, over, [beta], k, Choice(method, "cpu"), threads=used)
        paper = PAPER_SECONDS.get(method)
        rows.append(
            {
                "method": method, "threads": used,
                "seconds for all": least_seconds(run, 1, warm=False) * share,
                "comparisons": _comparisons(method, some, beta, k, share) if paper else None,
                "paper's seconds": paper, "paper's comparisons": PAPER_COMPARISONS.get(method),
                "paper's x alternative": PAPER_SECONDS["alternative"] / paper if paper else None,
            }
        )  # fmt: skip

    for method in PAPER_SECONDS:
        used = all_cores if "-" in method else 1
        few = Alpha.of([alpha[:200]])
        reaches(few, [beta[:500]], min(k, 20), Choice(method, "cpu"), threads=used)  # compiles
        add(method, used, some, m / number)
    for used in threads or sorted({1, all_cores}):
        add("hook-row", used, some, m / number)
    for used in threads or sorted({1, all_cores}):
        add("windows", used, whole, 1.0)
    return _against_alternative(rows, "alternative")


def _against_alternative(rows: list[Row], name: str) -> list[Row]:
    base = next(row["seconds for all"] for row in rows if row["method"] == name)
    return [row | {"x alternative": base / row["seconds for all"]} for row in rows]


def _comparisons(method: str, some: Alpha, beta: Codes, k: int, share: float) -> float:
    """Symbols compared by the methods that Table 1 counts; nan for the others."""
    solvers = {
        "conventional": conventional.conventional_longest_prefix,
        "alternative": alternative.alternative_longest_prefix,
    }
    if method not in solvers:
        return float("nan")
    counts = np.zeros(1, dtype=np.int64)
    cores.coarse(solvers[method], some, [beta], k, some.first_reaches(k), 1, counts)
    return share * float(counts[0])


def scaling(size: Size, starts: int, threads: Sequence[int] | None = None) -> list[Row]:
    """Fig. 5: the paper's best method and the default, by number of threads."""
    alpha, beta = size.sequences()
    some, number = _sample(alpha, beta, size.k, starts)
    methods = {
        "alternative-coarse": (some, size.m / number),
        "windows": (Alpha.of([alpha]), 1.0),
    }
    rows = []
    for used in threads or sorted({1, min(2, usable_cores()), usable_cores()}):
        row: Row = {"threads": used}
        for method, (over, share) in methods.items():
            run = partial(reaches, over, [beta], size.k, Choice(method, "cpu"), threads=used)
            row[f"{method}, s"] = share * least_seconds(run, 1, warm=False)
        rows.append(row)
    for row in rows:
        for method in methods:
            row[f"{method}, speedup"] = rows[0][f"{method}, s"] / row[f"{method}, s"]
    return rows


def filtered(
    sizes: Sequence[Size],
    device: Device = "cpu",
    methods: Sequence[str] = ("windows", "seeds"),
    strands: str = "forward",
) -> Iterator[Row]:
    """The lossless filter (seeds) against the scan (windows) for small k, one thread."""
    for size in sizes:
        alpha, beta = size.sequences()
        whole = Alpha.of([alpha])
        row: Row = {"alpha": size.m, "beta": size.n, "k": size.k}
        found = []
        for method in methods:
            run = partial(
                reaches, whole, [beta], size.k, Choice(method, device), threads=1, strands=strands
            )
            # on a GPU the first run compiles
            row[f"{method}, s"], reach = least_and_result(run, 1, warm=device == "cuda")
            found.append(reach)
        row["equal"] = str(all(np.array_equal(found[0], one) for one in found))
        row["ratio"] = row["windows, s"] / row["seeds, s"]
        yield row


def host_genome(size: Size) -> Iterator[Row]:
    """A virus against a host genome in 24 records, in host memory, both strands."""
    alpha = Alpha.of([random_codes(size.m, 1)])
    beta = [random_codes(size.n // 24, 100 + record) for record in range(24)]
    choice = Choice("seeds", "cuda")
    run = partial(reaches, alpha, beta, size.k, choice, strands="both")
    for number in ("first", "second"):
        seconds = least_seconds(run, 1, warm=False)
        yield {"alpha": size.m, "beta": size.n, "k": size.k, "run": number, "seconds": seconds}


def _starts(size: Size, starts: int, margin: int) -> NDArray[np.int64]:
    return np.linspace(0, size.m - margin, starts).astype(np.int64)


def on_gpu(size: Size, starts: int) -> list[Row]:
    """Table 3 and Fig. 7 on a GPU: the paper's kernels on some starts, the default on all."""
    from gpu.primer.paper import longest_prefixes

    alpha, beta = size.sequences()
    some = _starts(size, starts, 4 * size.k)
    rows: list[Row] = []
    for method, factor, name, paper_rate, paper_comparisons in PAPER_ON_GPU:
        run = partial(longest_prefixes, method, alpha, beta, size.k, some, factor=factor)
        seconds, (_, counts) = least_and_result(run, 2)
        compared = int(counts[0])
        rows.append(
            {
                "method": name, "seconds for all": seconds * size.m / starts,
                "comparisons": compared * size.m / starts, "comparisons/s": compared / seconds,
                "paper's comparisons": paper_comparisons, "paper's comparisons/s": paper_rate,
            }
        )  # fmt: skip
    whole = Alpha.of([alpha])
    default = partial(reaches, whole, [beta], size.k, Choice("windows", "cuda"))
    windows = dict.fromkeys(rows[0]) | {"method": "windows"}
    rows.append(windows | {"seconds for all": least_seconds(default, 3)})
    return _against_alternative(rows, PAPER_ON_GPU[-1][2])


def prefetch(size: Size, starts: int, share: int) -> Iterator[Row]:
    """Table 4: miss rates of the speculative prefetch by its factor c, 256 threads a block.

    Some starts along 1 / ``share`` of beta; the seconds are extrapolated to all of both.
    """
    from gpu.primer.paper import longest_prefixes, prefetched

    alpha, beta = size.sequences(share)
    some = _starts(size, starts, 4 * size.k)
    for factor, (paper, paper_alpha, paper_beta) in PAPER_MISSES.items():
        run = partial(longest_prefixes, "alternative", alpha, beta, size.k, some, factor=factor)
        seconds = least_seconds(run, 1)
        _, counts = run(counted=True)
        ahead = prefetched(factor, size.k, 256)
        yield {
            "c": factor, "seconds for all": seconds * share * size.m / starts,
            "prefetch alpha": ahead, "prefetch beta": ahead + 256,
            "alpha missed": counts[2] / counts[1], "beta missed": counts[4] / counts[3],
            "paper's seconds": paper, "paper's alpha missed": paper_alpha,
            "paper's beta missed": paper_beta,
        }  # fmt: skip


def block_sizes(
    size: Size, starts: int, share: int, ks: Sequence[int] = (50, 100)
) -> Iterator[Row]:
    """Fig. 9: threads a block of the alternative solution; ``share`` as in ``prefetch``."""
    from gpu.primer.paper import longest_prefixes

    alpha, beta = size.sequences(share)
    some = _starts(size, starts, 600)
    for threads in (64, 128, 256, 512):
        row: Row = {"threads a block": threads}
        for k in ks:
            run = partial(longest_prefixes, "alternative", alpha, beta, k, some, threads=threads)
            row[f"k = {k}, s for all"] = least_seconds(run, 1) * share * size.m / starts
        yield row


def growing(device: Device, sizes: Sequence[Size]) -> Iterator[Row]:
    """Fig. 10 and Table 5: the default at the paper's sizes, and the paper's comparison counts."""
    for size in sizes:
        alpha, beta = size.sequences()
        run = partial(reaches, Alpha.of([alpha]), [beta], size.k, Choice("windows", device))
        seconds = least_seconds(run, 1, warm=device == "cuda")
        m, n, k = size
        # for each symbol of beta, column e of L has a cell and a third of a comparison more
        yield {
            "alpha": m, "beta": n, "k": k, "seconds": seconds,
            "comparisons/s, if as alternative": 4 / 3 * m * n * k / seconds,
            "paper's best comparisons/s": PAPER_BEST.get(size),
        }  # fmt: skip
