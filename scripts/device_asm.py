"""Approximate pattern search on a CUDA device: checked against the CPU, then timed.

python scripts/device_asm.py [--check [--lengths M ...]] [--small] [--time] [--symbols N]
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np

import gpu.asm as card
from gpu.asm.sliced import SlicedHits, SlicedPatterns, SlicedText, Workspace
from gpu.card.intrinsics import cuda
from streamer.batch import asm
from streamer.batch.asm.patterns import masks_of
from streamer.bench.timing import least_seconds

SEED = 20
LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def log(*words):
    print(*words, flush=True)


def random_masks(rng, length):
    return masks_of(LETTERS[rng.integers(0, 4, length)].tobytes())


def small():
    """Few kernels and little text: for compute-sanitizer."""
    rng = np.random.default_rng(SEED)
    text = np.frombuffer(b"ACGT" * 20 + b"N", dtype=np.uint8)[rng.integers(0, 81, 140_000)]
    for size, length, k in ((3_000, 8, 7), (140_000, 8, 2), (3_000, 33, 3)):
        pattern = np.where(text[100 : 100 + length] == 78, 65, text[100 : 100 + length])
        wanted = asm.search(text[:size], [pattern], k, device="cpu")
        for method in card.METHODS:
            if method == "bit-parallel" or size < 100_000:
                got = asm.search(text[:size], [pattern], k, device="cuda", method=method)
                assert np.array_equal(got, wanted), (method, size, length, k)
        log(f"n={size} m={length} k={k}: {wanted.size} hits, all equal")


def check(lengths):
    """Every method against the CPU's bit-parallel one, which is held against brute force."""
    rng = np.random.default_rng(SEED)
    compared = 0
    for size in (1, 70_001, 3_000_000):
        text = np.frombuffer(b"ACGT" * 20 + b"N", dtype=np.uint8)[rng.integers(0, 81, size)]
        for length in lengths:
            at = int(rng.integers(0, max(1, size - length)))
            pattern = np.resize(text[at : at + length], length)
            pattern[length // 2] = 65
            if length % 2 == 0:
                pattern[pattern == 78] = 67
            for k in {2, 0 if size < 100_000 else 2, length - 1 if size < 100_000 else 2}:
                if k >= length:
                    continue
                patterns = [pattern, pattern[::-1]]
                wanted = asm.search(text, patterns, k, device="cpu", threads=16)
                for method in card.METHODS:
                    got = asm.search(text, patterns, k, device="cuda", method=method)
                    if not np.array_equal(got, wanted):
                        log("WRONG", method, size, length, k, got.size, wanted.size)
                        raise SystemExit(1)
                    compared += 1
            log(f"n={size} m={length}: {compared} comparisons, all equal")
    text = LETTERS[rng.integers(0, 4, 300_000)]
    patterns = [LETTERS[rng.integers(0, 4, int(n))] for n in rng.integers(6, 40, 100)]
    for report in ("all", "best"):
        wanted = asm.search(text, patterns, 3, device="cpu", report=report)
        got = asm.search(text, patterns, 3, device="cuda", report=report)
        assert np.array_equal(got, wanted), report
    codes = b"ACGTRYN" * 3000
    for method in card.METHODS:
        wanted = asm.search(codes, "ACRYNT", 1, device="cpu", iupac=True)
        got = asm.search(codes, "ACRYNT", 1, device="cuda", method=method, iupac=True)
        assert np.array_equal(got, wanted), method
    log(compared, "comparisons, all equal")


def milliseconds(queue, repeats=7):
    """Median time of one call by events, and its last result."""
    result = queue()
    queue()
    cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        result = queue()
        end.record()
        end.synchronize()
        times.append(cuda.event_elapsed_time(begin, end))
    return float(np.median(times)), result


def text_on_card(symbols):
    """Random symbols: 2**26 of them, over and over."""
    rng = np.random.default_rng(SEED)
    piece = cuda.to_device(rng.integers(0, 4, min(symbols, 1 << 26), dtype=np.uint8))
    text = cuda.device_array(symbols, np.uint8)
    for at in range(0, symbols, piece.size):
        stop = min(symbols, at + piece.size)
        text[at:stop].copy_to_device(piece[: stop - at])
    return text


def time_sliced(codes, length, k):
    """One pattern on text in the card's memory, every step and all of them."""
    space = Workspace()
    n = codes.size
    patterns = SlicedPatterns([random_masks(np.random.default_rng(SEED + length), length)])
    sliced_ms, text = milliseconds(lambda: SlicedText(n, length + k, 1, space).set_codes(codes), 3)
    scan_ms, hits = milliseconds(lambda: SlicedHits(text, patterns, k, space))
    list_ms, found = milliseconds(lambda: hits.listed(0, n, 1 << 40, space))

    def after_slicing():
        SlicedHits(text, patterns, k, space).listed(0, n, 1 << 40, space)

    def whole():
        there = SlicedText(n, length + k, 1, space).set_codes(codes)
        SlicedHits(there, patterns, k, space).listed(0, n, 1 << 40, space)

    g = n / 1e9
    rates = [g / (ms / 1e3) for ms in (sliced_ms, scan_ms, list_ms)]
    rates += [g / least_seconds(run, 9) for run in (after_slicing, whole)]
    cells = " | ".join(f"{rate:.0f}" for rate in rates)
    log(f"| {length} | {k} | {found.total / n:.5f} | {cells} | {text.groups} x {text.span}")


def time_many(codes, count, length, k):
    space = Workspace()
    rng = np.random.default_rng(SEED)
    patterns = SlicedPatterns([random_masks(rng, length) for _ in range(count)])
    text = SlicedText(codes.size, length + k, count, space).set_codes(codes)

    def whole():
        return SlicedHits(text, patterns, k, space).listed(0, codes.size, 1 << 40, space)

    ms, found = milliseconds(whole)
    log(
        f"{count} patterns of {length}, k={k}, {codes.size} symbols: {ms:.2f} ms, "
        f"{codes.size * count / ms / 1e6:.0f} G symbols x patterns/s, {found.total} hits"
    )


def time_host():
    """From the host's memory to the host's: codes to columns, and letters to rows."""
    codes = np.random.default_rng(SEED).integers(0, 4, 1 << 28, dtype=np.uint8)
    letters = LETTERS[codes[: 1 << 26]]
    pattern = random_masks(np.random.default_rng(SEED + 16), 16)
    for k in (2, 6):
        searcher = card.Searcher([pattern], k, "bit-parallel")
        rates = []
        for size in (22_870_000, codes.size):
            run = partial(searcher.search, codes[:size], 0, 1 << 40)
            rates.append(size / least_seconds(run, 5) / 1e9)
        whole = partial(
            asm.search, letters, b"ACGTTGCATTAGCCAT", k, strands="forward", device="cuda"
        )
        rates.append(letters.size / least_seconds(whole, 3) / 1e9)
        log(
            f"host to host m=16 k={k}, G symbols/s: 22.87 M {rates[0]:.2f}, 268 M {rates[1]:.2f}; "
            f"asm.search from 64 M letters {rates[2]:.2f}"
        )


def time_paper(codes):
    """The paper's Table 1 and figures 6-7 with every method, data on the card, Gbit/s."""
    log("| MB | m | " + " | ".join(card.METHODS) + " |")
    sizes = [(mb, 16) for mb in (3.14, 4.87, 7.74, 12.88, 17.56, 22.87)]
    sizes += [(22.87, length) for length in (8, 32, 64)]
    for megabytes, length in sizes:
        size = int(megabytes * 1e6)
        pattern = random_masks(np.random.default_rng(SEED), length)
        cells = []
        for method in card.METHODS:
            searcher = card.Searcher([pattern], 6, method)

            def run(searcher=searcher, size=size):
                for _ in searcher.on_card(codes, size, 0, 1 << 40):
                    pass

            cells.append(f"{8 * size / least_seconds(run, 5) / 1e9:.3g}")
        log(f"| {megabytes} | {length} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1, 8, 32, 33, 65, 300])
    parser.add_argument("--symbols", type=int, default=(1 << 32) - (1 << 22))
    options = parser.parse_args()
    begin = time.perf_counter()
    log(cuda.get_current_device().name, "numpy", np.__version__)
    if options.small:
        small()
    if options.check:
        check(options.lengths)
        log(f"checked: {time.perf_counter() - begin:.0f} s")
    if options.time:
        codes = text_on_card(options.symbols)
        log("| m | k | hits | slice | scan | list | all after slice | all, G/s | groups x span")
        for length, k in ((16, 6), (16, 2), (24, 3), (32, 6), (8, 1), (64, 6)):
            time_sliced(codes, length, k)
        time_many(codes[: 1 << 24], 96, 24, 3)
        time_paper(codes)
        time_host()
        log(f"timed: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
