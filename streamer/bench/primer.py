"""Measurements of the primer problem: the paper's tables again, beside the fast methods.

Every function returns plain rows and prints nothing. Sequences are random; the paper's are
homologous genes, but its methods' work hardly depends on the symbols. Where a method would take
hours, ``starts`` starts are measured and the time for all is theirs times |alpha| / starts. Ratios
are to the best sequential method of the paper (alternative, optimization 2) in the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from streamer.batch.choice import Choice
from streamer.batch.primer import reaches
from streamer.batch.primer.paper import alternative, conventional, cores
from streamer.batch.primer.problem import Alpha
from streamer.batch.records import Codes
from streamer.bench.timing import least_seconds
from trie.cpu.threads import usable_cores

Row = dict[str, Any]

SIZE = (43_606, 241_494, 100)
TABLE_5 = (107_280, 1_088_386, 100)
TABLE_4 = (107_280, 2_220_391, 256)

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

PAPER_CARD = {"conventional": (98.5e8, 274e10), "alternative": (118.0e8, 137e10)}
"""Table 3: comparisons a second, comparisons; Quadro M4000."""


def sequences(m: int, n: int, seed: int = 1) -> tuple[Codes, Codes]:
    """Random alpha and beta."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, m, dtype=np.uint8), rng.integers(0, 4, n, dtype=np.uint8)


def _sample(alpha: Codes, beta: Codes, k: int, starts: int) -> tuple[Alpha, int]:
    """So much of alpha that about ``starts`` starts are looked at before its end is reached."""
    whole = Alpha.of([alpha[: min(alpha.size, starts + 4 * k + 100)]])
    reach = reaches(whole, [beta], k, Choice("windows", "cpu"))
    length = int(reach[min(starts, reach.size) - 1])
    looked_at = int((reach < length).sum()) + 1
    return Alpha.of([alpha[:length]]), looked_at


def on_cores(
    size: tuple[int, int, int] = SIZE,
    starts: int = 16,
    threads: Sequence[int] | None = None,
    methods: Sequence[str] = tuple(PAPER_SECONDS),
) -> list[Row]:
    """Tables 1 and 2: the paper's methods on some starts, the default on all, and ratios."""
    m, n, k = size
    alpha, beta = sequences(m, n)
    some, number = _sample(alpha, beta, k, starts)
    all_cores = usable_cores()
    rows: list[Row] = []
    best = PAPER_SECONDS["alternative"]
    for method in methods:
        used = all_cores if "-" in method else 1
        whole = Alpha.of([alpha[:200]])
        reaches(whole, [beta[:500]], min(k, 20), Choice(method, "cpu"), threads=used)
        run = partial(reaches, some, [beta], k, Choice(method, "cpu"), threads=used)
        seconds = least_seconds(run, 1, warm=False)
        rows.append(
            {
                "method": method,
                "threads": used,
                "seconds for all": seconds * m / number,
                "comparisons": _comparisons(method, some, beta, k) * m / number,
                "paper's seconds": PAPER_SECONDS[method],
                "paper's comparisons": PAPER_COMPARISONS.get(method),
                "paper's x alternative": best / PAPER_SECONDS[method],
            }
        )
    everything = Alpha.of([alpha])
    for method in ("hook-row", "windows"):
        for used in threads or sorted({1, all_cores}):
            over, share = (some, m / number) if method == "hook-row" else (everything, 1.0)
            run = partial(reaches, over, [beta], k, Choice(method, "cpu"), threads=used)
            seconds = least_seconds(run, 1, warm=False)
            rows.append(
                {"method": method, "threads": used, "seconds for all": seconds * share}
                | dict.fromkeys(
                    ("comparisons", "paper's seconds", "paper's comparisons",
                     "paper's x alternative")
                )
            )  # fmt: skip
    sequential = next(row["seconds for all"] for row in rows if row["method"] == "alternative")
    for row in rows:
        row["x alternative"] = sequential / row["seconds for all"]
    return rows


def _comparisons(method: str, some: Alpha, beta: Codes, k: int) -> float:
    """Symbols compared, of the methods that Table 1 counts; nan for the others."""
    solvers = {
        "conventional": conventional.longest_prefix,
        "alternative": alternative.longest_prefix,
    }
    if method not in solvers:
        return float("nan")
    counts = np.zeros(1, dtype=np.int64)
    cores.coarse(solvers[method], some, [beta], k, some.first_reaches(k), 1, counts)
    return float(counts[0])


def scaling(
    size: tuple[int, int, int] = SIZE, starts: int = 16, threads: Sequence[int] | None = None
) -> list[Row]:
    """Fig. 5: the paper's best method over cores, and the default, by threads."""
    m, n, k = size
    alpha, beta = sequences(m, n)
    some, number = _sample(alpha, beta, k, starts)
    rows = []
    for used in threads or sorted({1, 2, usable_cores()} & set(range(1, usable_cores() + 1))):
        row: Row = {"threads": used}
        for method, over, share in (
            ("alternative-coarse", some, m / number),
            ("windows", Alpha.of([alpha]), 1.0),
        ):
            run = partial(reaches, over, [beta], k, Choice(method, "cpu"), threads=used)
            row[f"{method}, s"] = share * least_seconds(run, 1, warm=False)
        rows.append(row)
    for row in rows:
        for method in ("alternative-coarse", "windows"):
            row[f"{method}, speedup"] = rows[0][f"{method}, s"] / row[f"{method}, s"]
    return rows


def filtered(
    sizes: Sequence[tuple[int, int, int]] = (
        (29_903, 8_000_000, 1), (29_903, 8_000_000, 2), (29_903, 8_000_000, 3),
    ),
) -> list[Row]:  # fmt: skip
    """The lossless filter against the default: small k, one thread, forward strand."""
    rows = []
    for m, n, k in sizes:
        alpha, beta = sequences(m, n)
        whole = Alpha.of([alpha])
        row: Row = {"alpha": m, "beta": n, "k": k}
        found = []
        for method in ("windows", "seeds"):
            begin = time.perf_counter()
            found.append(reaches(whole, [beta], k, Choice(method, "cpu"), threads=1))
            row[f"{method}, s"] = time.perf_counter() - begin
        row["equal"] = str(bool((found[0] == found[1]).all()))
        row["ratio"] = row["windows, s"] / row["seeds, s"]
        rows.append(row)
    return rows


def on_card(size: tuple[int, int, int] = SIZE, starts: int = 1056) -> list[Row]:
    """Table 3 and Fig. 7 on a CUDA device: the paper's kernels on some starts."""
    from gpu.primer.paper import longest_prefixes

    m, n, k = size
    alpha, beta = sequences(m, n)
    some = np.linspace(0, m - 4 * k, starts).astype(np.int64)
    rows: list[Row] = []
    for method, factor, name in (
        ("conventional", 3, "conventional 1+3+4+5"),
        ("alternative", 0, "alternative 3+4"),
        ("alternative", 3, "alternative 3+4+5+6"),
    ):
        run = partial(longest_prefixes, method, alpha, beta, k, some, factor=factor)
        _, counts = run()
        seconds = least_seconds(run, 2, warm=False)
        rate, paper = int(counts[0]) / seconds, PAPER_CARD[method]
        rows.append(
            {
                "method": name,
                "seconds for all": seconds * m / starts,
                "comparisons": int(counts[0]) * m / starts,
                "comparisons/s": rate,
                "paper's comparisons": paper[1] if factor else None,
                "paper's comparisons/s": paper[0] if factor else 76.0e8,
            }
        )
    whole = Alpha.of([alpha])
    default = partial(reaches, whole, [beta], k, Choice("windows", "cuda"))
    default()
    rows.append(
        {"method": "windows", "seconds for all": least_seconds(default, 3, warm=False)}
        | dict.fromkeys(
            ("comparisons", "comparisons/s", "paper's comparisons", "paper's comparisons/s")
        )
    )
    slowest = rows[-2]["seconds for all"]
    for row in rows:
        row["x alternative"] = slowest / row["seconds for all"]
    return rows


PAPER_MISSES = {1: (8_193.3, 0.49, 0.001), 2: (7_453.7, 0.015, 0.0), 3: (7_401.4, 0.0, 0.0)}


def prefetch(
    size: tuple[int, int, int] = TABLE_4, starts: int = 1056, share: int = 16
) -> list[Row]:
    """Table 4: miss rates of the speculative prefetch by its factor c, 256 threads a block.

    Some starts along one ``share``-th of beta; the seconds are for all of both.
    """
    from gpu.primer.paper import longest_prefixes
    from gpu.primer.paper.alternative import prefetched

    m, n, k = size
    alpha, beta = sequences(m, n // share)
    some = np.linspace(0, m - 4 * k, starts).astype(np.int64)
    rows = []
    for factor in (1, 2, 3):
        run = partial(longest_prefixes, "alternative", alpha, beta, k, some, factor=factor)
        run()
        seconds = least_seconds(run, 1, warm=False)
        _, counts = longest_prefixes(
            "alternative", alpha, beta, k, some, factor=factor, counted=True
        )
        ahead = prefetched(factor, k, 256)
        rows.append(
            {
                "c": factor,
                "seconds for all": seconds * share * m / starts,
                "prefetch alpha": ahead,
                "prefetch beta": ahead + 256,
                "alpha missed": counts[2] / counts[1],
                "beta missed": counts[4] / counts[3],
                "paper's seconds": PAPER_MISSES[factor][0],
                "paper's alpha missed": PAPER_MISSES[factor][1],
                "paper's beta missed": PAPER_MISSES[factor][2],
            }
        )
    return rows


def block_sizes(
    size: tuple[int, int, int] = TABLE_4, starts: int = 1056, ks: Sequence[int] = (50, 100),
    share: int = 16,
) -> list[Row]:  # fmt: skip
    """Fig. 9: threads a block of the alternative solution; ``share`` as in ``prefetch``."""
    from gpu.primer.paper import longest_prefixes

    m, n, _ = size
    alpha, beta = sequences(m, n // share)
    some = np.linspace(0, m - 600, starts).astype(np.int64)
    rows = []
    for threads in (64, 128, 256, 512):
        row: Row = {"threads a block": threads}
        for k in ks:
            run = partial(longest_prefixes, "alternative", alpha, beta, k, some, threads=threads)
            run()
            row[f"k = {k}, s for all"] = least_seconds(run, 1, warm=False) * share * m / starts
        rows.append(row)
    return rows


def growing(
    device: str, sizes: Sequence[tuple[int, int, int]] = (SIZE, TABLE_5, TABLE_4)
) -> list[Row]:
    """Fig. 10 and Table 5: the default on the paper's sizes, and what its methods would compare."""
    rows = []
    paper = {TABLE_5: 118.5e8, TABLE_4: None, SIZE: 118.0e8}
    for m, n, k in sizes:
        alpha, beta = sequences(m, n)
        whole = Alpha.of([alpha])
        choice = Choice("windows", "cuda" if device == "cuda" else "cpu")
        if device == "cuda":
            reaches(whole, [beta], k, choice)
        seconds = least_seconds(partial(reaches, whole, [beta], k, choice), 1, warm=False)
        # column e of L has a cell, and a third of a comparison more, for each symbol of beta
        rows.append(
            {
                "alpha": m,
                "beta": n,
                "k": k,
                "seconds": seconds,
                "comparisons/s, if as alternative": 4 / 3 * m * n * k / seconds,
                "paper's best comparisons/s": paper.get((m, n, k)),
            }
        )
    return rows
