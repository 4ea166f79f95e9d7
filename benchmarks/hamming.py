"""Search with k mismatches: the PMASM paper's Tables 1-3, long texts on a GPU, and hyperscan.

Characters of the text a second, for all patterns of a set together, forward strand. On the CPU (one
thread, the thread's own time) a run ends with the columns of all hits. On a GPU (CUDA events) it
begins and ends in GPU memory: the paper's methods begin with a byte for each code and end with
their result table; bit-sliced begins with bit planes and ends with unordered hit words, which
include distances. Texts and patterns are random, of the paper's sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.inputs import LETTERS, Codes, random_codes
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_and_result, least_seconds, median_on_gpu
from streamer.batch.choice import Choice
from streamer.batch.hamming import METHODS, HammingSearch, SearchedText, engine_for
from streamer.batch.hamming.pigeonhole import pays
from streamer.batch.hamming.problem import Oriented
from streamer.batch.records import NamedSequence

K = 4
SYMBOLS = 10_280_000
SIZES = (2_600_000, 3_020_000, 5_140_000, SYMBOLS, 22_970_000)  # bytes of the paper's DNA packages
SETS = ((6, 7), (9, 7), (6, 12))  # patterns of a set and their length (Table 1)

PAPER = {
    "naive (CPU)": 0.01, "naive": 2.67, "shift-add (CPU)": 0.05, "shift-add": 3.19,
    "pmasm (CPU)": 0.06, "pmasm-shared": 3.85,
}  # fmt: skip
"""Table 3, 22.97 Mb, in its unit; its ratios are to the CPU's naive method."""

PEERS = ((8, 12, 4), (1, 12, 4), (16, 12, 4), (8, 20, 4), (24, 24, 3), (96, 24, 3))
"""Patterns, their length and k, for the comparison with hyperscan."""

MANY = (
    *((count, 20, 4) for count in (128, 256, 512, 2048)), (128, 20, 2), (2048, 20, 2),
    (128, 24, 3), (2048, 24, 3), (512, 24, 6), (2048, 24, 6), (2048, 64, 5),
)  # fmt: skip
"""Patterns, their length and k, for which ``pigeonhole`` may be faster."""

LONG = (
    ("bit-sliced", 8, 12, 4, 27, 0.0),
    ("bit-sliced", 8, 12, 4, 28, 0.0),
    ("bit-sliced", 8, 12, 4, 30, 0.0),
    ("bit-sliced", 6, 7, 4, 25, 0.0),
    ("bit-sliced", 1, 12, 4, 27, 0.0),
    ("bit-sliced", 16, 12, 4, 27, 0.0),
    ("bit-sliced", 8, 12, 2, 27, 0.0),
    ("bit-sliced", 8, 12, 4, 27, 0.01),
    ("bit-sliced", 8, 20, 4, 27, 0.0),
    ("bit-sliced", 8, 24, 9, 27, 0.0),
    ("bit-sliced", 192, 24, 3, 26, 0.0),
    ("pigeonhole", 192, 24, 3, 26, 0.0),
    ("bit-sliced", 2000, 20, 4, 24, 0.0),
    ("pigeonhole", 2000, 20, 4, 26, 0.0),
)
"""Method, patterns, their length, k, log2 of the windows, and the share of gap codes."""

Rate = Callable[[str, Codes, Codes, int], tuple[float, int | None]]
"""Maps (method, codes, patterns uint8[r, m], k) to characters a second and hits."""


def tables(device: str, symbols: int = SYMBOLS, sets: int = 10) -> list[Sheet]:
    """The paper's tables, with texts of ``symbols`` or in proportion."""
    methods = methods_of(device)
    rate = cpu_rate if device == "cpu" else gpu_rate
    sizes = [max(1000, size * symbols // SYMBOLS) for size in SIZES]
    table_3 = cache(lambda: list(by_size(rate, methods, sizes, 12)))
    paper = [
        Sheet("Table 1, characters a second", table_1, rate, methods, symbols, sets),
        Sheet("Table 2, 8 patterns of 9", by_size, rate, methods, sizes, 9),
        Sheet("Table 3, 8 patterns of 12", table_3),
        Sheet("Ratios of Table 3", lambda: ratios(table_3(), device)),
    ]
    if device == "cpu":
        peer = Sheet("Against hyperscan, one thread", beside_peer, symbols)
        return [*paper, peer, Sheet("Many patterns, one thread", many_patterns, symbols // 10)]
    scale = symbols / SYMBOLS
    return [
        *paper,
        Sheet("Long texts, data in GPU memory", long_texts, scale),
        Sheet("From host memory to ordered hits there", from_host, int(scale * (1 << 28))),
    ]


def methods_of(device: str) -> list[str]:
    """The methods of a device, the default first."""
    return [name for name, devices in METHODS.items() if device in devices]


def _patterns(count: int, length: int, seed: int) -> Codes:
    return random_codes(count * length, seed).reshape(count, length)


def cpu_rate(method: str, codes: Codes, patterns: Codes, k: int) -> tuple[float, int | None]:
    """A method on one thread."""
    records = [NamedSequence(str(i), one) for i, one in enumerate(patterns)]
    search = HammingSearch(records, k, strands="forward", choice=Choice(method, "cpu"), threads=1)

    def run(text: Codes) -> int:
        found = search.find([SearchedText(text, np.array([0, text.size]))])
        return sum(len(hits) for _, hits in found)

    run(codes[:5000])
    seconds, hits = least_and_result(partial(run, codes), 3, clock=time.thread_time, warm=False)
    return codes.size / seconds, hits


def _oriented(patterns: Codes, k: int) -> Oriented:
    return Oriented(patterns, np.arange(len(patterns), dtype=np.uint32), k)


def _engine(method: str, patterns: Codes, k: int) -> Any:
    return engine_for(Choice(method, "cuda"), _oriented(patterns, k), 1, free=False)


def gpu_rate(method: str, codes: Codes, patterns: Codes, k: int) -> tuple[float, int | None]:
    """A method in GPU memory."""
    from gpu.card.intrinsics import cuda
    from gpu.hamming.paper import TableSearcher

    kernels = _engine(method, patterns, k)
    windows = codes.size - patterns.shape[1] + 1
    run: Callable[[], object]
    hits: int | None
    if isinstance(kernels, TableSearcher):
        run, hits = partial(kernels.launch, cuda.to_device(codes), windows), None
    else:
        run, hits = _scan(kernels, codes, windows)
    run()
    # queue several, so that the host stays ahead of the GPU, unless one takes long
    once = median_on_gpu(run, 1)
    many = max(1, min(20, int(0.004 / once)))
    return codes.size / median_on_gpu(run, 3, queued=many), hits


def _scan(kernels: Any, codes: Codes, windows: int) -> tuple[Callable[[], None], int]:
    """The search of a text that is in GPU memory, with room for its hits, and their number."""
    from gpu.card.intrinsics import cuda

    text = kernels.send(codes, windows)
    text.sent.synchronize()
    kernels.scan(text, windows)
    hits = kernels.count()
    kernels.found = cuda.device_array(hits + 1024, np.uint64)
    return partial(kernels.scan, text, windows), hits


def table_1(rate: Rate, methods: Sequence[str], symbols: int, sets: int) -> Iterator[Row]:
    """Throughput for sets of random patterns: maximum, minimum and mean over ``sets`` sets."""
    codes = random_codes(symbols, 1)
    for count, length in SETS:
        for method in methods:
            rates = [
                rate(method, codes, _patterns(count, length, 10 + i), K)[0] for i in range(sets)
            ]
            yield {
                "patterns": count, "length": length, "method": method,
                "max": max(rates), "min": min(rates), "mean": float(np.mean(rates)),
            }  # fmt: skip


def by_size(rate: Rate, methods: Sequence[str], sizes: Sequence[int], length: int) -> Iterator[Row]:
    """Tables 2 and 3: throughput for texts of the paper's sizes, 8 patterns."""
    patterns = _patterns(8, length, 2)
    for size in sizes:
        codes = random_codes(size, 3)
        for method in methods:
            found, hits = rate(method, codes, patterns, K)
            yield {"text": size, "matches": hits, "method": method, "characters/s": found}


def ratios(table_3: list[Row], device: str) -> Iterator[Row]:
    """Each method at the largest size, as a multiple of the CPU's naive one, beside the paper's."""
    largest = max(row["text"] for row in table_3)
    base = cpu_rate("naive", random_codes(largest, 3), _patterns(8, 12, 2), K)[0]
    for row in table_3:
        if row["text"] == largest:
            name = row["method"] + (" (CPU)" if device == "cpu" else "")
            paper = PAPER.get(name)
            yield {
                "method": name, "x naive (CPU)": row["characters/s"] / base,
                "paper": paper / PAPER["naive (CPU)"] if paper else None,
            }  # fmt: skip


def beside_peer(symbols: int) -> Iterator[Row]:
    """bit-sliced against hyperscan (a callback a match), one thread."""
    for count, length, k in PEERS:
        patterns = _patterns(count, length, 4)
        ours, hits = cpu_rate("bit-sliced", random_codes(symbols, 5), patterns, k)
        text = LETTERS[random_codes(symbols // 10, 5)].tobytes()
        letters = [LETTERS[one].tobytes() for one in patterns]
        scan, note = peers.hyperscan(letters, text, hamming_distance=k)
        theirs = None
        if scan is not None:
            theirs = len(text) / least_seconds(scan, 3, clock=time.thread_time, warm=False)
        yield {
            "patterns": count, "length": length, "k": k, "hits a character": (hits or 0) / symbols,
            "bit-sliced": ours, "hyperscan": theirs, "ratio": ours / theirs if theirs else None,
            "note": note,
        }  # fmt: skip


def many_patterns(symbols: int) -> Iterator[Row]:
    """Both methods of the CPU for many patterns, and the one that is chosen by default."""
    codes = random_codes(symbols, 5)
    for count, length, k in MANY:
        patterns = _patterns(count, length, 4)
        row: Row = {"patterns": count, "length": length, "k": k}
        for method in ("bit-sliced", "pigeonhole"):
            row[method] = cpu_rate(method, codes, patterns, k)[0]
        yield row | {"chosen": "pigeonhole" if pays(_oriented(patterns, k)) else "bit-sliced"}


def long_texts(scale: float) -> Iterator[Row]:
    """Long texts in GPU memory."""
    for method, count, length, k, log2, gaps in LONG:
        windows = int(scale * (1 << log2))
        codes = random_codes(windows + length - 1, 3)
        codes[: int(gaps * codes.size)] = 4
        kernels = _engine(method, _patterns(count, length, 4), k)
        run, hits = _scan(kernels, codes, windows)
        yield {
            "method": method, "patterns": count, "length": length, "k": k, "windows": windows,
            "gaps": gaps, "hits a window": hits / windows,
            "windows/s": windows / median_on_gpu(run, queued=10),
        }  # fmt: skip


def from_host(windows: int) -> Iterator[Row]:
    """From host memory to ordered hit words in host memory, chunk by chunk."""
    count, length = 8, 12
    engine = _engine("bit-sliced", _patterns(count, length, 4), K)
    codes = random_codes(windows + length - 1, 3)

    def run() -> None:
        for first in range(0, windows, engine.chunk):
            engine.words(codes, first, min(first + engine.chunk, windows))

    seconds = least_seconds(run, 4, warm=False)
    yield {
        "patterns": count, "length": length, "k": K, "windows": windows, "chunk": engine.chunk,
        "windows/s": windows / seconds,
    }  # fmt: skip
