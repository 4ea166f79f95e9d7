"""Levenshtein kernels on a card: equal to the CPU, then ends a second, by dictionary and scheme.

    python scripts/device_levenshtein.py [symbols]

One strand; ids and starts included. "all" is clearing, scan and the list of hits, "scan" alone.
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

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 26
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
    (1_000_000, 21, 1, [None, (False, 9)]),
    (1_000_000, 21, 2, [None, (False, 7)]),
    (10_000, 21, 1, [None, (False, 9), (False, 8)]),
    (10_000, 21, 2, [None, (False, 6), (True, 4)]),
    (10_000, 21, 3, [None, (True, 3), (False, 5)]),
    (96, 24, 3, [None, (False, 5)]),
    (96, 24, 4, [None, (True, 3), (True, 4)]),
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


def main():
    rng = np.random.default_rng(5)
    bases = rng.integers(0, 4, SIZE, dtype=np.uint8)
    offsets = np.arange(0, SIZE + 1, SIZE // 64).astype(np.int64)
    chunk = near.pack_planes(bases, offsets, threads=16)
    began = time.perf_counter()
    chunk = near.pack_planes(bases, offsets, threads=16)
    print(f"packing {SIZE / (time.perf_counter() - began) / 1e9:.1f} G symbols/s", flush=True)
    buffers = near.NearBuffers(SIZE)
    buffers.upload(chunk)
    for number, k, distance, variants in CASES:
        codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
        patterns = Patterns.of(codes, k, distance, both=False)
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


main()
