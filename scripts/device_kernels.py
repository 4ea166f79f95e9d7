#!/usr/bin/env python3
"""Check every exact-match kernel on a CUDA device against brute force, then time them.

scripts/device_kernels.py                 check, then time (a few minutes on first use)
scripts/device_kernels.py --small         check a few small inputs only (for compute-sanitizer)
scripts/device_kernels.py --profile       launch walk and shuffle once at k = 15 (for ncu)

compute-sanitizer --tool memcheck  python scripts/device_kernels.py --small
compute-sanitizer --tool racecheck python scripts/device_kernels.py --small
ncu --clock-control none -k 'regex:walk|kernel' python scripts/device_kernels.py --profile
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
from numba import cuda  # noqa: E402

from gpu.card.packing import pack_chunk  # noqa: E402
from gpu.exact import bucket_table as buckets  # noqa: E402
from gpu.exact.chunk_match import ChunkBuffers, launch  # noqa: E402
from gpu.exact.device_tree import DeviceTree  # noqa: E402
from gpu.exact.kernels import KERNELS  # noqa: E402
from streamer.bench.timing import median_on_card  # noqa: E402
from tests.gpu import cases  # noqa: E402
from tests.gpu.plain import match_chunk  # noqa: E402
from tests.reference.exact_events import expected  # noqa: E402
from trie.snapshots.tree_bitmap import from_sorted, snapshot  # noqa: E402

# small inputs leave most of a card idle, which is no news here
warnings.filterwarnings("ignore", message=".*under-utilization.*")

SEED = 20_000_000


def log(*words):
    print(*words, flush=True)


def check(some):
    """Compare every kernel with brute force, with and without words; the number of comparisons."""
    compared = 0
    for at, case in enumerate(some):
        # every other table of buckets is too small, so that windows fall back on the trie
        buckets.OVERFLOWING = 0.7 if at % 2 else 0.02
        tree = DeviceTree(snapshot(case.dictionary, case.k), with_buckets=True)
        chunk = pack_chunk(case.bases, case.offsets, case.k)
        events, words = expected(
            case.bases, case.offsets, case.k, case.dictionary,
            canonical=case.strands == "canonical",
        )  # fmt: skip
        for method in KERNELS:
            capacities = (None, 1, words.size) if words.size and method != "buckets" else (None,)
            for capacity in capacities:
                found = match_chunk(
                    tree, chunk, method=method, strands=case.strands,
                    with_words=capacity is not None, word_capacity=capacity,
                )  # fmt: skip
                compared += 1
                wrong = np.flatnonzero(found.events() != events)
                if wrong.size:
                    sys.exit(f"WRONG events {method} {case.name} {capacity} at {wrong[:10]}")
                if capacity is not None and not np.array_equal(found.words, words):
                    sys.exit(f"WRONG words {method} {case.name} {capacity}")
    buckets.OVERFLOWING = 0.02
    return compared


def check_agreement():
    """All kernels on a larger random input, frozen at some k, against each other and the CPU."""
    for k in (9, 15, 21, 31):
        for strands in ("forward", "canonical"):
            case = cases.make(k, strands, 300_000, k, reads=50, gaps=40)
            tree = DeviceTree(snapshot(case.dictionary, k), with_buckets=True)
            chunk = pack_chunk(case.bases, case.offsets, k, threads=4)
            events, words = expected(
                case.bases, case.offsets, k, case.dictionary, canonical=strands == "canonical"
            )
            found = match_chunk(tree, chunk, method="buckets", strands=strands)
            assert np.array_equal(found.events(), events), ("buckets", case.name)
            for method in ("walk", "shuffle"):
                found = match_chunk(tree, chunk, method=method, strands=strands, with_words=True)
                assert np.array_equal(found.events(), events), (method, case.name)
                assert np.array_equal(found.words, words), (method, case.name)


def bench_input(k, kmers=10_000_000, symbols=1 << 27, read=1024, canonical=False):
    """A dictionary of all windows of a random sequence; reads half from it, half random."""
    rng = np.random.default_rng(SEED)
    sequence = rng.integers(0, 4, kmers + k - 1, dtype=np.uint8)
    codes = np.zeros(kmers, dtype=np.uint64)
    for i in range(k):
        codes = (codes << np.uint64(2)) | sequence[i : i + kmers]
    if canonical:
        reverse = np.zeros(kmers, dtype=np.uint64)
        for i in reversed(range(k)):
            reverse = (reverse << np.uint64(2)) | (3 - sequence[i : i + kmers])
        codes = np.minimum(codes, reverse)
    codes.sort()
    codes = codes[np.concatenate(([True], codes[1:] != codes[:-1]))]
    reads = symbols // read
    stream = rng.integers(0, 4, symbols, dtype=np.uint8).reshape(reads, read)
    begins = rng.integers(0, sequence.size - read, reads // 2)
    for row, begin in enumerate(begins):
        stream[2 * row] = sequence[begin : begin + read]
    offsets = np.arange(0, symbols + 1, read, dtype=np.int64)
    return codes, stream.reshape(-1), offsets


def setup(k, **options):
    """The chunk, the snapshot on the card and buffers that hold the chunk."""
    codes, stream, offsets = bench_input(k, **options)
    tree = from_sorted(codes, k, threads=16)
    begin = time.perf_counter()
    packed = pack_chunk(stream, offsets, k, threads=16)
    packing = packed.symbols / (time.perf_counter() - begin) / 1e9
    DeviceTree(tree, with_buckets=True)
    cuda.synchronize()
    begin = time.perf_counter()
    device = DeviceTree(tree, with_buckets=True)
    cuda.synchronize()
    took = 1e3 * (time.perf_counter() - begin)
    log(
        f"k={k}: {codes.size} k-mers, {device.node_count} nodes, {device.nbytes >> 20} MiB on the "
        f"card in {took:.0f} ms, {device.shape}; packed at {packing:.1f} G symbols/s"
    )
    buffers = ChunkBuffers(packed.symbols, word_capacity=packed.symbols)
    buffers.bases.copy_to_device(packed.bases)
    buffers.starts.copy_to_device(packed.starts)
    cuda.synchronize()
    return packed, device, buffers, tree


TIMED = (
    ("buckets", False),
    ("walk", False),
    ("walk", True),
    ("shuffle", False),
    ("shuffle", True),
)


def time_all(k, strands):
    """One row a kernel: time, windows a second, share of matches."""
    packed, device, buffers, tree = setup(k, canonical=strands == "canonical")
    windows = packed.windows()
    for method, words in TIMED:
        ms = 1e3 * median_on_card(
            partial(
                launch, device, buffers, packed.symbols, method=method, strands=strands,
                with_words=words,
            )
        )  # fmt: skip
        found = buffers.matches[: packed.starts.size].copy_to_host()
        hits = int(np.bitwise_count(found).sum())
        log(
            f"  {k:2d} {strands:9s} {method:8s} {'words' if words else 'bits':5s} {ms:8.3f} ms "
            f"{windows / ms / 1e6:7.2f} G windows/s, matches {hits / windows:.4f}"
        )
    if strands == "forward":
        time_shapes(device, packed, buffers, tree)


SHAPES = {
    15: ((20, 2), (20, 4), (21, 2), (21, 4), (22, 2)),
    21: ((20, 4), (21, 2), (21, 4), (22, 2), (23, 2)),
    31: ((22, 4), (23, 2), (23, 4)),
}
"""Bucket bits and words a bucket: what was chosen, and what was not."""


def time_shapes(device, packed, buffers, tree):
    """Other shapes of the bucket table, for the record."""
    stream = (buffers.bases[: packed.bases.size], buffers.starts[: packed.starts.size])
    out = buffers.matches[: packed.starts.size]
    windows = packed.windows()
    for bits, words in SHAPES.get(device.k, ()):
        shape = buckets.BucketShape(device.k, bits, words)
        device._fill_buckets(tree, shape, 0)
        rest = (device.table, device.jump, device.nodes, device.leaves, out)
        kernel = cuda.jit(buckets.lookup(shape, False))
        grid = -(-32 * packed.starts.size // buckets.THREADS)
        ms = 1e3 * median_on_card(partial(kernel[grid, buckets.THREADS], *stream, *rest))
        over = 100 * buckets.overflowing(shape, 10_000_000)
        log(
            f"     buckets 2^{bits} x {8 * words} B ({shape.size >> 17} MiB, "
            f"{over:.2f} % overflow): {windows / ms / 1e6:7.2f} G windows/s"
        )


def time_naive():
    case = cases.make(15, "forward", 50_000, 5, kmers=1000, share=0.02)
    tree = DeviceTree(snapshot(case.dictionary, 15))
    chunk = pack_chunk(case.bases, case.offsets, 15)
    buffers = ChunkBuffers(chunk.symbols)
    buffers.bases.copy_to_device(chunk.bases)
    buffers.starts.copy_to_device(chunk.starts)
    ms = 1e3 * median_on_card(
        lambda: launch(tree, buffers, chunk.symbols, method="naive", strands="forward"), 3
    )
    log(
        f"naive k=15, {tree.node_count} nodes, 50,000 symbols: {ms:.2f} ms, "
        f"{50_000 / ms / 1e3:.2f} M windows/s"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--small-from", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--k", type=int, nargs="*", default=[6, 9, 12, 15, 21, 31])
    parser.add_argument("--part", default="0/1", help="i/n: only check, every n-th case from i on")
    options = parser.parse_args()
    import numba_cuda

    name = cuda.get_current_device().name
    log(
        name,
        "numba-cuda",
        numba_cuda.__version__,
        "runtime",
        cuda.runtime.get_version(),
        "numpy",
        np.__version__,
    )
    if options.small:
        log(check(cases.small()[options.small_from :: 5]), "comparisons, all equal")
        return
    if options.part != "0/1":
        part, parts = map(int, options.part.split("/"))
        some = [case for case in cases.small() + cases.large() if case.k % parts == part]
        log(check(some), "comparisons, all equal", options.part)
        return
    if options.profile:
        packed, device, buffers, _ = setup(15)
        for method in ("buckets", "walk", "shuffle"):
            launch(device, buffers, packed.symbols, method=method, strands="forward")
        cuda.synchronize()
        return
    if not options.no_check:
        begin = time.perf_counter()
        log(
            check(cases.small() + cases.large()),
            "comparisons, all equal",
            f"{time.perf_counter() - begin:.0f} s",
        )
        check_agreement()
        log("300,000 symbols, all equal", f"{time.perf_counter() - begin:.0f} s")
        time_naive()
    for k in options.k:
        time_all(k, "forward")
        if k in (15, 31):
            time_all(k, "canonical")


if __name__ == "__main__":
    main()
