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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]

import cases  # noqa: E402
import numpy as np  # noqa: E402
from numba import cuda  # noqa: E402

from gpu.compiled import KERNELS  # noqa: E402
from gpu.device_tree import DeviceTree  # noqa: E402
from gpu.match import ChunkBuffers, launch, match_chunk  # noqa: E402
from gpu.packing import pack_chunk  # noqa: E402
from gpu.reference import expected  # noqa: E402
from trie.tree_bitmap import from_sorted, snapshot  # noqa: E402

SEED = 20_000_000


def log(*words):
    print(*words, flush=True)


def check(some):
    """Compare every kernel with brute force, with and without words; the number of comparisons."""
    compared = 0
    for case in some:
        tree = DeviceTree(snapshot(case.dictionary, case.k))
        chunk = pack_chunk(case.bases, case.offsets, case.k)
        events, words = expected(
            case.bases, case.offsets, case.k, case.dictionary,
            canonical=case.strands == "canonical",
        )  # fmt: skip
        for method in KERNELS:
            for capacity in (None, 1, words.size) if words.size else (None,):
                found = match_chunk(
                    tree, chunk, method=method, strands=case.strands,
                    with_words=capacity is not None, word_capacity=capacity,
                )  # fmt: skip
                compared += 1
                if not np.array_equal(found.events(), events):
                    log("WRONG events", method, case.name, capacity)
                    log(np.flatnonzero(found.events() != events)[:10])
                    sys.exit(1)
                if capacity is not None and not np.array_equal(found.words, words):
                    log("WRONG words", method, case.name, capacity)
                    sys.exit(1)
    return compared


def check_agreement():
    """All kernels on a larger random input, frozen at some k, against each other and the CPU."""
    for k in (9, 15, 21, 31):
        for strands in ("forward", "canonical"):
            case = cases.make(k, strands, 300_000, k, reads=50, gaps=40)
            tree = DeviceTree(snapshot(case.dictionary, k))
            chunk = pack_chunk(case.bases, case.offsets, k, threads=4)
            events, words = expected(
                case.bases, case.offsets, k, case.dictionary, canonical=strands == "canonical"
            )
            for method in ("walk", "shuffle"):
                found = match_chunk(tree, chunk, method=method, strands=strands, with_words=True)
                assert np.array_equal(found.events(), events), (method, case.name)
                assert np.array_equal(found.words, words), (method, case.name)


def milliseconds(queue, repeats=11):
    """Median time of one call of ``queue``, by events."""
    queue()
    queue()
    cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        queue()
        end.record()
        end.synchronize()
        times.append(cuda.event_elapsed_time(begin, end))
    return float(np.median(times))


def bench_input(k, kmers=10_000_000, symbols=1 << 27, read=1024, canonical=False):
    """A dictionary of all windows of a random sequence; reads half from it, half random."""
    rng = np.random.default_rng(SEED)
    sequence = rng.integers(0, 4, kmers + k - 1, dtype=np.uint8)
    chunk = pack_chunk(sequence, np.array([0, sequence.size]), k, threads=8)
    del chunk
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
    codes, stream, offsets = bench_input(k, **options)
    tree = from_sorted(codes, k, threads=16)
    begin = time.perf_counter()
    packed = pack_chunk(stream, offsets, k, threads=16)
    took = time.perf_counter() - begin
    device = DeviceTree(tree)
    buffers = ChunkBuffers(packed.symbols, word_capacity=packed.symbols)
    buffers.bases.copy_to_device(packed.bases)
    buffers.starts.copy_to_device(packed.starts)
    cuda.synchronize()
    return codes, stream, offsets, packed, device, buffers, took


def time_all(ks):
    rows = []
    for k in ks:
        codes, stream, offsets, packed, device, buffers, took = setup(k)
        windows = packed.windows()
        for method in ("walk", "shuffle"):
            for words in (False, True):

                def queue(method=method, words=words):
                    launch(
                        device, buffers, packed.symbols, method=method, strands="forward",
                        with_words=words,
                    )  # fmt: skip

                ms = milliseconds(queue)
                found = buffers.matches.copy_to_host()
                hits = int(np.bitwise_count(found[: packed.starts.size]).sum())
                rows.append((k, method, words, ms, windows / ms / 1e6, hits / windows))
                log(
                    f"k={k:2d} {method:8s} {'words' if words else 'bits ':5s} {ms:8.3f} ms "
                    f"{windows / ms / 1e6:7.2f} G windows/s  hits {hits / windows:.3f}"
                )
        log(
            f"      {device.node_count} nodes, {device.nbytes >> 20} MiB; packing {packed.symbols / took / 1e9:.2f} G/s"
        )
        if k == 15:

            def queue():
                launch(device, buffers, packed.symbols, strands="canonical")

            ms = milliseconds(queue)
            log(f"k=15 walk canonical (forward dictionary) {windows / ms / 1e6:.2f} G windows/s")
            variants(device, packed, buffers, windows)
        del device, buffers
    return rows


def variants(device, packed, buffers, windows):
    """Other launch shapes and register limits, for the record."""
    from gpu.kernels import shuffle, walk

    k = device.k
    base_words = packed.bases.size
    stream = (buffers.bases[:base_words], buffers.starts[: packed.starts.size])
    out = buffers.matches[: packed.starts.size]
    for threads in (128, 256, 512, 1024):
        for level in (0, 1, 2, 3):
            if level < 3 and threads != 256:
                continue
            kernel = cuda.jit(walk.walk_bits(k, False, level))
            from gpu.kernels import derive

            table = cuda.device_array(2 * 64**level, np.uint64)
            cuda.jit(derive.jump(level))[-(-(64**level) // 256), 256](device.nodes, table)
            grid = -(-32 * packed.starts.size // threads)
            ms = milliseconds(
                lambda: kernel[grid, threads](*stream, table, device.nodes, device.leaves, out)
            )
            log(f"  walk  jump {level} block {threads:4d}: {windows / ms / 1e6:7.2f} G/s")
    for registers in (None, 32, 40, 48):
        options = {"max_registers": registers} if registers else {}
        kernel = cuda.jit(**options)(shuffle.shuffle(k, False))
        for threads in (64, 128, 256):
            for piece in (512, 1024, 4096):
                grid = -(-(-(-packed.symbols // piece)) * shuffle.sub_warp(k) // threads)
                ms = milliseconds(
                    lambda: kernel[grid, threads](
                        *stream, np.uint32(packed.symbols), np.uint32(0), np.uint32(piece),
                        device.nodes, out, buffers.words, buffers.counter,
                    ),
                    5,
                )  # fmt: skip
                if piece == 1024 or threads == 128:
                    used = next(iter(kernel.get_regs_per_thread().values()))
                    log(
                        f"  shuffle regs {used} block {threads} piece {piece}: {windows / ms / 1e6:7.2f} G/s"
                    )


def time_naive():
    case = cases.make(15, "forward", 50_000, 5, kmers=1000, share=0.02)
    tree = DeviceTree(snapshot(case.dictionary, 15))
    chunk = pack_chunk(case.bases, case.offsets, 15)
    buffers = ChunkBuffers(chunk.symbols)
    buffers.bases.copy_to_device(chunk.bases)
    buffers.starts.copy_to_device(chunk.starts)
    ms = milliseconds(
        lambda: launch(tree, buffers, chunk.symbols, method="naive", strands="forward"), 3
    )
    log(
        f"naive k=15, {tree.node_count} nodes, 50,000 symbols: {ms:.2f} ms, {50_000 / ms / 1e3:.2f} M windows/s"
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
        _, _, _, packed, device, buffers, _ = setup(15)
        for method in ("walk", "shuffle"):
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
    time_all(options.k)


if __name__ == "__main__":
    main()
