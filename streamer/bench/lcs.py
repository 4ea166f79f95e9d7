"""Measurements of the longest common subsequence: its methods beside rapidfuzz, the paper's figures
again.

Every function returns plain rows and prints nothing. Rates are cells of the table (m x n) a second,
by the CPU time of the thread where one thread is measured and by the clock on the wall elsewhere;
the best of several runs. The paper's full LCS computes twice the cells, this program's division 1.5
times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch import lcs
from streamer.batch.choice import Choice
from streamer.batch.lcs import solve
from streamer.batch.lcs.passes import Numbers, Passes, Processor, Splits
from streamer.batch.lcs.symbols import DNA_SYMBOLS, pair_of
from streamer.bench.timing import least_seconds

Row = dict[str, Any]
Codes = NDArray[np.uint8]

LENGTHS = (1_000, 10_000, 100_000)
SLOWEST_CELLS = 1e9
"""Cells a second of dynamic programming: larger tables are left out for it and for Listing 2."""

RAPIDFUZZ_MISSING = "rapidfuzz is not installed: pip install 'kmer-streamer[bench]'"

FIGURE_A = (5_000_000, 10_000_000, 15_000_000, 20_000_000)
"""Lengths of string A in Fig. 4 to 7; string B goes up to 10 M."""

FIGURE_B = (1_000_000, 2_000_000, 5_000_000, 10_000_000)

PAPER_SECONDS = (
    (335.10, 515.95, 1_050.03, 2_046.29),
    (647.21, 998.79, 2_047.44, 3_667.39),
    (954.44, 1_472.40, 3_039.24, 5_462.73),
    (1_262.07, 1_945.03, 4_027.68, 7_239.77),
)
"""The total of the paper's Table 1 for those lengths (GeForce GTX 580), which Fig. 4 to 7 show."""

CARD_LENGTHS = (100_000, 1_000_000, 5_000_000, 10_000_000)
CARD_METHODS = ("systolic", "block-step")
SLOW_CELLS = 1e11
"""Cells up to which the paper's kernel is run beside the default."""

_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


def random_bases(count: int, seed: int) -> Codes:
    """Letters of random bases."""
    rng = np.random.default_rng(seed)
    return _BASES[rng.integers(0, 4, count, dtype=np.uint8)]


def mutated(letters: Codes, rate: float, seed: int) -> Codes:
    """A copy with substitutions."""
    rng = np.random.default_rng(seed)
    out = letters.copy()
    wrong = rng.random(out.size) < rate
    out[wrong] = _BASES[rng.integers(0, 4, int(wrong.sum()), dtype=np.uint8)]
    return out


def lengths(sizes: Sequence[int] = LENGTHS, threads: int = 2, repeats: int = 5) -> list[Row]:
    """The length alone, random bases, n x n: every method of the CPU beside rapidfuzz's LCSseq."""
    rows = []
    for size in sizes:
        a, b = random_bases(size, 1), random_bases(size, 2)
        peer = _rapidfuzz(a, b, repeats)
        for method, devices in lcs.METHODS.items():
            if "cpu" not in devices or method == "adaptive":
                continue
            if method in ("dp", "hirschberg", "diff") and size * size > SLOWEST_CELLS:
                continue
            used = [1] + [threads] * (threads > 1 and method in ("systolic", "bit-parallel"))
            for count in used:
                clock = time.thread_time if count == 1 else time.perf_counter
                run = _length(a, b, method, count)
                seconds = least_seconds(run, repeats, clock=clock)
                rows.append(_row(size, method, count, seconds, peer))
        rows.append(_row(size, "rapidfuzz LCSseq", 1, peer, peer))
    return rows


def _length(
    a: Codes, b: Codes, method: str, threads: int, device: str = "cpu"
) -> Callable[[], object]:
    return lambda: lcs.length(a, b, method=method, device=device, threads=threads)


def _rapidfuzz(a: Codes, b: Codes, repeats: int) -> float | None:
    try:
        from rapidfuzz.distance import LCSseq
    except ImportError:
        return None
    x, y = a.tobytes(), b.tobytes()
    return least_seconds(lambda: LCSseq.similarity(x, y), repeats, clock=time.thread_time)


def _row(size: int, method: str, threads: int, seconds: float | None, peer: float | None) -> Row:
    missing = seconds is None
    return {
        "n": size,
        "method": method,
        "threads": threads,
        "seconds": seconds,
        "G cells/s": None if seconds is None else size * size / seconds / 1e9,
        "x rapidfuzz": peer / seconds if peer and seconds else None,
        "note": RAPIDFUZZ_MISSING if missing else "",
    }


def sequences(sizes: Sequence[int] = (10_000, 50_000), threads: int = 2) -> list[Row]:
    """One subsequence, random bases: every method of the CPU."""
    rows = []
    for size in sizes:
        a, b = random_bases(size, 3), random_bases(size, 4)
        for method, devices in lcs.METHODS.items():
            too_slow = method in ("dp", "hirschberg", "diff") and 2 * size * size > SLOWEST_CELLS
            if "cpu" not in devices or method == "adaptive" or too_slow:
                continue
            took = least_seconds(_match(a, b, method, "cpu", threads), 2)
            rows.append({"n": size, "method": method, "threads": threads, "seconds": took})
    return rows


def _match(a: Codes, b: Codes, method: str, device: str, threads: int) -> Callable[[], object]:
    return lambda: lcs.match(a, b, method=method, device=device, threads=threads)


def similar(size: int = 5_000_000, rates: Sequence[float] = (0.0001, 0.001, 0.005)) -> list[Row]:
    """Two genomes that differ a little, on one thread: what the default takes, and the
    difference."""
    a = random_bases(size, 5)
    rows = []
    for rate in rates:
        b = mutated(a, rate, 6)
        length = lcs.length(a, b, device="cpu", threads=1)
        rows.append(
            {
                "n": size,
                "substituted": rate,
                "difference": a.size + b.size - 2 * length,
                "length, s": least_seconds(
                    lambda b=b: lcs.length(a, b, device="cpu", threads=1),  # type: ignore[misc]
                    2,
                    clock=time.thread_time,
                ),
                "sequence, s": least_seconds(
                    lambda b=b: lcs.match(a, b, device="cpu", threads=1),  # type: ignore[misc]
                    2,
                    clock=time.thread_time,
                ),
            }
        )
    return rows


class Timed:
    """A processor whose passes and cuts are timed, each until it has ended."""

    def __init__(self, inner: Processor, wait: Callable[[], None]) -> None:
        self._inner = inner
        self._wait = wait
        self.seconds = 0.0

    def reserve(self, words: int) -> None:
        """As the processor does."""
        self._inner.reserve(words)

    def sweep(self, passes: Passes) -> None:
        """As the processor does."""
        start = time.perf_counter()
        self._inner.sweep(passes)
        self._wait()
        self.seconds += time.perf_counter() - start

    def split(self, splits: Splits) -> tuple[Numbers, Numbers]:
        """As the processor does."""
        start = time.perf_counter()
        found = self._inner.split(splits)
        self.seconds += time.perf_counter() - start
        return found


def figures(
    scale: float, threads: int, methods: Sequence[str] = ("systolic", "bit-parallel")
) -> list[Row]:
    """Fig. 4 to 7 on the CPU: seconds of the full LCS, the lengths of the paper times ``scale``."""
    rows = []
    for size_a in FIGURE_A:
        for size_b in FIGURE_B:
            m, n = int(size_a * scale), int(size_b * scale)
            a, b = random_bases(m, 7), random_bases(n, 8)
            row: Row = {"m": m, "n": n}
            for method in methods:
                for count in sorted({1, threads}):
                    run = _match(a, b, method, "cpu", count)
                    row[f"{method}, {count} threads"] = least_seconds(run, 1)
            rows.append(row)
    return rows


def card_lengths(sizes: Sequence[int] = CARD_LENGTHS, threads: int = 1) -> list[Row]:
    """The length alone on a card, host arrays in, n x n: the default and the paper's kernel."""
    rows = []
    for size in sizes:
        a, b = random_bases(size, 1), random_bases(size, 2)
        for method in CARD_METHODS:
            if method != CARD_METHODS[0] and size * size > SLOW_CELLS:
                continue
            took = least_seconds(_length(a, b, method, threads, "cuda"), 3)
            rate = size * size / took / 1e12
            rows.append({"n": size, "method": method, "seconds": took, "T cells/s": rate})
    return rows


def card_figures(scale: float, threads: int) -> list[Row]:
    """Fig. 4 to 7 and Table 1 on a card: the full LCS once, what it took, and where.

    The lengths of the paper times ``scale``; at full size the paper's seconds stand beside.
    """
    _match(random_bases(5_000, 9), random_bases(4_000, 10), "systolic", "cuda", threads)()
    rows = []
    for size_a, seconds in zip(FIGURE_A, PAPER_SECONDS, strict=True):
        for size_b, paper in zip(FIGURE_B, seconds, strict=True):
            m, n = int(size_a * scale), int(size_b * scale)
            row: Row = {"m": m, "n": n}
            row |= _breakdown(random_bases(m, 9), random_bases(n, 10), "cuda", threads)
            if scale == 1:
                row |= {"LCS paper, s": paper, "times": paper / row["total, s"]}
            rows.append(row)
    return rows


def table_1(scale: float, threads: int, sizes: Sequence[int] = FIGURE_B) -> list[Row]:
    """Table 1 on the CPU: where the time of the full LCS goes, for strings A of 5 M and 20 M times
    ``scale``.

    passes: the bit-vectors and the cuts. transfer: the sequences laid out for them. rest: the
    division's bookkeeping and the small tables.
    """
    rows = []
    for size_a in (FIGURE_A[0], FIGURE_A[-1]):
        for size_b in sizes:
            m, n = int(size_a * scale), int(size_b * scale)
            letters = random_bases(m, 9), random_bases(n, 10)
            _match(*letters, "systolic", "cpu", threads)()
            rows.append({"m": m, "n": n} | _breakdown(*letters, "cpu", threads))
    return rows


def _breakdown(a: Codes, b: Codes, device: str, threads: int) -> Row:
    def wait() -> None:
        if device == "cuda":
            from gpu.card.intrinsics import cuda

            cuda.synchronize()

    start = time.perf_counter()
    choice = Choice("systolic", "cuda" if device == "cuda" else "cpu")
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    codes = [lcs.codes_of(x, False) for x in (longer, shorter)]
    pair = pair_of(codes[0], codes[1], DNA_SYMBOLS)
    in_a, in_b = (np.zeros(x.size, dtype=np.bool_) for x in (pair.a, pair.b))
    sent = time.perf_counter()
    processor = Timed(solve.processor_of(pair, choice, threads), wait)
    wait()
    transfer = time.perf_counter() - sent
    solve.systolic_fill(pair, in_a, in_b, processor, threads)
    total = time.perf_counter() - start
    rest = total - transfer - processor.seconds
    return {
        "total, s": total,
        "passes, s": processor.seconds,
        "transfer, s": transfer,
        "rest, s": rest,
        "passes, %": 100 * processor.seconds / total,
        "transfer, %": 100 * transfer / total,
        "rest, %": 100 * rest / total,
    }
