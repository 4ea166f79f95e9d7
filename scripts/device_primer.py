"""The primer problem on a card: checked against the CPU, then timed. A short table at the end.

python3 scripts/device_primer.py [--large] [--seed-methods] [--genomes FOLDER] [--host N] [--small]

``--small`` only checks every method on two small inputs, for compute-sanitizer --tool
memcheck|racecheck python3 scripts/device_primer.py --small
"""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
from numba import cuda

from gpu import primer as card
from gpu.primer.paper import longest_prefixes
from streamer.batch import primer
from streamer.batch.choice import Choice
from streamer.batch.primer import on_gpu
from streamer.batch.primer.problem import Alpha
from trie.strands import PRIMER_STRANDS


def log(*words):
    print(*words, flush=True)


def randoms(m, n, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, m, dtype=np.uint8), rng.integers(0, 4, n, dtype=np.uint8)


CASES = [
    (300, 5000, 1),
    (300, 5000, 4),
    (500, 9000, 20),
    (400, 6000, 70),
    (2300, 9000, 5),
    (2000, 90_000, 6),
]
SMALL = [(200, 1500, 4), (200, 1300, 20)]
"""Lengths of alpha and beta, and k."""


def check(cases, all_strands):
    """Every method on the card equals the CPU's bit-parallel pass."""
    rng = np.random.default_rng(2)
    compared = 0
    # so that little is left to every start at every column
    first_columns, on_gpu.FIRST = on_gpu.FIRST, (256, 256)
    for m, n, k in cases:
        a, b = randoms(m, n, k)
        b[1000:1200] = a[100:300] if m >= 300 else a
        a[rng.integers(0, m, 3)] = 4
        b[rng.integers(0, n, 9)] = 4
        if m > 2000:
            b[2000 : 2000 + m] = a  # one long match
            b[np.arange(2100, 2000 + m, 211)] ^= 1
        records = Alpha.of([a, a[:50]])
        texts = [b[:4000], b[4000:]] if n > 4000 else [b[: n // 2], b[n // 2 :]]
        for strands in all_strands:
            expected = primer.reaches(records, texts, k, Choice("hook-row", "cpu"), strands=strands)
            for method in ("windows", "seeds", "hook-row", "conventional", "alternative"):
                if m >= 2000 and method in ("conventional", "alternative"):
                    continue
                choice = Choice(method, "cuda")
                found = primer.reaches(records, texts, k, choice, strands=strands)
                np.testing.assert_array_equal(found, expected, err_msg=f"{method} {m} {n} {k}")
                compared += 1
    on_gpu.FIRST = first_columns
    log(compared, "comparisons, all equal")


def timed(run, repeats=3):
    times = []
    for _ in range(repeats):
        cuda.synchronize()
        begin = time.perf_counter()
        run()
        cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times), sorted(times)[len(times) // 2]


def solve(records, text, k, method="windows", both=False):
    card = on_gpu.WindowSearch(records, k, method, both)
    reach = records.first_reaches(k)
    card.improve([text], reach)
    return reach, card


def time_default(m, n, k, repeats=3):
    """The default from codes in host memory to reaches there, and where its time goes."""
    a, b = randoms(m, n)
    records = Alpha.of([a])
    begin = time.perf_counter()
    reach, plan = solve(records, b, k)
    first = time.perf_counter() - begin
    best, median = timed(lambda: solve(records, b, k), repeats)
    log(f"{m} x {n} k={k}: first {first:.2f} s, best {best:.4f}, median {median:.4f} s;")
    log(f"    W {plan._window}")
    with clocked() as spent:
        begin = time.perf_counter()
        solve(records, b, k)
        total = time.perf_counter() - begin
    log(f"    of {total:.4f} s:", told(spent))
    return reach


@contextmanager
def clocked():
    """Seconds of the parts on the card, each waited for."""
    spent = {}
    kept = {}

    def clock(name, run):
        def inner(*arguments, **named):
            begin = time.perf_counter()
            answer = run(*arguments, **named)
            cuda.synchronize()
            spent.setdefault(name, []).append(time.perf_counter() - begin)
            return answer

        return inner

    for name in ("load", "scanned", "table", "seeded", "_extend"):
        kept[name] = getattr(card.GpuText, name)
        setattr(card.GpuText, name, clock(name, kept[name]))
    try:
        yield spent
    finally:
        for name, run in kept.items():
            setattr(card.GpuText, name, run)


def told(spent):
    return ", ".join(
        f"{name} {sum(all_):.4f} ({len(all_)}: {' '.join(f'{1e3 * s:.2f}' for s in all_[:16])})"
        for name, all_ in spent.items()
    )


def seed_methods(m, n, k, starts, repeats=2):
    a, b = randoms(m, n)
    some = np.linspace(0, m - 4 * k, starts).astype(np.int64)
    for method in ("conventional", "alternative"):
        run = partial(longest_prefixes, method, a, b, k, some)
        lengths, counts = run()
        best, _ = timed(run, repeats)
        log(f"{method} {starts} starts of {m} x {n}: {best:.3f} s, all {best * m / starts:.1f} s")
        log(f"    {counts[0] / best / 1e8:.0f} e8 comparisons/s")
    return some, lengths


def genomes(folder, ks=(4, 5, 6)):
    """SARS-CoV-2 against E. coli and the human mitochondrion: filter, scan, brute force."""
    from streamer.batch.records import records

    alpha = Alpha.of([r.codes for r in records(f"{folder}/sarscov2_MN908947.3.fa.gz")])
    names = ("ecoli_K12_MG1655", "mt_human")
    beta = [r.codes for name in names for r in records(f"{folder}/{name}.fa.gz")]
    for k in ks:
        found = {}
        for method in ("seeds", "windows", "hook-row"):
            run = partial(primer.reaches, alpha, beta, k, Choice(method, "cuda"), strands="both")
            found[method] = run()
            begin = time.perf_counter()
            run()
            log(f"genomes k={k} {method}: {time.perf_counter() - begin:.3f} s")
        for method, reach in found.items():
            np.testing.assert_array_equal(reach, found["windows"], err_msg=method)
    log("genomes: methods equal")


def host(millions, k=6, m=29_903):
    """A virus against a random host genome in 24 chromosomes, both strands."""
    a, _ = randoms(m, 1)
    alpha = Alpha.of([a])
    rng = np.random.default_rng(5)
    begin = time.perf_counter()
    # two bits of every random byte: the quickest way to many bases
    words = millions * 125_000 // 24
    beta = [rng.integers(0, 1 << 64, words, dtype=np.uint64).view(np.uint8) for _ in range(24)]
    for record in beta:
        record &= 3
    log(f"host genome made in {time.perf_counter() - begin:.1f} s")
    some = [record[: 1 << 19] for record in beta[:2]]
    reach = {}
    for method in ("seeds", "windows", "hook-row"):
        reach[method] = primer.reaches(alpha, some, k, Choice(method, "cuda"), strands="both")
        np.testing.assert_array_equal(reach["seeds"], reach[method])
    log("host: methods equal on 2 M columns")
    run = partial(primer.reaches, alpha, beta, k, Choice("seeds", "cuda"), strands="both")
    # the first compiles what the small text did not ask for
    for which in ("first", "second"):
        begin = time.perf_counter()
        with clocked() as spent:
            reach = run()
        seconds = time.perf_counter() - begin
        log(f"host {m} x {millions} M k={k} both strands, {which} run: {seconds:.2f} s")
        log("   ", told(spent))
    some = np.sort(reach - np.arange(m))
    log(f"    prefixes {some[m // 100]}, median {some[m // 2]}, {some[-1 - m // 100]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="check small inputs, nothing else")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seed-methods", action="store_true")
    parser.add_argument("--host", type=int, default=0, help="symbols of a host genome, in millions")
    parser.add_argument("--genomes", help="folder of the genomes of the tests")
    options = parser.parse_args()
    log(cuda.get_current_device().name)
    if options.small:
        check(SMALL, ("both",))
        return
    if not options.no_check:
        check(CASES, PRIMER_STRANDS)
    reach = time_default(43_606, 241_494, 100, 5)
    if options.seed_methods:
        some, lengths = seed_methods(43_606, 241_494, 100, 1056)
        np.testing.assert_array_equal(reach[some], some + lengths)
        log("1056 starts of the alternative solution equal the default's")
    if options.large:
        time_default(107_280, 2_220_391, 256, 1)
    if options.genomes:
        genomes(options.genomes)
    if options.host:
        host(options.host)


if __name__ == "__main__":
    main()
