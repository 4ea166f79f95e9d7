"""Times of the Levenshtein Tree Bitmap kernels on a card, over grids and blocks: a short table.

python scripts/device_ltb.py tune|figures|dictionaries ...
"""

from __future__ import annotations

import sys

import gpu.ltb
from gpu.kernels.ltb import efficient, naive, queue, sliced
from streamer.bench import ltb
from streamer.bench.table import machine_line, print_table


def tune():
    rows = []
    for k in (6, 12):
        tree, batch = ltb.thesis_input(k, ltb.STREAM_38)
        for threads, warps in ((256, 16), (256, 32), (256, 64), (1024, 32), (1024, 64)):
            naive.THREADS = efficient.THREADS = threads
            gpu.ltb.BLOCKS = 132 * warps * 32 // threads
            methods = gpu.ltb.KERNELS[1 : 4 if threads == queue.THREADS else 3]
            times = ltb.on_cuda(tree, batch, 2, methods, 2)
            row = {"k": k, "threads": threads, "warps/SM": warps}
            rows.append(row | {method: times.get(method) for method in gpu.ltb.KERNELS[1:]})
    naive.THREADS = efficient.THREADS = 256
    print_table("Grids, seconds", rows)
    print({method: gpu.ltb.occupancy(method) for method in gpu.ltb.KERNELS[1:]})


def tune_sliced():
    rows = []
    for kmers, k, distance in ltb.DICTIONARIES:
        tree, batch = ltb.random_input(kmers, k, max(50_000_000 // (1 + kmers // 2000), 1000))
        for threads in (64, 128, 256):
            for warps in (4, 16, 64):
                sliced.THREADS = threads
                gpu.ltb.SLICED_WARPS = warps * 528
                times = ltb.on_cuda(tree, batch, distance, ("ltb-sliced",), 3)
                rate = batch[0].size / times["ltb-sliced"]
                rows.append(
                    {"k-mers": kmers, "k": k, "D": distance, "threads": threads, "warps": warps}
                    | {"symbols/s": rate}
                )
    print_table("Bit-sliced", rows)


PARTS = {
    "tune": tune,
    "tune-sliced": tune_sliced,
    "figures": lambda: (
        print_table("Fig. 37", ltb.figure_37(cuda=True)),
        print_table("Fig. 37, D = 1", ltb.figure_37(distance=1, cuda=True)),
        print_table("Fig. 38", ltb.figure_38()),
    ),
    "dictionaries": lambda: print_table("Dictionaries", ltb.dictionaries(cuda=True)),
}

if __name__ == "__main__":
    print(machine_line())
    for part in sys.argv[1:]:
        PARTS[part]()
