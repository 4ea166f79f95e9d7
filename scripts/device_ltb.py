"""Times of the Levenshtein Tree Bitmap kernels on a card, over grids and blocks: a short table.

python scripts/device_ltb.py tune|figures|dictionaries ...
"""

from __future__ import annotations

import os
import sys

import gpu.ltb
from gpu.kernels.ltb import sliced
from streamer.bench import ltb
from streamer.bench.table import machine_line, print_table


def tests():
    """The tests of the kernels, in this process: what they compile is used again."""
    import pytest

    options = ["-c", "/dev/null", "--rootdir", ".", "-q", "-p", "no:cacheprovider", "-x"]
    chosen = os.environ.get("CHOSEN", "not set_of_states")
    assert (
        pytest.main([*options, "-W", "ignore", "tests/gpu/test_ltb_kernels.py", "-k", chosen]) == 0
    )


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


PARTS = {
    "tests": tests,
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
