"""Levenshtein kernels on a card: equal to the CPU, then ends a second, by dictionary and scheme.

    python scripts/device_levenshtein.py [kernels] [groups] [engine] [growth] [one]

One strand; ids and starts included. "all" is clearing, scan and the list of hits, "scan" alone.
engine: host memory to host results, packing included. one: the first dictionary alone, for ncu.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from numba import cuda

from gpu import levenshtein as near
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein_pieces import Scheme, build
from trie.levenshtein_scan import nearest_words

SIZE = 1 << 26
CHECKED = 300_000


def median_seconds(work, repeats=5):
    work()
    found = []
    for _ in range(repeats):
        first, last = cuda.event(), cuda.event()
        first.record()
        work()
        last.record()
        last.synchronize()
        found.append(cuda.event_elapsed_time(first, last) / 1e3)
    return sorted(found)[repeats // 2]


def scheme(k, distance, paired, width):
    spacing = k // (distance + (2 if paired else 1))
    return Scheme(k, distance, spacing, width, tuple(range(distance + 1)) if paired else (-1,))


CASES = [
    (1_000_000, 21, 1, [None]),
    (1_000_000, 21, 2, [None]),
    (10_000, 21, 1, [None]),
    (10_000, 21, 2, [None, (True, 4)]),
    (10_000, 21, 3, [None]),
    (96, 24, 3, [None]),
]


def timed(index, buffers):
    """Seconds of all kernels, and of the scan alone; the registers of that."""
    chosen = index.scheme
    name = f"scan{chosen.distance}" + ("_paired" if chosen.paired else "")
    groups = near.MOST_GROUPS
    numbers = (SIZE, 0, groups, chosen.k, chosen.spacing, chosen.width, len(chosen.gaps))
    planes, out = buffers.views(SIZE)
    kernel, threads = near.kernel(name), near.kernels.THREADS

    def scan():
        kernel[-(-SIZE // (threads * groups)), threads](
            *planes, *map(np.uint32, numbers), index.buckets, index.entries, index.ranks, out
        )

    whole = median_seconds(lambda: near.launch(index, buffers, SIZE, 0))
    return whole, median_seconds(scan), list(kernel.get_regs_per_thread().values())


def dictionary(rng, number, k, distance):
    codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
    return Patterns.of(codes, k, distance, both=False)


def kernels(rng, bases, offsets, cases=CASES):
    chunk = near.pack_planes(bases, offsets, threads=16)
    began = time.perf_counter()
    chunk = near.pack_planes(bases, offsets, threads=16)
    print(f"packing {SIZE / (time.perf_counter() - began) / 1e9:.1f} G symbols/s", flush=True)
    buffers = near.NearBuffers(SIZE)
    buffers.upload(chunk)
    for number, k, distance, variants in cases:
        patterns = dictionary(rng, number, k, distance)
        on_cpu = build(patterns, threads=16)
        cpu = nearest_words(patterns, on_cpu, bases, offsets, stop=CHECKED, threads=16)
        for variant in variants:
            chosen = near.gpu_scheme(patterns) if variant is None else scheme(k, distance, *variant)
            began = time.perf_counter()
            host = build(patterns, chosen, planar=True)
            built = time.perf_counter() - began
            index = near.DeviceIndex(host)
            began = time.perf_counter()
            near.launch(index, buffers, SIZE, 0)
            got = buffers.out[:CHECKED].copy_to_host()
            compiled = time.perf_counter() - began
            equal = np.array_equal(got, cpu)
            whole, scan, registers = timed(index, buffers)
            hits = int(buffers.counter.copy_to_host()[0])
            print(
                f"{number:>9} k {k} D {distance} {'01*0' if chosen.paired else 'pigeonhole':>10} "
                f"w {chosen.width:>2}  all {SIZE / whole / 1e9:7.2f} G/s  scan "
                f"{SIZE / scan / 1e9:7.2f} G/s  equal {equal} ({int((cpu != NOTHING).sum())})  "
                f"hits {hits}  regs {registers}  first {compiled:.1f} s  tables "
                f"{near.DeviceIndex.nbytes(host) / 1e6:.1f} MB in {built:.2f} s",
                flush=True,
            )


def groups(rng, bases, offsets):
    """How many places a warp takes one after another."""
    for near.MOST_GROUPS in (4, 8, 28):
        print(f"groups {near.MOST_GROUPS}")
        kernels(rng, bases, offsets, [(1_000_000, 21, 1, [None]), (96, 24, 3, [None])])
    near.MOST_GROUPS = 16


def engine(rng, bases, offsets):
    """Host memory to host results."""
    from gpu.levenshtein_stream import NearEngine

    for number, k, distance in ((1_000_000, 21, 1), (10_000, 21, 2), (96, 24, 3)):
        patterns = dictionary(rng, number, k, distance)
        index = near.gpu_index(patterns)
        matching = NearEngine(k, distance, chunk=1 << 23, threads=16)
        for _ in range(3):
            began = time.perf_counter()
            parts = matching.match([index], bases, offsets, 0, SIZE)
            found = sum(words.size for _, _, words in parts)
            seconds = time.perf_counter() - began
        rate = SIZE / seconds / 1e9
        print(f"engine {number} k {k} D {distance}: {rate:.2f} G/s, {found} hits", flush=True)
        matching.close()


def growth(rng, bases, offsets):
    """What the next batch pays after a dictionary has grown."""
    from streamer.matching.approximate import Options
    from streamer.matching.approximate.levenshtein import LevenshteinSolver
    from streamer.matching.approximate.result import Step
    from streamer.reads import ReadBatch

    few = ReadBatch(["a"], np.array([0, 1 << 20]), bases[: 1 << 20])
    codes = np.unique(rng.integers(0, 4**21, 1_000_000, dtype=np.uint64))
    solver = LevenshteinSolver(codes, 21, 1, False, Options(device="cuda", threads=16))
    for new in (0, 0, 10_000, 10_000, 100_000, 1_000_000):
        if new:
            solver.learn(rng.integers(0, 4**21, new, dtype=np.uint64))
        began = time.perf_counter()
        solver.match(few, Step(0, 1 << 20, 1))
        milliseconds = (time.perf_counter() - began) * 1e3
        print(f"growth: {new} new k-mers, next million ends {milliseconds:.1f} ms", flush=True)


def main():
    rng = np.random.default_rng(5)
    bases = rng.integers(0, 4, SIZE, dtype=np.uint8)
    offsets = np.arange(0, SIZE + 1, SIZE // 64).astype(np.int64)
    parts = {"kernels": kernels, "groups": groups, "engine": engine, "growth": growth}
    parts["one"] = lambda *given: kernels(*given, CASES[:1])
    for name in sys.argv[1:] or list(parts)[:-1]:
        parts[name](rng, bases, offsets)


main()
