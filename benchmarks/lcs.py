"""The longest common subsequence: its methods beside rapidfuzz, and the paper's figures repeated.

Rates are cells of the table (m x n) a second, by the thread's own time if one thread is measured
and by wall time otherwise. The paper's full LCS computes the cells twice, this program's division
1.5 times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.inputs import Codes, random_letters
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_seconds
from streamer.batch import lcs
from streamer.batch.choice import Choice
from streamer.batch.lcs import solve
from streamer.batch.lcs.passes import Passes, Processor, Splits
from streamer.batch.lcs.symbols import DNA_SYMBOLS, Solution, pair_of
from trie.cpu.threads import usable_cores

SLOWEST_CELLS = 1e9  # the most cells for the slow methods
SLOW = ("dp", "hirschberg", "diff")

FIGURE_A = (5_000_000, 10_000_000, 15_000_000, 20_000_000)
FIGURE_B = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
"""Lengths of the strings in Fig. 4 to 7."""

PAPER_SECONDS = (
    (335.10, 515.95, 1_050.03, 2_046.29),
    (647.21, 998.79, 2_047.44, 3_667.39),
    (954.44, 1_472.40, 3_039.24, 5_462.73),
    (1_262.07, 1_945.03, 4_027.68, 7_239.77),
)
"""The totals of the paper's Table 1 for these lengths (GeForce GTX 580), as in Fig. 4 to 7."""

GPU_LENGTHS = (100_000, 1_000_000, 5_000_000, 10_000_000)
GPU_METHODS = {"systolic": 1e15, "adaptive": 1e15, "block-step": 1e11}
"""Methods on a GPU, and the most cells for each."""


def tables(device: str, scale: float | None = None, size: int = 100_000) -> list[Sheet]:
    """Lengths and subsequences; the paper's lengths times ``scale``: 0.01 on the CPU, 1 on CUDA."""
    threads = usable_cores()
    full_lcs = "lengths x {:g}: seconds of the full LCS".format
    if device == "cuda":
        part = scale or 1.0
        return [
            Sheet("Length alone, n x n", gpu_lengths, GPU_LENGTHS, threads),
            Sheet(f"Fig. 4-7 and Table 1, {full_lcs(part)}", gpu_figures, part, threads),
        ]
    part = scale or 0.01
    sizes = sorted({size // 100, size // 10, size} - {0})
    return [
        Sheet("Length alone, n x n", lengths, sizes, threads),
        Sheet("One subsequence, n x n", sequences, (size // 10, size // 2), threads),
        Sheet("Similar genomes, one thread", similar, 50 * size),
        Sheet(f"Fig. 4-7, {full_lcs(part)}", figures, part, threads),
        Sheet(f"Table 1, lengths x {part:g}", table_1, part, threads),
    ]


def mutated(letters: Codes, rate: float, seed: int) -> Codes:
    """A copy with substitutions."""
    wrong = np.random.default_rng(seed).random(letters.size) < rate
    out = letters.copy()
    out[wrong] = random_letters(int(wrong.sum()), seed)
    return out


def _methods(cells: float) -> list[str]:
    """The names of the CPU's methods, without those that would take too long."""
    return [
        method
        for method, devices in lcs.METHODS.items()
        if "cpu" in devices
        and method != "adaptive"
        and not (method in SLOW and cells > SLOWEST_CELLS)
    ]


def lengths(sizes: Sequence[int], threads: int, repeats: int = 5) -> Iterator[Row]:
    """The length alone, random bases, n x n: every method of the CPU beside rapidfuzz's LCSseq."""
    for size in sizes:
        a, b = random_letters(size, 1), random_letters(size, 2)
        timed: list[tuple[str, int, float | None]] = []
        for method in _methods(size * size):
            for used in sorted({1, threads if method in ("systolic", "bit-parallel") else 1}):
                clock = time.thread_time if used == 1 else time.perf_counter
                length = partial(lcs.length, a, b, method=method, device="cpu", threads=used)
                timed.append((method, used, least_seconds(length, repeats, clock=clock)))
        run = peers.rapidfuzz(a.tobytes(), b.tobytes())
        peer = least_seconds(run, repeats, clock=time.thread_time) if run else None
        for method, used, seconds in [*timed, ("rapidfuzz LCSseq", 1, peer)]:
            yield {
                "n": size, "method": method, "threads": used, "seconds": seconds,
                "G cells/s": size * size / seconds / 1e9 if seconds else None,
                "x rapidfuzz": peer / seconds if peer and seconds else None,
                "note": "" if seconds else peers.missing("rapidfuzz"),
            }  # fmt: skip


def _match(a: Codes, b: Codes, method: str, device: str, threads: int) -> Callable[[], object]:
    return partial(lcs.match, a, b, method=method, device=device, threads=threads)


def sequences(sizes: Sequence[int], threads: int) -> Iterator[Row]:
    """One subsequence, random bases: every method of the CPU."""
    for size in sizes:
        a, b = random_letters(size, 3), random_letters(size, 4)
        for method in _methods(2 * size * size):
            took = least_seconds(_match(a, b, method, "cpu", threads), 2)
            yield {"n": size, "method": method, "threads": threads, "seconds": took}


def similar(size: int, rates: Sequence[float] = (0.0001, 0.001, 0.005)) -> Iterator[Row]:
    """Two genomes that differ slightly, on one thread: the default's seconds, the difference."""
    a = random_letters(size, 5)
    for rate in rates:
        b = mutated(a, rate, 6)
        length = lcs.length(a, b, device="cpu", threads=1)
        row: Row = {"n": size, "substituted": rate, "difference": a.size + b.size - 2 * length}
        for name, solved in (("length, s", lcs.length), ("sequence, s", lcs.match)):
            run = partial(solved, a, b, device="cpu", threads=1)
            row[name] = least_seconds(run, 2, clock=time.thread_time)
        yield row


class TimedProcessor:
    """A processor that times its passes and cuts, each to completion."""

    def __init__(self, inner: Processor, wait: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._wait = wait
        self.reserve = inner.reserve
        self.sweep = partial(self._timed, inner.sweep)
        self.split = partial(self._timed, inner.split)

    def _timed(self, run: Callable[[Any], Any], what: Passes | Splits) -> Any:
        start = time.perf_counter()
        found = run(what)
        self._wait()
        self.seconds += time.perf_counter() - start
        return found


def figures(scale: float, threads: int) -> Iterator[Row]:
    """Fig. 4 to 7 on the CPU: seconds of the full LCS, the lengths of the paper times ``scale``."""
    for size_a in FIGURE_A:
        for size_b in FIGURE_B:
            m, n = int(size_a * scale), int(size_b * scale)
            a, b = random_letters(m, 7), random_letters(n, 8)
            yield {"m": m, "n": n} | {
                f"{method}, {count} threads": least_seconds(_match(a, b, method, "cpu", count), 1)
                for method in ("systolic", "bit-parallel")
                for count in sorted({1, threads})
            }


def gpu_lengths(sizes: Sequence[int], threads: int) -> Iterator[Row]:
    """The length and one subsequence on a GPU, host arrays in, n x n."""
    for size in sizes:
        a, b = random_letters(size, 1), random_letters(size, 2)
        for method, most in GPU_METHODS.items():
            if size * size <= most:
                options: dict[str, Any] = {"method": method, "device": "cuda", "threads": threads}
                took = least_seconds(partial(lcs.length, a, b, **options), 3)
                sequence = least_seconds(partial(lcs.match, a, b, **options), 3)
                yield {
                    "n": size, "method": method, "seconds": took,
                    "T cells/s": size * size / took / 1e12, "sequence, s": sequence,
                }  # fmt: skip


def gpu_figures(scale: float, threads: int) -> Iterator[Row]:
    """Fig. 4 to 7 and Table 1 on a GPU: the full LCS once, its time, and where the time went.

    The lengths of the paper times ``scale``; at full size with the paper's seconds.
    """
    _match(random_letters(5_000, 9), random_letters(4_000, 10), "systolic", "cuda", threads)()
    for size_a, seconds in zip(FIGURE_A, PAPER_SECONDS, strict=True):
        for size_b, paper in zip(FIGURE_B, seconds, strict=True):
            m, n = int(size_a * scale), int(size_b * scale)
            row: Row = {"m": m, "n": n}
            row |= _breakdown(random_letters(m, 9), random_letters(n, 10), "cuda", threads)
            if scale == 1:
                row |= {"LCS paper, s": paper, "times": paper / row["total, s"]}
            yield row


def table_1(scale: float, threads: int, sizes: Sequence[int] = FIGURE_B) -> Iterator[Row]:
    """Table 1 on the CPU: where the time of the full LCS goes, for A of 5 M and 20 M x ``scale``.

    passes: the bit-vectors and the cuts. transfer: preparing the sequences for them. rest: the
    bookkeeping of the division and the small tables.
    """
    for size_a in (FIGURE_A[0], FIGURE_A[-1]):
        for size_b in sizes:
            m, n = int(size_a * scale), int(size_b * scale)
            letters = random_letters(m, 9), random_letters(n, 10)
            _match(*letters, "systolic", "cpu", threads)()
            yield {"m": m, "n": n} | _breakdown(*letters, "cpu", threads)


def _breakdown(a: Codes, b: Codes, device: str, threads: int) -> Row:
    def wait() -> None:
        if device == "cuda":
            from gpu.card.intrinsics import cuda

            cuda.synchronize()

    start = time.perf_counter()
    choice = Choice("systolic", "cuda" if device == "cuda" else "cpu")
    longer, shorter = sorted((a, b), key=len, reverse=True)
    pair = pair_of(lcs.codes_of(longer, False), lcs.codes_of(shorter, False), DNA_SYMBOLS)
    sent = time.perf_counter()
    processor = TimedProcessor(solve.processor_of(pair, choice, threads), wait)
    wait()
    transfer = time.perf_counter() - sent
    solve.systolic_solve(Solution(pair), processor, threads)
    total = time.perf_counter() - start
    parts = {"passes": processor.seconds, "transfer": transfer}
    parts["rest"] = total - sum(parts.values())
    return (
        {"total, s": total}
        | {f"{name}, s": seconds for name, seconds in parts.items()}
        | {f"{name}, %": 100 * seconds / total for name, seconds in parts.items()}
    )
