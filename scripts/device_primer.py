"""The primer problem on a card: checked against the CPU, then timed. A short table at the end.

python3 scripts/device_primer.py [--small] [--large] [--seed-methods] [--host N]
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
from numba import cuda

from gpu import primer as card
from streamer.batch import primer
from streamer.batch.choice import Choice
from streamer.batch.primer import on_card, windows
from streamer.batch.primer.problem import Alpha
from streamer.batch.primer.text import joined


def log(*words):
    print(*words, flush=True)


def randoms(m, n, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, m, dtype=np.uint8), rng.integers(0, 4, n, dtype=np.uint8)


def check():
    """Every method on the card equals the CPU's bit-parallel pass."""
    rng = np.random.default_rng(2)
    compared = 0
    for m, n, k in [
        (300, 5000, 1),
        (300, 5000, 4),
        (500, 9000, 20),
        (400, 6000, 70),
        (2300, 9000, 5),
    ]:
        a, b = randoms(m, n, k)
        b[1000:1200] = a[100:300]
        a[rng.integers(0, m, 3)] = 4
        b[rng.integers(0, n, 9)] = 4
        if m > 2000:
            b[2000 : 2000 + m] = a  # one long match
            b[np.arange(2100, 2000 + m, 211)] ^= 1
        records = Alpha.of([a, a[:50]])
        texts = [b[:4000], b[4000:]]
        for strands in primer.STRANDS:
            expected = primer.reaches(records, texts, k, Choice("hook-row", "cpu"), strands=strands)
            for method in ("windows", "seeds", "hook-row", "conventional", "alternative"):
                if m > 2000 and method == "conventional":
                    continue
                choice = Choice(method, "cuda")
                found = primer.reaches(records, texts, k, choice, strands=strands)
                np.testing.assert_array_equal(found, expected, err_msg=f"{method} {m} {n} {k}")
                compared += 1
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


def solve(records, text, k, tune=None):
    plan = windows.Plan()
    reach = records.first_reaches(k)
    backend = on_card.CardText(records, card.Alpha(records.codes, records.ends), text, k)
    for name, value in (tune or {}).items():
        setattr(backend, name, value)
    windows.improve(records, text.size, k, reach, backend, plan)
    return reach, plan


def time_windows(m, n, k, repeats=3, tunes=({},)):
    a, b = randoms(m, n)
    records, text = Alpha.of([a]), joined([b])
    for tune in tunes:
        begin = time.perf_counter()
        reach, plan = solve(records, text, k, tune)
        first = time.perf_counter() - begin
        best, median = timed(lambda tune=tune: solve(records, text, k, tune), repeats)
        log(f"windows {m} x {n} k={k} {tune}: first {first:.2f} s, best {best:.4f}, ")
        log(f"    median {median:.4f} s; W {plan.window} {plan.counts}")
    return reach


def where_time_goes(m, n, k):
    a, b = randoms(m, n)
    records, text = Alpha.of([a]), joined([b])
    plan = windows.Plan()
    reach = records.first_reaches(k)
    backend = on_card.CardText(records, card.Alpha(records.codes, records.ends), text, k)
    spent = {}

    def clocked(name, run):
        def inner(*arguments):
            begin = time.perf_counter()
            answer = run(*arguments)
            spent.setdefault(name, []).append(time.perf_counter() - begin)
            return answer

        return inner

    for name in ("hits", "best", "reaches"):
        setattr(backend, name, clocked(name, getattr(backend, name)))
    begin = time.perf_counter()
    windows.improve(records, text.size, k, reach, backend, plan)
    total = time.perf_counter() - begin
    log(f"of {total:.4f} s: " + ", ".join(f"{k} {sum(v):.4f} ({len(v)})" for k, v in spent.items()))


def seed_methods(m, n, k, starts, repeats=2):
    a, b = randoms(m, n)
    some = np.linspace(0, m - 4 * k, starts).astype(np.int64)
    for method in ("conventional", "alternative"):
        run = partial(card.longest_prefixes, method, a, b, k, some)
        lengths, counts = run()
        best, _ = timed(run, repeats)
        log(f"{method} {starts} starts of {m} x {n}: {best:.3f} s, all {best * m / starts:.1f} s")
        log(f"    {counts[0] / best / 1e8:.0f} e8 comparisons/s")
    return some, lengths


def genomes(folder, ks=(4, 5, 6)):
    """SARS-CoV-2 against E. coli and the human mitochondrion: filter, default, brute force."""
    from streamer.batch.sequences import records

    alpha = Alpha.of([r.codes for r in records(f"{folder}/sarscov2_MN908947.3.fa.gz")])
    names = ("ecoli_K12_MG1655", "mt_human")
    beta = [r.codes for name in names for r in records(f"{folder}/{name}.fa.gz")]
    for k in ks:
        found = {}
        for method in ("windows", "seeds", "hook-row") if k == 6 else ("windows", "seeds"):
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
    beta = [rng.integers(0, 4, millions * 1_000_000 // 24, dtype=np.uint8) for _ in range(24)]
    some = [record[: 1 << 22] for record in beta[:2]]
    reach = {}
    for method in ("seeds", "windows"):
        run = partial(primer.reaches, alpha, some, k, Choice(method, "cuda"), strands="both")
        run()
        begin = time.perf_counter()
        reach[method] = run()
        log(f"host 17 M columns k={k} {method}: {time.perf_counter() - begin:.3f} s")
    np.testing.assert_array_equal(reach["seeds"], reach["windows"])
    begin = time.perf_counter()
    times = []
    primer.reaches(
        alpha, beta, k, Choice("seeds", "cuda"), strands="both", chunk=1 << 27,
        on_chunk=lambda _: times.append(round(time.perf_counter() - begin, 2)),
    )  # fmt: skip
    log(f"host {m} x {millions} M k={k} both strands, seeds: {time.perf_counter() - begin:.2f} s")
    log("    chunks", times[:4], times[-2:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seed-methods", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--host", type=int, default=0, help="symbols of a host genome, in millions")
    parser.add_argument("--genomes", help="folder of the genomes of the tests")
    options = parser.parse_args()
    log(cuda.get_current_device().name)
    if not options.no_check:
        check()
    tunes = [{}]
    if options.tune:
        tunes += [{"width": 1024}, {"width": 4096}]
    reach = time_windows(43_606, 241_494, 100, 5, tunes)
    where_time_goes(43_606, 241_494, 100)
    if options.seed_methods:
        some, lengths = seed_methods(43_606, 241_494, 100, 1056)
        np.testing.assert_array_equal(reach[some], some + lengths)
        log("1056 starts of the alternative solution equal the default's")
    if options.genomes:
        genomes(options.genomes)
    if options.host:
        host(options.host)
    if options.large:
        time_windows(107_280, 2_220_391, 256, 1)
        where_time_goes(107_280, 2_220_391, 256)


if __name__ == "__main__":
    main()
