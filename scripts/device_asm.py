"""Approximate pattern search on a CUDA device: checked against the CPU, then timed.

python scripts/device_asm.py [--check] [--time] [--symbols N] [--tune]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import gpu.asm as card
from gpu.intrinsics import cuda
from gpu.kernels.asm import sliced
from streamer.batch import asm
from streamer.batch.asm.patterns import masks_of

SEED = 20
LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def log(*words):
    print(*words, flush=True)


def random_masks(rng, length):
    return masks_of(LETTERS[rng.integers(0, 4, length)].tobytes())


def check():
    """Every method against the CPU's bit-parallel one, which is held against brute force."""
    rng = np.random.default_rng(SEED)
    compared = 0
    for size in (1, 100, 70_001, 3_000_000):
        text = np.frombuffer(b"ACGT" * 20 + b"N", dtype=np.uint8)[rng.integers(0, 81, size)]
        for length in (1, 8, 32, 33, 65, 300):
            at = int(rng.integers(0, max(1, size - length)))
            pattern = text[at : at + length].copy()
            pattern = np.concatenate([pattern, np.full(length - pattern.size, 65, np.uint8)])
            pattern[length // 2] = 65
            for k in sorted({0, 2, 6, length - 1}):
                if k >= length or (length - 1 == k > 6 and size > 100_000):
                    continue
                wanted = asm.search(text, [pattern, pattern[::-1]], k, device="cpu", threads=16)
                for method in card.METHODS:
                    if method != "bit-parallel" and (length > 65 or size > 100_000) and k != 2:
                        continue
                    got = asm.search(
                        text, [pattern, pattern[::-1]], k, device="cuda", method=method
                    )
                    if not np.array_equal(got, wanted):
                        log("WRONG", method, size, length, k, got.size, wanted.size)
                        raise SystemExit(1)
                    compared += 1
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


def time_sliced(codes, cases):
    space = card.Workspace()
    n = codes.size
    log(
        "| m | k | hits | slice | scan | text order | hits out | all after slice, wall | G symbols/s |"
    )
    for length, k in cases:
        rng = np.random.default_rng(SEED + length)
        pattern = random_masks(rng, length)
        sliced_ms, text = milliseconds(lambda: card.SlicedText(codes, length + k, 1, space), 3)
        scan_ms, out = milliseconds(lambda: card.scan_sliced(text, [pattern], k, space))
        order_ms, found = milliseconds(lambda: card.to_text_order(text, out, 1, k, space))
        hits_ms, (ends, _, _) = milliseconds(lambda: card.hits(found, 0, n, k, 1 << 40, space))

        def whole():
            out = card.scan_sliced(text, [pattern], k, space)
            found = card.to_text_order(text, out, 1, k, space)
            card.hits(found, 0, n, k, 1 << 40, space)
            cuda.synchronize()

        least = 1e9
        for _ in range(7):
            begin = time.perf_counter()
            whole()
            least = min(least, time.perf_counter() - begin)
        g = n / 1e6
        log(
            f"| {length} | {k} | {ends.size / n:.5f} | {g / sliced_ms:.0f} | {g / scan_ms:.0f} | "
            f"{g / order_ms:.0f} | {g / hits_ms:.0f} | {1e3 * least:.2f} ms | "
            f"**{g / (1e3 * least):.0f}** | span {text.span} groups {text.groups}"
        )


def time_many(codes, count, length, k):
    space = card.Workspace()
    rng = np.random.default_rng(SEED)
    patterns = [random_masks(rng, length) for _ in range(count)]
    text = card.SlicedText(codes, length + k, count, space)

    def whole():
        out = card.scan_sliced(text, patterns, k, space)
        found = card.to_text_order(text, out, count, k, space)
        return card.hits(found, 0, codes.size, k, 1 << 40, space)

    ms, (ends, _, _) = milliseconds(whole)
    log(
        f"{count} patterns of {length}, k={k}, {codes.size} symbols: {ms:.2f} ms, "
        f"{codes.size * count / ms / 1e6:.0f} G symbols x patterns/s, {ends.size} hits"
    )


def time_paper(codes):
    """The seed's Table 1 sizes with every method, data on the card."""
    space = card.Workspace()
    k, length = 6, 16
    pattern = random_masks(np.random.default_rng(SEED), length)
    letters = np.unique(pattern)
    numbers = np.searchsorted(letters, pattern).astype(np.int32)
    log("| MB | " + " | ".join(card.METHODS) + " | (Gbit/s)")
    for megabytes in (3.14, 4.87, 7.74, 12.88, 17.56, 22.87):
        part = codes[: int(megabytes * 1e6)]
        shape = (1 + k.bit_length(), -(-part.size // 32))
        cells = [f"{megabytes}"]
        for method in card.METHODS:
            found = cuda.device_array(shape, np.uint32)

            def run():
                if method == "bit-parallel":
                    text = card.SlicedText(part, length + k, 1, space)
                    out = card.scan_sliced(text, [pattern], k, space)
                    done = card.to_text_order(text, out, 1, k, space)
                else:
                    last = card.last_positions(part, letters, space)
                    done = found.reshape(1, *shape)
                    if method == "pasm":
                        card.pasm(part, pattern, last, numbers, k, found, space)
                    else:
                        shared = method == "wspasm-shared"
                        card.wspasm(part, pattern, last, numbers, k, found, shared, space)
                return card.hits(done, 0, part.size, k, 1 << 40, space)

            ms, _ = milliseconds(run, 5)
            cells.append(f"{8 * part.size / ms / 1e6:.3g}")
        log("| " + " | ".join(cells) + " |")


def tune(codes):
    """Registers of the scan, for the record."""
    space = card.Workspace()
    for length, k in ((16, 6), (32, 6)):
        pattern = random_masks(np.random.default_rng(SEED), length)
        text = card.SlicedText(codes, length + k, 1, space)
        for threads in (64, 128, 256):
            for registers in (0, 128, 104, 80):
                strip = card.strips_of(length, True)[0][1]
                options = {"max_registers": registers} if registers else {}
                sliced.THREADS = threads
                kernel = cuda.jit(sliced.scan(strip, threads), **options)
                card._scan.cache_clear()
                card._scan = lambda strip, kernel=kernel: kernel
                card._scan.cache_clear = lambda: None
                ms, _ = milliseconds(lambda: card.scan_sliced(text, [pattern], k, space), 5)
                log(
                    f"m={length} threads={threads} registers={registers or 'free'} {codes.size / ms / 1e6:.0f} G/s"
                )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--symbols", type=int, default=1 << 31)
    options = parser.parse_args()
    begin = time.perf_counter()
    log(cuda.get_current_device().name, "numpy", np.__version__)
    if options.check:
        check()
        log(f"checked: {time.perf_counter() - begin:.0f} s")
    if options.time or options.tune:
        codes = text_on_card(options.symbols)
    if options.time:
        time_sliced(codes, ((8, 1), (16, 6), (24, 3), (32, 6), (64, 6)))
        time_many(codes[: 1 << 24], 96, 24, 3)
        time_paper(codes)
        log(f"timed: {time.perf_counter() - begin:.0f} s")
    if options.tune:
        tune(codes)
        log(f"tuned: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
