"""Measurements of the search with k mismatches: the PMASM paper's Tables 1-3, and hyperscan.

Characters of the text a second, for all patterns of a set together, forward strand, the best of
several runs in one process. On the CPU (one thread, the thread's own time) a run ends with the
columns of all hits. On a card (CUDA events) it begins with the text in its memory and ends with the
hits there: the paper's methods begin with a byte a code and end with their result table, bit-sliced
begins with bit planes and ends with hit words, their distances among them, in no order. Texts and
patterns are random, of the paper's sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice
from streamer.batch.hamming import METHODS, HammingSearch
from streamer.batch.records import Record
from streamer.bench.timing import least_and_result

Row = dict[str, Any]

K = 4
SIZES = (2_600_000, 3_020_000, 5_140_000, 10_280_000, 22_970_000)
"""Bytes of the paper's DNA packages."""

SETS = ((6, 7), (9, 7), (6, 12))
"""Patterns of a set and their length (Table 1)."""

PAPER = {
    "naive (CPU)": 0.01,
    "naive": 2.67,
    "shift-add (CPU)": 0.05,
    "shift-add": 3.19,
    "pmasm (CPU)": 0.06,
    "pmasm-shared": 3.85,
    "pmasm-thread": None,
    "pmasm-block-thread": None,
}
"""Table 3, 22.97 Mb, in its unit; the CPU's naive method is the measure of its ratios."""

PEERS = ((8, 12, 4), (1, 12, 4), (16, 12, 4), (8, 20, 4), (24, 24, 3), (96, 24, 3))
"""Patterns, their length and k, beside hyperscan."""

HYPERSCAN_MISSING = "hyperscan is not installed: pip install 'kmer-streamer[bench]'"

Rate = Callable[[str, NDArray[np.uint8], NDArray[np.uint8], int], tuple[float, int]]
"""(method, codes, patterns uint8[r, m], k) to characters a second and hits."""


def drawn(symbols: int, seed: int) -> NDArray[np.uint8]:
    """Random base codes."""
    return np.random.default_rng(seed).integers(0, 4, symbols, dtype=np.uint8)


def cpu_rate(
    method: str, codes: NDArray[np.uint8], patterns: NDArray[np.uint8], k: int, repeats: int = 3
) -> tuple[float, int]:
    """A method on one thread."""
    records = [Record(str(i), one) for i, one in enumerate(patterns)]
    search = HammingSearch(records, k, strands="forward", choice=Choice(method, "cpu"), threads=1)

    def run(text: NDArray[np.uint8]) -> int:
        return sum(len(hits) for hits in search.find(text, np.array([0, text.size])))

    run(codes[:5000])
    seconds, hits = least_and_result(
        partial(run, codes), repeats, clock=time.thread_time, warm=False
    )
    return codes.size / seconds, hits


def card_rate(
    method: str, codes: NDArray[np.uint8], patterns: NDArray[np.uint8], k: int, repeats: int = 3
) -> tuple[float, int]:
    """A method on the card, from codes in its memory to hits in its memory."""
    from gpu.card.intrinsics import cuda
    from gpu.hamming.paper.table import TableSearcher
    from streamer.batch.hamming.engines import make
    from streamer.batch.hamming.patterns import Oriented

    windows = codes.size - patterns.shape[1] + 1
    hits = -1
    ids = np.arange(len(patterns), dtype=np.uint32)
    kernels: Any = make(Choice(method, "cuda"), Oriented(patterns, ids, k), 1, free=False)
    if isinstance(kernels, TableSearcher):
        on_card = cuda.to_device(codes)

        def run() -> None:
            kernels.launch(on_card, windows)

    else:
        text = kernels.send(codes, windows)
        text.sent.synchronize()
        kernels.scan(text, windows)
        hits = kernels.count()
        kernels.found = cuda.device_array(max(hits, 1), np.uint64)

        def run() -> None:
            kernels.scan(text, windows)

    def seconds(times: int) -> float:
        start, stop = cuda.event(), cuda.event()
        start.record()
        for _ in range(times):
            run()
        stop.record()
        stop.synchronize()
        return float(cuda.event_elapsed_time(start, stop)) / 1e3 / times

    run()
    # several queued, so that the host is ahead of the card, unless one takes long
    queued = max(1, min(20, int(0.004 / seconds(1))))
    return codes.size / min(seconds(queued) for _ in range(repeats)), hits


def methods_of(device: str) -> list[str]:
    """The methods of a device, the default first."""
    return [name for name, devices in METHODS.items() if device in devices]


def table_1(
    rate: Rate, methods: Iterable[str], symbols: int = 10_280_000, sets: int = 10
) -> list[Row]:
    """Throughput for sets of random patterns: the most, the least and the mean of ``sets`` sets."""
    codes = drawn(symbols, 1)
    rows = []
    for count, length in SETS:
        for method in methods:
            rates = [
                rate(method, codes, drawn(count * length, 10 + i).reshape(count, length), K)[0]
                for i in range(sets)
            ]
            rows.append(
                {
                    "patterns": count,
                    "length": length,
                    "method": method,
                    "max": max(rates),
                    "min": min(rates),
                    "mean": float(np.mean(rates)),
                }
            )
    return rows


def table_2(rate: Rate, methods: Iterable[str], sizes: Sequence[int] = SIZES) -> list[Row]:
    """Throughput for texts of the paper's sizes: 8 patterns of 9."""
    return _by_size(rate, methods, sizes, 9)


def table_3(rate: Rate, methods: Iterable[str], sizes: Sequence[int] = SIZES) -> list[Row]:
    """Throughput of the methods against each other: 8 patterns of 12."""
    return _by_size(rate, methods, sizes, 12)


def _by_size(rate: Rate, methods: Iterable[str], sizes: Sequence[int], length: int) -> list[Row]:
    patterns = drawn(8 * length, 2).reshape(8, length)
    rows = []
    for size in sizes:
        codes = drawn(size, 3)
        for method in methods:
            found, hits = rate(method, codes, patterns, K)
            rows.append(
                {
                    "text": size,
                    "matches": hits if hits >= 0 else None,
                    "method": method,
                    "characters/s": found,
                }
            )
    return rows


def naive_rate(symbols: int) -> tuple[float, int]:
    """The CPU's naive method on Table 3's patterns: what its ratios count from."""
    return cpu_rate("naive", drawn(symbols, 3), drawn(8 * 12, 2).reshape(8, 12), K)


def ratios(rows: list[Row], on_card: bool, naive_cpu: float) -> list[Row]:
    """Each method at the largest size, as a multiple of the CPU's naive one, beside the paper's."""
    largest = max(row["text"] for row in rows)
    shown = []
    for row in rows:
        if row["text"] != largest:
            continue
        name = row["method"] if on_card else f"{row['method']} (CPU)"
        paper = PAPER.get(name)
        shown.append(
            {
                "method": name,
                "x naive (CPU)": row["characters/s"] / naive_cpu,
                "paper": paper / 0.01 if paper else None,
            }
        )
    return shown


def peers(symbols: int = 10_280_000) -> list[Row]:
    """bit-sliced against hyperscan (hamming_distance, a callback a match), one thread."""
    rows = []
    for count, length, k in PEERS:
        patterns = drawn(count * length, 4).reshape(count, length)
        ours, hits = cpu_rate("bit-sliced", drawn(symbols, 5), patterns, k)
        theirs, note = _hyperscan(drawn(symbols // 10, 5), patterns, k)
        rows.append(
            {
                "patterns": count,
                "length": length,
                "k": k,
                "hits a character": hits / symbols,
                "bit-sliced": ours,
                "hyperscan": theirs,
                "ratio": ours / theirs if theirs else None,
                "note": note,
            }
        )
    return rows


def _hyperscan(
    codes: NDArray[np.uint8], patterns: NDArray[np.uint8], k: int
) -> tuple[float | None, str]:
    try:
        import hyperscan
    except ImportError:
        return None, HYPERSCAN_MISSING
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    text = letters[codes].tobytes()
    ends: list[tuple[int, int]] = []
    peer: Any = hyperscan  # its type stubs lack names
    near = peer.ExpressionExt(peer.HS_EXT_FLAG_HAMMING_DISTANCE, hamming_distance=k)
    database = peer.Database(mode=peer.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=[letters[one].tobytes() for one in patterns],
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[0] * len(patterns),
            ext=[near] * len(patterns),
        )
    except peer.error as error:
        return None, " ".join(str(error).split())[:60]
    least = float("inf")
    for _ in range(3):
        ends.clear()
        start = time.thread_time()
        database.scan(
            text, match_event_handler=lambda number, first, end, *_: ends.append((number, end))
        )
        least = min(least, time.thread_time() - start)
    return codes.size / least, ""
