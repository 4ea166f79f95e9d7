#!/usr/bin/env python3
"""Check the kernels of the search with k mismatches on a CUDA device, then time them.

scripts/device_hamming.py            check every method against the CPU, then time
scripts/device_hamming.py --small    check small inputs only (for compute-sanitizer)
scripts/device_hamming.py --times    check one small input, then time
scripts/device_hamming.py --check    check, do not time
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
from numba import cuda  # noqa: E402

from streamer.batch.choice import Choice  # noqa: E402
from streamer.batch.hamming import METHODS  # noqa: E402
from streamer.batch.hamming.engines import HammingCpu, make  # noqa: E402
from streamer.batch.hamming.patterns import Oriented  # noqa: E402
from streamer.bench import hamming as bench  # noqa: E402

warnings.filterwarnings("ignore", message=".*under-utilization.*")
CUDA_METHODS = [name for name, devices in METHODS.items() if "cuda" in devices]
LENGTHS = (1, 8, 12, 32, 33, 64, 127, 256)


def log(*words):
    print(*words, flush=True)


def made(rng, symbols, count, length, k, gaps=0.01):
    """A text with gap codes and patterns, some of them out of the text."""
    text = rng.integers(0, 4, symbols, dtype=np.uint8)
    text[rng.random(symbols) < gaps] = 4
    patterns = rng.integers(0, 4, (count, length), dtype=np.uint8)
    for p in range(0, count, 3):
        start = int(rng.integers(0, symbols - length))
        patterns[p] = text[start : start + length]
    return text, Oriented(patterns, np.arange(count, dtype=np.uint32) * 2, k)


def agree(rng, methods, symbols, count, length, k):
    """Compare the methods with the CPU's; how many hits there are."""
    text, patterns = made(rng, symbols, count, length, k)
    windows = symbols - length + 1
    want = np.concatenate([*HammingCpu("bit-sliced", patterns, 4).words(text, 0, windows), []])
    want = want.astype(np.uint64)
    for method in methods:
        engine = make(Choice(method, "cuda"), patterns, 1, free=False)
        found = []
        for first in range(0, windows, engine.chunk):
            stop = min(first + engine.chunk, windows)
            for part in engine.words(text, first, stop):
                found.append(part + (np.uint64(first) << np.uint64(36)))
        found = np.concatenate(found) if found else np.empty(0, np.uint64)
        if not np.array_equal(found, want):
            sys.exit(f"WRONG {method} n={symbols} r={count} m={length} k={k}: {found.size} hits, "
                     f"{want.size} expected")  # fmt: skip
    return want.size


def check(most):
    """Compare all methods; ``most``: cases, of the small ones, or None."""
    rng = np.random.default_rng(5)
    cases = [(3000, 5, 12, 4), (2100, 3, 33, 9), (1500, 3, 256, 200)][:most]
    if most is None:
        for number, length in enumerate(LENGTHS):
            # a kernel a length and k up to 32 symbols, which takes a while to compile
            ks = sorted({k for k in (0, 1, 2, 6, length - 1) if k < length})
            cases += [(70_000 + length, 6, length, k) for k in ks[number % 2 :: 2]]
        cases += [(100_000, 3000, 20, 4), (33_000, 70_000, 24, 2)]
    hits = 0
    for symbols, count, length, k in cases:
        dense = k == length - 1 and length > 2
        methods = CUDA_METHODS if count < 100 else ["bit-sliced", "pigeonhole", "pmasm-thread"]
        hits += agree(
            rng, methods, 40_000 if dense and symbols > 40_000 else symbols, count, length, k
        )
    log(f"{len(cases)} cases agree with the CPU, {hits:,} hits")


@cache
def large():
    """Two arrays; copying one to the other takes a large card half a millisecond."""
    return [cuda.device_array(1 << 30, np.uint8) for _ in range(2)]


def seconds(run, repeats, queued=10):
    """The median time of a run on the card, by CUDA events around ``queued`` of them.

    They wait behind copies until all are queued: launching one from Python takes as long as a scan.
    """
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        start, stop = cuda.event(timing=True), cuda.event(timing=True)
        for _ in range(8):
            large()[0].copy_to_device(large()[1])
        start.record()
        for _ in range(queued):
            run()
        stop.record()
        stop.synchronize()
        times.append(cuda.event_elapsed_time(start, stop) / 1e3 / queued)
    return float(np.median(times))


@cache
def random_text():
    """268 M random base codes and a few."""
    return np.random.default_rng(2).integers(0, 4, (1 << 28) + 255, dtype=np.uint8)


def drawn(method, count, length, k):
    """An engine for random patterns."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 4, (count, length), dtype=np.uint8)
    ids = np.arange(count, dtype=np.uint32)
    return make(Choice(method, "cuda"), Oriented(patterns, ids, k), 1, free=False)


def time_planes(windows, count, length, k, method="bit-sliced", gaps=0.0):
    """From bit planes in the card's memory to hits there, in no order and in order."""
    start = time.perf_counter()
    run = drawn(method, count, length, k).run
    prepared = time.perf_counter() - start
    codes = random_text()[: windows + length - 1].copy()
    codes[: int(gaps * codes.size)] = 4
    text = run.send(codes, windows)
    text.sent.synchronize()
    run.scan(text, windows)
    hits = run.count()
    run.found = cuda.device_array(hits + 1024, np.uint64)
    ids = np.arange(count, dtype=np.uint64) << np.uint64(8)
    scan = seconds(lambda: run.scan(text, windows), 7)
    both = scan
    if hits >= 1000:

        def ordered():
            run.scan(text, windows)
            run.order.launch(run.found, hits, windows, ids, 0)

        both = seconds(ordered, 5)
    log(
        f"{method} r={count} m={length} k={k} n={windows / 1e6:.0f}M"
        f"{' with gaps' if gaps else ''} hits/window={hits / windows:.4f}: "
        f"with distances {windows / scan / 1e9:.1f} G/s, and in order {windows / both / 1e9:.1f} "
        f"(made in {prepared:.1f} s)"
    )


def time_tables(sets):
    """Tables 1-3 of the paper, as ``streamer bench hamming --device cuda`` has them."""
    methods = bench.methods_of("cuda")
    for row in bench.table_1(bench.card_rate, methods, sets=sets):
        log(
            f"table 1: {row['patterns']} of {row['length']}, {row['method']}: G/s "
            + ", ".join(f"{name} {row[name] / 1e9:.2f}" for name in ("max", "min", "mean"))
        )
    for number, table in ((2, bench.table_2), (3, bench.table_3)):
        rows = table(bench.card_rate, methods)
        for method in methods:
            rates = [row["characters/s"] / 1e9 for row in rows if row["method"] == method]
            log(f"table {number}: {method}, G/s: " + " ".join(f"{rate:.2f}" for rate in rates))


def time_whole(windows, count, length, k):
    """Host memory to ordered hit words in host memory, and the parts of one chunk."""
    engine = drawn("bit-sliced", count, length, k)
    codes = random_text()[: windows + length - 1]
    best = 9e9
    for _ in range(4):
        start = time.perf_counter()
        for first in range(0, windows, engine.chunk):
            engine.words(codes, first, min(first + engine.chunk, windows))
        best = min(best, time.perf_counter() - start)
    log(f"host to host r={count} m={length} k={k}: {windows / best / 1e9:.2f} G/s")
    run, chunk = engine.run, engine.chunk
    symbols = codes[: chunk + length - 1]
    marks = [time.perf_counter()]

    def mark():
        cuda.synchronize()
        marks.append(time.perf_counter())

    run.send(symbols, chunk)  # nothing waits for this one
    mark()
    text = run.send(symbols, chunk)
    mark()
    run.scan(text, chunk)
    mark()
    hits = run.count()
    mark()
    found = run.order.launch(run.found, hits, chunk, engine._ids, 0)
    mark()
    found[:hits].copy_to_host(run.order._host[:hits])
    mark()
    names = ("first", "pack and send", "scan", "counter", "order", "fetch")
    took = " ".join(
        f"{name} {(b - a) * 1e3:.2f}" for name, a, b in zip(names, marks, marks[1:], strict=False)
    )
    log(f"one chunk of {chunk / 1e6:.0f}M, ms: {took}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    start = time.time()
    check(1 if asked.times else 3 if asked.small else None)
    log(f"checked in {time.time() - start:.0f} s")
    if asked.small or asked.check:
        return
    time_planes(1 << 27, 8, 12, 4)
    time_planes(1 << 28, 8, 12, 4)
    time_planes(1 << 25, 6, 7, 4)
    time_planes(1 << 27, 6, 7, 4)
    time_planes(1 << 27, 1, 12, 4)
    time_planes(1 << 27, 16, 12, 4)
    time_planes(1 << 27, 8, 12, 2)
    time_planes(1 << 27, 8, 12, 4, gaps=0.01)
    time_planes(1 << 27, 8, 20, 4)
    time_planes(1 << 27, 8, 24, 9)
    time_planes(1 << 26, 192, 24, 3)
    time_planes(1 << 26, 192, 24, 3, "pigeonhole")
    time_planes(1 << 24, 2000, 20, 4)
    time_planes(1 << 26, 2000, 20, 4, "pigeonhole")
    time_whole(1 << 28, 8, 12, 4)
    time_tables(2)


if __name__ == "__main__":
    main()
