"""Levenshtein kernels on a card: equal to the CPU, then ends a second, by dictionary and scheme.

    python scripts/device_levenshtein.py [kernels] [groups] [engine] [growth] [grow] [dense] [one]
        [small]

One strand; ids and starts included; hits are listed, "words" is a word for every end instead.
engine: host memory to host results, packing included. grow: the whole matcher. dense: text where
everything is near, against the CPU. one: the first dictionary alone, for ncu. small: every kernel
once, for compute-sanitizer.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numba import cuda

from gpu import levenshtein as near
from gpu.card.launch import compiled
from gpu.levenshtein import search
from gpu.levenshtein.device_index import DeviceIndex, gpu_scheme
from gpu.levenshtein.planes import pack_planes
from streamer.bench.timing import median_on_card
from tests.gpu.plain import nearest_words as on_the_gpu
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein.pieces import Scheme, build
from trie.levenshtein.scan import nearest_words

SIZE = 1 << 26
CHECKED = 300_000


def scheme(k, distance, paired, width):
    spacing = k // (distance + (2 if paired else 1))
    return Scheme(k, distance, spacing, width, tuple(range(distance + 1)) if paired else (-1,))


CASES = [
    (1_000_000, 21, 1, [None]),
    (1_000_000, 21, 2, [None]),
    (2_100_000, 21, 1, [None, (False, 10)]),
    (20_000, 21, 2, [None, (False, 7)]),
    (10_000, 21, 1, [None]),
    (10_000, 21, 2, [None, (True, 4)]),
    (10_000, 21, 3, [None]),
    (96, 24, 3, [None]),
]


def timed(index, buffers):
    """Seconds for the list of hits, and for the words of all ends; registers of the scan."""
    name = f"scan{index.scheme.distance}" + ("_paired" if index.scheme.paired else "")
    words = median_on_card(lambda: near.launch(index, buffers, SIZE, 0, all_words=True))
    hits = median_on_card(lambda: near.launch(index, buffers, SIZE, 0))
    return hits, words, list(compiled(search.sources, name).get_regs_per_thread().values())


def dictionary(rng, number, k, distance):
    codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
    return Patterns.of(codes, k, distance, both=False)


def kernels(rng, bases, offsets, cases=CASES):
    chunk = pack_planes(bases, offsets, threads=16)
    began = time.perf_counter()
    chunk = pack_planes(bases, offsets, threads=16)
    print(f"packing {SIZE / (time.perf_counter() - began) / 1e9:.1f} G symbols/s", flush=True)
    buffers = near.NearBuffers(SIZE)
    buffers.upload(chunk.planes.reshape(-1), SIZE)
    for number, k, distance, variants in cases:
        patterns = dictionary(rng, number, k, distance)
        on_cpu = build(patterns, threads=16)
        cpu = nearest_words(patterns, on_cpu, bases, offsets, stop=CHECKED, threads=16)
        for variant in variants:
            chosen = gpu_scheme(patterns) if variant is None else scheme(k, distance, *variant)
            began = time.perf_counter()
            index = DeviceIndex(patterns, chosen)
            near.launch(index, buffers, SIZE, 0, all_words=True)
            got = buffers.out[:CHECKED].copy_to_host()
            compiled = time.perf_counter() - began
            equal = np.array_equal(got, cpu)
            built = median_on_card(lambda p=patterns, c=chosen: DeviceIndex(p, c))
            hits, words, registers = timed(index, buffers)
            listed = int(buffers.found[:1].copy_to_host()[0])
            print(
                f"{number:>9} k {k} D {distance} {'01*0' if chosen.paired else 'pigeonhole':>10} "
                f"w {chosen.width:>2}  {SIZE / hits / 1e9:7.2f} G/s  words "
                f"{SIZE / words / 1e9:7.2f} G/s  equal {equal} ({int((cpu != NOTHING).sum())})  "
                f"listed {listed}  regs {registers}  first {compiled:.1f} s  tables "
                f"{DeviceIndex.nbytes(patterns, chosen) / 1e6:.1f} MB in {1e3 * built:.2f} ms",
                flush=True,
            )


def groups(rng, bases, offsets):
    """How many places a warp takes one after another."""
    for near.MOST_GROUPS in (4, 8, 28):
        print(f"groups {near.MOST_GROUPS}")
        kernels(rng, bases, offsets, [(1_000_000, 21, 1, [None]), (96, 24, 3, [None])])
    near.MOST_GROUPS = 16


def engine(rng, bases, offsets, cases=((1_000_000, 21, 1), (10_000, 21, 2), (96, 24, 3))):
    """Host memory to host results, by chunk and streams; what each stage takes of a chunk."""
    from gpu.levenshtein.stream import NearEngine

    times = 8
    bases = np.tile(bases, times)
    offsets = np.concatenate([offsets[:-1] + i * SIZE for i in range(times)] + [[times * SIZE]])
    for number, k, distance in cases:
        patterns = dictionary(rng, number, k, distance)
        for chunk, streams in (
            (1 << 22, 2),
            (1 << 24, 2),
            (1 << 24, 3),
            (1 << 24, 1),
            (1 << 25, 2),
        ):
            seconds, hits, stages = run_engine(
                NearEngine, (k, distance), chunk, streams, [patterns], bases, offsets
            )
            print(
                f"engine {number} k {k} D {distance} chunks of {chunk} on {streams} streams: "
                f"{bases.size / seconds / 1e9:.2f} G/s, {hits} hits; ms a chunk: {stages}",
                flush=True,
            )


def run_engine(made, arguments, chunk, streams, sets, bases, offsets, threads=16):
    """The best seconds of three, the hits, and milliseconds a chunk of each row of a timeline."""
    from gpu.card.timeline import Timeline

    matching = made(*arguments, chunk=chunk, streams=streams, threads=threads)
    best, hits = float("inf"), 0
    for _ in range(4):
        began = time.perf_counter()
        parts = matching.match(sets, bases, offsets, 0, bases.size)
        hits = sum(words.size for _, _, words in parts)
        best = min(best, time.perf_counter() - began)
    matching.close()
    timeline = Timeline()
    matching = made(*arguments, chunk=chunk, streams=streams, threads=threads, timeline=timeline)
    for _ in matching.match(sets, bases, offsets, 0, bases.size):
        pass
    spent = {}
    for bar in timeline.activities():
        spent[bar.row] = spent.get(bar.row, 0.0) + bar.end - bar.begin
    matching.close()
    chunks = -(-bases.size // chunk)
    return best, hits, ", ".join(f"{row} {ms / chunks:.3f}" for row, ms in spent.items())


def growth(rng, bases, offsets):
    """What the next batch pays after a dictionary has grown."""
    from streamer.matching.near import Options
    from streamer.matching.near.levenshtein import LevenshteinSolver
    from streamer.matching.near.near_result import Step
    from streamer.sequences.read_batch import ReadBatch

    few = ReadBatch(["a"], np.array([0, 1 << 20]), bases[: 1 << 20])
    codes = np.unique(rng.integers(0, 4**21, 1_000_000, dtype=np.uint64))
    solver = LevenshteinSolver(codes, 21, 1, False, Options(device="cuda", threads=16))
    for new in (0, 0, 10_000, 10_000, 100_000, 1_000_000, 0):
        began = time.perf_counter()
        if new:
            solver.learn(rng.integers(0, 4**21, new, dtype=np.uint64))
        learnt = time.perf_counter()
        solver.match(few, Step(0, 1 << 20, 1))
        print(
            f"growth: {new} new k-mers learnt in {(learnt - began) * 1e3:.1f} ms, next million "
            f"ends {(time.perf_counter() - learnt) * 1e3:.1f} ms, sets {solver.sizes()}",
            flush=True,
        )


def grow(rng, bases, offsets, device="cuda", total=1 << 24, chunks=(1 << 16, 1 << 20, 1 << 23)):
    """A dictionary that grows by nearly every window, then is saturated; k = 21, D = 1."""
    from streamer.dictionary.targets import Dictionary, TargetSets
    from streamer.matching.matcher import Matcher
    from streamer.matching.near import Approximate, Options
    from streamer.sequences.read_batch import ReadBatch

    none = np.zeros(0, dtype=np.uint64)
    stored = Dictionary(21, "forward", none, np.zeros(0, np.uint32), TargetSets.empty())
    reads = np.append(np.arange(0, total, 10_000), total)
    batch = ReadBatch([str(i) for i in range(reads.size - 1)], reads, bases[:total])
    few = 1 << 16
    first = ReadBatch(["first"], np.array([0, few]), bases[SIZE - few :])
    for chunk in chunks:
        for both in (False, True):
            options = Options(device=device, threads=16, chunk=chunk)
            near_of = Approximate(
                stored, semantics="levenshtein", distance=1, both=both, options=options
            )
            matcher = Matcher(
                stored.without_targets("both" if both else "forward"), mode="grow", chunk=chunk,
                device=device, threads=16, approximate=near_of,
            )  # fmt: skip
            matcher.match(first)
            seconds = []
            for _ in range(2):
                began = time.perf_counter()
                result = matcher.match(batch)
                seconds.append(time.perf_counter() - began)
            print(
                f"grow on {device}: {'both' if both else 'forward'}, chunks of {chunk}: "
                f"{total / seconds[0] / 1e6:.0f} M bases/s while {matcher.kmers} k-mers come, "
                f"then {total / seconds[1] / 1e6:.0f}, {len(result.near)} rows, sets "
                f"{near_of._solver.sizes()}",
                flush=True,
            )
            matcher.close()


def dense(rng, bases, offsets, total=1_000_000):
    """Poly-A, near-identical k-mers, D close to k: words equal to the CPU's, in bounded memory."""
    from gpu.levenshtein.stream import NearEngine
    from trie.levenshtein.lanes import nearest_words as by_lanes

    poly = np.zeros(total, dtype=np.uint8)
    alike = np.unique(rng.integers(0, 4**5, 1000, dtype=np.uint64) << np.uint64(16))
    every = np.arange(4**4, dtype=np.uint64)
    for name, codes, k, distance, text in (
        ("poly-A, one k-mer", np.zeros(1, np.uint64), 21, 2, poly),
        ("poly-A, k-mers alike", alike, 21, 4, poly),
        ("repeats of 3, k-mers alike", alike, 21, 3, np.arange(total, dtype=np.uint8) % 3),
        ("every 4-mer, D = 3", every, 4, 3, bases[:total]),
        ("every 4-mer, D = 1", every, 4, 1, bases[:total]),
    ):
        patterns = Patterns.of(codes, k, distance, both=True)
        reads = np.array([0, total // 2, total], dtype=np.int64)
        free = cuda.current_context().get_memory_info().free
        matching = NearEngine(k, distance, chunk=1 << 18, threads=8)
        began = time.perf_counter()
        got = np.full(total, NOTHING)
        for _, ends, words in matching.match([patterns], text, reads, 0, total):
            got[ends - 1] = words
        seconds = time.perf_counter() - began
        held = free - cuda.current_context().get_memory_info().free
        matching.close()
        stop = 60_000
        cpu = by_lanes(patterns, text, reads, stop=stop, threads=8)
        middle = by_lanes(patterns, text, reads, first=total // 2 - 100, stop=total // 2 + 100)
        equal = np.array_equal(got[:stop], cpu)
        equal &= np.array_equal(got[total // 2 - 100 : total // 2 + 100], middle)
        print(
            f"dense: {name}: equal {equal}, {int((got != NOTHING).sum())} hits in {seconds:.2f} s, "
            f"{held / 1e6:.0f} MB on the card",
            flush=True,
        )


def small(rng, bases, offsets):
    """Every kernel over a few thousand symbols, against the CPU."""
    from gpu.levenshtein.stream import NearEngine

    text = bases[:6_000].copy()
    text[100:160] = 4
    reads = np.array([0, 17, 3_000, 3_000, 6_000], dtype=np.int64)
    for k, distance, number in ((12, 1, 200), (21, 2, 50)):
        codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
        shifts = np.arange(2 * (k - 1), -1, -2).astype(np.uint64)
        for i, code in enumerate(codes[:40].tolist()):
            at = 200 + 60 * i
            text[at : at + k] = (np.uint64(code) >> shifts) & np.uint64(3)
            text[at + 3] ^= 1
        patterns = Patterns.of(codes, k, distance, both=True)
        cpu = nearest_words(patterns, build(patterns), text, reads)
        got = on_the_gpu(patterns, text, reads, scheme=scheme(k, distance, distance == 2, 5))
        print(f"small: k {k} D {distance}: equal {np.array_equal(got, cpu)}", flush=True)
    found = np.full(text.size, NOTHING)
    matching = NearEngine(21, 2, chunk=1_000, threads=2)
    for _, ends, words in matching.match([patterns], text, reads, 0, text.size):
        found[ends - 1] = words
    print(f"small: chunks: equal {np.array_equal(found, cpu)}", flush=True)


def one(rng, bases, offsets):
    kernels(rng, bases, offsets, CASES[:1])


PARTS = {
    "kernels": kernels,
    "groups": groups,
    "engine": engine,
    "growth": growth,
    "grow": grow,
    "dense": dense,
    "one": one,
    "small": small,
}
USUAL = ("kernels", "groups", "engine", "growth", "grow", "dense")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=list(PARTS))
    chosen = parser.parse_args().parts or USUAL
    rng = np.random.default_rng(5)
    bases = rng.integers(0, 4, SIZE, dtype=np.uint8)
    offsets = np.arange(0, SIZE + 1, SIZE // 64).astype(np.int64)
    for name in chosen:
        PARTS[name](rng, bases, offsets)


if __name__ == "__main__":
    main()
