#!/usr/bin/env python3
"""Check the longest common subsequence on a CUDA device against the CPU, then time it.

scripts/device_lcs.py                  check, then time
scripts/device_lcs.py --small          check a few small inputs only (for compute-sanitizer)
scripts/device_lcs.py --shapes         time the systolic kernel in several shapes
scripts/device_lcs.py --no-large       without 20 M x 10 M and the memory it takes
ncu --clock-control none -k systolic -c 1 python scripts/device_lcs.py --profile
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
import warnings
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
from numba import cuda  # noqa: E402

import gpu.lcs  # noqa: E402
from gpu.lcs.systolic import GridShape  # noqa: E402
from streamer.batch import lcs  # noqa: E402
from streamer.batch.lcs import solve  # noqa: E402
from streamer.batch.lcs.passes import whole  # noqa: E402
from streamer.batch.lcs.symbols import pair_of  # noqa: E402
from streamer.bench.timing import least_and_result  # noqa: E402
from trie.codes import encode  # noqa: E402
from trie.cpu.threads import usable_cores  # noqa: E402

# small inputs leave most of a card idle, which is no news here
warnings.filterwarnings("ignore", message=".*under-utilization.*")

BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


def log(*words):
    print(*words, flush=True)


def bases(rng, count):
    return BASES[rng.integers(0, 4, count, dtype=np.uint8)]


def check_one(a, b, methods, **options):
    want = lcs.length(a, b, method="systolic", device="cpu", **options)
    for method in methods:
        found = lcs.length(a, b, method=method, device="cuda", **options)
        assert found == want, (method, a.size, b.size, found, want)
        matching = lcs.match(a, b, method=method, device="cuda", **options)
        assert len(matching) == want, (method, a.size, b.size, len(matching), want)
        assert (a[matching.in_a] == b[matching.in_b]).all(), (method, a.size, b.size)
    return want


def check(small):
    rng = np.random.default_rng(1)
    sizes = [(3_000, 2_500), (5_000, 1_100)] if small else [
        (m, n) for m in (3_000, 4_096, 4_097, 50_000, 300_001) for n in (1_500, 8_192, 100_003)
    ]  # fmt: skip
    for m, n in sizes:
        check_one(bases(rng, m), bases(rng, n), ("systolic", "adaptive"))
    for m, n in sizes[:2]:
        check_one(bases(rng, m), bases(rng, n), ("block-step",))
        text = [rng.integers(0, 90, x).astype(np.uint8) for x in (m, n)]
        check_one(*text, ("systolic",), text=True)
        text = [rng.integers(0, 20, x).astype(np.uint8) for x in (m, n)]
        check_one(*text, ("systolic",), text=True)
    log("checked", len(sizes) + 6, "pairs of sequences, all methods")


def kernel_rate(a, b, shape, warps=None):
    pair = pair_of(encode(a), encode(b), 4)
    shown = gpu.lcs.WARPS_PER_MULTIPROCESSOR
    gpu.lcs.WARPS_PER_MULTIPROCESSOR = warps or shown
    card = gpu.lcs.Card(pair.a, pair.b, 4, 2, shape)
    passes, splits = whole(pair, both=True)
    card.reserve(int((passes.at + passes.stride)[-1]))
    times = []
    for _ in range(4):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        card.sweep(passes)
        end.record()
        end.synchronize()
        times.append(cuda.event_elapsed_time(begin, end) / 1e3)
    start = time.perf_counter()
    _, length = card.split(splits)
    cut = time.perf_counter() - start
    gpu.lcs.WARPS_PER_MULTIPROCESSOR = shown
    best = sorted(times[1:])[1]
    cells = pair.a.size * pair.b.size
    log(f"{pair.a.size:>10,} x {pair.b.size:>10,}  {shape}  warps {warps or shown}  "
        f"{best:.4f} s  {cells / best / 1e12:.1f} T cells/s  cut {1e3 * cut:.2f} ms  "
        f"length {length[0]}")  # fmt: skip


def shapes():
    rng = np.random.default_rng(2)
    a, b = bases(rng, 5_000_000), bases(rng, 5_000_000)
    for words in (4, 5, 8, 10):
        kernel_rate(a, b, GridShape(words, 4, 1))
    for warps in (4, 12, 16, 32):
        kernel_rate(a, b, GridShape(4, 4, 1), warps)
    for size in (1_000_000, 2_000_000, 4_000_000):
        kernel_rate(a[:size], b[:size], GridShape(4, 4, 1))


def whole_answers(sizes):
    rng = np.random.default_rng(3)
    for m, n in sizes:
        a, b = bases(rng, m), bases(rng, n)
        for method in ("systolic", "adaptive"):
            options = {"method": method, "device": "cuda"}
            took, length = least_and_result(partial(lcs.length, a, b, **options), 3, warm=False)
            rate = m * n / took / 1e12
            log(f"{m:>10,} x {n:>10,}  length    {method:<9} {took:.3f} s  {rate:.1f} T cells/s")
            took, found = least_and_result(partial(lcs.match, a, b, **options), 3, warm=False)
            assert len(found) == length
            assert (a[found.in_a] == b[found.in_b]).all()
            log(f"{m:>10,} x {n:>10,}  sequence  {method:<9} {took:.3f} s")


def large(m=20_000_000, n=10_000_000):
    """The paper's largest pair: seconds of one run each, and the memory beside the sequences."""
    rng = np.random.default_rng(3)
    codes = [rng.integers(0, 4, x, dtype=np.uint8) for x in (m, n)]
    choice = lcs.choose_method("systolic", "cuda")
    context = cuda.current_context()
    # what other runs have left
    gc.collect()
    context.deallocations.clear()
    free = context.get_memory_info()[0]
    least = free

    def told(cells):
        nonlocal least
        least = min(least, context.get_memory_info()[0])

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = partial(solve.length_of, *codes, 4, choice, usable_cores(), told)
    took, length = least_and_result(run, 1, warm=False)
    rate = m * n / took / 1e12
    log(f"{m:>10,} x {n:>10,}  length    systolic  {took:.3f} s  {rate:.1f} T cells/s")
    log(f"  device memory {(free - least) / 1e6:.0f} MB")
    run = partial(solve.matching_of, *codes, 4, choice, usable_cores(), told)
    took, found = least_and_result(run, 1, warm=False)
    assert len(found) == length
    assert (codes[0][found.in_a] == codes[1][found.in_b]).all()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log(f"{m:>10,} x {n:>10,}  sequence  systolic  {took:.3f} s")
    log(f"  device memory {(free - least) / 1e6:.0f} MB, host peak {after / 1e3:.0f} MB, "
        f"{before / 1e3:.0f} MB before")  # fmt: skip


def main():
    options = argparse.ArgumentParser()
    for name in ("--small", "--shapes", "--no-large", "--skip-check", "--profile"):
        options.add_argument(name, action="store_true")
    chosen = options.parse_args()
    log(cuda.get_current_device().name)
    if chosen.profile:
        rng = np.random.default_rng(2)
        kernel_rate(bases(rng, 5_000_000), bases(rng, 1_500_000), GridShape(10, 4, 1))
        return
    if not chosen.skip_check:
        check(chosen.small)
    if chosen.small:
        return
    if chosen.shapes:
        shapes()
    whole_answers([(100_000, 100_000), (1_000_000, 1_000_000), (5_000_000, 5_000_000)])
    if not chosen.no_large:
        large()


if __name__ == "__main__":
    main()
