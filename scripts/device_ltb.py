"""Times of the Levenshtein Tree Bitmap kernels on a card, over grids and blocks: a short table.

python scripts/device_ltb.py tests|tune-sliced|figures|dictionaries|engine|small ...

small: every kernel over a few hundred symbols, for compute-sanitizer.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from streamer.bench.table import machine_line, print_table

import gpu.ltb
import gpu.ltb.kernels
from gpu.ltb import sliced
from streamer.bench import ltb
from tests.gpu.plain import ltb_bitmaps


def tests():
    """The tests of the kernels, in this process: what they compile is used again."""
    import pytest

    options = ["-c", "/dev/null", "--rootdir", ".", "-q", "-p", "no:cacheprovider", "-x"]
    chosen = os.environ.get("CHOSEN", "not set_of_states")
    tests = "tests/gpu/ltb/test_ltb_kernels.py"
    assert pytest.main([*options, "-W", "ignore", tests, "-k", chosen]) == 0


def tune_sliced():
    rows = []
    for kmers, k, distance in ltb.DICTIONARIES:
        tree, batch = ltb.random_input(kmers, k, max(50_000_000 // (1 + kmers // 2000), 1000))
        for threads in (64, 128):
            for warps in (4, 16):
                sliced.THREADS = threads
                gpu.ltb.SLICED_WARPS = warps * 528
                times = ltb.on_cuda(tree, batch, distance, ("ltb-sliced",), 3)
                rate = batch[0].size / times["ltb-sliced"]
                rows.append(
                    {"k-mers": kmers, "k": k, "D": distance, "threads": threads, "warps": warps}
                    | {"symbols/s": rate}
                )
    print_table("Bit-sliced", rows)


def engine():
    """Host memory to host results, and milliseconds a chunk of each stage."""
    from gpu.card.timeline import Timeline
    from gpu.ltb.stream import LtbEngine

    rows = []
    for kmers, k, distance, total in ((96, 24, 3, 1 << 27), (10_000, 21, 2, 1 << 24)):
        tree, batch = ltb.random_input(kmers, k, total)
        for chunk, streams in ((1 << 22, 2), (1 << 23, 2), (1 << 23, 1)):
            matching = LtbEngine(k, distance, chunk=chunk, streams=streams, threads=16)
            best = float("inf")
            for _ in range(3):
                began = time.perf_counter()
                matching.match(tree, *batch)
                best = min(best, time.perf_counter() - began)
            matching.close()
            timeline = Timeline()
            matching = LtbEngine(
                k, distance, chunk=chunk, streams=streams, threads=16, timeline=timeline
            )
            matching.match(tree, *batch)
            row = {"k-mers": kmers, "chunk": chunk, "streams": streams, "symbols/s": total / best}
            for bar in timeline.activities():
                name = f"{bar.row} ms"
                row[name] = row.get(name, 0.0) + (bar.end - bar.begin) / -(-total // chunk)
            rows.append(row)
            matching.close()
    print_table("Engine", rows)


def small():
    from trie.ltb import approximate

    tree, (bases, _) = ltb.random_input(40, 7, 700)
    bases[100:130] = 4
    offsets = np.array([0, 5, 300, 300, 700], dtype=np.int64)
    for distance in (0, 2):
        want = approximate(tree, bases, offsets, distance)
        for method in gpu.ltb.kernels.KERNELS:
            got = ltb_bitmaps(gpu.ltb.DeviceLtb(tree), bases, offsets, distance, method=method)
            equal = all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
            print(f"small: {method} D {distance}: equal {equal}", flush=True)


PARTS = {
    "tests": tests,
    "tune-sliced": tune_sliced,
    "figures": lambda: (
        print_table("Fig. 37", ltb.figure_37(cuda=True)),
        print_table("Fig. 37, D = 1", ltb.figure_37(distance=1, cuda=True)),
        print_table("Fig. 38", ltb.figure_38()),
    ),
    "engine": engine,
    "small": small,
    "dictionaries": lambda: print_table("Dictionaries", ltb.dictionaries(cuda=True)),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    chosen = parser.parse_args().parts
    print(machine_line())
    for part in chosen:
        PARTS[part]()


if __name__ == "__main__":
    main()
